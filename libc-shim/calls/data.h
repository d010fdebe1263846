// SPDX-License-Identifier: BSD-3-Clause
//
// Reads, writes and the offset: the hot path, and nothing in it but the engine's answer.
#ifndef NVCACHE_LIBC_SHIM_CALLS_DATA_H_
#define NVCACHE_LIBC_SHIM_CALLS_DATA_H_

#include <sys/uio.h>

#include "libc-shim/calls/calls.h"
#include "src/sys/kernel.h"
#include "src/vfs/plain_write.h"

namespace nvcache::calls {

// Of a write. A process that comes to follow a mirror meanwhile has had nothing in a log before.
template <typename EngineCall, typename RealCall, typename... Arguments>
inline auto OfferChange(int rwf_flags, EngineCall engine_call, RealCall real, int fd,
                        Arguments... arguments) {
  using Result = decltype(real(fd, arguments...));
  if (vfs::IsUntracked(fd)) {
    if (!vfs::IsMirrored()) [[likely]]
      return real(fd, arguments...);
    if (!MayLeaveBy(fd)) return Result{-1};
    return Changed(fd, real(fd, arguments...), rwf_flags);
  }
  if constexpr (ActsBefore<RealCall>) real.BeforeAnswer();
  if (!MayLeaveBy(fd)) return Result{-1};
  // The file may have become the kernel's in between.
  const auto held = [real](int to, auto... with) {
    return MayLeaveBy(to) ? real(to, with...) : Result{-1};
  };
  return Changed(fd, Answer(engine_call(fd, arguments...), held, fd, arguments...), rwf_flags);
}

// OfferPlainly() takes no stack, for it calls nothing but these, last of all.

template <typename EngineCall, typename RealCall, typename... Arguments>
[[gnu::noinline]] inline auto OfferMore(EngineCall engine_call, RealCall real, int fd,
                                        Arguments... arguments) {
  return OfferChange(0, engine_call, real, fd, arguments...);
}

// To look for the real call takes stack, too.
template <typename RealCall>
concept IsLookedFor = requires(RealCall real) {
  real.Found();
};

template <typename EngineCall, typename RealCall, typename... Arguments>
inline auto CallFound(EngineCall engine_call, RealCall real, int fd, Arguments... arguments) {
  if constexpr (IsLookedFor<RealCall>) {
    auto* const found = real.Found();
    if (found == nullptr) [[unlikely]]
      return OfferMore(engine_call, real, fd, arguments...);
    return found(fd, arguments...);
  } else {
    return real(fd, arguments...);
  }
}

[[gnu::noinline]] inline long EndPlainly(long answer) {
  vfs::PlainWrite::Deliver();
  return FromAnswer(answer);
}

template <typename Plain, typename EngineCall, typename RealCall, typename... Arguments>
[[gnu::always_inline]] inline auto GoPlainly(vfs::PlainWrite& write, Plain plain,
                                             EngineCall engine_call, RealCall real, int fd,
                                             Arguments... arguments) {
  using Result = decltype(real(fd, arguments...));
  if (!write.is_on_file()) {
    if (write.is_untracked()) return CallFound(engine_call, real, fd, arguments...);
    return OfferMore(engine_call, real, fd, arguments...);
  }
  if (MayActBefore(real) || !write.Begin()) [[unlikely]]
    return OfferMore(engine_call, real, fd, arguments...);
  const long answer = plain(fd, arguments...);
  if (write.End() || answer < 0) [[unlikely]]
    return static_cast<Result>(EndPlainly(answer));
  return static_cast<Result>(answer);
}

template <typename Plain, typename EngineCall, typename RealCall, typename... Arguments>
[[gnu::noinline]] inline auto OfferMirrored(Plain plain, EngineCall engine_call, RealCall real,
                                            int fd, Arguments... arguments) {
  vfs::PlainWrite write(fd);
  if (vfs::WriteMayWait(fd, write.is_untracked()))
    return OfferMore(engine_call, real, fd, arguments...);
  return GoPlainly(write, plain, engine_call, real, fd, arguments...);
}

// Of a write with one buffer, and no flags. `plain` is the kernel's call, `real` libc's.
template <typename Plain, typename EngineCall, typename RealCall, typename... Arguments>
inline auto OfferPlainly(Plain plain, EngineCall engine_call, RealCall real, int fd,
                         Arguments... arguments) {
  vfs::PlainWrite write(fd);
  if (vfs::IsMirrored()) [[unlikely]]
    return OfferMirrored(plain, engine_call, real, fd, arguments...);
  return GoPlainly(write, plain, engine_call, real, fd, arguments...);
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
  return OfferPlainly(sys::Write, vfs::WriteWithMore, real, fd, buffer, count);
}

template <typename RealCall>
inline auto Pwrite(int fd, const void* buffer, size_t count, off_t offset, RealCall real) {
  const auto plain = [](int to, const void* bytes, size_t n, off_t at) {
    return sys::Pwrite(to, bytes, n, static_cast<uint64_t>(at));
  };
  return OfferPlainly(plain, vfs::PwriteWithMore, real, fd, buffer, count, offset);
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
