// SPDX-License-Identifier: BSD-3-Clause
//
// open and its many names, and what makes temporary files.
#include "libc-shim/calls/open.h"

#include <cstdarg>

#include "libc-shim/calls/names.h"
#include "libc-shim/preload/stream.h"
#include "libc-shim/preload/temporary.h"
#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

namespace {

// Flags with which open takes a third argument.
bool CreatesFile(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

mode_t ModeFrom(int flags, va_list arguments) {
  return CreatesFile(flags) ? va_arg(arguments, mode_t) : 0;
}

template <typename RealCall>
int OpenAt(int dirfd, const char* path, int flags, mode_t mode, RealCall real) {
  return Open(dirfd, path, flags, mode, real,
              [=] { return OpenUncancelled(dirfd, path, flags, mode); });
}

int MakeTemporaryFile(char* path, int suffix_length, int flags) {
  const int all_flags = (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL;
  constexpr mode_t kMode = 0600;
  return MakeTemporary(path, suffix_length, [=] {
    return OpenAt(AT_FDCWD, path, all_flags, kMode,
                  [=] { return NVCACHE_REAL(open64)(path, all_flags, kMode); });
  });
}

}  // namespace

NVCACHE_EXPORT int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeFrom(flags, arguments);
  va_end(arguments);
  return OpenAt(AT_FDCWD, path, flags, mode,
                [=] { return NVCACHE_REAL(open64)(path, flags, mode); });
}
NVCACHE_EXPORT_ALIAS(open, open64);
NVCACHE_EXPORT_ALIAS(__open, open64);
NVCACHE_EXPORT_ALIAS(__open64, open64);

NVCACHE_EXPORT int openat64(int dirfd, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeFrom(flags, arguments);
  va_end(arguments);
  return OpenAt(dirfd, path, flags, mode,
                [=] { return NVCACHE_REAL(openat64)(dirfd, path, flags, mode); });
}
NVCACHE_EXPORT_ALIAS(openat, openat64);

NVCACHE_EXPORT int creat64(const char* path, mode_t mode) {
  return OpenAt(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode,
                [=] { return NVCACHE_REAL(creat64)(path, mode); });
}
NVCACHE_EXPORT_ALIAS(creat, creat64);

// The real ones end the program when a mode is missing.
NVCACHE_EXPORT int __open64_2(const char* path, int flags) {
  if (CreatesFile(flags)) return NVCACHE_REAL(__open64_2)(path, flags);
  return OpenAt(AT_FDCWD, path, flags, 0, [=] { return NVCACHE_REAL(__open64_2)(path, flags); });
}
NVCACHE_EXPORT_ALIAS(__open_2, __open64_2);

NVCACHE_EXPORT int __openat64_2(int dirfd, const char* path, int flags) {
  if (CreatesFile(flags)) return NVCACHE_REAL(__openat64_2)(dirfd, path, flags);
  return OpenAt(dirfd, path, flags, 0,
                [=] { return NVCACHE_REAL(__openat64_2)(dirfd, path, flags); });
}
NVCACHE_EXPORT_ALIAS(__openat_2, __openat64_2);

NVCACHE_EXPORT int open_by_handle_at(int mount_fd, struct file_handle* handle, int flags) {
  return OpenByHandle(flags,
                      [=] { return NVCACHE_REAL(open_by_handle_at)(mount_fd, handle, flags); });
}

NVCACHE_EXPORT int pidfd_getfd(int pidfd, int fd, unsigned int flags) noexcept {
  return Adopt([=] { return NVCACHE_REAL(pidfd_getfd)(pidfd, fd, flags); });
}

NVCACHE_EXPORT int mkstemp64(char* path) { return MakeTemporaryFile(path, 0, 0); }
NVCACHE_EXPORT_ALIAS(mkstemp, mkstemp64);

NVCACHE_EXPORT int mkostemp64(char* path, int flags) { return MakeTemporaryFile(path, 0, flags); }
NVCACHE_EXPORT_ALIAS(mkostemp, mkostemp64);

NVCACHE_EXPORT int mkstemps64(char* path, int suffix_length) {
  return MakeTemporaryFile(path, suffix_length, 0);
}
NVCACHE_EXPORT_ALIAS(mkstemps, mkstemps64);

NVCACHE_EXPORT int mkostemps64(char* path, int suffix_length, int flags) {
  return MakeTemporaryFile(path, suffix_length, flags);
}
NVCACHE_EXPORT_ALIAS(mkostemps, mkostemps64);
