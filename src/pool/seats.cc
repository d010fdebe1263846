// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/seats.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"

namespace nvcache::pool {

namespace {

// Between two attempts to get the gate.
constexpr uint64_t kFirstPauseNs = 20 * 1000;
constexpr uint64_t kLongestPauseNs = 1000 * 1000;
// Between two looks at a word that wakes nobody.
constexpr uint64_t kPollNs = 50 * 1000 * 1000;

void Pause(uint64_t ns) {
  sys::Word word{0};
  sys::FutexWait(&word, 0, ns);
}

// Between processes. The word may lie in memory that is mapped to be read, and perhaps where the
// kernel has no such words: then it is looked at from time to time.
void AwaitChange(uint32_t& word, uint32_t seen, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000u),
                      static_cast<long>(timeout_ns % 1000000000u)};
  const long result = sys::Call(SYS_futex, sys::Address(&word), FUTEX_WAIT, static_cast<long>(seen),
                                sys::Address(&timeout));
  if (result == -EFAULT || result == -EINVAL) Pause(std::min(timeout_ns, kPollNs));
}

void WakeAll(uint32_t& word) { sys::Call(SYS_futex, sys::Address(&word), FUTEX_WAKE, INT32_MAX); }

// The process's name is that of its first thread; the file has "NAME\n".
void TakeName(char (&program)[16]) {
  char name[sizeof(program)] = {};
  if (sys::Call(SYS_gettid) == sys::Getpid()) {
    sys::Call(SYS_prctl, PR_GET_NAME, sys::Address(name));
    std::memcpy(program, name, sizeof(name));
    return;
  }
  const long fd = sys::Openat(AT_FDCWD, "/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const long n = sys::Read(static_cast<int>(fd), name, sizeof(name));
    if (n > 0) name[n - 1] = '\0';
    sys::Close(static_cast<int>(fd));
  }
  std::memcpy(program, name, sizeof(name));
}

}  // namespace

void Seats::Open(uint8_t* base, uint32_t seats, uint32_t segments, int fd) {
  SegmentOwners::Open(base, segments);
  base_ = base;
  seats_ = seats;
  fd_ = fd;
}

bool Seats::LockGate(uint64_t patience_ns) const {
  const uint64_t end = sys::Now(CLOCK_MONOTONIC) + patience_ns;
  for (uint64_t pause = kFirstPauseNs;; pause = std::min(2 * pause, kLongestPauseNs)) {
    const long result = sys::Flock(fd_, LOCK_EX | LOCK_NB);
    if (result == 0) return true;
    if (result != -EWOULDBLOCK && result != -EINTR) return false;
    if (sys::Now(CLOCK_MONOTONIC) >= end) return false;
    Pause(pause);
  }
}

void Seats::UnlockGate() const { sys::Flock(fd_, LOCK_UN); }

bool Seats::IsOrphan(uint32_t seat) const {
  const uint32_t state = State(seat);
  return state != kSeatFree && state != kSeatUnresolved && state != kSeatLeft && !Lives(seat);
}

bool Seats::HasOrphans(uint32_t own) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (seat != own && IsOrphan(seat)) return true;
  }
  return false;
}

bool Seats::IsReplaying(uint32_t own) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (seat != own && State(seat) == kSeatReplayed && Lives(seat)) return true;
  }
  return false;
}

void Seats::Clear(Lsn next, Lsn through) {
  pmem::Fill(base_ + kSeatsOffset, 0, seats_ * sizeof(Seat));
  SegmentOwners::Clear();
  pmem::Fill(base_ + kThroughSinceOffset, 0, seats_ * sizeof(Lsn));
  pmem::Fill(base_ + kConductOffset, 0, seats_ * sizeof(Conduct));
  Store(shared().has_unresolved, 0u);
  Store(shared().seats_end, 0u);
  Store(shared().through, through);
  Store(shared().through_moved, uint64_t{0});
  Store(shared().through_failed, 0u);
  Store(shared().through_failed_at, uint64_t{0});
  Store(shared().through_device, uint64_t{0});
  Store(shared().checkpointer, 0u);
  Store(shared().answer, kNoAnswer);
  // Its mirror has ended, for that has a seat; and LSNs may go back. The mirror's state stays.
  Store(shared().mirrored, Lsn{0});
  // All that was told is in the files.
  Store(shared().told, Lsn{0});
  next_lsn().store(next);
}

uint32_t Seats::Take() {
  for (uint32_t seat = 0; seat < seats_; ++seat) {
    Seat& taken = At(seat);
    // The byte may still be locked by a process that has given the seat up and is on its way out.
    if (Load(taken.state) != kSeatFree || !LockByte(seat)) continue;
    Store(taken.pid, static_cast<uint32_t>(sys::Getpid()));
    Store(taken.since, sys::Now(CLOCK_REALTIME));
    Store(taken.oldest_pending, uint64_t{0});
    Store(taken.lease, uint64_t{0});
    Store(taken.reserve, 0u);
    Store(taken.kept_units, 0u);
    Store(taken.files, 0u);
    Store(taken.written, 0u);
    Store(ThroughSince(seat), Lsn{0});
    Store(ConductOf(seat).through_since, uint64_t{0});
    Store(ConductOf(seat).rule, kRuleUnknown);
    Store(ConductOf(seat).through_written, 0u);
    TakeName(taken.program);
    ForgetCheckpointer(seat);
    if (seat >= end()) Store(shared().seats_end, seat + 1);
    Store(taken.state, kSeatTaken);
    return seat;
  }
  return kNoSeat;
}

void Seats::Give(uint32_t seat, bool left) {
  NVCACHE_CHECK(State(seat) == kSeatTaken);
  if (!left) FreeAllOf(seat);
  if (left) NoteLeft(seat);
  Store(At(seat).reserve, 0u);
  Store(At(seat).state, left ? kSeatLeft : kSeatFree);
  UnlockByte(seat);
}

uint32_t Seats::Adopt(uint32_t own) {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (seat == own || !IsOrphan(seat) || !LockByte(seat)) continue;
    Store(At(seat).state, kSeatReplayed);
    return seat;
  }
  return kNoSeat;
}

void Seats::Settle(uint32_t seat, bool resolved, bool left) {
  NVCACHE_CHECK(State(seat) == kSeatReplayed);
  ForgetCheckpointer(seat);
  if (resolved && !left) FreeAllOf(seat);
  if (left) NoteLeft(seat);
  if (resolved) {
    Store(At(seat).reserve, 0u);
  } else {
    Store(shared().has_unresolved, 1u);
  }
  const uint32_t settled = left ? kSeatLeft : kSeatFree;
  Store(At(seat).state, resolved ? settled : kSeatUnresolved);
  UnlockByte(seat);
}

// It is about to be: a process that finds the seat left finds this.
void Seats::NoteLeft(uint32_t seat) const {
  NoteThroughSince(seat, next_lsn().load());
  Store(At(seat).oldest_pending, sys::Now(CLOCK_REALTIME));
}

void Seats::SetThrough(Lsn checkpoint) const {
  Store(shared().through_moved, sys::Now(CLOCK_REALTIME));
  Store(shared().through, checkpoint);
}

void Seats::SetThroughFailed(int error) const {
  if (ThroughFailed() != 0) return;
  Store(shared().through_failed_at, sys::Now(CLOCK_REALTIME));
  Store(shared().through_failed, static_cast<uint32_t>(error));
}

bool Seats::OthersHaveThrough(uint32_t own) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    const uint32_t state = State(seat);
    const bool counts = state == kSeatTaken || state == kSeatReplayed;
    if (seat != own && counts && Load(ThroughSince(seat)) != 0) return true;
  }
  return false;
}

bool Seats::SomebodyStaysThrough(uint32_t own) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    const Lsn since = Load(ThroughSince(seat));
    const bool stays = since != 0 && since < kGoing;
    if (seat != own && stays && State(seat) == kSeatTaken && Lives(seat)) return true;
  }
  return false;
}

bool Seats::AnybodyCaches() const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (State(seat) == kSeatTaken && Load(At(seat).files) > 0) return true;
  }
  return false;
}

bool Seats::TakeThroughDevice(uint64_t device) const {
  uint64_t none = 0;
  return std::atomic_ref(shared().through_device).compare_exchange_strong(none, device) ||
         none == device;
}

// While it changes no process gets it. One that asked before is seen by now, and one that asks
// later sees that it changes.
void Seats::ReleaseThroughDevice(uint32_t own) const {
  constexpr uint64_t kChanges = ~uint64_t{0};
  const std::atomic_ref device(shared().through_device);
  const uint64_t before = device.exchange(kChanges);
  device.store(OthersHaveThrough(own) || HasUnresolved() ? before : 0);
}

void Seats::FindLeft(LeftSeats* seats) const {
  for (uint32_t seat = 0; seat < seats_; ++seat) {
    seats->since[seat] = State(seat) == kSeatLeft ? Load(ThroughSince(seat)) : 0;
  }
}

uint32_t Seats::CountLeft() const {
  uint32_t left = 0;
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (State(seat) == kSeatLeft) ++left;
  }
  return left;
}

bool Seats::IsLeftFor(uint64_t ns) const {
  const uint64_t now = sys::Now(CLOCK_REALTIME);
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (State(seat) == kSeatLeft && Load(At(seat).oldest_pending) + ns <= now) return true;
  }
  return false;
}

bool Seats::HasThroughBetween(uint64_t from, uint64_t to) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    const uint64_t since = Load(ConductOf(seat).through_since);
    if (State(seat) == kSeatTaken && since > from && since <= to) return true;
  }
  return false;
}

void Seats::FreeLeft(uint32_t seat) const {
  NVCACHE_CHECK(State(seat) == kSeatLeft);
  FreeAllOf(seat);
  Store(At(seat).state, kSeatFree);
}

bool Seats::LockThroughStore(uint64_t patience_ns) const {
  const uint64_t end = sys::Now(CLOCK_MONOTONIC) + patience_ns;
  while (!LockByte(kThroughStoreByte)) {
    if (sys::Now(CLOCK_MONOTONIC) >= end) return false;
    Pause(kFirstPauseNs);
  }
  return true;
}

bool Seats::OthersHaveSeats(uint32_t own) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (seat != own && State(seat) != kSeatFree) return true;
  }
  return false;
}

bool Seats::IsShared(uint32_t own) const {
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (seat != own && seat != checkpointer() && State(seat) != kSeatFree) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------
// The checkpointer.

void Seats::SetCheckpointer(uint32_t seat) const {
  Store(shared().checkpointer, seat + 1);
  Answer(kNoAnswer);
}

void Seats::ForgetCheckpointer(uint32_t seat) const {
  uint32_t dead = seat + 1;
  const std::atomic_ref word(shared().checkpointer);
  if (word.compare_exchange_strong(dead, 0u)) Answer(kNoAnswer);
}

void Seats::Answer(uint32_t answer) const {
  Store(shared().answer, answer);
  WakeAll(shared().answer);
}

void Seats::AwaitBell(uint32_t seen, uint64_t timeout_ns) const {
  AwaitChange(shared().bell, seen, timeout_ns);
}

void Seats::WakeCheckpointer() const { WakeAll(shared().bell); }

// One that is stopped is waited for once, not by each process that comes.
void Seats::AwaitCheckpointer(uint64_t patience_ns) const {
  if (answer() != kNoAnswer || !HasCheckpointer()) return;
  std::atomic_ref(shared().bell).fetch_add(1);
  WakeCheckpointer();
  const uint64_t end = sys::Now(CLOCK_MONOTONIC) + patience_ns;
  while (answer() == kNoAnswer) {
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    if (now >= end) {
      uint32_t none = kNoAnswer;
      std::atomic_ref(shared().answer).compare_exchange_strong(none, kHasNone);
      return;
    }
    AwaitChange(shared().answer, kNoAnswer, std::min(end - now, kPollNs));
  }
}

uint32_t Seats::Reserve(uint32_t own) const {
  uint32_t reserve = 1;
  for (uint32_t seat = 0; seat < std::min(end(), seats_); ++seat) {
    if (State(seat) == kSeatFree) continue;
    const uint32_t of_logs = Load(At(seat).reserve);
    reserve += of_logs + (seat != own && of_logs > 0 ? 1 : 0);
  }
  return reserve;
}

}  // namespace nvcache::pool
