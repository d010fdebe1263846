// SPDX-License-Identifier: BSD-3-Clause
//
// How processes sleep on the words of a slot, and are woken.
#ifndef NVCACHE_LEASE_ASKING_H_
#define NVCACHE_LEASE_ASKING_H_

#include <linux/futex.h>

#include <cstdint>

#include "src/lease/format.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"

namespace nvcache::lease {

// These are sys::FutexWait and sys::FutexWake between processes.
inline void Sleep(sys::Word* word, uint32_t expected, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000u),
                      static_cast<long>(timeout_ns % 1000000000u)};
  sys::Call(SYS_futex, sys::Address(word), FUTEX_WAIT, static_cast<long>(expected),
            timeout_ns == sys::kForever ? 0 : sys::Address(&timeout));
}
inline void Wake(sys::Word* word) {
  sys::Call(SYS_futex, sys::Address(word), FUTEX_WAKE, INT32_MAX);
}

// After something in the slot has changed that askers may wait for. Fails to win the exchange only
// against another thread that does the same.
inline void WakeAskers(Slot& slot) {
  uint32_t seen = slot.answers.load();
  if (seen % 2 != 0 && slot.answers.compare_exchange_strong(seen, seen + 1)) Wake(&slot.answers);
}

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_ASKING_H_
