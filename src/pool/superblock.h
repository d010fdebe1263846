// SPDX-License-Identifier: BSD-3-Clause
//
// The parts by which a pool is known, and its state: the superblock, the checkpoints, the state.
#ifndef NVCACHE_POOL_SUPERBLOCK_H_
#define NVCACHE_POOL_SUPERBLOCK_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/layout.h"

namespace nvcache::pool {

// Geometry and identity. Never changes after creation.
struct Superblock {
  char magic[8];
  uint32_t version;
  uint32_t superblock_size;  // sizeof(Superblock)
  uint64_t pool_size;        // bytes, all of it
  uint64_t salt;             // random, high bit set: makes this pool's commit words its own
  uint8_t uuid[16];          // random
  uint64_t created;          // ns since 1970
  uint64_t segment_size;     // bytes, a power of two
  uint32_t segment_count;
  uint32_t page_size;  // kPageSize
  uint32_t unit_size;  // kUnitSize
  uint32_t commit;     // kCommitOwn and its like
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes before it
};
static_assert(offsetof(Superblock, magic) == 0);
static_assert(offsetof(Superblock, version) == 8);
static_assert(offsetof(Superblock, superblock_size) == 12);
static_assert(offsetof(Superblock, pool_size) == 16);
static_assert(offsetof(Superblock, salt) == 24);
static_assert(offsetof(Superblock, uuid) == 32);
static_assert(offsetof(Superblock, created) == 48);
static_assert(offsetof(Superblock, segment_size) == 56);
static_assert(offsetof(Superblock, segment_count) == 64);
static_assert(offsetof(Superblock, page_size) == 68);
static_assert(offsetof(Superblock, unit_size) == 72);
static_assert(offsetof(Superblock, commit) == 76);
static_assert(offsetof(Superblock, zero) == 80);
static_assert(offsetof(Superblock, crc) == 84);
static_assert(sizeof(Superblock) == 88 && sizeof(Superblock) <= kCheckpointOffset);
static_assert(kSuperblockCopyOffset % 64 == 0 &&
              kSuperblockCopyOffset + sizeof(Superblock) <= kSegmentsOffset);

// Superblock::commit: what waits for the pool's mirror (docs/mirror.md).
inline constexpr uint32_t kCommitOwn = 0;    // nothing: the pool is not mirrored
inline constexpr uint32_t kCommitFsync = 1;  // calls that promise durability
inline constexpr uint32_t kCommitWrite = 2;  // all calls that change a file or a name
// Those by which something leaves the program, after a call that promises durability.
inline constexpr uint32_t kCommitOutput = 3;

// A superblock of any version, with what lies behind it.
using SuperblockBytes = uint8_t[256];

bool HasMagic(const Superblock& superblock);
bool HasCrc(const Superblock& superblock);
bool IsWhole(const Superblock& superblock);
// Whether a whole superblock of another version begins there.
bool IsOfAnotherVersion(const SuperblockBytes& bytes);
// The first bytes of its uuid.
uint64_t IdOf(const Superblock& superblock);
// `commit`: Superblock::commit.
Superblock NewSuperblock(uint64_t size, uint32_t commit);
// Durable when it returns; the magic comes last: a superblock that has it is whole, or was.
void WriteSuperblock(uint8_t* place, const Superblock& superblock);

// A checkpoint: every group below it is in the file systems for good, or void; but for kept
// segments. The pool's is for all logs, and moves when nobody else uses the pool; a seat's is for
// the logs of that seat, that of write-through for such logs of all seats. The highest one that
// is whole counts for a log: in a record of the pool, of its seat or of write-through, or in the
// header of a segment of that seat, or of any write-through log. Both records are written, one
// after the other, before anything is done that relies on them. So one that is torn or damaged
// never brings old groups back. One that is all zero, but for the pool's, was never written, and
// says 0.
struct alignas(64) CheckpointRecord {
  Lsn checkpoint;
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes before it, seeded with the salt's low half
};
static_assert(offsetof(CheckpointRecord, checkpoint) == 0);
static_assert(offsetof(CheckpointRecord, crc) == 12);
static_assert(sizeof(CheckpointRecord) == 64);
// Bytes of it that are stored. The rest of the line is for volatile words (View::written_back).
inline constexpr uint64_t kCheckpointStored = 16;
static_assert(kCheckpointStored == offsetof(CheckpointRecord, crc) + sizeof(CheckpointRecord::crc));
static_assert(kCheckpointOffset + sizeof(CheckpointRecord) <= kStateOffset);
static_assert(kCheckpointOffset + sizeof(CheckpointRecord) <= kThroughCheckpointOffset);
static_assert(kThroughCheckpointOffset + sizeof(CheckpointRecord) <= kStateOffset);
static_assert(kCheckpointDistance % kPageSize == 0);
static_assert(kCheckpointOffset + kCheckpointDistance + sizeof(CheckpointRecord) <=
              kSuperblockCopyOffset);
static_assert(kSuperblockCopyOffset + sizeof(Superblock) <=
              kThroughCheckpointOffset + kCheckpointDistance);
static_assert(kThroughCheckpointOffset + kCheckpointDistance + sizeof(CheckpointRecord) <=
              kSeatCheckpointsOffset);
static_assert(kMaxSeats * sizeof(CheckpointRecord) <= kSeatCheckpointsDistance);
static_assert(kSeatCheckpointsOffset + 2 * kSeatCheckpointsDistance <= kSharedOffset);

inline constexpr uint64_t kStateClean = 0x6e61656c63766e00;  // the log holds nothing pending
inline constexpr uint64_t kStateInUse = 0x657375206e690000;  // a process uses it, or died using it

struct alignas(64) StateRecord {
  uint64_t state;
  uint32_t owner_pid;    // the process that set kStateInUse last; for people
  uint32_t handed_over;  // 1: since then a log may have got an nvlog::Kind::kHandedOver
  uint64_t owner_since;  // ns since 1970
  uint8_t boot[16];      // the kernel's run in which kStateInUse was set; all zero: not known
};
static_assert(offsetof(StateRecord, state) == 0);
static_assert(offsetof(StateRecord, owner_pid) == 8);
static_assert(offsetof(StateRecord, handed_over) == 12);
static_assert(offsetof(StateRecord, owner_since) == 16);
static_assert(offsetof(StateRecord, boot) == 24);
static_assert(sizeof(StateRecord) == 64);
static_assert(kStateOffset % 64 == 0 && kStateOffset + sizeof(StateRecord) <= kStatisticsOffset);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_SUPERBLOCK_H_
