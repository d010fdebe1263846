// SPDX-License-Identifier: BSD-3-Clause
//
// What start_test.py counts the system calls of: a program that does nothing, or writes one file.
//
//   start                  nothing
//   start WAY FILE         a new file of 4 KiB, by open with O_TRUNC or O_EXCL, or by a stream
#include "tests/kit/program.h"

static char bytes[4096];

static int by_descriptor(const char* path, int flag) {
  const int fd = open(path, O_WRONLY | O_CREAT | flag, 0644);
  const int wrote = fd >= 0 && write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes);
  return wrote && close(fd) == 0 ? 0 : 1;
}

static int by_stream(const char* path) {
  FILE* file = fopen(path, "w");
  const int wrote = file != NULL && fwrite(bytes, sizeof(bytes), 1, file) == 1;
  return wrote && fclose(file) == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return argc != 1;
  if (strcmp(argv[1], "truncated") == 0) return by_descriptor(argv[2], O_TRUNC);
  if (strcmp(argv[1], "exclusive") == 0) return by_descriptor(argv[2], O_EXCL);
  return by_stream(argv[2]);
}
