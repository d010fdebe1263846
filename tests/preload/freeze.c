// SPDX-License-Identifier: BSD-3-Clause
//
// A program freezes the file system that its files are on, does what does not need it to write, and
// thaws it again. Nothing of it waits.
//
//   freeze FROZEN ELSEWHERE     (folders on two file systems)
#define _GNU_SOURCE
#include <linux/fs.h>

#include "tests/kit/program.h"

static long start(void) {
  pid_t child;
  char* arguments[] = {"true", NULL};
  return posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0 ? status_of(child) : -1;
}

static long fork_once(void) {
  const pid_t child = fork();
  if (child == 0) _exit(3);
  return status_of(child);
}

static long size_of(const char* path) {
  struct stat st;
  return stat(path, &st) == 0 ? st.st_size : -1;
}

// What needs no write to the frozen file system. One by one: the last line says which call waits.
static void use(const char* elsewhere, int fd) {
  char bytes[64] = "";
  char path[512];
  int other;
  SHOW(system("true"));
  SHOW(start());
  SHOW(fork_once());
  SHOW(pclose(popen("true", "r")));
  SHOW(size_of("f"));
  SHOW(size_of("closed"));
  SHOW(pread(fd, bytes, 10, 0));
  SHOW(fsync(fd));
  SHOW(other = open("closed", O_RDWR));
  SHOW(read(other, bytes, 6));
  SHOW(close(other));
  snprintf(path, sizeof(path), "%s/x", elsewhere);
  SHOW(other = created(path));
  SHOW(write(other, "elsewhere", 9));
  SHOW(system("true"));
  SHOW(size_of(path));
  SHOW(close(other));
}

static long freeze(int by_number, int fd) {
  return by_number ? syscall(SYS_ioctl, fd, FIFREEZE, 0) : ioctl(fd, FIFREEZE, 0);
}

static long thaw(int by_number, int fd) {
  return by_number ? syscall(SYS_ioctl, fd, FITHAW, 0) : ioctl(fd, FITHAW, 0);
}

static void once(const char* elsewhere, int by_number) {
  int folder;
  int fd;
  int other;
  SHOW(folder = open(".", O_RDONLY | O_DIRECTORY), fd = created("f"), write(fd, "0123456789", 10));
  SHOW(other = created("closed"), write(other, "closed", 6), close(other));
  SHOW(freeze(by_number, folder));
  use(elsewhere, fd);
  SHOW(freeze(by_number, folder));  // is, already
  use(elsewhere, fd);
  SHOW(thaw(by_number, folder));
  SHOW(thaw(by_number, folder));  // is not, any more
  SHOW(write(fd, "more", 4), size_of("f"), close(fd), close(folder));
}

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  once(argv[2], 0);
  once(argv[2], 1);

  // One that fails freezes nothing, and what is opened next is cached again.
  int fd;
  SHOW(fd = open("/proc/self", O_RDONLY | O_DIRECTORY), freeze(0, fd), freeze(0, -1), close(fd));
  SHOW(fd = created("last"), write(fd, "last", 4), close(fd));
  return 0;
}
