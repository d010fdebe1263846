// SPDX-License-Identifier: BSD-3-Clause
//
// The writer of the log: appends one group to a lane, of either policy (lane.h). record.h has the
// form of what it writes.
//
// A group consists of parts, one in each segment that it reaches. A part is one record, and before
// it a file record, unless the segment has one of the file that is right.
//
//   data of write-back      as many parts as it takes
//   data of write-through   one part: the rest of a longer write is another group
//   marks                   one part, without payload. A file record can be alone
//   names                   one part, without a file record: they are of no one file
//
// The first part goes behind the lane's last record, if there is room, the others into segments
// that are taken for them: the group's until it is committed, and then the lane's. A group that is
// given up frees them.
//
// The LSN is drawn while the lane is locked, and after all segments were taken: a mirror relies on
// that (Segments::Take). The policy says when:
//   write-back      by Begin, before the first byte is copied: others see the bytes in the cache
//                   as soon as the pages are unlocked
//   write-through   by Draw(), when the kernel has the bytes, which it takes from the log
//
// Order of the stores, with their steps (src/pmem/step.h):
//   each segment that is taken                    kSegmentCopy, kSegment, kSegmentTaken (PSYNC)
//   payloads, those of file records among them    kPayload
//   headers of all records but the first          kGroupHeaders
//   the header of the first, commit word last     kCommit
//   PSYNC                                         kCommitted
//
// Then the lane's end moves, the file is declared, and the cleanup thread or the seat is told.
//
// Headers wait in the lane: the first one for Commit(), the newest one until the next is begun. So
// a group of at most two records, as those of write-through are, needs its LSN only for Commit().
// And one that is given up leaves no header where the lane goes on: with one there, and the log
// going on elsewhere, readers would take it for damaged.
#ifndef NVCACHE_NVLOG_GROUP_WRITER_H_
#define NVCACHE_NVLOG_GROUP_WRITER_H_

#include <sys/uio.h>

#include <cstdint>

#include "src/nvlog/file_tag.h"
#include "src/nvlog/log.h"
#include "src/pmem/persist.h"

namespace nvcache::nvlog {

// Nothing of the group counts before Commit(); after Commit() all of it is durable (I1, I2, I4).
// Without Commit() nothing has happened.
class GroupWriter {
 public:
  // Each locks a lane for as long as it lives. This lane is of write-back.
  GroupWriter(Log& log, FileTag& file) : GroupWriter(log, &file, Policy::kWriteBack, 0) {}
  // The lane is of write-through. A declaration may be old that was made with other `bypasses`.
  GroupWriter(Log& log, FileTag& file, uint64_t bypasses)
      : GroupWriter(log, &file, Policy::kWriteThrough, bypasses) {}
  // The lane is of write-through, and the group is about names.
  explicit GroupWriter(Log& log) : GroupWriter(log, nullptr, Policy::kWriteThrough, 0) {}
  ~GroupWriter();
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;

  // ---- One of these begins the group: kDone, kLogFull or kUndeclared. `record` describes the
  // file, or is null: that is good enough if the file was declared where the group goes.

  // Room for `length` bytes of data at `offset`. Write-back has room for all of them, at most
  // max_group_pages(). Write-through has it for as many as one segment takes: length(); or for all,
  // if they are to stay `whole`: HoldsWhole().
  Outcome BeginData(uint64_t offset, uint64_t length, pool::FileRecord* record, bool whole = false);
  // Room for a record without payload. One of kSettled may take the reserve.
  Outcome BeginMark(Kind kind, uint64_t offset, uint64_t length, pool::FileRecord* record);
  // Room for a file record alone: the newest one of a file counts.
  Outcome BeginFile(pool::FileRecord* record);
  // Room for a record about names, and the record. May take the reserve.
  Outcome BeginName(const pool::NameRecord& record);

  // ---- After a Begin that was kDone
  uint64_t length() const { return length_; }
  // The bytes of the next page: `length` of them, all that the group has of it. They go to `copy`,
  // too, unless it is null. `link`: the page's pending record before this one. False: a byte cannot
  // be read, and `copy` holds anything.
  bool AddPage(const uint8_t* bytes, uint32_t length, uint8_t* copy = nullptr,
               Place link = kNoPlace);
  // Where the kernel finds the bytes of a whole group of write-through. How many pieces.
  int Pieces(iovec (&pieces)[2]) const;
  // Draws the LSN of a write-through group, when the kernel has its bytes.
  Lsn Draw();
  Lsn lsn() const { return lsn_; }
  // Everything was added. The group's LSN.
  Lsn Commit();

  // ---- After Commit(): the units that the group has taken, and function(place, first page, pages)
  // for each of its data records.

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
  // The part of the group in one segment.
  struct Part {
    uint32_t segment;
    uint32_t unit;        // the file record's, or the record's itself
    uint32_t file_units;  // the file record's; 0: none
    uint64_t length;      // bytes of data; 0: nothing fits

    Place place(uint64_t units) const { return segment * units + unit + file_units; }
  };
  GroupWriter(Log& log, FileTag* file, Policy policy, uint64_t bypasses)
      : log_(log),
        file_(file),
        policy_(policy),
        bypasses_(bypasses),
        lane_(log.LockLane(policy, &number_)) {}
  bool deferred() const { return policy_ == Policy::kWriteBack; }
  bool staged() const { return lane_.stage != nullptr && length_ <= kStageBytes; }
  void Start(pool::FileRecord* record);
  Part First() const;
  Part NextIn(const Part& part) const;
  Part InTaken(uint32_t segment) const;
  uint64_t RoomIn(const Part& part) const {
    const uint64_t used = part.unit + part.file_units + kLastUnits;
    return log_.units_ > used ? log_.units_ - used : 0;
  }
  // Gives the part as many pages of `length` bytes from `offset` on as fit: mostly all.
  void Fit(Part* part, uint64_t offset, uint64_t length) const {
    part->length = length;
    if (DataUnits(offset, length) > RoomIn(*part)) FitPages(part, offset, length);
  }
  void FitPages(Part* part, uint64_t offset, uint64_t length) const;
  bool MayCut(const Part& part, bool whole) const;
  uint32_t FileUnits() const;
  bool HasRoomInLane(uint64_t units) const;
  Outcome BeginRecord(Kind kind, uint64_t offset, uint64_t length, uint64_t units,
                      pool::FileRecord* record);
  Outcome Begin(uint32_t segments, bool reserved = false);
  bool TakeSegments(uint32_t count, bool reserved);
  bool LeaveRoomToKeep(uint32_t count);
  void BeginPart();
  void EndPart();
  void PutFileRecord(Place place);
  RecordHeader& NewHeader(Kind kind, Place place, uint64_t offset, uint64_t length);
  void PutHeader(RecordHeader* header, Place place, pmem::Step step) const;
  void PutNextHeader();
  void MoveLane();

  Log& log_;
  FileTag* const file_;  // null: of names
  const Policy policy_;
  const uint64_t bypasses_;
  uint32_t number_;  // the lane's
  Lane& lane_;
  pool::FileRecord* record_ = nullptr;
  Position start_;         // the lane's end when the group was begun
  bool declares_ = false;  // there, if the group begins there
  bool in_lane_ = false;   // it does
  bool committed_ = false;
  bool adds_lane_ = false;  // that had no segment
  uint16_t count_ = 0;      // records
  uint16_t index_ = 0;      // the next one's
  uint32_t first_taken_ = kNoSegment;
  uint32_t last_taken_ = kNoSegment;
  Lsn last_generation_ = 0;  // that one's
  Lsn lsn_ = 0;
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  uint64_t units_ = 0;

  Part part_ = {};  // that is being written
  uint64_t part_offset_ = 0;
  uint64_t done_ = 0;    // bytes, of the part
  Place at_ = kNoPlace;  // where the next page's bytes go
  uint32_t crc_ = 0;
  uint64_t link_ = kNoPlace;      // the part's first page's
  Place first_place_ = kNoPlace;  // the headers' that wait in the lane
  Place next_place_ = kNoPlace;
  Place file_record_ = kNoPlace;  // the newest one of the group
};

// To be followed by a PSYNC; `place` lies in the pool of `view`.
void StoreHeader(const pool::View& view, const RecordHeader& header, Place place, pmem::Step step);
// The payload of a file record, and its kind, length and checksum for its header.
void StoreFileRecord(const pool::View& view, const pool::FileRecord& record, Place place,
                     RecordHeader* header);

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_GROUP_WRITER_H_
