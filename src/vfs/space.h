// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_SPACE_H_
#define NVCACHE_VFS_SPACE_H_

#include <cstdint>

#include "src/vfs/file.h"

namespace nvcache::vfs {

// Whether the file system will take `file` when it has grown by `growth` bytes to `size`, beside
// all that is pending, as far as statvfs can tell (I10): an acknowledged write must not be refused
// to the cleanup thread. File lock, shared; without page locks. 0; -ENOSPC; -EFBIG beyond
// RLIMIT_FSIZE, where the kernel also has a signal to send.
long ReserveSpace(File& file, uint64_t growth, uint64_t size);

// Whether a file of `size` bytes is within RLIMIT_FSIZE. The limit is remembered, so it must be
// forgotten when it may have gone down; no thread may be asking meanwhile.
bool WithinSizeLimit(uint64_t size);
void ForgetSizeLimit();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_SPACE_H_
