// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/segments.h"

#include <errno.h>

#include <algorithm>

#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::nvlog {

namespace {

using pmem::Step;
using pool::SegmentHeader;

// What is mapped ahead of what was taken: so many times as much, up to this bound. Writers may fill
// that while the cleanup thread waits for the disk. A program that fills no segment has nothing
// mapped for it.
constexpr uint64_t kPrefaultTimes = 8;
constexpr uint64_t kMaxPrefault = 512u << 20;

template <typename T>
bool ReserveArray(T** array, uint64_t count) {
  *array = static_cast<T*>(sys::Reserve(count * sizeof(T)));
  return *array != nullptr;
}

template <typename T>
void ReleaseArray(T** array, uint64_t count) {
  if (*array != nullptr) sys::UnmapUnlocked(*array, count * sizeof(T));
  *array = nullptr;
}

// One line, the word last: whatever part of these stores survives a crash, the word is right only
// if the rest is, and 0 while a segment is being taken.
void WriteHeader(SegmentHeader* place, const SegmentHeader& header, Step step) {
  constexpr size_t kWord = sizeof(header.word);
  pmem::Store(place->word, uint64_t{0});
  pmem::StoreBytes(reinterpret_cast<uint8_t*>(place) + kWord,
                   reinterpret_cast<const uint8_t*>(&header) + kWord, sizeof(header) - kWord);
  pmem::Store(place->word, header.word);
  pmem::Pwb(place, sizeof(*place), step);
}

uint64_t FrameBytes(const pool::View& view) {
  return view.superblock->segment_size - 2 * pool::kPageSize;
}

}  // namespace

uint64_t FrameSegments(const pool::View& view, uint64_t bytes) {
  return (bytes + FrameBytes(view) - 1) / FrameBytes(view);
}

bool HasRoomForFrames(const pool::Pool& pool, uint64_t bytes, pool::Problem* problem) {
  const pool::View& view = pool.view();
  const uint64_t most = view.segment_count() - kMinLogSegments;
  if (FrameSegments(view, bytes) <= most) return true;
  problem->error = EINVAL;
  problem->text.Clear();
  problem->text.Append("pool ").Append(pool.path()).Append(" has room for ");
  problem->text.AppendNumber(most * FrameBytes(view) / 1024);
  problem->text.Append(
      "k of page frames beside its log: set NVCACHE_FRAMES to no more, or make a ");
  problem->text.Append("larger pool");
  return false;
}

bool Segments::Open(pool::Pool* pool, uint32_t count) {
  NVCACHE_CHECK(count <= pool->view().segment_count());
  pool_ = pool;
  units_ = pool->view().segment_units();
  count_ = count;
  logs_.store(0);
  if (!ReserveArray(&info_, count_) || !ReserveArray(&mapped_, count_) ||
      !ReserveArray(&free_, count_)) {
    Close();
    return false;
  }
  for (uint32_t i = 0; i < count_; ++i) free_[i] = count_ - 1 - i;
  free_count_.store(count_);
  taken_.store(0);
  behind_.store(false);
  return true;
}

void Segments::Close() {
  ReleaseArray(&info_, count_);
  ReleaseArray(&mapped_, count_);
  ReleaseArray(&free_, count_);
  count_ = 0;
}

bool Segments::AddLog() {
  sys::Lock lock(lock_);
  if (!Has(2)) return false;
  logs_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Segments::DropLog() { NVCACHE_CHECK(logs_.fetch_sub(1, std::memory_order_relaxed) > 0); }

// No LSN is drawn: there are no records whose checksums must not be those of another life.
void Segments::GiveToFrames() {
  const Claim claim = {0, pool::SegmentKind::kFrames, pool_->checkpoint(), kNoSegment, 0, 0};
  const uint32_t end = pool_->view().segment_count();
  for (uint32_t number = count_; number < end; ++number) WriteHeaders(number, claim);
  pmem::Psync(Step::kSegmentTaken);
}

uint32_t Segments::Take(const Claim& claim, bool reserved) {
  uint32_t number;
  {
    sys::Lock lock(lock_);
    if (!Has(1, reserved)) return kNoSegment;
    const uint32_t free = free_count_.fetch_sub(1, std::memory_order_relaxed) - 1;
    number = free_[free];
    if (mapped_[number].exchange(kTaken, std::memory_order_relaxed) != kTaken) taken_.fetch_add(1);
    const uint64_t half = std::min<uint64_t>(Ahead() / 2, free);
    if (half > 0 && mapped_[free_[free - half]].load(std::memory_order_relaxed) == kUnmapped) {
      behind_.store(true, std::memory_order_relaxed);
    }
  }
  info_[number] = {kNoSegment, static_cast<uint32_t>(kFirstUnit), 0, 0};
  WriteHeaders(number, claim);
  pmem::Psync(Step::kSegmentTaken);
  pool::Count(pool_->view().statistics()->segments_taken);
  return number;
}

void Segments::WriteHeaders(uint32_t number, const Claim& claim) {
  const pool::View& view = pool_->view();
  NVCACHE_CHECK(claim.generation > claim.previous_last &&
                claim.generation > claim.previous_generation);
  SegmentHeader header = {};
  header.word = pool::SegmentWord(claim.generation, view.salt());
  header.generation = claim.generation;
  header.checkpoint = pool_->checkpoint();
  if (claim.previous != kNoSegment) {
    header.previous_generation = claim.previous_generation;
    header.previous_last = claim.previous_last;
    header.previous_number = claim.previous;
  }
  header.number = number;
  header.log = claim.log;
  header.kind = claim.kind;
  header.crc = pool::SegmentHeaderCrc(header, view.salt());
  WriteHeader(view.segment_copy(number), header, Step::kSegmentCopy);
  WriteHeader(view.segment(number), header, Step::kSegment);
}

void Segments::Free(uint32_t number) {
  sys::Lock lock(lock_);
  const uint32_t count = free_count_.load(std::memory_order_relaxed);
  NVCACHE_CHECK(number < count_ && count < count_);
  free_[count] = number;
  free_count_.store(count + 1, std::memory_order_relaxed);
}

uint64_t Segments::Ahead() const {
  const uint64_t taken = taken_.load(std::memory_order_relaxed);
  const uint64_t most = kMaxPrefault / (units_ * pool::kUnitSize);
  return taken < 2 ? 0 : std::min(kPrefaultTimes * taken, most);
}

bool Segments::Prefault() {
  const uint64_t wanted = Ahead();
  uint32_t number = kNoSegment;
  {
    sys::Lock lock(lock_);
    const uint32_t free = free_count_.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < std::min<uint64_t>(wanted, free) && number == kNoSegment; ++i) {
      const uint32_t next = free_[free - 1 - i];
      if (mapped_[next].load(std::memory_order_relaxed) == kUnmapped) number = next;
    }
  }
  if (number == kNoSegment) return false;
  if (mapped_[number].exchange(kAhead, std::memory_order_relaxed) != kUnmapped) return true;
  pmem::Prefault(pool_->view().unit(number * units_), units_ * pool::kUnitSize);
  return true;
}

}  // namespace nvcache::nvlog
