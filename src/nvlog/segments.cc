// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/segments.h"

#include <algorithm>

#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::nvlog {

namespace {

using pmem::Step;
using pool::SegmentHeader;

// What is mapped ahead of what was taken: so many times as much, within these bounds. Writers may
// fill that while the cleanup thread waits for the disk.
constexpr uint64_t kPrefaultTimes = 8;
constexpr uint64_t kMinPrefault = 32u << 20;
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

}  // namespace

bool Segments::Open(pool::Pool* pool, uint32_t reserve) {
  pool_ = pool;
  units_ = pool->view().segment_units();
  count_ = pool->view().segment_count();
  reserve_ = reserve;
  if (!ReserveArray(&info_, count_) || !ReserveArray(&mapped_, count_) ||
      !ReserveArray(&free_, count_)) {
    Close();
    return false;
  }
  for (uint32_t i = 0; i < count_; ++i) free_[i] = count_ - 1 - i;
  free_count_.store(count_);
  taken_.store(0);
  return true;
}

void Segments::Close() {
  ReleaseArray(&info_, count_);
  ReleaseArray(&mapped_, count_);
  ReleaseArray(&free_, count_);
  count_ = 0;
}

uint32_t Segments::Take(const Claim& claim, bool reserved) {
  uint32_t number;
  {
    sys::Lock lock(lock_);
    if (!Has(1, reserved)) return kNoSegment;
    number = free_[free_count_.fetch_sub(1, std::memory_order_relaxed) - 1];
  }
  if (mapped_[number].exchange(1, std::memory_order_relaxed) == 0) taken_.fetch_add(1);
  info_[number] = {kNoSegment, static_cast<uint32_t>(kFirstUnit), 0, 0};
  WriteHeaders(number, claim);
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
  pmem::Psync(Step::kSegmentTaken);
}

void Segments::Free(uint32_t number) {
  sys::Lock lock(lock_);
  const uint32_t count = free_count_.load(std::memory_order_relaxed);
  NVCACHE_CHECK(number < count_ && count < count_);
  free_[count] = number;
  free_count_.store(count + 1, std::memory_order_relaxed);
}

bool Segments::Prefault() {
  const uint64_t size = units_ * pool::kUnitSize;
  const uint64_t wanted =
      std::clamp(kPrefaultTimes * taken_.load() * size, kMinPrefault, kMaxPrefault) / size;
  uint32_t number = kNoSegment;
  {
    sys::Lock lock(lock_);
    const uint32_t free = free_count_.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < std::min<uint64_t>(wanted, free) && number == kNoSegment; ++i) {
      const uint32_t next = free_[free - 1 - i];
      if (mapped_[next].load(std::memory_order_relaxed) == 0) number = next;
    }
  }
  if (number == kNoSegment) return false;
  if (mapped_[number].exchange(2, std::memory_order_relaxed) != 0) return true;
  pmem::Prefault(pool_->view().unit(number * units_), size);
  return true;
}

}  // namespace nvcache::nvlog
