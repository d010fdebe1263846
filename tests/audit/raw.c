// SPDX-License-Identifier: BSD-3-Clause
//
// Gets at a cached file past libc, as no program should that the audit calls clean.
//
//   raw CALL    in an empty folder on a disk
#include "tests/kit/program.h"

static long Raw(long number, long a, long b, long c, long d) {
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "+a"(number)
                   : "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return number;
}

int main(int argc, char** argv) {
  char buffer[10];
  const int fd = open("file", O_RDWR | O_CREAT, 0644);
  if (argc != 2 || fd < 0 || write(fd, "0123456789", 10) != 10) return 1;
  const char* call = argv[1];
  const long text = (long)"raw";
  if (strcmp(call, "nothing") == 0) return 0;
  if (strcmp(call, "write") == 0) return Raw(SYS_write, fd, text, 3, 0) != 3;
  if (strcmp(call, "pwrite64") == 0) return Raw(SYS_pwrite64, fd, text, 3, 0) != 3;
  if (strcmp(call, "pread64") == 0) return Raw(SYS_pread64, fd, (long)buffer, 3, 0) < 0;
  if (strcmp(call, "lseek") == 0) return Raw(SYS_lseek, fd, 5, SEEK_SET, 0) != 5;
  if (strcmp(call, "fsync") == 0) return Raw(SYS_fsync, fd, 0, 0, 0) != 0;
  if (strcmp(call, "ftruncate") == 0) return Raw(SYS_ftruncate, fd, 5, 0, 0) != 0;
  if (strcmp(call, "dup") == 0) return Raw(SYS_dup, fd, 0, 0, 0) < 0;
  if (strcmp(call, "close") == 0) return Raw(SYS_close, fd, 0, 0, 0) != 0;
  if (strcmp(call, "fork") == 0) {
    if (Raw(SYS_fork, 0, 0, 0, 0) == 0) Raw(SYS_exit_group, 0, 0, 0, 0);
    return 0;
  }
  if (strcmp(call, "target") == 0) {  // the kernel copies into it
    const int from = open("source/words", O_RDONLY);
    return Raw(SYS_sendfile, fd, from, 0, 100) != 100;
  }
  if (strcmp(call, "read") == 0) {  // by another descriptor, while the file is cached
    const long other = Raw(SYS_openat, AT_FDCWD, (long)"file", O_RDONLY, 0);
    return Raw(SYS_read, other, (long)buffer, 3, 0) < 0;
  }
  if (strcmp(call, "open") == 0) {  // libc's write, but the library knows nothing of the file
    const long other = Raw(SYS_openat, AT_FDCWD, (long)"other", O_WRONLY | O_CREAT, 0644);
    return write((int)other, "escaped", 7) != 7;
  }
  return 2;
}
