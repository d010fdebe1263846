// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/walk.h"

#include <algorithm>

#include "src/sys/check.h"
#include "src/sys/words.h"

namespace nvcache::nvlog {

// One stream for each log and for each kept segment, merged by LSN.

bool GroupWalk::Open() {
  NVCACHE_CHECK(streams_.max() == 0);
  const uint32_t count = reader_.view_.segment_count();
  if (!streams_.Open(count) || !heap_.Open(count) || !members_.Open(kMaxGroupRecords) ||
      !met_.Open()) {
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
  std::push_heap(&heap_[0], &heap_[heap_size_],
                 [this](uint32_t a, uint32_t b) { return IsAfter(a, b); });
}

bool GroupWalk::Next(Group* group) {
  if (NextDamaged(group)) return true;
  if (current_ != Reader::kNone) Push(current_);
  current_ = Reader::kNone;
  while (heap_size_ > 0) {
    std::pop_heap(&heap_[0], &heap_[heap_size_],
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

// In a pool that is in use, a segment that looks damaged may have been taken at that moment.
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
  return reader_.FindHeader(place, header) && header->index == 0 && header->lsn > above;
}

bool GroupWalk::PeekFirst(Stream* stream, const RecordHeader& first, Place place) {
  const Reader::Segment& segment = SegmentOf(*stream);
  reader_.newest_ = std::max(reader_.newest_, first.lsn);
  stream->torn = false;
  stream->key = first.lsn;
  stream->group = {place,    first.lsn,   first.count, Verdict::kCommitted,
                   kNoPlace, segment.log, segment.kept};
  if (reader_.all_ || segment.kept || first.lsn >= reader_.checkpoint(segment.log)) return true;
  // It is of no interest but for the files that it names.
  CollectMembers(stream, false);
  MeetFiles();
  stream->last = first.lsn;
  return false;
}

// A record of a group below the checkpoint that began in a segment which is free by now.
bool GroupWalk::StepOverRest(Stream* stream, Place place) {
  const Reader::Segment& segment = SegmentOf(*stream);
  RecordHeader header = {};
  if (segment.kept || !reader_.FindHeader(place, &header) || header.lsn <= segment.floor ||
      header.lsn < stream->last || header.lsn >= reader_.checkpoint(segment.log)) {
    return false;
  }
  if (header.kind == Kind::kFile) met_.Meet(header, place);
  stream->last = header.lsn;
  MoveTo(stream, stream->segment, stream->unit + RecordUnits(header));
  return true;
}

// There is no first header where one could be: the end of the segment's records, or damage if the
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
  Lsn bound = 0;  // lost groups have LSNs below it; 0: none is lost
  if (goes_on) {
    if (trace != Trace::kVoid && !stream->torn) bound = next.lsn;
    if (!IsLostData(place, unit)) met_.Forget(segment.number);
    stream->torn = false;
    MoveTo(stream, stream->segment, unit);
  } else {
    const Lsn last =
        segment.next == Reader::kNone ? 0 : reader_.segments_[segment.next].previous_last;
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
    place = reader_.holes_.AfterNothing(place, end);
    if (place >= end || !reader_.CopyHeader(place, header) || header->lsn <= segment.floor)
      continue;
    reader_.newest_ = std::max(reader_.newest_, header->lsn);
    if (header->index != 0 || header->lsn <= above) continue;
    *found = place - begin;
    return true;
  }
  return false;
}

// A header that is not whole, and was: two of word, LSN, life and checksum say that the word is of
// this life of the segment. Or one that is whole, and its LSN runs backward. A power failure leaves
// no such header, nor does a former life of the segment: that header's life is another one, and its
// checksum has another generation.
GroupWalk::Trace GroupWalk::TraceAt(const Stream& stream, Place place, Lsn* lsn) const {
  const Lsn above = Above(stream);
  RecordHeader header = {};
  if (reader_.holes_.IsNothing(place)) return Trace::kNone;
  const uint64_t salt = reader_.view_.salt();
  if (reader_.CopyHeader(place, &header)) {
    *lsn = header.lsn;
    const bool was_committed = header.index == 0 && header.commit == CommitWord(header.lsn, salt);
    return was_committed ? Trace::kCommitted : Trace::kNone;
  }
  sys::CopyWords(&header, reader_.view_.unit(place), sizeof(header));
  const Lsn generation = reader_.GenerationOf(place);
  const bool is_of_life = header.life == LifeOf(generation);
  for (const Trace trace : {Trace::kCommitted, Trace::kVoid}) {
    *lsn = (trace == Trace::kCommitted ? header.commit : ~header.commit) ^ salt;
    if (trace == Trace::kVoid) *lsn &= ~(uint64_t{1} << pool::kLsnBits);  // of either word
    if (*lsn <= above || *lsn >> pool::kLsnBits != 0) continue;
    if (header.lsn == *lsn && is_of_life) return trace;
    RecordHeader repaired = header;
    repaired.lsn = *lsn;
    repaired.life = LifeOf(generation);
    if (header.header_crc == HeaderCrc(repaired, place, generation, salt)) return trace;
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
  return !met_.IsRecord(reader_.view_.unit(place + 1), header.length);
}

// ---------------------------------------------------------------------------------------------
// Groups.

// Fills members_ from the group that begins where the stream is, and moves the stream behind those
// that are there. Returns the place of the first that is not as it was written.
Place GroupWalk::CollectMembers(Stream* stream, bool payloads) {
  member_count_ = 0;
  Place damaged = kNoPlace;
  RecordHeader first = {};
  first.lsn = stream->group.lsn;
  first.count = static_cast<uint16_t>(stream->group.records);
  const auto place_of = [this](uint32_t segment, uint64_t unit) {
    return reader_.PlaceOf(reader_.segments_[segment].number, unit);
  };
  const auto copy_header = [&](uint32_t segment, uint64_t unit, RecordHeader* header) {
    return reader_.FindHeader(place_of(segment, unit), header);
  };
  const auto next_of = [this](uint32_t segment) {
    const uint32_t next = reader_.segments_[segment].next;
    return next == Reader::kNone ? segment : next;
  };
  const auto collect = [&](const RecordHeader& header, uint32_t segment, uint64_t unit) {
    const Place place = place_of(segment, unit);
    members_[member_count_++] = {header, place};
    const bool checks = payloads && damaged == kNoPlace;
    if (checks && reader_.PayloadCrc(header, place) != header.payload_crc) damaged = place;
    MoveTo(stream, segment, unit + RecordUnits(header));
  };
  if (StepOverGroup(first, stream->segment, stream->unit, copy_header, next_of, collect)) {
    return damaged;
  }
  stream->torn = true;
  return damaged != kNoPlace ? damaged : place_of(stream->segment, stream->unit);
}

// Tells the fate of the group that the stream has come to. False: it is of no interest.
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
  // The original of a copy that was never finished counts; and nothing would ever end the copy.
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

// In every case, for later groups rely on its file records.
void GroupWalk::MeetFiles() {
  for (uint32_t i = 0; i < member_count_; ++i) {
    if (members_[i].header.kind == Kind::kFile) met_.Meet(members_[i].header, members_[i].place);
  }
}

}  // namespace nvcache::nvlog
