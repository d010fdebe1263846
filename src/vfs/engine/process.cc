// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/process.h"

#include "src/sys/check.h"
#include "src/sys/filter.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

// For the parent, to let go of a file.
constexpr uint64_t kParentPatienceNs = 60ull * 1000 * 1000 * 1000;

}  // namespace

bool Process::MayCallKernel() {
  const long forbidden = sys::ForbiddenCall();
  if (forbidden == 0) return true;
  sys::Text<128> text;
  text.Append("a filter of system calls (seccomp) forbids call ");
  text.AppendNumber(static_cast<uint64_t>(forbidden)).Append(", which the cache needs");
  engine.notice.RefuseCache(text.c_str());
  return false;
}

void Process::LackNames() {
  engine.standing.NoteLackOfNames();
  engine.notice.Hinder(lease::Hindrance::kChroot);
}

// The pool is given back as well: it may lie on that file system.
long Process::BeginFreeze() {
  const long error = engine.attachment.ReleaseAll();
  if (error == 0) engine.standing.NoteFreeze();
  return error;
}

void Process::PrepareRights() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  engine.standing.BeginRights();
  if (!engine.attached()) return;
  engine.attachment.ReleaseAll();
  if (engine.attached()) engine.attachment.Abandon();
}

// Descriptors that it would close are its parent's, and so are its record locks: it can have no
// slot among the leases.
void Process::LeaveInChild() {
  engine.SetStage(Stage::kOff);
  engine.descriptors.LeaveInChild();
}

void Process::BeginReplacing() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  engine.standing.BeginReplacing();
}

void Process::EndReplacing() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  engine.standing.EndReplacing();
}

void Process::PrepareFork() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (engine.files.AnyInCaches()) {
    engine.files.ForEach([&](File& file) {
      if (file.descriptions == nullptr || file.state.load() != State::kCached) return;
      file.lock.Lock();
      PublishOffsets(file, true);
      Publish(file);  // for programs, started by the child, that do not know of us
      file.lock.Unlock();
    });
  }
  engine.standing.NoteFork();
  NoteHandOns();
}

// For the child. If files are foreign here, the number from when they became so is for them, too.
void Process::NoteHandOns() {
  if (engine.standing.asleep() || !engine.leases.is_open()) return;
  const uint32_t hand_ons = engine.leases.hand_ons();
  if (!any_foreign_) engine.standing.NoteHandOns(hand_ons);
  if (!engine.leases.RemembersHandOns()) return;
  engine.files.ForEach([&](File& file) {
    file.handed_on |= engine.leases.RemembersHandOn(file.device, file.inode);
  });
}

// Each page that a child touches, of code as well, costs it a fault: so code that nearly every
// child runs is `hot`, and the linker puts it together.
//
// The files are the parent's affair until this process uses one: by then it may be a
// program that knows nothing of them. But with the pool, it would hold its parent's life byte; and
// mapped files are used without a call.
[[gnu::hot]] void Process::BecomeChild() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  engine.leases.LeaveSlotToParent();
  engine.mirror.BecomeChild();
  if (engine.attached()) {
    engine.descriptors.Set(engine.pool().fd(), kUntracked);
    const int journal = engine.pool().own_journal().fd();
    if (journal >= 0) engine.descriptors.Set(journal, kUntracked);
    engine.pool().Close();
  }
  engine.standing.BecomeChild();
  if (engine.files.AnyLasting()) Wake();
}

void Process::Wake() {
  NVCACHE_CHECK(engine.table_lock.IsLocked() && engine.standing.asleep());
  engine.standing.WakeUp();
  // Other threads of the parent may have looked at a file at the moment of the fork. They are not
  // here.
  engine.files.ForEach([](File& file) {
    file.ResetLocks();
    // We have no fcntl locks yet that this could end, and nobody shall wait for us.
    engine.own.Close(file);
  });
  engine.own.ResetLock();
  engine.checkpoint.ResetLock();
  engine.kept_folders.LeaveToParent();
  engine.callers.ForgetUnseen();
  engine.attachment.ResetPins();
  ResetSpaceLocks();
  sys::ForgetScratch();
  if (engine.attached()) LeaveToParent();
  ShareAgain();
  // Somebody may have had a file in his cache while this process slept, and have died.
  if (engine.leases.is_open() && engine.recovery.KnowsOfDeaths()) engine.recovery.LookAfterDeaths();
}

bool Process::BeginSharing() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (engine.files.AnyInCaches()) return false;
  engine.standing.BeginSharing();
  return true;
}

// Pool, log, frames and the two threads are the parent's, and so are the files in its cache: it may
// have written more by the time that we come to look at them.
void Process::LeaveToParent() {
  engine.files.ForEach([&](File& file) {
    if (file.state.load() != State::kCached) return;
    any_foreign_ = true;
    vfs::LeaveToParent(file);
  });
  engine.attachment.LeaveToParent();
}

// The parent's leases are not the child's. Nobody has a file in its cache when this returns, but
// for the foreign ones; and none of these has been used by us.
void Process::ShareAgain() {
  if (!engine.leases.is_open()) return;
  engine.descriptors.Set(engine.leases.fd(), kUntracked);
  const char* why = "";
  if (!engine.leases.AfterForkInChild(&why)) {
    engine.BecomeFinal();
    return;
  }
  engine.descriptors.Set(engine.leases.fd(), Internal());
  engine.files.ForEach([&](File& file) {
    if (file.state.load() == State::kForeign) return;
    ShareInherited(file);
    // The parent used it when we began, but may be gone.
    if (engine.leases.IsExclusiveElsewhere(file.device, file.inode)) {
      engine.leases.AwaitRelease(file.device, file.inode, kParentPatienceNs);
    }
  });
}

}  // namespace nvcache::vfs
