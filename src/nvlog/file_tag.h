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

// Lanes of a process: those of write-back, which a small pool has fewer of, and behind them those
// of write-through.
inline constexpr uint32_t kBackLanes = 16;
inline constexpr uint32_t kThroughLanes = 4;
inline constexpr uint32_t kLanes = kBackLanes + kThroughLanes;
// The log of the kept segments (kept.h).
inline constexpr uint32_t kKeptLog = kBackLanes;
static_assert(kKeptLog < pool::kThroughLog);
static_assert(pool::kThroughLog + kThroughLanes <= pool::kLogsOfSeat);
// A lane's number among the logs of the seat.
constexpr uint32_t LogOf(uint32_t lane) {
  return lane < kBackLanes ? lane : pool::kThroughLog + (lane - kBackLanes);
}

// The log's part of a file.
struct FileTag {
  uint32_t number = 0;  // its own among the process's files that have anything in the log
  // The generation of each lane's segment when the file was declared there. Under the lane's lock.
  Lsn declared[kLanes] = {};
  // How often the file had gone past the log by then, for each lane of write-through.
  uint64_t bypasses[kThroughLanes] = {};
  // The place of its newest file record; kNoPlace: none. Something else may lie there by now.
  std::atomic<Place> record{kNoPlace};

  // No segment has a file record of it that is right. No group of the file is under way.
  void Undeclare() {
    for (Lsn& lsn : declared) lsn = 0;
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
