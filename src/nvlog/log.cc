// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/sys/crc32c.h"
#include "src/sys/memory.h"
#include "src/sys/words.h"

namespace nvcache::nvlog {

namespace {

// A lane for so many segments of a pool, as far as there are lanes.
constexpr uint32_t kSegmentsPerLane = 8;
// A group takes at most this share of what writers can fill, so that it can always be placed.
constexpr uint64_t kMinGroupsInLog = 4;
// Segments that the longest group of the smallest log goes on in: beside them, and the one that it
// begins in, there is room for the reserve.
constexpr uint64_t kMostSegments = (kMinLogSegments - 2) / kMinGroupsInLog;
static_assert(1 + kMostSegments + 1 + (1 + kMostSegments) <= kMinLogSegments);

// The lane of each policy that the thread has used last. A thread keeps to its lane, and takes
// another one when it finds it busy.
[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t own_lane[kPolicies] = {
    sys::kNone, sys::kNone};
std::atomic<uint32_t> next_lane[kPolicies];

}  // namespace

bool Log::Open(pool::Pool* pool, uint32_t frame_segments) {
  pool_ = pool;
  view_ = pool->view();
  units_ = view_.segment_units();
  if (pool->seat() == pool::kNoSeat) pool->TakeFirstSeat();
  if (!ReserveStages() || !segments_.Open(pool, frame_segments)) {
    Close();
    return false;
  }
  const uint32_t count = segments_.count();
  lanes_used_ = std::clamp(count / kSegmentsPerLane, 1u, kBackLanes);
  writable_segments_ = count - (lanes_used_ + 1);
  const uint64_t pages = (segments_.record_units() - kMaxFileUnits) / DataUnits(0, pool::kPageSize);
  const uint64_t segments = writable_segments_ / kMinGroupsInLog;
  max_group_pages_ = std::min<uint64_t>(kMaxGroupPages, pages * segments);
  for (Lane& lane : lanes_) {
    lane.end = lane.read = lane.forgotten = {};
    lane.first = kNoSegment;
    lane.generation = lane.last = lane.untold = 0;
    lane.reserve = 0;
  }
  SetAlarm(kNoAlarm);
  return true;
}

void Log::Close() {
  segments_.Close();
  if (stages_ != nullptr) sys::UnmapUnlocked(stages_, kThroughLanes * kStageBytes);
  stages_ = nullptr;
}

bool Log::ReserveStages() {
  stages_ = static_cast<uint8_t*>(sys::Reserve(kThroughLanes * kStageBytes));
  if (stages_ == nullptr) return false;
  for (uint32_t i = 0; i < kThroughLanes; ++i) {
    lanes_[kBackLanes + i].stage = stages_ + i * kStageBytes;
  }
  return true;
}

// The next header goes there, most of the time.
void Log::FetchEnd(const Lane& lane) const {
  if (lane.end.segment == kNoSegment) return;
  pmem::FetchForWriting(view_.unit(lane.end.segment * units_ + lane.end.unit));
}

Lane& Log::LockLane(Policy policy, uint32_t* number) {
  const bool back = policy == Policy::kWriteBack;
  const uint32_t first = back ? 0 : kBackLanes, count = back ? lanes_used_ : kThroughLanes;
  uint32_t& own = own_lane[static_cast<size_t>(policy)];
  if (own == sys::kNone) {
    own = next_lane[static_cast<size_t>(policy)].fetch_add(1, std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < count; ++i) {
    Lane& lane = lanes_[*number = first + (own + i) % count];
    if (!lane.lock.TryLock()) continue;
    own = *number - first;
    FetchEnd(lane);
    return lane;
  }
  Lane& lane = lanes_[*number = first + own % count];
  lane.lock.Lock();
  FetchEnd(lane);
  return lane;
}

Log::Piece Log::PieceAt(Place place, uint64_t page) const {
  const RecordHeader& header = At(place);
  const uint64_t first = header.offset / pool::kPageSize;
  const uint64_t pages = PagesOf(header.offset, header.length);
  NVCACHE_CHECK(header.kind == Kind::kData && page >= first && page - first < pages);
  const uint64_t begin = std::max(header.offset, page * pool::kPageSize);
  const uint64_t end = std::min(header.offset + header.length, (page + 1) * pool::kPageSize);
  const uint64_t before = page == first ? 0
                                        : UnitsOf(FirstLength(header.offset, header.length)) +
                                              (page - first - 1) * kUnitsPerPage;
  uint64_t* link = &const_cast<RecordHeader&>(header).link;
  if (pages > 1) link = reinterpret_cast<uint64_t*>(view_.unit(place + 1)) + (page - first);
  return {static_cast<uint32_t>(begin % pool::kPageSize), static_cast<uint32_t>(end - begin),
          view_.unit(place + 1 + LinkUnits(pages) + before), link};
}

bool Log::CopyFileRecord(const FileTag& file, pool::FileRecord* record) const {
  const Place place = file.record.load(std::memory_order_relaxed);
  if (place == kNoPlace) return false;
  RecordHeader header = {};
  sys::CopyWords(&header, &At(place), sizeof(header));
  if (header.kind != Kind::kFile || header.file != file.number || header.length > sizeof(*record)) {
    return false;
  }
  std::memcpy(record, view_.unit(place + 1), header.length);
  return header.payload_crc == sys::Crc32c(record, header.length) &&
         pool::IsFileRecord(*record, header.length);
}

// ---------------------------------------------------------------------------------------------
// The cleanup thread.

// A thread that has drawn an LSN below `bound` had locked its lane before, and one that locks a
// lane after this look at it draws a higher one.
void Log::Look(Ends* ends) {
  ends->bound = next().load(std::memory_order_seq_cst);
  for (uint32_t i = 0; i < kBackLanes; ++i) {
    Lane& lane = lanes_[i];
    sys::Lock lock(lane.lock);
    ends->lane[i] = {lane.end.segment, lane.end.unit};
    if (lane.end.segment == kNoSegment || lane.read.segment != kNoSegment) continue;
    lane.read = lane.forgotten = {lane.first, static_cast<uint32_t>(kFirstUnit)};
  }
}

void Log::LookUnread(Ends* ends, Position (&at)[kBackLanes]) {
  ends->bound = next().load(std::memory_order_seq_cst);
  for (uint32_t i = 0; i < kBackLanes; ++i) {
    Lane& lane = lanes_[i];
    sys::Lock lock(lane.lock);
    ends->lane[i] = {lane.end.segment, lane.end.unit};
    const bool begun = lane.read.segment != kNoSegment || lane.end.segment == kNoSegment;
    at[i] = begun ? lane.read : Position{lane.first, static_cast<uint32_t>(kFirstUnit)};
  }
}

bool Log::AtEnd(const Ends& ends, uint32_t lane, Position* position) {
  if (ends.lane[lane].segment == kNoSegment) return true;
  while (position->segment != ends.lane[lane].segment) {
    const Segments::Info& info = segments_[position->segment];
    if (position->unit != info.end) return false;
    *position = {info.next, static_cast<uint32_t>(kFirstUnit)};
  }
  return position->unit == ends.lane[lane].unit;
}

Place Log::NextRecord(const Ends& ends) {
  Place next = kNoPlace;
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    Position& at = lanes_[i].read;
    if (AtEnd(ends, i, &at)) continue;
    const Place place = at.segment * units_ + at.unit;
    if (next != kNoPlace && At(next).lsn <= At(place).lsn) continue;
    next = place;
    reading_ = i;
  }
  return next;
}

Place Log::Lowest(const Ends& ends, Position (&at)[kBackLanes], uint32_t* lane) {
  Place lowest = kNoPlace;
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    if (AtEnd(ends, i, &at[i])) continue;
    const Place place = at[i].segment * units_ + at[i].unit;
    if (lowest != kNoPlace && At(lowest).lsn <= At(place).lsn) continue;
    lowest = place;
    *lane = i;
  }
  return lowest;
}

uint32_t Log::Lowest(Position (&at)[kBackLanes]) {
  uint32_t lowest = sys::kNone;
  Lsn lsn = 0;
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    const Position& read = lanes_[i].read;
    while (at[i].segment != read.segment && at[i].unit == segments_[at[i].segment].end) {
      at[i] = {segments_[at[i].segment].next, static_cast<uint32_t>(kFirstUnit)};
    }
    if (at[i].segment == read.segment && at[i].unit == read.unit) continue;
    const Lsn found = At(at[i].segment * units_ + at[i].unit).lsn;
    if (lowest != sys::kNone && lsn <= found) continue;
    lowest = i;
    lsn = found;
  }
  return lowest;
}

void Log::Pass(Place place) {
  Position& at = lanes_[reading_].read;
  NVCACHE_CHECK(at.segment * units_ + at.unit == place);
  at.unit += static_cast<uint32_t>(RecordUnits(At(place)));
}

bool Log::Empty(const Ends& ends) const {
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    if (ends.lane[i].segment == kNoSegment) continue;
    const Position& at = lanes_[i].forgotten;
    if (at.segment != ends.lane[i].segment || at.unit != ends.lane[i].unit) return false;
  }
  return true;
}

void Log::GiveBack() {
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    Lane& lane = lanes_[i];
    if (!lane.lock.TryLock()) continue;
    const Position& end = lane.end;
    if (end.segment != kNoSegment && lane.forgotten.segment == end.segment &&
        lane.forgotten.unit == end.unit) {
      Vacate(&lane);
    }
    lane.lock.Unlock();
  }
}

void Log::Vacate(Lane* lane) {
  segments_.Free(lane->end.segment);
  segments_.DropLog(std::exchange(lane->reserve, 0));
  lane->end = lane->read = lane->forgotten = {};
}

Lsn Log::newest_own() {
  Lsn newest = 0;
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    sys::Lock lock(lanes_[i].lock);
    newest = std::max(newest, lanes_[i].last);
  }
  return newest;
}

// ---------------------------------------------------------------------------------------------
// Write-through.

// Behind a file record, as long as one can be.
bool Log::HoldsWhole(uint64_t offset, uint64_t length) const {
  return length <= kMaxGroupBytes &&
         DataUnits(offset, length) + kMaxFileUnits <= units_ - kFirstUnit - kLastUnits;
}

void Log::FreeThrough(bool all) {
  const Lsn checkpoint = pool_->through_checkpoint();
  for (uint32_t i = kBackLanes; i < kLanes; ++i) {
    Lane& lane = lanes_[i];
    // The thread that has it may be in the kernel for long.
    if (!lane.lock.TryLock()) continue;
    NoteWritten(&lane);
    if (lane.end.segment != kNoSegment) FreeThroughBelow(&lane, checkpoint, all);
    lane.lock.Unlock();
  }
}

void Log::FreeThroughBelow(Lane* lane, Lsn checkpoint, bool all) {
  while (lane->first != lane->end.segment) {
    const uint32_t next = segments_[lane->first].next;
    if (view_.segment(next)->previous_last >= checkpoint) return;
    segments_.Free(lane->first);
    lane->first = next;
  }
  if (all && lane->last < checkpoint) Vacate(lane);
}

bool Log::HasThroughPending() {
  const Lsn checkpoint = pool_->through_checkpoint();
  for (uint32_t i = kBackLanes; i < kLanes; ++i) {
    Lane& lane = lanes_[i];
    if (!lane.lock.TryLock()) return true;  // a group is under way
    const bool pending = lane.end.segment != kNoSegment && lane.last >= checkpoint;
    lane.lock.Unlock();
    if (pending) return true;
  }
  return false;
}

// For `nvcache top`.
void Log::NoteWritten(Lane* lane) const {
  pool::Conduct& conduct = pool_->seats().ConductOf(pool_->seat());
  const auto units = static_cast<uint32_t>(lane->untold / pool::kUnitSize);
  std::atomic_ref(conduct.through_written).fetch_add(units, std::memory_order_relaxed);
  lane->untold %= pool::kUnitSize;
}

// A thread that locks its lane after newest_own() has looked there finds the alarm when it has
// committed.
void Log::Sleep(uint32_t seen, Lsn alarm, uint64_t timeout_ns) {
  SetAlarm(alarm);
  if (newest_own() < alarm) AwaitBell(seen, timeout_ns);
  SetAlarm(kNoAlarm);
}

}  // namespace nvcache::nvlog
