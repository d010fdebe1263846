// SPDX-License-Identifier: BSD-3-Clause
//
// For the writers of logs: the numbers of a process's logs, the part of a file's description that
// goes with each of its groups, and the outcomes of an append.
#ifndef NVCACHE_NVLOG_FILE_TAG_H_
#define NVCACHE_NVLOG_FILE_TAG_H_

#include <atomic>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/pool/format.h"

namespace nvcache::nvlog {

inline constexpr uint32_t kMaxLanes = 16;
// The log of the kept segments (kept.h).
inline constexpr uint32_t kKeptLog = kMaxLanes;
static_assert(kKeptLog < pool::kThroughLog);
// Of write-through (through.h).
inline constexpr uint32_t kThroughLanes = 4;
static_assert(pool::kThroughLog + kThroughLanes <= pool::kLogsOfSeat);

// The log's part of a file.
struct FileTag {
  uint32_t number = 0;  // its own among the process's files that have anything in the log
  // Of each lane: the generation of its segment when the file was declared there. Under the lane's
  // lock.
  Lsn declared[kMaxLanes] = {};
  // The same of the lanes of write-through; and how often the file had gone past the log by then.
  struct {
    Lsn generation;
    uint64_t exits;
  } declared_through[kThroughLanes] = {};
  // Of its newest file record; kNoPlace: none. Something else may lie there by now.
  std::atomic<Place> record{kNoPlace};

  // No segment has a file record of it that is right. No group of the file is under way.
  void Undeclare() {
    for (Lsn& lsn : declared) lsn = 0;
    for (auto& declared_there : declared_through) declared_there = {};
    record.store(kNoPlace, std::memory_order_relaxed);
  }
};

// The outcome of an append of a group.
enum class Outcome {
  kDone,
  kLogFull,        // no segment is free: wait for room
  kUndeclared,     // the file has to be described: try again with its record
  kBadBuffer,      // a byte of the program's cannot be read
  kNoDescriptors,  // no page descriptor is left
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_FILE_TAG_H_
