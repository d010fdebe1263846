// SPDX-License-Identifier: BSD-3-Clause
//
// The logs as found on the medium: for recovery, `nvcache status` and `nvcache dump`. Trusts
// nothing that its checksum does not cover, and writes nothing.
//
// A group is there only if all of it is (I2, I4): its first header with the commit word, every
// other header, every payload. What is left of one that is not whole is unfinished or damaged; see
// record.h.
#ifndef NVCACHE_NVLOG_READER_H_
#define NVCACHE_NVLOG_READER_H_

#include <cstddef>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/pool/pool.h"

namespace nvcache::nvlog {

enum class Verdict {
  kCommitted,   // all of it is there, and it counts
  kOnDisk,      // below the checkpoint, of a walk over everything
  kVoid,        // it carries the void word; payloads are not checked
  kUnfinished,  // not whole, and nothing says that its call had returned
  kDamaged,     // not whole, or in a segment whose headers are damaged
};

// One call, as a walk meets it.
struct Group {
  Place place;       // of its first record; of a damaged segment, of its header
  Lsn lsn;           // 0: not known
  uint32_t records;  // 0: none of them is known
  Verdict verdict;   // of kUnfinished and kDamaged none may be applied (I2)
  Place damaged;     // then the first record that is not as it was written; else kNoPlace
  uint32_t log;
  bool kept;  // in a kept segment
};

// The number of no file.
inline constexpr uint32_t kNoFile = ~uint32_t{0};

// What can be read of a pool: which segments hold what, and where to begin.
class Reader {
 public:
  Reader() = default;
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Looks at all segment headers. `fd`: the pool's file, if there is one to ask what of it was
  // never written. `all`: of a pool whose checkpoint is not known, or to see what is on disk as
  // well. False without memory.
  bool Open(const pool::View& view, int fd = -1, bool all = false);
  // Only what a seat has in its logs, whose process has died, while others use the pool: but for
  // those of write-through, of which the kernel has all.
  bool OpenSeat(const pool::View& view, const pool::Seats& seats, uint32_t seat);

  // The highest checkpoint of any record or header that counts for the log. 0 with `all`, if no
  // record is whole.
  Lsn checkpoint(uint32_t log) const {
    return pool::IsThroughLog(log) ? through_ : checkpoints_[log / pool::kLogsOfSeat];
  }
  Lsn through_checkpoint() const { return through_; }
  // Some segment is of a write-through log.
  bool has_through() const { return has_through_; }
  // As it is now, in a pool that is in use.
  Lsn CheckpointNow(uint32_t log) const;
  // No LSN above it was seen: in a segment header, or in any header of a record that is whole, its
  // group committed or not. Known when a walk has come to its end.
  Lsn newest() const { return newest_; }

  const RecordHeader& At(Place place) const;
  // The payload of a data record in page `page` of its file: `length` bytes at `offset`.
  struct Piece {
    uint64_t offset;
    uint32_t length;
    const uint8_t* bytes;
  };
  Piece PieceAt(const RecordHeader& header, Place place, uint64_t page) const;
  // The payload of a name record, checked and copied; false if it is not whole, or says nothing
  // that a call can do.
  bool CopyName(const RecordHeader& header, Place place, pool::NameRecord* copy) const;

  uint64_t segment_units() const { return segment_units_; }
  const pool::View& view() const { return view_; }

 private:
  friend class GroupWalk;
  // One segment that may hold something.
  struct Segment {
    Lsn generation;
    Lsn floor;       // no record in it has an LSN that is not above it
    Lsn checkpoint;  // as it was when the segment was taken
    Lsn previous_generation;
    Lsn previous_last;
    uint32_t previous_number;
    uint32_t number;
    uint32_t log;
    uint32_t next;  // the log's next one, in Reader::segments_
    bool kept;
    bool frames;   // it holds no records
    bool damaged;  // neither header is whole: only `number` is known
  };

  bool OpenSegments(const pool::View& view);
  void ReadCheckpoints();
  bool IsLeftOut(uint32_t number) const {
    return seats_ != nullptr && !seats_->Owns(number, seat_);
  }
  Place PlaceOf(uint32_t number, uint64_t unit) const { return number * segment_units_ + unit; }
  // Of the unit behind the last record that a segment can have.
  uint64_t UnitsEnd() const { return segment_units_ - kLastUnits; }
  // A header that is sane and as its checksum says, whatever its word. `header` is a copy.
  bool CopyHeader(Place place, RecordHeader* header) const;
  uint32_t PayloadCrc(const RecordHeader& header, Place place) const;
  const uint8_t* PayloadAt(const RecordHeader& header, Place place, uint64_t* first) const;
  // The first place from `place` on, up to `end`, that was ever written.
  Place AfterNothing(Place place, Place end) const;
  bool IsNothing(Place place) const { return AfterNothing(place, place + 1) != place; }

  bool Look(uint32_t number, Segment* segment, Lsn* checkpoint) const;
  Lsn GenerationOf(Place place) const { return generations_[place / segment_units_]; }
  void AddDamaged();
  bool WasTaken(uint32_t number) const;
  bool IsNamed(uint32_t number, uint32_t whole) const;
  bool IsBeingTaken(uint32_t number) const;
  bool IsZero(Place place) const;
  bool LooksCommitted(Place place) const;
  bool IsPending(Place place, Place end) const;
  bool HoldsPending(uint32_t number) const;
  void Choose();
  void Chain();
  bool IsDone(const Segment& next) const;

  pool::View view_;
  int fd_ = -1;
  bool all_ = false;
  const pool::Seats* seats_ = nullptr;  // with OpenSeat()
  uint32_t seat_ = 0;
  Lsn* checkpoints_ = nullptr;  // by seat, of its other logs
  bool* used_ = nullptr;        // by seat: it has a checkpoint of its own, or a segment
  Lsn through_ = 0;             // the checkpoint of write-through
  bool has_through_ = false;
  Lsn least_ = 0;  // of the checkpoints that count for a log
  mutable Lsn newest_ = 0;
  uint64_t segment_units_ = 0;
  Segment* segments_ = nullptr;  // damaged ones, then by log, then by generation; then kept ones
  uint32_t segment_count_ = 0;
  Lsn* generations_ = nullptr;   // by segment; 0: not known
  uint32_t* indices_ = nullptr;  // in segments_, by segment
  size_t reserved_ = 0;          // elements of these
  // Of the pool's file, bytes that are known to be there.
  mutable uint64_t data_begin_ = 0;
  mutable uint64_t data_end_ = 0;
  // And that nobody ever wrote.
  mutable uint64_t hole_begin_ = 0;
  mutable uint64_t hole_end_ = 0;
};

// Walks the groups of all logs in the order of their LSNs, from the checkpoint on, and all kept
// ones. Memory is bounded by the number of segments and of files.
class GroupWalk {
 public:
  explicit GroupWalk(const Reader& reader) : reader_(reader) {}
  ~GroupWalk();
  GroupWalk(const GroupWalk&) = delete;
  GroupWalk& operator=(const GroupWalk&) = delete;

  // False without memory.
  bool Open();
  // False at the end.
  bool Next(Group* group);

  // Calls function(header, place) for each record of the group that Next() has just found, if it is
  // kCommitted, kOnDisk or kVoid. Headers are copies that were checked.
  template <typename Function>
  void ForEachRecord(const Group& group, Function function) const {
    const uint32_t count = group.records < member_count_ ? group.records : member_count_;
    for (uint32_t i = 0; i < count; ++i) function(members_[i].header, members_[i].place);
  }

  // Files, numbered from 0 in the order in which they are met. Two file records that name the same
  // file (pool::SameFile, and the file system) are one.
  //
  // The file of a record of the group that Next() has just found; kNoFile if no whole file record
  // gives it.
  uint32_t FileOf(const RecordHeader& header, Place place) const;
  uint32_t files() const { return file_count_; }
  // Where the newest file record of file `file` lies: its header.
  Place RecordOf(uint32_t file) const;
  // A copy of its payload; false if that is not whole any more.
  bool CopyRecord(uint32_t file, pool::FileRecord* copy) const;

  // How far the walk has come, for progress: units done of units in all.
  uint64_t done() const { return done_; }
  uint64_t total() const { return total_; }

 private:
  struct Member {
    RecordHeader header;
    Place place;
  };
  // A log, or one kept segment.
  struct Stream {
    uint32_t segment;  // in Reader::segments_
    uint32_t end;      // behind its last one
    uint64_t unit;     // where the next group is looked for
    Lsn last;          // of the newest group that was met
    bool torn;         // that one was not whole: what follows may be the rest of it
    Group group;  // the next one: whole and committed, as far as its first header says, or lost
    Lsn key;      // where it comes in the order
  };
  struct File {
    Place record;
    Lsn lsn;  // of that record
    uint64_t hash;
    uint32_t next;  // of the same bucket, plus one
  };
  struct Name {
    uint64_t key;    // segment number and file number, plus one; 0: none
    uint32_t epoch;  // of the segment when it was met: others are forgotten
    uint32_t file;
  };
  // What is left of a header that is not whole.
  enum class Trace { kNone, kCommitted, kVoid };

  bool IsAfter(uint32_t a, uint32_t b) const { return streams_[a].key > streams_[b].key; }
  const Reader::Segment& SegmentOf(const Stream& stream) const {
    return reader_.segments_[stream.segment];
  }
  bool Matters(const Reader::Segment& segment, Lsn bound) const;
  bool IsTakenAgain(const Reader::Segment& segment) const;

  void Push(uint32_t index);
  bool NextDamaged(Group* group);
  void MoveTo(Stream* stream, uint32_t segment, uint64_t unit);
  bool Peek(Stream* stream);
  Lsn Above(const Stream& stream) const;
  bool IsFirst(const Stream& stream, Place place, RecordHeader* header) const;
  bool PeekFirst(Stream* stream, const RecordHeader& first, Place place);
  bool StepOverRest(Stream* stream, Place place);
  bool PeekLost(Stream* stream, Place place);
  bool FindFirst(uint32_t index, uint64_t unit, Lsn above, RecordHeader* header,
                 uint64_t* found) const;
  Trace TraceAt(const Stream& stream, Place place, Lsn* lsn) const;
  bool IsLostData(Place place, uint64_t unit) const;

  bool FindMember(Stream* stream, const RecordHeader& first, uint32_t index, Member* member);
  Place CollectMembers(Stream* stream, bool payloads);
  bool Collect(Stream* stream);
  bool GoesOn(const Stream& stream, Lsn lsn) const;

  void MeetFiles();
  void MeetFile(const Member& member);
  uint32_t FindFile(const pool::FileRecord& record, uint64_t hash) const;
  uint32_t AddFile(uint64_t hash);
  bool CopyRecordAt(Place place, pool::FileRecord* copy) const;
  void SetName(uint32_t segment, uint32_t number, uint32_t file);
  Name* SlotOf(Name* names, uint32_t capacity, uint64_t key) const;
  bool GrowNames();
  bool GrowFiles();

  const Reader& reader_;
  Stream* streams_ = nullptr;
  uint32_t stream_count_ = 0;
  uint32_t* heap_ = nullptr;  // of streams, by key
  uint32_t heap_size_ = 0;
  uint32_t current_ = ~uint32_t{0};  // the stream whose group Next() has just found
  uint32_t damaged_ = 0;             // damaged segments that were told
  size_t reserved_ = 0;              // segments that there is room for in what follows
  uint32_t* epochs_ = nullptr;       // by segment number
  Member* members_ = nullptr;        // of the group that Next() has just found
  uint32_t member_count_ = 0;
  pool::FileRecord* records_ = nullptr;  // two, to compare
  File* file_list_ = nullptr;
  uint32_t* buckets_ = nullptr;  // as many as there is room for files: file plus one
  uint32_t file_capacity_ = 0;
  uint32_t file_count_ = 0;
  Name* names_ = nullptr;
  uint32_t name_capacity_ = 0;
  uint32_t name_count_ = 0;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_READER_H_
