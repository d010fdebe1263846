// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/pool/lives.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "mirror/pool/faults.h"

namespace nvcache::mirror {

using nvlog::RecordHeader;
using pool::SegmentHeader;

Lives::Lives(const pool::Pool& pool)
    : view_(pool.view()),
      seats_(pool.seats()),
      units_(pool.view().segment_units()),
      lives_(pool.view().segment_count()) {}

bool Lives::Has(uint32_t number) const {
  // Words that were read before are not read later, and those that are read now not earlier.
  std::atomic_thread_fence(std::memory_order_acquire);
  auto& word = view_.segment(number)->word;
  return std::atomic_ref(word).load(std::memory_order_acquire) ==
         pool::SegmentWord(lives_[number].generation, view_.salt());
}

// ---------------------------------------------------------------------------------------------
// The segments that there are.

void Lives::Forget(uint32_t number) {
  Life& life = lives_[number];
  if (life.kept && life.copied != 0 && !Is(Mutant::kKeptStays)) gone_.push_back(number);
  life = {};
}

// A segment without a whole header is being taken, and holds nothing; it is counted when it has
// one.
void Lives::Add(uint32_t number, bool kept_alone) {
  SegmentHeader header;
  if (!pool::CopySegmentHeader(view_, *view_.segment(number), number, &header) ||
      header.kind == pool::SegmentKind::kFrames) {
    return;
  }
  Life life = {nvlog::ToLogSegment(header)};
  if (kept_alone && !life.kept) return;
  life.last = life.kept ? 0 : header.generation;
  life.next = number;
  life.unit = nvlog::kFirstUnit;
  lives_[number] = life;
}

void Lives::Scan() {
  for (uint32_t number = 0; number < count(); ++number) {
    Life& life = lives_[number];
    const bool same = life.generation != 0 && Has(number);
    const bool free = seats_.IsFree(number);
    // A kept one that is free has void records alone, which the image still has to be told of.
    if (same && (!free || life.kept)) continue;
    if (life.generation != 0) Forget(number);
    if (!free) Add(number, false);
  }
  List();
  Link();
}

bool Lives::ScanKept() {
  bool all = true;
  for (uint32_t number = 0; number < count(); ++number) {
    const Life& life = lives_[number];
    if (life.generation != 0) {
      if (Has(number)) continue;
      if (!life.kept) {
        all = false;
        continue;
      }
      Forget(number);
    }
    if (!seats_.IsFree(number)) Add(number, true);
  }
  List();
  return all;
}

// The newest of the segments that follow one counts. A scan before may have met the one without
// the other: when it passed that, it was still being taken.
void Lives::Link() {
  for (const uint32_t number : growing_) {
    const Life& life = lives_[number];
    Life& previous = lives_[life.previous_number];
    if (!Follows(life, previous)) continue;
    const Life& next = lives_[previous.next];
    if (!Follows(next, previous) || next.generation < life.generation) previous.next = number;
  }
}

// The log's next segment, or the same one. A segment that was walked into does not begin with the
// rest of a group that is still to come.
uint32_t Lives::Next(uint32_t number) const {
  const Life& next = lives_[lives_[number].next];
  const bool goes_on = Follows(next, lives_[number]) && next.unit == nvlog::kFirstUnit;
  return goes_on ? next.number : number;
}

void Lives::List() {
  growing_.clear();
  kept_.clear();
  for (uint32_t number = 0; number < count(); ++number) {
    Life& life = lives_[number];
    if (life.generation == 0) continue;
    life.stuck = false;
    if (life.kept) {
      kept_.push_back(number);
    } else if (!life.closed) {
      growing_.push_back(number);
    }
  }
}

// ---------------------------------------------------------------------------------------------
// Groups.

bool Lives::CopyHeader(uint32_t number, uint64_t unit, RecordHeader* header) const {
  return nvlog::CopyHeader(view_, number * units_ + unit, lives_[number].generation, header);
}

Lsn Lives::Peek(uint32_t number, Lsn bound, bool* lost) const {
  const Life& life = lives_[number];
  RecordHeader header;
  if (life.stuck) return 0;
  if (!CopyHeader(number, life.unit, &header)) {
    *lost = *lost || !Has(number);
    return 0;
  }
  if (header.lsn >= bound) return 0;
  const bool is_newer = life.kept ? header.lsn >= life.last : header.lsn > life.last;
  if (!is_newer) return 0;
  if (header.index == 0) return nvlog::WasCommitted(header, view_.salt()) ? header.lsn : 0;
  if (life.unit != nvlog::kFirstUnit || life.kept || Is(Mutant::kNoContinuation)) return 0;
  // The rest of a group: it comes with that, unless the segment before is gone.
  const Life& previous = lives_[life.previous_number];
  const bool waits = Follows(life, previous) && previous.last < header.lsn;
  return waits ? 0 : header.lsn;
}

bool Lives::Walk(uint32_t number, std::vector<Move>* moves) const {
  const uint32_t unit = lives_[number].unit;
  RecordHeader first;
  if (!CopyHeader(number, unit, &first)) return false;
  moves->assign(1, {number, unit});
  // The rest of a group has a part in each segment, which is walked over by itself.
  const bool is_part = first.index != 0 || Is(Mutant::kNoContinuation);
  const auto copy_header = [this](uint32_t segment, uint64_t at, RecordHeader* header) {
    return CopyHeader(segment, at, header);
  };
  const auto next_of = [&](uint32_t segment) { return is_part ? segment : Next(segment); };
  const auto move = [&](const RecordHeader& header, uint32_t segment, uint64_t at) {
    if (segment != moves->back().number) moves->push_back({segment, 0});
    moves->back().unit = static_cast<uint32_t>(at + nvlog::RecordUnits(header));
  };
  return nvlog::StepOverGroup(first, number, unit, copy_header, next_of, move) || is_part;
}

void Lives::Go(const std::vector<Move>& moves, Lsn lsn) {
  for (const Move& move : moves) {
    Life& life = lives_[move.number];
    // A segment that was taken for a group that came to nothing begins with the rest of an older
    // one.
    Life& previous = lives_[life.previous_number];
    if (life.unit == nvlog::kFirstUnit && Follows(life, previous) && previous.last <= lsn) {
      previous.closed = true;
    }
    life.unit = move.unit;
    life.last = lsn;
  }
}

// The first one of the two headers, which say the same, is read.
uint8_t* Lives::Copy(uint32_t number, uint32_t end, Pieces* pieces) const {
  const Life& life = lives_[number];
  if (life.copied != 0) {
    const uint64_t from = std::max<uint64_t>(life.copied, nvlog::kFirstUnit);
    return pieces->Add(OffsetOf(number, from), view_.unit(number * units_ + from),
                       (end - from) * pool::kUnitSize);
  }
  SegmentHeader header;
  if (!pool::CopySegmentHeader(view_, *view_.segment(number), number, &header) ||
      header.generation != life.generation) {
    return nullptr;
  }
  const size_t at = pieces->bytes();
  pieces->Add(OffsetOf(number, units_ - 1), &header, sizeof(header));
  pieces->Add(OffsetOf(number, 0), &header, sizeof(header));
  pieces->Add(OffsetOf(number, nvlog::kFirstUnit), view_.unit(number * units_ + nvlog::kFirstUnit),
              (end - nvlog::kFirstUnit) * pool::kUnitSize);
  return pieces->At(at + 2 * sizeof(header));
}

}  // namespace nvcache::mirror
