// SPDX-License-Identifier: BSD-3-Clause
//
// What we ask of other processes, and what they ask of us.
#include "src/vfs/claim.h"

#include <errno.h>
#include <sys/wait.h>

#include <new>

#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/access.h"

namespace nvcache::vfs {

namespace {

// For a holder that lives and says nothing. It may have a full log to bring to a slow disk.
constexpr uint64_t kPatienceNs = 60ull * 1000 * 1000 * 1000;
// Between two attempts of the keeper to get the table lock, while it may be told to stop.
constexpr uint64_t kTableLockNs = 100 * 1000;

// What the children that share this thread's memory have claimed, for the parent to give back. What
// does not fit in stays claimed as long as the process lives.
struct Claimed {
  uint64_t device;
  uint64_t inode;
};
constexpr uint32_t kMaxClaimed = 8;
[[gnu::tls_model("initial-exec")]] constinit thread_local Claimed claimed[kMaxClaimed] = {};
[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t claimed_count = 0;

bool IsClaimed(uint64_t device, uint64_t inode) {
  for (uint32_t i = 0; i < claimed_count; ++i) {
    if (claimed[i].device == device && claimed[i].inode == inode) return true;
  }
  return false;
}

// By a child that shares our memory, which takes no lock.
long TakeInChild(uint64_t device, uint64_t inode) {
  if (!engine.leases.is_open()) return 0;
  if (!IsClaimed(device, inode)) {
    engine.leases.Share(device, inode);
    if (claimed_count < kMaxClaimed) {
      claimed[claimed_count] = {device, inode};
      ++claimed_count;
    }
  }
  const bool released = !engine.leases.HeldElsewhere(device, inode) ||
                        engine.leases.AwaitRelease(device, inode, kPatienceNs);
  return released && engine.LookAfterDeathsInCopy() ? 0 : -EIO;
}

}  // namespace

void DropClaimsOfChildren() {
  if (claimed_count == 0) return;
  TableLock lock;
  for (uint32_t i = 0; i < claimed_count; ++i) {
    engine.leases.Drop(claimed[i].device, claimed[i].inode, false);
  }
  claimed_count = 0;
}

long Claim::Take(dev_t device, ino_t inode) {
  device_ = device;
  inode_ = inode;
  if (sys::IsSharing()) return TakeInChild(device, inode);
  if (!engine.active()) return 0;
  NVCACHE_CHECK(!taken_);
  {
    TableLock lock;
    if (!engine.leases.is_open()) return 0;
    engine.leases.Share(device, inode);
  }
  taken_ = true;
  const bool held = engine.leases.HeldElsewhere(device, inode);
  has_waited_ = held || engine.KnowsOfDeaths();
  const bool released = !held || engine.leases.AwaitRelease(device, inode, kPatienceNs);
  engine.NoticeDeaths();
  return released ? 0 : -EIO;
}

long Claim::TakePath(int dirfd, const char* path, bool follow) {
  struct stat st;
  if ((!engine.active() && !sys::IsSharing()) || taken_) return 0;
  const bool found = sys::Fstatat(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0;
  is_no_folder_ = !found || !S_ISDIR(st.st_mode);
  return found && S_ISREG(st.st_mode) ? Take(st.st_dev, st.st_ino) : 0;
}

long Claim::ToChange() {
  if (inode_ == 0) return 0;
  passing_.Begin(lease::TagOf(device_, inode_));
  return passing_.GoPast(-1);
}

Claim::~Claim() {
  passing_.End();
  if (!taken_) return;
  TableLock lock;
  if (engine.leases.is_open()) engine.leases.Drop(device_, inode_, false);
}

bool Engine::IsForeign(int fd) const {
  const Description* description = SlotOf(fd);
  const File* file = IsDescription(description) ? description->file.load() : nullptr;
  return file != nullptr && file->state.load(std::memory_order_relaxed) == State::kForeign;
}

long Engine::TakeOver(int fd) {
  const Description* description = SlotOf(fd);
  const File* tracked = IsDescription(description) ? description->file.load() : nullptr;
  if (tracked != nullptr && tracked->lost.load()) return -EIO;
  if (!IsForeign(fd)) return 0;
  struct stat st;
  if (long error = sys::Fstat(fd, &st); error < 0) return error;
  Claim claim;
  if (long error = claim.Take(st.st_dev, st.st_ino); error < 0) return error;
  TableLock lock;
  File* file = FindFile(st.st_dev, st.st_ino);
  if (file != nullptr && file->state.load() == State::kForeign) GiveBack(*file);
  return 0;
}

// What a dead process held exclusively is in its pool only. If that is ours, too, it goes to the
// files before anyone looks at them.
void Engine::NoticeDeaths() {
  if (!leases.is_open() || !KnowsOfDeaths()) return;
  TableLock lock;
  if (KnowsOfDeaths()) LookAfterDeaths();
}

void Engine::LookAfterDeaths() {
  const uint32_t deaths = leases.deaths();
  if (attached()) {
    LookForOrphans();
  } else if (MayAttach() && !RecoverOnOwnStack()) {
    hopeless_ = true;
  }
  deaths_seen_.store(deaths);
}

bool Engine::LookForOwners() {
  if (sys::IsSharing() || !active()) return false;
  TableLock lock;
  if (!active()) return false;
  LookAfterDeaths();
  if (!leases.is_open() || SharesDevices()) return false;
  return !(attached() && tallies.IsOf(pool_id_)) && tallies.IsAbandoned();
}

// By a child that shares our memory, whose tables and locks are its parent's: what is to be
// recovered is recovered by a process of its own, which has a copy.
bool Engine::LookAfterDeathsInCopy() {
  if (!KnowsOfDeaths()) return true;
  const uint32_t deaths = leases.deaths();
  const sys::SignalsBlocked blocked;
  const long copy = sys::Call(SYS_clone, 0);  // nobody is told of its end
  if (copy == 0) {
    sys::sharing = 0;
    sys::ForgetScratch();
    new (&pool_) pool::Pool;  // other threads, which are not here, may have used it
    sys::ExitGroup(RecoverIfDirty() ? 0 : 1);
  }
  int status = 1;
  while (copy > 0 && sys::Call(SYS_wait4, copy, sys::Address(&status), __WALL) == -EINTR) {
  }
  if (copy > 0 && status == 0) deaths_seen_.store(deaths);
  return copy > 0 && status == 0;
}

bool Engine::AwaitPublication(uint64_t device, uint64_t inode) {
  if (!leases.is_open()) return false;
  const bool held = leases.HeldElsewhere(device, inode);
  if (held) leases.AwaitPublish(device, inode, kPatienceNs);
  const bool news = held || KnowsOfDeaths();
  sys::IsSharing() ? static_cast<void>(LookAfterDeathsInCopy()) : NoticeDeaths();
  return news;
}

// The keeper: a thread of a busy process, for nothing is held by an idle one. It
// also lets go of closed files: the program may make no call for a long time.
void Engine::Keep() {
  for (;;) {
    const lease::Request request = leases.WaitForRequest();
    if (request.stop || !LockTableAsKeeper()) return;
    if (request.asked) Serve(request);
    if (starving_.exchange(false) && attached()) LookForRoom();
    reap_due_ |= !request.asked;
    if (!request.asked) HurryThrough();
    Reap();
    table_lock.Unlock();
    if (request.asked) leases.Answered(request);
  }
}

// Those who have died or left may have it.
void Engine::LookForRoom() {
  LookForOrphans();
  if (pool_.seats().CountLeft() > 0 && tallies.IsOf(pool_id_)) {
    tallies.WantCheckpointAbove(log.newest());
  }
}

void Engine::Serve(const lease::Request& request) {
  ForEachFile([&](File& file) {
    if (!file.exclusive) return;
    if (request.Publish(file.device, file.inode)) {
      file.lock.LockShared();
      Publish(file);
      file.lock.UnlockShared();
    }
    if (request.release && leases.Wanted(file.device, file.inode)) GiveBack(file);
  });
}

// Whoever ends the keeper holds the table lock while it waits for that.
bool Engine::LockTableAsKeeper() {
  while (!table_lock.TryLock()) {
    if (keeper_stops_.load() != 0) return false;
    sys::FutexWait(&keeper_stops_, 0, kTableLockNs);
  }
  return true;
}

bool Engine::StartKeeper() {
  keeper_stops_.store(0);
  leases.StartWaiting();
  keeper_ = host_->start_thread([](void* self) { static_cast<Engine*>(self)->Keep(); }, this);
  return keeper_ != nullptr;
}

void Engine::StopKeeper() {
  if (keeper_ == nullptr) return;
  keeper_stops_.store(1);
  sys::FutexWake(&keeper_stops_, 1);
  leases.StopWaiting();
  host_->join_thread(keeper_);
  keeper_ = nullptr;
}

}  // namespace nvcache::vfs
