// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_SPACE_H_
#define NVCACHE_VFS_SPACE_H_

#include <cstdint>

#include "src/vfs/file.h"

namespace nvcache::vfs {

// Whether the disk has room for `growth` more bytes of `file`, beside all that is pending, as far
// as statvfs can tell (I10): an acknowledged write must not meet ENOSPC in the cleanup thread.
// File lock, shared; without page locks. 0 or -ENOSPC.
long ReserveSpace(File& file, uint64_t growth);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_SPACE_H_
