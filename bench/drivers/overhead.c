// SPDX-License-Identifier: BSD-3-Clause
//
// What suites/overhead.py times. Without an argument: nothing, a program that touches no file. Else
// the nanoseconds of one call on descriptors that are never cached: read from /dev/zero, write to
// /dev/null, lseek and pread on a file that is only read.
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { kCalls = 100000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define TIME(name, call)                                         \
  do {                                                           \
    const double begin = now();                                  \
    for (int i = 0; i < kCalls; ++i) {                           \
      if ((call) < 0) return 1;                                  \
    }                                                            \
    printf("%s %.2f\n", name, (now() - begin) / (double)kCalls); \
  } while (0)

int main(int argc, char** argv) {
  if (argc < 2) return 0;
  char byte = 0;
  const int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
  const int file = open(argv[0], O_RDONLY);
  TIME("read", read(zero, &byte, 1));
  TIME("write", write(null, &byte, 1));
  TIME("pread", pread(file, &byte, 1, 0));
  TIME("lseek", lseek(file, 1, SEEK_SET));
  return 0;
}
