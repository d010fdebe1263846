// SPDX-License-Identifier: BSD-3-Clause
//
// The records that a process appends while it uses a pool. So that its threads do not wait for each
// other it has several logs, which are called its lanes here; one thread at a time appends to a
// lane. record.h has the form of segments and records.
//
// Invariants
//   In a lane, groups lie in the order of their LSNs, each is durable before the next one is begun,
//   and the LSN is drawn while the lane is locked.
//
//   A thread that draws the LSN of a group holds the locks of all pages that it writes, or its
//   file's lock exclusive: so calls on one page, or on a whole file, have one order (I3).
//
//   A segment that a record of a file lies in has a file record before it.
//
//   The checkpoint is durable before a segment below it is taken again, and the segment's new
//   header says it once more (I5).
#ifndef NVCACHE_NVLOG_LOG_H_
#define NVCACHE_NVLOG_LOG_H_

#include <atomic>
#include <cstdint>

#include "src/nvlog/bells.h"
#include "src/nvlog/file_tag.h"
#include "src/nvlog/segments.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::nvlog {

class Log : public Bells {
 public:
  // Of a pool in which this process has a seat, or which it has open kExclusive. `pool` outlives
  // the log. Its last `frame_segments` segments are for page frames: HasRoomForFrames. False
  // without memory, or if another process has one of these.
  bool Open(pool::Pool* pool, uint32_t frame_segments = 0);
  void Close();
  // Before it is closed: nothing is pending, and nobody appends any more. Its segments are free.
  void FreeAll() { segments_.FreeAll(); }

  // ---- Writers

  // The longest run of pages that always finds room sooner or later, as one group.
  uint64_t max_group_pages() const { return max_group_pages_; }

  // The highest LSN that was drawn, by any process.
  Lsn newest() const { return next().load(std::memory_order_seq_cst) - 1; }
  Lsn Draw() { return next().fetch_add(1, std::memory_order_seq_cst); }
  // The highest that was committed here. Takes the lanes' locks.
  Lsn newest_own();

  // ---- Reading records. Valid while they are pending, or kept.

  const RecordHeader& At(Place place) const {
    return *reinterpret_cast<const RecordHeader*>(view_.unit(place));
  }
  // The part of a data record in page `page`. `link`: the page's pending record before it.
  struct Piece {
    uint32_t begin;  // within the page
    uint32_t length;
    const uint8_t* bytes;
    uint64_t* link;
  };
  Piece PieceAt(Place place, uint64_t page) const;
  // A copy of the file's newest file record. False: it is not there any more. Any time.
  bool CopyFileRecord(const FileTag& file, pool::FileRecord* record) const;

  // ---- The cleanup thread

  // Where each lane ends: every group with an LSN below `bound` lies before these ends, committed.
  struct Ends {
    Lsn bound;
    struct {
      uint32_t segment;
      uint32_t unit;
    } lane[kMaxLanes];
  };
  void Look(Ends* ends);
  // The record with the lowest LSN that lies before `ends` and was not read yet; kNoPlace: none.
  Place NextRecord(const Ends& ends);
  // Reads on behind it.
  void Pass(Place place);
  // Calls function(place) for each record that was read and not forgotten, in the order of LSNs,
  // while that returns true.
  template <typename Function>
  void ForEachRead(Function function);
  // Calls function(place) for each record below `checkpoint` that was read and not yet forgotten,
  // and then frees the segments that have no others: so the checkpoint must be durable.
  template <typename Function>
  void Forget(Lsn checkpoint, const Ends& ends, Function function);
  // Nothing lies before `ends` that was not forgotten.
  bool Empty(const Ends& ends) const;

  // Gives back the part-filled segments of lanes that have nothing pending: there is no other room.
  void GiveBack();

  // Sleeps until a commit has reached `alarm`, a writer has taken a segment while few are left,
  // somebody called Ring() after BellSeen() returned `seen`, or the time is over.
  void Sleep(uint32_t seen, Lsn alarm, uint64_t timeout_ns);
  // So little is free that nobody should wait for a larger batch.
  bool Short() const { return segments_.free_then() < segments_.count() - segments_.count() / 3; }
  // Other processes use the pool, too: they may want segments that this one has no use for.
  bool IsShared() const { return pool_->seats().IsShared(pool_->seat()); }

  Segments& segments() { return segments_; }
  pool::Pool& pool() { return *pool_; }
  const pool::View& view() const { return view_; }
  pool::Statistics* statistics() const { return view_.statistics(); }
  // Units that writers can fill, if all lanes are in use.
  uint64_t writable_units() const { return writable_segments_ * segments_.record_units(); }

 private:
  friend class GroupWriter;

  struct Position {
    uint32_t segment = kNoSegment;
    uint32_t unit = 0;
  };
  struct alignas(pmem::kLine) Lane {
    sys::Mutex<sys::Rank::kLane> lock;
    Position end;                 // behind its last record
    Lsn generation = 0;           // of the segment there
    Lsn last = 0;                 // LSN of its newest group
    uint32_t first = kNoSegment;  // its oldest segment, while it has one
    uint32_t reserve = 0;         // its part of the seat's
    // Of a group that is being written: the header of its first record, which waits for Commit(),
    // and that of the record at hand. Stacks are small.
    RecordHeader first_header = {}, next_header = {};
    // The cleanup thread's.
    alignas(pmem::kLine) Position read;
    Position forgotten;
  };

  // Of the records at `at`, one for each lane, all before the lanes' `read`: the lane of the one
  // with the lowest LSN; sys::kNone: there is none.
  uint32_t Lowest(Position (&at)[kMaxLanes]);
  void FetchEnd(const Lane& lane) const;
  Lane& LockLane(uint32_t* number);
  bool AtEnd(const Ends& ends, uint32_t lane, Position* position);
  std::atomic<Lsn>& next() const { return pool_->seats().next_lsn(); }

  // Apart from the words that many threads write.
  alignas(pmem::kLine) pool::Pool* pool_ = nullptr;
  pool::View view_;
  uint64_t units_ = 0;  // of a segment
  uint64_t max_group_pages_ = 0;
  uint64_t writable_segments_ = 0;
  uint32_t lanes_used_ = 0;
  uint32_t reading_ = 0;  // the lane of the record that NextRecord() has found
  Segments segments_;

  Lane lanes_[kMaxLanes];
};

template <typename Function>
void Log::ForEachRead(Function function) {
  Position at[kMaxLanes];
  for (uint32_t i = 0; i < lanes_used_; ++i) at[i] = lanes_[i].forgotten;
  for (uint32_t lane; (lane = Lowest(at)) != sys::kNone;) {
    const Place place = at[lane].segment * units_ + at[lane].unit;
    at[lane].unit += static_cast<uint32_t>(RecordUnits(At(place)));
    if (!function(place)) return;
  }
}

template <typename Function>
void Log::Forget(Lsn checkpoint, const Ends& ends, Function function) {
  uint32_t done = kNoSegment;  // segments to free, chained by Info::next
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    if (ends.lane[i].segment == kNoSegment) continue;
    Position& at = lanes_[i].forgotten;
    const Position& read = lanes_[i].read;
    while (at.segment != kNoSegment && (at.segment != read.segment || at.unit != read.unit)) {
      // The lane's own segment is its writers' to change.
      if (at.segment != ends.lane[i].segment && at.unit == segments_[at.segment].end) {
        const uint32_t next = segments_[at.segment].next;
        segments_[at.segment].next = done;
        done = at.segment;
        at = {next, static_cast<uint32_t>(kFirstUnit)};
        continue;
      }
      const Place place = at.segment * units_ + at.unit;
      const RecordHeader& header = At(place);
      if (header.lsn >= checkpoint) break;
      at.unit += static_cast<uint32_t>(RecordUnits(header));
      function(place);
    }
  }
  while (done != kNoSegment) {
    const uint32_t next = segments_[done].next;
    segments_.Free(done);
    done = next;
  }
}

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_LOG_H_
