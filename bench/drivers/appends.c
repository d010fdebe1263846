/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For suites/disk.py: programs that append 512 bytes to a file and sync it, over and over. Prints
 * the seconds for one.
 *
 *   appends threads FILE COUNT N     N threads, COUNT times each, in one file
 *   appends processes FILE COUNT N   N processes, each in a file of its own
 *   appends device FILE COUNT        blocks of a file full of zeros, by O_DIRECT and O_DSYNC
 *   appends flood FILE MEGABYTES     writes so many each second, until it is killed
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kBytes = 512, kBlock = 4096, kMost = 64, kPiece = 1 << 20, kFlood = 512 << 20 };

static char bytes[kPiece] __attribute__((aligned(kBlock)));
static long count;

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void append(int fd, long times) {
  for (long i = 0; i < times; ++i) {
    if (write(fd, bytes, kBytes) != kBytes) fail("write");
    if (fdatasync(fd) != 0) fail("fdatasync");
  }
}

static int open_file(const char* path) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) fail(path);
  append(fd, 3); /* a file is not cached before it is synced for the second time */
  return fd;
}

static void* thread(void* fd) {
  append(*(int*)fd, count);
  return NULL;
}

static double in_threads(const char* path, long n) {
  pthread_t threads[kMost];
  int fd = open_file(path);
  const double begin = now();
  for (long i = 0; i < n; ++i) {
    if (pthread_create(&threads[i], NULL, thread, &fd) != 0) fail("pthread_create");
  }
  for (long i = 0; i < n; ++i) pthread_join(threads[i], NULL);
  return now() - begin;
}

/* They begin together, when all have their file. */
static double in_processes(const char* path, long n) {
  int ready[2], go[2];
  char byte = 0;
  if (pipe(ready) != 0 || pipe(go) != 0) fail("pipe");
  for (long i = 0; i < n; ++i) {
    if (fork() != 0) continue;
    char own[4096];
    snprintf(own, sizeof own, "%s%ld", path, i);
    const int fd = open_file(own);
    if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) fail("pipe");
    append(fd, count);
    _exit(0);
  }
  for (long i = 0; i < n; ++i) {
    if (read(ready[0], &byte, 1) != 1) fail("pipe");
  }
  const double begin = now();
  for (long i = 0; i < n; ++i) {
    if (write(go[1], &byte, 1) != 1) fail("pipe");
  }
  for (int status; wait(&status) > 0;) {
    if (status != 0) exit(1);
  }
  return now() - begin;
}

static double on_device(const char* path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail(path);
  for (long i = 0; i < count; ++i) {
    if (write(fd, bytes, kBlock) != kBlock) fail("write");
  }
  if (fsync(fd) != 0) fail("fsync");
  close(fd);
  fd = open(path, O_WRONLY | O_DIRECT | O_DSYNC | O_CLOEXEC);
  if (fd < 0) fail(path);
  const double begin = now();
  for (long i = 0; i < count; ++i) {
    if (write(fd, bytes, kBlock) != kBlock) fail("write");
  }
  return now() - begin;
}

static void flood(const char* path, long megabytes) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) fail(path);
  const double begin = now();
  for (double done = 0;; done += 1) {
    if (pwrite(fd, bytes, kPiece, (off_t)done * kPiece % kFlood) != kPiece) fail("write");
    const double early = begin + done / (double)megabytes - now();
    if (early > 0) usleep((useconds_t)(early * 1e6));
  }
}

int main(int argc, char** argv) {
  const long number = argc > 3 ? atol(argv[3]) : 0, n = argc > 4 ? atol(argv[4]) : 1;
  if (number < 1 || n < 1 || n > kMost) {
    fprintf(stderr, "usage: appends threads|processes|device|flood FILE COUNT [N]\n");
    return 2;
  }
  count = number;
  double seconds = 0;
  if (strcmp(argv[1], "threads") == 0) {
    seconds = in_threads(argv[2], n);
  } else if (strcmp(argv[1], "processes") == 0) {
    seconds = in_processes(argv[2], n);
  } else if (strcmp(argv[1], "device") == 0) {
    seconds = on_device(argv[2]);
  } else if (strcmp(argv[1], "flood") == 0) {
    memset(bytes, 'x', sizeof bytes);
    flood(argv[2], number);
  } else {
    fprintf(stderr, "appends: %s is no way to append\n", argv[1]);
    return 2;
  }
  printf("%.9f\n", seconds / (double)(count * n));
  return 0;
}
