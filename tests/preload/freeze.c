// SPDX-License-Identifier: BSD-3-Clause
//
// A program freezes the file system that its files are on, does what does not need it to write, and
// thaws it again. Nothing of it waits.
//
//   freeze FROZEN ELSEWHERE     (folders on two file systems)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

#define SHOW(expression)                              \
  do {                                                \
    errno = 0;                                        \
    const long value_ = (long)(expression);           \
    printf("%s = %ld", #expression, value_);          \
    printf(value_ < 0 ? " errno %d\n" : "\n", errno); \
  } while (0)

static long wait_for(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

static long start(void) {
  pid_t child;
  char* arguments[] = {"true", NULL};
  return posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0 ? wait_for(child) : -1;
}

static long fork_once(void) {
  const pid_t child = fork();
  if (child == 0) _exit(3);
  return wait_for(child);
}

static long size_of(const char* path) {
  struct stat st;
  return stat(path, &st) == 0 ? st.st_size : -1;
}

// What needs no write to the frozen file system.
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
  SHOW(other = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644));
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
  SHOW(folder = open(".", O_RDONLY | O_DIRECTORY));
  SHOW(fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
  SHOW(write(fd, "0123456789", 10));
  SHOW(other = open("closed", O_RDWR | O_CREAT | O_TRUNC, 0644));
  SHOW(write(other, "closed", 6));
  SHOW(close(other));
  SHOW(freeze(by_number, folder));
  use(elsewhere, fd);
  SHOW(freeze(by_number, folder));  // is, already
  use(elsewhere, fd);
  SHOW(thaw(by_number, folder));
  SHOW(thaw(by_number, folder));  // is not, any more
  SHOW(write(fd, "more", 4));
  SHOW(size_of("f"));
  SHOW(close(fd));
  SHOW(close(folder));
}

int main(int argc, char** argv) {
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  once(argv[2], 0);
  once(argv[2], 1);

  // One that fails freezes nothing, and what is opened next is cached again.
  int fd;
  SHOW(fd = open("/proc/self", O_RDONLY | O_DIRECTORY));
  SHOW(freeze(0, fd));
  SHOW(freeze(0, -1));
  SHOW(close(fd));
  SHOW(fd = open("last", O_RDWR | O_CREAT | O_TRUNC, 0644));
  SHOW(write(fd, "last", 4));
  SHOW(close(fd));
  return 0;
}
