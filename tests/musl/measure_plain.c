/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Nanoseconds of one call: measure_plain CALL COUNT. */
#include "tests/kit/program.h"

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const char* call = argv[1];
  const long count = atol(argv[2]);
  const int null = open("/dev/null", O_RDWR), zero = open("/bin/sh", O_RDONLY);
  char byte = 0;
  struct stat attributes;
  CHECK(null >= 0 && zero >= 0);
  const double begin = Now();
  if (strcmp(call, "getppid") == 0) {
    for (long i = 0; i < count; i++) syscall(SYS_getppid);
  } else if (strcmp(call, "pread") == 0) {
    for (long i = 0; i < count; i++) CHECK(pread(zero, &byte, 1, 0) == 1);
  } else if (strcmp(call, "write") == 0) {
    for (long i = 0; i < count; i++) CHECK(write(null, &byte, 1) == 1);
  } else {
    for (long i = 0; i < count; i++) CHECK(stat("/dev/null", &attributes) == 0);
  }
  printf("%.2f\n", (Now() - begin) / (double)count);
  return 0;
}
