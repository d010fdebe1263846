// SPDX-License-Identifier: BSD-3-Clause
//
// The segments of a pool while it is in use: which are free, and taking one.
#ifndef NVCACHE_NVLOG_SEGMENTS_H_
#define NVCACHE_NVLOG_SEGMENTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/pool/pool.h"
#include "src/sys/arena.h"
#include "src/sys/lock.h"

namespace nvcache::nvlog {

inline constexpr uint32_t kNoSegment = sys::kNone;

class Segments {
 public:
  // Of a clean pool: all of them are free. Writers leave `reserve` of them. False without memory.
  bool Open(pool::Pool* pool, uint32_t reserve);
  void Close();

  // What a log says of a segment that it takes.
  struct Claim {
    uint32_t log;
    pool::SegmentKind kind;
    Lsn generation;
    uint32_t previous;  // the log's segment before this one, or kNoSegment
    Lsn previous_generation;
    Lsn previous_last;
  };
  // Takes a free segment, the one that was freed last, and writes its header: durable when it
  // returns, so before any group in it commits. kNoSegment if there is none; unless `reserved`, the
  // reserve does not count. Any thread.
  uint32_t Take(const Claim& claim, bool reserved = false);
  // Nobody reads the segment any more, and no group in it counts, durably (I5).
  void Free(uint32_t number);
  // That so many can be taken now, from the reserve as well, or not.
  bool Has(uint32_t count, bool reserved = false) const {
    return free_count_.load(std::memory_order_relaxed) >= count + (reserved ? 0 : reserve_);
  }

  // Of a segment that is taken; the log that has it looks after them, under its lock.
  struct Info {
    uint32_t next;    // the segment that the log took after this one
    uint32_t end;     // the unit behind its last record, once the log has gone on
    uint32_t live;    // of a kept segment: units of records that are not void
    uint32_t cursor;  // the same: Kept's, while it reads them
  };
  Info& operator[](uint32_t number) { return info_[number]; }

  uint32_t count() const { return count_; }
  uint32_t free() const { return free_count_.load(std::memory_order_relaxed); }
  uint32_t reserve() const { return reserve_; }
  uint64_t units() const { return units_; }
  // Units of a segment that records can have.
  uint64_t record_units() const { return units_ - kFirstUnit - kLastUnits; }

  // Maps memory of segments that are about to be taken, once, so that writers do not take page
  // faults: the more, the more of them have been taken. One step of it; true if there is more to
  // do. One thread.
  bool Prefault();

 private:
  void WriteHeaders(uint32_t number, const Claim& claim);

  pool::Pool* pool_ = nullptr;
  uint64_t units_ = 0;
  uint32_t count_ = 0;
  uint32_t reserve_ = 0;
  Info* info_ = nullptr;
  std::atomic<uint8_t>* mapped_ = nullptr;
  sys::Mutex lock_;  // free_; a leaf
  uint32_t* free_ = nullptr;
  std::atomic<uint32_t> free_count_{0};
  std::atomic<uint32_t> taken_{0};  // segments, each counted once
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_SEGMENTS_H_
