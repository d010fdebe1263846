// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/reader.h"

#include <algorithm>
#include <cstring>

#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/words.h"

namespace nvcache::nvlog {

namespace {

// Left of a segment's header that was whole once: only this pool's user writes bytes that depend on
// the salt like this. One that was being taken has no word.
bool WasHeader(const pool::SegmentHeader& header, uint64_t salt) {
  if (header.word == 0) return false;
  if (header.crc == pool::SegmentHeaderCrc(header, salt)) return true;
  if (header.word == pool::SegmentWord(header.generation, salt)) return true;
  pool::SegmentHeader repaired = header;
  repaired.generation = header.word ^ pool::SegmentWord(0, salt);
  return repaired.crc == pool::SegmentHeaderCrc(repaired, salt);
}

}  // namespace

// ---------------------------------------------------------------------------------------------
// Segments.

bool Reader::Open(const pool::View& view, int fd, bool all) {
  holes_.Open(fd);
  all_ = all;
  return OpenSegments(view);
}

bool Reader::OpenSeat(const pool::View& view, const pool::Seats& seats, uint32_t seat) {
  seats_ = &seats;
  seat_ = seat;
  return OpenSegments(view);
}

bool Reader::OpenSegments(const pool::View& view) {
  NVCACHE_CHECK(segments_.max() == 0);
  view_ = view;
  segment_units_ = view.segment_units();
  const uint32_t count = view.segment_count();
  if (!segments_.Open(count) || !generations_.Open(count) || !indices_.Open(count) ||
      !checkpoints_.Open(pool::kMaxSeats) || !used_.Open(pool::kMaxSeats)) {
    return false;
  }
  ReadCheckpoints();
  AddDamaged();
  Choose();
  return true;
}

// And the headers of all segments.
void Reader::ReadCheckpoints() {
  Lsn all_logs = 0;
  const bool known = pool::LoadCheckpoint(view_, pool::kOfPool, &all_logs) > 0 || !all_;
  for (uint32_t seat = 0; seat < view_.seat_count() && known; ++seat) {
    Lsn& own = checkpoints_[seat];
    pool::LoadCheckpoint(view_, seat, &own);
    if (own != 0) used_[seat] = true;
    own = std::max(own, all_logs);
    newest_ = std::max(newest_, checkpoints_[seat]);
  }
  if (known) {
    pool::LoadCheckpoint(view_, pool::kOfThrough, &through_);
    through_ = std::max(through_, all_logs);
    newest_ = std::max(newest_, through_);
  }
  for (uint32_t number = 0; number < view_.segment_count(); ++number) {
    Segment* segment = &segments_[segment_count_];
    Lsn then = 0;
    if (IsLeftOut(number) || !Look(number, segment, &then)) continue;
    if (seats_ != nullptr && pool::IsThroughLog(segment->log)) {
      generations_[number] = segment->generation;
      continue;
    }
    const bool through = pool::IsThroughLog(segment->log);
    Lsn& own = through ? through_ : checkpoints_[segment->log / pool::kLogsOfSeat];
    if (known) own = std::max(own, then);
    (through ? has_through_ : used_[segment->log / pool::kLogsOfSeat]) = true;
    newest_ = std::max({newest_, segment->generation, own});
    generations_[number] = segment->generation;
    if (!segment->frames) ++segment_count_;
  }
  least_ = newest_;
  bool any = false;
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) {
    if (!used_[seat]) continue;
    least_ = std::min(least_, checkpoints_[seat]);
    any = true;
  }
  if (has_through_) least_ = std::min(least_, through_);
  if (!any && !has_through_) least_ = all_logs;
}

Lsn Reader::CheckpointNow(uint32_t log) const {
  return std::max(pool::LoadCheckpointOfLog(view_, log), checkpoint(log));
}

// The first header, or the copy: a segment that is being taken has a whole copy, perhaps, and
// nothing in it that counts.
bool Reader::Look(uint32_t number, Segment* segment, Lsn* checkpoint) const {
  const Place last = PlaceOf(number, segment_units_ - 1);
  pool::SegmentHeader header = {};
  const bool found = (!holes_.IsNothing(PlaceOf(number, 0)) &&
                      pool::CopySegmentHeader(view_, *view_.segment(number), number, &header)) ||
                     (!holes_.IsNothing(last) &&
                      pool::CopySegmentHeader(view_, *view_.segment_copy(number), number, &header));
  if (!found) return false;
  const LogSegment life = ToLogSegment(header);
  // Kept records have the LSNs of their groups.
  const Lsn floor = life.kept ? 0 : header.generation;
  *segment = {life, floor, header.previous_last, kNone, header.kind == pool::SegmentKind::kFrames,
              false};
  *checkpoint = header.checkpoint;
  return true;
}

// Behind the others, segments without a whole header in which something may be pending.
void Reader::AddDamaged() {
  const uint32_t whole = segment_count_;
  for (uint32_t number = 0; number < view_.segment_count(); ++number) {
    if (generations_[number] != 0 || IsLeftOut(number)) continue;  // its header is whole
    if (!WasTaken(number) &&
        (IsBeingTaken(number) || (!IsNamed(number, whole) && !HoldsPending(number)))) {
      continue;
    }
    Segment& segment = segments_[segment_count_++];
    segment = {};
    segment.number = number;
    segment.damaged = true;
  }
}

bool Reader::WasTaken(uint32_t number) const {
  for (const uint64_t unit : {uint64_t{0}, segment_units_ - 1}) {
    if (holes_.IsNothing(PlaceOf(number, unit))) continue;
    pool::SegmentHeader header = {};
    sys::CopyWords(&header, view_.unit(PlaceOf(number, unit)), sizeof(header));
    if (WasHeader(header, view_.salt())) return true;
  }
  return false;
}

// A log's next segment says that there were groups in it which nobody can have freed.
bool Reader::IsNamed(uint32_t number, uint32_t whole) const {
  for (uint32_t i = 0; i < whole; ++i) {
    const Segment& next = segments_[i];
    if (!next.kept && next.previous_generation != 0 && next.previous_number == number &&
        next.previous_last >= checkpoint(next.log)) {
      return true;
    }
  }
  return false;
}

// Both headers have the word 0, and neither was lost: a process was taking the segment, which is
// free then. Its records are below the checkpoint of the seat that had it, though not of every
// seat. And others may name it: a log gives up all segments that it took for a group, each of which
// names the one before, and takes some of them again.
bool Reader::IsBeingTaken(uint32_t number) const {
  for (const uint64_t unit : {uint64_t{0}, segment_units_ - 1}) {
    const Place place = PlaceOf(number, unit);
    if (IsZero(place)) return false;
    pool::SegmentHeader header = {};
    sys::CopyWords(&header, view_.unit(place), sizeof(header));
    if (header.word != 0) return false;
  }
  return true;
}

bool Reader::IsZero(Place place) const {
  static constexpr uint8_t kZeros[pool::kUnitSize] = {};
  return holes_.IsNothing(place) || std::memcmp(view_.unit(place), kZeros, sizeof(kZeros)) == 0;
}

// Two words of the unit tell: most units are bytes of a payload.
bool Reader::LooksCommitted(Place place) const {
  const RecordHeader& header = At(place);
  Lsn lsn;
  uint64_t commit;
  sys::CopyWords(&lsn, &header.lsn, sizeof(lsn));
  sys::CopyWords(&commit, &header.commit, sizeof(commit));
  return commit == CommitWord(lsn, view_.salt());
}

// Without the segment's generation, a header's checksum says nothing.
bool Reader::IsPending(Place place, Place end) const {
  if (!LooksCommitted(place)) return false;
  RecordHeader header;
  sys::CopyWords(&header, view_.unit(place), sizeof(header));
  return IsSane(header, end - place) && header.index == 0 && header.lsn >= least_ &&
         header.commit == CommitWord(header.lsn, view_.salt());
}

// A group that was committed and is not below the checkpoint. A segment that begins with so many
// zeros was never taken: a large pool that was hardly used need not be read.
bool Reader::HoldsPending(uint32_t number) const {
  constexpr uint64_t kZeros = 128;
  uint64_t zeros = 0;
  while (zeros < kZeros && IsZero(PlaceOf(number, zeros))) ++zeros;
  if (zeros == kZeros && IsZero(PlaceOf(number, segment_units_ - 1))) return false;
  const Place end = PlaceOf(number, UnitsEnd());
  for (Place place = PlaceOf(number, kFirstUnit);
       (place = holes_.AfterNothing(place, end)) < end;) {
    const Place page_end = std::min((place / kUnitsPerPage + 1) * kUnitsPerPage, end);
    for (; place < page_end; ++place) {
      if (IsPending(place, end)) return true;
    }
  }
  return false;
}

// In the order in which a walk wants them, without those that are below the checkpoint, all of
// them.
void Reader::Choose() {
  std::sort(&segments_[0], &segments_[segment_count_], [](const Segment& a, const Segment& b) {
    if (a.damaged != b.damaged) return a.damaged;
    if (a.kept != b.kept) return b.kept;
    if (!a.kept && a.log != b.log) return a.log < b.log;
    return a.generation != b.generation ? a.generation < b.generation : a.number < b.number;
  });
  Chain();
  if (all_) return;
  uint32_t chosen = 0;
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const uint32_t next = segments_[i].next;
    if (next != kNone && IsDone(segments_[next])) continue;
    segments_[chosen++] = segments_[i];
  }
  segment_count_ = chosen;
  Chain();
}

// The segments that follow one come in the order of their generations: the last one counts.
void Reader::Chain() {
  for (uint32_t i = 0; i < segment_count_; ++i) {
    segments_[i].next = kNone;
    indices_[segments_[i].number] = i;
  }
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const uint32_t before = indices_[segments_[i].previous_number];
    if (before < i && Follows(segments_[i], segments_[before])) segments_[before].next = i;
  }
}

// A group that begins in this segment is committed, and not above the checkpoint: so all that the
// log wrote into the segments before is below it.
bool Reader::IsDone(const Segment& next) const {
  const Lsn done = checkpoint(next.log);
  if (next.generation > done) return false;
  RecordHeader header;
  uint64_t unit = kFirstUnit;
  do {  // over the rest of a group that began before
    if (!FindHeader(PlaceOf(next.number, unit), &header) || header.lsn <= next.floor) return false;
    unit += RecordUnits(header);
  } while (header.index != 0);
  return header.lsn <= done && WasCommitted(header, view_.salt());
}

// ---------------------------------------------------------------------------------------------
// Records.

bool Reader::CopyHeader(Place place, RecordHeader* header) const {
  return nvlog::CopyHeader(view_, place, GenerationOf(place), header);
}

const RecordHeader& Reader::At(Place place) const {
  return *reinterpret_cast<const RecordHeader*>(view_.unit(place));
}

bool Reader::CopyName(const RecordHeader& header, Place place, pool::NameRecord* copy) const {
  NVCACHE_CHECK(header.kind == Kind::kName && header.length <= sizeof(*copy));
  void* bytes = copy;
  std::memset(bytes, 0, sizeof(*copy));
  std::memcpy(bytes, view_.unit(place + 1), header.length);
  return sys::Crc32c(copy, header.length) == header.payload_crc &&
         pool::IsNameRecord(*copy, header.length);
}

// Where the payload begins, and how much of it lies there before whole pages follow.
const uint8_t* Reader::PayloadAt(const RecordHeader& header, Place place, uint64_t* first) const {
  if (header.kind != Kind::kData) {
    const bool has_payload = header.kind == Kind::kFile || header.kind == Kind::kName;
    *first = has_payload ? header.length : 0;
    return view_.unit(place + 1);
  }
  *first = FirstLength(header.offset, header.length);
  return view_.unit(place + 1 + LinkUnits(PagesOf(header.offset, header.length)));
}

uint32_t Reader::PayloadCrc(const RecordHeader& header, Place place) const {
  uint64_t first = 0;
  const uint8_t* bytes = PayloadAt(header, place, &first);
  if (first == 0) return 0;
  const uint32_t crc = sys::Crc32c(bytes, first);
  return sys::Crc32c(bytes + UnitsOf(first) * pool::kUnitSize, header.length - first, crc);
}

Reader::Piece Reader::PieceAt(const RecordHeader& header, Place place, uint64_t page) const {
  const uint64_t first_page = header.offset / pool::kPageSize;
  NVCACHE_CHECK(header.kind == Kind::kData && page >= first_page &&
                page - first_page < PagesOf(header.offset, header.length));
  uint64_t first = 0;
  const uint8_t* bytes = PayloadAt(header, place, &first);
  if (page == first_page) return {header.offset, static_cast<uint32_t>(first), bytes};
  const uint64_t offset = page * pool::kPageSize;
  const uint64_t rest = header.offset + header.length - offset;
  const uint64_t skipped = (page - first_page - 1) * pool::kPageSize;
  return {offset, static_cast<uint32_t>(std::min(rest, pool::kPageSize)),
          bytes + UnitsOf(first) * pool::kUnitSize + skipped};
}

}  // namespace nvcache::nvlog
