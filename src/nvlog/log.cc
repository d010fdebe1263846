// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/log.h"

#include <algorithm>
#include <cstring>

#include "src/nvlog/entry_crc.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/deferral.h"

namespace nvcache::nvlog {

using pmem::Step;

namespace {

// The newest group of a thread whose PSYNC is over. A position is of one use of a pool: neither
// another pool's nor, in a child of fork, the parent's is ever taken for one of this log.
struct DurableGroup {
  uint64_t use;
  Position position;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local DurableGroup durable_group = {};

std::atomic<uint64_t> uses{0};

// So much is mapped by one call, about 0.2 ms: the program's own mmap may wait for it.
constexpr uint64_t kPrefaultStep = (4u << 20) / pool::kUnitSize;
// What is mapped ahead of the head: so many times what was used, within these bounds. A writer may
// fill that while the cleanup thread waits for the disk.
constexpr uint64_t kPrefaultTimes = 8;
constexpr uint64_t kMinPrefault = (32u << 20) / pool::kUnitSize;
constexpr uint64_t kMaxPrefault = (512u << 20) / pool::kUnitSize;

}  // namespace

void Log::Open(pool::Pool* pool) {
  pool_ = pool;
  base_ = pool->view().log();
  units_ = pool->view().log_units();
  salt_ = pool->view().salt();
  max_group_units_ =
      std::min(units_ / kMinGroupsInLog, kMaxGroupEntries * EntryUnits(pool::kPageSize));
  uint64_t tail = 0;
  int valid = 0;
  NVCACHE_CHECK(pool::ReadTail(pool->view(), &tail, &valid));
  use_ = uses.fetch_add(1) + 1;
  first_ = prefaulted_ = tail;
  head_.store(tail);
  tail_.store(tail);
  alarm_.store(kNoPosition);
}

Position Log::Take(uint64_t units, uint64_t limit) {
  NVCACHE_CHECK(units >= 2 && units <= max_group_units_);
  Position head = head_.load(std::memory_order_relaxed);
  do {
    if (head + units - tail_.load(std::memory_order_acquire) > limit) return kNoPosition;
  } while (!head_.compare_exchange_weak(head, head + units, std::memory_order_seq_cst,
                                        std::memory_order_relaxed));
  return head;
}

void Log::WaitForRoom(uint32_t seen, bool for_signals) {
  // A signal ends the sleep, unless it comes just before: then this does.
  constexpr uint64_t kLookNs = 50 * 1000 * 1000;
  waiters_.fetch_add(1);
  Ring();
  do {
    room_.Wait(seen, for_signals ? kLookNs : sys::kForever);
  } while (for_signals && room_.Value() == seen && !sys::SignalWaits());
  waiters_.fetch_sub(1);
}

bool Log::Prefault() {
  const Position head = this->head();
  const uint64_t ahead = std::clamp(kPrefaultTimes * (head - first_), kMinPrefault, kMaxPrefault);
  const Position position = std::min(head + ahead, first_ + units_);
  prefaulted_ = std::max(prefaulted_, std::min(head, position));
  if (prefaulted_ >= position) return false;
  const uint64_t unit = prefaulted_ % units_;
  const uint64_t units = std::min({position - prefaulted_, units_ - unit, kPrefaultStep});
  pmem::Prefault(base_ + unit * pool::kUnitSize, units * pool::kUnitSize);
  prefaulted_ += units;
  return prefaulted_ < position;
}

bool Log::IsCommitted(Position position) const {
  auto& commit = const_cast<uint64_t&>(At(position).commit);
  return std::atomic_ref(commit).load(std::memory_order_acquire) == CommitWord(position, salt_);
}

uint64_t Log::AbandonedUnits(Position position) const {
  auto& group = *reinterpret_cast<AbandonedGroup*>(UnitAddress(position));
  const uint64_t word = std::atomic_ref(group.word).load(std::memory_order_acquire);
  if (word != AbandonedWord(position, salt_) || group.position != kNoPosition) return 0;
  return group.units;
}

void Log::Payload(Position position, size_t skip, size_t n, uint8_t* out) const {
  const uint64_t log_bytes = units_ * pool::kUnitSize;
  const uint64_t at = ((position + 1) % units_ * pool::kUnitSize + skip) % log_bytes;
  const size_t before_end = std::min<size_t>(n, log_bytes - at);
  std::memcpy(out, base_ + at, before_end);
  if (before_end < n) std::memcpy(out + before_end, base_, n - before_end);
}

const uint8_t* Log::PayloadInPlace(Position position) const {
  const uint64_t unit = (position + 1) % units_;
  const bool wraps = unit + PayloadUnits(At(position).length) > units_;
  return wraps ? nullptr : base_ + unit * pool::kUnitSize;
}

bool Log::CopyIn(Position position, const Piece& piece, uint32_t* crc) {
  const uint64_t at = position % units_ * pool::kUnitSize;
  const size_t before_end = std::min<size_t>(piece.length, units_ * pool::kUnitSize - at);
  if (!pmem::CopyUser(base_ + at, piece.bytes, before_end, piece.copy, crc, Step::kPayload)) {
    return false;
  }
  const size_t rest = piece.length - before_end;
  if (rest == 0) [[likely]]
    return true;
  uint8_t* copy = piece.copy != nullptr ? piece.copy + before_end : nullptr;
  return pmem::CopyUser(base_, piece.bytes + before_end, rest, copy, crc, Step::kPayload);
}

// One line, the commit word last: whatever part of these stores survives a crash, the word is there
// only if the rest is.
void Log::StoreHeader(const EntryHeader& header, Step step) {
  auto* place = reinterpret_cast<EntryHeader*>(UnitAddress(header.position));
  constexpr size_t kWord = sizeof(header.commit);
  pmem::Store(place->commit, kNotCommitted);
  pmem::StoreBytes(reinterpret_cast<uint8_t*>(place) + kWord,
                   reinterpret_cast<const uint8_t*>(&header) + kWord, sizeof(header) - kWord);
  pmem::Store(place->commit, header.commit);
  pmem::Pwb(place, sizeof(*place), step);
}

uint32_t Log::ThreadBack(Position position) const {
  if (durable_group.use != use_) return 0;
  const uint64_t back = position - durable_group.position;
  return back <= UINT32_MAX ? static_cast<uint32_t>(back) : 0;
}

void Log::NoteDurable(Position position) { durable_group = {use_, position}; }

void Log::Committed(Position end) {
  Position alarm = alarm_.load(std::memory_order_seq_cst);
  if (end < alarm || alarm == kNoPosition) return;
  if (alarm_.compare_exchange_strong(alarm, kNoPosition)) Ring();
}

void Log::Release(Position position) {
  NVCACHE_CHECK(position > tail_.load() && position <= head_.load());
  tail_.store(position, std::memory_order_release);
  room_.Signal();
}

void Log::Sleep(uint32_t seen, Position alarm, uint64_t timeout_ns) {
  alarm_.store(alarm, std::memory_order_seq_cst);
  if (head() < alarm) bell_.Wait(seen, timeout_ns);
  alarm_.store(kNoPosition, std::memory_order_seq_cst);
}

Position GroupWriter::Add(const Piece& piece) {
  NVCACHE_CHECK(piece.length >= 1 && piece.length <= pool::kPageSize && index_ < count_);
  NVCACHE_CHECK(piece.offset % pool::kPageSize + piece.length <= pool::kPageSize);
  const Position position = next_;
  // The header's line comes while the payload goes; else all stores behind it would wait.
  __builtin_prefetch(log_.UnitAddress(position), 1);
  uint32_t crc = 0;
  if (!log_.CopyIn(position + 1, piece, &crc)) return kNoPosition;

  EntryHeader header = {};
  header.commit = CommitWord(position, log_.salt_);
  header.position = position;
  header.offset = piece.offset;
  header.previous = piece.previous;
  header.file = piece.file;
  header.incarnation = piece.incarnation;
  header.length = piece.length;
  header.group_index = index_;
  header.group_count = count_;
  header.payload_crc = crc;
  header.thread_back = index_ == 0 ? log_.ThreadBack(position) : 0;
  header.header_crc = HeaderCrc(header, log_.salt_);
  if (index_ == 0) {
    first_header_ = header;
  } else {
    log_.StoreHeader(header, Step::kGroupHeaders);
  }
  ++index_;
  next_ += EntryUnits(piece.length);
  return position;
}

void GroupWriter::Commit() {
  NVCACHE_CHECK(index_ == count_);
  log_.StoreHeader(first_header_, Step::kCommit);
  pmem::Psync(Step::kCommitted);
  log_.NoteDurable(first_);
  log_.Committed(next_);
}

// For the cleanup thread's eyes only, so nothing has to be durable. What lay here until now is not
// the header of this position, whichever of these stores a crash leaves.
void GroupWriter::Abandon(uint64_t units) {
  auto* group = reinterpret_cast<AbandonedGroup*>(log_.UnitAddress(first_));
  pmem::Store(group->word, kNotCommitted);
  pmem::Store(group->position, kNoPosition);
  pmem::Store(group->units, units);
  pmem::Store(group->word, AbandonedWord(first_, log_.salt_));
  log_.Committed(first_ + units);
}

}  // namespace nvcache::nvlog
