// SPDX-License-Identifier: BSD-3-Clause
//
// Children of clone() with each set of flags that makes sense, by libc's function and by number:
// parent and child write files, and read what the other has written; nobody is killed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libc.h"

int clone(int (*function)(void*), void* stack, int flags, void* argument, ...);

enum { kSize = 30000, kRounds = 3, kShared = 70 };

static char stack[1 << 17] __attribute__((aligned(16)));
static int shared, closed, to_child[2], to_parent[2];

static void fail(const char* what) {
  printf("%s: wrong, errno %d\n", what, errno);
  _exit(9);
}

static void tell(const int* ends) {
  if (write(ends[1], "x", 1) != 1) fail("tell");
}
static void await(const int* ends) {
  char c;
  if (read(ends[0], &c, 1) != 1) fail("await");
}

static void fill(char* bytes, int seed) {
  for (int i = 0; i < kSize; ++i) bytes[i] = (char)('a' + (i + seed) % 23);
}

static void write_file(const char* name, int seed) {
  char bytes[kSize];
  fill(bytes, seed);
  const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) fail(name);
  for (int at = 0; at < kSize; at += 3000) {
    if (write(fd, bytes + at, 3000) != 3000) fail(name);
  }
  if (fsync(fd) != 0 || close(fd) != 0) fail(name);
}

static void check_bytes(int fd, const char* name, int seed) {
  char bytes[kSize], found[kSize + 1];
  fill(bytes, seed);
  if (pread(fd, found, sizeof(found), 0) != kSize || memcmp(bytes, found, kSize) != 0) fail(name);
}

static void check_file(const char* name, int seed) {
  struct stat st;
  const int fd = open(name, O_RDONLY);
  if (fd < 0 || fstat(fd, &st) != 0 || st.st_size != kSize) fail(name);
  check_bytes(fd, name, seed);
  close(fd);
}

// Each round: the child writes, the parent reads; then the other way round. One file is open in
// both all the time.
static int child(void* waits) {
  for (int i = 0; i < kRounds; ++i) {
    char bytes[kSize];
    write_file("of the child", i);
    write_file("of the child, before", i);
    if (rename("of the child, before", "of the child, moved") != 0) fail("rename");
    fill(bytes, i + 50);
    if (pwrite(shared, bytes, kSize, 0) != kSize) fail("shared, by the child");
    if (waits != NULL) {
      tell(to_parent);
      await(to_child);
      check_file("of the parent", i + 5);
      check_bytes(shared, "shared, in the child", i + 60);
    }
  }
  // Where descriptors are shared, the parent has the number for another file next.
  close(closed);
  return 5;
}

static void parent(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    char bytes[kSize];
    await(to_parent);
    check_file("of the child", i);
    check_file("of the child, moved", i);
    check_bytes(shared, "shared, in the parent", i + 50);
    fill(bytes, i + 60);
    if (pwrite(shared, bytes, kSize, 0) != kSize) fail("shared, by the parent");
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

// In a process of its own: some of these leave the parent without the cache.
static void try(const char* name, long (*make)(int flags), int flags) {
  printf("%s\n", name);
  const pid_t pid = fork();
  if (pid != 0) {
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) printf("status %x\n", (unsigned)status);
    return;
  }
  if (mkdir(name, 0755) != 0 || chdir(name) != 0) fail(name);
  if (pipe(to_child) != 0 || pipe(to_parent) != 0) fail("pipe");
  const int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
  shared = dup2(fd, kShared);
  closed = open("closed", O_RDWR | O_CREAT | O_TRUNC, 0644);
  write_file("before", 1);
  char bytes[kSize];
  fill(bytes, 40);
  if (pwrite(shared, bytes, kSize, 0) != kSize) fail("shared");
  const long made = make(flags);
  if (made < 0) fail("clone");
  const int alone = (flags & CLONE_VFORK) != 0 || make == by_vfork;
  parent(alone ? 0 : kRounds);
  int status;
  if (waitpid((pid_t)made, &status, 0) != made || status != 5 << 8) {
    printf("the child's status: %x\n", (unsigned)status);
  }
  check_file("before", 1);
  check_file("of the child", kRounds - 1);
  check_bytes(shared, "shared, in the end", kRounds - 1 + (alone ? 50 : 60));
  write_file("after", 2);
  check_file("after", 2);
  exit(0);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  try("clone nothing", by_clone, 0);
  try("clone FS", by_clone, CLONE_FS);
  try("clone FILES", by_clone, CLONE_FILES);
  try("clone FILES FS", by_clone, CLONE_FILES | CLONE_FS);
  try("clone FILES VFORK", by_clone, CLONE_FILES | CLONE_VFORK);
  try("clone VM", by_clone, CLONE_VM);
  try("clone VM VFORK", by_clone, CLONE_VM | CLONE_VFORK);
  try("clone VM FILES", by_clone, CLONE_VM | CLONE_FILES);
  try("clone VM FILES VFORK", by_clone, CLONE_VM | CLONE_FILES | CLONE_VFORK);
  try("number nothing", by_number, 0);
  try("number FS", by_number, CLONE_FS);
  try("number FILES", by_number, CLONE_FILES);
  try("number FILES FS", by_number, CLONE_FILES | CLONE_FS);
  try("clone3 nothing", by_number_3, 0);
  try("clone3 FILES", by_number_3, CLONE_FILES);
  try("clone3 FILES FS", by_number_3, CLONE_FILES | CLONE_FS);
  try("fork", by_fork, 0);
  try("vfork", by_vfork, 0);
  try("clone VFORK", by_clone, CLONE_VFORK);
  try("number VFORK", by_number, CLONE_VFORK);
  try("clone3 VFORK", by_number_3, CLONE_VFORK);
  return 0;
}
