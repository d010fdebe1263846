// SPDX-License-Identifier: BSD-3-Clause
//
// All readers of logs have this in common: which header lies at a place, which segment a log has
// taken after another one, and where a group ends.
//
// Recovery (reader.h, walk.h) reads a pool at rest, of which a part may be damaged or lost. A
// mirror (mirror/pool) reads a pool while others write to it, and takes each group when it is
// committed. They share what the format says, which is here. What a missing header means, and what
// to remember of a segment, each of them decides by itself.
//
// Each function copies a header and judges the copy, for the pool's bytes may change meanwhile. So
// a reader of a pool in use has to ask afterwards whether the segment still has the life that it
// has read.
#ifndef NVCACHE_NVLOG_SCAN_H_
#define NVCACHE_NVLOG_SCAN_H_

#include <cstdint>

#include "src/nvlog/record.h"
#include "src/pool/view.h"

namespace nvcache::nvlog {

// One life of a segment, in its log. All zero: none is known.
struct LogSegment {
  Lsn generation;
  Lsn previous_generation;   // that of the log's segment before this one; 0: there is none
  uint32_t previous_number;  // that segment's
  uint32_t number;
  uint32_t log;
  bool kept;  // such a segment stands alone
};

inline LogSegment ToLogSegment(const pool::SegmentHeader& header) {
  return {header.generation,
          header.previous_generation,
          header.previous_number,
          header.number,
          header.log,
          header.kind == pool::SegmentKind::kKept};
}

// The log has taken `next` after `segment`. A log gives back the segments that it took for a group
// that came to nothing, and takes others for the next one: so the newest that follows a segment is
// the log's next.
inline bool Follows(const LogSegment& next, const LogSegment& segment) {
  return next.previous_generation != 0 && next.previous_generation == segment.generation &&
         next.previous_number == segment.number && next.log == segment.log && !next.kept &&
         !segment.kept;
}

// A header that is sane and as its checksum says, with any word, in the life of its segment that
// `generation` names. `header` is a copy.
bool CopyHeader(const pool::View& view, Place place, Lsn generation, RecordHeader* header);

// The first record of a group, by its word: the group was committed, if it is void by now or not.
inline bool WasCommitted(const RecordHeader& header, uint64_t salt) {
  return header.index == 0 && (header.commit == CommitWord(header.lsn, salt) ||
                               header.commit == VoidWord(header.lsn, salt));
}

// Steps over a group, from the record `first` on, which is looked for at `unit` of `segment`. Each
// other record lies behind the one before, or at the beginning of the log's next segment. Calls
//
//   copy_header(segment, unit, &header)   as CopyHeader() does
//   next_of(segment)                      the log's next segment; the same one, if there is none
//   function(header, segment, unit)       for each record that is there
//
// False: a record is missing, and those behind it are not looked for.
template <typename Copy, typename NextOf, typename Function>
bool StepOverGroup(const RecordHeader& first, uint32_t segment, uint64_t unit, Copy copy_header,
                   NextOf next_of, Function function) {
  RecordHeader header;
  for (uint32_t index = first.index; index < first.count; ++index) {
    const auto is_next = [&](uint32_t in, uint64_t at) {
      return copy_header(in, at, &header) && header.lsn == first.lsn && header.index == index &&
             header.count == first.count;
    };
    if (!is_next(segment, unit)) {
      const uint32_t next = next_of(segment);
      if (next == segment || !is_next(next, kFirstUnit)) return false;
      segment = next;
      unit = kFirstUnit;
    }
    function(header, segment, unit);
    unit += RecordUnits(header);
  }
  return true;
}

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_SCAN_H_
