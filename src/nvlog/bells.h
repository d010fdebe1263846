// SPDX-License-Identifier: BSD-3-Clause
//
// Sleepers: writers, until there is room, and the cleanup thread, until there is work.
#ifndef NVCACHE_NVLOG_BELLS_H_
#define NVCACHE_NVLOG_BELLS_H_

#include <atomic>
#include <cstdint>

#include "src/pmem/persist.h"
#include "src/pool/format.h"
#include "src/sys/lock.h"

namespace nvcache::nvlog {

using pool::Lsn;

class alignas(pmem::kLine) Bells {
 public:
  // Sleeps until something was freed after `seen`; without page locks. A thread that has no lock at
  // all may sleep beyond the pool's end: AnnounceRoom() comes after it. If `for_signals`, also
  // until a signal waits for the thread to leave the engine.
  uint32_t RoomSeen() const { return room_.Value(); }
  void WaitForRoom(uint32_t seen, bool for_signals = false);
  // A writer does.
  bool Hurried() const { return waiters_.load(std::memory_order_seq_cst) > 0; }
  // Wakes the writers to try again: something was freed, or the pool is not there any more.
  void AnnounceRoom() { room_.Signal(); }

  // For the cleanup thread.
  uint32_t BellSeen() const { return bell_.Value(); }
  void Ring() { bell_.Signal(); }

 protected:
  // The bell rings when a group with this LSN was committed, or a higher one; once.
  static constexpr Lsn kNoAlarm = ~Lsn{0};
  void SetAlarm(Lsn lsn) { alarm_.store(lsn, std::memory_order_seq_cst); }
  void Committed(Lsn lsn) {
    Lsn alarm = alarm_.load(std::memory_order_seq_cst);
    if (lsn >= alarm && alarm_.compare_exchange_strong(alarm, kNoAlarm)) Ring();
  }
  void AwaitBell(uint32_t seen, uint64_t timeout_ns) { bell_.Wait(seen, timeout_ns); }

 private:
  std::atomic<Lsn> alarm_{kNoAlarm};
  std::atomic<uint32_t> waiters_{0};
  sys::Event room_;  // something was freed
  sys::Event bell_;  // there is work
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_BELLS_H_
