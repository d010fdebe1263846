// SPDX-License-Identifier: BSD-3-Clause
//
// rename, link, unlink and their names.
#include "libc-shim/calls/names.h"

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT int rename(const char* from, const char* to) noexcept {
  return Rename(AT_FDCWD, from, AT_FDCWD, to, [=] { return NVCACHE_REAL(rename)(from, to); });
}

NVCACHE_EXPORT int renameat(int from_dirfd, const char* from, int to_dirfd,
                            const char* to) noexcept {
  return Rename(from_dirfd, from, to_dirfd, to,
                [=] { return NVCACHE_REAL(renameat)(from_dirfd, from, to_dirfd, to); });
}

NVCACHE_EXPORT int renameat2(int from_dirfd, const char* from, int to_dirfd, const char* to,
                             unsigned int flags) noexcept {
  return Rename(from_dirfd, from, to_dirfd, to,
                [=] { return NVCACHE_REAL(renameat2)(from_dirfd, from, to_dirfd, to, flags); });
}

NVCACHE_EXPORT int link(const char* from, const char* to) noexcept {
  return Link(AT_FDCWD, from, 0, [=] { return NVCACHE_REAL(link)(from, to); });
}

NVCACHE_EXPORT int linkat(int from_dirfd, const char* from, int to_dirfd, const char* to,
                          int flags) noexcept {
  return Link(from_dirfd, from, flags,
              [=] { return NVCACHE_REAL(linkat)(from_dirfd, from, to_dirfd, to, flags); });
}

NVCACHE_EXPORT int unlink(const char* path) noexcept {
  return Unlink(AT_FDCWD, path, [=] { return NVCACHE_REAL(unlink)(path); });
}

NVCACHE_EXPORT int unlinkat(int dirfd, const char* path, int flags) noexcept {
  return Unlink(dirfd, path, [=] { return NVCACHE_REAL(unlinkat)(dirfd, path, flags); });
}

NVCACHE_EXPORT int remove(const char* path) noexcept {
  return Unlink(AT_FDCWD, path, [=] { return NVCACHE_REAL(remove)(path); });
}
