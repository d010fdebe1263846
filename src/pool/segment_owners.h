// SPDX-License-Identifier: BSD-3-Clause
//
// Which seat has which segment: a number for each segment, in the pool, for all processes that use
// it. Volatile, as all that they share (seats.h).
#ifndef NVCACHE_POOL_SEGMENT_OWNERS_H_
#define NVCACHE_POOL_SEGMENT_OWNERS_H_

#include <atomic>
#include <cstdint>

#include "src/pool/format.h"

namespace nvcache::pool {

// To take and to free is for any thread of the seat's process.
class SegmentOwners {
 public:
  // Of the pool that is mapped at `base` and has so many.
  void Open(uint8_t* base, uint32_t segments) {
    base_ = base;
    segments_ = segments;
  }
  // Nobody has any.
  void Clear();

  bool TakeSegment(uint32_t segment, uint32_t seat) const;
  void FreeSegment(uint32_t segment, uint32_t seat) const;
  bool Owns(uint32_t segment, uint32_t seat) const {
    return OwnerOf(segment).load(std::memory_order_relaxed) == seat + 1;
  }
  bool IsFree(uint32_t segment) const {
    return OwnerOf(segment).load(std::memory_order_relaxed) == 0;
  }
  // The seat that has it, in a pool of any content; kNoSeat: none.
  uint32_t OwnerSeat(uint32_t segment) const {
    return OwnerOf(segment).load(std::memory_order_relaxed) - uint32_t{1};
  }
  uint32_t CountFree() const;
  void FreeAllOf(uint32_t seat) const;

 private:
  std::atomic<Owner>& OwnerOf(uint32_t segment) const {
    return reinterpret_cast<std::atomic<Owner>*>(base_ + kOwnersOffset)[segment];
  }

  uint8_t* base_ = nullptr;
  uint32_t segments_ = 0;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_SEGMENT_OWNERS_H_
