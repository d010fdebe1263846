// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/lock.h"

#include <linux/futex.h>

#include "src/sys/kernel.h"

namespace nvcache::sys {

namespace {

// About the time of a 4 KiB copy: longer waits sleep.
constexpr int kSpins = 100;

void Relax() { __builtin_ia32_pause(); }

}  // namespace

void FutexWait(Word* word, uint32_t expected, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000u),
                      static_cast<long>(timeout_ns % 1000000000u)};
  Call(SYS_futex, Address(word), FUTEX_WAIT_PRIVATE, static_cast<long>(expected),
       timeout_ns == kForever ? 0 : Address(&timeout));
}

void FutexWake(Word* word, int waiters) {
  Call(SYS_futex, Address(word), FUTEX_WAKE_PRIVATE, waiters);
}

void Pause(uint64_t ns) {
  Word word{0};
  FutexWait(&word, 0, ns);
}

void MutexWord::LockSlow() {
  for (int i = 0; i < kSpins; ++i) {
    Relax();
    if (state_.load(std::memory_order_relaxed) == kFree && TryLock()) return;
  }
  while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
    FutexWait(&state_, kContended);
  }
}

void RwLockWords::LockSharedSlow() {
  for (int spins = 0;; ++spins) {
    uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & (kWriter | kWriterWaits)) == 0) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return;
      }
    } else if (spins < kSpins) {
      Relax();
    } else {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      FutexWait(&state_, state);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

void RwLockWords::Lock() {
  for (int spins = 0;; ++spins) {
    uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & (kWriter | kReaders)) == 0) {
      if (state_.compare_exchange_weak(state, kWriter, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return;
      }
    } else if (spins < kSpins) {
      Relax();
    } else {
      if ((state & kWriterWaits) == 0 &&
          !state_.compare_exchange_weak(state, state | kWriterWaits, std::memory_order_seq_cst)) {
        continue;
      }
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      FutexWait(&state_, state | kWriterWaits);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

// The sleeper announces itself before the kernel compares the word; we change the word before we
// look for sleepers. Both orders are sequentially consistent, so one of the two sees the other.
void RwLockWords::Wake() {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWake(&state_, INT32_MAX);
}

void Event::Wait(uint32_t seen, uint64_t timeout_ns) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  FutexWait(&value_, seen, timeout_ns);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Event::Signal() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWake(&value_, INT32_MAX);
}

}  // namespace nvcache::sys
