// SPDX-License-Identifier: BSD-3-Clause
//
// Locks on bytes of the pool's file: the kernel drops them when a process is gone, however it died.
#ifndef NVCACHE_POOL_BYTE_LOCKS_H_
#define NVCACHE_POOL_BYTE_LOCKS_H_

#include <cstdint>

#include "src/pool/layout.h"

namespace nvcache::pool {

// A seat's process lives as long as it holds a lock on byte kLifeOffset plus the seat's number of
// the pool's file, which has nothing there. Locks on the bytes behind these are for the process
// that moves the checkpoint of write-through; for the moment in which it is stored; for the
// checkpointer; for a process that wants it to keep off, or to hurry; and for the mirror.
inline constexpr uint64_t kLifeOffset = uint64_t{1} << 62;
inline constexpr uint32_t kThroughByte = kMaxSeats;
inline constexpr uint32_t kThroughStoreByte = kMaxSeats + 1;
inline constexpr uint32_t kCheckpointerByte = kMaxSeats + 2;
inline constexpr uint32_t kKeepOffByte = kMaxSeats + 3;
inline constexpr uint32_t kHurryByte = kMaxSeats + 4;
inline constexpr uint32_t kMirrorByte = kMaxSeats + 5;

// In a journal's file (docs/disk.md), of whoever writes a round; of those who use the memory that
// belongs to it, shared; and of whoever looks for that memory, or makes it.
inline constexpr uint32_t kLeaderByte = 0;
inline constexpr uint32_t kUsersByte = 1;
inline constexpr uint32_t kMakerByte = 2;

// A lock on one of these bytes, for as long as that open file is open. `shared`: several may have
// it. False: somebody else has it.
bool HoldByte(int fd, uint32_t byte, bool shared);
void ReleaseByte(int fd, uint32_t byte);
// Others than this open file hold one of them: the kernel does not report its own locks.
bool AreBytesHeld(int fd, uint32_t first, uint32_t count);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_BYTE_LOCKS_H_
