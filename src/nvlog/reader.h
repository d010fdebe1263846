// SPDX-License-Identifier: BSD-3-Clause
//
// The log as found on the medium: for recovery, `nvcache status` and `nvcache dump`. Trusts
// nothing that its checksum does not cover, and writes nothing.
//
// A group is there only if all of it is (I2, I4): its first header with the commit word, every
// other header, every payload. What is left of one that is not whole is unfinished or damaged; see
// entry.h.
#ifndef NVCACHE_NVLOG_READER_H_
#define NVCACHE_NVLOG_READER_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "src/nvlog/entry.h"
#include "src/pool/pool.h"

namespace nvcache::nvlog {

enum class Verdict {
  kNothing,         // no header of this lap: never written, or a hole
  kInFlight,        // a whole header, but the write call was not committed
  kCommitted,       // the header is whole and committed; the payload was checked, too
  kApplied,         // as kCommitted, and recovery has already applied it; payload not checked
  kUnfinished,      // of a group: not whole, and nothing says that its write call had returned
  kDamagedHeader,   // a header whose checksum or commit word is wrong: only `position` is known
  kDamagedPayload,  // a committed header whose payload's checksum is wrong; of an entry that is all
                    // that is known, of a group that it is damaged
};

class Reader {
 public:
  // `fd`: the pool's file, if there is one to ask what of it was never written.
  explicit Reader(const pool::View& view, int fd = -1);
  // Of a log whose tail is not known: one length of the log, up to the end of its newest whole
  // entry. All that is pending is in it, and what was on disk long ago, too.
  static Reader OfAll(const pool::View& view);

  // What lies at `position`. `header` is filled for every verdict but kNothing and kDamagedHeader.
  Verdict Examine(Position position, EntryHeader* header) const;
  // The same without a look at the payload: kDamagedPayload comes as kCommitted.
  Verdict ExamineHeader(Position position, EntryHeader* header) const;

  // The header at `position`, where Examine has just found a whole entry: its payload is not
  // checked again.
  EntryHeader HeaderAt(Position position) const;

  // Copies [skip, skip + n) of an entry's payload. skip + n <= header.length <= kPageSize.
  void Payload(const EntryHeader& header, void* out, size_t n, size_t skip = 0) const;

  // Where the payload of an entry lies: one piece, or two if it wraps. Returns how many.
  int PayloadInPlace(Position position, size_t length, iovec pieces[2]) const;

  // Where a walk begins and where it can stop: [begin(), end()) covers every position that may be
  // pending. A walk goes from begin() by EntryUnits(length) over what it knows, and by one unit
  // over kNothing and kDamagedHeader. A pool in use moves on; these stay as they were when the
  // reader was made. No position from end() on was ever taken by then.
  Position begin() const { return begin_; }
  Position end() const { return end_; }

  // Where a walk that finds nothing at `position` goes on.
  Position AfterNothing(Position position) const;

  // By now the tail has passed `position`: a pool in use has freed it.
  bool Passed(Position position) const;

 private:
  Reader(const pool::View& view, Position begin, Position end)
      : view_(view), begin_(begin), end_(end) {}
  size_t LogBytes() const { return view_.log_units() * pool::kUnitSize; }
  size_t PayloadOffset(Position position) const {
    return (position + 1) % view_.log_units() * pool::kUnitSize;
  }
  uint32_t PayloadCrc(const EntryHeader& header) const;

  pool::View view_;
  int fd_ = -1;
  Position begin_ = 0;
  Position end_ = 0;
};

// One write call, as a walk meets it.
struct Group {
  Position position;  // of its first entry
  uint64_t units;     // to the next thing worth examining
  uint32_t entries;   // group_count of the first; 0: a single damaged header
  Verdict verdict;    // of kUnfinished, kDamagedHeader, kDamagedPayload none may be applied (I2)
  Position damaged;   // then the first entry that is not as it was written; else kNoPosition
};

// Walks whole groups in log order. Entries of groups that were never committed come as kInFlight,
// one by one. The word of the first counts for all: a group is applied when its first entry is.
class GroupWalk {
 public:
  explicit GroupWalk(const Reader& reader)
      : reader_(reader), next_(reader.begin()), last_(reader.end()) {}

  // False at the end.
  bool Next(Group* group);

  // How far the walk has come, for progress: units done of units in all.
  uint64_t done() const { return next_ - reader_.begin(); }
  uint64_t total() const { return reader_.end() - reader_.begin(); }

 private:
  struct Found {
    Group group;
    bool by_itself;    // no power failure leaves this: it is damaged
    Position members;  // its entries that are known begin in [group.position, members)
  };
  Group Collect(const EntryHeader& first, Verdict verdict);
  Found Look(const EntryHeader& first, Verdict verdict) const;
  bool IsNamed(const Found& found);

  const Reader& reader_;
  Position next_;
  Position last_;       // past it there is no whole header
  uint64_t looks_ = 0;  // at units, for groups that are not whole
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_READER_H_
