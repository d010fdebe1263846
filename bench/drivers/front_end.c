// SPDX-License-Identifier: BSD-3-Clause
//
// suites/frontends.py measures this program: one source for all front ends. With NVCACHE_API it
// calls the C API; without, libc, whose front end is the choice of who links and starts it.
//
//   PROGRAM                            does nothing
//   PROGRAM open FILE PAGES            opens a file for writing, writes so many pages, closes it
//   PROGRAM calls FOLDER CALLS WARM    times calls of 4 KiB; CALLS in each round
//
// pwrite: at random pages of a file of 64 MiB, none of them in DRAM; the log is emptied before each
// round. pread: of random pages within 1 MiB that were read before. uncached: a pread of one byte
// of a file that is only read. WARM bytes are written to a few pages before anything else: a lap of
// the log, whose memory is then mapped.
//
// Prints a line of JSON: nanoseconds of a call, the median of batches, and the bytes that were
// written. Ends with status 1 when a file does not have them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef NVCACHE_API
#include "src/api/nvcache.h"
#define CALL(name) nvcache_##name
#define DRAIN nvcache_drain
#else
#define CALL(name) name
#define DRAIN syncfs  // empties the log, too
#endif

enum {
  kPage = 4096,
  kFilePages = 16384,
  kHotPages = 256,
  kWarmPages = 256,
  kWarmBurst = 4096,  // pages; then the log is emptied
  kRounds = 3,
  kBatch = 128,
};

static const char* folder;
static uint64_t calls;  // in a round
static uint64_t written;
static uint32_t* pages;  // for the calls of a round
static char page[kPage];

static void Die(const char* what) {
  perror(what);
  exit(1);
}

static void Check(int ok, const char* what) {
  if (!ok) Die(what);
}

static void CheckBytes(int ok) {
  if (ok) return;
  fputs("a file does not have the bytes that were written\n", stderr);
  exit(1);
}

static double Now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint32_t Random(uint32_t below) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state % below);
}

static void ChoosePages(uint32_t below) {
  for (uint64_t i = 0; i < calls; ++i) pages[i] = Random(below);
}

// Every page begins with its stamp.
static void Write(int fd, uint32_t at, uint64_t stamp) {
  memcpy(page, &stamp, sizeof stamp);
  Check(CALL(pwrite)(fd, page, kPage, (off_t)at * kPage) == kPage, "pwrite");
}

static uint64_t Read(int fd, uint32_t at) {
  Check(CALL(pread)(fd, page, kPage, (off_t)at * kPage) == kPage, "pread");
  uint64_t stamp;
  memcpy(&stamp, page, sizeof stamp);
  return stamp;
}

static int Create(const char* name, uint32_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  const int fd = CALL(open)(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  Check(fd >= 0, path);
  for (uint32_t at = 0; at < size; ++at) Write(fd, at, at);
  Check(DRAIN(fd) == 0, "drain");
  written += (uint64_t)size * kPage;
  return fd;
}

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

struct times {
  double* batch;
  size_t count;
};

static struct times NewTimes(void) {
  struct times t = {malloc(kRounds * calls / kBatch * sizeof *t.batch), 0};
  Check(t.batch != NULL, "malloc");
  return t;
}

static double Median(struct times* t) {
  qsort(t->batch, t->count, sizeof *t->batch, Compare);
  const double median = t->batch[t->count / 2];
  free(t->batch);
  return median;
}

// Times `call` for each of the pages; it sees the page as `at`, and `done`, the calls before it.
#define ROUND(times, call)                                              \
  do {                                                                  \
    double before = Now();                                              \
    for (uint64_t done = 0; done < calls;) {                            \
      for (int i = 0; i < kBatch; ++i, ++done) {                        \
        const uint32_t at = pages[done];                                \
        call;                                                           \
      }                                                                 \
      const double now = Now();                                         \
      (times).batch[(times).count++] = (now - before) / (double)kBatch; \
      before = now;                                                     \
    }                                                                   \
  } while (0)

static void WarmUp(uint64_t bytes) {
  const int fd = Create("warm", kWarmPages);
  for (uint64_t i = 0; i < bytes / kPage; ++i) {
    Write(fd, (uint32_t)(i % kWarmPages), i);
    if (i % kWarmBurst == 0) Check(DRAIN(fd) == 0, "drain");
  }
  written += bytes / kPage * kPage;
  Check(DRAIN(fd) == 0 && CALL(close)(fd) == 0, "warm");
}

static double TimeWrites(void) {
  const int fd = Create("written", kFilePages);
  uint64_t* last = malloc(kFilePages * sizeof *last);
  Check(last != NULL, "malloc");
  for (uint32_t at = 0; at < kFilePages; ++at) last[at] = at;
  struct times times = NewTimes();
  ChoosePages(kFilePages);
  for (uint64_t round = 0; round < kRounds; ++round) {
    Check(DRAIN(fd) == 0, "drain");
    ROUND(times, Write(fd, at, round * calls + done));
  }
  written += kRounds * calls * kPage;
  for (uint64_t i = 0; i < calls; ++i) last[pages[i]] = (kRounds - 1) * calls + i;
  for (uint32_t at = 0; at < kFilePages; ++at) {
    CheckBytes(Read(fd, at) == last[at]);
  }
  Check(CALL(close)(fd) == 0, "close");
  free(last);
  return Median(&times);
}

static double TimeReads(void) {
  const int fd = Create("read", kHotPages);
  for (uint32_t at = 0; at < kHotPages; ++at) Read(fd, at);
  struct times times = NewTimes();
  ChoosePages(kHotPages);
  for (uint64_t round = 0; round < kRounds; ++round) {
    ROUND(times, CheckBytes(Read(fd, at) == at));
  }
  Check(CALL(close)(fd) == 0, "close");
  return Median(&times);
}

static double TimeUncached(const char* path) {
  const int fd = CALL(open)(path, O_RDONLY);
  Check(fd >= 0, path);
  struct times times = NewTimes();
  for (uint64_t round = 0; round < kRounds; ++round) {
    ROUND(times, Check(CALL(pread)(fd, page, 1, (off_t)at) == 1, path));
  }
  Check(CALL(close)(fd) == 0, "close");
  return Median(&times);
}

static void TimeCalls(const char* program, uint64_t warm_bytes) {
  pages = malloc(calls * sizeof *pages);
  Check(pages != NULL, "malloc");
  if (warm_bytes != 0) WarmUp(warm_bytes);
  const double pwrite_ns = TimeWrites(), pread_ns = TimeReads(), uncached = TimeUncached(program);
  printf("{\"pwrite\": %.2f, \"pread\": %.2f, \"uncached\": %.2f, \"written\": %llu}\n", pwrite_ns,
         pread_ns, uncached, (unsigned long long)written);
}

int main(int argc, char** argv) {
  if (argc < 2) return 0;
  if (argc == 4 && strcmp(argv[1], "open") == 0) {
    const int fd = CALL(open)(argv[2], O_RDWR | O_CREAT, 0600);
    Check(fd >= 0, argv[2]);
    for (long at = 0; at < atol(argv[3]); ++at) Write(fd, (uint32_t)at, 0);
    Check(CALL(close)(fd) == 0, argv[2]);
  } else if (argc == 5 && strcmp(argv[1], "calls") == 0) {
    folder = argv[2];
    calls = strtoull(argv[3], NULL, 10) / kBatch * kBatch;
    TimeCalls(argv[0], strtoull(argv[4], NULL, 10));
  } else {
    fprintf(stderr, "usage: %s [open FILE PAGES | calls FOLDER CALLS WARM]\n", argv[0]);
    return 2;
  }
  return 0;
}
