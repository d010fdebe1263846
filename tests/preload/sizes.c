// SPDX-License-Identifier: BSD-3-Clause
//
// Appends to a file and asks for its attributes, in each way in turn: `sizes FOLDER`. Each answer
// has the bytes that were written before: their size, and a time that is not older. The test delays
// the kernel's answers, so that the cleanup thread brings the bytes to the file between an answer
// and what is made of it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 6 };

static int fd;

static void check(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(2);
}

static void by_descriptor(struct stat* st) { check(fstat(fd, st) == 0, "fstat"); }
static void by_path(struct stat* st) { check(stat("file", st) == 0, "stat"); }
static void at_folder(struct stat* st) { check(fstatat(AT_FDCWD, "file", st, 0) == 0, "fstatat"); }

static void extended(int dirfd, const char* path, int flags, struct stat* st) {
  struct statx stx;
  check(statx(dirfd, path, flags, STATX_BASIC_STATS, &stx) == 0, "statx");
  st->st_size = (off_t)stx.stx_size;
  st->st_mtim.tv_sec = stx.stx_mtime.tv_sec;
  st->st_mtim.tv_nsec = stx.stx_mtime.tv_nsec;
}
static void extended_by_path(struct stat* st) { extended(AT_FDCWD, "file", 0, st); }
static void extended_by_descriptor(struct stat* st) { extended(fd, "", AT_EMPTY_PATH, st); }

static const struct {
  const char* name;
  void (*ask)(struct stat* st);
} kWays[] = {{"fstat", by_descriptor},
             {"stat", by_path},
             {"fstatat", at_folder},
             {"statx by path", extended_by_path},
             {"statx by descriptor", extended_by_descriptor}};

static int is_older(const struct timespec* a, const struct timespec* b) {
  return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

int main(int argc, char** argv) {
  check(argc == 2 && chdir(argv[1]) == 0, "chdir");
  fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
  check(fd >= 0, "open");
  static char bytes[5000];
  memset(bytes, 'x', sizeof(bytes));
  off_t size = 0;
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t way = 0; way < sizeof(kWays) / sizeof(kWays[0]); ++way) {
      struct timespec before;
      clock_gettime(CLOCK_REALTIME_COARSE, &before);
      check(pwrite(fd, bytes, sizeof(bytes), size) == (ssize_t)sizeof(bytes), "pwrite");
      size += (off_t)sizeof(bytes);
      struct stat st;
      kWays[way].ask(&st);
      if (st.st_size == size && !is_older(&st.st_mtim, &before)) continue;
      ++wrong;
      printf("%s: size %ld instead of %ld, its time is %s\n", kWays[way].name, (long)st.st_size,
             (long)size, is_older(&st.st_mtim, &before) ? "older" : "right");
    }
  }
  printf("%d of %zu answers are wrong\n", wrong, kRounds * sizeof(kWays) / sizeof(kWays[0]));
  return wrong != 0;
}
