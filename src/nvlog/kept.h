// SPDX-License-Identifier: BSD-3-Clause
//
// Kept segments: copies of records of files that a disk refuses. They count at every checkpoint,
// until they are void; so one bad disk holds up no other (I10). The cleanup thread's alone.
#ifndef NVCACHE_NVLOG_KEPT_H_
#define NVCACHE_NVLOG_KEPT_H_

#include <cstdint>

#include "src/nvlog/log.h"

namespace nvcache::nvlog {

class Kept {
 public:
  explicit constexpr Kept(Log& log) : log_(log) {}

  // The pool was just opened: nothing is kept.
  void Open();

  // Copies a record, as a group of its own with its old LSN: durable when it returns. `bytes`: the
  // payload of a data record, of one page. `*declared` is the generation of the kept segment in
  // which the file was declared last; `file`, a whole file record in the pool, is used if that is
  // another one, with `flags` besides its own. kNoPlace: no segment is free.
  struct Copy {
    Kind kind;
    Lsn lsn;
    uint32_t number;
    uint64_t offset;
    uint64_t length;
    const uint8_t* bytes;
    uint64_t link;
  };
  Place Append(const Copy& copy, Lsn* declared, Place file, uint32_t flags);

  // The record at `place`, and the file record that came with it, count no more, because newer ones
  // hide it, or the disk has it: durable when it returns. The one of two records of a file that has
  // the lower LSN comes first, unless it is hidden: a crash in between must not leave an older one
  // alone.
  void Void(Place place);
  // Frees the segments that have become empty.
  void Settle();

  bool Holds(Place place) const;
  uint32_t segments() const { return count_; }
  // Units of records that are not void.
  uint64_t units() const { return units_; }
  // Calls function(place) for each record of file `number` that is not void, file records left out,
  // in the order of their LSNs. It may void the record.
  template <typename Function>
  void ForEachOf(uint32_t number, Function function);
  // If too many segments have too little in them: the same for all records of some of these, so
  // that the caller copies each once more and voids it. True if that was so.
  template <typename Function>
  bool Compact(Function function);

 private:
  bool TakeSegment();
  void NoteUnits() const;
  bool IsVoid(Place mark) const;
  bool IsSparse() const;
  bool Choose();
  void CloseAt(uint32_t segment);
  uint32_t NextOf(uint32_t segment) const;
  // The record of the group that begins at `mark`, perhaps with a file record.
  Place RecordAt(Place mark) const {
    const RecordHeader& header = log_.At(mark);
    return header.count == 2 ? mark + RecordUnits(header) : mark;
  }
  // Moves the cursor of `segment` to the next record that is not void; kNoPlace: there is none.
  Place Seek(uint32_t segment);
  void Begin(uint32_t segment) { log_.segments()[segment].cursor = kFirstUnit; }
  // The record with the lowest LSN of those at the segments' cursors. Steps over it.
  Place NextInOrder();

  Log& log_;
  // The kept segments are chained by Info::next; the last one is filled.
  uint32_t first_ = kNoSegment;
  uint32_t last_ = kNoSegment;
  uint32_t count_ = 0;
  uint32_t unit_ = 0;   // of the last one, behind its last record
  Lsn generation_ = 0;  // of the last one
  Lsn newest_ = 0;      // LSN in it
  uint64_t units_ = 0;
  bool emptied_ = false;  // some segment is
};

template <typename Function>
void Kept::ForEachOf(uint32_t number, Function function) {
  for (uint32_t segment = first_; segment != kNoSegment; segment = NextOf(segment)) Begin(segment);
  for (Place place; (place = NextInOrder()) != kNoPlace;) {
    if (log_.At(place).file == number) function(place);
  }
}

template <typename Function>
bool Kept::Compact(Function function) {
  if (!IsSparse() || !Choose()) return false;
  for (Place place; (place = NextInOrder()) != kNoPlace;) function(place);
  newest_ = ~Lsn{0};  // the next record is newer, or of another file
  return true;
}

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_KEPT_H_
