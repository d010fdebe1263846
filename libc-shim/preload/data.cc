// SPDX-License-Identifier: BSD-3-Clause
//
// read, write, lseek and their names.
#include "libc-shim/calls/data.h"

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT ssize_t read(int fd, void* buffer, size_t count) {
  return Read(fd, buffer, count, NVCACHE_CANCELLABLE(read));
}
NVCACHE_EXPORT_ALIAS(__read, read);

NVCACHE_EXPORT ssize_t pread64(int fd, void* buffer, size_t count, off64_t offset) {
  return Pread(fd, buffer, count, offset, NVCACHE_CANCELLABLE(pread64));
}
NVCACHE_EXPORT_ALIAS(pread, pread64);
NVCACHE_EXPORT_ALIAS(__pread64, pread64);

// The checked forms end the program when the buffer is too small; else they are the plain ones.
NVCACHE_EXPORT ssize_t __read_chk(int fd, void* buffer, size_t count, size_t buffer_size) {
  if (count > buffer_size) return NVCACHE_REAL(__read_chk)(fd, buffer, count, buffer_size);
  return read(fd, buffer, count);
}

NVCACHE_EXPORT ssize_t __pread64_chk(int fd, void* buffer, size_t count, off64_t offset,
                                     size_t buffer_size) {
  if (count > buffer_size) {
    return NVCACHE_REAL(__pread64_chk)(fd, buffer, count, offset, buffer_size);
  }
  return pread64(fd, buffer, count, offset);
}
NVCACHE_EXPORT_ALIAS(__pread_chk, __pread64_chk);

NVCACHE_EXPORT ssize_t readv(int fd, const struct iovec* iov, int iov_count) {
  return Readv(fd, iov, iov_count, NVCACHE_CANCELLABLE(readv));
}

NVCACHE_EXPORT ssize_t preadv64(int fd, const struct iovec* iov, int iov_count, off64_t offset) {
  return Preadv(fd, iov, iov_count, offset, NVCACHE_CANCELLABLE(preadv64));
}
NVCACHE_EXPORT_ALIAS(preadv, preadv64);

NVCACHE_EXPORT ssize_t preadv64v2(int fd, const struct iovec* iov, int iov_count, off64_t offset,
                                  int flags) {
  return Preadv2(fd, iov, iov_count, offset, flags, NVCACHE_CANCELLABLE(preadv64v2));
}
NVCACHE_EXPORT_ALIAS(preadv2, preadv64v2);

NVCACHE_EXPORT ssize_t write(int fd, const void* buffer, size_t count) {
  return Write(fd, buffer, count, NVCACHE_CANCELLABLE(write));
}
NVCACHE_EXPORT_ALIAS(__write, write);

NVCACHE_EXPORT ssize_t pwrite64(int fd, const void* buffer, size_t count, off64_t offset) {
  return Pwrite(fd, buffer, count, offset, NVCACHE_CANCELLABLE(pwrite64));
}
NVCACHE_EXPORT_ALIAS(pwrite, pwrite64);
NVCACHE_EXPORT_ALIAS(__pwrite64, pwrite64);

NVCACHE_EXPORT ssize_t writev(int fd, const struct iovec* iov, int iov_count) {
  return Writev(fd, iov, iov_count, NVCACHE_CANCELLABLE(writev));
}

NVCACHE_EXPORT ssize_t pwritev64(int fd, const struct iovec* iov, int iov_count, off64_t offset) {
  return Pwritev(fd, iov, iov_count, offset, NVCACHE_CANCELLABLE(pwritev64));
}
NVCACHE_EXPORT_ALIAS(pwritev, pwritev64);

NVCACHE_EXPORT ssize_t pwritev64v2(int fd, const struct iovec* iov, int iov_count, off64_t offset,
                                   int flags) {
  return Pwritev2(fd, iov, iov_count, offset, flags, NVCACHE_CANCELLABLE(pwritev64v2));
}
NVCACHE_EXPORT_ALIAS(pwritev2, pwritev64v2);

NVCACHE_EXPORT off64_t lseek64(int fd, off64_t offset, int whence) noexcept {
  return Lseek(fd, offset, whence, NVCACHE_FOUND(lseek64));
}
NVCACHE_EXPORT_ALIAS(lseek, lseek64);
NVCACHE_EXPORT_ALIAS(__lseek, lseek64);
NVCACHE_EXPORT_ALIAS(llseek, lseek64);
