// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/life.h"

#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/size_limit.h"
#include "src/vfs/descriptors.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/lend.h"
#include "src/vfs/mirrored.h"
#include "src/vfs/open.h"
#include "src/vfs/output.h"

namespace nvcache::vfs {

namespace {

// Calls function(fd, description, file) for each descriptor that a program has which is started
// now, if `counts` says yes to the latter two. Table lock held.
template <typename Condition, typename Function>
void ForEachInherited(Condition counts, Function function) {
  for (uint32_t number = 0; number < engine.descriptors.end(); ++number) {
    const int fd = static_cast<int>(number);
    Description* description = engine.descriptors.Of(fd);
    if (!IsDescription(description) || (description->flags.load() & O_CLOEXEC) != 0) continue;
    File& file = *description->file.load();
    if (counts(*description, file) && sys::Fcntl(fd, F_GETFD) == 0)
      function(fd, *description, file);
  }
}

bool IsForeignFile(const Description& /*description*/, const File& file) {
  return file.state.load() == State::kForeign;
}

// The new program may not know to ask for a file.
void TakeOverInherited() {
  if (!engine.files.AnyInCaches()) return;
  int failed = -1;
  for (;;) {
    int foreign = -1;
    {
      TableLock lock;
      ForEachInherited(IsForeignFile, [&](int fd, Description&, File&) {
        if (fd > failed && foreign < 0) foreign = fd;
      });
    }
    if (foreign < 0) return;
    if (TakeOver(foreign) < 0) failed = foreign;
  }
}

// A program that is started may know nothing of us, and write: without the log, and as long as it
// likes. So nothing of what it may write to is pending any more.
void HandOnInherited() {
  TakeOverInherited();
  for (int with_entry = -1;; with_entry = -1) {
    {
      TableLock lock;
      const auto counts = [&](const Description& description, const File&) {
        return with_entry < 0 && !description.given.load();
      };
      ForEachInherited(counts, [&](int fd, Description& description, File& file) {
        const bool writes = description.writes();
        description.given.store(true);
        if (file.state.load() == State::kCached) GiveBack(file, !writes);
        if (writes && HandOn(file)) with_entry = fd;
      });
    }
    if (with_entry < 0) return;
    InFlight in_flight;
    BypassLogOf(with_entry, &in_flight);
  }
}

// Our descriptor of a file that the program has locked and keeps open stays open as well, as one
// that the new program inherits: its closing would end the locks. Table lock held.
void KeepLocks(int flags) {
  const auto has_ours = [](const Description&, const File& file) { return file.backing_fd >= 0; };
  ForEachInherited(has_ours, [&](int, Description&, File& file) {
    if (flags != 0 || IsLocked(file.backing_fd)) sys::Fcntl(file.backing_fd, F_SETFD, flags);
  });
}

}  // namespace

bool Start(const Host& host, char** environment, settings::WriteBack rule) {
  engine.settings.write_back = rule;
  if (!engine.Start(host, environment)) return false;
  AdoptInherited();
  engine.RequirePool();
  return engine.active();
}

void Refuse(char** environment, const char* text) { engine.RefuseStart(environment, text); }

namespace {

// Cached files have been given back if the process has become raw now, as by Retire().
template <typename Function>
void LookAtCode(Function look) {
  const bool was_raw = engine.callers.are_raw();
  look();
  if (!was_raw && engine.callers.are_raw() && engine.active()) SettleMirror(false);
}

}  // namespace

void CodeLoaded() {
  LookAtCode([] { engine.callers.LookAtLoaded(); });
}

bool LooksAtLoaded() { return engine.active() && engine.callers.are_known() && Callers::looks(); }

void CodeMapped(const void* address, size_t n, bool filled) {
  if (!filled) return engine.callers.NoteExecutable();
  LookAtCode([=] { engine.callers.LookAtMemory(address, n); });
}

void CodeUnseen(const char* culprit) {
  if (!engine.active() || !Callers::looks()) return;
  LookAtCode([=] { engine.callers.BecomeRaw(culprit); });
}

bool IsActive() { return engine.active(); }

bool WantsStreams() { return engine.settings.stdio; }

void SayStreamsPass() {
  if (engine.active() && engine.settings.stdio) engine.notice.Hinder(lease::Hindrance::kStreams);
}

[[gnu::hot]] bool Stop() {
  const bool kept = HoldOutput(Output::kExit) == 0;
  engine.Stop();
  return kept;
}

namespace {

void UnlockTable() {
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

// The table lock for two calls: the second one undoes what the first does. Nobody leaves in
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
  if (sys::IsSharing()) engine.standing.NoteFork();
  if (LockTable(false)) engine.process.PrepareFork();
}

void AfterForkInParent() {
  if (engine.active()) UnlockTable();
}

// Another thread of the process whose memory this is a copy of may have been changing the engine's
// tables, and the descriptors are those of a child that has not told of its changes.
[[gnu::hot]] void AfterForkInChild() {
  if (sys::IsSharing()) {
    sys::sharing = 0;
    Process::LeaveInChild();
  }
  if (!engine.active()) return;
  engine.process.BecomeChild();
  UnlockTable();
}

bool BeginSharing(uint32_t* depth) {
  *depth = sys::sharing;
  if (*depth == 0) {
    engine.recovery.NoticeDeaths();
    if (!engine.active() || engine.files.AnyInCaches()) return false;
    HandOnInherited();
    if (!LockTable(true)) return false;
    const bool begins = engine.process.BeginSharing();
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
  engine.mirror.EndSharing();
  engine.standing.EndSharing();
}

void BeforeSizeLimit(uint64_t soft) {
  if (!LockTable(true)) return;
  if (sys::FileSizeLimit(soft) < sys::FileSizeLimit()) engine.attachment.ReleaseAll();
}

void AfterSizeLimit() {
  if (!engine.active()) return;
  ForgetSizeLimit();
  UnlockTable();
}

void BeforeRights(bool for_good) {
  if (!engine.active()) return;
  {
    TableLock lock;
    engine.process.PrepareRights();
    if (for_good) engine.BecomeFinal();
  }
  SettleMirror(true);
}

void AfterRights() {
  if (engine.active()) engine.standing.RightsChanged();
}

long BeforeFreeze() {
  if (!engine.active()) return 0;
  TakeOverInherited();
  TableLock lock;
  return engine.process.BeginFreeze();
}

void AfterFreeze(bool frozen) {
  if (!frozen) AfterThaw();
}

void AfterThaw() {
  if (!engine.active()) return;
  TableLock lock;
  engine.standing.EndFreeze();
}

void Retire(Hindrance why) {
  engine.Retire(why);
  SettleMirror(false);
}

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

void LeaveInChild() { Process::LeaveInChild(); }

void NoteThread() { engine.standing.NoteThread(); }

void Leave() {
  if (!engine.active()) return;
  // Nobody asks later for the bytes that the parent has in its cache.
  for (uint32_t fd = 0; fd < engine.descriptors.end(); ++fd) TakeOver(static_cast<int>(fd));
  engine.notice.Hinder(Hindrance::kSeccomp);
  engine.Leave();
  if (!engine.active()) SettleMirror(true);
}

void Release() {
  if (!engine.active()) return;
  TakeOverInherited();
  TableLock lock;
  engine.attachment.ReleaseAll();
}

namespace {

// A child that sleeps has nothing cached, and no lock on a file. It must claim those of the new
// program's files that are in caches, and settle those of which something may be pending: then it
// has to wake. Table lock held.
bool HandOnAsleep() {
  bool sleeps = engine.standing.asleep() && engine.leases.is_open(), inherits = false;
  const auto counts = [&](const Description&, const File&) { return sleeps; };
  ForEachInherited(counts, [&](int, const Description& description, const File& file) {
    const State state = file.state.load();
    inherits = true;
    sleeps = !IsInCache(state) && (!description.writes() || !HandOn(file)) &&
             !engine.leases.IsExclusiveElsewhere(file.device, file.inode);
  });
  return sleeps && (!inherits || !engine.recovery.KnowsOfDeaths());
}

}  // namespace

void BeforeExec() {
  if (!engine.active()) return;
  if (engine.standing.asleep() && LockTable(false)) {
    const bool sleeps = HandOnAsleep();
    if (sleeps) engine.process.BeginReplacing();
    UnlockTable();
    if (sleeps) return;
  }
  HandOnInherited();
  TableLock lock;
  engine.process.BeginReplacing();
  engine.attachment.ReleaseAll();
  KeepLocks(0);
}

void AfterExec() {
  if (!LockTable(false)) return;
  KeepLocks(FD_CLOEXEC);
  engine.process.EndReplacing();
  UnlockTable();
}

bool FreeForExec(int dirfd, const char* path) {
  Claim claim;
  const bool sees = engine.callers.see_paths();
  if (sys::IsSharing()) return sees && claim.TakePath(dirfd, path, true) == 0;
  if (!engine.active()) return false;
  if (!sees) {
    Release();
    return true;
  }
  if (claim.TakePath(dirfd, path, true) < 0 || !claim.taken()) return false;
  TableLock lock;
  engine.attachment.ReleaseAll();
  return true;
}

void BeforeSpawn() {
  if (!engine.active()) return;
  HandOnInherited();
  if (engine.files.AnyInCaches()) PublishAll();  // the new program may not know of us
}

}  // namespace nvcache::vfs
