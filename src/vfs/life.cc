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

void LeaveInChild() { engine.LeaveInChild(); }

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
    if (file.state.load() == State::kPassThrough && file.backing_fd < 0) continue;
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

// Of a file that the program has locked and keeps open, ours stays open as well, as a descriptor
// that the new program has inherited: its closing would end the locks. Table lock held.
void KeepLocks(int flags) {
  ForEachInherited([&](int, const File& file) {
    if (file.backing_fd >= 0 && (flags != 0 || IsLocked(file.backing_fd))) {
      sys::Fcntl(file.backing_fd, F_SETFD, flags);
    }
  });
}

}  // namespace

void Release() {
  if (!engine.active()) return;
  TakeOverInherited();
  TableLock lock;
  engine.ReleaseAll();
}

void BeforeExec() {
  if (!engine.active()) return;
  TakeOverInherited();
  TableLock lock;
  engine.BeginReplacing();
  engine.ReleaseAll();
  KeepLocks(0);
}

void AfterExec() {
  if (!engine.active()) return;
  TableLock lock;
  KeepLocks(FD_CLOEXEC);
  engine.EndReplacing();
}

bool FreeForExec(int dirfd, const char* path) {
  if (!engine.active()) return false;
  Claim claim;
  if (claim.TakePath(dirfd, path, true) < 0 || !claim.taken()) return false;
  TableLock lock;
  engine.ReleaseAll();
  return true;
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

}  // namespace nvcache::vfs
