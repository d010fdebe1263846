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

GroupWriter::Part GroupWriter::First() const {
  if (in_lane_) return {start_.segment, start_.unit, declares_ ? FileUnits() : 0, 0};
  return {first_taken_, static_cast<uint32_t>(kFirstUnit), FileUnits(), 0};
}

GroupWriter::Part GroupWriter::NextIn(const Part& part) const {
  const bool in_lane = in_lane_ && part.segment == start_.segment;
  const uint32_t next = in_lane ? first_taken_ : log_.segments_[part.segment].next;
  return {next, static_cast<uint32_t>(kFirstUnit), FileUnits(), 0};
}

void GroupWriter::FitPages(Part* part, uint64_t offset, uint64_t length, uint64_t room) const {
  part->length = 0;
  const uint64_t first = offset / pool::kPageSize;
  for (uint64_t pages = room / kUnitsPerPage + 1; pages > 0; --pages) {
    const uint64_t bytes = std::min(length, (first + pages) * pool::kPageSize - offset);
    if (DataUnits(offset, bytes) > room) continue;
    part->length = bytes;
    return;
  }
}

bool GroupWriter::FitsInLane(uint64_t units) const {
  return start_.segment != kNoSegment && start_.unit + units + kLastUnits <= log_.units_;
}

// The lane's segments for the group: the present one, and `segments` that are taken. The LSN comes
// after these: a mirror relies on it (Segments::Take).
Outcome GroupWriter::Begin(uint32_t segments) {
  if (segments > 0 && !TakeSegments(segments)) return Outcome::kLogFull;
  lsn_ = log_.Draw();
  return Outcome::kDone;
}

Outcome GroupWriter::BeginData(uint64_t offset, uint64_t length, pool::FileRecord* record) {
  NVCACHE_CHECK(length > 0 && PagesOf(offset, length) <= log_.max_group_pages());
  record_ = record;
  start_ = lane_.end;
  offset_ = offset;
  length_ = length;
  declares_ = start_.segment != kNoSegment && file_.declared[number_] != lane_.generation;
  if (start_.segment != kNoSegment && !declares_) {
    Part part = {start_.segment, start_.unit, 0, 0};
    Fit(&part, offset, length);
    in_lane_ = part.length > 0;
    if (part.length < length && record == nullptr) return Outcome::kUndeclared;
    length -= part.length;
    offset += part.length;
    count_ = in_lane_ ? 1 : 0;
  } else if (record == nullptr) {
    return Outcome::kUndeclared;
  } else if (declares_) {
    Part part = {start_.segment, start_.unit, FileUnits(), 0};
    Fit(&part, offset, length);
    in_lane_ = part.length > 0;
    length -= part.length;
    offset += part.length;
    count_ = in_lane_ ? 2 : 0;
  }
  uint32_t segments = 0;
  for (; length > 0; ++segments, count_ = static_cast<uint16_t>(count_ + 2)) {
    Part part = {kNoSegment, static_cast<uint32_t>(kFirstUnit), FileUnits(), 0};
    Fit(&part, offset, length);
    NVCACHE_CHECK(part.length > 0);
    length -= part.length;
    offset += part.length;
  }
  if (const Outcome outcome = Begin(segments); outcome != Outcome::kDone) return outcome;
  part_ = First();
  part_offset_ = offset_;
  BeginPart();
  return Outcome::kDone;
}

Outcome GroupWriter::BeginMark(Kind kind, uint64_t offset, uint64_t length,
                               pool::FileRecord* record) {
  record_ = record;
  start_ = lane_.end;
  declares_ = start_.segment != kNoSegment && file_.declared[number_] != lane_.generation;
  in_lane_ = !declares_ ? FitsInLane(1) : record != nullptr && FitsInLane(FileUnits() + 1);
  if ((declares_ || !in_lane_) && record == nullptr) return Outcome::kUndeclared;
  const bool declares = declares_ || !in_lane_;
  count_ = declares ? 2 : 1;
  if (const Outcome outcome = Begin(in_lane_ ? 0 : 1); outcome != Outcome::kDone) return outcome;
  part_ = First();
  if (declares) PutFileRecord(part_.segment * log_.units_ + part_.unit);
  const Place place = part_.place(log_.units_);
  NewHeader(kind, offset, length);
  PutHeader(place);
  at_ = place + 1;
  units_ = part_.file_units + 1;
  return Outcome::kDone;
}

Outcome GroupWriter::BeginFile(pool::FileRecord* record) {
  record_ = record;
  start_ = lane_.end;
  in_lane_ = FitsInLane(FileUnits());
  declares_ = true;
  count_ = 1;
  if (const Outcome outcome = Begin(in_lane_ ? 0 : 1); outcome != Outcome::kDone) return outcome;
  part_ = First();
  const Place place = part_.segment * log_.units_ + part_.unit;
  PutFileRecord(place);
  at_ = place + part_.file_units;
  units_ = part_.file_units;
  return Outcome::kDone;
}

// To copy the lane's first segment, if a disk refuses its groups, and the whole of a group that
// goes on from there. The one segment more that each process leaves has room for a short one.
bool GroupWriter::LeaveRoomToKeep(uint32_t count) {
  const bool is_short =
      length_ == 0 || DataUnits(offset_, length_) <= log_.segments_.record_units() / kShortGroups;
  const uint32_t beyond = count - (start_.segment == kNoSegment ? 1 : 0);
  const uint32_t reserve = is_short ? 1 : 1 + beyond;
  if (reserve <= lane_.reserve) return true;
  if (!log_.segments_.ReserveMore(reserve - lane_.reserve, count)) return false;
  lane_.reserve = reserve;
  return true;
}

bool GroupWriter::TakeSegments(uint32_t count) {
  if (!log_.segments_.Has(count)) return false;
  if (start_.segment == kNoSegment) {
    adds_lane_ = log_.segments_.AddLog();
    if (!adds_lane_) return false;
    lane_.reserve = 1;
  }
  if (!LeaveRoomToKeep(count)) return false;
  Segments::Claim claim = {number_,        pool::SegmentKind::kLog, 0,
                           start_.segment, lane_.generation,        lane_.last};
  for (uint32_t i = 0; i < count; ++i) {
    claim.generation = log_.Draw();
    const uint32_t taken = log_.segments_.Take(claim);
    if (taken == kNoSegment) return false;
    (first_taken_ == kNoSegment ? first_taken_ : log_.segments_[last_taken_].next) = taken;
    last_taken_ = taken;
    last_generation_ = claim.generation;
    claim.previous = taken;
    claim.previous_generation = claim.generation;
  }
  if (log_.Short() || log_.segments_.FallsBehind()) log_.Ring();
  return true;
}

void GroupWriter::BeginPart() {
  Fit(&part_, part_offset_, offset_ + length_ - part_offset_);
  if (part_.file_units > 0) PutFileRecord(part_.segment * log_.units_ + part_.unit);
  const Place place = part_.place(log_.units_);
  at_ = place + 1 + LinkUnits(PagesOf(part_offset_, part_.length));
  done_ = 0;
  crc_ = 0;
}

bool GroupWriter::AddPage(const uint8_t* bytes, uint32_t length, uint8_t* copy, Place link) {
  NVCACHE_CHECK(length >= 1 && length <= pool::kPageSize && done_ + length <= part_.length);
  NVCACHE_CHECK((part_offset_ + done_) % pool::kPageSize + length <= pool::kPageSize);
  if (!pmem::Copy(log_.view_.unit(at_), bytes, length, copy, &crc_, Step::kPayload)) {
    return false;
  }
  const Place place = part_.place(log_.units_);
  const uint64_t page = (part_offset_ + done_) / pool::kPageSize;
  if (done_ == 0) link_ = link;
  if (PagesOf(part_offset_, part_.length) > 1) {
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
  RecordHeader& header = NewHeader(Kind::kData, part_offset_, part_.length);
  header.link = link_;
  header.payload_crc = crc_;
  const Place place = part_.place(log_.units_);
  PutHeader(place);
  units_ += part_.file_units + (at_ - place);
  part_offset_ += part_.length;
  if (part_offset_ == offset_ + length_) return;
  // The lane's own segment is closed by Commit().
  if (!in_lane_ || part_.segment != start_.segment) {
    log_.segments_[part_.segment].end = static_cast<uint32_t>(at_ - part_.segment * log_.units_);
  }
  part_ = NextIn(part_);
  BeginPart();
}

void GroupWriter::PutFileRecord(Place place) {
  file_record_ = place;
  const size_t length = pool::FileRecordSize(record_->path_length);
  RecordHeader& header = NewHeader(Kind::kFile, 0, length);
  NVCACHE_CHECK(pmem::Copy(log_.view_.unit(place + 1), record_, length, nullptr,
                           &header.payload_crc, Step::kPayload));
  PutHeader(place);
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

// Of the next record. PutHeader() does the rest.
RecordHeader& GroupWriter::NewHeader(Kind kind, uint64_t offset, uint64_t length) {
  RecordHeader& header = index_ == 0 ? lane_.first_header : lane_.next_header;
  header = {};
  header.lsn = lsn_;
  header.offset = offset;
  header.length = length;
  header.file = file_.number;
  header.kind = kind;
  header.index = index_;
  header.count = count_;
  return header;
}

// The first one waits for Commit(): a group that is given up leaves no header in its place. With
// one there, and the log going on elsewhere, readers would take it for damaged.
void GroupWriter::PutHeader(Place place) {
  RecordHeader& header = index_ == 0 ? lane_.first_header : lane_.next_header;
  const auto segment = static_cast<uint32_t>(place / log_.units_);
  const Lsn generation = log_.view_.segment(segment)->generation;
  header.commit = CommitWord(lsn_, log_.view_.salt());
  header.header_crc = HeaderCrc(header, place, generation, log_.view_.salt());
  if (index_ == 0) {
    first_place_ = place;
  } else {
    StoreHeader(log_.view_, header, place, Step::kGroupHeaders);
  }
  ++index_;
}

Lsn GroupWriter::Commit() {
  NVCACHE_CHECK(index_ == count_ && lsn_ > lane_.last);
  StoreHeader(log_.view_, lane_.first_header, first_place_, Step::kCommit);
  pmem::Psync(Step::kCommitted);
  committed_ = true;
  MoveLane();
  log_.Committed(lsn_);
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
  file_.declared[number_] = lane_.generation;
  if (file_record_ != kNoPlace) file_.record.store(file_record_, std::memory_order_relaxed);
}

}  // namespace nvcache::nvlog
