// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/segment_owners.h"

#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::pool {

void SegmentOwners::Clear() { pmem::Fill(base_ + kOwnersOffset, 0, segments_ * sizeof(Owner)); }

bool SegmentOwners::TakeSegment(uint32_t segment, uint32_t seat) const {
  Owner none = 0;
  return OwnerOf(segment).compare_exchange_strong(none, static_cast<Owner>(seat + 1));
}

void SegmentOwners::FreeSegment(uint32_t segment, uint32_t seat) const {
  NVCACHE_CHECK(Owns(segment, seat));
  OwnerOf(segment).store(0);
}

void SegmentOwners::FreeAllOf(uint32_t seat) const {
  for (uint32_t segment = 0; segment < segments_; ++segment) {
    if (Owns(segment, seat)) FreeSegment(segment, seat);
  }
}

bool SegmentOwners::NoteTaken(uint32_t segment) const {
  const std::atomic_ref end(shared().segments_end);
  uint32_t seen = end.load();
  while (seen <= segment) {
    if (end.compare_exchange_weak(seen, segment + 1)) return true;
  }
  return false;
}

// The high bit of each quarter: that one of the four from `segment` on is free.
uint64_t SegmentOwners::FreeOfFour(uint32_t segment) const {
  constexpr uint64_t kLow = 0x7fff'7fff'7fff'7fff;
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(base_ + kOwnersOffset);
  const uint64_t word = words[segment / kAtATime].load(std::memory_order_relaxed);
  return ~(((word & kLow) + kLow) | word | kLow);
}

uint32_t SegmentOwners::CountFree(uint32_t enough) const {
  uint32_t free = 0, segment = 0;
  for (; segment + kAtATime <= segments_ && free < enough; segment += kAtATime) {
    // Their sum ends up in the highest quarter; popcount would want a function of the compiler's.
    free += static_cast<uint32_t>((FreeOfFour(segment) >> 15) * 0x0001'0001'0001'0001 >> 48);
  }
  for (; segment < segments_ && free < enough; ++segment) free += IsFree(segment) ? 1 : 0;
  return free;
}

uint32_t SegmentOwners::NextFree(uint32_t from) const {
  uint32_t segment = from;
  while (segment < segments_ && !IsFree(segment)) {
    const bool none =
        segment % kAtATime == 0 && segment + kAtATime <= segments_ && FreeOfFour(segment) == 0;
    segment += none ? kAtATime : 1;
  }
  return segment;
}

}  // namespace nvcache::pool
