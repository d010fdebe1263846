// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/through.h"

#include <algorithm>

#include "src/nvlog/group_writer.h"
#include "src/sys/check.h"

namespace nvcache::nvlog {

using pmem::Step;

namespace {

// A group that does not fit into what is left of a segment is cut there, unless less than this part
// of a segment is left: then the next one is taken.
constexpr uint64_t kWorthFilling = 8;

// The seat is told of so many bytes at once: its line is not this process's alone.
constexpr uint64_t kNoteBytes = 16 << 10;

[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t own_through_lane = sys::kNone;
std::atomic<uint32_t> next_through_lane{0};

}  // namespace

void ThroughLog::Open(Log* log) {
  log_ = log;
  view_ = log->view();
  units_ = view_.segment_units();
  segments_.store(0);
  for (Lane& lane : lanes_) {
    lane.first = lane.segment = kNoSegment;
    lane.unit = 0;
    lane.generation = lane.last = lane.written = 0;
  }
}

ThroughLog::Lane& ThroughLog::LockLane(uint32_t* number) {
  if (own_through_lane == sys::kNone)
    own_through_lane = next_through_lane.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < kThroughLanes; ++i) {
    *number = (own_through_lane + i) % kThroughLanes;
    if (!lanes_[*number].lock.TryLock()) continue;
    own_through_lane = *number;
    return lanes_[*number];
  }
  *number = own_through_lane %= kThroughLanes;
  lanes_[*number].lock.Lock();
  return lanes_[*number];
}

void ThroughLog::Free(bool all) {
  const Lsn checkpoint = log_->pool().through_checkpoint();
  for (Lane& lane : lanes_) {
    // The thread that has it may be in the kernel for long.
    if (!lane.lock.TryLock()) continue;
    NoteWritten(lane);
    FreeBelow(lane, checkpoint, all);
    lane.lock.Unlock();
  }
}

// For `nvcache top`.
void ThroughLog::NoteWritten(Lane& lane) const {
  pool::Conduct& conduct = log_->pool().seats().ConductOf(log_->pool().seat());
  const auto units = static_cast<uint32_t>(lane.written / pool::kUnitSize);
  std::atomic_ref(conduct.through_written).fetch_add(units, std::memory_order_relaxed);
  lane.written %= pool::kUnitSize;
}

void ThroughLog::FreeBelow(Lane& lane, Lsn checkpoint, bool all) {
  Segments& segments = log_->segments();
  while (lane.first != lane.segment) {
    const uint32_t next = segments[lane.first].next;
    if (view_.segment(next)->previous_last >= checkpoint) return;
    segments.Free(lane.first);
    segments_.fetch_sub(1);
    lane.first = next;
  }
  if (!all || lane.segment == kNoSegment || lane.last >= checkpoint) return;
  segments.Free(lane.segment);
  segments.DropLog();
  segments_.fetch_sub(1);
  lane.first = lane.segment = kNoSegment;
}

bool ThroughLog::HasPending() {
  const Lsn checkpoint = log_->pool().through_checkpoint();
  for (Lane& lane : lanes_) {
    if (!lane.lock.TryLock()) return true;  // a group is under way
    const bool pending = lane.segment != kNoSegment && lane.last >= checkpoint;
    lane.lock.Unlock();
    if (pending) return true;
  }
  return false;
}

// Behind a file record, as long as one can be.
bool ThroughLog::HoldsWhole(uint64_t offset, uint64_t length) const {
  constexpr uint64_t kFileUnits = 1 + UnitsOf(sizeof(pool::FileRecord));
  return length <= kMaxGroupBytes &&
         DataUnits(offset, length) + kFileUnits <= units_ - kFirstUnit - kLastUnits;
}

uint64_t ThroughLog::units() const { return segments_.load() * units_; }

// ---------------------------------------------------------------------------------------------
// Writing a group.

ThroughWriter::~ThroughWriter() {
  if (!committed_ && taken_) log_.log_->segments().Free(segment_);
  if (!committed_ && adds_lane_) log_.log_->segments().DropLog();
  lane_.lock.Unlock();
}

bool ThroughWriter::IsDeclared() const {
  if (file_ == nullptr) return true;
  const auto& before = file_->declared_through[number_];
  return before.generation == lane_.generation && before.exits == exits_;
}

// Room for `least` units behind the file record, or else, in a new segment, for as many as go into
// one.
Outcome ThroughWriter::Begin(uint64_t least, uint64_t most, pool::FileRecord* record,
                             bool reserved) {
  record_ = record;
  const bool declared = lane_.segment != kNoSegment && IsDeclared();
  file_units_ = declared ? 0 : (record != nullptr ? FileUnits() : 0);
  const uint64_t end = lane_.unit + file_units_ + kLastUnits;
  const uint64_t room = lane_.segment != kNoSegment && end < log_.units_ ? log_.units_ - end : 0;
  if (room >= std::min(least, most)) {
    if (!declared && record == nullptr) return Outcome::kUndeclared;
    segment_ = lane_.segment;
    unit_ = lane_.unit;
    generation_ = lane_.generation;
  } else {
    if (record == nullptr && file_ != nullptr) return Outcome::kUndeclared;
    file_units_ = file_ != nullptr ? FileUnits() : 0;
    if (const Outcome outcome = TakeSegment(reserved); outcome != Outcome::kDone) return outcome;
  }
  if (file_units_ > 0) PutFileRecord();
  return Outcome::kDone;
}

Outcome ThroughWriter::TakeSegment(bool reserved) {
  Log& log = *log_.log_;
  Segments& segments = log.segments();
  if (!segments.Has(1, reserved)) return Outcome::kLogFull;
  if (lane_.segment == kNoSegment) {
    adds_lane_ = segments.AddLog();
    if (!adds_lane_) return Outcome::kLogFull;
  }
  const Segments::Claim claim = {pool::kThroughLog + number_,
                                 pool::SegmentKind::kLog,
                                 log.Draw(),
                                 lane_.segment,
                                 lane_.generation,
                                 lane_.last};
  segment_ = segments.Take(claim, reserved);
  if (segment_ == kNoSegment) return Outcome::kLogFull;
  taken_ = true;
  unit_ = kFirstUnit;
  generation_ = claim.generation;
  if (log.Short()) log.Ring();
  return Outcome::kDone;
}

void ThroughWriter::PutFileRecord() {
  const size_t length = pool::FileRecordSize(record_->path_length);
  NVCACHE_CHECK(pmem::Copy(log_.view_.unit(file_place() + 1), record_, length, nullptr,
                           &record_crc_, Step::kPayload));
}

Outcome ThroughWriter::BeginData(uint64_t offset, uint64_t length, pool::FileRecord* record,
                                 bool whole) {
  NVCACHE_CHECK(length > 0 && (!whole || log_.HoldsWhole(offset, length)));
  length = std::min(length, kMaxGroupBytes);
  const uint64_t most = DataUnits(offset, length);
  const uint64_t least = whole ? most : log_.units_ / kWorthFilling;
  if (const Outcome outcome = Begin(least, most, record, false); outcome != Outcome::kDone) {
    return outcome;
  }
  kind_ = Kind::kData;
  offset_ = offset;
  length_ = length;
  const uint64_t room = log_.units_ - kLastUnits - unit_ - file_units_;
  // Whole pages, so that each begins a unit.
  while (DataUnits(offset_, length_) > room) {
    const uint64_t over = DataUnits(offset_, length_) - room;
    const uint64_t pages = (over + kUnitsPerPage - 1) / kUnitsPerPage;
    const uint64_t end = (offset_ + length_ - 1) / pool::kPageSize + 1 - pages;
    NVCACHE_CHECK(end * pool::kPageSize > offset_);
    length_ = end * pool::kPageSize - offset_;
  }
  at_ = payload();
  return Outcome::kDone;
}

bool ThroughWriter::AddPage(const uint8_t* bytes, uint32_t length) {
  NVCACHE_CHECK(length >= 1 && done_ + length <= length_);
  NVCACHE_CHECK((offset_ + done_) % pool::kPageSize + length <= pool::kPageSize);
  if (!pmem::Copy(log_.view_.unit(at_), bytes, length, nullptr, &crc_, Step::kPayload)) {
    return false;
  }
  at_ += UnitsOf(length);
  done_ += length;
  return true;
}

int ThroughWriter::Pieces(iovec (&pieces)[2]) const {
  NVCACHE_CHECK(done_ == length_);
  const uint64_t first = FirstLength(offset_, length_);
  pieces[0] = {log_.view_.unit(payload()), first};
  pieces[1] = {log_.view_.unit(payload() + UnitsOf(first)), length_ - first};
  return length_ == first ? 1 : 2;
}

Outcome ThroughWriter::BeginMark(Kind kind, uint64_t offset, pool::FileRecord* record,
                                 bool reserved) {
  if (const Outcome outcome = Begin(1, 1, record, reserved); outcome != Outcome::kDone) {
    return outcome;
  }
  kind_ = kind;
  offset_ = offset;
  at_ = place() + 1;
  return Outcome::kDone;
}

Outcome ThroughWriter::BeginSettled(Lsn bound, pool::FileRecord* record) {
  return BeginMark(Kind::kSettled, bound, record, true);
}

Outcome ThroughWriter::BeginTruncate(uint64_t size, pool::FileRecord* record) {
  return BeginMark(Kind::kTruncate, size, record, false);
}

Outcome ThroughWriter::BeginName(const pool::NameRecord& record) {
  NVCACHE_CHECK(file_ == nullptr);
  const size_t length = pool::NameRecordSize(record);
  NVCACHE_CHECK(pool::IsNameRecord(record, length));
  const uint64_t units = 1 + UnitsOf(length);
  if (const Outcome outcome = Begin(units, units, nullptr, true); outcome != Outcome::kDone) {
    return outcome;
  }
  kind_ = Kind::kName;
  length_ = done_ = length;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
  for (size_t done = 0; done < length; done += pmem::kMaxCopy) {  // two long paths are more
    const size_t part = std::min(length - done, pmem::kMaxCopy);
    NVCACHE_CHECK(pmem::Copy(log_.view_.unit(place() + 1) + done, bytes + done, part, nullptr,
                             &crc_, Step::kPayload));
  }
  at_ = place() + units;
  return Outcome::kDone;
}

// The rest of `header`, whose kind, offset, length and payload are there.
void ThroughWriter::PutHeader(RecordHeader* header, Place place, Lsn lsn) const {
  header->lsn = lsn;
  header->file = file_ != nullptr ? file_->number : 0;
  header->count = file_units_ > 0 ? 2 : 1;
  header->commit = CommitWord(lsn, log_.view_.salt());
  header->header_crc = HeaderCrc(*header, place, generation_, log_.view_.salt());
}

// The first header last, as in any group.
void ThroughWriter::Commit(Lsn lsn) {
  NVCACHE_CHECK(done_ == length_ && lsn > lane_.last && lsn > generation_);
  RecordHeader header = {};
  header.kind = kind_;
  header.offset = offset_;
  header.length = length_;
  header.payload_crc = crc_;
  header.index = file_units_ > 0 ? 1 : 0;
  PutHeader(&header, place(), lsn);
  StoreHeader(log_.view_, header, place(), file_units_ > 0 ? Step::kGroupHeaders : Step::kCommit);
  if (file_units_ > 0) {
    header = {};
    header.kind = Kind::kFile;
    header.length = pool::FileRecordSize(record_->path_length);
    header.payload_crc = record_crc_;
    PutHeader(&header, file_place(), lsn);
    StoreHeader(log_.view_, header, file_place(), Step::kCommit);
  }
  pmem::Psync(Step::kCommitted);
  committed_ = true;
  if (taken_) {
    log_.segments_.fetch_add(1);
    if (lane_.segment == kNoSegment) {
      lane_.first = segment_;
    } else {
      Segments::Info& info = log_.log_->segments()[lane_.segment];
      info.next = segment_;
      info.end = lane_.unit;
    }
  }
  lane_.segment = segment_;
  lane_.unit = static_cast<uint32_t>(at_ - uint64_t{segment_} * log_.units_);
  lane_.generation = generation_;
  lane_.last = lsn;
  lane_.written += length_;
  if (lane_.written >= kNoteBytes) log_.NoteWritten(lane_);
  if (file_units_ == 0) return;
  file_->declared_through[number_] = {generation_, exits_};
  file_->record.store(file_place(), std::memory_order_relaxed);
}

}  // namespace nvcache::nvlog
