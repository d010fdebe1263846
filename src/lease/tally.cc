// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/tally.h"

#include <linux/futex.h>

#include <algorithm>

#include "src/lease/format.h"
#include "src/lease/leases.h"
#include "src/sys/kernel.h"

namespace nvcache::lease {

namespace {

// A lock, from the top: the owner's slot plus one, or 0; the low bits of its life; how often the lock
// was taken or let go.
constexpr unsigned kOwnerShift = 51, kLifeShift = 35;
constexpr uint64_t kLifeMask = 0xffff;
constexpr uint64_t kTimesMask = (uint64_t{1} << kLifeShift) - 1;
static_assert(kMaxProcesses < (uint64_t{1} << (64 - kOwnerShift)));

// A process that has the lock makes one call to the kernel: first the others look on.
constexpr int kSpins = 200;
constexpr uint64_t kNap = 2 * 1000 * 1000;  // ns

uint32_t OwnerOf(uint64_t lock) { return static_cast<uint32_t>(lock >> kOwnerShift); }

// The half of the word that changes with each taking.
sys::Word* Half(Tally& tally) { return reinterpret_cast<sys::Word*>(&tally.lock); }

void Nap(Tally& tally, uint64_t seen) {
  const timespec time = {0, static_cast<long>(kNap)};
  tally.waiters.fetch_add(1);
  // The owner's half has changed before it looks for those who sleep.
  if (tally.lock.load() == seen) {
    sys::Call(SYS_futex, sys::Address(Half(tally)), FUTEX_WAIT,
              static_cast<long>(static_cast<uint32_t>(seen)), sys::Address(&time));
  }
  tally.waiters.fetch_sub(1);
}

}  // namespace

uint64_t TagOf(uint64_t device, uint64_t inode) {
  uint64_t h = inode + device * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
  h ^= h >> 32;
  return h != 0 ? h : 1;
}

// ---------------------------------------------------------------------------------------- Passing

std::atomic<uint16_t>& Tallies::Count(uint32_t slot, uint64_t tag) const {
  return leases_.shared_->passing[slot].count[(tag >> 32) % kPassingClasses];
}

void Tallies::BeginPassing(uint64_t tag) const { Count(leases_.slot_, tag).fetch_add(1); }

void Tallies::EndPassing(uint64_t tag) const { Count(leases_.slot_, tag).fetch_sub(1); }

bool Tallies::AnybodyPasses(uint64_t tag, uint32_t own) const {
  const uint32_t n = leases_.mark();
  for (uint32_t slot = 0; slot < n; ++slot) {
    if (slot == leases_.slot_) {
      if (Count(slot, tag).load() > own) return true;
    } else if (leases_.InUse(slot) && Count(slot, tag).load() != 0 && !leases_.Reap(slot)) {
      return true;
    }
  }
  return false;
}

// ---------------------------------------------------------------------------------------- Tallies

Tally* Tallies::Find(uint64_t tag) const {
  Tally* set = leases_.shared_->tallies[tag % kTallySets];
  for (uint32_t i = 0; i < kTalliesOfSet; ++i) {
    if (set[i].tag.load() == tag) return &set[i];
  }
  return nullptr;
}

Tally* Tallies::FindOrTake(uint64_t tag, uint64_t pool, uint64_t checkpoint) const {
  if (Tally* found = Find(tag); found != nullptr) return found;
  // One for each set at a time, or two processes would each take one for the same file.
  Tally* set = leases_.shared_->tallies[tag % kTallySets];
  uint64_t first = 0;
  if (!TryLock(set[0], &first)) return nullptr;
  Tally* taken = Find(tag);
  for (uint32_t i = 0; i < kTalliesOfSet && taken == nullptr; ++i) {
    Tally& tally = set[i];
    uint64_t lock = first;
    if (i > 0 && !TryLock(tally, &lock)) continue;
    const bool idle =
        tally.tag.load() == 0 || (tally.pool.load() == pool && !IsPending(tally, checkpoint));
    if (idle) {
      Forget(tally);
      tally.tag.store(0);
      tally.pool.store(pool);
      tally.lsn.store(0);
      tally.settled.store(0);
      tally.tag.store(tag);
      taken = &tally;
    }
    if (i > 0) Unlock(tally, lock);
  }
  Unlock(set[0], first);
  return taken;
}

// --------------------------------------------------------------------------------------- The lock

// What the lock becomes when this process takes it.
uint64_t Tallies::Own(uint64_t seen) const {
  return uint64_t{leases_.slot_ + 1} << kOwnerShift | (leases_.life_ & kLifeMask) << kLifeShift |
         ((seen + 1) & kTimesMask);
}

// Its owner has died.
bool Tallies::IsStale(uint64_t lock) const {
  const uint32_t slot = OwnerOf(lock) - 1;
  const uint64_t life = leases_.shared_->slots[slot].life.load() & kLifeMask;
  return life != (lock >> kLifeShift & kLifeMask) || leases_.IsDead(slot);
}

bool Tallies::TryLock(Tally& tally, uint64_t* lock) const {
  uint64_t seen = tally.lock.load();
  *lock = Own(seen);
  return OwnerOf(seen) == 0 && tally.lock.compare_exchange_strong(seen, *lock);
}

// The old owner counts as passing before it can have lost the lock: until it says so or has died.
bool Tallies::TakeAway(Tally& tally, uint64_t seen, uint64_t* lock) const {
  const bool dead = IsStale(seen);
  std::atomic<uint16_t>& passing = Count(OwnerOf(seen) - 1, tally.tag.load());
  if (!dead) passing.fetch_add(1);
  *lock = Own(seen);
  if (!tally.lock.compare_exchange_strong(seen, *lock)) {
    if (!dead) passing.fetch_sub(1);
    return false;
  }
  Forget(tally);
  return true;
}

uint64_t Tallies::Lock(Tally& tally) const {
  uint64_t lock = 0;
  for (int i = 0; i < kSpins; ++i) {
    if (TryLock(tally, &lock)) return lock;
    asm volatile("pause");
  }
  uint64_t seen = tally.lock.load();
  for (uint64_t since = sys::Now(CLOCK_MONOTONIC);;) {
    if (TryLock(tally, &lock)) return lock;
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    const uint64_t present = tally.lock.load();
    if (present != seen) {
      seen = present;
      since = now;
    }
    if (OwnerOf(seen) == 0) continue;
    const bool over = now - since >= kLockPatience;
    if ((over || IsStale(seen)) && TakeAway(tally, seen, &lock)) {
      return lock;
    }
    Nap(tally, seen);
  }
}

bool Tallies::Unlock(Tally& tally, uint64_t lock) const {
  const uint64_t free = (lock + 1) & kTimesMask;
  if (!tally.lock.compare_exchange_strong(lock, free)) return false;
  if (tally.waiters.load() != 0) {
    sys::Call(SYS_futex, sys::Address(Half(tally)), FUTEX_WAKE, 1);
  }
  return true;
}

}  // namespace nvcache::lease
