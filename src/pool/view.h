// SPDX-License-Identifier: BSD-3-Clause
//
// A mapped pool.
#ifndef NVCACHE_POOL_VIEW_H_
#define NVCACHE_POOL_VIEW_H_

#include <atomic>
#include <cstdint>

#include "src/pmem/persist.h"
#include "src/pool/format.h"

namespace nvcache::pool {

// A mapped pool whose superblock is valid. Pointers into it; copies are cheap.
struct View {
  uint8_t* base = nullptr;
  const Superblock* superblock = nullptr;

  uint64_t salt() const { return superblock->salt; }
  uint64_t segment_units() const { return superblock->segment_size / kUnitSize; }
  uint32_t segment_count() const { return superblock->segment_count; }
  uint32_t seat_count() const { return GeometryOf(superblock->pool_size).seat_count; }
  // A place is segment * segment_units() + unit (src/nvlog/record.h).
  uint8_t* unit(uint64_t place) const { return base + kSegmentsOffset + place * kUnitSize; }
  SegmentHeader* segment(uint32_t number) const {
    return reinterpret_cast<SegmentHeader*>(unit(number * segment_units()));
  }
  SegmentHeader* segment_copy(uint32_t number) const {
    return reinterpret_cast<SegmentHeader*>(unit((number + 1) * segment_units() - 1));
  }
  CheckpointRecord* checkpoint_record(uint64_t i) const {  // 0 or 1
    return reinterpret_cast<CheckpointRecord*>(base + kCheckpointOffset + i * kCheckpointDistance);
  }
  CheckpointRecord* seat_checkpoint_record(uint32_t seat, uint64_t i) const {  // 0 or 1
    return reinterpret_cast<CheckpointRecord*>(base + kSeatCheckpointsOffset +
                                               i * kSeatCheckpointsDistance) +
           seat;
  }
  // Behind the seat's record 0. The kernel has every record of write-back of the seat up to this
  // LSN; 0: nobody knows. Volatile: it says nothing in another run of the kernel.
  uint64_t* written_back(uint32_t seat) const {
    return reinterpret_cast<uint64_t*>(base + kWrittenBackOffset + seat * kWrittenBackDistance);
  }
  CheckpointRecord* through_checkpoint_record(uint64_t i) const {  // 0 or 1
    return reinterpret_cast<CheckpointRecord*>(base + kThroughCheckpointOffset +
                                               i * kCheckpointDistance);
  }
  StateRecord* state() const { return reinterpret_cast<StateRecord*>(base + kStateOffset); }
  Statistics* statistics() const { return reinterpret_cast<Statistics*>(base + kStatisticsOffset); }
  LastWords* last_words() const { return reinterpret_cast<LastWords*>(base + kLastWordsOffset); }
};

// A counter of Statistics.
inline void Count(uint64_t& counter, uint64_t n = 1) { pmem::Add(counter, n); }
inline void Note(uint64_t& counter, uint64_t value) { pmem::Note(counter, value); }
template <typename Integer>
inline Integer Peek(const Integer& counter) {
  return std::atomic_ref(const_cast<Integer&>(counter)).load(std::memory_order_relaxed);
}

// A header of segment `number` that is whole. `header` is a copy of it: the pool's bytes may change
// while we look.
bool CopySegmentHeader(const View& view, const SegmentHeader& place, uint32_t number,
                       SegmentHeader* header);
uint32_t SegmentHeaderCrc(const SegmentHeader& header, uint64_t salt);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_VIEW_H_
