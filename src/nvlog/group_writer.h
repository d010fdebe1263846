// SPDX-License-Identifier: BSD-3-Clause
//
// Appends a group to a lane of the log.
#ifndef NVCACHE_NVLOG_GROUP_WRITER_H_
#define NVCACHE_NVLOG_GROUP_WRITER_H_

#include <cstdint>

#include "src/nvlog/file_tag.h"
#include "src/nvlog/log.h"
#include "src/pmem/persist.h"

namespace nvcache::nvlog {

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
  // The part of the group in one segment.
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

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_GROUP_WRITER_H_
