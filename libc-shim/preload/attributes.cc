// SPDX-License-Identifier: BSD-3-Clause
//
// stat, utime and their names, and the calls that walk a tree and report what they stat.
#include "libc-shim/preload/attributes.h"

#include <fts.h>
#include <ftw.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <utime.h>

namespace nvcache::preload {
namespace {

// Newest sizes for what fts has found.
template <typename Entry>
Entry* AfterFts(Entry* first, bool list) {
  for (Entry* entry = first; entry != nullptr; entry = list ? entry->fts_link : nullptr) {
    if (entry->fts_statp != nullptr && entry->fts_info == FTS_F) PutNewestSize(entry->fts_statp);
  }
  return first;
}

}  // namespace

template <typename Result>
Result AfterStatx(Result result, struct statx* st) {
  if (result != 0 || (st->stx_mask & STATX_SIZE) == 0 || !S_ISREG(st->stx_mode)) return result;
  off_t size = static_cast<off_t>(st->stx_size);
  Tell<vfs::NewestSize>(makedev(st->stx_dev_major, st->stx_dev_minor), st->stx_ino, &size);
  st->stx_size = static_cast<__u64>(size);
  return result;
}

template int AfterStatx(int result, struct statx* st);
template long AfterStatx(long result, struct statx* st);

}  // namespace nvcache::preload

using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

// ---------------------------------------------------------------------------------------------
// The stat family.

#define NVCACHE_DEFINE_STAT(suffix)                                                             \
  NVCACHE_EXPORT int stat##suffix(const char* path, struct stat##suffix* st) noexcept {         \
    return AfterStat(NVCACHE_REAL(stat##suffix)(path, st), st);                                 \
  }                                                                                             \
  NVCACHE_EXPORT int lstat##suffix(const char* path, struct stat##suffix* st) noexcept {        \
    return AfterStat(NVCACHE_REAL(lstat##suffix)(path, st), st);                                \
  }                                                                                             \
  NVCACHE_EXPORT int fstat##suffix(int fd, struct stat##suffix* st) noexcept {                  \
    return AfterStat(NVCACHE_REAL(fstat##suffix)(fd, st), st);                                  \
  }                                                                                             \
  NVCACHE_EXPORT int fstatat##suffix(int dirfd, const char* path, struct stat##suffix* st,      \
                                     int flags) noexcept {                                      \
    return AfterStat(NVCACHE_REAL(fstatat##suffix)(dirfd, path, st, flags), st);                \
  }                                                                                             \
  NVCACHE_EXPORT int __xstat##suffix(int version, const char* path, struct stat##suffix* st) {  \
    return AfterStat(NVCACHE_REAL(__xstat##suffix)(version, path, st), st);                     \
  }                                                                                             \
  NVCACHE_EXPORT int __lxstat##suffix(int version, const char* path, struct stat##suffix* st) { \
    return AfterStat(NVCACHE_REAL(__lxstat##suffix)(version, path, st), st);                    \
  }                                                                                             \
  NVCACHE_EXPORT int __fxstat##suffix(int version, int fd, struct stat##suffix* st) {           \
    return AfterStat(NVCACHE_REAL(__fxstat##suffix)(version, fd, st), st);                      \
  }                                                                                             \
  NVCACHE_EXPORT int __fxstatat##suffix(int version, int dirfd, const char* path,               \
                                        struct stat##suffix* st, int flags) {                   \
    return AfterStat(NVCACHE_REAL(__fxstatat##suffix)(version, dirfd, path, st, flags), st);    \
  }

NVCACHE_DEFINE_STAT()
NVCACHE_DEFINE_STAT(64)

NVCACHE_EXPORT int statx(int dirfd, const char* path, int flags, unsigned int mask,
                         struct statx* st) noexcept {
  return AfterStatx(NVCACHE_REAL(statx)(dirfd, path, flags, mask, st), st);
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
// Walking a tree. ftw stats inside libc and hands the result to the program's function.

#define NVCACHE_DEFINE_WALK(suffix)                                                              \
  NVCACHE_EXPORT int ftw##suffix(const char* path, __ftw##suffix##_func_t function, int depth) { \
    Tell<vfs::PublishAll>();                                                                     \
    return NVCACHE_REAL(ftw##suffix)(path, function, depth);                                     \
  }                                                                                              \
  NVCACHE_EXPORT int nftw##suffix(const char* path, __nftw##suffix##_func_t function, int depth, \
                                  int flags) {                                                   \
    Tell<vfs::PublishAll>();                                                                     \
    return NVCACHE_REAL(nftw##suffix)(path, function, depth, flags);                             \
  }

NVCACHE_DEFINE_WALK()
NVCACHE_DEFINE_WALK(64)

NVCACHE_EXPORT FTSENT* fts_read(FTS* tree) { return AfterFts(NVCACHE_REAL(fts_read)(tree), false); }

NVCACHE_EXPORT FTSENT64* fts64_read(FTS64* tree) {
  return AfterFts(NVCACHE_REAL(fts64_read)(tree), false);
}

NVCACHE_EXPORT FTSENT* fts_children(FTS* tree, int options) {
  return AfterFts(NVCACHE_REAL(fts_children)(tree, options), true);
}

NVCACHE_EXPORT FTSENT64* fts64_children(FTS64* tree, int options) {
  return AfterFts(NVCACHE_REAL(fts64_children)(tree, options), true);
}
