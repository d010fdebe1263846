// SPDX-License-Identifier: BSD-3-Clause
//
// The protocol, step by step: every PWB and every fence of the engine and of recovery, by name,
// with what it orders. Each call of src/pmem/persist.h says which one it is. The program is the
// same without the names; tests/crash leaves out one step after the other, and proves that each is
// needed.
#ifndef NVCACHE_PMEM_STEP_H_
#define NVCACHE_PMEM_STEP_H_

#include <cstdint>

namespace nvcache::pmem {

enum class Step : uint8_t {
  // A group of entries (src/nvlog/log.cc)
  kPayload,       // PWB    payloads
  kGroupHeaders,  // PWB    headers of all entries but the first
  kCommit,        // PWB    the first header
  kCommitted,  // PSYNC  before the write call returns, its pages are unlocked, or the group named

  // The tail (src/pool/pool.cc). What it passes is on disk.
  kTail,         // PWB    the tail record
  kTailDurable,  // PSYNC  before a place below the tail is taken again

  // The state (src/pool/pool.cc)
  kInUse,         // PWB    the state: in use
  kInUseDurable,  // PSYNC  before the first commit
  kClean,         // PWB    the state: clean
  kCleanDurable,  // PSYNC  before the pool's user says that nothing is left in it

  // The file table (src/pool/file_table.cc, file_record.cc)
  kFileRecord,         // PWB    the record of a file
  kFileRecordDurable,  // PSYNC  before any thread's entry that names it commits
  kSettle,             // PWB    `name`: the file system cannot lose the file any more
  kSettled,            // PSYNC  before an entry of the file is freed
  kCut,                // PWB    `cut`: the file has lost all of its bytes
  kCutDurable,         // PSYNC  before the file system hears of it, and before the tail passes it

  // Recovery (recovery/replay)
  kSeenGroup,             // PWB    the first header of a group, as it was found
  kSeenContent,           // PWB    the rest of a group that is to be applied
  kSeenGroupDurable,      // PSYNC  before any of them is applied, or counts as applied
  kSuccessor,             // PWB    the fingerprint of a file that was created again
  kSuccessorDurable,      // PSYNC  before the file gets its name
  kApplied,               // PWB    the applied word of a group
  kAppliedDurable,        // PSYNC  before a newer group gets its own, and before recovery ends
  kRecoveredTail,         // PWB    the tail, past all positions ever taken
  kRecoveredTailDurable,  // PSYNC  before the state is clean

  // Opening (src/pool/pool.cc)
  kSeen,         // PWB    tail, state and file table, as a process has left them that was killed
  kSeenDurable,  // PSYNC  before anything is done that relies on them

  // Repair of the tail of a clean pool (src/pool/pool.cc)
  kRepairedTail,         // PWB    the tail, two laps on
  kRepairedTailDurable,  // PSYNC  before a place is taken there

  // Creation (src/pool/pool.cc), before the first superblock
  kCreateZeros,  // PWB    what a device held before, but for the log
  kCreateTail,   // PWB    both tail records
  kCreateState,  // PWB    the state: clean

  // A superblock, when a pool is made or the copy repaired (src/pool/pool.cc)
  kSuperblock,       // PWB    all of it but the magic
  kSuperblockFence,  // PFENCE it, and in a new pool all the rest, before the magic
  kMagic,            // PWB    the magic
  kMagicDurable,     // PSYNC  before the next superblock, and before the pool is used

  kCount
};

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_STEP_H_
