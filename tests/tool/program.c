// SPDX-License-Identifier: BSD-3-Clause
//
// A program of any libc:
//   program --write FILE
//   program --env NAME            prints a variable
//   program --exec PROGRAM ARG... becomes another program
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kStatus = 7 };

static int Write(const char* path) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || fcntl(fd, F_GETFL) < 0 || write(fd, "written\n", 8) != 8 || fsync(fd) != 0 ||
      close(fd) != 0) {
    perror(path);
    return 1;
  }
  return kStatus;
}

int main(int argc, char** argv) {
  if (argc > 2 && strcmp(argv[1], "--env") == 0) {
    const char* const value = getenv(argv[2]);
    puts(value != NULL ? value : "(none)");
    return kStatus;
  }
  if (argc > 2 && strcmp(argv[1], "--exec") == 0) {
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
  }
  return argc > 2 && strcmp(argv[1], "--write") == 0 ? Write(argv[2]) : kStatus;
}
