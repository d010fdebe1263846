// SPDX-License-Identifier: BSD-3-Clause
//
// A number for each segment says which seat has it. The numbers lie in the pool, for all processes
// that use it. Volatile, as all that they share (seats.h).
#ifndef NVCACHE_POOL_SEGMENT_OWNERS_H_
#define NVCACHE_POOL_SEGMENT_OWNERS_H_

#include <atomic>
#include <cstdint>

#include "src/pool/format.h"

namespace nvcache::pool {

// To take and to free is for any thread of the seat's process.
class SegmentOwners {
 public:
  // The pool is mapped at `base` and has so many.
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
  // Looks no further once it has found `enough`.
  uint32_t CountFree(uint32_t enough = ~uint32_t{0}) const;
  // The first one from there on that is free; if there is none, as many as there are.
  uint32_t NextFree(uint32_t from) const;
  void FreeAllOf(uint32_t seat) const;

  // How many segments logs have taken since the pool was made. The header of one that was counted
  // is there.
  uint64_t taken() const { return std::atomic_ref(shared().taken).load(); }
  void CountTaken() const { std::atomic_ref(shared().taken).fetch_add(1); }
  // No log has ever taken a segment from there on.
  uint32_t segments_end() const { return std::atomic_ref(shared().segments_end).load(); }
  // True: the log that has taken this segment is the first one there.
  bool NoteTaken(uint32_t segment) const;

 private:
  // Four at a time: a large pool has 65,536.
  static constexpr uint32_t kAtATime = sizeof(uint64_t) / sizeof(Owner);
  uint64_t FreeOfFour(uint32_t segment) const;
  SharedState& shared() const { return *reinterpret_cast<SharedState*>(base_ + kSharedOffset); }
  std::atomic<Owner>& OwnerOf(uint32_t segment) const {
    return reinterpret_cast<std::atomic<Owner>*>(base_ + kOwnersOffset)[segment];
  }

  uint8_t* base_ = nullptr;
  uint32_t segments_ = 0;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_SEGMENT_OWNERS_H_
