// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/kept.h"

#include <cstring>

#include "src/nvlog/group_writer.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/scratch.h"

namespace nvcache::nvlog {

using pmem::Step;

namespace {

// Segments that are filled at a time, when the records left in others are copied together.
constexpr uint64_t kMostCopied = 4;

}  // namespace

void Kept::Open() {
  first_ = last_ = kNoSegment;
  count_ = unit_ = 0;
  generation_ = newest_ = 0;
  units_ = 0;
  emptied_ = false;
}

bool Kept::Holds(Place place) const {
  const auto segment = static_cast<uint32_t>(place / log_.segments().units());
  return log_.view().segment(segment)->kind == pool::SegmentKind::kKept;
}

bool Kept::TakeSegment() {
  Lsn generation = 0;
  const Segments::Claim claim = {kKeptLog, pool::SegmentKind::kKept, kNoSegment, 0, 0};
  const uint32_t segment = log_.segments().Take(claim, &generation, true);
  if (segment == kNoSegment) return false;
  if (last_ != kNoSegment) {
    log_.segments()[last_].end = unit_;
    log_.segments()[last_].next = segment;
  } else {
    first_ = segment;
  }
  last_ = segment;
  ++count_;
  unit_ = kFirstUnit;
  generation_ = generation;
  newest_ = 0;
  return true;
}

Place Kept::Append(const Copy& copy, Lsn* declared, Place file, uint32_t flags) {
  const pool::View& view = log_.view();
  RecordHeader header = {};
  header.kind = copy.kind;
  header.lsn = copy.lsn;
  header.file = copy.number;
  header.offset = copy.offset;
  header.length = copy.length;
  header.link = copy.link;
  const uint64_t units = RecordUnits(header), file_units = RecordUnits(log_.At(file));
  const uint64_t end = log_.segments().units() - kLastUnits;
  const bool fits = last_ != kNoSegment && copy.lsn >= newest_ && unit_ + file_units + units <= end;
  if (!fits && !TakeSegment()) return kNoPlace;

  const bool declares = *declared != generation_;
  const Place first = last_ * log_.segments().units() + unit_;
  const Place place = first + (declares ? file_units : 0);
  header.count = declares ? 2 : 1;
  header.index = declares ? 1 : 0;
  if (copy.bytes != nullptr) {
    NVCACHE_CHECK(PagesOf(copy.offset, copy.length) == 1);
    NVCACHE_CHECK(pmem::Copy(view.unit(place + 1), copy.bytes, copy.length, nullptr,
                             &header.payload_crc, Step::kPayload));
  }
  Seal(&header, place, generation_, view.salt());
  if (declares) {
    StoreHeader(view, header, place, Step::kGroupHeaders);
    sys::Scratch<pool::FileRecord> record;
    std::memcpy(record.get(), view.unit(file + 1), log_.At(file).length);
    record->flags |= flags;
    header = {};
    header.lsn = copy.lsn;
    header.file = copy.number;
    header.count = 2;
    StoreFileRecord(view, *record.get(), first, &header);
    Seal(&header, first, generation_, view.salt());
  }
  StoreHeader(view, header, first, Step::kCommit);
  pmem::Psync(Step::kCommitted);
  // A checkpoint is about to pass the group that this is a copy of: it must not be there without
  // this, and the segment's number is a new one (docs/disk.md).
  pmem::AwaitJournal();
  *declared = generation_;
  newest_ = copy.lsn;
  const uint64_t taken = place - first + units;
  unit_ += static_cast<uint32_t>(taken);
  log_.segments()[last_].live += static_cast<uint32_t>(taken);
  units_ += taken;
  pool::Count(log_.statistics()->records_kept);
  NoteUnits();
  return place;
}

// For `nvcache status`.
void Kept::NoteUnits() const {
  pool::Seat& seat = log_.pool().seats().At(log_.pool().seat());
  std::atomic_ref(seat.kept_units).store(static_cast<uint32_t>(units_), std::memory_order_relaxed);
}

bool Kept::IsVoid(Place mark) const {
  const RecordHeader& header = log_.At(mark);
  return header.commit == VoidWord(header.lsn, log_.view().salt());
}

void Kept::Void(Place place) {
  NVCACHE_CHECK(Holds(place));
  const RecordHeader& header = log_.At(place);
  Place mark = place;
  if (header.index == 1) {
    // The file record lies right before it: it is looked for from the segment's beginning.
    const uint64_t units = log_.segments().units();
    mark = place / units * units + kFirstUnit;
    while (mark + RecordUnits(log_.At(mark)) != place) mark += RecordUnits(log_.At(mark));
  }
  NVCACHE_CHECK(!IsVoid(mark));
  auto* first = reinterpret_cast<RecordHeader*>(log_.view().unit(mark));
  pmem::Store(first->commit, VoidWord(first->lsn, log_.view().salt()));
  pmem::Pwb(first, sizeof(*first), Step::kVoid);
  pmem::Psync(Step::kVoidDurable);
  const uint64_t taken = place - mark + RecordUnits(header);
  const auto segment = static_cast<uint32_t>(place / log_.segments().units());
  NVCACHE_CHECK(log_.segments()[segment].live >= taken && units_ >= taken);
  log_.segments()[segment].live -= static_cast<uint32_t>(taken);
  units_ -= taken;
  emptied_ = emptied_ || log_.segments()[segment].live == 0;
  NoteUnits();
}

void Kept::Settle() {
  if (!emptied_) return;
  emptied_ = false;
  Segments& segments = log_.segments();
  uint32_t before = kNoSegment;
  for (uint32_t segment = first_; segment != kNoSegment;) {
    const uint32_t next = NextOf(segment);
    if (segments[segment].live > 0) {
      before = segment;
    } else {
      (before == kNoSegment ? first_ : segments[before].next) = next;
      if (segment == last_) CloseAt(before);
      segments.Free(segment);
      --count_;
    }
    segment = next;
  }
}

// `segment` is the last one now, and was closed long ago.
void Kept::CloseAt(uint32_t segment) {
  last_ = segment;
  generation_ = 0;
  newest_ = ~Lsn{0};
  if (segment != kNoSegment) unit_ = log_.segments()[segment].end;
}

uint32_t Kept::NextOf(uint32_t segment) const {
  return segment == last_ ? kNoSegment : log_.segments()[segment].next;
}

Place Kept::Seek(uint32_t segment) {
  Segments::Info& info = log_.segments()[segment];
  const uint32_t end = segment == last_ ? unit_ : info.end;
  const Place begin = segment * log_.segments().units();
  while (info.cursor != 0 && info.cursor < end) {
    const Place mark = begin + info.cursor, place = RecordAt(mark);
    if (!IsVoid(mark)) return place;
    info.cursor = static_cast<uint32_t>(place - begin + RecordUnits(log_.At(place)));
  }
  return kNoPlace;
}

Place Kept::NextInOrder() {
  Place lowest = kNoPlace;
  for (uint32_t segment = first_; segment != kNoSegment; segment = NextOf(segment)) {
    const Place place = Seek(segment);
    if (place == kNoPlace) continue;
    if (lowest == kNoPlace || log_.At(place).lsn < log_.At(lowest).lsn) lowest = place;
  }
  if (lowest == kNoPlace) return kNoPlace;
  const uint64_t units = log_.segments().units();
  const uint64_t after = lowest % units + RecordUnits(log_.At(lowest));
  log_.segments()[static_cast<uint32_t>(lowest / units)].cursor = static_cast<uint32_t>(after);
  return lowest;
}

// A third more than would do, and the segments that are never quite full.
bool Kept::IsSparse() const {
  const uint64_t enough = units_ / log_.segments().record_units() + 1;
  return count_ > enough + enough / 3 + 2;
}

// Gives a cursor to the emptiest segments, together not more than there is room to copy to. False:
// nothing would be gained.
bool Kept::Choose() {
  Segments& segments = log_.segments();
  uint64_t units = 0;
  uint32_t chosen = 0;
  for (uint32_t segment = first_; segment != kNoSegment; segment = NextOf(segment)) {
    segments[segment].cursor = 0;
  }
  for (;;) {
    uint32_t emptiest = kNoSegment;
    for (uint32_t segment = first_; segment != kNoSegment; segment = NextOf(segment)) {
      if (segments[segment].cursor != 0 || segment == last_) continue;
      if (emptiest == kNoSegment || segments[segment].live < segments[emptiest].live) {
        emptiest = segment;
      }
    }
    if (emptiest == kNoSegment) break;
    // One more, for a record that does not fit at a segment's end.
    const uint64_t wanted = (units + segments[emptiest].live) / segments.record_units() + 2;
    if (wanted > kMostCopied || !segments.Has(static_cast<uint32_t>(wanted), true)) break;
    units += segments[emptiest].live;
    ++chosen;
    Begin(emptiest);
  }
  if (chosen <= units / segments.record_units() + 1) return false;
  newest_ = ~Lsn{0};  // begins a segment
  return true;
}

}  // namespace nvcache::nvlog
