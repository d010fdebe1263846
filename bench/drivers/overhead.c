// SPDX-License-Identifier: BSD-3-Clause
//
// suites/overhead.py times this program, and suites/everyday_tools.py its `children`. Without an
// argument it does nothing: a program that touches no file.
//
//   nvcache_overhead calls            calls on descriptors that are never cached: read from
//                                     /dev/zero, write to /dev/null, lseek and pread on a file that
//                                     is only read
//   nvcache_overhead children FOLDER  fork, vfork and posix_spawn by a process that has kOpen files
//                                     open which it has written; each child ends at once. What is
//                                     spawned begins with the same environment, and
//                                     (posix_spawn_plain) with none: then its start is not
//                                     NVCache's
//
// Each prints lines of "NAME NANOSECONDS", of one round of what it says. Nothing is ever synced.
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kCalls = 100000, kChildren = 50, kOpen = 100, kSize = 4096 };

static char bytes[kSize];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define TIME(name, count, call)                                   \
  do {                                                            \
    const double begin = now();                                   \
    for (int i = 0; i < (count); ++i) {                           \
      if ((call) < 0) {                                           \
        perror(name);                                             \
        return 1;                                                 \
      }                                                           \
    }                                                             \
    printf("%s %.2f\n", name, (now() - begin) / (double)(count)); \
  } while (0)

static int calls(const char* self) {
  char byte = 0;
  const int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
  const int file = open(self, O_RDONLY);
  TIME("read", kCalls, read(zero, &byte, 1));
  TIME("write", kCalls, write(null, &byte, 1));
  TIME("pread", kCalls, pread(file, &byte, 1, 0));
  TIME("lseek", kCalls, lseek(file, 1, SEEK_SET));
  return 0;
}

static int ended(pid_t child) {
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}

static int by_fork(void) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return ended(child);
}

static int by_vfork(void) {
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  return ended(child);
}

static int by_spawn(char* const* environment) {
  char* const arguments[] = {"true", NULL};
  pid_t child;
  const int error = posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment);
  return error == 0 ? ended(child) : -1;
}

static int children(const char* folder) {
  for (int i = 0; i < kOpen; ++i) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, i);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, kSize) != kSize) return perror(path), 1;
  }
  TIME("fork", kChildren, by_fork());
  TIME("vfork", kChildren, by_vfork());
  extern char** environ;
  char* const none[] = {NULL};
  TIME("posix_spawn", kChildren, by_spawn(environ));
  TIME("posix_spawn_plain", kChildren, by_spawn(none));
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 1) return 0;
  memset(bytes, 'o', sizeof bytes);
  if (argc == 2 && strcmp(argv[1], "calls") == 0) return calls(argv[0]);
  if (argc == 3 && strcmp(argv[1], "children") == 0) return children(argv[2]);
  fprintf(stderr, "usage: nvcache_overhead [calls | children FOLDER]\n");
  return 2;
}
