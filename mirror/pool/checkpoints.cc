// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/pool/checkpoints.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

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

bool Checkpoints::LookAt(Entry* entry) {
  bool changed = !looked_;
  for (uint64_t i = 0; i < 2; ++i) {
    auto& word = pool::CheckpointRecordOf(view_, entry->whose, i)->checkpoint;
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
    const auto record = pool::MakeCheckpointRecord(entry.checkpoint, view_.salt());
    for (uint64_t i = 0; i < 2; ++i) {
      const auto* place =
          reinterpret_cast<const uint8_t*>(pool::CheckpointRecordOf(view_, entry.whose, i));
      pieces->Add(static_cast<uint64_t>(place - view_.base), &record, sizeof(record));
    }
  }
}

void Checkpoints::Sent() {
  for (Entry& entry : entries_) entry.sent = entry.checkpoint;
}

pool::Lsn Checkpoints::Of(uint32_t log) const {
  const uint32_t whose = pool::WhoseCheckpoint(log);
  const size_t own = whose == pool::kOfThrough ? kThrough : kSeats + whose;
  return std::max(entries_[kPool].checkpoint, entries_[own].checkpoint);
}

pool::Lsn Checkpoints::Now(uint32_t log) const {
  return std::max(pool::LoadCheckpointOfLog(view_, log), Of(log));
}

}  // namespace nvcache::mirror
