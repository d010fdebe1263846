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
  if (!engine.HasFilesInCaches()) return;
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

[[gnu::hot]] void Stop() { engine.Stop(); }

namespace {

void UnlockTable() {
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

// The table lock for two calls: what the first one does is undone by the second. Nobody leaves in
// between, so the second one finds the engine as the first has. False: it is not there any more.
// `wakes`: else it may be asleep.
bool LockTable(bool wakes) {
  if (!engine.active()) return false;
  sys::EnterEngine();
  if (wakes) {
    engine.LockTable();
  } else {
    engine.table_lock.Lock();
  }
  if (engine.active()) return true;
  UnlockTable();
  return false;
}

}  // namespace

// A child that shares its parent's memory may fork, too. It knows nothing of its parent's files.
void BeforeFork() {
  if (sys::IsSharing()) engine.NoteFork();
  if (LockTable(false)) engine.PrepareFork();
}

void AfterForkInParent() {
  if (engine.active()) UnlockTable();
}

// Another thread of the process whose memory this is a copy of may have been changing the engine's
// tables, and the descriptors are those of a child that has not told of its changes.
[[gnu::hot]] void AfterForkInChild() {
  if (sys::IsSharing()) {
    sys::sharing = 0;
    engine.LeaveInChild();
  }
  if (!engine.active()) return;
  engine.BecomeChild();
  UnlockTable();
}

bool BeginSharing(uint32_t* depth) {
  *depth = sys::sharing;
  if (*depth == 0) {
    engine.NoticeDeaths();
    if (!LockTable(true)) return false;
    const bool begins = engine.BeginSharing();
    UnlockTable();
    if (!begins) return false;
  }
  sys::sharing = *depth + 1;
  return true;
}

bool IsSharing() { return sys::IsSharing(); }

// The child may have been killed at any instruction of ours.
void EndSharing(uint32_t depth) {
  sys::sharing = depth;
  if (depth > 0) return;
  sys::ForgetDeferred();
  DropClaimsOfChildren();
  engine.EndSharing();
}

void BeforeSizeLimit(uint64_t soft) {
  if (!LockTable(true)) return;
  if (soft < sys::SoftLimit(RLIMIT_FSIZE)) engine.ReleaseAll();
}

void AfterSizeLimit() {
  if (!engine.active()) return;
  ForgetSizeLimit();
  UnlockTable();
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

// One that sleeps has nothing cached, and no lock on a file. It must claim the files that the new
// program will have, and no others.
void BeforeExec() {
  if (!engine.active()) return;
  if (engine.asleep() && LockTable(false)) {
    bool inherits = false;
    ForEachInherited([&](int, const File&) { inherits = true; });
    const bool sleeps = engine.asleep() && !inherits;
    if (sleeps) engine.BeginReplacing();
    UnlockTable();
    if (sleeps) return;
  }
  TakeOverInherited();
  TableLock lock;
  engine.BeginReplacing();
  engine.ReleaseAll();
  KeepLocks(0);
}

void AfterExec() {
  if (!LockTable(false)) return;
  KeepLocks(FD_CLOEXEC);
  engine.EndReplacing();
  UnlockTable();
}

bool FreeForExec(int dirfd, const char* path) {
  Claim claim;
  if (sys::IsSharing()) return claim.TakePath(dirfd, path, true) == 0;
  if (!engine.active()) return false;
  if (claim.TakePath(dirfd, path, true) < 0 || !claim.taken()) return false;
  TableLock lock;
  engine.ReleaseAll();
  return true;
}

void BeforeSpawn() {
  if (!engine.active()) return;
  engine.NoteSpawn();
  if (!engine.HasFilesInCaches()) return;
  TakeOverInherited();
  {
    TableLock lock;
    ForEachInherited([](int, File& file) {
      if (file.state.load() == State::kCached) engine.PassThrough(file);
    });
  }
  PublishAll();  // the new program may not know of us
}

}  // namespace nvcache::vfs
