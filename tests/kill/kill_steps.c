// SPDX-License-Identifier: BSD-3-Clause
//
// A short program that changes files in all the usual ways, step by step, for kill_calls.py. An
// ordinary POSIX program: it knows nothing of NVCache.
//
//   kill_steps FOLDER SHARED THREADS STEPS
//
// Each thread works in FOLDER/0, FOLDER/1, ..., which are there, and does the first STEPS steps.
// SHARED is a file that is mapped: its n-th 64-bit word is the number of steps that have returned
// to thread n. Prints nothing; with STEPS = 0 it does nothing but end with the number of all steps
// as its status.
//
// KILL_STEPS_PLANT=early acknowledges each step before it is done: a fault that has to be found.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kMaxThreads = 8 };

static const char* g_folder;
static _Atomic uint64_t* g_shared;
static int g_steps;
static int g_early;

struct state {
  int number;
  int folder;
  int a, b, c;
  char bytes[40000];
};

static void die(const char* what) {
  fprintf(stderr, "kill_steps: %s: %s\n", what, strerror(errno));
  _exit(2);
}

static int opened(struct state* s, const char* name, int flags) {
  const int fd = openat(s->folder, name, flags | O_CLOEXEC, 0640);
  if (fd < 0) die(name);
  return fd;
}
static void must(int ok, const char* what) {
  if (!ok) die(what);
}
static const char* fill(struct state* s, char c) {
  for (size_t i = 0; i < sizeof s->bytes; ++i) s->bytes[i] = (char)(c + (char)(i % 7));
  return s->bytes;
}
static void put(struct state* s, int fd, char c, size_t n, off_t at) {
  must(pwrite(fd, fill(s, c), n, at) == (ssize_t)n, "pwrite");
}
static void append(struct state* s, int fd, char c, size_t n) {
  must(write(fd, fill(s, c), n) == (ssize_t)n, "write");
}

static void create_a(struct state* s) { s->a = opened(s, "a", O_RDWR | O_CREAT); }
static void write_a(struct state* s) { append(s, s->a, 'a', 100); }
static void pages_a(struct state* s) { put(s, s->a, 'b', 10000, 4000); }
static void within_a(struct state* s) { put(s, s->a, 'c', 1, 5000); }
static void sync_a(struct state* s) { must(fsync(s->a) == 0, "fsync"); }
static void create_b(struct state* s) { s->b = opened(s, "b", O_WRONLY | O_CREAT | O_APPEND); }
static void append_b(struct state* s) { append(s, s->b, 'd', 5000); }
static void vector_b(struct state* s) {
  fill(s, 'e');
  const struct iovec vector[] = {{s->bytes, 3}, {s->bytes + 10, 9000}, {s->bytes, 70}};
  must(writev(s->b, vector, 3) == 9073, "writev");
}
static void shorter_a(struct state* s) { must(ftruncate(s->a, 6000) == 0, "ftruncate"); }
static void behind_a(struct state* s) { put(s, s->a, 'f', 3000, 7000); }
static void rename_a(struct state* s) {
  must(renameat(s->folder, "a", s->folder, "c") == 0, "rename");
}
static void after_rename(struct state* s) { put(s, s->a, 'g', 6000, 2000); }
static void unlink_b(struct state* s) { must(unlinkat(s->folder, "b", 0) == 0, "unlink"); }
static void append_unlinked(struct state* s) { append(s, s->b, 'h', 100); }
static void close_b(struct state* s) { must(close(s->b) == 0, "close"); }
static void new_b(struct state* s) { s->b = opened(s, "b", O_RDWR | O_CREAT | O_EXCL); }
static void write_new_b(struct state* s) { append(s, s->b, 'i', 12345); }
static void truncate_b(struct state* s) { s->c = opened(s, "b", O_WRONLY | O_TRUNC); }
static void write_truncated(struct state* s) { append(s, s->c, 'j', 4097); }
static void datasync_c(struct state* s) { must(fdatasync(s->c) == 0, "fdatasync"); }
static void close_c(struct state* s) { must(close(s->c) == 0, "close"); }
static void rename_over(struct state* s) {
  must(renameat(s->folder, "b", s->folder, "c") == 0, "rename");
}
static void write_replaced(struct state* s) { put(s, s->a, 'k', 500, 0); }
static void write_replacing(struct state* s) { put(s, s->b, 'l', 40000, 300); }
static void sync_folder(struct state* s) { must(fsync(s->folder) == 0, "fsync"); }
static void close_a(struct state* s) { must(close(s->a) == 0, "close"); }

static void (*const kSteps[])(struct state*) = {
    create_a,        write_a,         pages_a,   within_a,    create_b,       append_b,
    sync_a,          vector_b,        shorter_a, behind_a,    rename_a,       after_rename,
    unlink_b,        append_unlinked, close_b,   new_b,       write_new_b,    truncate_b,
    write_truncated, datasync_c,      close_c,   rename_over, write_replaced, write_replacing,
    sync_folder,     close_a,
};
enum { kCount = sizeof kSteps / sizeof *kSteps };

static void* thread(void* argument) {
  struct state* s = argument;
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", g_folder, s->number);
  s->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (s->folder < 0) die(path);
  for (int i = 0; i < g_steps && i < kCount; ++i) {
    if (g_early) atomic_store(&g_shared[s->number], (uint64_t)i + 1);
    kSteps[i](s);
    if (!g_early) atomic_store(&g_shared[s->number], (uint64_t)i + 1);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: kill_steps FOLDER SHARED THREADS STEPS\n");
    return 2;
  }
  g_folder = argv[1];
  g_steps = atoi(argv[4]);
  if (g_steps == 0) return kCount;
  const char* plant = getenv("KILL_STEPS_PLANT");
  g_early = plant != NULL && strcmp(plant, "early") == 0;
  const int shared = open(argv[2], O_RDWR | O_CLOEXEC);
  void* words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
  if (words == MAP_FAILED) die(argv[2]);
  g_shared = words;

  static struct state states[kMaxThreads];
  pthread_t threads[kMaxThreads];
  const int count = atoi(argv[3]);
  if (count < 1 || count > kMaxThreads) return 2;
  for (int i = 1; i < count; ++i) {
    states[i].number = i;
    if (pthread_create(&threads[i], NULL, thread, &states[i]) != 0) die("thread");
  }
  thread(&states[0]);
  for (int i = 1; i < count; ++i) pthread_join(threads[i], NULL);
  return 0;
}
