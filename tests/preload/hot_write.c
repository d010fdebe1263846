/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes SIZE bytes and syncs them, COUNT times, in a file that was synced often enough before: for
   hot_write_test.py, which counts. Prints the page faults of the second half. Or opens the file
   each time, writes without a sync, and closes it.

   hot_write FILE SIZE COUNT [reopen] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { AREA = 1 << 20, SYNCS = 16 };

static char bytes[1 << 16];

static int write_and_sync(int fd, size_t size, long at) {
  return pwrite(fd, bytes, size, at) != (ssize_t)size || fdatasync(fd) != 0;
}

/* callgrind counts what is in it. */
__attribute__((noinline)) static int counted(int fd, size_t size, long at) {
  return write_and_sync(fd, size, at);
}

static long faults(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : -1;
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) return 2;
  const size_t size = (size_t)atol(argv[2]);
  const long count = atol(argv[3]);
  const int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || size > sizeof bytes) return 1;
  for (long at = 0; at < AREA; at += sizeof bytes)
    if (pwrite(fd, bytes, sizeof bytes, at) != sizeof bytes) return 1;
  for (int i = 0; i < SYNCS; ++i)
    if (write_and_sync(fd, size, 0)) return 1;
  if (argc == 5) {
    if (close(fd) != 0) return 1;
    for (long i = 0; i < count; ++i) {
      const int again = open(argv[1], O_RDWR);
      if (again < 0 || pwrite(again, bytes, size, 0) != (ssize_t)size || close(again) != 0)
        return 1;
    }
    return 0;
  }
  long before = 0;
  for (long i = 0; i < count; ++i) {
    if (i == count / 2) before = faults();
    if (counted(fd, size, i * (long)size % AREA)) return 1;
  }
  printf("%ld\n", faults() - before);
  return 0;
}
