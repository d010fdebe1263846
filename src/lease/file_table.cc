// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/file_table.h"

#include <fcntl.h>
#include <linux/futex.h>

#include "src/lease/format.h"
#include "src/lease/leases.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"

namespace nvcache::lease {

namespace {

// A lock, from the top: the owner's slot plus one, or 0; the low bits of its life; how often the
// lock was taken or let go.
constexpr unsigned kOwnerShift = 51, kLifeShift = 35;
constexpr uint64_t kLifeMask = 0xffff;
constexpr uint64_t kTimesMask = (uint64_t{1} << kLifeShift) - 1;
static_assert(kMaxProcesses < (uint64_t{1} << (64 - kOwnerShift)));

// A process that has the lock makes one call to the kernel: first the others look on.
constexpr int kSpins = 200;
constexpr uint64_t kNap = 2 * 1000 * 1000;  // ns

uint32_t OwnerOf(uint64_t lock) { return static_cast<uint32_t>(lock >> kOwnerShift); }

constexpr uint64_t kKnown = 1, kRefused = 2;
constexpr unsigned kBypassesShift = 2;

uint64_t Word(const Coverage& coverage) {
  return coverage.bypasses << kBypassesShift | (coverage.known ? kKnown : 0) |
         (coverage.refused ? kRefused : 0);
}

// Shared::looked. 0: nobody has.
uint64_t LookOf(uint32_t deaths, bool emulated) {
  return (uint64_t{deaths} + 1) << 1 | (emulated ? 1u : 0u);
}

// A word has the second in its low bits, below something else.
constexpr unsigned kSecondBits = 32;
uint64_t Second() { return sys::Now(CLOCK_MONOTONIC) / 1000000000; }

// The half of the lock that changes with each taking.
sys::Word* Half(FileEntry& entry) { return reinterpret_cast<sys::Word*>(&entry.lock); }

void Nap(FileEntry& entry, uint64_t seen) {
  const timespec time = {0, static_cast<long>(kNap)};
  entry.waiters.fetch_add(1);
  // The owner's half has changed before it looks for those who sleep.
  if (entry.lock.load() == seen) {
    sys::Call(SYS_futex, sys::Address(Half(entry)), FUTEX_WAIT,
              static_cast<long>(static_cast<uint32_t>(seen)), sys::Address(&time));
  }
  entry.waiters.fetch_sub(1);
}

}  // namespace

// -------------------------------------------------------------------------------------- The table

bool FileTable::IsOf(uint64_t pool) const { return leases_.shared_->pool.load() == pool; }

// The one process that has it may clear it: nobody's groups are in it, but for the dead, whose pool
// is not ours.
bool FileTable::Join(uint64_t pool) const {
  constexpr int kAttempts = 4;  // others come, too
  for (int i = 0; i < kAttempts; ++i) {
    if (leases_.LockTable(F_RDLCK) && IsOf(pool)) return true;
    if (!leases_.LockTable(F_WRLCK)) {
      if (!IsOf(pool)) leases_.LockTable(F_UNLCK);
      continue;
    }
    Shared& shared = *leases_.shared_;
    if (!IsOf(pool)) {
      for (FileEntry& entry : shared.entries) {
        for (Coverage now = CoverageOf(entry); now.tag != 0 || now.known; now = CoverageOf(entry)) {
          Change(entry, now, {0, now.bypasses + 1, false});
        }
        entry.lsn.store(0);
        entry.settled.store(0);
      }
      for (auto& tagged : shared.tagged) tagged.store(0);
      shared.looked.store(0);
      shared.checkpoint.store(0);
      shared.wanted.store(0);
      shared.folders.store(0);
      shared.unlogged.store(0);
      shared.unlogged_synced.store(0);
      shared.unlogged_awaited.store(0);
      shared.removed.store(0);
      shared.pool.store(pool);
    }
    leases_.LockTable(F_RDLCK);
    return true;
  }
  return false;
}

void FileTable::NoteLook(uint32_t deaths, bool emulated) const {
  leases_.shared_->looked.store(LookOf(deaths, emulated));
}

void FileTable::ForgetLook() const { leases_.shared_->looked.store(0); }

bool FileTable::WasLookedAt(uint64_t pool, bool emulate) const {
  const Shared& shared = *leases_.shared_;
  const uint64_t looked = shared.looked.load();
  const uint32_t deaths = shared.deaths.load();
  return IsOf(pool) &&
         (looked == LookOf(deaths, false) || (emulate && looked == LookOf(deaths, true))) &&
         leases_.IsLockedElsewhere(kTableByte) && !leases_.HasDeadOwner();
}

void FileTable::Leave() const { leases_.LockTable(F_UNLCK); }

bool FileTable::LeaveIfUnused() const {
  return leases_.LockTable(F_WRLCK) && leases_.LockTable(F_UNLCK);
}

uint64_t FileTable::checkpoint() const { return leases_.shared_->checkpoint.load(); }

void FileTable::RaiseCheckpoint(uint64_t lsn) const { Raise(leases_.shared_->checkpoint, lsn); }

void FileTable::WantCheckpointAbove(uint64_t lsn) const {
  Raise(leases_.shared_->wanted, lsn);
  leases_.NudgeAll();
}

uint64_t FileTable::wanted() const { return leases_.shared_->wanted.load(); }

// ---------------------------------------------------------------------------------------- Passing

std::atomic<uint16_t>& FileTable::Count(uint32_t slot, uint64_t tag) const {
  NVCACHE_CHECK(slot < kMaxProcesses);
  Slot& line = leases_.shared_->slots[slot];
  if (line.levels.load(std::memory_order_relaxed) == 0) return line.in_flight;
  return leases_.FirstPageOf(line).in_flight.count[ClassOf(tag)];
}

// With a full fence behind it: no later load comes before it. A slot that was lost is another
// process's.
std::atomic<uint16_t>* FileTable::BeginInFlight(uint64_t tag) const {
  if (leases_.lost()) return nullptr;
  std::atomic<uint16_t>& count = Count(leases_.slot_, tag);
  count.fetch_add(1);
  return &count;
}

void FileTable::EndInFlight(std::atomic<uint16_t>* count) const {
  if (count != nullptr && !leases_.lost()) count->fetch_sub(1);
}

void FileTable::EndInFlight(uint64_t tag) const {
  if (!leases_.lost()) Count(leases_.slot_, tag).fetch_sub(1);
}

// A process that passes has shared the file before: so the others of the class are told apart.
bool FileTable::AnybodyInFlight(uint64_t tag, uint64_t device, uint64_t inode) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t n = leases_.mark();
  const uint64_t number = NumberTagOf(device, inode);
  for (uint32_t slot = 0; slot < n; ++slot) {
    if (!leases_.InUse(slot) || Count(slot, tag).load() == 0) continue;
    if (leases_.Uses(slot, number)) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------ Names

void FileTable::BeginNaming() const {
  if (!leases_.lost()) leases_.shared_->slots[leases_.slot_].naming.fetch_add(1);
}

void FileTable::EndNaming() const {
  if (!leases_.lost()) leases_.shared_->slots[leases_.slot_].naming.fetch_sub(1);
}

bool FileTable::AwaitNaming() const {
  constexpr int kNamingSpins = 1000;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t n = leases_.mark();
  for (uint32_t slot = 0; slot < n; ++slot) {
    const auto& naming = leases_.shared_->slots[slot].naming;
    for (int i = 0; naming.load() != 0; ++i) {
      if (!leases_.InUse(slot)) break;
      if (i < kNamingSpins) {
        asm volatile("pause");
        continue;
      }
      if (!leases_.IsDead(slot)) return false;
      break;
    }
  }
  return true;
}

bool FileTable::AreOneClass(uint64_t a, uint64_t b) const {
  return &Count(leases_.slot_, a) == &Count(leases_.slot_, b);
}

bool FileTable::AnybodyChanges(uint64_t tag, uint32_t own) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t n = leases_.mark();
  for (uint32_t slot = 0; slot < n; ++slot) {
    if (!leases_.InUse(slot) || Count(slot, tag).load() <= (slot == leases_.slot_ ? own : 0)) {
      continue;
    }
    if (!leases_.IsDead(slot)) return true;
  }
  return false;
}

bool FileTable::HasFolders() const { return leases_.shared_->folders.load() != 0; }

// Nobody has noted the calls that were made before this device's first folder came.
void FileTable::NoteFolder(uint64_t device) const {
  Shared& shared = *leases_.shared_;
  if (shared.folders.load() == device) return;
  shared.unlogged.fetch_add(1);
  shared.folders.store(device);
}

uint64_t FileTable::LockNames() const { return Lock(leases_.shared_->names, kNamesPatience); }

bool FileTable::IsOwnNames(uint64_t lock) const { return IsOwn(leases_.shared_->names, lock); }

void FileTable::UnlockNames(uint64_t lock) const { Unlock(leases_.shared_->names, lock); }

void FileTable::NoteRemoved(uint64_t lsn) const { Raise(leases_.shared_->removed, lsn); }

uint64_t FileTable::removed() const { return leases_.shared_->removed.load(); }

void FileTable::NoteUnlogged(uint64_t device) const {
  const uint64_t folders = leases_.shared_->folders.load();
  if (folders != 0 && (device == 0 || device == folders)) leases_.shared_->unlogged.fetch_add(1);
}

uint64_t FileTable::Unlogged() const { return leases_.shared_->unlogged.load(); }

uint64_t FileTable::UnloggedSynced() const { return leases_.shared_->unlogged_synced.load(); }

void FileTable::RaiseUnloggedSynced(uint64_t unlogged) const {
  Raise(leases_.shared_->unlogged_synced, unlogged);
}

void FileTable::NoteUnloggedAwaited() const {
  const uint64_t before = leases_.shared_->unlogged_awaited.load();
  leases_.shared_->unlogged_awaited.store(before << kSecondBits | Second());
}

bool FileTable::WereUnloggedAwaited() const {
  const uint64_t then = leases_.shared_->unlogged_awaited.load() >> kSecondBits;
  return then != 0 && Second() - then <= kWarmSeconds;
}

// In one word: part of the tag, and the second.
bool FileTable::WarmUp(uint64_t tag) const {
  const uint64_t now = Second();
  const uint64_t word = tag << kSecondBits | now;
  const uint64_t before = At(tag).warmed.exchange(word);
  return before >> kSecondBits == word >> kSecondBits && word - before <= kWarmSeconds;
}

// ------------------------------------------------------------------------------------------- Open
//
// Not a bit of the file's cell: a cell knows a part of the tag only, and its process may be dead.
// For the other marks both err on the safe side.

// The program may have put another file in the place of ours, which may have locks of its own.
void FileTable::SayOpen(uint64_t tag, bool sure) const {
  if (sure ? !leases_.lost() : leases_.Sound()) leases_.SetLock(ByteOfOpen(tag), F_RDLCK);
}

void FileTable::SayClosed(uint64_t tag, bool sure) const {
  if (sure ? !leases_.lost() : leases_.Sound()) leases_.SetLock(ByteOfOpen(tag), F_UNLCK);
}

bool FileTable::IsOpenElsewhere(uint64_t tag) const {
  return leases_.Sound() && leases_.IsLockedElsewhere(ByteOfOpen(tag));
}

// --------------------------------------------------------------------------------------- An entry

FileEntry& FileTable::At(uint64_t tag) const {
  return leases_.shared_->entries[tag % kFileEntries];
}

// A process that sets the tag has set the bit before.
FileEntry* FileTable::Find(uint64_t tag) const {
  if (tag == 0 || !IsTagged(leases_.TaggedAt(tag).load(), tag)) return nullptr;
  FileEntry& entry = At(tag);
  return entry.tag.load() == tag ? &entry : nullptr;
}

bool FileTable::IsPending(const FileEntry& entry) const {
  const uint64_t lsn = entry.lsn.load();
  return lsn >= checkpoint() && lsn >= entry.settled.load() && lsn != 0;
}

// A tag goes only with a change of the other half.
Coverage FileTable::CoverageOf(const FileEntry& entry) {
  for (;;) {
    const uint64_t word = entry.word.load();
    const uint64_t tag = entry.tag.load();
    if (entry.word.load() == word) {
      return {tag, word >> kBypassesShift, (word & kKnown) != 0, (word & kRefused) != 0};
    }
  }
}

bool FileTable::Change(FileEntry& entry, const Coverage& from, const Coverage& to) {
  static_assert(offsetof(FileEntry, word) == offsetof(FileEntry, tag) + sizeof(uint64_t));
  NVCACHE_CHECK(from.tag == 0 || to.tag == from.tag || to.bypasses > from.bypasses);
  NVCACHE_CHECK(!to.known || (to.tag != 0 && !to.refused));
  uint64_t tag = from.tag, word = Word(from);
  bool changed;
  // The compiler would call a function for it that is not there.
  asm volatile("lock cmpxchg16b %1"
               : "=@ccz"(changed), "+m"(*reinterpret_cast<char(*)[16]>(&entry)), "+a"(tag),
                 "+d"(word)
               : "b"(to.tag), "c"(Word(to))
               : "memory");
  return changed;
}

void FileTable::Forget(FileEntry& entry) {
  for (;;) {
    const Coverage now = CoverageOf(entry);
    if (Change(entry, now, {now.tag, now.bypasses + 1, false, now.refused})) return;
  }
}

// A process that has an entry's lock may be about to commit a group.
bool FileTable::ForgetAll() const {
  Shared& shared = *leases_.shared_;
  if (shared.pool.load() == 0) return false;
  bool pending = false;
  const uint64_t names = LockNames();
  constexpr uint32_t kAtOnce = sizeof(uint64_t);
  for (uint32_t first = 0; first < kFileEntries; first += kAtOnce) {
    const auto* eight = reinterpret_cast<const uint64_t*>(&shared.tagged[first]);
    if (__atomic_load_n(eight, __ATOMIC_RELAXED) == 0) continue;
    for (uint32_t i = first; i < first + kAtOnce; ++i) {
      FileEntry& entry = shared.entries[i];
      if (CoverageOf(entry).tag == 0) continue;
      const uint64_t lock = Lock(entry);
      Forget(entry);
      Unlock(entry, lock);
      pending = pending || IsPending(entry);
    }
  }
  UnlockNames(names);
  return pending;
}

void FileTable::Refuse(FileEntry& entry, uint64_t tag) {
  for (;;) {
    const Coverage now = CoverageOf(entry);
    if (now.tag != tag || Change(entry, now, {tag, now.bypasses + 1, false, true})) return;
  }
}

void FileTable::Raise(std::atomic<uint64_t>& field, uint64_t lsn) {
  uint64_t seen = field.load();
  while (seen < lsn && !field.compare_exchange_weak(seen, lsn)) {
  }
}

uint32_t FileTable::Progress(const FileEntry& entry) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;
  const uint64_t bypasses = CoverageOf(entry).bypasses;
  return static_cast<uint32_t>((entry.lsn.load() * kMix ^ bypasses) * kMix >> 32);
}

void FileTable::CarryCloseStamp(FileEntry& entry, uint64_t stamp, uint32_t stamped_at) {
  entry.close_stamp.store(0);
  entry.stamped_at.store(stamped_at);
  entry.close_stamp.store(stamp);
}

bool FileTable::SetTag(FileEntry& entry, uint64_t tag) const {
  std::atomic<uint8_t>& tagged = leases_.shared_->tagged[tag % kFileEntries];
  NVCACHE_CHECK(&entry == &At(tag));
  if (tag == 0) return false;
  if ((tagged.load() & EighthOf(tag)) == 0) tagged.fetch_or(EighthOf(tag));
  for (;;) {
    const Coverage now = CoverageOf(entry);
    if (now.tag != 0) return now.tag == tag;
    if (Change(entry, now, {tag, now.bypasses, false})) return true;
  }
}

bool FileTable::RemoveTag(FileEntry& entry) const {
  const Coverage now = CoverageOf(entry);
  if (now.tag == 0) return true;
  const uint64_t lock = Lock(entry);
  const bool removed = !IsPending(entry) && Change(entry, now, {0, now.bypasses + 1, false});
  Unlock(entry, lock);
  return removed;
}

// --------------------------------------------------------------------------------------- The lock

// The lock's value when this process takes it.
uint64_t FileTable::Own(uint64_t seen) const {
  return uint64_t{leases_.slot_ + 1} << kOwnerShift | (leases_.life_ & kLifeMask) << kLifeShift |
         ((seen + 1) & kTimesMask);
}

// Its owner has died.
bool FileTable::IsStale(uint64_t lock) const {
  const uint32_t slot = OwnerOf(lock) - 1;
  const uint64_t life = leases_.shared_->slots[slot].life.load() & kLifeMask;
  return life != (lock >> kLifeShift & kLifeMask) || leases_.IsDead(slot);
}

bool FileTable::TryLock(FileEntry& entry, uint64_t* lock) const {
  uint64_t seen = entry.lock.load();
  *lock = Own(seen);
  return OwnerOf(seen) == 0 && entry.lock.compare_exchange_strong(seen, *lock);
}

// Nobody uses the lock before the file is unknown. The old owner is in flight until it has come
// back or died, and finds its loss.
bool FileTable::TakeAway(FileEntry& entry, uint64_t seen, uint64_t* lock) const {
  *lock = Own(seen);
  if (!entry.lock.compare_exchange_strong(seen, *lock)) return false;
  Forget(entry);
  if (&entry == &leases_.shared_->names) {
    for (FileEntry& other : leases_.shared_->entries) Forget(other);
  }
  return true;
}

uint64_t FileTable::Lock(FileEntry& entry) const { return Lock(entry, kLockPatience); }

uint64_t FileTable::Lock(FileEntry& entry, uint64_t patience) const {
  uint64_t lock = 0;
  for (int i = 0; i < kSpins; ++i) {
    if (TryLock(entry, &lock)) return lock;
    asm volatile("pause");
  }
  uint64_t seen = entry.lock.load();
  for (uint64_t since = sys::Now(CLOCK_MONOTONIC);;) {
    if (TryLock(entry, &lock)) return lock;
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    const uint64_t present = entry.lock.load();
    if (present != seen) {
      seen = present;
      since = now;
    }
    if (OwnerOf(seen) == 0) continue;
    const bool over = now - since >= patience;
    if ((over || IsStale(seen)) && TakeAway(entry, seen, &lock)) return lock;
    Nap(entry, seen);
  }
}

void FileTable::Unlock(FileEntry& entry, uint64_t lock) const {
  const uint64_t free = (lock + 1) & kTimesMask;
  if (!entry.lock.compare_exchange_strong(lock, free)) return;
  if (entry.waiters.load() != 0) {
    sys::Call(SYS_futex, sys::Address(Half(entry)), FUTEX_WAKE, 1);
  }
}

}  // namespace nvcache::lease
