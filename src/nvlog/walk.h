// SPDX-License-Identifier: BSD-3-Clause
//
// The groups of all logs, as found on the medium.
//
// A group is there only if all of it is (I2, I4): its first header with the commit word, every
// other header, every payload. One that is not whole is unfinished or damaged; see record.h.
#ifndef NVCACHE_NVLOG_WALK_H_
#define NVCACHE_NVLOG_WALK_H_

#include <cstdint>

#include "src/nvlog/met_files.h"
#include "src/nvlog/reader.h"
#include "src/sys/table.h"

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
  Place place;       // its first record's; a damaged segment's header's
  Lsn lsn;           // 0: not known
  uint32_t records;  // 0: none of them is known
  Verdict verdict;   // none that is kUnfinished or kDamaged may be applied (I2)
  Place damaged;     // then the first record that is not as it was written; else kNoPlace
  uint32_t log;
  bool kept;  // in a kept segment
};

// Walks the groups of all logs in the order of their LSNs, from the checkpoint on, and all kept
// ones. Memory is bounded by the number of segments and of files.
class GroupWalk {
 public:
  explicit GroupWalk(const Reader& reader) : reader_(reader), met_(reader) {}

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

  // The files that it has met (met_files.h).
  uint32_t FileOf(const RecordHeader& header, Place place) const {
    return met_.FileOf(header, place);
  }
  uint32_t files() const { return met_.count(); }
  Place RecordOf(uint32_t file) const { return met_.RecordOf(file); }
  bool CopyRecord(uint32_t file, pool::FileRecord* copy) const {
    return met_.CopyRecord(file, copy);
  }

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
    Lsn last;          // the newest group's that was met
    bool torn;         // that one was not whole: its rest may follow
    Group group;  // the next one: whole and committed, as far as its first header says, or lost
    Lsn key;      // where it comes in the order
  };
  // The remains of a header that is not whole.
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

  Place CollectMembers(Stream* stream, bool payloads);
  bool Collect(Stream* stream);
  bool GoesOn(const Stream& stream, Lsn lsn) const;

  void MeetFiles();

  const Reader& reader_;
  MetFiles met_;
  sys::Table<Stream> streams_;
  uint32_t stream_count_ = 0;
  sys::Table<uint32_t> heap_;  // streams, by their keys
  uint32_t heap_size_ = 0;
  uint32_t current_ = ~uint32_t{0};  // the stream whose group Next() has just found
  uint32_t damaged_ = 0;             // damaged segments that were told
  sys::Table<Member> members_;       // the records of the group that Next() has just found
  uint32_t member_count_ = 0;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_WALK_H_
