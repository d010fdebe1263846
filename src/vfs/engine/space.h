// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_ENGINE_SPACE_H_
#define NVCACHE_VFS_ENGINE_SPACE_H_

#include <cstdint>

#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Whether the file system will take the bytes from `begin` to `end` of `file`, beside all that is
// pending (I10): an acknowledged write must not be refused to the cleanup thread. To be asked
// before a write that lets the file grow, or that may fill a hole. File lock, shared, and the grow
// lock if it grows; no page locks. 0; or -ENOSPC, -EFBIG (RLIMIT_FSIZE): then the
// kernel shall write what it can, and say or send the rest.
long ReserveSpace(File& file, uint64_t begin, uint64_t end);

// The log had no room when `room` was seen (nvlog::Log::RoomSeen). Waits until some comes, or a
// signal. False: there is no hope of that. No lock.
bool AwaitRoom(uint32_t room);

// Whether a file of `size` bytes is within RLIMIT_FSIZE. The limit is remembered, so it must be
// forgotten when it may have gone down; no thread may be asking meanwhile.
bool WithinSizeLimit(uint64_t size);
void ForgetSizeLimit();

// In a child of fork: a thread of the parent may have had a lock of ours.
void ResetSpaceLocks();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_SPACE_H_
