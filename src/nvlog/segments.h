// SPDX-License-Identifier: BSD-3-Clause
//
// The segments of a pool while it is in use: taking one, and freeing it. The pool says which are
// free (src/pool/seats.h), for all processes that use it; the rest is this one's.
#ifndef NVCACHE_NVLOG_SEGMENTS_H_
#define NVCACHE_NVLOG_SEGMENTS_H_

#include <atomic>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/pool/pool.h"
#include "src/sys/arena.h"
#include "src/sys/lock.h"

namespace nvcache::nvlog {

inline constexpr uint32_t kNoSegment = sys::kNone;

// Page frames leave the log as many segments as the smallest pool has: it is made for no fewer.
inline constexpr uint32_t kMinLogSegments = pool::GeometryOf(pool::kMinPoolSize).segment_count;

// How many segments hold `bytes` of page frames. A segment's first page and its last one are no
// frames: its headers lie there.
uint64_t FrameSegments(const pool::View& view, uint64_t bytes);
// Whether the pool has them beside its log. `problem`: why not.
bool HasRoomForFrames(const pool::Pool& pool, uint64_t bytes, pool::Problem* problem);

class Segments {
 public:
  // The process has a seat in the pool, and no segment. The pool's last `frames` segments are to
  // hold page frames: that is durable in their headers when it returns, so that no reader takes for
  // a record what lies in a frame. False without memory, or if somebody has one of these.
  bool Open(pool::Pool* pool, uint32_t frames);
  void Close();
  // Frees all that the seat has: nothing in it is pending, and nobody takes any more.
  void FreeAll();

  // The header fields of a segment that a log takes.
  struct Claim {
    uint32_t log;
    pool::SegmentKind kind;
    uint32_t previous;  // the log's segment before this one, or kNoSegment
    Lsn previous_generation;
    Lsn previous_last;
  };
  // Takes a free segment, the one that this process has freed last, or the first, and writes its
  // header: durable when it returns, so before any group in it commits. kNoSegment if there is
  // none; unless `reserved`, the reserve does not count. Any thread.
  //
  // The generation is drawn when the segment is this process's: it is above all LSNs and
  // generations that its former lives have left in it, whichever process had those.
  uint32_t Take(const Claim& claim, Lsn* generation, bool reserved = false);
  // Nobody reads the segment any more, and no group in it counts, durably (I5).
  void Free(uint32_t number);

  // The reserve: writers leave one free segment for each log that has any, and one more for each
  // process. So its cleanup thread can always copy the groups of one segment of each of its logs,
  // and then free it. A group is copied as a whole: for a log with a long one, they leave as many
  // more as it goes on in.
  //
  // A log takes its first segment. False, and nothing is done: too few are free.
  bool AddLog();
  // It has none any more. `reserve`: all that was left for it.
  void DropLog(uint32_t reserve = 1);
  // So many more for a log. False, and nothing is done: `count` could not be taken then.
  bool ReserveMore(uint32_t more, uint32_t count);
  // That so many can be taken now, from the reserve as well, or not.
  bool Has(uint32_t count, bool reserved = false) const {
    const uint32_t wanted = count + (reserved ? 0 : reserve());
    return seats().CountFree(wanted) >= wanted;
  }

  // Each segment that is taken has one; the log that has it looks after it, under its lock.
  struct Info {
    uint32_t next;    // the segment that the log took after this one
    uint32_t end;     // the unit behind its last record, once the log has gone on
    uint32_t live;    // a kept segment's units of records that are not void
    uint32_t cursor;  // a kept segment's: Kept has it while it reads
  };
  Info& operator[](uint32_t number) { return info_[number]; }

  uint32_t count() const { return count_; }  // without those of frames
  uint32_t free() const { return seats().CountFree(); }
  // free() when this process has last taken or freed one.
  uint32_t free_then() const { return free_then_.load(std::memory_order_relaxed); }
  uint32_t reserve() const { return seats().Reserve(pool_->seat()); }
  uint64_t units() const { return units_; }
  // Units of a segment that records can have.
  uint64_t record_units() const { return units_ - kFirstUnit - kLastUnits; }

  // Maps memory of segments that are about to be taken, once, so that writers do not take page
  // faults: the more, the more of them have been taken. One step of it; true if there is more to
  // do. Nothing before the second one is taken. One thread.
  bool Prefault();
  // Since the last call, a log took a segment while only half of that was done.
  bool FallsBehind() {
    return behind_.load(std::memory_order_relaxed) &&
           behind_.exchange(false, std::memory_order_relaxed);
  }

 private:
  const pool::Seats& seats() const { return pool_->seats(); }
  bool GiveToFrames(uint32_t frames);
  std::atomic_ref<uint32_t> own_reserve() const;  // without the one of the process
  uint32_t TakeFree(bool reserved);
  bool TakeThis(uint32_t number, bool reserved);
  // Calls function(number) for segments in the order in which they would be taken, while it returns
  // true.
  template <typename Function>
  void ForEachFree(Function function) const;
  // So many should be mapped.
  uint64_t Ahead() const;
  // Durable after the next PSYNC.
  void WriteHeaders(uint32_t number, const Claim& claim, Lsn generation);

  pool::Pool* pool_ = nullptr;
  uint64_t units_ = 0;
  uint32_t count_ = 0;
  Info* info_ = nullptr;
  enum Mapped : uint8_t { kUnmapped, kTaken, kAhead };
  std::atomic<uint8_t>* mapped_ = nullptr;  // Mapped: since the pool was opened
  sys::Mutex<sys::Rank::kSegments> lock_;   // freed_
  // Segments that this process freed, the last one last; others may have them by now.
  uint32_t* freed_ = nullptr;
  uint32_t freed_count_ = 0;
  std::atomic<uint32_t> free_then_{0};
  std::atomic<uint32_t> taken_{0};  // segments, each counted once
  std::atomic<uint32_t> ahead_{0};  // mapped, and not taken since
  std::atomic<bool> behind_{false};
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_SEGMENTS_H_
