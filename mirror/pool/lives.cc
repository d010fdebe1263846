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
  // What was read before is not read later, and what is read now not earlier.
  std::atomic_thread_fence(std::memory_order_acquire);
  auto& word = view_.segment(number)->word;
  return std::atomic_ref(word).load(std::memory_order_acquire) ==
         pool::SegmentWord(lives_[number].generation, view_.salt());
}

// ---------------------------------------------------------------------------------------------
// Which segments there are.

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
  const bool kept = header.kind == pool::SegmentKind::kKept;
  if (kept_alone && !kept) return;
  Life& life = lives_[number];
  life = {};
  life.generation = header.generation;
  life.last = kept ? 0 : header.generation;
  life.previous_generation = header.previous_generation;
  life.previous = header.previous_number;
  life.log = header.log;
  life.unit = nvlog::kFirstUnit;
  life.kept = kept;
  fresh_.push_back(number);
}

void Lives::Scan() {
  fresh_.clear();
  for (uint32_t number = 0; number < count(); ++number) {
    Life& life = lives_[number];
    const bool same = life.generation != 0 && Has(number);
    const bool free = seats_.IsFree(number);
    // A kept one that is free has void records alone, which the image still has to be told of.
    if (same && (!free || life.kept)) continue;
    if (life.generation != 0) Forget(number);
    if (!free) Add(number, false);
  }
  Link(fresh_);
  List();
}

bool Lives::ScanKept() {
  fresh_.clear();
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

// Of all segments that name one as the one before, the newest is the log's next: the others were
// taken for a group that came to nothing.
void Lives::Link(const std::vector<uint32_t>& fresh) {
  for (const uint32_t number : fresh) {
    const Life& life = lives_[number];
    if (life.kept || life.previous_generation == 0) continue;
    Life& previous = lives_[life.previous];
    if (previous.generation != life.previous_generation || previous.log != life.log ||
        previous.kept) {
      continue;
    }
    const bool has_newer = previous.next != kNoLife &&
                           lives_[previous.next].previous == life.previous &&
                           lives_[previous.next].previous_generation == previous.generation &&
                           lives_[previous.next].generation > life.generation;
    if (!has_newer) previous.next = number;
  }
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
  if (unit < nvlog::kFirstUnit || unit >= units_end()) return false;
  const nvlog::Place place = number * units_ + unit;
  sys::CopyWords(header, view_.unit(place), sizeof(*header));
  return nvlog::IsSane(*header, units_end() - unit) &&
         header->header_crc ==
             nvlog::HeaderCrc(*header, place, lives_[number].generation, view_.salt());
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
  if (header.index == 0) {
    const bool counts = header.commit == nvlog::CommitWord(header.lsn, view_.salt()) ||
                        header.commit == nvlog::VoidWord(header.lsn, view_.salt());
    return counts ? header.lsn : 0;
  }
  if (life.unit != nvlog::kFirstUnit || life.kept || Is(Mutant::kNoContinuation)) return 0;
  // The rest of a group: it comes with that, unless the segment before is gone.
  const Life& previous = lives_[life.previous];
  const bool waits = previous.generation == life.previous_generation && !previous.kept &&
                     previous.last < header.lsn;
  return waits ? 0 : header.lsn;
}

bool Lives::Walk(uint32_t number, std::vector<Move>* moves) const {
  RecordHeader header;
  if (!CopyHeader(number, lives_[number].unit, &header)) return false;
  moves->assign(1, {number, lives_[number].unit});
  const Lsn lsn = header.lsn;
  const uint16_t count = header.count;
  const bool is_rest = header.index != 0;
  for (uint16_t index = header.index; index < count; ++index) {
    Move* at = &moves->back();
    const auto is_part = [&](uint32_t segment, uint64_t unit) {
      return CopyHeader(segment, unit, &header) && header.lsn == lsn && header.index == index &&
             header.count == count;
    };
    if (!is_part(at->number, at->unit)) {
      if (is_rest || Is(Mutant::kNoContinuation)) break;
      const uint32_t next = lives_[at->number].next;
      if (lives_[at->number].kept || next == kNoLife ||
          lives_[next].previous_generation != lives_[at->number].generation ||
          lives_[next].previous != at->number || lives_[next].unit != nvlog::kFirstUnit ||
          !is_part(next, nvlog::kFirstUnit)) {
        return false;
      }
      moves->push_back({next, static_cast<uint32_t>(nvlog::kFirstUnit)});
      at = &moves->back();
    }
    at->unit += static_cast<uint32_t>(nvlog::RecordUnits(header));
  }
  return true;
}

void Lives::Go(const std::vector<Move>& moves, Lsn lsn) {
  for (const Move& move : moves) {
    Life& life = lives_[move.number];
    if (life.unit == nvlog::kFirstUnit && !life.kept && life.previous_generation != 0) {
      // What was taken for a group that came to nothing begins with the rest of an older one.
      Life& previous = lives_[life.previous];
      const bool known = previous.generation == life.previous_generation;
      if (known && previous.last <= lsn) previous.closed = true;
    }
    life.unit = move.unit;
    life.last = lsn;
  }
}

// Of the two headers, which say the same, the first one is read.
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
