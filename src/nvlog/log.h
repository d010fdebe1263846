// SPDX-License-Identifier: BSD-3-Clause
//
// The records that a process appends while it uses a pool. So that its threads do not wait for each
// other it has several logs, which are called its lanes here (lane.h); one thread at a time appends
// to a lane. record.h has the form of segments and records, group_writer.h how a group is written.
//
// Invariants
//   In a lane, groups lie in the order of their LSNs, each is durable before the next one is begun,
//   and the LSN is drawn while the lane is locked.
//
//   Of write-back: a thread that draws the LSN of a group holds the locks of all pages that it
//   writes, or its file's lock exclusive: so calls on one page, or on a whole file, have one order
//   (I3).
//
//   Of write-through: a group's LSN is drawn after the kernel has its bytes, so a sync that begins
//   when a higher LSN was drawn covers it. All groups below the checkpoint of write-through, which
//   is one for all processes of the pool, are on the disk for good, or void
//   (docs/write-through.md).
//
//   A segment that a record of a file lies in has a file record before it.
//
//   The checkpoint of a lane is durable before a segment below it is taken again, and the segment's
//   new header says it once more (I5).
#ifndef NVCACHE_NVLOG_LOG_H_
#define NVCACHE_NVLOG_LOG_H_

#include <atomic>
#include <cstdint>

#include "src/nvlog/bells.h"
#include "src/nvlog/file_tag.h"
#include "src/nvlog/lane.h"
#include "src/nvlog/segments.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::nvlog {

class Log : public Bells {
 public:
  // The process has a seat in the pool, or has it open kExclusive. `pool` outlives the log. Its
  // last `frame_segments` segments are for page frames: HasRoomForFrames. False without memory, or
  // if another process has one of these.
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
  // The highest that was committed here, of write-back. Takes the lanes' locks.
  Lsn newest_own();
  // One group of write-through can have all of it.
  bool HoldsWhole(uint64_t offset, uint64_t length) const;

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

  // ---- The cleanup thread (the templates are in log_reading.h)

  // Where each lane of write-back ends: every group with an LSN below `bound` lies before these
  // ends, committed.
  struct Ends {
    Lsn bound;
    struct {
      uint32_t segment;
      uint32_t unit;
    } lane[kBackLanes];
  };
  void Look(Ends* ends);
  // The record with the lowest LSN that lies before `ends` and was not read yet; kNoPlace: none.
  Place NextRecord(const Ends& ends);
  // Reads on behind it.
  void Pass(Place place);
  // Calls function(place) for each record that was not read yet and is below the bound of now, in
  // the order of LSNs, while that returns true. Any thread, while nobody reads on.
  template <typename Function>
  void ForEachUnread(Function function);
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

  // ---- The checkpoint of write-through

  // It has moved: frees the segments of write-through below it. `all`: the part-filled ones, too.
  void FreeThrough(bool all);
  // Some group of write-through of this process is not below it.
  bool HasThroughPending();

  // ---- The cleanup thread's sleep

  // Sleeps until a commit has reached `alarm`, a writer has taken a segment while few are left,
  // somebody called Ring() after BellSeen() returned `seen`, or the time is over.
  void Sleep(uint32_t seen, Lsn alarm, uint64_t timeout_ns);
  // So little is free that nobody should wait for a larger batch.
  bool Short() const { return IsShort(segments_.free_then()); }
  // The same as it is now, also where this process has taken none for long.
  bool ShortNow() const { return IsShort(segments_.free()); }
  // Other processes use the pool, too: they may want segments that this one has no use for.
  bool IsShared() const { return pool_->seats().IsShared(pool_->seat()); }

  Segments& segments() { return segments_; }
  pool::Pool& pool() { return *pool_; }
  const pool::View& view() const { return view_; }
  pool::Statistics* statistics() const { return view_.statistics(); }
  // Units that writers can fill, if all lanes are in use.
  uint64_t writable_units() const { return writable_segments_ * segments_.record_units(); }

 private:
  bool IsShort(uint64_t free) const { return free < segments_.count() - segments_.count() / 3; }

  friend class GroupWriter;

  // Look(), and where each lane's unread records begin. It changes nothing: the cleanup thread
  // may be forgetting what it has read.
  void LookUnread(Ends* ends, Position (&at)[kBackLanes]);
  // The record with the lowest LSN before `ends`, and its lane; `at` has one record for each lane.
  Place Lowest(const Ends& ends, Position (&at)[kBackLanes], uint32_t* lane);
  // The lane of the record with the lowest LSN; sys::kNone: there is none. `at` has one for each
  // lane, all before the lanes' `read`.
  uint32_t Lowest(Position (&at)[kBackLanes]);
  bool ReserveStages();
  void FetchEnd(const Lane& lane) const;
  // The lane that the thread has used last, or another one if that is busy. `*number`: below
  // kLanes.
  Lane& LockLane(Policy policy, uint32_t* number);
  // Frees its only segment; nothing of it is pending.
  void Vacate(Lane* lane);
  void FreeThroughBelow(Lane* lane, Lsn checkpoint, bool all);
  // Tells the seat what write-through has written to the lane.
  void NoteWritten(Lane* lane) const;
  bool AtEnd(const Ends& ends, uint32_t lane, Position* position);
  std::atomic<Lsn>& next() const { return pool_->seats().next_lsn(); }

  // Apart from the words that many threads write.
  alignas(pmem::kLine) pool::Pool* pool_ = nullptr;
  pool::View view_;
  uint64_t units_ = 0;  // a segment's
  uint64_t max_group_pages_ = 0;
  uint64_t writable_segments_ = 0;
  uint32_t lanes_used_ = 0;  // write-back's
  uint32_t reading_ = 0;     // the lane of the record that NextRecord() has found
  Segments segments_;

  Lane lanes_[kLanes];
  uint8_t* stages_ = nullptr;  // of the lanes of write-through
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_LOG_H_
