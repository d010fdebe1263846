// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/reader.h"

#include <errno.h>
#include <linux/magic.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/words.h"

namespace nvcache::nvlog {

namespace {

constexpr uint64_t kUnitsOfPage = pool::kPageSize / pool::kUnitSize;
constexpr uint32_t kNone = ~uint32_t{0};

// What a file system calls a hole is zero. But not each of them looks at the pages that are mapped
// before it calls something so.
bool KnowsItsHoles(int fd) {
  struct statfs fs = {};
  return fd >= 0 && sys::Fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

template <typename T>
T* ReserveArray(size_t count) {
  return static_cast<T*>(sys::Reserve(count * sizeof(T)));
}
template <typename T>
void Release(T*& array, size_t count) {
  if (array != nullptr) sys::UnmapUnlocked(array, count * sizeof(T));
  array = nullptr;
}

// Left of a segment's header that was whole once: nobody but this pool's user writes what depends
// on the salt like this. One that was being taken has no word.
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

Reader::~Reader() {
  Release(segments_, reserved_);
  Release(generations_, reserved_);
  Release(indices_, reserved_);
  Release(checkpoints_, pool::kMaxSeats);
  Release(used_, pool::kMaxSeats);
}

bool Reader::Open(const pool::View& view, int fd, bool all) {
  fd_ = KnowsItsHoles(fd) ? fd : -1;
  all_ = all;
  return OpenSegments(view);
}

bool Reader::OpenSeat(const pool::View& view, const pool::Seats& seats, uint32_t seat) {
  seats_ = &seats;
  seat_ = seat;
  return OpenSegments(view);
}

bool Reader::OpenSegments(const pool::View& view) {
  NVCACHE_CHECK(segments_ == nullptr);
  view_ = view;
  segment_units_ = view.segment_units();
  reserved_ = view.segment_count();
  segments_ = ReserveArray<Segment>(reserved_);
  generations_ = ReserveArray<Lsn>(reserved_);
  indices_ = ReserveArray<uint32_t>(reserved_);
  checkpoints_ = ReserveArray<Lsn>(pool::kMaxSeats);
  used_ = ReserveArray<bool>(pool::kMaxSeats);
  if (segments_ == nullptr || used_ == nullptr || generations_ == nullptr || indices_ == nullptr ||
      checkpoints_ == nullptr) {
    return false;
  }
  ReadCheckpoints();
  AddDamaged();
  Choose();
  return true;
}

// And the headers of all segments.
void Reader::ReadCheckpoints() {
  int records_valid = 0;
  Lsn all_logs = 0;
  const bool known = pool::ReadCheckpoint(view_, &all_logs, &records_valid) || !all_;
  for (uint32_t seat = 0; seat < view_.seat_count() && known; ++seat) {
    Lsn& own = checkpoints_[seat];
    pool::ReadSeatCheckpoint(view_, seat, &own, &records_valid);
    if (own != 0) used_[seat] = true;
    own = std::max(own, all_logs);
    newest_ = std::max(newest_, checkpoints_[seat]);
  }
  if (known) {
    pool::ReadThroughCheckpoint(view_, &through_, &records_valid);
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
  Lsn all_logs = 0, own = 0;
  int records_valid = 0;
  pool::ReadCheckpoint(view_, &all_logs, &records_valid);
  if (pool::IsThroughLog(log)) {
    pool::ReadThroughCheckpoint(view_, &own, &records_valid);
  } else {
    pool::ReadSeatCheckpoint(view_, log / pool::kLogsOfSeat, &own, &records_valid);
  }
  return std::max({all_logs, own, checkpoint(log)});
}

// The first header, or the copy: a segment that is being taken has a whole copy, perhaps, and
// nothing in it that counts.
bool Reader::Look(uint32_t number, Segment* segment, Lsn* checkpoint) const {
  const Place last = PlaceOf(number, segment_units_ - 1);
  pool::SegmentHeader header = {};
  const bool found = (!IsNothing(PlaceOf(number, 0)) &&
                      pool::CopySegmentHeader(view_, *view_.segment(number), number, &header)) ||
                     (!IsNothing(last) &&
                      pool::CopySegmentHeader(view_, *view_.segment_copy(number), number, &header));
  if (!found) return false;
  const bool kept = header.kind == pool::SegmentKind::kKept;
  // Kept records have the LSNs of their groups.
  const Lsn floor = kept ? 0 : header.generation;
  *segment = {header.generation,
              floor,
              header.checkpoint,
              header.previous_generation,
              header.previous_last,
              header.previous_number,
              number,
              header.log,
              kNone,
              kept,
              header.kind == pool::SegmentKind::kFrames,
              false};
  *checkpoint = header.checkpoint;
  return true;
}

// Behind the others, segments without a whole header in which something may be pending.
void Reader::AddDamaged() {
  const uint32_t whole = segment_count_;
  for (uint32_t number = 0; number < view_.segment_count(); ++number) {
    if (generations_[number] != 0 || IsLeftOut(number)) continue;  // its header is whole
    if (!WasTaken(number) && !IsNamed(number, whole) &&
        (IsBeingTaken(number) || !HoldsPending(number))) {
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
    if (IsNothing(PlaceOf(number, unit))) continue;
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
// free then. What lies in it is below the checkpoint of the seat that had it, though not of every
// seat.
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
  return IsNothing(place) || std::memcmp(view_.unit(place), kZeros, sizeof(kZeros)) == 0;
}

// By two words of the unit: most units are bytes of a payload.
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
  for (Place place = PlaceOf(number, kFirstUnit); (place = AfterNothing(place, end)) < end;) {
    const Place page_end = std::min((place / kUnitsOfPage + 1) * kUnitsOfPage, end);
    for (; place < page_end; ++place) {
      if (IsPending(place, end)) return true;
    }
  }
  return false;
}

// In the order in which a walk wants them, without those that are below the checkpoint, all of
// them.
void Reader::Choose() {
  std::sort(segments_, segments_ + segment_count_, [](const Segment& a, const Segment& b) {
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

// A log gives back the segments that it took for a group that came to nothing, and takes others for
// the next one: of all that name a segment as the one before, the newest is its next.
void Reader::Chain() {
  for (uint32_t i = 0; i < segment_count_; ++i) {
    segments_[i].next = kNone;
    indices_[segments_[i].number] = i;
  }
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const Segment& next = segments_[i];
    if (next.damaged || next.kept || next.previous_generation == 0) continue;
    const uint32_t before = indices_[next.previous_number];
    if (before >= i) continue;
    Segment& segment = segments_[before];
    if (segment.number == next.previous_number && segment.log == next.log && !segment.kept &&
        !segment.damaged && segment.generation == next.previous_generation) {
      segment.next = i;
    }
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
    const Place place = PlaceOf(next.number, unit);
    if (IsNothing(place) || !CopyHeader(place, &header) || header.lsn <= next.floor) return false;
    unit += RecordUnits(header);
  } while (header.index != 0);
  return header.lsn <= done && (header.commit == CommitWord(header.lsn, view_.salt()) ||
                                header.commit == VoidWord(header.lsn, view_.salt()));
}

// ---------------------------------------------------------------------------------------------
// Records.

bool Reader::CopyHeader(Place place, RecordHeader* header) const {
  const uint64_t unit = place % segment_units_;
  if (unit < kFirstUnit || unit >= UnitsEnd()) return false;
  // Checked and used: what lies in the pool may change while we look.
  sys::CopyWords(header, view_.unit(place), sizeof(*header));
  return IsSane(*header, UnitsEnd() - unit) &&
         header->header_crc == HeaderCrc(*header, place, GenerationOf(place), view_.salt());
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

// A new pool's memory is made when it is used. It is not made, page by page, to find nothing in it:
// so the question comes before the first look at the page.
Place Reader::AfterNothing(Place place, Place end) const {
  if (fd_ < 0) return place;
  const uint64_t page = pool::kSegmentsOffset + place / kUnitsOfPage * pool::kPageSize;
  if (page >= data_begin_ && page < data_end_) return place;
  if (page < hole_begin_ || page >= hole_end_) {
    const long data = sys::Lseek(fd_, static_cast<off_t>(page), SEEK_DATA);
    const bool none = data == -ENXIO;  // nothing up to the end of the pool
    const long hole = data < 0 ? data : sys::Lseek(fd_, data, SEEK_HOLE);
    if (hole < 0 && !none) return place;
    // The kernel looks at page after page, so it is asked once.
    hole_begin_ = page;
    hole_end_ = none ? ~uint64_t{0} : static_cast<uint64_t>(data);
    data_begin_ = none ? 0 : static_cast<uint64_t>(data);
    data_end_ = none ? 0 : static_cast<uint64_t>(hole);
    if (data_begin_ <= page && !none) return place;
  }
  return std::min((hole_end_ - pool::kSegmentsOffset) / pool::kUnitSize, end);
}

// ---------------------------------------------------------------------------------------------
// The walk: one stream for each log and for each kept segment, merged by LSN.

GroupWalk::~GroupWalk() {
  Release(streams_, reserved_);
  Release(heap_, reserved_);
  Release(epochs_, reserved_);
  Release(members_, kMaxGroupRecords);
  Release(records_, 2);
  Release(file_list_, file_capacity_);
  Release(buckets_, file_capacity_);
  Release(names_, name_capacity_);
}

bool GroupWalk::Open() {
  NVCACHE_CHECK(streams_ == nullptr);
  reserved_ = reader_.view_.segment_count();
  streams_ = ReserveArray<Stream>(reserved_);
  heap_ = ReserveArray<uint32_t>(reserved_);
  epochs_ = ReserveArray<uint32_t>(reserved_);
  members_ = ReserveArray<Member>(kMaxGroupRecords);
  records_ = ReserveArray<pool::FileRecord>(2);
  if (streams_ == nullptr || heap_ == nullptr || epochs_ == nullptr || members_ == nullptr ||
      records_ == nullptr || !GrowNames() || !GrowFiles()) {
    return false;
  }
  uint32_t i = 0;
  while (i < reader_.segment_count_ && reader_.segments_[i].damaged) ++i;
  total_ = (reader_.segment_count_ - i) * reader_.segment_units_;
  while (i < reader_.segment_count_) {
    Stream& stream = streams_[stream_count_];
    const Reader::Segment& first = reader_.segments_[i];
    stream.segment = i++;
    while (!first.kept && i < reader_.segment_count_ && !reader_.segments_[i].kept &&
           reader_.segments_[i].log == first.log) {
      ++i;
    }
    stream.end = i;
    stream.unit = kFirstUnit;
    stream.last = first.kept ? 0 : first.previous_last;
    Push(stream_count_++);
  }
  return true;
}

void GroupWalk::Push(uint32_t index) {
  if (!Peek(&streams_[index])) return;
  heap_[heap_size_++] = index;
  std::push_heap(heap_, heap_ + heap_size_,
                 [this](uint32_t a, uint32_t b) { return IsAfter(a, b); });
}

bool GroupWalk::Next(Group* group) {
  if (NextDamaged(group)) return true;
  if (current_ != kNone) Push(current_);
  current_ = kNone;
  while (heap_size_ > 0) {
    std::pop_heap(heap_, heap_ + heap_size_,
                  [this](uint32_t a, uint32_t b) { return IsAfter(a, b); });
    const uint32_t index = heap_[--heap_size_];
    Stream* stream = &streams_[index];
    member_count_ = 0;
    if (stream->group.records == 0 || Collect(stream)) {
      *group = stream->group;
      current_ = index;
      return true;
    }
    Push(index);
  }
  return false;
}

// In a pool that is in use, what looks damaged may have been taken at that moment.
bool GroupWalk::NextDamaged(Group* group) {
  while (damaged_ < reader_.segment_count_ && reader_.segments_[damaged_].damaged) {
    const uint32_t number = reader_.segments_[damaged_++].number;
    Reader::Segment again;
    Lsn checkpoint = 0;
    if (reader_.Look(number, &again, &checkpoint)) continue;
    const Place place = reader_.PlaceOf(number, 0);
    *group = {place, 0, 0, Verdict::kDamaged, place, 0, false};
    return true;
  }
  return false;
}

void GroupWalk::MoveTo(Stream* stream, uint32_t segment, uint64_t unit) {
  done_ += uint64_t{segment} * reader_.segment_units_ + unit;
  done_ -= uint64_t{stream->segment} * reader_.segment_units_ + stream->unit;
  stream->segment = segment;
  stream->unit = unit;
}

// The log's next group: its first header, or that it is lost. False at the end.
bool GroupWalk::Peek(Stream* stream) {
  while (stream->segment < stream->end) {
    const Reader::Segment& segment = SegmentOf(*stream);
    const Place place = reader_.PlaceOf(segment.number, stream->unit);
    RecordHeader header;
    if (stream->unit >= reader_.UnitsEnd() || IsTakenAgain(segment)) {
      MoveTo(stream, stream->segment + 1, kFirstUnit);
    } else if (IsFirst(*stream, place, &header)) {
      if (PeekFirst(stream, header, place)) return true;
    } else if (PeekLost(stream, place)) {
      return true;
    }
  }
  return false;
}

// The stream's next group has an LSN above this. Several kept groups may have the same.
Lsn GroupWalk::Above(const Stream& stream) const {
  if (SegmentOf(stream).kept) return std::max<Lsn>(stream.last, 1) - 1;
  return std::max(stream.last, SegmentOf(stream).floor);
}

bool GroupWalk::IsFirst(const Stream& stream, Place place, RecordHeader* header) const {
  const Lsn above = Above(stream);
  return !reader_.IsNothing(place) && reader_.CopyHeader(place, header) && header->index == 0 &&
         header->lsn > above;
}

bool GroupWalk::PeekFirst(Stream* stream, const RecordHeader& first, Place place) {
  const Reader::Segment& segment = SegmentOf(*stream);
  reader_.newest_ = std::max(reader_.newest_, first.lsn);
  stream->torn = false;
  stream->key = first.lsn;
  stream->group = {place,    first.lsn,   first.count, Verdict::kCommitted,
                   kNoPlace, segment.log, segment.kept};
  if (reader_.all_ || segment.kept || first.lsn >= reader_.checkpoint(segment.log)) return true;
  // Of no interest but for the files that it names.
  CollectMembers(stream, false);
  MeetFiles();
  stream->last = first.lsn;
  return false;
}

// A record of a group below the checkpoint that began in a segment which is free by now.
bool GroupWalk::StepOverRest(Stream* stream, Place place) {
  const Reader::Segment& segment = SegmentOf(*stream);
  Member member = {{}, place};
  const RecordHeader& header = member.header;
  if (segment.kept || reader_.IsNothing(place) || !reader_.CopyHeader(place, &member.header) ||
      header.lsn <= segment.floor || header.lsn < stream->last ||
      header.lsn >= reader_.checkpoint(segment.log)) {
    return false;
  }
  if (header.kind == Kind::kFile) MeetFile(member);
  stream->last = header.lsn;
  MoveTo(stream, stream->segment, stream->unit + RecordUnits(header));
  return true;
}

// There is no first header where one could be: the end of what the segment holds, or damage if the
// log goes on behind it.
bool GroupWalk::PeekLost(Stream* stream, Place place) {
  const Reader::Segment segment = SegmentOf(*stream);
  const Lsn above = Above(*stream);
  if (StepOverRest(stream, place)) return false;
  Lsn lsn = 0;
  const Trace trace = TraceAt(*stream, place, &lsn);
  RecordHeader next = {};
  uint64_t unit = 0;
  const bool goes_on = FindFirst(stream->segment, stream->unit, above, &next, &unit);
  Lsn bound = 0;  // what is lost has an LSN below it; 0: nothing is
  if (goes_on) {
    if (trace != Trace::kVoid && !stream->torn) bound = next.lsn;
    if (!IsLostData(place, unit)) ++epochs_[segment.number];
    stream->torn = false;
    MoveTo(stream, stream->segment, unit);
  } else {
    const Lsn last = segment.next == kNone ? 0 : reader_.segments_[segment.next].previous_last;
    if (last > stream->last) bound = last + 1;
    if (trace == Trace::kCommitted) bound = std::max(bound, lsn + 1);
    MoveTo(stream, stream->segment + 1, kFirstUnit);
  }
  if (bound == 0 || !Matters(segment, bound)) return false;
  stream->key = stream->last;
  stream->group = {
      place,       trace == Trace::kCommitted ? lsn : 0, 0, Verdict::kDamaged, place, segment.log,
      segment.kept};
  return true;
}

// Whether groups below `bound` that are not whole are a loss: not if the checkpoint has passed
// them, nor if the pool is in use and somebody has taken the segment meanwhile.
bool GroupWalk::Matters(const Reader::Segment& segment, Lsn bound) const {
  if (IsTakenAgain(segment)) return false;
  if (segment.kept || (reader_.all_ && reader_.checkpoint(segment.log) == 0)) return true;
  return bound > reader_.CheckpointNow(segment.log);
}

bool GroupWalk::IsTakenAgain(const Reader::Segment& segment) const {
  Reader::Segment now;
  Lsn checkpoint = 0;
  return !reader_.Look(segment.number, &now, &checkpoint) || now.generation != segment.generation;
}

// The next first header of a group in segment `index`, from `unit` on.
bool GroupWalk::FindFirst(uint32_t index, uint64_t unit, Lsn above, RecordHeader* header,
                          uint64_t* found) const {
  const Reader::Segment& segment = reader_.segments_[index];
  const Place begin = reader_.PlaceOf(segment.number, 0);
  const Place end = begin + reader_.UnitsEnd();
  for (Place place = begin + unit; place < end; ++place) {
    place = reader_.AfterNothing(place, end);
    if (place >= end || !reader_.CopyHeader(place, header) || header->lsn <= segment.floor)
      continue;
    reader_.newest_ = std::max(reader_.newest_, header->lsn);
    if (header->index != 0 || header->lsn <= above) continue;
    *found = place - begin;
    return true;
  }
  return false;
}

// A header that is not whole, and was: its word goes with its LSN, or with its checksum. Or one
// that is whole, and its LSN runs backward. What a power failure or a former life of the segment
// leaves does not look so.
GroupWalk::Trace GroupWalk::TraceAt(const Stream& stream, Place place, Lsn* lsn) const {
  const Lsn above = Above(stream);
  RecordHeader header = {};
  if (reader_.IsNothing(place)) return Trace::kNone;
  const uint64_t salt = reader_.view_.salt();
  if (reader_.CopyHeader(place, &header)) {
    *lsn = header.lsn;
    const bool was_committed = header.index == 0 && header.commit == CommitWord(header.lsn, salt);
    return was_committed ? Trace::kCommitted : Trace::kNone;
  }
  sys::CopyWords(&header, reader_.view_.unit(place), sizeof(header));
  // Of the former life of a kept segment there may be older ones than what is kept.
  const Reader::Segment& segment = SegmentOf(stream);
  const Lsn least = segment.kept ? segment.checkpoint : 0;
  for (const Trace trace : {Trace::kCommitted, Trace::kVoid}) {
    *lsn = (trace == Trace::kCommitted ? header.commit : ~header.commit) ^ salt;
    if (trace == Trace::kVoid) *lsn &= ~(uint64_t{1} << pool::kLsnBits);  // of either word
    if (*lsn <= above || *lsn < least || *lsn >> pool::kLsnBits != 0) continue;
    RecordHeader repaired = header;
    repaired.lsn = *lsn;
    if (header.lsn == *lsn ||
        header.header_crc == HeaderCrc(repaired, place, reader_.GenerationOf(place), salt)) {
      return trace;
    }
  }
  return Trace::kNone;
}

// All that was lost in front of `unit` is the header of a data record: no file record, after which
// a number would name another file.
bool GroupWalk::IsLostData(Place place, uint64_t unit) const {
  const uint64_t at = place % reader_.segment_units_;
  RecordHeader header = {};
  sys::CopyWords(&header, reader_.view_.unit(place), sizeof(header));
  if (header.kind != Kind::kData || header.length < 1 || header.length > kMaxGroupBytes ||
      header.offset >> 63 != 0 || at + RecordUnits(header) != unit ||
      reader_.PayloadCrc(header, place) != header.payload_crc) {
    return false;
  }
  if (header.length > sizeof(pool::FileRecord)) return true;
  void* record = &records_[0];
  std::memset(record, 0, sizeof(records_[0]));
  std::memcpy(record, reader_.view_.unit(place + 1), header.length);
  return !pool::IsFileRecord(records_[0], header.length);
}

// ---------------------------------------------------------------------------------------------
// Groups.

// The member of the group that lies here, or at the beginning of the log's next segment.
bool GroupWalk::FindMember(Stream* stream, const RecordHeader& first, uint32_t index,
                           Member* member) {
  const auto is_member = [&](Place place) {
    const RecordHeader& header = member->header;
    member->place = place;
    return !reader_.IsNothing(place) && reader_.CopyHeader(place, &member->header) &&
           header.lsn == first.lsn && header.index == index && header.count == first.count;
  };
  if (stream->unit < reader_.UnitsEnd() &&
      is_member(reader_.PlaceOf(SegmentOf(*stream).number, stream->unit))) {
    return true;
  }
  const uint32_t next = SegmentOf(*stream).next;
  if (next == kNone || !is_member(reader_.PlaceOf(reader_.segments_[next].number, kFirstUnit))) {
    return false;
  }
  MoveTo(stream, next, kFirstUnit);
  return true;
}

// Fills members_ from the group that begins where the stream is, and moves the stream behind those
// that are there. Returns the place of the first that is not as it was written.
Place GroupWalk::CollectMembers(Stream* stream, bool payloads) {
  member_count_ = 0;
  Place damaged = kNoPlace;
  RecordHeader first = {};
  first.lsn = stream->group.lsn;
  first.count = static_cast<uint16_t>(stream->group.records);
  for (uint32_t index = 0; index < first.count; ++index) {
    Member* member = &members_[index];
    if (!FindMember(stream, first, index, member)) {
      stream->torn = true;
      if (damaged != kNoPlace) return damaged;
      return reader_.PlaceOf(SegmentOf(*stream).number, stream->unit);
    }
    ++member_count_;
    const RecordHeader& header = member->header;
    if (payloads && damaged == kNoPlace &&
        reader_.PayloadCrc(header, member->place) != header.payload_crc) {
      damaged = member->place;
    }
    MoveTo(stream, stream->segment, stream->unit + RecordUnits(header));
  }
  return damaged;
}

// Says what has become of the group that the stream has come to. False: it is of no interest.
bool GroupWalk::Collect(Stream* stream) {
  const uint32_t segment = stream->segment;
  const uint64_t unit = stream->unit;
  Group& group = stream->group;
  bool first_damaged = false;
  const auto judge = [&] {
    MoveTo(stream, segment, unit);
    stream->torn = false;
    group.damaged = CollectMembers(stream, true);
    const uint64_t word = member_count_ > 0 ? members_[0].header.commit : kNotCommitted;
    if (word == VoidWord(group.lsn, reader_.view_.salt())) {
      group.damaged = kNoPlace;
      group.verdict = Verdict::kVoid;
    } else if (word != CommitWord(group.lsn, reader_.view_.salt())) {
      group.damaged = group.place;
      first_damaged = word != kNotCommitted;
    }
  };
  judge();
  stream->last = group.lsn;
  bool goes_on = false;
  if (group.damaged != kNoPlace) {
    goes_on = GoesOn(*stream, group.lsn);
    // Its PSYNC is over: in a pool that is in use, all of it is to be seen by now.
    if (goes_on) judge();
  }
  MeetFiles();
  const Reader::Segment& begin = reader_.segments_[segment];
  const bool below = !begin.kept && group.lsn < reader_.checkpoint(begin.log);
  if (group.damaged == kNoPlace) {
    if (below && group.verdict == Verdict::kCommitted) group.verdict = Verdict::kOnDisk;
    return true;
  }
  group.verdict = goes_on || first_damaged ? Verdict::kDamaged : Verdict::kUnfinished;
  // Of a copy that was never finished, the original counts; and nothing would ever end it.
  if (begin.kept && group.verdict == Verdict::kUnfinished) return false;
  return Matters(begin, group.lsn + 1);
}

// Whether the log says that the group was committed: by a later one, or by the header of a later
// segment.
bool GroupWalk::GoesOn(const Stream& stream, Lsn lsn) const {
  RecordHeader header;
  uint64_t unit = 0;
  if (stream.segment == stream.end) return false;
  const Lsn above = SegmentOf(stream).kept ? lsn - 1 : lsn;
  if (FindFirst(stream.segment, stream.unit, above, &header, &unit)) return true;
  for (uint32_t i = stream.segment + 1; i < stream.end; ++i) {
    if (reader_.segments_[i].previous_last >= lsn) return true;
  }
  const uint32_t last = stream.end - 1;
  return last != stream.segment && FindFirst(last, kFirstUnit, lsn, &header, &unit);
}

// ---------------------------------------------------------------------------------------------
// Files.

// Those that the group names, whatever has become of it: later groups rely on its file records.
void GroupWalk::MeetFiles() {
  for (uint32_t i = 0; i < member_count_; ++i) {
    if (members_[i].header.kind == Kind::kFile) MeetFile(members_[i]);
  }
}

void GroupWalk::MeetFile(const Member& member) {
  const auto segment = static_cast<uint32_t>(member.place / reader_.segment_units_);
  pool::FileRecord* record = &records_[0];
  if (!CopyRecordAt(member.place, record)) {
    SetName(segment, member.header.file, kNoFile);
    return;
  }
  const uint64_t hash = pool::Fingerprint(*record) ^ record->file_system * 0x9e3779b97f4a7c15;
  uint32_t file = FindFile(*record, hash);
  if (file == kNoFile) file = AddFile(hash);
  if (file != kNoFile) {
    File& known = file_list_[file];
    if (member.header.lsn >= known.lsn) known.record = member.place;
    known.lsn = std::max(known.lsn, member.header.lsn);
  }
  SetName(segment, member.header.file, file);
}

bool GroupWalk::CopyRecordAt(Place place, pool::FileRecord* copy) const {
  RecordHeader header;
  if (!reader_.CopyHeader(place, &header) || header.kind != Kind::kFile) return false;
  void* bytes = copy;
  std::memset(bytes, 0, sizeof(*copy));
  std::memcpy(bytes, reader_.view_.unit(place + 1), header.length);
  return sys::Crc32c(copy, header.length) == header.payload_crc &&
         pool::IsFileRecord(*copy, header.length);
}

bool GroupWalk::CopyRecord(uint32_t file, pool::FileRecord* copy) const {
  NVCACHE_CHECK(file < file_count_);
  return CopyRecordAt(file_list_[file].record, copy);
}

Place GroupWalk::RecordOf(uint32_t file) const {
  NVCACHE_CHECK(file < file_count_);
  return file_list_[file].record;
}

uint32_t GroupWalk::FindFile(const pool::FileRecord& record, uint64_t hash) const {
  for (uint32_t i = buckets_[hash % file_capacity_]; i != 0; i = file_list_[i - 1].next) {
    pool::FileRecord* other = &records_[1];
    if (file_list_[i - 1].hash == hash && CopyRecordAt(file_list_[i - 1].record, other) &&
        pool::SameFile(record, *other) && record.file_system == other->file_system) {
      return i - 1;
    }
  }
  return kNoFile;
}

uint32_t GroupWalk::AddFile(uint64_t hash) {
  if (file_count_ == file_capacity_ && !GrowFiles()) return kNoFile;
  const uint32_t file = file_count_++;
  uint32_t* bucket = &buckets_[hash % file_capacity_];
  file_list_[file] = {kNoPlace, 0, hash, *bucket};
  *bucket = file + 1;
  return file;
}

bool GroupWalk::GrowFiles() {
  constexpr uint32_t kFirstFiles = 1024;
  const uint32_t capacity = file_capacity_ == 0 ? kFirstFiles : file_capacity_ * 2;
  auto* files = ReserveArray<File>(capacity);
  auto* buckets = ReserveArray<uint32_t>(capacity);
  if (files == nullptr || buckets == nullptr) {
    Release(files, capacity);
    Release(buckets, capacity);
    return false;
  }
  for (uint32_t i = 0; i < file_count_; ++i) {
    uint32_t* bucket = &buckets[file_list_[i].hash % capacity];
    files[i] = file_list_[i];
    files[i].next = *bucket;
    *bucket = i + 1;
  }
  Release(file_list_, file_capacity_);
  Release(buckets_, file_capacity_);
  file_list_ = files;
  buckets_ = buckets;
  file_capacity_ = capacity;
  return true;
}

// ---------------------------------------------------------------------------------------------
// Numbers.

namespace {

uint64_t NameKey(uint32_t segment, uint32_t number) {
  return (uint64_t{segment} << 32 | number) + 1;
}

}  // namespace

uint32_t GroupWalk::FileOf(const RecordHeader& header, Place place) const {
  if (header.kind == Kind::kName) return kNoFile;
  const auto segment = static_cast<uint32_t>(place / reader_.segment_units_);
  const Name* name = SlotOf(names_, name_capacity_, NameKey(segment, header.file));
  return name->key != 0 && name->epoch == epochs_[segment] ? name->file : kNoFile;
}

void GroupWalk::SetName(uint32_t segment, uint32_t number, uint32_t file) {
  const uint64_t key = NameKey(segment, number);
  Name* name = SlotOf(names_, name_capacity_, key);
  if (name->key == 0) {
    if (name_count_ >= name_capacity_ / 2) {
      if (!GrowNames()) return;
      name = SlotOf(names_, name_capacity_, key);
    }
    ++name_count_;
  }
  *name = {key, epochs_[segment], file};
}

// Where the key is, or may go. There is always room.
GroupWalk::Name* GroupWalk::SlotOf(Name* names, uint32_t capacity, uint64_t key) const {
  uint64_t at = (key * 0x9e3779b97f4a7c15) >> 32;
  while (names[at % capacity].key != 0 && names[at % capacity].key != key) ++at;
  return &names[at % capacity];
}

bool GroupWalk::GrowNames() {
  constexpr uint32_t kFirstNames = 4096;
  const uint32_t capacity = name_capacity_ == 0 ? kFirstNames : name_capacity_ * 2;
  auto* names = ReserveArray<Name>(capacity);
  if (names == nullptr) return false;
  for (uint32_t i = 0; i < name_capacity_; ++i) {
    if (names_[i].key != 0) *SlotOf(names, capacity, names_[i].key) = names_[i];
  }
  Release(names_, name_capacity_);
  names_ = names;
  name_capacity_ = capacity;
  return true;
}

}  // namespace nvcache::nvlog
