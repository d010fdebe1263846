// SPDX-License-Identifier: BSD-3-Clause
//
// What a process appends while it uses a pool. So that its threads do not wait for each other it
// has several logs, which are called its lanes here; one thread at a time appends to a lane. What
// segments and records look like is in record.h.
//
// Invariants
//   In a lane, groups lie in the order of their LSNs, each is durable before the next one is begun,
//   and the LSN is drawn while the lane is locked.
//
//   Whoever draws the LSN of a group holds the locks of all pages that it writes, or its file's
//   lock exclusive: so calls on one page, or on a whole file, have one order (I3).
//
//   A segment that a record of a file lies in has a file record before it.
//
//   The checkpoint is durable before a segment below it is taken again, and the segment's new
//   header says it once more (I5).
#ifndef NVCACHE_NVLOG_LOG_H_
#define NVCACHE_NVLOG_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/nvlog/segments.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::nvlog {

inline constexpr uint32_t kMaxLanes = 16;
// The log of the kept segments (kept.h).
inline constexpr uint32_t kKeptLog = kMaxLanes;
static_assert(kKeptLog < pool::kThroughLog);
// Of write-through (through.h).
inline constexpr uint32_t kThroughLanes = 4;
static_assert(pool::kThroughLog + kThroughLanes <= pool::kLogsOfSeat);

// What the log has to know of a file.
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
  // Of its newest file record; kNoPlace: none. What lies there may be something else by now.
  std::atomic<Place> record{kNoPlace};

  // No segment has a file record of it that is right. No group of the file is under way.
  void Undeclare() {
    for (Lsn& lsn : declared) lsn = 0;
    for (auto& declared_there : declared_through) declared_there = {};
    record.store(kNoPlace, std::memory_order_relaxed);
  }
};

// What became of a group that was to be appended.
enum class Outcome {
  kDone,
  kLogFull,        // no segment is free: wait for room
  kUndeclared,     // the file has to be described: try again with its record
  kBadBuffer,      // a byte of the program's cannot be read
  kNoDescriptors,  // no page descriptor is left
};

class Log {
 public:
  // Of a pool in which this process has a seat, or which it has open kExclusive. `pool` outlives
  // the log. Its last `frame_segments` segments are for page frames: HasRoomForFrames. False
  // without memory, or if another process has one of these.
  bool Open(pool::Pool* pool, uint32_t frame_segments = 0);
  void Close();
  // Before it is closed: nothing is pending, and nobody appends any more. Its segments are free.
  void FreeAll() { segments_.FreeAll(); }

  // ---- Writers

  // Sleeps until something was freed after `seen`; without page locks. Whoever has no lock at all
  // may sleep beyond the pool's end: AnnounceRoom() comes after it. If `for_signals`, also until a
  // signal waits for the thread to leave the engine.
  uint32_t RoomSeen() const { return room_.Value(); }
  void WaitForRoom(uint32_t seen, bool for_signals = false);

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
  // What a data record has of page `page` of its file. `link`: the page's pending record before it.
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
  uint32_t BellSeen() const { return bell_.Value(); }
  void Sleep(uint32_t seen, Lsn alarm, uint64_t timeout_ns);
  void Ring() { bell_.Signal(); }
  // A writer sleeps in WaitForRoom.
  bool Hurried() const { return waiters_.load(std::memory_order_seq_cst) > 0; }
  // So little is free that nobody should wait for a larger batch.
  bool Short() const { return segments_.free_then() < segments_.count() - segments_.count() / 3; }
  // Other processes use the pool, too: they may want what this one has no use for.
  bool IsShared() const { return pool_->seats().IsShared(pool_->seat()); }
  // Wakes the writers to try again: something was freed, or the pool is not there any more.
  void AnnounceRoom() { room_.Signal(); }

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
  void Committed(Lsn lsn);
  std::atomic<Lsn>& next() const { return pool_->seats().next_lsn(); }

  pool::Pool* pool_ = nullptr;
  pool::View view_;
  uint64_t units_ = 0;  // of a segment
  uint64_t max_group_pages_ = 0;
  uint64_t writable_segments_ = 0;
  uint32_t lanes_used_ = 0;
  uint32_t reading_ = 0;  // the lane of the record that NextRecord() has found
  Segments segments_;

  // Apart, because different threads write them.
  alignas(pmem::kLine) std::atomic<Lsn> alarm_{~Lsn{0}};
  std::atomic<uint32_t> waiters_{0};
  sys::Event room_;  // something was freed
  sys::Event bell_;  // there is work
  Lane lanes_[kMaxLanes];
};

// Writes one group at the end of a lane. Nothing of it counts before Commit(); after Commit() all
// of it is durable (I1, I2, I4). Without Commit() nothing has happened.
class GroupWriter {
 public:
  // Locks a lane for as long as it lives.
  GroupWriter(Log& log, FileTag& file) : log_(log), file_(file), lane_(log.LockLane(&number_)) {}
  ~GroupWriter();
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;

  // Room for `length` bytes of data at `offset`, at most max_group_pages() of it. `record`
  // describes the file, or is null: that is good enough if the file was declared where the group
  // goes. kDone, kLogFull or kUndeclared.
  Outcome BeginData(uint64_t offset, uint64_t length, pool::FileRecord* record);
  // The bytes of the next page: `length` of them, all that the group has of it. They go to `copy`,
  // too, unless it is null. `link`: the page's pending record before this one. False: a byte cannot
  // be read, and `copy` holds anything.
  bool AddPage(const uint8_t* bytes, uint32_t length, uint8_t* copy, Place link);

  // Room for a record without payload, which is the group's only one besides a file record.
  Outcome BeginMark(Kind kind, uint64_t offset, uint64_t length, pool::FileRecord* record);

  // Room for a file record alone: the newest one of a file counts.
  Outcome BeginFile(pool::FileRecord* record);

  // After a Begin that was kDone.
  Lsn lsn() const { return lsn_; }
  // Everything was added. The group's LSN.
  Lsn Commit();
  // After Commit(): units that the group has taken, and function(place, first page, pages) for each
  // of its data records.
  uint64_t units() const { return units_; }
  template <typename Function>
  void ForEachPart(Function function) const {
    Part part = First();
    for (uint64_t done = 0; done < length_;) {
      Fit(&part, offset_ + done, length_ - done);
      function(part.place(log_.units_), (offset_ + done) / pool::kPageSize,
               PagesOf(offset_ + done, part.length));
      done += part.length;
      if (done < length_) part = NextIn(part);
    }
  }

 private:
  // What the group has in one segment.
  struct Part {
    uint32_t segment;
    uint32_t unit;        // of the file record, or of the record itself
    uint32_t file_units;  // of the file record; 0: none
    uint64_t length;      // bytes of data; 0: nothing fits

    Place place(uint64_t units) const { return segment * units + unit + file_units; }
  };
  Part First() const;
  Part NextIn(const Part& part) const;
  // As many pages as there is room for, of `length` bytes from `offset` on: mostly all of it.
  void Fit(Part* part, uint64_t offset, uint64_t length) const {
    const uint64_t used = part->unit + part->file_units + kLastUnits;
    const uint64_t room = log_.units_ > used ? log_.units_ - used : 0;
    part->length = length;
    if (DataUnits(offset, length) > room) FitPages(part, offset, length, room);
  }
  void FitPages(Part* part, uint64_t offset, uint64_t length, uint64_t room) const;
  bool FitsInLane(uint64_t units) const;
  uint32_t FileUnits() const {
    return 1 + static_cast<uint32_t>(UnitsOf(pool::FileRecordSize(record_->path_length)));
  }
  Outcome Begin(uint32_t segments);
  bool TakeSegments(uint32_t count);
  bool LeaveRoomToKeep(uint32_t count);
  void BeginPart();
  void EndPart();
  void PutFileRecord(Place place);
  RecordHeader& NewHeader(Kind kind, uint64_t offset, uint64_t length);
  void PutHeader(Place place);
  void MoveLane();

  Log& log_;
  FileTag& file_;
  uint32_t number_;  // of the lane
  Log::Lane& lane_;
  pool::FileRecord* record_ = nullptr;
  Log::Position start_;    // the lane's end when the group was begun
  bool declares_ = false;  // there, if the group begins there
  bool in_lane_ = false;   // it does
  bool committed_ = false;
  bool adds_lane_ = false;  // that had no segment
  uint16_t count_ = 0;      // records
  uint16_t index_ = 0;      // of the next one
  uint32_t first_taken_ = kNoSegment;
  uint32_t last_taken_ = kNoSegment;
  Lsn last_generation_ = 0;  // of that
  Lsn lsn_ = 0;
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  uint64_t units_ = 0;

  Part part_ = {};  // that is being written
  uint64_t part_offset_ = 0;
  uint64_t done_ = 0;    // bytes, of the part
  Place at_ = kNoPlace;  // where the next page's bytes go
  uint32_t crc_ = 0;
  uint64_t link_ = kNoPlace;  // of the part's first page
  Place first_place_ = kNoPlace;
  Place file_record_ = kNoPlace;  // the newest one of the group
};

// To be followed by a PSYNC; `place` lies in the pool of `view`.
void StoreHeader(const pool::View& view, const RecordHeader& header, Place place, pmem::Step step);

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
