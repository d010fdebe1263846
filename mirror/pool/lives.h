// SPDX-License-Identifier: BSD-3-Clause
//
// The segments that a cursor has met, and how far it has come in each.
//
// A segment is taken, filled, freed and taken again; from one time that it is taken to the next is
// a life, which its generation names. Whoever takes it changes the header's word before anything
// else in it. So what was copied belongs to a life if the word says so afterwards, as in a seqlock.
#ifndef NVCACHE_MIRROR_POOL_LIVES_H_
#define NVCACHE_MIRROR_POOL_LIVES_H_

#include <cstdint>
#include <vector>

#include "mirror/pool/pieces.h"
#include "src/nvlog/scan.h"
#include "src/pool/pool.h"

namespace nvcache::mirror {

using pool::Lsn;

struct Life : nvlog::LogSegment {
  Lsn last = 0;          // the newest group's that was walked over; at first 0 in a kept segment
  uint32_t next = 0;     // the newest segment that follows; or its own number: none is known
  uint32_t unit = 0;     // behind what was walked over
  uint32_t copied = 0;   // behind what lies in batches; 0: nothing does, nor its header
  bool closed = false;   // its log has gone on elsewhere
  bool stuck = false;    // a group there is damaged: nothing behind it is copied
  bool touched = false;  // the batch that is being made has some of it
};

class Lives {
 public:
  explicit Lives(const pool::Pool& pool);

  // Looks at all segments that a seat has: those that were taken since are new ones. Other lives of
  // logs are gone; what they held is below a checkpoint that was stored before.
  void Scan();
  // Looks for kept segments alone. False: a life of a log is gone by now.
  bool ScanKept();

  uint32_t count() const { return static_cast<uint32_t>(lives_.size()); }
  Life& operator[](uint32_t number) { return lives_[number]; }
  const Life& operator[](uint32_t number) const { return lives_[number]; }
  // The segments of logs, not closed; and kept ones.
  const std::vector<uint32_t>& growing() const { return growing_; }
  const std::vector<uint32_t>& kept() const { return kept_; }
  // Kept ones of which something was copied, and that are gone: their records are void, all of
  // them. Until ClearGone().
  const std::vector<uint32_t>& gone() const { return gone_; }
  void ClearGone() { gone_.clear(); }

  // The segment still has this life.
  bool Has(uint32_t number) const;
  // The group that comes next in the segment was committed, and has an LSN below `bound`: its LSN.
  // Or the rest of one that began in a segment which is gone: so that is below the checkpoint. 0:
  // neither; `*lost` is set if the segment has another life by now.
  Lsn Peek(uint32_t number, Lsn bound, bool* lost) const;
  // Behind a group that Peek() has found, in each segment that it reaches: where it ends.
  struct Move {
    uint32_t number;
    uint32_t unit;
  };
  // False: a part is missing. `moves` begins with the segment itself.
  bool Walk(uint32_t number, std::vector<Move>* moves) const;
  // Those segments are behind the group now.
  void Go(const std::vector<Move>& moves, Lsn lsn);

  // Units [life.copied, `end`) of the segment, and its header if nothing was copied yet; 0 to 2
  // ranges. The caller looks at Has() next. Returns where unit `copied` lies in the batch; null:
  // the header is not that of the life.
  uint8_t* Copy(uint32_t number, uint32_t end, Pieces* pieces) const;
  uint64_t OffsetOf(uint32_t number, uint64_t unit) const {
    return pool::kSegmentsOffset + (number * units_ + unit) * pool::kUnitSize;
  }
  // A header of a record that is whole, sane and of the life.
  bool CopyHeader(uint32_t number, uint64_t unit, nvlog::RecordHeader* header) const;
  uint64_t units_end() const { return units_ - nvlog::kLastUnits; }
  uint64_t units() const { return units_; }

 private:
  void Add(uint32_t number, bool kept_alone);
  void Forget(uint32_t number);
  uint32_t Next(uint32_t number) const;
  void Link();
  void List();

  const pool::View view_;
  const pool::Seats& seats_;
  const uint64_t units_;  // a segment's
  std::vector<Life> lives_;
  std::vector<uint32_t> growing_;
  std::vector<uint32_t> kept_;
  std::vector<uint32_t> gone_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_LIVES_H_
