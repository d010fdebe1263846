// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/slots.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "src/lease/asking.h"
#include "src/lease/format.h"
#include "src/lease/shared_file.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/sharing.h"

namespace nvcache::lease {

namespace {

// Slots that each newcomer looks after: so many dead can come with each, and they do not add up.
constexpr uint32_t kSweepSlots = 4;
// Processes of other versions, one after the other, have taken the file away, each time.
constexpr int kOpenings = 20;

struct flock LockOf(off_t byte, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

// Another version takes away a file in which nobody has a lock (OpenSharedFile): also one that we
// have opened just now.
bool Slots::Open(const char* folder, const char** why) {
  NVCACHE_CHECK(!is_open());
  for (int i = 0; i < kOpenings; ++i) {
    const bool open = OpenFile(folder, why);
    const bool claimed = open && Claim(why);
    if (claimed && Sound()) return true;
    const bool removed = open && !IsFile(fd_);
    Forget();
    if (!removed) return false;
  }
  *why = "processes of another version take the file of leases away";
  return false;
}

bool Slots::OpenFile(const char* folder, const char** why) {
  struct stat st;
  const int fd = OpenSharedFile(folder, &st, why);
  if (fd < 0) return false;
  // Before the lock, which a close would drop. And above the pool's: when our lock is gone, nobody
  // finds the pool in use by us.
  fd_ = sys::MoveLow(fd, sys::kLeasesNumber);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  *why = "there is no room for the file of leases";
  const long address =
      sys::MapUnlocked(kMaxSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_);
  if (sys::IsError(address)) return false;
  shared_ = reinterpret_cast<Shared*>(address);
  if (shared_->backed.load() != 0) return true;
  if (!Back(kTables, kTablesSize)) return false;
  shared_->backed.store(1);
  return true;
}

void Slots::Close() {
  if (!is_open()) return;
  Slot& slot = shared_->slots[slot_];
  if (slot.life.load() == life_) {
    slot.life.store(life_ + 1);
    WakeAskers(slot);
    LowerMark();
  }
  Forget();
}

bool Slots::AfterForkInChild(const char** why) {
  NVCACHE_CHECK(is_open());
  reaping_.Reset();  // a thread of the parent may have had them
  saying_.Reset();
  has_table_ = false;
  if (Claim(why)) return true;
  Forget();
  return false;
}

// The lock goes with the descriptor.
void Slots::Forget() {
  if (shared_ != nullptr) sys::UnmapUnlocked(shared_, kMaxSize);
  if (fd_ >= 0) sys::Close(fd_);
  shared_ = nullptr;
  own_ = {};
  fd_ = -1;
  slot_ = kMaxProcesses;
  has_table_ = false;
}

bool Slots::SetLock(off_t byte, short type) const {
  struct flock lock = LockOf(byte, type);
  return sys::Fcntl(fd_, F_SETLK, sys::Address(&lock)) == 0;
}

bool Slots::IsLockedElsewhere(off_t byte) const {
  struct flock lock = LockOf(byte, F_WRLCK);
  return sys::Fcntl(fd_, F_GETLK, sys::Address(&lock)) == 0 && lock.l_type != F_UNLCK;
}

bool Slots::Lock(uint32_t slot) const { return SetLock(slot, F_WRLCK); }

void Slots::Unlock(uint32_t slot) const { SetLock(slot, F_UNLCK); }

// Puts memory behind this part of the file, which may grow by it, so that nobody who reads it is
// refused by a signal. To grow beyond the limit would be one as well. The program may have put
// another file under our descriptor's number.
bool Slots::Back(size_t offset, size_t bytes) const {
  const size_t end = offset + bytes;
  struct stat st;
  if (sys::Fstat(fd_, &st) < 0 || !IsOwnFile(st.st_dev, st.st_ino)) return false;
  if (static_cast<size_t>(st.st_size) < end && sys::SoftLimit(RLIMIT_FSIZE) < end) return false;
  return sys::Fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

// The line of this slot, and its neighbours on the page, may be read.
bool Slots::BackLine(uint32_t slot) {
  constexpr uint32_t kLinesOfPage = kPage / sizeof(Slot);
  uint32_t lines = shared_->lines.load();
  if (slot < lines) return true;
  const uint32_t next = slot / kLinesOfPage * kLinesOfPage + kLinesOfPage;
  if (!Back(offsetof(Shared, slots) + (next - kLinesOfPage) * sizeof(Slot), kPage)) return false;
  while (lines < next && !shared_->lines.compare_exchange_weak(lines, next)) {
  }
  return true;
}

// The pages of a level, for the slot, whose byte we have locked; below `limit`. Memory comes first:
// nobody waits for a process that dies on the way. One that dies right after the exchange has
// wasted them.
bool Slots::GivePages(Slot& slot, uint32_t level, uint32_t limit) {
  const uint32_t count = kLevelPages[level];
  uint32_t first = shared_->pages_given.load();
  do {
    if (first + count > limit || !Back(kFirstSize + first * kPage, count * kPage)) return false;
  } while (!shared_->pages_given.compare_exchange_strong(first, first + count));
  slot.pages[level].store(static_cast<uint16_t>(first + 1));
  return true;
}

// Takes the lowest slot that nobody uses; if there is none, one whose owner has died. It does
// without a page where there is no room for one.
bool Slots::Claim(const char** why) {
  slot_ = kMaxProcesses;
  const uint32_t swept = Sweep();
  *why = "too many processes share the file of leases";
  for (const bool dead_ones : {false, true}) {
    for (uint32_t i = 0; i < kMaxProcesses; ++i) {
      if (!BackLine(i)) {
        *why = "there is no memory for another process in the file of leases";
        break;
      }
      if (InUse(i) != dead_ones || (i != swept && !Lock(i))) continue;
      Slot& slot = shared_->slots[i];
      if (slot.pages[0].load() == 0) GivePages(slot, 0, kMaxPages);
      Take(i);
      if (swept != i && swept != kMaxProcesses) Unlock(swept);
      return true;
    }
  }
  if (swept != kMaxProcesses) Unlock(swept);
  return false;
}

// The slot's byte is locked.
void Slots::Take(uint32_t index) {
  Slot& slot = shared_->slots[index];
  Bury(slot);
  Clear(slot);
  slot.exclusives.store(0);
  slot.nudged.store(0);
  slot.handed_on.store(0);
  slot.publish_file.store(kNoFile);
  slot.published.store(slot.publish_wanted.load());
  slot.released.store(slot.release_wanted.load());
  slot_ = index;
  said_.store(0);
  life_ = slot.life.load() + 1;
  slot.life.store(life_);
  own_ = {};
  if (slot.levels.load() != 0) own_ = {&FirstPageOf(slot).in_flight, &slot.life, life_};
  RaiseMark();  // before any mark is put: one that looks, looks here as well
}

// Marks of former owners in the first page. The other levels wait until they are needed.
void Slots::Clear(Slot& slot) {
  const bool has_page = slot.pages[0].load() != 0;
  if (has_page) {
    FirstPage& page = FirstPageOf(slot);
    for (uint64_t left = slot.touched.load(); left != 0; left &= left - 1) {
      ClearLines(&page.buckets[__builtin_ctzll(left)], sizeof(Bucket));
    }
    ClearLines(&page.in_flight, sizeof(page.in_flight));
  }
  slot.levels.store(has_page ? 1 : 0);
  slot.in_flight.store(0);
  slot.naming.store(0);
  slot.touched.store(0);
}

// Marks of a process that did not close. We have locked its byte.
void Slots::Bury(Slot& slot) {
  if (!IsInUse(slot.life.load())) return;
  // First: a process that sees the slot free, sees the death.
  if (slot.exclusives.load() != 0) shared_->deaths.fetch_add(1);
  slot.life.fetch_add(1);
  WakeAskers(slot);
}

// Frees the slot of a process that has died. False: it lives, or somebody is at it right now.
bool Slots::Reap(uint32_t index) {
  NVCACHE_CHECK(index != slot_);
  // A child that shares our memory is a process of its own, and may have closed the file.
  if (sys::IsSharing()) return IsFile(fd_) && BuryLocked(index);
  sys::Lock lock(reaping_);
  return BuryLocked(index);
}

bool Slots::BuryLocked(uint32_t index) {
  if (!Lock(index)) return false;
  Bury(shared_->slots[index]);
  Unlock(index);
  return true;
}

// The lowest one that was freed stays locked, for whoever takes a slot; kMaxProcesses: there is
// none. No other thread of this process uses the leases.
uint32_t Slots::Sweep() {
  const uint32_t n = mark();
  uint32_t lowest = kMaxProcesses;
  for (uint32_t k = 0; k < std::min(n, kSweepSlots); ++k) {
    const uint32_t index = shared_->sweep.fetch_add(1) % n;
    if (index == lowest || !InUse(index) || !Lock(index)) continue;
    Bury(shared_->slots[index]);
    const uint32_t higher = std::max(index, lowest);
    if (higher != kMaxProcesses) Unlock(higher);
    lowest = std::min(index, lowest);
  }
  LowerMark();
  return lowest;
}

uint32_t Slots::mark() const {
  return static_cast<uint32_t>(shared_->mark.load() % (1u << kMarkBits));
}

void Slots::RaiseMark() {
  uint64_t seen = shared_->mark.load();
  uint64_t next;
  do {
    const uint64_t n = std::max<uint64_t>(seen % (1u << kMarkBits), slot_ + 1);
    next = (((seen >> kMarkBits) + 1) << kMarkBits) + n;
  } while (!shared_->mark.compare_exchange_weak(seen, next));
}

// A slot that is taken after we found it free either has its owner raise the mark after us, or
// changes the word under us; then it stays for the next one to lower.
void Slots::LowerMark() {
  uint64_t seen = shared_->mark.load();
  const uint64_t before = seen % (1u << kMarkBits);
  uint64_t n = before;
  while (n > 0 && !InUse(static_cast<uint32_t>(n - 1))) --n;
  if (n == before) return;
  const uint64_t next = (((seen >> kMarkBits) + 1) << kMarkBits) + n;
  shared_->mark.compare_exchange_strong(seen, next);
}

bool Slots::InUse(uint32_t slot) const { return IsInUse(shared_->slots[slot].life.load()); }

bool Slots::IsDead(uint32_t slot) const {
  if (slot == slot_) return false;
  struct flock lock = LockOf(slot, F_WRLCK);
  return sys::Fcntl(fd_, F_GETLK, sys::Address(&lock)) == 0 && lock.l_type == F_UNLCK;
}

uint32_t Slots::deaths() const { return shared_->deaths.load(); }

bool Slots::HasDeadOwner() const {
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (InUse(i) && shared_->slots[i].exclusives.load() != 0 && IsDead(i)) return true;
  }
  return false;
}

bool Slots::IsOver(uint64_t life) const {
  const uint64_t slot = life >> 32;
  if (slot >= shared_->lines.load()) return slot < kMaxProcesses;  // an earlier file had it
  return shared_->slots[slot].life.load() != static_cast<uint32_t>(life);
}

void Slots::Renumber(int from) {
  const long fd = sys::Fcntl(fd_, F_DUPFD_CLOEXEC, from);
  if (fd >= 0) fd_ = static_cast<int>(fd);
}

bool Slots::Relock() {
  return !lost() && Lock(slot_) && (!has_table_ || LockTable(F_RDLCK)) && Sound();
}

bool Slots::LockTable(short type) {
  const bool locked = SetLock(kTableByte, type);
  if (locked) has_table_ = type != F_UNLCK;
  return locked;
}

// The descriptor and the slot are still ours, and newcomers find the file. Others may have given it
// more names, where the system lets them (fs.protected_hardlinks).
bool Slots::Sound() const { return IsFile(fd_) && !lost(); }

bool Slots::IsFile(int fd) const {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && IsOwnFile(st.st_dev, st.st_ino) && st.st_nlink != 0;
}

FirstPage& Slots::FirstPageOf(const Slot& slot) const {
  return shared_->pages[slot.pages[0].load(std::memory_order_relaxed) - uint32_t{1}].first;
}

void Slots::ClearLines(void* at, size_t bytes) {
  using Aliased [[gnu::may_alias]] = uint64_t;
  auto* words = static_cast<Aliased*>(at);
  for (size_t i = 0; i < bytes / sizeof(Aliased); ++i) {
    __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
  }
}

}  // namespace nvcache::lease
