// SPDX-License-Identifier: BSD-3-Clause
//
// Reads, writes and the offset: the hot path, and nothing in it but the engine's answer.
#ifndef NVCACHE_LIBC_SHIM_CALLS_DATA_H_
#define NVCACHE_LIBC_SHIM_CALLS_DATA_H_

#include <sys/uio.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

template <typename RealCall>
inline auto Read(int fd, void* buffer, size_t count, RealCall real) {
  return Answer(vfs::Read(fd, buffer, count), real, fd, buffer, count);
}

template <typename RealCall>
inline auto Pread(int fd, void* buffer, size_t count, off_t offset, RealCall real) {
  return Answer(vfs::Pread(fd, buffer, count, offset), real, fd, buffer, count, offset);
}

template <typename RealCall>
inline auto Readv(int fd, const iovec* iov, int iov_count, RealCall real) {
  return Answer(vfs::Readv(fd, iov, iov_count), real, fd, iov, iov_count);
}

template <typename RealCall>
inline auto Preadv(int fd, const iovec* iov, int iov_count, off_t offset, RealCall real) {
  return Answer(vfs::Preadv(fd, iov, iov_count, offset, 0), real, fd, iov, iov_count, offset);
}

template <typename RealCall>
inline auto Write(int fd, const void* buffer, size_t count, RealCall real) {
  return Changed(fd, Answer(vfs::Write(fd, buffer, count), real, fd, buffer, count));
}

template <typename RealCall>
inline auto Pwrite(int fd, const void* buffer, size_t count, off_t offset, RealCall real) {
  return Changed(fd,
                 Answer(vfs::Pwrite(fd, buffer, count, offset), real, fd, buffer, count, offset));
}

template <typename RealCall>
inline auto Writev(int fd, const iovec* iov, int iov_count, RealCall real) {
  return Changed(fd, Answer(vfs::Writev(fd, iov, iov_count), real, fd, iov, iov_count));
}

template <typename RealCall>
inline auto Pwritev(int fd, const iovec* iov, int iov_count, off_t offset, RealCall real) {
  return Changed(
      fd, Answer(vfs::Pwritev(fd, iov, iov_count, offset, 0), real, fd, iov, iov_count, offset));
}

template <typename RealCall>
inline auto Lseek(int fd, off_t offset, int whence, RealCall real) {
  return Answer(vfs::Lseek(fd, offset, whence), real, fd, offset, whence);
}

// preadv2 and pwritev2: with the offset -1 they are readv and writev with flags.

template <typename RealCall>
inline auto Preadv2(int fd, const iovec* iov, int iov_count, off_t offset, int flags,
                    RealCall real) {
  const long answer = offset == -1 ? vfs::Readv(fd, iov, iov_count, flags)
                                   : vfs::Preadv(fd, iov, iov_count, offset, flags);
  return Answer(answer, real, fd, iov, iov_count, offset, flags);
}

template <typename RealCall>
inline auto Pwritev2(int fd, const iovec* iov, int iov_count, off_t offset, int flags,
                     RealCall real) {
  const long answer = offset == -1 ? vfs::Writev(fd, iov, iov_count, flags)
                                   : vfs::Pwritev(fd, iov, iov_count, offset, flags);
  return Changed(fd, Answer(answer, real, fd, iov, iov_count, offset, flags), flags);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_DATA_H_
