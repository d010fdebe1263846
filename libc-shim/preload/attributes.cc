// SPDX-License-Identifier: BSD-3-Clause
//
// stat, utime, chmod and their names, and the calls that walk a tree and report what they stat.
#include "libc-shim/calls/attributes.h"

#include <fts.h>
#include <ftw.h>
#include <sys/time.h>
#include <utime.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

// ---------------------------------------------------------------------------------------------
// The stat family.

#define NVCACHE_DEFINE_STAT(suffix)                                                                \
  NVCACHE_EXPORT int stat##suffix(const char* path, struct stat##suffix* st) noexcept {            \
    return GetAttributes(st, [=] { return NVCACHE_REAL(stat##suffix)(path, st); });                \
  }                                                                                                \
  NVCACHE_EXPORT int lstat##suffix(const char* path, struct stat##suffix* st) noexcept {           \
    return GetAttributes(st, [=] { return NVCACHE_REAL(lstat##suffix)(path, st); });               \
  }                                                                                                \
  NVCACHE_EXPORT int fstat##suffix(int fd, struct stat##suffix* st) noexcept {                     \
    return GetAttributesOf(fd, st, [=] { return NVCACHE_REAL(fstat##suffix)(fd, st); });           \
  }                                                                                                \
  NVCACHE_EXPORT int fstatat##suffix(int dirfd, const char* path, struct stat##suffix* st,         \
                                     int flags) noexcept {                                         \
    return GetAttributesAt(dirfd, path, flags, st,                                                 \
                           [=] { return NVCACHE_REAL(fstatat##suffix)(dirfd, path, st, flags); }); \
  }                                                                                                \
  NVCACHE_EXPORT int __xstat##suffix(int version, const char* path, struct stat##suffix* st) {     \
    return GetAttributes(st, [=] { return NVCACHE_REAL(__xstat##suffix)(version, path, st); });    \
  }                                                                                                \
  NVCACHE_EXPORT int __lxstat##suffix(int version, const char* path, struct stat##suffix* st) {    \
    return GetAttributes(st, [=] { return NVCACHE_REAL(__lxstat##suffix)(version, path, st); });   \
  }                                                                                                \
  NVCACHE_EXPORT int __fxstat##suffix(int version, int fd, struct stat##suffix* st) {              \
    return GetAttributesOf(fd, st,                                                                 \
                           [=] { return NVCACHE_REAL(__fxstat##suffix)(version, fd, st); });       \
  }                                                                                                \
  NVCACHE_EXPORT int __fxstatat##suffix(int version, int dirfd, const char* path,                  \
                                        struct stat##suffix* st, int flags) {                      \
    return GetAttributesAt(dirfd, path, flags, st, [=] {                                           \
      return NVCACHE_REAL(__fxstatat##suffix)(version, dirfd, path, st, flags);                    \
    });                                                                                            \
  }

NVCACHE_DEFINE_STAT()
NVCACHE_DEFINE_STAT(64)

NVCACHE_EXPORT int statx(int dirfd, const char* path, int flags, unsigned int mask,
                         struct statx* st) noexcept {
  return GetExtended(dirfd, path, flags, st,
                     [=] { return NVCACHE_REAL(statx)(dirfd, path, flags, mask, st); });
}

// ---------------------------------------------------------------------------------------------
// Times.

NVCACHE_EXPORT int utime(const char* path, const struct utimbuf* times) noexcept {
  return SetTimes(AT_FDCWD, path, 0, [=] { return NVCACHE_REAL(utime)(path, times); });
}

NVCACHE_EXPORT int utimes(const char* path, const struct timeval times[2]) noexcept {
  return SetTimes(AT_FDCWD, path, 0, [=] { return NVCACHE_REAL(utimes)(path, times); });
}

NVCACHE_EXPORT int lutimes(const char* path, const struct timeval times[2]) noexcept {
  return SetTimes(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW,
                  [=] { return NVCACHE_REAL(lutimes)(path, times); });
}

NVCACHE_EXPORT int futimes(int fd, const struct timeval times[2]) noexcept {
  return SetTimes(fd, nullptr, 0, [=] { return NVCACHE_REAL(futimes)(fd, times); });
}

NVCACHE_EXPORT int futimens(int fd, const struct timespec times[2]) noexcept {
  return SetTimes(fd, nullptr, 0, [=] { return NVCACHE_REAL(futimens)(fd, times); });
}

NVCACHE_EXPORT int futimesat(int dirfd, const char* path, const struct timeval times[2]) noexcept {
  return SetTimes(dirfd, path, 0, [=] { return NVCACHE_REAL(futimesat)(dirfd, path, times); });
}

NVCACHE_EXPORT int utimensat(int dirfd, const char* path, const struct timespec times[2],
                             int flags) noexcept {
  return SetTimes(dirfd, path, flags,
                  [=] { return NVCACHE_REAL(utimensat)(dirfd, path, times, flags); });
}

// ---------------------------------------------------------------------------------------------
// Permissions, owners and extended attributes.

NVCACHE_EXPORT int chmod(const char* path, mode_t mode) noexcept {
  return SetAttributes(AT_FDCWD, path, 0, [=] { return NVCACHE_REAL(chmod)(path, mode); });
}

NVCACHE_EXPORT int lchmod(const char* path, mode_t mode) noexcept {
  return SetAttributes(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW,
                       [=] { return NVCACHE_REAL(lchmod)(path, mode); });
}

NVCACHE_EXPORT int fchmod(int fd, mode_t mode) noexcept {
  return SetAttributes(fd, nullptr, 0, [=] { return NVCACHE_REAL(fchmod)(fd, mode); });
}

NVCACHE_EXPORT int fchmodat(int dirfd, const char* path, mode_t mode, int flags) noexcept {
  return SetAttributes(dirfd, path, flags,
                       [=] { return NVCACHE_REAL(fchmodat)(dirfd, path, mode, flags); });
}

NVCACHE_EXPORT int chown(const char* path, uid_t owner, gid_t group) noexcept {
  return SetAttributes(AT_FDCWD, path, 0, [=] { return NVCACHE_REAL(chown)(path, owner, group); });
}

NVCACHE_EXPORT int lchown(const char* path, uid_t owner, gid_t group) noexcept {
  return SetAttributes(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW,
                       [=] { return NVCACHE_REAL(lchown)(path, owner, group); });
}

NVCACHE_EXPORT int fchown(int fd, uid_t owner, gid_t group) noexcept {
  return ChangeOwner(fd, owner, group, [=] { return NVCACHE_REAL(fchown)(fd, owner, group); });
}

NVCACHE_EXPORT int fchownat(int dirfd, const char* path, uid_t owner, gid_t group,
                            int flags) noexcept {
  return SetAttributes(dirfd, path, flags,
                       [=] { return NVCACHE_REAL(fchownat)(dirfd, path, owner, group, flags); });
}

NVCACHE_EXPORT int setxattr(const char* path, const char* name, const void* value, size_t size,
                            int flags) noexcept {
  return SetExtended(AT_FDCWD, path, 0,
                     [=] { return NVCACHE_REAL(setxattr)(path, name, value, size, flags); });
}

NVCACHE_EXPORT int lsetxattr(const char* path, const char* name, const void* value, size_t size,
                             int flags) noexcept {
  return SetExtended(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW,
                     [=] { return NVCACHE_REAL(lsetxattr)(path, name, value, size, flags); });
}

NVCACHE_EXPORT int fsetxattr(int fd, const char* name, const void* value, size_t size,
                             int flags) noexcept {
  return SetExtended(fd, nullptr, 0,
                     [=] { return NVCACHE_REAL(fsetxattr)(fd, name, value, size, flags); });
}

NVCACHE_EXPORT int removexattr(const char* path, const char* name) noexcept {
  return SetExtended(AT_FDCWD, path, 0, [=] { return NVCACHE_REAL(removexattr)(path, name); });
}

NVCACHE_EXPORT int lremovexattr(const char* path, const char* name) noexcept {
  return SetExtended(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW,
                     [=] { return NVCACHE_REAL(lremovexattr)(path, name); });
}

NVCACHE_EXPORT int fremovexattr(int fd, const char* name) noexcept {
  return SetExtended(fd, nullptr, 0, [=] { return NVCACHE_REAL(fremovexattr)(fd, name); });
}

NVCACHE_EXPORT ssize_t getxattr(const char* path, const char* name, void* value,
                                size_t size) noexcept {
  return ReadAttribute(AT_FDCWD, path, 0, name,
                       [=] { return NVCACHE_REAL(getxattr)(path, name, value, size); });
}

NVCACHE_EXPORT ssize_t lgetxattr(const char* path, const char* name, void* value,
                                 size_t size) noexcept {
  return ReadAttribute(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, name,
                       [=] { return NVCACHE_REAL(lgetxattr)(path, name, value, size); });
}

NVCACHE_EXPORT ssize_t fgetxattr(int fd, const char* name, void* value, size_t size) noexcept {
  return ReadAttribute(fd, nullptr, 0, name,
                       [=] { return NVCACHE_REAL(fgetxattr)(fd, name, value, size); });
}

NVCACHE_EXPORT ssize_t listxattr(const char* path, char* names, size_t size) noexcept {
  return ReadAttributes(AT_FDCWD, path, 0,
                        [=] { return NVCACHE_REAL(listxattr)(path, names, size); });
}

NVCACHE_EXPORT ssize_t llistxattr(const char* path, char* names, size_t size) noexcept {
  return ReadAttributes(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW,
                        [=] { return NVCACHE_REAL(llistxattr)(path, names, size); });
}

NVCACHE_EXPORT ssize_t flistxattr(int fd, char* names, size_t size) noexcept {
  return ReadAttributes(fd, nullptr, 0, [=] { return NVCACHE_REAL(flistxattr)(fd, names, size); });
}

// ---------------------------------------------------------------------------------------------
// Walking a tree: libc stats, and hands over what it has found.

#define NVCACHE_DEFINE_WALK(suffix)                                                              \
  NVCACHE_EXPORT int ftw##suffix(const char* path, __ftw##suffix##_func_t function, int depth) { \
    vfs::PublishAll();                                                                           \
    return NVCACHE_REAL(ftw##suffix)(path, function, depth);                                     \
  }                                                                                              \
  NVCACHE_EXPORT int nftw##suffix(const char* path, __nftw##suffix##_func_t function, int depth, \
                                  int flags) {                                                   \
    vfs::PublishAll();                                                                           \
    return NVCACHE_REAL(nftw##suffix)(path, function, depth, flags);                             \
  }

NVCACHE_DEFINE_WALK()
NVCACHE_DEFINE_WALK(64)

#define NVCACHE_DEFINE_FTS(suffix)                                                        \
  NVCACHE_EXPORT FTS##suffix* fts##suffix##_open(                                         \
      char* const* paths, int options,                                                    \
      int (*compare)(const FTSENT##suffix**, const FTSENT##suffix**)) {                   \
    vfs::PublishAll();                                                                    \
    return NVCACHE_REAL(fts##suffix##_open)(paths, options, compare);                     \
  }                                                                                       \
  NVCACHE_EXPORT FTSENT##suffix* fts##suffix##_read(FTS##suffix* tree) {                  \
    vfs::PublishAll();                                                                    \
    return NVCACHE_REAL(fts##suffix##_read)(tree);                                        \
  }                                                                                       \
  NVCACHE_EXPORT FTSENT##suffix* fts##suffix##_children(FTS##suffix* tree, int options) { \
    vfs::PublishAll();                                                                    \
    return NVCACHE_REAL(fts##suffix##_children)(tree, options);                           \
  }

NVCACHE_DEFINE_FTS()
NVCACHE_DEFINE_FTS(64)
