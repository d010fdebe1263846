// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/bells.h"

#include "src/sys/deferral.h"

namespace nvcache::nvlog {

void Bells::WaitForRoom(uint32_t seen, bool for_signals) {
  // A signal ends the sleep, unless it comes just before: then this does.
  constexpr uint64_t kLookNs = 50 * 1000 * 1000;
  sys::CheckWait();
  waiters_.fetch_add(1);
  Ring();
  do {
    room_.Wait(seen, for_signals ? kLookNs : sys::kForever);
  } while (for_signals && room_.Value() == seen && !sys::SignalWaits());
  waiters_.fetch_sub(1);
}

}  // namespace nvcache::nvlog
