// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/group_writer.h"

#include <algorithm>
#include <utility>

#include "src/sys/check.h"

namespace nvcache::nvlog {

using pmem::Step;

namespace {

// A group is short if it takes at most one of so many parts of a segment.
constexpr uint64_t kShortGroups = 4;

// So large a part of a segment is worth to be filled with the beginning of a group of
// write-through; one that does not fit into less begins the next segment.
constexpr uint64_t kWorthFilling = 8;

// The seat is told of so many bytes at once: its line is not this process's alone.
constexpr uint64_t kNoteBytes = 64 << 10;

// A record that settles makes room for others, and one of names is short.
bool MayTakeReserve(Kind kind) { return kind == Kind::kSettled || kind == Kind::kName; }

}  // namespace

GroupWriter::~GroupWriter() {
  while (!committed_ && first_taken_ != kNoSegment) {
    const uint32_t next = log_.segments_[first_taken_].next;
    log_.segments_.Free(first_taken_);
    first_taken_ = next;
  }
  if (!committed_ && adds_lane_) log_.segments_.DropLog(std::exchange(lane_.reserve, 0));
  lane_.lock.Unlock();
}

// ---------------------------------------------------------------------------------------------
// Where the group goes.

void GroupWriter::Start(pool::FileRecord* record) {
  record_ = record;
  start_ = lane_.end;
  if (start_.segment == kNoSegment || file_ == nullptr) return;
  declares_ = file_->declared[number_] != lane_.generation ||
              (!deferred() && file_->bypasses[number_ - kBackLanes] != bypasses_);
}

uint32_t GroupWriter::FileUnits() const {
  if (file_ == nullptr) return 0;
  return 1 + static_cast<uint32_t>(UnitsOf(pool::FileRecordSize(record_->path_length)));
}

bool GroupWriter::HasRoomInLane(uint64_t units) const {
  return start_.segment != kNoSegment && start_.unit + units + kLastUnits <= log_.units_;
}

GroupWriter::Part GroupWriter::InTaken(uint32_t segment) const {
  return {segment, static_cast<uint32_t>(kFirstUnit), FileUnits(), 0};
}

GroupWriter::Part GroupWriter::First() const {
  if (in_lane_) return {start_.segment, start_.unit, declares_ ? FileUnits() : 0, 0};
  return InTaken(first_taken_);
}

GroupWriter::Part GroupWriter::NextIn(const Part& part) const {
  const bool in_lane = in_lane_ && part.segment == start_.segment;
  return InTaken(in_lane ? first_taken_ : log_.segments_[part.segment].next);
}

void GroupWriter::FitPages(Part* part, uint64_t offset, uint64_t length) const {
  part->length = 0;
  const uint64_t first = offset / pool::kPageSize, room = RoomIn(*part);
  for (uint64_t pages = room / kUnitsPerPage + 1; pages > 0; --pages) {
    const uint64_t bytes = std::min(length, (first + pages) * pool::kPageSize - offset);
    if (DataUnits(offset, bytes) > room) continue;
    part->length = bytes;
    return;
  }
}

// A group of write-through that does not fit into the lane's segment is cut there.
bool GroupWriter::MayCut(const Part& part, bool whole) const {
  return !whole && RoomIn(part) >= log_.units_ / kWorthFilling;
}

Outcome GroupWriter::BeginData(uint64_t offset, uint64_t length, pool::FileRecord* record,
                               bool whole) {
  NVCACHE_CHECK(length > 0 && (!whole || log_.HoldsWhole(offset, length)));
  NVCACHE_CHECK(!deferred() || PagesOf(offset, length) <= log_.max_group_pages());
  Start(record);
  if (declares_ && record == nullptr) return Outcome::kUndeclared;
  offset_ = part_offset_ = offset;
  length_ = deferred() ? length : std::min(length, kMaxGroupBytes);
  uint64_t done = 0;
  if (start_.segment != kNoSegment) {
    part_ = {start_.segment, start_.unit, declares_ ? FileUnits() : 0, 0};
    Fit(&part_, offset_, length_);
    in_lane_ = deferred() ? part_.length > 0 : part_.length == length_ || MayCut(part_, whole);
    if (in_lane_) {
      done = part_.length;
      count_ = declares_ ? 2 : 1;
      if (!deferred()) length_ = done;
    }
  }
  if (done < length_ && record == nullptr) return Outcome::kUndeclared;
  uint32_t segments = 0;
  for (; done < length_; ++segments, count_ = static_cast<uint16_t>(count_ + 2)) {
    Part part = InTaken(kNoSegment);
    Fit(&part, offset_ + done, length_ - done);
    NVCACHE_CHECK(part.length > 0);
    if (count_ == 0) part_ = part;
    done += part.length;
    if (!deferred()) length_ = done;
  }
  if (const Outcome outcome = Begin(segments); outcome != Outcome::kDone) return outcome;
  if (!in_lane_) part_.segment = first_taken_;
  BeginPart();
  return Outcome::kDone;
}

// A record of `units`, without its payload, behind a file record where that is missing.
Outcome GroupWriter::BeginRecord(Kind kind, uint64_t offset, uint64_t length, uint64_t units,
                                 pool::FileRecord* record) {
  NVCACHE_CHECK((file_ == nullptr) == (kind == Kind::kName));
  Start(record);
  if (declares_ && record == nullptr) return Outcome::kUndeclared;
  in_lane_ = HasRoomInLane((declares_ ? FileUnits() : 0) + units);
  if (!in_lane_ && file_ != nullptr && record == nullptr) return Outcome::kUndeclared;
  count_ = file_ != nullptr && (declares_ || !in_lane_) ? 2 : 1;
  const Outcome outcome = Begin(in_lane_ ? 0 : 1, MayTakeReserve(kind));
  if (outcome != Outcome::kDone) return outcome;
  part_ = First();
  const Place place = part_.place(log_.units_);
  if (part_.file_units > 0) PutFileRecord(place - part_.file_units);
  NewHeader(kind, place, offset, length);
  at_ = place + units;
  units_ = part_.file_units + units;
  return Outcome::kDone;
}

Outcome GroupWriter::BeginMark(Kind kind, uint64_t offset, uint64_t length,
                               pool::FileRecord* record) {
  return BeginRecord(kind, offset, length, 1, record);
}

Outcome GroupWriter::BeginFile(pool::FileRecord* record) {
  Start(record);
  in_lane_ = HasRoomInLane(FileUnits());
  declares_ = true;
  count_ = 1;
  if (const Outcome outcome = Begin(in_lane_ ? 0 : 1); outcome != Outcome::kDone) return outcome;
  part_ = First();
  at_ = part_.place(log_.units_);
  PutFileRecord(at_ - part_.file_units);
  units_ = part_.file_units;
  return Outcome::kDone;
}

Outcome GroupWriter::BeginName(const pool::NameRecord& record) {
  length_ = pool::NameRecordSize(record);
  NVCACHE_CHECK(pool::IsNameRecord(record, length_));
  const Outcome outcome = BeginRecord(Kind::kName, 0, length_, 1 + UnitsOf(length_), nullptr);
  if (outcome != Outcome::kDone) return outcome;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
  uint8_t* payload = log_.view_.unit(first_place_ + 1);
  for (size_t done = 0; done < length_; done += pmem::kMaxCopy) {  // two long paths are more
    const size_t part = std::min(length_ - done, pmem::kMaxCopy);
    NVCACHE_CHECK(pmem::Copy(payload + done, bytes + done, part, nullptr,
                             &lane_.first_header.payload_crc, Step::kPayload));
  }
  return Outcome::kDone;
}

// The lane's segments for the group: the present one, and `segments` that are taken.
Outcome GroupWriter::Begin(uint32_t segments, bool reserved) {
  if (segments > 0 && !TakeSegments(segments, reserved)) return Outcome::kLogFull;
  if (deferred()) lsn_ = log_.Draw();
  return Outcome::kDone;
}

Lsn GroupWriter::Draw() {
  NVCACHE_CHECK(count_ > 0 && lsn_ == 0);
  return lsn_ = log_.Draw();
}

// To copy the lane's first segment, if a disk refuses its groups, and the whole of a group that
// goes on from there. The one segment more that each process leaves has room for a short one.
bool GroupWriter::LeaveRoomToKeep(uint32_t count) {
  const bool is_short =
      length_ == 0 || DataUnits(offset_, length_) <= log_.segments_.record_units() / kShortGroups;
  const uint32_t reserve = is_short ? 1 : count + (in_lane_ ? 1 : 0);
  if (reserve <= lane_.reserve) return true;
  if (!log_.segments_.ReserveMore(reserve - lane_.reserve, count)) return false;
  lane_.reserve = reserve;
  return true;
}

bool GroupWriter::TakeSegments(uint32_t count, bool reserved) {
  if (!log_.segments_.Has(count, reserved)) return false;
  if (start_.segment == kNoSegment) {
    adds_lane_ = log_.segments_.AddLog();
    if (!adds_lane_) return false;
    lane_.reserve = 1;
  }
  if (!LeaveRoomToKeep(count)) return false;
  Segments::Claim claim = {LogOf(number_), pool::SegmentKind::kLog, start_.segment,
                           lane_.generation, lane_.last};
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t taken = log_.segments_.Take(claim, &last_generation_, reserved);
    if (taken == kNoSegment) return false;
    (first_taken_ == kNoSegment ? first_taken_ : log_.segments_[last_taken_].next) = taken;
    last_taken_ = taken;
    claim.previous = taken;
    claim.previous_generation = last_generation_;
  }
  if (log_.Short() || log_.segments_.FallsBehind()) log_.Ring();
  return true;
}

// ---------------------------------------------------------------------------------------------
// Records and headers.

void GroupWriter::BeginPart() {
  const Place place = part_.place(log_.units_);
  if (part_.file_units > 0) PutFileRecord(place - part_.file_units);
  at_ = place + 1 + LinkUnits(PagesOf(part_offset_, part_.length));
  done_ = 0;
  crc_ = 0;
}

bool GroupWriter::AddPage(const uint8_t* bytes, uint32_t length, uint8_t* copy, Place link) {
  NVCACHE_CHECK(length >= 1 && length <= pool::kPageSize && done_ + length <= part_.length);
  NVCACHE_CHECK((part_offset_ + done_) % pool::kPageSize + length <= pool::kPageSize);
  if (staged()) copy = lane_.stage + (part_offset_ - offset_ + done_);
  if (!pmem::Copy(log_.view_.unit(at_), bytes, length, copy, &crc_, Step::kPayload)) {
    return false;
  }
  const Place place = part_.place(log_.units_);
  const uint64_t page = (part_offset_ + done_) / pool::kPageSize;
  if (done_ == 0) link_ = link;
  if (PagesOf(part_offset_, part_.length) > 1 && deferred()) {
    auto* links = reinterpret_cast<uint64_t*>(log_.view_.unit(place + 1));
    pmem::Note(links[page - part_offset_ / pool::kPageSize], link);
  }
  at_ += UnitsOf(length);
  done_ += length;
  if (done_ == part_.length) EndPart();
  return true;
}

// The record's header, and on to the next segment if the group goes on there.
void GroupWriter::EndPart() {
  const Place place = part_.place(log_.units_);
  RecordHeader& header = NewHeader(Kind::kData, place, part_offset_, part_.length);
  header.link = link_;
  header.payload_crc = crc_;
  units_ += part_.file_units + (at_ - place);
  part_offset_ += part_.length;
  if (part_offset_ == offset_ + length_) return;
  // The lane's own segment is closed by Commit().
  if (!in_lane_ || part_.segment != start_.segment) {
    log_.segments_[part_.segment].end = static_cast<uint32_t>(at_ - part_.segment * log_.units_);
  }
  part_ = NextIn(part_);
  Fit(&part_, part_offset_, offset_ + length_ - part_offset_);
  BeginPart();
}

int GroupWriter::Pieces(iovec (&pieces)[2]) const {
  NVCACHE_CHECK(!deferred() && done_ == length_);
  if (staged()) {
    pieces[0] = {lane_.stage, length_};
    return 1;
  }
  const Place payload = part_.place(log_.units_) + 1 + LinkUnits(PagesOf(offset_, length_));
  const uint64_t first = FirstLength(offset_, length_);
  pieces[0] = {log_.view_.unit(payload), first};
  pieces[1] = {log_.view_.unit(payload + UnitsOf(first)), length_ - first};
  return length_ == first ? 1 : 2;
}

void GroupWriter::PutFileRecord(Place place) {
  file_record_ = place;
  StoreFileRecord(log_.view_, *record_, place, &NewHeader(Kind::kFile, place, 0, 0));
}

// The header of the next record, at `place`. PutHeader() does the rest.
RecordHeader& GroupWriter::NewHeader(Kind kind, Place place, uint64_t offset, uint64_t length) {
  PutNextHeader();
  RecordHeader& header = index_ == 0 ? lane_.first_header : lane_.next_header;
  (index_ == 0 ? first_place_ : next_place_) = place;
  header = {};
  header.offset = offset;
  header.length = length;
  header.file = file_ != nullptr ? file_->number : 0;
  header.kind = kind;
  header.index = index_++;
  header.count = count_;
  return header;
}

void GroupWriter::PutHeader(RecordHeader* header, Place place, Step step) const {
  const auto segment = static_cast<uint32_t>(place / log_.units_);
  header->lsn = lsn_;
  Seal(header, place, log_.view_.segment(segment)->generation, log_.view_.salt());
  StoreHeader(log_.view_, *header, place, step);
}

void GroupWriter::PutNextHeader() {
  if (next_place_ == kNoPlace) return;
  PutHeader(&lane_.next_header, std::exchange(next_place_, kNoPlace), Step::kGroupHeaders);
}

// One line, the commit word last: a crash may leave any part of these stores, but the word only
// with all the rest.
void StoreHeader(const pool::View& view, const RecordHeader& header, Place place, Step step) {
  auto* line = reinterpret_cast<RecordHeader*>(view.unit(place));
  constexpr size_t kWord = sizeof(header.commit);
  pmem::Store(line->commit, kNotCommitted);
  pmem::StoreBytes(reinterpret_cast<uint8_t*>(line) + kWord,
                   reinterpret_cast<const uint8_t*>(&header) + kWord, sizeof(header) - kWord);
  pmem::Store(line->commit, header.commit);
  pmem::Pwb(line, sizeof(*line), step);
}

void StoreFileRecord(const pool::View& view, const pool::FileRecord& record, Place place,
                     RecordHeader* header) {
  header->kind = Kind::kFile;
  header->length = pool::FileRecordSize(record.path_length);
  NVCACHE_CHECK(pmem::Copy(view.unit(place + 1), &record, header->length, nullptr,
                           &header->payload_crc, Step::kPayload));
}

// ---------------------------------------------------------------------------------------------
// The commit.

Lsn GroupWriter::Commit() {
  NVCACHE_CHECK(index_ == count_ && lsn_ > lane_.last);
  PutNextHeader();
  PutHeader(&lane_.first_header, first_place_, Step::kCommit);
  pmem::Psync(Step::kCommitted);
  committed_ = true;
  MoveLane();
  if (deferred()) {
    log_.Committed(lsn_);
  } else {
    lane_.untold += length_;
    if (lane_.untold >= kNoteBytes) log_.NoteWritten(&lane_);
  }
  return lsn_;
}

// The lane goes on behind the group.
void GroupWriter::MoveLane() {
  const bool first = start_.segment == kNoSegment;
  if (first_taken_ != kNoSegment) {
    if (!first) {
      Segments::Info& info = log_.segments_[start_.segment];
      info.next = first_taken_;
      info.end = start_.unit;
      if (in_lane_) {
        Part part = First();
        Fit(&part, offset_, length_);
        info.end += part.file_units + static_cast<uint32_t>(DataUnits(offset_, part.length));
      }
    }
    lane_.generation = last_generation_;
  }
  lane_.end = {part_.segment, static_cast<uint32_t>(at_ - part_.segment * log_.units_)};
  if (first) lane_.first = first_taken_;
  lane_.last = lsn_;
  if (file_ == nullptr) return;
  file_->declared[number_] = lane_.generation;
  if (!deferred()) file_->bypasses[number_ - kBackLanes] = bypasses_;
  if (file_record_ != kNoPlace) file_->record.store(file_record_, std::memory_order_relaxed);
}

}  // namespace nvcache::nvlog
