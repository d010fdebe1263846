// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_SIZES_H_
#define NVCACHE_VFS_SIZES_H_

#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Cuts a cached file off after `length` bytes, fewer than it has, by way of the log (sizes.cc):
// pending bytes need not reach the disk first, and fsync need not wait for it. 0; kNotOurs:
// nothing has happened, and it does not go like that now; or what the kernel says. File lock,
// exclusive.
long CutLogged(File& file, uint64_t length);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_SIZES_H_
