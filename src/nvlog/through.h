// SPDX-License-Identifier: BSD-3-Clause
//
// The logs of write-through: of bytes that the kernel has, and the disk may still lack
// (docs/write-through.md).
//
// Invariants
//   A group's LSN is drawn after the kernel has its bytes: so a sync that begins when a higher LSN
//   was drawn covers it.
//
//   In a lane, groups lie in the order of their LSNs, and each is durable before the next is begun.
//
//   All groups below the checkpoint of write-through, which is one for all processes of the pool,
//   are on the disk for good, or void. It is durable before a segment below it is taken again (I5).
//
// A group is one data record, in one segment, or one that says that a file is settled, with a file
// record before it where that is missing; or one record about names. Segments are those of
// src/nvlog/segments.h.
#ifndef NVCACHE_NVLOG_THROUGH_H_
#define NVCACHE_NVLOG_THROUGH_H_

#include <sys/uio.h>

#include <cstdint>

#include "src/nvlog/log.h"

namespace nvcache::nvlog {

class ThroughLog {
 public:
  // Of the pool that `log` has open, and with its segments; until that is closed.
  void Open(Log* log);

  // The cleanup thread, when the checkpoint of write-through has moved: frees the segments below
  // it. `all`: the part-filled segments as well.
  void Free(bool all);
  // Some group of this process is not below the checkpoint.
  bool HasPending();
  // One group can have all of it.
  bool HoldsWhole(uint64_t offset, uint64_t length) const;
  // Units of all segments that it has.
  uint64_t units() const;

 private:
  friend class ThroughWriter;
  struct alignas(pmem::kLine) Lane {
    sys::Mutex<sys::Rank::kLane> lock;
    uint32_t first = kNoSegment;    // its oldest segment
    uint32_t segment = kNoSegment;  // where it ends
    uint32_t unit = 0;              // there, behind its last record
    Lsn generation = 0;             // of that segment
    Lsn last = 0;                   // of its newest group
    uint64_t written = 0;           // bytes of payload that the seat was not told of
  };

  void NoteWritten(Lane& lane) const;
  Lane& LockLane(uint32_t* number);
  void FreeBelow(Lane& lane, Lsn checkpoint, bool all);

  Log* log_ = nullptr;
  pool::View view_;
  uint64_t units_ = 0;  // of a segment
  std::atomic<uint32_t> segments_{0};
  Lane lanes_[kThroughLanes];
};

// Writes one group. Nothing of it counts before Commit(); after Commit() all of it is durable.
// Without Commit() nothing has happened.
class ThroughWriter {
 public:
  // Locks a lane for as long as it lives. `exits` of the file: what was declared when it had others
  // may be old.
  ThroughWriter(ThroughLog& log, FileTag& file, uint64_t exits)
      : log_(log), file_(&file), exits_(exits), lane_(log.LockLane(&number_)) {}
  // The same for a group about names, which is of no one file.
  explicit ThroughWriter(ThroughLog& log) : log_(log), lane_(log.LockLane(&number_)) {}
  ~ThroughWriter();
  ThroughWriter(const ThroughWriter&) = delete;
  ThroughWriter& operator=(const ThroughWriter&) = delete;

  // Room for the first of `length` bytes at `offset`, as many as one segment takes: length(). All
  // of them, if they are to stay `whole`: HoldsWhole(). `record` describes the file, or is null:
  // that is good enough if the file was declared where the group goes. kDone, kLogFull or
  // kUndeclared.
  Outcome BeginData(uint64_t offset, uint64_t length, pool::FileRecord* record, bool whole = false);
  uint64_t length() const { return length_; }
  // The bytes of the next page. False: a byte cannot be read.
  bool AddPage(const uint8_t* bytes, uint32_t length);
  // Where they are, in the log: for the kernel. How many pieces.
  int Pieces(iovec (&pieces)[2]) const;

  // Room for a record that says that the file is settled below `bound`. May take the reserve.
  Outcome BeginSettled(Lsn bound, pool::FileRecord* record);

  // Room for a record that says that the file's size becomes `size`.
  Outcome BeginTruncate(uint64_t size, pool::FileRecord* record);

  // Room for a record about names, and the record. May take the reserve.
  Outcome BeginName(const pool::NameRecord& record);

  // With an LSN that was drawn while the lane was locked, after a Begin (a mirror relies on it:
  // Segments::Take), and after the kernel had the bytes.
  void Commit(Lsn lsn);

 private:
  Outcome BeginMark(Kind kind, uint64_t offset, pool::FileRecord* record, bool reserved);
  Outcome Begin(uint64_t least, uint64_t most, pool::FileRecord* record, bool reserved);
  bool IsDeclared() const;
  Outcome TakeSegment(bool reserved);
  void PutFileRecord();
  void PutHeader(RecordHeader* header, Place place, Lsn lsn) const;
  uint64_t FileUnits() const { return 1 + UnitsOf(pool::FileRecordSize(record_->path_length)); }
  Place file_place() const { return uint64_t{segment_} * log_.units_ + unit_; }
  Place place() const { return file_place() + file_units_; }
  Place payload() const { return place() + 1 + LinkUnits(PagesOf(offset_, length_)); }

  ThroughLog& log_;
  FileTag* const file_ = nullptr;  // null: of names
  const uint64_t exits_ = 0;
  uint32_t number_ = 0;  // of the lane
  ThroughLog::Lane& lane_;
  pool::FileRecord* record_ = nullptr;  // to be written, or null
  uint32_t record_crc_ = 0;
  uint32_t segment_ = kNoSegment;  // where the group goes
  uint32_t unit_ = 0;
  Lsn generation_ = 0;  // of the segment
  bool taken_ = false;  // for this group
  bool adds_lane_ = false;
  bool committed_ = false;
  uint64_t file_units_ = 0;  // of the file record; 0: none
  Kind kind_ = Kind::kData;
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  uint64_t done_ = 0;  // bytes
  Place at_ = kNoPlace;
  uint32_t crc_ = 0;
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_THROUGH_H_
