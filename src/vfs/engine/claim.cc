// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/claim.h"

#include <errno.h>

#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

// For a holder that lives and says nothing. It may have a full log to bring to a slow disk.
constexpr uint64_t kHolderPatienceNs = 60ull * 1000 * 1000 * 1000;

// Claims of the children that share this thread's memory, for the parent to give back. Claims that
// do not fit in stay as long as the process lives.
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

// A child that shares our memory takes the claim, and no lock.
long TakeInChild(uint64_t device, uint64_t inode) {
  if (!engine.leases.is_open()) return 0;
  if (!IsClaimed(device, inode)) {
    engine.leases.AddUser(device, inode);
    if (claimed_count < kMaxClaimed) {
      claimed[claimed_count] = {device, inode};
      ++claimed_count;
    }
  }
  const bool released = !engine.leases.IsExclusiveElsewhere(device, inode) ||
                        engine.leases.AwaitRelease(device, inode, kHolderPatienceNs);
  return released && engine.recovery.LookAfterDeathsInCopy() ? 0 : -EIO;
}

}  // namespace

void DropClaimsOfChildren() {
  if (claimed_count == 0) return;
  TableLock lock;
  for (uint32_t i = 0; i < claimed_count; ++i) {
    engine.leases.RemoveUser(claimed[i].device, claimed[i].inode, false);
  }
  claimed_count = 0;
}

long Claim::Take(const sys::BornStat& st) {
  const dev_t device = st.st_dev;
  const ino_t inode = st.st_ino;
  device_ = device;
  inode_ = inode;
  tag_ = lease::TagOf(st);
  if (sys::IsSharing()) return TakeInChild(device, inode);
  if (!engine.active()) return 0;
  NVCACHE_CHECK(!taken_);
  {
    TableLock lock;
    if (!engine.leases.is_open()) return 0;
    engine.leases.AddUser(device, inode);
  }
  taken_ = true;
  const bool held = engine.leases.IsExclusiveElsewhere(device, inode);
  has_waited_ = held || engine.recovery.KnowsOfDeaths();
  const bool released = !held || engine.leases.AwaitRelease(device, inode, kHolderPatienceNs);
  engine.recovery.NoticeDeaths();
  return released ? 0 : -EIO;
}

long Claim::TakePath(int dirfd, const char* path, bool follow) {
  sys::BornStat st;
  if ((!engine.active() && !sys::IsSharing()) || taken_) return 0;
  if (sys::LookAt(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0) return TakeSeen(st);
  is_no_folder_ = true;
  return 0;
}

long Claim::TakeSeen(const sys::BornStat& st) {
  is_no_folder_ = !S_ISDIR(st.st_mode);
  return S_ISREG(st.st_mode) && !taken_ ? Take(st) : 0;
}

long Claim::ToChange() {
  if (inode_ == 0) return 0;
  in_flight_.Begin(tag_);
  return in_flight_.Bypass(-1);
}

Claim::~Claim() {
  in_flight_.End();
  if (!taken_) return;
  TableLock lock;
  if (engine.leases.is_open()) engine.leases.RemoveUser(device_, inode_, false);
}

bool IsForeign(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  const File* file = IsDescription(description) ? description->file.load() : nullptr;
  return file != nullptr && file->state.load(std::memory_order_relaxed) == State::kForeign;
}

long TakeOver(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  const File* tracked = IsDescription(description) ? description->file.load() : nullptr;
  if (tracked != nullptr && tracked->state.load() == State::kLost) return -EIO;
  if (!IsForeign(fd)) return 0;
  sys::BornStat st;
  if (long error = sys::Look(fd, &st); error < 0) return error;
  Claim claim;
  if (long error = claim.Take(st); error < 0) return error;
  TableLock lock;
  File* file = engine.files.Find(st.st_dev, st.st_ino);
  if (file != nullptr && file->state.load() == State::kForeign) GiveBack(*file);
  return 0;
}

bool AwaitPublication(uint64_t device, uint64_t inode) {
  if (!engine.leases.is_open()) return false;
  const bool held = engine.leases.IsExclusiveElsewhere(device, inode);
  if (held) engine.leases.AwaitPublish(device, inode, kHolderPatienceNs);
  const bool news = held || engine.recovery.KnowsOfDeaths();
  sys::IsSharing() ? static_cast<void>(engine.recovery.LookAfterDeathsInCopy())
                   : engine.recovery.NoticeDeaths();
  return news;
}

}  // namespace nvcache::vfs
