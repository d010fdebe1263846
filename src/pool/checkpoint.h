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

// Of the two records the higher one that is whole, and how many are.
int LoadCheckpoint(const View& view, uint32_t seat, Lsn* checkpoint);
// Record `i`, 0 or 1. A PSYNC must follow.
void WriteCheckpoint(const View& view, uint32_t seat, uint64_t i, Lsn checkpoint, pmem::Step step);

// The higher one of the valid checkpoint records. False when both are damaged; `records_valid` says
// how many are whole.
bool ReadCheckpoint(const View& view, Lsn* checkpoint, int* records_valid);
// The same of a seat's own records.
bool ReadSeatCheckpoint(const View& view, uint32_t seat, Lsn* checkpoint, int* records_valid);
// The same of the records of write-through.
bool ReadThroughCheckpoint(const View& view, Lsn* checkpoint, int* records_valid);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_CHECKPOINT_H_
