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

// `real` opens with these flags alone, and may cut off what the log has, or this process's cache.
template <typename RealCall>
int OpenOpaquely(const char* path, int flags, mode_t mode, RealCall real) {
  if ((flags & O_TRUNC) != 0 && !nvcache::vfs::SeesPaths()) nvcache::vfs::Release();
  return OpenAt(AT_FDCWD, path, flags, mode, [=](int) { return real(); });
}

// libc makes it by an open inside itself, which no interposer of open() sees. `real` makes it by
// one of mkstemp().
template <typename RealCall>
int MakeTemporaryFile(char* path, int suffix_length, int flags, bool is_libcs, RealCall real) {
  const int all_flags = (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL;
  constexpr mode_t kMode = 0600;
  if (!is_libcs) return OpenOpaquely(path, all_flags, kMode, real);
  return MakeTemporary(path, suffix_length, [=] {
    return OpenAt(AT_FDCWD, path, all_flags, kMode,
                  [=](int with) { return NVCACHE_LIBCS(open64)(path, with, kMode); });
  });
}

}  // namespace

// A name may have an interposer of its own.
#define NVCACHE_DEFINE_OPEN(name)                                                  \
  NVCACHE_EXPORT int name(const char* path, int flags, ...) {                      \
    va_list arguments;                                                             \
    va_start(arguments, flags);                                                    \
    const mode_t mode = ModeFrom(flags, arguments);                                \
    va_end(arguments);                                                             \
    return OpenAt(AT_FDCWD, path, flags, mode,                                     \
                  [=](int with) { return NVCACHE_REAL(name)(path, with, mode); }); \
  }
NVCACHE_DEFINE_OPEN(open)
NVCACHE_DEFINE_OPEN(open64)
NVCACHE_EXPORT_ALIAS(__open, open);
NVCACHE_EXPORT_ALIAS(__open64, open64);

#define NVCACHE_DEFINE_OPENAT(name)                                                       \
  NVCACHE_EXPORT int name(int dirfd, const char* path, int flags, ...) {                  \
    va_list arguments;                                                                    \
    va_start(arguments, flags);                                                           \
    const mode_t mode = ModeFrom(flags, arguments);                                       \
    va_end(arguments);                                                                    \
    return OpenAt(dirfd, path, flags, mode,                                               \
                  [=](int with) { return NVCACHE_REAL(name)(dirfd, path, with, mode); }); \
  }
NVCACHE_DEFINE_OPENAT(openat)
NVCACHE_DEFINE_OPENAT(openat64)

// libc's own is its open() with these flags.
#define NVCACHE_DEFINE_CREAT(name)                                                           \
  NVCACHE_EXPORT int name(const char* path, mode_t mode) {                                   \
    constexpr int kFlags = O_CREAT | O_WRONLY | O_TRUNC;                                     \
    if (NVCACHE_IS_LIBCS(name)) {                                                            \
      return OpenAt(AT_FDCWD, path, kFlags, mode,                                            \
                    [=](int with) { return NVCACHE_LIBCS(open64)(path, with, mode); });      \
    }                                                                                        \
    return OpenOpaquely(path, kFlags, mode, [=] { return NVCACHE_REAL(name)(path, mode); }); \
  }
NVCACHE_DEFINE_CREAT(creat)
NVCACHE_DEFINE_CREAT(creat64)

// The real ones end the program when a mode is missing.
#define NVCACHE_DEFINE_OPEN_2(name)                                          \
  NVCACHE_EXPORT int name(const char* path, int flags) {                     \
    if (CreatesFile(flags)) return NVCACHE_REAL(name)(path, flags);          \
    return OpenAt(AT_FDCWD, path, flags, 0,                                  \
                  [=](int with) { return NVCACHE_REAL(name)(path, with); }); \
  }
NVCACHE_DEFINE_OPEN_2(__open_2)
NVCACHE_DEFINE_OPEN_2(__open64_2)

#define NVCACHE_DEFINE_OPENAT_2(name)                                               \
  NVCACHE_EXPORT int name(int dirfd, const char* path, int flags) {                 \
    if (CreatesFile(flags)) return NVCACHE_REAL(name)(dirfd, path, flags);          \
    return OpenAt(dirfd, path, flags, 0,                                            \
                  [=](int with) { return NVCACHE_REAL(name)(dirfd, path, with); }); \
  }
NVCACHE_DEFINE_OPENAT_2(__openat_2)
NVCACHE_DEFINE_OPENAT_2(__openat64_2)

NVCACHE_EXPORT int open_by_handle_at(int mount_fd, struct file_handle* handle, int flags) {
  return OpenByHandle(flags,
                      [=] { return NVCACHE_REAL(open_by_handle_at)(mount_fd, handle, flags); });
}

NVCACHE_EXPORT int pidfd_getfd(int pidfd, int fd, unsigned int flags) noexcept {
  return Adopt([=] { return NVCACHE_REAL(pidfd_getfd)(pidfd, fd, flags); });
}

#define NVCACHE_DEFINE_TEMPORARY(name, suffix_length, flags, parameters, ...)    \
  NVCACHE_EXPORT int name parameters {                                           \
    return MakeTemporaryFile(path, suffix_length, flags, NVCACHE_IS_LIBCS(name), \
                             [=] { return NVCACHE_REAL(name)(__VA_ARGS__); });   \
  }
NVCACHE_DEFINE_TEMPORARY(mkstemp, 0, 0, (char* path), path)
NVCACHE_DEFINE_TEMPORARY(mkstemp64, 0, 0, (char* path), path)
NVCACHE_DEFINE_TEMPORARY(mkostemp, 0, flags, (char* path, int flags), path, flags)
NVCACHE_DEFINE_TEMPORARY(mkostemp64, 0, flags, (char* path, int flags), path, flags)
NVCACHE_DEFINE_TEMPORARY(mkstemps, length, 0, (char* path, int length), path, length)
NVCACHE_DEFINE_TEMPORARY(mkstemps64, length, 0, (char* path, int length), path, length)
NVCACHE_DEFINE_TEMPORARY(mkostemps, length, flags, (char* path, int length, int flags), path,
                         length, flags)
NVCACHE_DEFINE_TEMPORARY(mkostemps64, length, flags, (char* path, int length, int flags), path,
                         length, flags)
