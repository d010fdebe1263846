// SPDX-License-Identifier: BSD-3-Clause
//
// The pending records in a pool's logs, file by file.
#ifndef NVCACHE_RECOVERY_TOOL_PENDING_H_
#define NVCACHE_RECOVERY_TOOL_PENDING_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "src/nvlog/walk.h"

namespace nvcache::tool {

struct PendingFile {
  uint64_t records = 0;
  uint64_t bytes = 0;
  std::string path;  // empty: its record is damaged
  uint64_t inode = 0;
};

// Records are those of data, truncations and erasures; bytes those of their data.
struct PendingPart {
  uint64_t records = 0;
  uint64_t bytes = 0;
  std::set<uint32_t> files;
};

// The part that is in the logs of one seat.
struct PendingOfSeat : PendingPart {
  PendingPart through;  // the part of it in the logs of write-through
};

struct Pending {
  uint64_t records = 0;
  uint64_t bytes = 0;
  PendingPart through;      // those in logs of write-through; settled ones are on the disk
  uint64_t units = 0;       // all pending groups', with headers and file records
  uint64_t kept_units = 0;  // those in kept segments
  uint64_t kept_records = 0;
  uint64_t damaged_groups = 0;
  uint64_t unfinished_groups = 0;
  std::map<uint32_t, PendingFile> files;  // by the walk's number; kNoFile: nobody knows which
  std::map<uint32_t, PendingOfSeat> seats;
  // The files' numbers, by the seat and their newest number in a log: FileKey.
  std::map<uint64_t, uint32_t> walk_numbers;
  pool::Lsn oldest = 0;              // the first record's; 0: there is none
  pool::Lsn through_checkpoint = 0;  // that of write-through
  std::set<uint32_t> segments;       // that hold any of it: the others are free
  bool complete = true;              // else there is more than that

  PendingOfSeat OfSeat(uint32_t seat) const {
    const auto found = seats.find(seat);
    return found != seats.end() ? found->second : PendingOfSeat{};
  }
};

// pool::Statistics::failing_file has the same.
inline uint64_t FileKey(uint32_t log, uint32_t number) {
  return uint64_t{log / pool::kLogsOfSeat} << 32 | (uint64_t{number} + 1);
}

// Walks the logs. The pool may be in use meanwhile: groups that reach the disk during the walk are
// left out. Ends after `patience`, complete or not.
Pending FindPending(const pool::Pool& pool,
                    std::chrono::nanoseconds patience = std::chrono::nanoseconds::max());

// Throws std::bad_alloc without memory.
void OpenReader(const pool::Pool& pool, bool all, nvlog::Reader* reader);
void OpenWalk(nvlog::GroupWalk* walk);

// The newest path of `file` of the walk; empty if it is not known.
std::string PathOf(const nvlog::GroupWalk& walk, uint32_t file);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_PENDING_H_
