// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around a call that reads a file's attributes, or sets its times.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_ATTRIBUTES_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_ATTRIBUTES_H_

#include <fcntl.h>
#include <sys/stat.h>

#include "libc-shim/preload/calls.h"

namespace nvcache::preload {

// struct stat and struct stat64, which are one on x86-64, but not to the compiler.
template <typename Stat>
inline void PutNewestSize(Stat* st) {
  if (S_ISREG(st->st_mode)) Tell<vfs::NewestSize>(st->st_dev, st->st_ino, &st->st_size);
}

template <typename Result, typename Stat>
inline Result AfterStat(Result result, Stat* st) {
  if (result == 0) PutNewestSize(st);
  return result;
}

template <typename Result>
Result AfterStatx(Result result, struct statx* st);

// Times are set on what the kernel has: a later write-back would set them anew.

inline void PublishAt(int dirfd, const char* path, int flags) {
  // The headers promise a path. The kernel allows none: then dirfd is the file itself.
  __asm__("" : "+r"(path));
  if (path == nullptr || ((flags & AT_EMPTY_PATH) != 0 && IsEmpty(path))) {
    Tell<vfs::Publish>(dirfd);
  } else {
    Tell<vfs::PublishPath>(dirfd, path, (flags & AT_SYMLINK_NOFOLLOW) == 0);
  }
}

template <typename RealCall>
inline auto SetTimes(int dirfd, const char* path, int flags, RealCall real) {
  PublishAt(dirfd, path, flags);
  return real();
}

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_ATTRIBUTES_H_
