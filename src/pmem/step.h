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
  // A group of records (src/nvlog/group_writer.cc)
  kPayload,       // PWB    payloads
  kGroupHeaders,  // PWB    headers of all records but the first
  kCommit,        // PWB    the first header
  kCommitted,     // PSYNC  before the call returns, its pages are unlocked, or its log goes on

  // A segment is taken (src/nvlog/segments.cc)
  kSegmentCopy,   // PWB    the copy of its header, in its last unit
  kSegment,       // PWB    its header
  kSegmentTaken,  // PSYNC  before a group in it commits

  // Kept records (src/nvlog/kept.cc)
  kVoid,         // PWB    the void word of a record that the disk has taken, or a newer one hides
  kVoidDurable,  // PSYNC  before the checkpoint passes a later group of the file, or the segment is
                 //        used again

  // The checkpoint (src/pool/pool.cc). Groups below it are on disk.
  kCheckpoint,         // PWB    one of the two records
  kCheckpointDurable,  // PSYNC  before the other one is written, a segment below is taken again, or
                       //        anybody is told

  // The state (src/pool/pool.cc)
  kInUse,             // PWB    the state: in use
  kInUseDurable,      // PSYNC  before the first commit
  kHandsOver,         // PWB    the state: a file may be handed over
  kHandsOverDurable,  // PSYNC  before the first one is
  kClean,             // PWB    the state: clean
  kCleanDurable,      // PSYNC  before the pool's user says that nothing is left in it

  // Recovery (src/replay)
  kSeenGroup,            // PWB    the first header of a group, as it was found
  kSeenContent,          // PWB    the rest of a group that is to be applied
  kSeenGroupDurable,     // PSYNC  before any of them is applied, or counts as applied
  kSuccessor,            // PWB    the fingerprint of the file made for a name
  kSuccessorDurable,     // PSYNC  before it gets the name
  kApplied,              // PWB    the void word of a group that was applied
  kAppliedDurable,       // PSYNC  before a newer group gets its own, and before recovery ends
  kRecoveredCheckpoint,  // PWB    a checkpoint record, above all LSNs ever drawn
  kRecoveredCheckpointDurable,  // PSYNC  before the state is clean

  // Opening (src/pool/pool.cc)
  kSeen,         // PWB    checkpoint and state, as a process has left them that was killed
  kSeenDurable,  // PSYNC  before anything is done that relies on them

  // Creation (src/pool/pool.cc), before the first superblock
  kCreateZeros,       // PWB    zeros over a device's old bytes, but for the segments
  kCreateCheckpoint,  // PWB    both checkpoint records
  kCreateState,       // PWB    the state: clean

  // A superblock, when a pool is made or the copy repaired (src/pool/pool.cc)
  kSuperblock,       // PWB    all of it but the magic
  kSuperblockFence,  // PFENCE it, and in a new pool all the rest, before the magic
  kMagic,            // PWB    the magic
  kMagicDurable,     // PSYNC  before the next superblock, and before the pool is used

  kCount
};

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_STEP_H_
