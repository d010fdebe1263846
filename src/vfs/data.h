// SPDX-License-Identifier: BSD-3-Clause
//
// Reading and writing.
#ifndef NVCACHE_VFS_DATA_H_
#define NVCACHE_VFS_DATA_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

#include "src/vfs/engine/results.h"

namespace nvcache::vfs {

// I1: when a write returns n > 0, n bytes are durable.

long Read(int fd, void* buffer, size_t count);
long Pread(int fd, void* buffer, size_t count, off_t offset);
long Readv(int fd, const iovec* iov, int iov_count, int rwf_flags = 0);
long Preadv(int fd, const iovec* iov, int iov_count, off_t offset, int rwf_flags);
long Write(int fd, const void* buffer, size_t count);
// The same two, where there is no PlainWrite of it (plain_write.h).
long WriteWithMore(int fd, const void* buffer, size_t count);
long PwriteWithMore(int fd, const void* buffer, size_t count, off_t offset);
long Pwrite(int fd, const void* buffer, size_t count, off_t offset);
long Writev(int fd, const iovec* iov, int iov_count, int rwf_flags = 0);
long Pwritev(int fd, const iovec* iov, int iov_count, off_t offset, int rwf_flags);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_DATA_H_
