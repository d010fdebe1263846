// SPDX-License-Identifier: BSD-3-Clause
//
// The programs here are built for glibc and for musl. What the tests call and musl 1.2.3 does not
// have is made here of what it has: the same system calls, by number.
#ifndef NVCACHE_TESTS_PRELOAD_LIBC_H_
#define NVCACHE_TESTS_PRELOAD_LIBC_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <features.h>

#ifndef __GLIBC__
#include <linux/close_range.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Only glibc gives the name of an error's number.
#define strerrorname_np strerror

// Of an offset's two registers, the second is for machines of 32 bits.
#define preadv2(fd, iov, count, offset, flags) \
  syscall(SYS_preadv2, fd, iov, (long)(count), (long)(offset), 0L, flags)
#define pwritev2(fd, iov, count, offset, flags) \
  syscall(SYS_pwritev2, fd, iov, (long)(count), (long)(offset), 0L, flags)
#define preadv64v2 preadv2
#define pwritev64v2 pwritev2

#define statx(fd, path, flags, mask, result) syscall(SYS_statx, fd, path, flags, mask, result)
#define renameat2(from, old, to, new, flags) syscall(SYS_renameat2, from, old, to, new, flags)
#define execveat(fd, path, arguments, environment, flags) \
  syscall(SYS_execveat, fd, path, arguments, environment, flags)
#define close_range(first, last, flags) syscall(SYS_close_range, first, last, flags)
#define fsconfig(fd, command, key, value, auxiliary) \
  syscall(SYS_fsconfig, fd, command, key, value, auxiliary)
#define pkey_mprotect(address, length, protection, key) \
  syscall(SYS_pkey_mprotect, address, length, protection, key)
#define closefrom(first) syscall(SYS_close_range, first, ~0u, 0)
#define pidfd_open(pid, flags) (int)syscall(SYS_pidfd_open, pid, flags)
#define pidfd_getfd(pidfd, fd, flags) (int)syscall(SYS_pidfd_getfd, pidfd, fd, flags)
#endif

#endif  // NVCACHE_TESTS_PRELOAD_LIBC_H_
