// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/pool/checkpoints.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "src/sys/crc32c.h"

namespace nvcache::mirror {

namespace {

constexpr size_t kPool = 0, kThrough = 1, kSeats = 2;  // in entries_

}  // namespace

Checkpoints::Checkpoints(const pool::Pool& pool)
    : view_(pool.view()), seats_(pool.seats()), entries_(kSeats + pool.view().seat_count()) {
  entries_[kPool].whose = pool::kOfPool;
  entries_[kThrough].whose = pool::kOfThrough;
  for (uint32_t seat = 0; seat < view_.seat_count(); ++seat) entries_[kSeats + seat].whose = seat;
}

const pool::CheckpointRecord* Checkpoints::RecordOf(uint32_t whose, uint64_t i) const {
  if (whose == pool::kOfPool) return view_.checkpoint_record(i);
  if (whose == pool::kOfThrough) return view_.through_checkpoint_record(i);
  return view_.seat_checkpoint_record(whose, i);
}

bool Checkpoints::LookAt(Entry* entry) {
  bool changed = !looked_;
  for (uint64_t i = 0; i < 2; ++i) {
    auto& word = const_cast<pool::Lsn&>(RecordOf(entry->whose, i)->checkpoint);
    const pool::Lsn now = std::atomic_ref(word).load(std::memory_order_acquire);
    changed = changed || now != entry->words[i];
    entry->words[i] = now;
  }
  if (changed) {
    pool::Lsn checkpoint = 0;
    pool::LoadCheckpoint(view_, entry->whose, &checkpoint);
    entry->checkpoint = std::max(entry->checkpoint, checkpoint);
  }
  return entry->checkpoint != entry->sent;
}

// A seat from the end on has the records of an earlier use, which do not change.
bool Checkpoints::Look() {
  const size_t end =
      looked_ ? kSeats + std::min(seats_.end(), view_.seat_count()) : entries_.size();
  bool any = false;
  for (size_t i = 0; i < end; ++i) any = LookAt(&entries_[i]) || any;
  looked_ = true;
  return any;
}

// Both records say the same: a torn one would make an image worse than it has to be.
void Checkpoints::Add(Pieces* pieces) const {
  for (const Entry& entry : entries_) {
    if (entry.checkpoint == entry.sent) continue;
    pool::CheckpointRecord record = {};
    record.checkpoint = entry.checkpoint;
    record.crc = sys::Crc32c(&record, offsetof(pool::CheckpointRecord, crc),
                             static_cast<uint32_t>(view_.salt()));
    for (uint64_t i = 0; i < 2; ++i) {
      const auto* place = reinterpret_cast<const uint8_t*>(RecordOf(entry.whose, i));
      pieces->Add(static_cast<uint64_t>(place - view_.base), &record, sizeof(record));
    }
  }
}

void Checkpoints::Sent() {
  for (Entry& entry : entries_) entry.sent = entry.checkpoint;
}

pool::Lsn Checkpoints::Of(uint32_t log) const {
  const size_t own = pool::IsThroughLog(log) ? kThrough : kSeats + log / pool::kLogsOfSeat;
  return std::max(entries_[kPool].checkpoint, entries_[own].checkpoint);
}

pool::Lsn Checkpoints::Now(uint32_t log) const {
  pool::Lsn all = 0, own = 0;
  pool::LoadCheckpoint(view_, pool::kOfPool, &all);
  const uint32_t whose = pool::IsThroughLog(log) ? pool::kOfThrough : log / pool::kLogsOfSeat;
  pool::LoadCheckpoint(view_, whose, &own);
  return std::max({all, own, Of(log)});
}

}  // namespace nvcache::mirror
