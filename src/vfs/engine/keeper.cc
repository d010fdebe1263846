// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/keeper.h"

#include "src/sys/kernel.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

// Between two attempts to get the table lock, while it may be told to stop.
constexpr uint64_t kTableLockNs = 100 * 1000;

}  // namespace

void Keeper::LookForRoomSoon() {
  starving_.store(true);
  engine.leases.Nudge();
}

void Keeper::Run() {
  for (;;) {
    const lease::Request request = engine.leases.WaitForRequest();
    if (request.stop || !LockTable()) return;
    if (request.asked) Serve(request);
    if (starving_.exchange(false) && engine.attached()) LookForRoom();
    if (!request.asked) {
      engine.files.ReapSoon();
      engine.checkpoint.Hurry();
    }
    engine.files.Reap();
    engine.table_lock.Unlock();
    if (request.asked) engine.leases.Answered(request);
  }
}

// Those who have died or left may have it.
void Keeper::LookForRoom() {
  engine.recovery.LookForOrphans();
  const pool::Pool& pool = engine.pool();
  if (pool.seats().CountLeft() > 0 && engine.tallies.IsOf(pool.id())) {
    engine.tallies.WantCheckpointAbove(engine.log.newest());
  }
}

void Keeper::Serve(const lease::Request& request) {
  engine.files.ForEach([&](File& file) {
    if (file.state.load() != State::kCached) return;
    if (request.Publish(file.device, file.inode)) {
      file.lock.LockShared();
      Publish(file);
      file.lock.UnlockShared();
    }
    if (request.release && engine.leases.Wanted(file.device, file.inode)) GiveBack(file);
  });
}

// The thread that ends the keeper holds the table lock while it waits for that.
bool Keeper::LockTable() {
  while (!engine.table_lock.TryLock()) {
    if (stops_.load() != 0) return false;
    sys::FutexWait(&stops_, 0, kTableLockNs);
  }
  return true;
}

bool Keeper::Start() {
  stops_.store(0);
  engine.leases.StartWaiting();
  thread_ = engine.host->start_thread([](void* self) { static_cast<Keeper*>(self)->Run(); }, this);
  return thread_ != nullptr;
}

void Keeper::Stop() {
  if (thread_ == nullptr) return;
  stops_.store(1);
  sys::FutexWake(&stops_, 1);
  engine.leases.StopWaiting();
  engine.host->join_thread(thread_);
  thread_ = nullptr;
}

}  // namespace nvcache::vfs
