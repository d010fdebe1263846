// SPDX-License-Identifier: BSD-3-Clause
//
// What processes tell each other is sequentially consistent throughout: marks are put before others
// are looked for, on both sides. On x86-64 only the stores pay for it.
#include "src/lease/leases.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/resource.h>

#include <algorithm>

#include "src/lease/election.h"
#include "src/lease/format.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/sharing.h"
#include "src/sys/text.h"

namespace nvcache::lease {

namespace {

// Slots that each newcomer looks after: so many dead can come with each, and they do not add up.
constexpr uint32_t kSweepSlots = 4;

// So often a holder that has been served a request, and has the file still, has refused.
constexpr int kRefusals = 3;

// As sys::FutexWait and sys::FutexWake, between processes.
void Sleep(sys::Word* word, uint32_t expected, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000u),
                      static_cast<long>(timeout_ns % 1000000000u)};
  sys::Call(SYS_futex, sys::Address(word), FUTEX_WAIT, static_cast<long>(expected),
            timeout_ns == sys::kForever ? 0 : sys::Address(&timeout));
}
void Wake(sys::Word* word) { sys::Call(SYS_futex, sys::Address(word), FUTEX_WAKE, INT32_MAX); }

bool InUse(uint32_t life) { return life % 2 != 0; }

void Ask(Slot& slot) {
  slot.requests.fetch_add(1);
  Wake(&slot.requests);
}

// After something in the slot has changed that askers may wait for. Fails to win the exchange only
// against another thread that does the same.
void WakeAskers(Slot& slot) {
  uint32_t seen = slot.answers.load();
  if (seen % 2 != 0 && slot.answers.compare_exchange_strong(seen, seen + 1)) Wake(&slot.answers);
}

// Sleeps until the slot's owner may have done what `done` looks for; it has to be called again.
// False: the time is over.
template <typename Condition>
bool SleepUnless(Slot& slot, uint64_t end, Condition done) {
  const uint32_t seen = slot.answers.fetch_or(1) | 1;
  if (done()) return true;
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (now >= end) return false;
  Sleep(&slot.answers, seen, std::min(end - now, kAliveCheckInterval));
  return true;
}

uint64_t EndOf(uint64_t timeout_ns) {
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  return timeout_ns < sys::kForever - now ? now + timeout_ns : sys::kForever;
}

// Of the first page; and its bit in Slot::touched.
uint32_t FirstBucketOf(uint64_t tag) { return static_cast<uint32_t>(tag >> 32) % kFirstBuckets; }
uint64_t BitOf(uint64_t tag) { return uint64_t{1} << FirstBucketOf(tag); }

// For Slot::publish_file.
uint32_t HashOf(uint64_t tag) { return static_cast<uint32_t>(tag >> 32) | 1; }

bool IsOf(uint32_t cell, uint64_t tag) { return cell >> kTagShift == TagOfCell(tag) >> kTagShift; }
bool IsUsed(uint32_t cell) { return cell != 0; }
bool IsExclusive(uint32_t cell) { return (cell & kExclusives) != 0; }
bool IsEndless(uint32_t cell) { return (cell & kUsers) == kUsers; }
// By at least one who does not have the file exclusively.
bool IsShared(uint32_t cell) { return (cell & kExclusives) / kExclusive < (cell & kUsers); }
bool MayDrop(uint32_t cell) { return IsShared(cell) || IsEndless(cell); }

void ClearLines(void* at, size_t bytes) {
  using Aliased [[gnu::may_alias]] = uint64_t;
  auto* words = static_cast<Aliased*>(at);
  for (size_t i = 0; i < bytes / sizeof(Aliased); ++i) {
    __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
  }
}

}  // namespace

bool Request::Publish(uint64_t device, uint64_t inode) const {
  return publish_file == kEveryFile || publish_file == HashOf(TagOf(device, inode));
}

// ------------------------------------------------------------------------------------------- Life

bool Leases::Open(const char* folder, const char** why) {
  NVCACHE_CHECK(!is_open());
  if (OpenFile(folder, why) && Claim(why)) return true;
  Forget();
  return false;
}

bool Leases::OpenFile(const char* folder, const char** why) {
  const int fd = Election(folder).Run(why);
  if (fd < 0) return false;
  // Before the lock, which a close would drop. And above the pool's: when our lock is gone, nobody
  // finds the pool in use by us.
  fd_ = sys::MoveLow(fd, sys::kLeasesNumber);
  struct stat st;
  if (sys::Fstat(fd_, &st) < 0) return false;
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

void Leases::Close() {
  if (!is_open()) return;
  Slot& slot = shared_->slots[slot_];
  if (slot.life.load() == life_) {
    slot.life.store(life_ + 1);
    WakeAskers(slot);
    LowerMark();
  }
  Forget();
}

bool Leases::AfterForkInChild(const char** why) {
  NVCACHE_CHECK(is_open());
  reaping_.Reset();  // a thread of the parent may have had it
  has_table_ = false;
  if (Claim(why)) return true;
  Forget();
  return false;
}

// The lock goes with the descriptor.
void Leases::Forget() {
  if (shared_ != nullptr) sys::UnmapUnlocked(shared_, kMaxSize);
  if (fd_ >= 0) sys::Close(fd_);
  shared_ = nullptr;
  fd_ = -1;
  slot_ = kMaxProcesses;
  has_table_ = false;
}

// ------------------------------------------------------------------------------------------ Slots

namespace {

struct flock LockOf(off_t byte, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

bool Leases::SetLock(off_t byte, short type) const {
  struct flock lock = LockOf(byte, type);
  return sys::Fcntl(fd_, F_SETLK, sys::Address(&lock)) == 0;
}

bool Leases::IsLockedElsewhere(off_t byte) const {
  struct flock lock = LockOf(byte, F_WRLCK);
  return sys::Fcntl(fd_, F_GETLK, sys::Address(&lock)) == 0 && lock.l_type != F_UNLCK;
}

bool Leases::Lock(uint32_t slot) const { return SetLock(slot, F_WRLCK); }

void Leases::Unlock(uint32_t slot) const { SetLock(slot, F_UNLCK); }

// Puts memory behind this part of the file, which may grow by it, so that nobody who reads it is
// refused by a signal. To grow beyond the limit would be one as well. The program may have put
// another file under our descriptor's number.
bool Leases::Back(size_t offset, size_t bytes) const {
  const size_t end = offset + bytes;
  struct stat st;
  if (sys::Fstat(fd_, &st) < 0 || !IsOwnFile(st.st_dev, st.st_ino)) return false;
  if (static_cast<size_t>(st.st_size) < end && sys::SoftLimit(RLIMIT_FSIZE) < end) return false;
  return sys::Fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

// The line of this slot, and its neighbours on the page, may be read.
bool Leases::BackLine(uint32_t slot) {
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
// nobody waits for who dies on the way. Who dies right after the exchange has wasted them.
bool Leases::GivePages(Slot& slot, uint32_t level, uint32_t limit) {
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
bool Leases::Claim(const char** why) {
  slot_ = kMaxProcesses;
  Sweep();
  *why = "too many processes share the file of leases";
  for (const bool dead_ones : {false, true}) {
    for (uint32_t i = 0; i < kMaxProcesses; ++i) {
      if (!BackLine(i)) {
        *why = "there is no memory for another process in the file of leases";
        break;
      }
      if (InUse(i) != dead_ones || !Lock(i)) continue;
      Slot& slot = shared_->slots[i];
      if (slot.pages[0].load() == 0) GivePages(slot, 0, kMaxPages);
      Take(i);
      return true;
    }
  }
  return false;
}

// The slot's byte is locked.
void Leases::Take(uint32_t index) {
  Slot& slot = shared_->slots[index];
  Bury(slot);
  Clear(slot);
  slot.exclusives.store(0);
  slot.nudged.store(0);
  slot.handed_on.store(0);
  slot.publish_file.store(kNoFile);
  slot.published.store(slot.publish_wanted.load());
  slot.released.store(slot.release_wanted.load());
  publish_served_ = slot.published.load();
  release_served_ = slot.release_wanted.load();
  stopping_.store(false);
  slot_ = index;
  life_ = slot.life.load() + 1;
  slot.life.store(life_);
  RaiseMark();  // before any mark is put: who looks, looks here as well
}

// What former owners have put into the first page. The other levels wait until they are needed.
void Leases::Clear(Slot& slot) {
  const bool has_page = slot.pages[0].load() != 0;
  if (has_page) {
    FirstPage& page = FirstPageOf(slot);
    for (uint64_t left = slot.touched.load(); left != 0; left &= left - 1) {
      ClearLines(&page.buckets[__builtin_ctzll(left)], sizeof(Bucket));
    }
    ClearLines(&page.passing, sizeof(page.passing));
  }
  slot.levels.store(has_page ? 1 : 0);
  slot.passing.store(0);
  slot.naming.store(0);
  slot.touched.store(0);
}

// What a process has left that did not close, whose byte we have locked.
void Leases::Bury(Slot& slot) {
  if (!lease::InUse(slot.life.load())) return;
  // First: who sees the slot free, sees the death.
  if (slot.exclusives.load() != 0) shared_->deaths.fetch_add(1);
  slot.life.fetch_add(1);
  WakeAskers(slot);
}

// Frees the slot of a process that has died. False: it lives, or somebody is at it right now.
bool Leases::Reap(uint32_t index) {
  NVCACHE_CHECK(index != slot_);
  // A child that shares our memory is a process of its own, and may have closed the file.
  if (sys::IsSharing()) return IsFile(fd_) && BuryLocked(index);
  sys::Lock lock(reaping_);
  return BuryLocked(index);
}

bool Leases::BuryLocked(uint32_t index) {
  if (!Lock(index)) return false;
  Bury(shared_->slots[index]);
  Unlock(index);
  return true;
}

void Leases::Sweep() {
  const uint32_t n = mark();
  for (uint32_t k = 0; k < std::min(n, kSweepSlots); ++k) {
    const uint32_t index = shared_->sweep.fetch_add(1) % n;
    if (InUse(index)) Reap(index);
  }
  LowerMark();
}

uint32_t Leases::mark() const {
  return static_cast<uint32_t>(shared_->mark.load() % (1u << kMarkBits));
}

void Leases::RaiseMark() {
  uint64_t seen = shared_->mark.load();
  uint64_t next;
  do {
    const uint64_t n = std::max<uint64_t>(seen % (1u << kMarkBits), slot_ + 1);
    next = (((seen >> kMarkBits) + 1) << kMarkBits) + n;
  } while (!shared_->mark.compare_exchange_weak(seen, next));
}

// A slot that is taken after we found it free either has its owner raise the mark after us, or
// changes the word under us; then it stays for the next one to lower.
void Leases::LowerMark() {
  uint64_t seen = shared_->mark.load();
  const uint64_t before = seen % (1u << kMarkBits);
  uint64_t n = before;
  while (n > 0 && !InUse(static_cast<uint32_t>(n - 1))) --n;
  if (n == before) return;
  const uint64_t next = (((seen >> kMarkBits) + 1) << kMarkBits) + n;
  shared_->mark.compare_exchange_strong(seen, next);
}

bool Leases::InUse(uint32_t slot) const { return lease::InUse(shared_->slots[slot].life.load()); }

bool Leases::IsDead(uint32_t slot) const {
  if (slot == slot_) return false;
  struct flock lock = LockOf(slot, F_WRLCK);
  return sys::Fcntl(fd_, F_GETLK, sys::Address(&lock)) == 0 && lock.l_type == F_UNLCK;
}

uint32_t Leases::deaths() const { return shared_->deaths.load(); }

bool Leases::HasDeadOwner() const {
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (InUse(i) && shared_->slots[i].exclusives.load() != 0 && IsDead(i)) return true;
  }
  return false;
}

bool Leases::IsOver(uint64_t life) const {
  const uint64_t slot = life >> 32;
  if (slot >= shared_->lines.load()) return slot < kMaxProcesses;  // of a file before this one
  return shared_->slots[slot].life.load() != static_cast<uint32_t>(life);
}

bool Leases::lost() const { return shared_->slots[slot_].life.load() != life_; }

void Leases::Renumber(int from) {
  const long fd = sys::Fcntl(fd_, F_DUPFD_CLOEXEC, from);
  if (fd >= 0) fd_ = static_cast<int>(fd);
}

bool Leases::Relock() {
  return !lost() && Lock(slot_) && (!has_table_ || LockTable(F_RDLCK)) && Sound();
}

bool Leases::LockTable(short type) {
  const bool locked = SetLock(kTableByte, type);
  if (locked) has_table_ = type != F_UNLCK;
  return locked;
}

// The descriptor and the slot are still ours, and newcomers find the file. Others may have given it
// more names, where the system lets them (fs.protected_hardlinks).
bool Leases::Sound() const { return IsFile(fd_) && !lost(); }

bool Leases::IsFile(int fd) const {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && IsOwnFile(st.st_dev, st.st_ino) && st.st_nlink != 0;
}

// ------------------------------------------------------------------------------------------ Marks

FirstPage& Leases::FirstPageOf(const Slot& slot) const {
  return shared_->pages[slot.pages[0].load(std::memory_order_relaxed) - uint32_t{1}].first;
}

Bucket& Leases::BucketOf(const Slot& slot, uint32_t level, uint64_t tag) const {
  if (level == 0) return FirstPageOf(slot).buckets[FirstBucketOf(tag)];
  Page* const pages = &shared_->pages[slot.pages[level].load() - uint32_t{1}];
  const uint32_t bucket =
      static_cast<uint32_t>(tag >> (32 - kTagShift)) % (kLevelPages[level] * kBucketsOfPage);
  return pages[bucket / kBucketsOfPage].buckets[bucket % kBucketsOfPage];
}

// The file's: two only where a child that shares our memory has come in between.
Cell* Leases::FindCell(uint64_t tag, bool (*is_right)(uint32_t cell)) const {
  const Slot& slot = shared_->slots[slot_];
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    for (Cell& cell : BucketOf(slot, level, tag).cells) {
      const uint32_t now = cell.load(std::memory_order_relaxed);
      if (IsOf(now, tag) && is_right(now)) return &cell;
    }
  }
  return nullptr;
}

// True: the file has a cell, and its user is counted there.
bool Leases::CountUser(uint64_t tag) {
  while (Cell* const cell = FindCell(tag, IsUsed)) {
    uint32_t now = cell->load(std::memory_order_relaxed);
    while (IsOf(now, tag) && IsUsed(now)) {
      if (IsEndless(now) || cell->compare_exchange_weak(now, now + kUser)) return true;
    }
  }
  return false;
}

bool Leases::AddCell(uint64_t tag) {
  const Slot& slot = shared_->slots[slot_];
  do {
    for (uint32_t level = 0; level < slot.levels.load(); ++level) {
      for (Cell& cell : BucketOf(slot, level, tag).cells) {
        uint32_t none = 0;
        if (cell.load(std::memory_order_relaxed) != 0) continue;
        if (cell.compare_exchange_strong(none, TagOfCell(tag) + kUser)) return true;
      }
    }
  } while (AddLevel());
  return false;
}

// A child that shares our memory may have another file under our descriptor's number, and may be
// killed before it has cleared the pages.
bool Leases::AddLevel() {
  Slot& slot = shared_->slots[slot_];
  const uint32_t level = slot.levels.load();
  if (level == kLevels || sys::IsSharing()) return false;
  const uint32_t page = slot.pages[level].load();
  if (page != 0) {
    ClearLines(&shared_->pages[page - 1], kLevelPages[level] * kPage);
  } else if (!GivePages(slot, level, kMaxPages - kMaxProcesses)) {
    return false;
  }
  slot.levels.store(static_cast<uint16_t>(level + 1));
  return true;
}

bool Leases::IsCrowded(uint64_t tag) const {
  const Slot& slot = shared_->slots[slot_];
  if (slot.levels.load() == 0) return true;
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    if (BucketOf(slot, level, tag).crowded.load() != 0) return true;
  }
  return false;
}

// Of a slot that is lost the cells are somebody else's.
void Leases::Share(uint64_t device, uint64_t inode) {
  NVCACHE_CHECK(is_open() && slot_ < kMaxProcesses);
  if (lost()) return;
  const uint64_t tag = TagOf(device, inode);
  Slot& slot = shared_->slots[slot_];
  if ((slot.touched.load(std::memory_order_relaxed) & BitOf(tag)) == 0) {
    slot.touched.fetch_or(BitOf(tag));
  }
  if (slot.levels.load() == 0 || CountUser(tag) || AddCell(tag)) return;
  BucketOf(slot, slot.levels.load() - 1u, tag).crowded.store(1);
  slot.handed_on.fetch_add(1);
}

bool Leases::TryExclude(uint64_t device, uint64_t inode) {
  if (lost() || !Sound()) return false;
  const uint64_t tag = TagOf(device, inode);
  Cell* const cell = FindCell(tag, IsShared);
  NVCACHE_CHECK(cell != nullptr || lost() || HasMark(shared_->slots[slot_], tag, kUsers));
  if (cell == nullptr) return false;
  shared_->slots[slot_].exclusives.fetch_add(1);
  cell->fetch_add(kExclusive);
  if (!MarkedElsewhere(tag, kAnyUse) && !RemembersHandOn(device, inode)) return true;
  Downgrade(device, inode);
  return false;
}

void Leases::Downgrade(uint64_t device, uint64_t inode) {
  if (lost()) return;
  Cell* const cell = FindCell(TagOf(device, inode), IsExclusive);
  NVCACHE_CHECK(cell != nullptr || lost());
  if (cell == nullptr) return;
  cell->fetch_sub(kExclusive);
  shared_->slots[slot_].exclusives.fetch_sub(1);
  WakeAskers(shared_->slots[slot_]);
}

void Leases::Drop(uint64_t device, uint64_t inode, bool was_exclusive) {
  if (was_exclusive) Downgrade(device, inode);
  if (lost()) return;
  const uint64_t tag = TagOf(device, inode);
  for (;;) {
    Cell* const cell = FindCell(tag, MayDrop);
    NVCACHE_CHECK(cell != nullptr || lost() || IsCrowded(tag));
    if (cell == nullptr) return;
    uint32_t now = cell->load(std::memory_order_relaxed);
    if (!IsOf(now, tag) || !MayDrop(now)) continue;
    if (IsEndless(now)) return;
    const uint32_t next = (now & kUsers) == kUser ? 0 : now - kUser;
    if (!cell->compare_exchange_strong(now, next)) continue;
    if (next == 0 && (now & kHandedOn) != 0) shared_->slots[slot_].handed_on.fetch_sub(1);
    return;
  }
}

bool Leases::HasMark(const Slot& slot, uint64_t tag, uint32_t mask) const {
  constexpr uint32_t kUnknown = kUsers | kHandedOn;  // without a cell
  if (slot.levels.load() == 0) return (mask & kUnknown) != 0;
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    const Bucket& bucket = BucketOf(slot, level, tag);
    for (const Cell& cell : bucket.cells) {
      const uint32_t now = cell.load();
      if (IsOf(now, tag) && (now & mask) != 0) return true;
    }
    if ((mask & kUnknown) != 0 && bucket.crowded.load() != 0) return true;
  }
  return false;
}

// The life of the slot if its owner lives and has one of `mask` in the file's cell, else 0.
uint32_t Leases::Marked(uint32_t index, uint64_t tag, uint32_t mask) {
  for (;;) {
    const Slot& slot = shared_->slots[index];
    const uint32_t life = slot.life.load();
    // What was never touched need not be mapped to be known: a page fault less.
    if (!lease::InUse(life) || (slot.touched.load() & BitOf(tag)) == 0) return 0;
    if (!HasMark(slot, tag, mask)) return 0;
    if (!Reap(index)) return life;
  }
}

bool Leases::MarkedElsewhere(uint64_t tag, uint32_t mask) {
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (i != slot_ && Marked(i, tag, mask) != 0) return true;
  }
  return false;
}

bool Leases::Uses(uint32_t slot, uint64_t tag) {
  return slot == slot_ ? HasMark(shared_->slots[slot], tag, kAnyUse)
                       : Marked(slot, tag, kAnyUse) != 0;
}

bool Leases::HeldElsewhere(uint64_t device, uint64_t inode) {
  return MarkedElsewhere(TagOf(device, inode), kExclusives);
}

bool Leases::Wanted(uint64_t device, uint64_t inode) {
  return MarkedElsewhere(TagOf(device, inode), kAnyUse);
}

// ----------------------------------------------------------------------- Programs that are started

// If it is the file's. Whoever drops it meanwhile has the count pass below zero for a moment.
void Leases::Mark(Slot& slot, Cell& cell, uint64_t tag) {
  uint32_t now = cell.load();
  while (IsOf(now, tag) && IsUsed(now) && (now & kHandedOn) == 0) {
    if (!cell.compare_exchange_weak(now, now | kHandedOn)) continue;
    slot.handed_on.fetch_add(1);
    return;
  }
}

void Leases::MarkIn(Slot& slot, uint64_t tag) const {
  for (uint32_t level = 0; level < slot.levels.load(); ++level) {
    for (Cell& cell : BucketOf(slot, level, tag).cells) Mark(slot, cell, tag);
  }
}

// The dead may be marked, too.
void Leases::HandOn(uint64_t device, uint64_t inode) {
  const uint64_t tag = TagOf(device, inode);
  shared_->hand_ons_begun.fetch_add(1);
  for (uint32_t i = 0; i < mark(); ++i) {
    Slot& slot = shared_->slots[i];
    if (InUse(i) && (slot.touched.load() & BitOf(tag)) != 0) MarkIn(slot, tag);
  }
  shared_->hand_ons.fetch_add(1);
}

void Leases::MarkHandedOn(uint64_t device, uint64_t inode) {
  if (!lost()) MarkIn(shared_->slots[slot_], TagOf(device, inode));
}

bool Leases::RemembersHandOn(uint64_t device, uint64_t inode) const {
  return !lost() && HasMark(shared_->slots[slot_], TagOf(device, inode), kHandedOn);
}

bool Leases::IsHandedOn(uint64_t device, uint64_t inode) {
  return RemembersHandOn(device, inode) || MarkedElsewhere(TagOf(device, inode), kHandedOn);
}

bool Leases::RemembersHandOns() const {
  const Slot& slot = shared_->slots[slot_];
  return lost() || slot.levels.load() == 0 || slot.handed_on.load() != 0;
}

uint32_t Leases::hand_ons() const { return shared_->hand_ons.load(); }

// Who is at HandOn while that is read, has begun, and is not over: then the two differ for good.
// Who comes later marks the child, or is seen by it.
bool Leases::HandedOnSince(uint32_t hand_ons) const {
  return shared_->hand_ons_begun.load() != hand_ons;
}

// ------------------------------------------------------------------------------ Asking, answering

// Nobody can exclude us any more, so each slot is looked at once. Whoever is in TryExclude takes
// its mark back by itself.
bool Leases::AwaitRelease(uint64_t device, uint64_t inode, uint64_t timeout_ns) {
  const uint64_t tag = TagOf(device, inode);
  NVCACHE_CHECK(lost() || HasMark(shared_->slots[slot_], tag, kUsers));
  const uint64_t end = EndOf(timeout_ns);
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (i == slot_) continue;
    Slot& slot = shared_->slots[i];
    int refusals = 0;
    // The next owner of the slot is asked anew.
    while (const uint32_t life = Marked(i, tag, kExclusives)) {
      const uint32_t ticket = slot.release_wanted.fetch_add(1) + 1;
      Ask(slot);
      const auto served = [&] { return static_cast<int32_t>(slot.released.load() - ticket) >= 0; };
      const auto over = [&] { return Marked(i, tag, kExclusives) != life; };
      while (!over() && !served()) {
        if (!SleepUnless(slot, end, [&] { return over() || served(); })) return false;
      }
      // What is held still may be a mark that TryExclude is about to take back.
      if (!over() && ++refusals == kRefusals) return false;
    }
  }
  return true;
}

bool Leases::AwaitPublish(uint64_t device, uint64_t inode, uint64_t timeout_ns) {
  const uint64_t end = EndOf(timeout_ns);
  const uint64_t tag = TagOf(device, inode);
  const uint32_t n = mark();
  for (uint32_t i = 0; i < n; ++i) {
    if (i == slot_) continue;
    Slot& slot = shared_->slots[i];
    bool published = false;
    // The next owner of the slot is asked anew.
    while (const uint32_t life = published ? 0 : Marked(i, tag, kExclusives)) {
      // The file before the ticket: the keeper reads them the other way round.
      uint32_t none = kNoFile;
      if (!slot.publish_file.compare_exchange_strong(none, HashOf(tag)) && none != HashOf(tag)) {
        slot.publish_file.store(kEveryFile);
      }
      const uint32_t ticket = slot.publish_wanted.fetch_add(1) + 1;
      Ask(slot);
      const auto done = [&] {
        published = static_cast<int32_t>(slot.published.load() - ticket) >= 0;
        return published || Marked(i, tag, kExclusives) != life;
      };
      while (!done()) {
        if (!SleepUnless(slot, end, done)) return false;
      }
    }
  }
  return true;
}

Request Leases::WaitForRequest() {
  Slot& slot = shared_->slots[slot_];
  for (;;) {
    const uint32_t seen = slot.requests.load();
    Request request;
    request.stop = stopping_.load();
    if (request.stop) return request;
    request.release_ticket = slot.release_wanted.load();
    request.publish_ticket = slot.publish_wanted.load();
    request.release = request.release_ticket != release_served_;
    if (request.release || request.publish_ticket != publish_served_) {
      request.publish_file = slot.publish_file.exchange(kNoFile);
      return request;
    }
    if (slot.nudged.exchange(0) != 0) {
      request.asked = false;
      return request;
    }
    Sleep(&slot.requests, seen, sys::kForever);
  }
}

void Leases::Answered(const Request& request, bool published) {
  NVCACHE_CHECK(!request.stop);
  Slot& slot = shared_->slots[slot_];
  release_served_ = request.release_ticket;
  publish_served_ = request.publish_ticket;
  slot.released.store(request.release_ticket);
  if (published) {
    slot.published.store(request.publish_ticket);
  } else if (request.publish_file != kNoFile) {
    slot.publish_file.store(kEveryFile);  // for the next ticket, which stands for this one as well
  }
  WakeAskers(slot);
}

void Leases::Nudge() {
  shared_->slots[slot_].nudged.store(1);
  Ask(shared_->slots[slot_]);
}

void Leases::NudgeAll() {
  for (uint32_t slot = 0; slot < mark(); ++slot) {
    if (!InUse(slot)) continue;
    shared_->slots[slot].nudged.store(1);
    Ask(shared_->slots[slot]);
  }
}

void Leases::StopWaiting() {
  stopping_.store(true);
  Ask(shared_->slots[slot_]);
}

}  // namespace nvcache::lease
