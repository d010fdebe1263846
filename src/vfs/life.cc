// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>

#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/vfs/access.h"
#include "src/vfs/space.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

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

bool Start(const Host& host, char** environment, settings::WriteBack rule) {
  engine.settings.write_back = rule;
  engine.Start(host, environment);
  return engine.active();
}

void Refuse(char** environment, const char* text) { engine.RefuseStart(environment, text); }

bool IsActive() { return engine.active(); }

bool WantsStreams() { return engine.settings.stdio; }

void Stop() { engine.Stop(); }

namespace {

// The table lock for two calls: what the first one does is undone by the second. Nobody leaves in
// between, so the second one finds the engine as the first has. False: it is not there any more.
bool LockTable() {
  if (!engine.active()) return false;
  sys::EnterEngine();
  engine.table_lock.Lock();
  if (engine.active()) return true;
  engine.table_lock.Unlock();
  sys::LeaveEngine();
  return false;
}

}  // namespace

void BeforeFork() {
  if (LockTable()) engine.PrepareFork();
}

void AfterFork() {
  if (!engine.active()) return;
  engine.BecomeChild();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void BeforeSizeLimit(uint64_t soft) {
  if (!LockTable()) return;
  if (soft < sys::SoftLimit(RLIMIT_FSIZE)) engine.ReleaseAll();
}

void AfterSizeLimit() {
  if (!engine.active()) return;
  ForgetSizeLimit();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

void BeforeRights(bool for_good) {
  if (!engine.active()) return;
  TableLock lock;
  engine.PrepareRights();
  if (for_good) engine.StayWithoutPool();
}

void AfterRights() {
  if (engine.active()) engine.RightsChanged();
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

void Retire() { engine.Retire(); }

// Under the table lock the engine maps what it maps.
long LockMemory(int flags) {
  if (!engine.active()) return kNotOurs;
  TableLock lock;
  return sys::LockAll(flags);
}

long UnlockMemory() {
  if (!engine.active()) return kNotOurs;
  TableLock lock;
  return sys::UnlockAll();
}

void LeaveInChild() { engine.LeaveInChild(); }

void Leave() {
  if (!engine.active()) return;
  // What the parent has in its cache, nobody asks for later.
  for (uint32_t fd = 0; fd < engine.descriptor_end(); ++fd) engine.TakeOver(static_cast<int>(fd));
  engine.Leave();
}

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
  }
  PublishAll();  // the new program may not know of us
}

}  // namespace nvcache::vfs
