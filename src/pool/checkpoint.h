// SPDX-License-Identifier: BSD-3-Clause
//
// The records of checkpoints, each of which is there twice (CheckpointRecord).
#ifndef NVCACHE_POOL_CHECKPOINT_H_
#define NVCACHE_POOL_CHECKPOINT_H_

#include <cstdint>

#include "src/pmem/step.h"
#include "src/pool/view.h"

namespace nvcache::pool {

// Whose checkpoint: a seat's, or, in the place of a seat, that of the pool, or of all seats in
// their write-through logs.
inline constexpr uint32_t kOfPool = ~uint32_t{0};
inline constexpr uint32_t kOfThrough = kOfPool - 1;
static_assert(kMaxSeats < kOfThrough);

// Says whose checkpoint counts for a log, beside the pool's.
constexpr uint32_t WhoseCheckpoint(uint32_t log) {
  return IsThroughLog(log) ? kOfThrough : log / kLogsOfSeat;
}

CheckpointRecord* CheckpointRecordOf(const View& view, uint32_t whose, uint64_t i);  // 0 or 1
// Makes a record that is whole.
CheckpointRecord MakeCheckpointRecord(Lsn checkpoint, uint64_t salt);
// Record `i`, 0 or 1. A PSYNC must follow.
void WriteCheckpoint(const View& view, uint32_t whose, uint64_t i, Lsn checkpoint, pmem::Step step);

// Loads the higher one of the two records that are whole, or 0, and returns how many are.
int LoadCheckpoint(const View& view, uint32_t whose, Lsn* checkpoint);
// The records say now that the groups of the log below it are on the disk, or void.
Lsn LoadCheckpointOfLog(const View& view, uint32_t log);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_CHECKPOINT_H_
