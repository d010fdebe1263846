// SPDX-License-Identifier: BSD-3-Clause
//
// The places of a pool's parts, in bytes from its beginning, and their numbers. format.h has the
// map.
#ifndef NVCACHE_POOL_LAYOUT_H_
#define NVCACHE_POOL_LAYOUT_H_

#include <bit>
#include <cstdint>

namespace nvcache::pool {

inline constexpr char kMagic[8] = {'N', 'V', 'C', 'A', 'C', 'H', 'E', '\n'};
inline constexpr uint32_t kVersion = 14;

inline constexpr uint64_t kPageSize = 4096;  // bytes that one frame, one page of a file holds
inline constexpr uint64_t kUnitSize = 64;    // bytes; segments are counted in units

inline constexpr uint64_t kCheckpointOffset = 4096;         // record 0
inline constexpr uint64_t kCheckpointDistance = 8192;       // from there to record 1
inline constexpr uint64_t kThroughCheckpointOffset = 4608;  // the same
inline constexpr uint64_t kStateOffset = 8192;
inline constexpr uint64_t kStatisticsOffset = 8256;
inline constexpr uint64_t kLastWordsOffset = 11776;
inline constexpr uint64_t kSuperblockCopyOffset = 12352;
inline constexpr uint64_t kSeatCheckpointsOffset = 16384;    // the seats' records 0
inline constexpr uint64_t kSeatCheckpointsDistance = 32768;  // from there to their records 1
// View::written_back, in the line of a seat's record 0.
inline constexpr uint64_t kWrittenBackOffset = 16416;
inline constexpr uint64_t kWrittenBackDistance = 64;
inline constexpr uint64_t kSharedOffset = 81920;
inline constexpr uint64_t kSeatsOffset = 86016;
inline constexpr uint64_t kOwnersOffset = 118784;
inline constexpr uint64_t kThroughSinceOffset = 249856;
inline constexpr uint64_t kConductOffset = 253952;
inline constexpr uint64_t kSegmentsOffset = 262144;

inline constexpr uint64_t kMinPoolSize = 1u << 20;
inline constexpr uint64_t kMaxPoolSize = uint64_t{1} << 46;  // 64 TiB
// A pool has about kSegmentsWanted segments, if they are neither smaller nor larger than this; a
// very large pool has larger ones, so that there are never more than kMaxSegments.
inline constexpr uint64_t kSegmentsWanted = 1024;
inline constexpr uint64_t kMinSegmentSize = 64u << 10;
inline constexpr uint64_t kMaxSegmentSize = 1u << 20;
inline constexpr uint64_t kMaxSegments = 1u << 16;
// Processes that use a pool at a time: one for kSegmentsPerSeat segments, so that each finds some.
inline constexpr uint32_t kMaxSeats = 512;
inline constexpr uint32_t kSegmentsPerSeat = 2;
// A seat's logs are numbered from this times its own number on. Those from kThroughLog on are
// of write-through: they have one checkpoint for all seats.
inline constexpr uint32_t kLogsOfSeat = 32;
inline constexpr uint32_t kThroughLog = 24;
constexpr bool IsThroughLog(uint32_t log) { return log % kLogsOfSeat >= kThroughLog; }

// The number of a group of records in the one order of all logs of the pool (I3). Never 0, below
// 2^62, and never drawn twice.
using Lsn = uint64_t;
inline constexpr unsigned kLsnBits = 62;
// Where the next use of a pool begins, beyond the highest LSN that recovery has seen: a group that
// was cut off by a power failure may have left nothing, and its number must not come back.
inline constexpr uint64_t kLsnMargin = uint64_t{1} << 32;

struct Geometry {
  uint64_t segment_size;
  uint32_t segment_count;
  uint32_t seat_count;
};

// The one geometry of a pool of `size` bytes; kMinPoolSize <= size <= kMaxPoolSize.
constexpr Geometry GeometryOf(uint64_t size) {
  uint64_t segment = std::bit_floor(size / kSegmentsWanted);
  if (segment < kMinSegmentSize) segment = kMinSegmentSize;
  if (segment > kMaxSegmentSize) segment = kMaxSegmentSize;
  while (size / segment > kMaxSegments) segment *= 2;
  const uint64_t segments = (size - kSegmentsOffset) / segment;
  const uint64_t seats = segments / kSegmentsPerSeat;
  return {segment, static_cast<uint32_t>(segments),
          static_cast<uint32_t>(seats < kMaxSeats ? seats : kMaxSeats)};
}
static_assert(GeometryOf(kMinPoolSize).segment_count == 12);
static_assert(GeometryOf(uint64_t{1} << 30).segment_count == 1023);
static_assert(GeometryOf(uint64_t{1} << 30).seat_count >= 500);
static_assert(GeometryOf(kMaxPoolSize).segment_count < kMaxSegments);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_LAYOUT_H_
