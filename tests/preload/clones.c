// SPDX-License-Identifier: BSD-3-Clause
//
// Children of clone() with each set of flags that makes sense, by libc's function and by number:
// parent and child write files, and read what the other has written; nobody is killed.
#define _GNU_SOURCE
#include <linux/sched.h>

#include "libc.h"
#include "tests/kit/program.h"

int clone(int (*function)(void*), void* stack, int flags, void* argument, ...);

enum { kSize = 30000, kRounds = 3, kShared = 70 };

static char stack[1 << 17] __attribute__((aligned(16)));
static int shared, closed, to_child[2], to_parent[2];

static void fill(char* bytes, int seed) {
  for (int i = 0; i < kSize; ++i) bytes[i] = (char)('a' + (i + seed) % 23);
}

static void write_file(const char* name, int seed) {
  char bytes[kSize];
  fill(bytes, seed);
  const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (int at = 0; at < kSize; at += 3000) CHECK(write(fd, bytes + at, 3000) == 3000);
  CHECK(fsync(fd) == 0 && close(fd) == 0);
}

static void check_bytes(int fd, int seed) {
  char bytes[kSize], found[kSize + 1];
  fill(bytes, seed);
  CHECK(pread(fd, found, sizeof(found), 0) == kSize && memcmp(bytes, found, kSize) == 0);
}

static void check_file(const char* name, int seed) {
  struct stat st;
  const int fd = open(name, O_RDONLY);
  CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == kSize);
  check_bytes(fd, seed);
  close(fd);
}

// Each round: the child writes, the parent reads; then the other way round. One file is open in
// both all the time.
static int child(void* waits) {
  for (int i = 0; i < kRounds; ++i) {
    char bytes[kSize];
    write_file("of the child", i);
    write_file("of the child, before", i);
    CHECK(rename("of the child, before", "of the child, moved") == 0);
    fill(bytes, i + 50);
    CHECK(pwrite(shared, bytes, kSize, 0) == kSize);
    if (waits != NULL) {
      tell(to_parent);
      hear(to_child);
      check_file("of the parent", i + 5);
      check_bytes(shared, i + 60);
    }
  }
  // Where descriptors are shared, the parent has the number for another file next.
  close(closed);
  return 5;
}

static void parent(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    char bytes[kSize];
    hear(to_parent);
    check_file("of the child", i);
    check_file("of the child, moved", i);
    check_bytes(shared, i + 50);
    fill(bytes, i + 60);
    CHECK(pwrite(shared, bytes, kSize, 0) == kSize);
    write_file("of the parent", i + 5);
    tell(to_child);
  }
}

static long by_clone(int flags) {
  return clone(child, stack + sizeof(stack), flags | SIGCHLD,
               (flags & CLONE_VFORK) == 0 ? stack : NULL);
}

static long or_be_child(long pid, int flags) {
  if (pid == 0) _exit(child((flags & CLONE_VFORK) == 0 ? stack : NULL));
  return pid;
}
static long by_number(int flags) {
  return or_be_child(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0), flags);
}
static long by_number_3(int flags) {
  const struct clone_args arguments = {.flags = (uint64_t)flags, .exit_signal = SIGCHLD};
  return or_be_child(syscall(SYS_clone3, &arguments, sizeof(arguments)), flags);
}
static long by_fork(int flags) { return or_be_child(syscall(SYS_fork), flags); }
static long by_vfork(int flags) { return or_be_child(syscall(SYS_vfork), flags | CLONE_VFORK); }

// Each in a process of its own: some of these leave the parent without the cache.
static const struct way {
  const char* name;
  long (*make)(int flags);
  int flags;
} * way, ways[] = {
             {"clone nothing", by_clone, 0},
             {"clone FS", by_clone, CLONE_FS},
             {"clone FILES", by_clone, CLONE_FILES},
             {"clone FILES FS", by_clone, CLONE_FILES | CLONE_FS},
             {"clone FILES VFORK", by_clone, CLONE_FILES | CLONE_VFORK},
             {"clone VM", by_clone, CLONE_VM},
             {"clone VM VFORK", by_clone, CLONE_VM | CLONE_VFORK},
             {"clone VM FILES", by_clone, CLONE_VM | CLONE_FILES},
             {"clone VM FILES VFORK", by_clone, CLONE_VM | CLONE_FILES | CLONE_VFORK},
             {"number nothing", by_number, 0},
             {"number FS", by_number, CLONE_FS},
             {"number FILES", by_number, CLONE_FILES},
             {"number FILES FS", by_number, CLONE_FILES | CLONE_FS},
             {"clone3 nothing", by_number_3, 0},
             {"clone3 FILES", by_number_3, CLONE_FILES},
             {"clone3 FILES FS", by_number_3, CLONE_FILES | CLONE_FS},
             {"fork", by_fork, 0},
             {"vfork", by_vfork, 0},
             {"clone VFORK", by_clone, CLONE_VFORK},
             {"number VFORK", by_number, CLONE_VFORK},
             {"clone3 VFORK", by_number_3, CLONE_VFORK},
};

static void run(void) {
  CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
  shared = dup2(created("shared"), kShared);
  closed = created("closed");
  write_file("before", 1);
  char bytes[kSize];
  fill(bytes, 40);
  CHECK(pwrite(shared, bytes, kSize, 0) == kSize);
  const long made = way->make(way->flags);
  CHECK(made >= 0);
  const int alone = (way->flags & CLONE_VFORK) != 0 || way->make == by_vfork;
  parent(alone ? 0 : kRounds);
  CHECK(status_of((pid_t)made) == 5 << 8);
  check_file("before", 1);
  check_file("of the child", kRounds - 1);
  check_bytes(shared, kRounds - 1 + (alone ? 50 : 60));
  write_file("after", 2);
  check_file("after", 2);
}

int main(int argc, char** argv) {
  enter(argc, argv);
  for (way = ways; way < ways + COUNT(ways); ++way) try_case(way->name, run);
  return 0;
}
