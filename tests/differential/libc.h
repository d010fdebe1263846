// SPDX-License-Identifier: BSD-3-Clause
//
// What glibc has and musl (1.2.3) has not. The system calls among it are made by number there.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_LIBC_H_
#define NVCACHE_TESTS_DIFFERENTIAL_LIBC_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstring>
#include <string>

#ifndef __GLIBC__
#include <linux/fs.h>    // RWF_, RENAME_
#include <linux/stat.h>  // struct statx
#include <sys/syscall.h>
#include <sys/uio.h>
#endif

namespace nvcache::differential {

// Without names, the number: what is compared was written down under one libc.
inline std::string ErrorName(int error) {
#ifdef __GLIBC__
  const char* name = strerrorname_np(error);
  if (name != nullptr) return name;
#endif
  return std::to_string(error);
}

#ifndef __GLIBC__
inline ssize_t preadv2(int fd, const iovec* iov, int count, off_t offset, int flags) {
  return ::syscall(SYS_preadv2, fd, iov, count, offset, 0, flags);
}
inline ssize_t pwritev2(int fd, const iovec* iov, int count, off_t offset, int flags) {
  return ::syscall(SYS_pwritev2, fd, iov, count, offset, 0, flags);
}
inline int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return static_cast<int>(::syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
}
inline int statx(int dirfd, const char* path, int flags, unsigned mask, struct statx* st) {
  return static_cast<int>(::syscall(SYS_statx, dirfd, path, flags, mask, st));
}
inline int close_range(unsigned first, unsigned last, int flags) {
  return static_cast<int>(::syscall(SYS_close_range, first, last, flags));
}
inline void closefrom(int first) { close_range(static_cast<unsigned>(first), ~0u, 0); }
#endif

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_LIBC_H_
