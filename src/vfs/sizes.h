// SPDX-License-Identifier: BSD-3-Clause
//
// Offsets and sizes.
#ifndef NVCACHE_VFS_SIZES_H_
#define NVCACHE_VFS_SIZES_H_

#include <sys/types.h>

#include <cstdint>

#include "src/vfs/engine/results.h"

namespace nvcache::vfs {

struct File;

long Lseek(int fd, off_t offset, int whence);
long Ftruncate(int fd, off_t length);
long Fallocate(int fd, int mode, off_t offset, off_t length);

// Cuts a cached file off after `length` bytes, fewer than it has, by way of the log: pending bytes
// need not reach the disk first, and fsync need not wait for it. 0; kNotOurs: nothing has happened,
// and it does not go like that now; or what the kernel says. File lock, exclusive.
long CutLogged(File& file, uint64_t length);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_SIZES_H_
