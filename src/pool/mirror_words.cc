// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/mirror_words.h"

#include <linux/futex.h>

#include <algorithm>
#include <climits>

#include "src/sys/kernel.h"
#include "src/sys/lock.h"

namespace nvcache::pool {

namespace {

// Between two looks at a word that wakes nobody: a devdax device has no such words in some kernels.
constexpr uint64_t kWakePollNs = 1000 * 1000;

// Between processes.
void Await(uint32_t& word, uint32_t seen, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000u),
                      static_cast<long>(timeout_ns % 1000000000u)};
  const long result = sys::Call(SYS_futex, sys::Address(&word), FUTEX_WAIT, static_cast<long>(seen),
                                sys::Address(&timeout));
  if (result == -EFAULT || result == -EINVAL) sys::Pause(std::min(timeout_ns, kWakePollNs));
}

void Change(uint32_t& word) {
  std::atomic_ref(word).fetch_add(1);
  sys::Call(SYS_futex, sys::Address(&word), FUTEX_WAKE, INT_MAX);
}

}  // namespace

void MirrorWords::AwaitTurn(uint32_t seen, uint64_t timeout_ns) const {
  Await(shared_.mirror_turn, seen, timeout_ns);
}

void MirrorWords::RingBell() const { Change(shared_.mirror_bell); }

void MirrorWords::AwaitBell(uint32_t seen, uint64_t timeout_ns) const {
  Await(shared_.mirror_bell, seen, timeout_ns);
}

// A microsecond that has begun counts.
void MirrorWords::CountWait(uint64_t ns, bool failed) const {
  const auto add = [](uint64_t& counter, uint64_t n) {
    std::atomic_ref(counter).fetch_add(n, std::memory_order_relaxed);
  };
  if (failed) return add(shared_.mirror_failed, 1);
  const uint64_t us = (ns + 999) / 1000;
  add(shared_.mirror_waited, us);
  add(shared_.mirror_waits[MirrorBucket(us)], 1);
}

MirrorWaits MirrorWords::waits() const {
  const auto get = [](uint64_t& counter) {
    return std::atomic_ref(counter).load(std::memory_order_relaxed);
  };
  MirrorWaits waits = {get(shared_.mirror_failed), get(shared_.mirror_waited), {}};
  for (uint32_t i = 0; i < kMirrorBuckets; ++i) waits.counts[i] = get(shared_.mirror_waits[i]);
  return waits;
}

void MirrorWords::TakeTurn() const { Change(shared_.mirror_turn); }

void MirrorWords::SetState(uint32_t state) const {
  Of(shared_.mirror_state).store(state);
  TakeTurn();
}

void MirrorWords::ChangeState(uint32_t from, uint32_t to) const {
  if (Of(shared_.mirror_state).compare_exchange_strong(from, to)) TakeTurn();
}

bool MirrorWords::RaiseMirrored(Lsn position) const {
  if (position <= mirrored()) return false;
  Of(shared_.mirrored).store(position);
  return true;
}

void MirrorWords::SetMirrored(Lsn position) const {
  if (RaiseMirrored(position)) TakeTurn();
}

}  // namespace nvcache::pool
