/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes COUNT calls of one kind on FILE, or on a device: for others_test.py, which counts
   instructions.

   others KIND COUNT [FILE] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
  const char *kind = argc >= 3 ? argv[1] : "";
  const long count = argc >= 3 ? atol(argv[2]) : 0;
  const int fd = argc == 4 ? open(argv[3], O_RDWR | O_CREAT, 0600) : open("/dev/zero", O_RDWR);
  char byte = 0;
  struct stat st;
  long done = 0;
  /* All that the loops call is found before. */
  if (fd < 0 || fstat(fd, &st) != 0) return 1;
  for (int round = 0; round < 2; ++round) {
    const long n = round == 0 ? 1 : count;
    if (strcmp(kind, "read") == 0)
      for (long i = 0; i < n; ++i) done += read(fd, &byte, 1);
    else if (strcmp(kind, "write") == 0)
      for (long i = 0; i < n; ++i) done += write(fd, &byte, 1);
    else if (strcmp(kind, "pread") == 0)
      for (long i = 0; i < n; ++i) done += pread(fd, &byte, 1, i);
    else if (strcmp(kind, "pwrite") == 0)
      for (long i = 0; i < n; ++i) done += pwrite(fd, &byte, 1, i);
    else if (strcmp(kind, "lseek") == 0)
      for (long i = 0; i < n; ++i) done += lseek(fd, 0, SEEK_CUR) == 0;
    else if (strcmp(kind, "fsync") == 0)
      for (long i = 0; i < n; ++i) done += fsync(fd) == -1;
    else if (strcmp(kind, "fstat") == 0)
      for (long i = 0; i < n; ++i) done += fstat(fd, &st) == 0;
    else if (strcmp(kind, "close") == 0)
      for (long i = 0; i < n; ++i) done += close(1000) == -1;
    else
      return 2;
  }
  return done == count + 1 ? 0 : 3;
}
