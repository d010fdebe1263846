// SPDX-License-Identifier: BSD-3-Clause
//
// The header of a segment.
#ifndef NVCACHE_POOL_SEGMENT_HEADER_H_
#define NVCACHE_POOL_SEGMENT_HEADER_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/layout.h"

namespace nvcache::pool {

// The contents of a segment.
enum class SegmentKind : uint32_t {
  kLog = 1,   // groups of one log, in the order of their LSNs; those below the checkpoint are void
  kKept = 2,  // copies of groups of files that a disk refuses: they count at every checkpoint,
              // until they carry the void word
  kFrames = 3,  // page frames of the process that uses the pool: no records
};

// In a segment's first unit, and once more in its last. Written when a log takes the segment: the
// copy, the first, one PSYNC; then records. A segment is free when all of it is below the
// checkpoint, or void; its header stays as it is.
struct alignas(64) SegmentHeader {
  uint64_t word;             // SegmentWord of the generation, written last; 0: being taken
  Lsn generation;            // drawn when the segment was taken: older records in it are nothing
  Lsn checkpoint;            // its log's, as it was then
  Lsn previous_generation;   // the segment's that the log filled before this one; 0: none
  Lsn previous_last;         // the newest group's that the log had committed by then
  uint32_t previous_number;  // that segment's
  uint32_t number;           // its own
  uint32_t log;              // the log's number in the pool; its seat is log / kLogsOfSeat
  SegmentKind kind;
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes from `generation` to here, seeded with the salt's low half
};
static_assert(offsetof(SegmentHeader, word) == 0);
static_assert(offsetof(SegmentHeader, generation) == 8);
static_assert(offsetof(SegmentHeader, checkpoint) == 16);
static_assert(offsetof(SegmentHeader, previous_generation) == 24);
static_assert(offsetof(SegmentHeader, previous_last) == 32);
static_assert(offsetof(SegmentHeader, previous_number) == 40);
static_assert(offsetof(SegmentHeader, number) == 44);
static_assert(offsetof(SegmentHeader, log) == 48);
static_assert(offsetof(SegmentHeader, kind) == 52);
static_assert(offsetof(SegmentHeader, zero) == 56);
static_assert(offsetof(SegmentHeader, crc) == 60);
static_assert(sizeof(SegmentHeader) == kUnitSize);

// The salt's high bit is set and LSNs stay below 2^62: never 0, and no commit word.
constexpr uint64_t SegmentWord(Lsn generation, uint64_t salt) {
  return generation ^ salt ^ (uint64_t{1} << kLsnBits);
}

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_SEGMENT_HEADER_H_
