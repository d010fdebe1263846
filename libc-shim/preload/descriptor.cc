// SPDX-License-Identifier: BSD-3-Clause
//
// close, dup, fcntl, ioctl and their names.
#include "libc-shim/calls/descriptor.h"

#include <climits>
#include <cstdarg>

#include "libc-shim/calls/control.h"
#include "libc-shim/calls/open.h"
#include "libc-shim/preload/stream.h"
#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

namespace {

// The argument of a call like fcntl, which takes at most one, an integer or a pointer.
#define NVCACHE_LAST_ARGUMENT(result, last)    \
  va_list arguments;                           \
  va_start(arguments, last);                   \
  const long result = va_arg(arguments, long); \
  va_end(arguments)

}  // namespace

NVCACHE_EXPORT int close(int fd) { return Close(fd, NVCACHE_CANCELLABLE(close)); }
NVCACHE_EXPORT_ALIAS(__close, close);

NVCACHE_EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  return CloseRange(first, last, flags, NVCACHE_REAL(close_range));
}

NVCACHE_EXPORT void closefrom(int first) noexcept {
  const unsigned from = first < 0 ? 0 : static_cast<unsigned>(first);
  if (vfs::CloseRange(from, UINT_MAX, 0) == vfs::kNotOurs) NVCACHE_REAL(closefrom)(first);
}

NVCACHE_EXPORT int dup(int fd) noexcept { return Dup(fd, NVCACHE_REAL(dup)); }

NVCACHE_EXPORT int dup2(int from, int to) noexcept { return Dup2(from, to, NVCACHE_REAL(dup2)); }
NVCACHE_EXPORT_ALIAS(__dup2, dup2);

NVCACHE_EXPORT int dup3(int from, int to, int flags) noexcept {
  return Dup3(from, to, flags, NVCACHE_REAL(dup3));
}

NVCACHE_EXPORT int fcntl64(int fd, int command, ...) {
  NVCACHE_LAST_ARGUMENT(argument, command);
  return Fcntl(fd, command, argument, NVCACHE_REAL(fcntl64));
}
NVCACHE_EXPORT_ALIAS(fcntl, fcntl64);
NVCACHE_EXPORT_ALIAS(__fcntl, fcntl64);

// A lock from the current offset on.
NVCACHE_EXPORT int lockf64(int fd, int command, off64_t length) {
  return Lockf(fd, command, length, NVCACHE_REAL(lockf64));
}
NVCACHE_EXPORT_ALIAS(lockf, lockf64);

NVCACHE_EXPORT int flock(int fd, int operation) noexcept {
  return Flock(fd, operation, NVCACHE_REAL(flock));
}

NVCACHE_EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  NVCACHE_LAST_ARGUMENT(argument, request);
  return Ioctl(fd, request, argument, NVCACHE_REAL(ioctl));
}

// Puts the terminal in place of the standard descriptors, if it can.
NVCACHE_EXPORT int login_tty(int fd) noexcept {
  ReleaseStandard();
  const int result = NVCACHE_REAL(login_tty)(fd);
  if (result != 0) {
    for (int standard = 0; standard <= 2; ++standard) vfs::Adopt(standard);
  }
  return result;
}

NVCACHE_EXPORT int setns(int fd, int kind) noexcept {
  return Setns([=] { return NVCACHE_REAL(setns)(fd, kind); });
}

NVCACHE_EXPORT int unshare(int flags) noexcept {
  return Unshare(flags, [=] { return NVCACHE_REAL(unshare)(flags); });
}
