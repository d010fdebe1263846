// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>

#include "src/sys/kernel.h"
#include "src/vfs/access.h"
#include "src/vfs/space.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

bool Start(const Host& host, char** environment) {
  engine.Start(host, environment);
  return engine.active();
}

void Refuse(char** environment, const char* text) { engine.RefuseStart(environment, text); }

bool IsActive() { return engine.active(); }

bool WantsStreams() { return engine.settings.stdio; }

void Stop() { engine.Stop(); }

void BeforeFork() {
  if (!engine.active()) return;
  sys::EnterEngine();
  engine.table_lock.Lock();
  engine.PrepareFork();
}

void AfterFork() {
  if (!engine.active()) return;
  engine.BecomeChild();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void BeforeSizeLimit(uint64_t soft) {
  if (!engine.active()) return;
  sys::EnterEngine();
  engine.table_lock.Lock();
  if (soft < sys::SoftLimit(RLIMIT_FSIZE)) engine.ReleaseAll();
}

void AfterSizeLimit() {
  if (!engine.active()) return;
  ForgetSizeLimit();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void Retire() { engine.Retire(); }

namespace {

// Calls function(fd, file) for each descriptor that a program has which is started now. Table lock
// held.
template <typename Function>
void ForEachInherited(Function function) {
  for (uint32_t number = 0; number < engine.descriptor_end(); ++number) {
    const int fd = static_cast<int>(number);
    Description* description = engine.SlotOf(fd);
    if (!IsDescription(description)) continue;
    File& file = *description->file.load();
    if (file.state.load() == State::kPassThrough && !file.locked.load()) continue;
    if (sys::Fcntl(fd, F_GETFD) == 0) function(fd, file);
  }
}

// The new program may not know to ask for a file.
void TakeOverInherited() {
  int failed = -1;
  for (;;) {
    int foreign = -1;
    {
      TableLock lock;
      ForEachInherited([&](int fd, const File& file) {
        if (file.state.load() == State::kForeign && fd > failed && foreign < 0) foreign = fd;
      });
    }
    if (foreign < 0) return;
    if (engine.TakeOver(foreign) < 0) failed = foreign;
  }
}

}  // namespace

void BeforeExec() {
  if (!engine.active()) return;
  TakeOverInherited();
  TableLock lock;
  engine.ReleaseAll();
}

void BeforeSpawn() {
  if (!engine.active()) return;
  TakeOverInherited();
  {
    TableLock lock;
    ForEachInherited([](int, File& file) { engine.PassThrough(file); });
    engine.ReleaseUnlessOpen();
  }
  PublishAll();  // the new program may not know of us
}

long BeforeFreeze() {
  if (!engine.active()) return 0;
  TakeOverInherited();
  TableLock lock;
  return engine.BeginFreeze();
}

void AfterFreeze(bool frozen) {
  if (!frozen) AfterThaw();
}

void AfterThaw() {
  if (!engine.active()) return;
  TableLock lock;
  engine.EndFreeze();
}

// The descriptor stays open in the new program, as one that it has inherited.
void KeepLocks(bool coming) {
  if (!engine.active()) return;
  TableLock lock;
  ForEachInherited([&](int, const File& file) {
    if (file.backing_fd < 0 || !file.locked.load()) return;
    sys::Fcntl(file.backing_fd, F_SETFD, coming ? 0 : FD_CLOEXEC);
  });
}

}  // namespace nvcache::vfs
