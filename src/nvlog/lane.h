// SPDX-License-Identifier: BSD-3-Clause
//
// A lane: one of the logs of a process, as the process that appends to it knows it.
#ifndef NVCACHE_NVLOG_LANE_H_
#define NVCACHE_NVLOG_LANE_H_

#include <cstdint>

#include "src/nvlog/record.h"
#include "src/nvlog/segments.h"
#include "src/pmem/persist.h"
#include "src/sys/lock.h"

namespace nvcache::nvlog {

// The groups of a lane say of their bytes that they are:
enum class Policy : uint8_t {
  kWriteBack,     // deferred: the cleanup thread brings them to the file, and frees the segments
  kWriteThrough,  // done: the kernel has them, and the disk may lack them. Segments are free when
                  // the checkpoint of write-through is above them
};
inline constexpr size_t kPolicies = 2;

// A group of write-through up to this length is staged: the kernel takes it from a copy in the
// processor's cache. The log's own has gone around that, and would come back from memory.
inline constexpr size_t kStageBytes = 128 << 10;

struct Position {
  uint32_t segment = kNoSegment;
  uint32_t unit = 0;
};

// Its segments are chained by Segments::Info::next, from `first` to that of `end`. The lock guards
// all fields but the last two.
struct alignas(pmem::kLine) Lane {
  sys::Mutex<sys::Rank::kLane> lock;
  Position end;                 // behind its last record; no segment: it has none
  Lsn generation = 0;           // that segment's
  Lsn last = 0;                 // LSN of its newest group
  uint32_t first = kNoSegment;  // its oldest segment, while it has one
  uint32_t reserve = 0;         // its part of the seat's
  uint64_t untold = 0;          // write-through: bytes of payload that the seat was not told of
  // The group that is being written has the header of its first record here, which waits for
  // Commit(), and that of the record at hand. Stacks are small.
  RecordHeader first_header = {}, next_header = {};
  uint8_t* stage = nullptr;  // kStageBytes; write-back: none
  // How far the cleanup thread has read a lane of write-back, and how far it needs nothing more.
  alignas(pmem::kLine) Position read;
  Position forgotten;
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_LANE_H_
