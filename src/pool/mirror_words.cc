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

// One that has begun counts.
uint64_t Microseconds(uint64_t ns) { return (ns + 999) / 1000; }

void Add(uint64_t& counter, uint64_t n) {
  std::atomic_ref(counter).fetch_add(n, std::memory_order_relaxed);
}

uint64_t Get(uint64_t& counter) { return std::atomic_ref(counter).load(std::memory_order_relaxed); }

// Never down.
void Raise(uint64_t& word, uint64_t to) {
  const std::atomic_ref raised(word);
  for (uint64_t seen = raised.load(); seen < to && !raised.compare_exchange_weak(seen, to);) {
  }
}

}  // namespace

void MirrorWords::AwaitTurn(uint32_t seen, uint64_t timeout_ns) const {
  Await(shared_.mirror_turn, seen, timeout_ns);
}

void MirrorWords::RingBell() const { Change(shared_.mirror_bell); }

void MirrorWords::AwaitBell(uint32_t seen, uint64_t timeout_ns) const {
  Await(shared_.mirror_bell, seen, timeout_ns);
}

void MirrorWords::CountWait(uint64_t ns, bool failed) const {
  if (failed) return Add(shared_.mirror_failed, 1);
  const uint64_t us = Microseconds(ns);
  Add(shared_.mirror_waited, us);
  Add(shared_.mirror_waits[MirrorBucket(us)], 1);
}

// The LSN is drawn as by one who waits (MirrorWait): a round whose bound is above it was begun when
// the groups were committed. `told_since` comes before `told`: whoever finds the one has the other.
bool MirrorWords::Tell(uint64_t now, uint64_t ahead_ns) const {
  if (IsTold()) {
    NoteAhead(now);
    if (now - std::min(now, told_since()) >= ahead_ns) return false;
  } else {
    Of(shared_.told_since).store(now);
  }
  Raise(shared_.told, Draw() + 1);
  Add(shared_.told_syncs, 1);
  if (Of(shared_.told_asleep).load() != 0 && Of(shared_.told_asleep).exchange(0) != 0) {
    Change(shared_.bell);
  }
  return true;
}

void MirrorWords::NoteAhead(uint64_t now) const {
  Raise(shared_.told_longest, (now - std::min(now, told_since())) / 1000);
}

void MirrorWords::CountOutput(Output output, uint64_t now, uint64_t ns) const {
  NoteAhead(now);
  Add(shared_.output_waits[static_cast<uint32_t>(output)], 1);
  Add(shared_.output_waited[static_cast<uint32_t>(output)], Microseconds(ns));
}

OutputWaits MirrorWords::outputs() const {
  OutputWaits outputs = {Get(shared_.told_syncs), Get(shared_.told_longest), {}, {}};
  for (uint32_t i = 0; i < kOutputs; ++i) {
    outputs.counts[i] = Get(shared_.output_waits[i]);
    outputs.waited[i] = Get(shared_.output_waited[i]);
  }
  return outputs;
}

MirrorWaits MirrorWords::waits() const {
  MirrorWaits waits = {Get(shared_.mirror_failed), Get(shared_.mirror_waited), {}};
  for (uint32_t i = 0; i < kMirrorBuckets; ++i) waits.counts[i] = Get(shared_.mirror_waits[i]);
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
