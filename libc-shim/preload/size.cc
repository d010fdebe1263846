// SPDX-License-Identifier: BSD-3-Clause
//
// fsync, truncate, fallocate and their names.
#include "libc-shim/calls/size.h"

#include <fcntl.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

NVCACHE_EXPORT int fsync(int fd) {
  CancellationPoint();
  return Fsync(fd, NVCACHE_REAL(fsync));
}

NVCACHE_EXPORT int fdatasync(int fd) {
  CancellationPoint();
  return Fsync(fd, NVCACHE_REAL(fdatasync));
}

NVCACHE_EXPORT int sync_file_range(int fd, off64_t offset, off64_t length, unsigned flags) {
  return SyncFileRange(fd, offset, length, flags,
                       [=] { return NVCACHE_REAL(sync_file_range)(fd, offset, length, flags); });
}

NVCACHE_EXPORT int syncfs(int fd) noexcept {
  return Syncfs(fd, [=] { return NVCACHE_REAL(syncfs)(fd); });
}

NVCACHE_EXPORT void sync() noexcept { Sync(NVCACHE_REAL(sync)); }

NVCACHE_EXPORT int ftruncate64(int fd, off64_t length) noexcept {
  return Ftruncate(fd, length, NVCACHE_REAL(ftruncate64));
}
NVCACHE_EXPORT_ALIAS(ftruncate, ftruncate64);

NVCACHE_EXPORT int truncate64(const char* path, off64_t length) noexcept {
  return Truncate(path, [=] { return NVCACHE_REAL(truncate64)(path, length); });
}
NVCACHE_EXPORT int truncate(const char* path, off_t length) noexcept {
  return Truncate(path, [=] { return NVCACHE_REAL(truncate)(path, length); });
}

NVCACHE_EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  CancellationPoint();
  return Fallocate(fd, mode, offset, length, NVCACHE_REAL(fallocate64));
}
NVCACHE_EXPORT_ALIAS(fallocate, fallocate64);

// Gives the error itself back, and where the file system cannot allocate, libc does it by reading
// and writing.
NVCACHE_EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t length) {
  CancellationPoint();
  long answer = vfs::Fallocate(fd, 0, offset, length);
  if (answer == -EOPNOTSUPP && !ToKernel(fd)) return errno;
  if (answer == -EOPNOTSUPP || answer == vfs::kNotOurs) {
    answer = -NVCACHE_REAL(posix_fallocate64)(fd, offset, length);
  }
  if (answer == 0) answer = vfs::AwaitMirrorOfChange(fd, 0);
  return static_cast<int>(-answer);
}
NVCACHE_EXPORT_ALIAS(posix_fallocate, posix_fallocate64);
