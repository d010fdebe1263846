// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that open a file.
#ifndef NVCACHE_LIBC_SHIM_CALLS_OPEN_H_
#define NVCACHE_LIBC_SHIM_CALLS_OPEN_H_

#include <fcntl.h>

#include <cstdint>

#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/descriptor.h"
#include "src/sys/kernel.h"

namespace nvcache::calls {

// `real` opens with the flags that it is given (one that cannot have others has the file cut
// twice); `uncancelled` opens with the program's and is no cancellation point, for then the engine
// holds locks. (A file that the engine knows is a regular one: opening it does not block.)
// `resolve`: as in struct open_how; `plain`: the call is not openat2.
template <typename RealCall, typename UncancelledCall>
inline auto OpenPrivately(int dirfd, const char* path, int flags, mode_t mode, RealCall real,
                          UncancelledCall uncancelled, uint64_t resolve = 0, bool plain = true) {
  const auto opened = WithRoom([&] {
    decltype(real(flags)) fd = -1;
    long error = 0;
    {
      vfs::OpenGuard guard(dirfd, path, flags, mode, resolve, plain);
      if (guard.error() < 0) return static_cast<decltype(fd)>(FromAnswer(guard.error()));
      if (const long answer = guard.Replace(); answer != vfs::kNotOurs) {
        fd = static_cast<decltype(fd)>(FromAnswer(answer));
      } else {
        fd = guard.holds_locks() ? uncancelled() : real(guard.flags());
      }
      error = guard.Opened(static_cast<int>(fd));
    }
    if (error >= 0) return fd;
    vfs::Return(static_cast<int>(fd));  // it takes locks that the guard may have
    return static_cast<decltype(fd)>(FromAnswer(error));
  });
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
  const auto await = [=] { return vfs::AwaitMirrorOfOpen(static_cast<int>(opened)); };
  if (!changes || opened < 0 || AwaitMirror(opened, await) >= 0) [[likely]]
    return opened;
  const int error = errno;
  vfs::Return(static_cast<int>(opened));
  errno = error;
  return decltype(opened){-1};
}

// OpenPrivately() where libc may write to the descriptor by its number.
template <typename RealCall, typename UncancelledCall>
inline auto Open(int dirfd, const char* path, int flags, mode_t mode, RealCall real,
                 UncancelledCall uncancelled, uint64_t resolve = 0, bool plain = true) {
  return AfterNumbering(OpenPrivately(dirfd, path, flags, mode, real, uncancelled, resolve, plain));
}

// Opens a file by other means than a path. The descriptor must not stay open beside a file that is
// cached and cannot be handed over.
template <typename RealCall>
inline auto Adopt(RealCall real) {
  using Descriptor = decltype(real());
  const Descriptor fd = WithRoom(real);
  if (fd < 0) return fd;
  const long error = vfs::Adopt(static_cast<int>(fd));
  if (error == 0) return fd;
  vfs::Return(static_cast<int>(fd));
  return static_cast<Descriptor>(FromAnswer(error));
}

// Opens by a file handle. There is no path to look at, so O_TRUNC could cut a file that is cached.
template <typename RealCall>
inline auto OpenByHandle(int flags, RealCall real) {
  if ((flags & O_TRUNC) != 0) vfs::Release();
  return Adopt(real);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_OPEN_H_
