// SPDX-License-Identifier: BSD-3-Clause
//
// The segments and records of a pool, as found on the medium: for recovery, `nvcache status` and
// `nvcache dump`. Trusts nothing that its checksum does not cover, and writes nothing.
#ifndef NVCACHE_NVLOG_READER_H_
#define NVCACHE_NVLOG_READER_H_

#include <cstdint>

#include "src/nvlog/holes.h"
#include "src/nvlog/scan.h"
#include "src/pool/pool.h"
#include "src/sys/table.h"

namespace nvcache::nvlog {

// Reads a pool's logs: knows which segments hold records, and where to begin.
class Reader {
 public:
  // Looks at all segment headers. `fd`: the pool's file, if there is one to ask what of it was
  // never written. `all`: of a pool whose checkpoint is not known, or to see what is on disk as
  // well. False without memory.
  bool Open(const pool::View& view, int fd = -1, bool all = false);
  // Only the logs of a seat whose process has died, while others use the pool: but for those of
  // write-through, of which the kernel has all.
  bool OpenSeat(const pool::View& view, const pool::Seats& seats, uint32_t seat);

  // The highest checkpoint of any record or header that counts for the log. 0 with `all`, if no
  // record is whole.
  Lsn checkpoint(uint32_t log) const {
    return pool::IsThroughLog(log) ? through_ : checkpoints_[log / pool::kLogsOfSeat];
  }
  Lsn through_checkpoint() const { return through_; }
  // Some segment is of a write-through log.
  bool has_through() const { return has_through_; }
  // The checkpoint as it is now, in a pool that is in use.
  Lsn CheckpointNow(uint32_t log) const;
  // No LSN above it was seen: in a segment header, or in any header of a record that is whole, its
  // group committed or not. Known when a walk has come to its end.
  Lsn newest() const { return newest_; }

  const RecordHeader& At(Place place) const;
  // Does nvlog::CopyHeader() in the life of the segment that the reader has found.
  bool CopyHeader(Place place, RecordHeader* header) const;
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
  static constexpr uint32_t kNone = ~uint32_t{0};
  // One segment that may hold something.
  struct Segment : LogSegment {
    Lsn floor;  // no record in it has an LSN that is not above it
    Lsn previous_last;
    uint32_t next;  // the log's next one, in Reader::segments_, or kNone
    bool frames;    // it holds no records
    bool damaged;   // neither header is whole: only `number` is known
  };

  bool OpenSegments(const pool::View& view);
  void ReadCheckpoints();
  bool IsLeftOut(uint32_t number) const {
    return seats_ != nullptr && !seats_->Owns(number, seat_);
  }
  Place PlaceOf(uint32_t number, uint64_t unit) const { return number * segment_units_ + unit; }
  // The unit behind the last record that a segment can have.
  uint64_t UnitsEnd() const { return segment_units_ - kLastUnits; }
  // Does so at a place of which nobody knows whether it was ever written.
  bool FindHeader(Place place, RecordHeader* header) const {
    return !holes_.IsNothing(place) && CopyHeader(place, header);
  }
  uint32_t PayloadCrc(const RecordHeader& header, Place place) const;
  const uint8_t* PayloadAt(const RecordHeader& header, Place place, uint64_t* first) const;
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
  Holes holes_;
  bool all_ = false;
  const pool::Seats* seats_ = nullptr;  // with OpenSeat()
  uint32_t seat_ = 0;
  sys::Table<Lsn> checkpoints_;  // by seat: those of its other logs
  sys::Table<bool> used_;        // by seat: it has a checkpoint of its own, or a segment
  Lsn through_ = 0;              // the checkpoint of write-through
  bool has_through_ = false;
  Lsn least_ = 0;  // the least of the checkpoints that count for a log
  mutable Lsn newest_ = 0;
  uint64_t segment_units_ = 0;
  sys::Table<Segment> segments_;  // damaged ones, then by log, then by generation; then kept ones
  uint32_t segment_count_ = 0;
  sys::Table<Lsn> generations_;   // by segment; 0: not known
  sys::Table<uint32_t> indices_;  // in segments_, by segment
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_READER_H_
