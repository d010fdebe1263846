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

uint32_t SegmentOwners::CountFree() const {
  // Four at a time: a large pool has 65,536.
  constexpr uint32_t kAtATime = sizeof(uint64_t) / sizeof(Owner);
  constexpr uint64_t kLow = 0x7fff'7fff'7fff'7fff;
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(base_ + kOwnersOffset);
  uint32_t free = 0, segment = 0;
  for (; segment + kAtATime <= segments_; segment += kAtATime) {
    const uint64_t word = words[segment / kAtATime].load(std::memory_order_relaxed);
    // The high bit of each quarter says whether it is zero.
    const uint64_t zero = ~(((word & kLow) + kLow) | word | kLow);
    // Their sum ends up in the highest quarter; popcount would want a function of the compiler's.
    free += static_cast<uint32_t>((zero >> 15) * 0x0001'0001'0001'0001 >> 48);
  }
  for (; segment < segments_; ++segment) free += IsFree(segment) ? 1 : 0;
  return free;
}

}  // namespace nvcache::pool
