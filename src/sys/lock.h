// SPDX-License-Identifier: BSD-3-Clause
//
// Locks of one word, on futexes. They belong to one process, know no owner, need no constructor at
// run time, and spin only as long as a page copy takes. All zero is unlocked. Each has a rank,
// which says in which order locks are taken (lock_rank.h).
#ifndef NVCACHE_SYS_LOCK_H_
#define NVCACHE_SYS_LOCK_H_

#include <atomic>
#include <cstdint>

#include "src/sys/lock_rank.h"

namespace nvcache::sys {

using Word = std::atomic<uint32_t>;

inline constexpr uint64_t kForever = ~uint64_t{0};

// Sleeps while *word == expected, at most `timeout_ns`; returns early on a wake-up or a signal.
void FutexWait(Word* word, uint32_t expected, uint64_t timeout_ns = kForever);
void FutexWake(Word* word, int waiters);
// Sleeps for so long, or until a signal.
void Pause(uint64_t ns);

// "Futexes are tricky" (U. Drepper, 2011), mutex 2: free, locked, locked with waiters.
class MutexWord {
 public:
  bool TryLock() {
    uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kLocked, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void Lock() {
    if (!TryLock()) LockSlow();
  }
  void Unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) FutexWake(&state_, 1);
  }
  bool IsLocked() const { return state_.load(std::memory_order_relaxed) != kFree; }
  void Reset() { state_.store(kFree); }

 private:
  enum : uint32_t { kFree, kLocked, kContended };
  void LockSlow();

  Word state_{kFree};
};

template <Rank kRank>
class Mutex {
 public:
  bool TryLock() {
    const bool locked = word_.TryLock();
    if (locked) NoteLocked(kRank);
    return locked;
  }
  void Lock() {
    CheckOrder(kRank);
    word_.Lock();
    NoteLocked(kRank);
  }
  void Unlock() {
    NoteUnlocked(kRank);
    word_.Unlock();
  }
  bool IsLocked() const { return word_.IsLocked(); }
  // In a child of fork: the thread that had it is not here.
  void Reset() { word_.Reset(); }

 private:
  MutexWord word_;
};

class RwLockWords {
 public:
  bool TryLockShared() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    return (state & (kWriter | kWriterWaits)) == 0 &&
           state_.compare_exchange_strong(state, state + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void LockShared() {
    if (!TryLockShared()) LockSharedSlow();
  }
  void UnlockShared() {
    uint32_t before = state_.fetch_sub(1, std::memory_order_seq_cst);
    if ((before & kReaders) == 1 && (before & kWriterWaits) != 0) Wake();
  }
  bool TryLock() {
    uint32_t free = 0;
    return state_.compare_exchange_strong(free, kWriter, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void Lock();
  void Unlock() {
    state_.store(0, std::memory_order_seq_cst);
    Wake();
  }
  bool IsLockedExclusive() const { return (state_.load(std::memory_order_relaxed) & kWriter) != 0; }
  void Reset() {
    state_.store(0);
    sleepers_.store(0);
  }

 private:
  static constexpr uint32_t kWriter = 1u << 31;
  static constexpr uint32_t kWriterWaits = 1u << 30;
  static constexpr uint32_t kReaders = kWriterWaits - 1;

  void LockSharedSlow();
  void Wake();

  Word state_{0};
  Word sleepers_{
      0};  // threads in or near FutexWait: Wake costs a system call only if there are any
};

// Many readers or one writer; a waiting writer keeps new readers out.
template <Rank kRank>
class RwLock {
 public:
  bool TryLockShared() {
    const bool locked = words_.TryLockShared();
    if (locked) NoteLocked(kRank);
    return locked;
  }
  void LockShared() {
    CheckOrder(kRank);
    words_.LockShared();
    NoteLocked(kRank);
  }
  void UnlockShared() {
    NoteUnlocked(kRank);
    words_.UnlockShared();
  }
  bool TryLock() {
    const bool locked = words_.TryLock();
    if (locked) NoteLocked(kRank);
    return locked;
  }
  void Lock() {
    CheckOrder(kRank);
    words_.Lock();
    NoteLocked(kRank);
  }
  void Unlock() {
    NoteUnlocked(kRank);
    words_.Unlock();
  }
  bool IsLockedExclusive() const { return words_.IsLockedExclusive(); }
  // In a child of fork: the thread that had it is not here.
  void Reset() { words_.Reset(); }

 private:
  RwLockWords words_;
};

// A number that others wait for to change.
class Event {
 public:
  uint32_t Value() const { return value_.load(std::memory_order_seq_cst); }
  // Sleeps until Signal() was called after Value() returned `seen`, or for `timeout_ns`.
  void Wait(uint32_t seen, uint64_t timeout_ns = kForever);
  void Signal();

 private:
  Word value_{0};
  Word sleepers_{0};
};

template <typename Lockable>
class Lock {
 public:
  explicit Lock(Lockable& lock) : lock_(lock) { lock_.Lock(); }
  ~Lock() { lock_.Unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Lockable& lock_;
};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_LOCK_H_
