// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/segments.h"

#include <errno.h>

#include <algorithm>

#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/scratch.h"

namespace nvcache::nvlog {

namespace {

using pmem::Step;
using pool::SegmentHeader;

// The memory mapped ahead of the segments taken: so many times as much, up to this bound. Writers
// may fill that while the cleanup thread waits for the disk. A program that fills no segment has
// nothing mapped for it. Where many processes write, each one's mapping takes the processor from
// the others.
constexpr uint64_t kPrefaultTimes = 8, kPrefaultTimesShared = 1;
constexpr uint64_t kMaxPrefault = 512u << 20;

template <typename T>
bool ReserveArray(T** array, uint64_t count) {
  *array = static_cast<T*>(sys::Reserve(count * sizeof(T)));
  return *array != nullptr;
}

template <typename T>
void ReleaseArray(T** array, uint64_t count) {
  if (*array != nullptr) sys::UnmapUnlocked(*array, count * sizeof(T));
  *array = nullptr;
}

// One line, the word last: a crash may leave any part of these stores, but the word is right only
// if the rest is, and 0 while a segment is being taken.
void WriteHeader(SegmentHeader* place, const SegmentHeader& header, Step step) {
  constexpr size_t kWord = sizeof(header.word);
  pmem::Store(place->word, uint64_t{0});
  pmem::StoreBytes(reinterpret_cast<uint8_t*>(place) + kWord,
                   reinterpret_cast<const uint8_t*>(&header) + kWord, sizeof(header) - kWord);
  pmem::Store(place->word, header.word);
  pmem::Pwb(place, sizeof(*place), step);
}

uint64_t FrameBytes(const pool::View& view) {
  return view.superblock->segment_size - 2 * pool::kPageSize;
}

}  // namespace

uint64_t FrameSegments(const pool::View& view, uint64_t bytes) {
  return (bytes + FrameBytes(view) - 1) / FrameBytes(view);
}

bool HasRoomForFrames(const pool::Pool& pool, uint64_t bytes, pool::Problem* problem) {
  const pool::View& view = pool.view();
  const uint64_t most = view.segment_count() - kMinLogSegments;
  if (FrameSegments(view, bytes) <= most) return true;
  problem->error = EINVAL;
  problem->text.Clear();
  problem->text.Append("pool ").Append(pool.path()).Append(" has room for ");
  problem->text.AppendNumber(most * FrameBytes(view) / 1024);
  problem->text.Append(
      "k of page frames beside its log: set NVCACHE_FRAMES to no more, or make a ");
  problem->text.Append("larger pool");
  return false;
}

bool Segments::Open(pool::Pool* pool, uint32_t frames) {
  NVCACHE_CHECK(frames + kMinLogSegments <= pool->view().segment_count());
  pool_ = pool;
  units_ = pool->view().segment_units();
  count_ = pool->view().segment_count() - frames;
  freed_count_ = 0;
  if (!ReserveArray(&info_, count_) || !ReserveArray(&mapped_, count_) ||
      !ReserveArray(&freed_, count_) || !GiveToFrames(frames)) {
    FreeAll();
    Close();
    return false;
  }
  free_then_.store(free());
  taken_.store(0);
  ahead_.store(0);
  behind_.store(false);
  return true;
}

void Segments::FreeAll() {
  seats().FreeAllOf(pool_->seat());
  own_reserve().store(0);
}

void Segments::Close() {
  ReleaseArray(&info_, count_);
  ReleaseArray(&mapped_, count_);
  ReleaseArray(&freed_, count_);
  count_ = 0;
  pool_ = nullptr;
}

std::atomic_ref<uint32_t> Segments::own_reserve() const {
  return std::atomic_ref(seats().At(pool_->seat()).reserve);
}

bool Segments::AddLog() { return ReserveMore(1, 1); }

void Segments::DropLog(uint32_t reserve) {
  NVCACHE_CHECK(own_reserve().fetch_sub(reserve) >= reserve);
}

bool Segments::ReserveMore(uint32_t more, uint32_t count) {
  own_reserve().fetch_add(more);
  if (Has(count)) return true;
  DropLog(more);
  return false;
}

// No LSN is drawn: there are no records whose checksums must not be those of another life.
bool Segments::GiveToFrames(uint32_t frames) {
  if (frames == 0) return true;
  const Claim claim = {0, pool::SegmentKind::kFrames, kNoSegment, 0, 0};
  for (uint32_t number = count_; number < count_ + frames; ++number) {
    if (!seats().TakeSegment(number, pool_->seat())) return false;
    WriteHeaders(number, claim, pool_->checkpoint());
  }
  pmem::Psync(Step::kSegmentTaken);
  return true;
}

// Segments that others have taken meanwhile count: a process that has taken one, and finds that too
// few are left, gives it back. So the reserve is there, whichever of them looks last.
bool Segments::TakeThis(uint32_t number, bool reserved) {
  if (!seats().TakeSegment(number, pool_->seat())) return false;
  if (reserved || Has(0)) return true;
  seats().FreeSegment(number, pool_->seat());
  return false;
}

template <typename Function>
void Segments::ForEachFree(Function function) const {
  for (uint32_t i = freed_count_; i > 0; --i) {
    if (seats().IsFree(freed_[i - 1]) && !function(freed_[i - 1])) return;
  }
  for (uint32_t number = 0; (number = seats().NextFree(number)) < count_; ++number) {
    if (!function(number)) return;
  }
}

uint32_t Segments::TakeFree(bool reserved) {
  uint32_t taken = kNoSegment;
  ForEachFree([&](uint32_t number) {
    if (TakeThis(number, reserved)) taken = number;
    return taken == kNoSegment && Has(1, reserved);
  });
  // A segment that another process has, or that was just taken, is no hint any more.
  while (freed_count_ > 0 && !seats().IsFree(freed_[freed_count_ - 1])) --freed_count_;
  return taken;
}

uint32_t Segments::Take(const Claim& claim, Lsn* generation, bool reserved) {
  uint32_t number;
  {
    sys::Lock lock(lock_);
    if (!Has(1, reserved)) return kNoSegment;
    number = TakeFree(reserved);
    if (number == kNoSegment) return kNoSegment;
    const uint32_t left = free();
    free_then_.store(left, std::memory_order_relaxed);
    const uint8_t before = mapped_[number].exchange(kTaken, std::memory_order_relaxed);
    if (before == kAhead) ahead_.fetch_sub(1);
    if (before != kTaken) taken_.fetch_add(1);
    if (ahead_.load() + freed_count_ < std::min<uint64_t>(Ahead() / 2, left)) {
      behind_.store(true, std::memory_order_relaxed);
    }
  }
  info_[number] = {kNoSegment, static_cast<uint32_t>(kFirstUnit), 0, 0};
  *generation = seats().next_lsn().fetch_add(1, std::memory_order_seq_cst);
  WriteHeaders(number, claim, *generation);
  pmem::Psync(Step::kSegmentTaken);
  // mirror/pool reads the LSN that is drawn next, and then looks for segments that were taken. A
  // log takes one before it draws the LSN of the group that begins or goes on there: so what lies
  // below that LSN lies in segments that are counted. Copies that are kept have older LSNs; the
  // checkpoint that passes their groups is stored later.
  seats().CountTaken();
  // The checkpointer has memory ready, and looks again by itself while more is taken. Nothing is
  // done for a program that needs no second one.
  const uint32_t taken = taken_.load();
  const bool is_power_of_two = (taken & (taken - 1)) == 0;
  if (seats().NoteTaken(number) && taken > 1 && is_power_of_two) seats().WakeCheckpointer();
  pool::Count(pool_->view().statistics()->segments_taken);
  return number;
}

void Segments::WriteHeaders(uint32_t number, const Claim& claim, Lsn generation) {
  const pool::View& view = pool_->view();
  NVCACHE_CHECK(generation > claim.previous_last && generation > claim.previous_generation);
  sys::Scratch<SegmentHeader> scratch;
  SegmentHeader& header = *scratch;
  header = {};
  header.word = pool::SegmentWord(generation, view.salt());
  header.generation = generation;
  header.checkpoint =
      pool::IsThroughLog(claim.log) ? pool_->through_checkpoint() : pool_->checkpoint();
  if (claim.previous != kNoSegment) {
    header.previous_generation = claim.previous_generation;
    header.previous_last = claim.previous_last;
    header.previous_number = claim.previous;
  }
  header.number = number;
  header.log = pool_->seat() * pool::kLogsOfSeat + claim.log;
  header.kind = claim.kind;
  header.crc = pool::SegmentHeaderCrc(header, view.salt());
  WriteHeader(view.segment_copy(number), header, Step::kSegmentCopy);
  WriteHeader(view.segment(number), header, Step::kSegment);
}

void Segments::Free(uint32_t number) {
  sys::Lock lock(lock_);
  NVCACHE_CHECK(number < count_);
  seats().FreeSegment(number, pool_->seat());
  // Hints that others have made void make room for those that have not.
  if (freed_count_ == count_) freed_count_ = 0;
  freed_[freed_count_++] = number;
  free_then_.store(free(), std::memory_order_relaxed);
}

uint64_t Segments::Ahead() const {
  const uint64_t taken = taken_.load(std::memory_order_relaxed);
  const uint64_t most = kMaxPrefault / (units_ * pool::kUnitSize);
  if (taken < 2) return 0;
  const bool shared = seats().IsShared(pool_->seat());
  return std::min((shared ? kPrefaultTimesShared : kPrefaultTimes) * taken, most);
}

bool Segments::Prefault() {
  const uint64_t wanted = Ahead();
  uint32_t number = kNoSegment;
  if (wanted > 0) {
    sys::Lock lock(lock_);
    uint64_t looked_at = 0;
    ForEachFree([&](uint32_t next) {
      if (mapped_[next].load(std::memory_order_relaxed) == kUnmapped) number = next;
      return number == kNoSegment && ++looked_at < wanted;
    });
  }
  if (number == kNoSegment) return false;
  if (mapped_[number].exchange(kAhead, std::memory_order_relaxed) != kUnmapped) return true;
  ahead_.fetch_add(1);
  pmem::Prefault(pool_->view().unit(number * units_), units_ * pool::kUnitSize);
  return true;
}

}  // namespace nvcache::nvlog
