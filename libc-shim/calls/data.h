// SPDX-License-Identifier: BSD-3-Clause
//
// Reads, writes and the offset: the hot path, and nothing in it but the engine's answer.
#ifndef NVCACHE_LIBC_SHIM_CALLS_DATA_H_
#define NVCACHE_LIBC_SHIM_CALLS_DATA_H_

#include <sys/uio.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// Of a write. A process that comes to follow a mirror meanwhile has had nothing in a log before.
template <typename EngineCall, typename RealCall, typename... Arguments>
inline auto OfferChange(int rwf_flags, EngineCall engine_call, RealCall real, int fd,
                        Arguments... arguments) {
  if (vfs::IsUntracked(fd) && !vfs::IsMirrored()) [[likely]]
    return real(fd, arguments...);
  return Changed(fd, Offer(engine_call, real, fd, arguments...), rwf_flags);
}

template <typename RealCall>
inline auto Read(int fd, void* buffer, size_t count, RealCall real) {
  return OfferRead(vfs::Read, real, fd, buffer, count);
}

template <typename RealCall>
inline auto Pread(int fd, void* buffer, size_t count, off_t offset, RealCall real) {
  return OfferRead(vfs::Pread, real, fd, buffer, count, offset);
}

template <typename RealCall>
inline auto Readv(int fd, const iovec* iov, int iov_count, RealCall real) {
  const auto offered = [](auto... arguments) { return vfs::Readv(arguments...); };
  return OfferRead(offered, real, fd, iov, iov_count);
}

template <typename RealCall>
inline auto Preadv(int fd, const iovec* iov, int iov_count, off_t offset, RealCall real) {
  const auto offered = [](auto... arguments) { return vfs::Preadv(arguments..., 0); };
  return OfferRead(offered, real, fd, iov, iov_count, offset);
}

template <typename RealCall>
inline auto Write(int fd, const void* buffer, size_t count, RealCall real) {
  return OfferChange(0, vfs::Write, real, fd, buffer, count);
}

template <typename RealCall>
inline auto Pwrite(int fd, const void* buffer, size_t count, off_t offset, RealCall real) {
  return OfferChange(0, vfs::Pwrite, real, fd, buffer, count, offset);
}

template <typename RealCall>
inline auto Writev(int fd, const iovec* iov, int iov_count, RealCall real) {
  const auto offered = [](auto... arguments) { return vfs::Writev(arguments...); };
  return OfferChange(0, offered, real, fd, iov, iov_count);
}

template <typename RealCall>
inline auto Pwritev(int fd, const iovec* iov, int iov_count, off_t offset, RealCall real) {
  const auto offered = [](auto... arguments) { return vfs::Pwritev(arguments..., 0); };
  return OfferChange(0, offered, real, fd, iov, iov_count, offset);
}

template <typename RealCall>
inline auto Lseek(int fd, off_t offset, int whence, RealCall real) {
  return OfferRead(vfs::Lseek, real, fd, offset, whence);
}

// preadv2 and pwritev2: with the offset -1 they are readv and writev with flags.

template <typename RealCall>
inline auto Preadv2(int fd, const iovec* iov, int iov_count, off_t offset, int flags,
                    RealCall real) {
  const auto offered = [](int file, const iovec* array, int count, off_t at, int rwf_flags) {
    return at == -1 ? vfs::Readv(file, array, count, rwf_flags)
                    : vfs::Preadv(file, array, count, at, rwf_flags);
  };
  return OfferRead(offered, real, fd, iov, iov_count, offset, flags);
}

template <typename RealCall>
inline auto Pwritev2(int fd, const iovec* iov, int iov_count, off_t offset, int flags,
                     RealCall real) {
  const auto offered = [](int file, const iovec* array, int count, off_t at, int rwf_flags) {
    return at == -1 ? vfs::Writev(file, array, count, rwf_flags)
                    : vfs::Pwritev(file, array, count, at, rwf_flags);
  };
  return OfferChange(flags, offered, real, fd, iov, iov_count, offset, flags);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_DATA_H_
