// SPDX-License-Identifier: BSD-3-Clause
//
// rename, link, unlink, mkdir and their names.
#include "libc-shim/calls/names.h"

#include <errno.h>

#include "libc-shim/preload/temporary.h"
#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT int rename(const char* from, const char* to) noexcept {
  return Rename(AT_FDCWD, from, AT_FDCWD, to, 0, [=] { return NVCACHE_REAL(rename)(from, to); });
}

NVCACHE_EXPORT int renameat(int from_dirfd, const char* from, int to_dirfd,
                            const char* to) noexcept {
  return Rename(from_dirfd, from, to_dirfd, to, 0,
                [=] { return NVCACHE_REAL(renameat)(from_dirfd, from, to_dirfd, to); });
}

NVCACHE_EXPORT int renameat2(int from_dirfd, const char* from, int to_dirfd, const char* to,
                             unsigned int flags) noexcept {
  return Rename(from_dirfd, from, to_dirfd, to, flags,
                [=] { return NVCACHE_REAL(renameat2)(from_dirfd, from, to_dirfd, to, flags); });
}

NVCACHE_EXPORT int link(const char* from, const char* to) noexcept {
  return Link(AT_FDCWD, from, AT_FDCWD, to, 0, [=] { return NVCACHE_REAL(link)(from, to); });
}

NVCACHE_EXPORT int linkat(int from_dirfd, const char* from, int to_dirfd, const char* to,
                          int flags) noexcept {
  return Link(from_dirfd, from, to_dirfd, to, flags,
              [=] { return NVCACHE_REAL(linkat)(from_dirfd, from, to_dirfd, to, flags); });
}

NVCACHE_EXPORT int unlink(const char* path) noexcept {
  return Unlink(AT_FDCWD, path, 0, [=] { return NVCACHE_REAL(unlink)(path); });
}

NVCACHE_EXPORT int unlinkat(int dirfd, const char* path, int flags) noexcept {
  return Unlink(dirfd, path, flags, [=] { return NVCACHE_REAL(unlinkat)(dirfd, path, flags); });
}

NVCACHE_EXPORT int remove(const char* path) noexcept {
  const bool is_folder = IsFolder(path);
  const int result = Remove(path, is_folder, [=] { return NVCACHE_REAL(remove)(path); });
  if (result == 0 && is_folder) errno = EISDIR;  // libc's own leaves it so: it tries unlink first
  return result;
}

NVCACHE_EXPORT int rmdir(const char* path) noexcept {
  return Unlink(AT_FDCWD, path, AT_REMOVEDIR, [=] { return NVCACHE_REAL(rmdir)(path); });
}

NVCACHE_EXPORT int mkdir(const char* path, mode_t mode) noexcept {
  return MakeFolder(AT_FDCWD, path, mode, [=] { return NVCACHE_REAL(mkdir)(path, mode); });
}

NVCACHE_EXPORT int mkdirat(int dirfd, const char* path, mode_t mode) noexcept {
  return MakeFolder(dirfd, path, mode, [=] { return NVCACHE_REAL(mkdirat)(dirfd, path, mode); });
}

NVCACHE_EXPORT int symlink(const char* target, const char* path) noexcept {
  return MakeLink(target, AT_FDCWD, path, [=] { return NVCACHE_REAL(symlink)(target, path); });
}

NVCACHE_EXPORT int symlinkat(const char* target, int dirfd, const char* path) noexcept {
  return MakeLink(target, dirfd, path,
                  [=] { return NVCACHE_REAL(symlinkat)(target, dirfd, path); });
}

NVCACHE_EXPORT int mknod(const char* path, mode_t mode, dev_t device) noexcept {
  return MakeOther(AT_FDCWD, path, [=] { return NVCACHE_REAL(mknod)(path, mode, device); });
}

NVCACHE_EXPORT int mknodat(int dirfd, const char* path, mode_t mode, dev_t device) noexcept {
  return MakeOther(dirfd, path, [=] { return NVCACHE_REAL(mknodat)(dirfd, path, mode, device); });
}

NVCACHE_EXPORT int mkfifo(const char* path, mode_t mode) noexcept {
  return MakeOther(AT_FDCWD, path, [=] { return NVCACHE_REAL(mkfifo)(path, mode); });
}

NVCACHE_EXPORT int mkfifoat(int dirfd, const char* path, mode_t mode) noexcept {
  return MakeOther(dirfd, path, [=] { return NVCACHE_REAL(mkfifoat)(dirfd, path, mode); });
}

NVCACHE_EXPORT char* mkdtemp(char* path) noexcept {
  constexpr mode_t kMode = 0700;
  if (!NVCACHE_IS_LIBCS(mkdtemp)) {
    return MakeOther(AT_FDCWD, path, [=] { return NVCACHE_REAL(mkdtemp)(path); });
  }
  const int made = MakeTemporary(path, 0, [=] {
    return MakeFolder(AT_FDCWD, path, kMode, [=] { return NVCACHE_LIBCS(mkdir)(path, kMode); });
  });
  return made < 0 ? nullptr : path;
}
