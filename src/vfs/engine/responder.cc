// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/responder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/root.h"
#include "src/sys/text.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/outside.h"
#include "src/vfs/engine/stack.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

// Between two attempts to get the table lock, while it may be told to stop.
constexpr uint64_t kTableLockNs = 100 * 1000;
// Between two looks at the pool's name, while anything is pending.
constexpr uint64_t kNameNs = 50 * 1000 * 1000;
// Between two attempts to leave it, while a disk refuses what it holds.
constexpr uint64_t kLeaveNs = 1000 * 1000 * 1000;

// Whoever looks for the pool by its path does not find this one: its file was removed, or another
// one has the name. In a chroot, where the path may mean another file, only if it was removed. The
// checkpointer looks after that itself, and ends.
bool IsRemoved() {
  const pool::Pool& pool = engine.pool();
  if (pool.seats().checkpointer() == pool.seat()) return false;
  struct stat st;
  if (sys::Fstat(pool.fd(), &st) == 0 && engine.attachment.IsPool(st) && st.st_nlink == 0) {
    return true;
  }
  return pool.path()[0] == '/' && sys::AtMachineRoot() &&
         sys::Fstatat(AT_FDCWD, pool.path(), &st, 0) == 0 && !engine.attachment.IsPool(st);
}

}  // namespace

void Responder::LookForRoomSoon() {
  starving_.store(true);
  engine.leases.Nudge();
}

// Two or three calls of the kernel, a few times a second, where the process writes.
uint64_t Responder::WatchName() {
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (now - looked_ >= kNameNs) {
    looked_ = now;
    if (IsRemoved()) engine.leases.Nudge();
  }
  return engine.log.newest_own() >= engine.cleaner.cleaned() ? kNameNs : sys::kForever;
}

// All that was acknowledged goes to the disk, for a kill would lose it now; from then on each sync
// is a real one. What the disk refuses stays in the log, and is tried again.
void Responder::LeaveRemoved() {
  if (sys::Now(CLOCK_MONOTONIC) < leave_after_) return;
  sys::Text<512> text;
  text.Append(engine.pool().path());
  text.Append(" was removed, or another file has its name: all of it is on the disk now, ");
  text.Append("and the program goes on without the cache");
  engine.BecomeFinal();
  if (engine.checkpoint.is_open()) OnOwnStack([] { return engine.checkpoint.Sync() == 0; });
  leaving_ = true;
  const bool left = engine.attachment.ReleaseAll(true) == 0;
  leaving_ = false;
  if (left) sys::Report(text.c_str());
  leave_after_ = sys::Now(CLOCK_MONOTONIC) + kLeaveNs;
}

void Responder::Run() {
  for (;;) {
    const lease::Request request = engine.leases.WaitForRequest();
    if (request.stop || !LockTable()) return;
    if (request.asked) Serve(request);
    if (engine.attached() && IsRemoved()) LeaveRemoved();
    const bool detached = thread_ == nullptr;
    if (starving_.exchange(false) && engine.attached()) LookForRoom();
    if (!request.asked && !detached) {
      engine.files.ReapSoon();
      HearOfWish();
    }
    GiveBackWrittenOutside();
    engine.files.Reap();
    engine.table_lock.Unlock();
    if (request.asked) engine.leases.Answered(request);
    if (detached) return;
  }
}

// Those who have died or left may have it. Nobody is waited for, for every open would wait along;
// it is asked for again.
void Responder::LookForRoom() {
  engine.recovery.AdoptDead(0);
  if (engine.pool().seats().CountLeft() > 0) {
    engine.checkpoint.MoveSoonAbove(engine.log.newest());
  }
}

// Somebody waits for the checkpoint who has no descriptor of the file system, perhaps.
void Responder::HearOfWish() {
  if (!engine.attached() || !engine.file_table.IsOf(engine.pool_id())) return;
  engine.checkpoint.MoveSoonAbove(engine.file_table.wanted());
}

void Responder::Serve(const lease::Request& request) {
  engine.files.ForEach([&](File& file) {
    if (file.state.load() != State::kCached) return;
    if (request.Publish(file.device, file.inode)) {
      file.lock.LockShared();
      Publish(file);
      file.lock.UnlockShared();
    }
    if (request.release && engine.leases.IsUsedElsewhere(file.device, file.inode)) GiveBack(file);
  });
}

// The thread that ends the responder holds the table lock while it waits for that.
bool Responder::LockTable() {
  while (!engine.table_lock.TryLock()) {
    if (stops_.load() != 0) return false;
    sys::FutexWait(&stops_, 0, kTableLockNs);
  }
  return true;
}

bool Responder::Start() {
  stops_.store(0);
  engine.leases.StartWaiting();
  thread_ =
      engine.host->start_thread([](void* self) { static_cast<Responder*>(self)->Run(); }, this);
  return thread_ != nullptr;
}

void Responder::Stop() {
  if (thread_ == nullptr) return;
  // It ends by itself; nobody waits for it.
  if (leaving_) {
    thread_ = nullptr;
    return;
  }
  stops_.store(1);
  sys::FutexWake(&stops_, 1);
  engine.leases.StopWaiting();
  engine.host->join_thread(thread_);
  thread_ = nullptr;
}

}  // namespace nvcache::vfs
