// SPDX-License-Identifier: BSD-3-Clause
//
// Durability: what the program syncs.
#ifndef NVCACHE_VFS_SYNC_H_
#define NVCACHE_VFS_SYNC_H_

#include "src/vfs/engine/results.h"

namespace nvcache::vfs {

long Fsync(int fd);      // and fdatasync: calls that may make a file hot
long SyncRange(int fd);  // sync_file_range, which promises less: the bytes

// sync(), syncfs(): waits until everything acknowledged is on disk.
void DrainAll();
// Waits until everything acknowledged of this file is on disk. 0, or the write-back error.
long Drain(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_SYNC_H_
