// SPDX-License-Identifier: BSD-3-Clause
//
// The form of a pool on the medium; docs/pool-format.md says it in prose. Little endian.
//
//   0        Superblock          written once, at creation
//   4096     CheckpointRecord 0  groups below it are in the file systems
//   4608     the same of write-through
//   8192     StateRecord         clean or in use, and by whom
//   8256     Statistics          counters for `nvcache status`; nothing depends on them
//   11776    LastWords           of a process that stopped itself; nothing depends on them
//   12288    CheckpointRecord 1
//   12352    Superblock          a copy, whole before the first one is
//   12800    CheckpointRecord 1 of write-through
//   16384    CheckpointRecord 0 of each seat
//   49152    CheckpointRecord 1 of each seat
//   81920    SharedState         while processes use the pool; recovery does not look at it
//   86016    Seat                kMaxSeats of them; the same
//   118784   owners              of each segment; the same
//   253952   Conduct             of each seat; for people
//   262144   segments            `segment_count` of them, `segment_size` bytes each
//
// A process that uses the pool has a seat, which no other has: a checkpoint and some logs.
//
// A segment belongs to one log at a time. It is a run of units of 64 bytes: a SegmentHeader,
// records (src/nvlog/record.h), and in its last unit a copy of the header.
//
// The parts that recovery needs are there twice, or can be told from the rest, and no 4 KiB of the
// medium hold all of it: each of these pages may be lost.
//
// Changing anything in the headers below means a new kVersion.
#ifndef NVCACHE_POOL_FORMAT_H_
#define NVCACHE_POOL_FORMAT_H_

#include "src/pool/byte_locks.h"
#include "src/pool/file_record.h"
#include "src/pool/layout.h"
#include "src/pool/segment_header.h"
#include "src/pool/shared_state.h"
#include "src/pool/statistics.h"
#include "src/pool/superblock.h"

#endif  // NVCACHE_POOL_FORMAT_H_
