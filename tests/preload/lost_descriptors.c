// SPDX-License-Identifier: BSD-3-Clause
//
// Programs that close every descriptor there is, or want a certain number, and so meet those of
// the library; by calls that it sees and by system calls of their own that it does not see.

#include "libc.h"
#include "tests/kit/program.h"

enum { kEnd = 8192, kSize = 40000 };

static char g_bytes[kSize], g_back[2 * kSize];

static void check(const char* what, int good) {
  if (!good) printf("%s: wrong, errno %d\n", what, errno);
}

// Calls act(number) for those that the library has opened.
static void for_each_foreign(void (*act)(int)) {
  for (int fd = 40; fd < kEnd; ++fd) {
    if (by_hand(SYS_fcntl, fd, F_GETFD, 0) >= 0) act(fd);
  }
}

static void check_file(const char* name, const char* wanted, size_t size) {
  const int fd = open(name, O_RDONLY);
  const ssize_t n = read(fd, g_back, sizeof(g_back));
  printf("%s: %zd bytes, %s\n", name, n,
         n == (ssize_t)size && memcmp(g_back, wanted, size) == 0 ? "right" : "WRONG");
  close(fd);
}

static int create(const char* name, int flags) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
  check(name, fd >= 0);
  return fd;
}

static void fill(int fd) {
  for (int at = 0; at < kSize; at += 400) check("write", write(fd, g_bytes + at, 400) == 400);
}

// ---------------------------------------------------------------------------------------------

static void close_one_by_one(void) {
  for (int fd = 3; fd < kEnd; ++fd) close(fd);
}
static void close_by_number(void) {
  for (int fd = 3; fd < kEnd; ++fd) syscall(SYS_close, fd);
}
static void close_a_range(void) { check("close_range", close_range(3, ~0u, 0) == 0); }
static void close_from(void) { closefrom(3); }
static void close_by_hand(void) {
  for (int fd = 3; fd < kEnd; ++fd) by_hand(SYS_close, fd, 0, 0);
}

static void check_closing(const char* name, void (*close_all)(void)) {
  printf("closing all: %s\n", name);
  fill(create("a", 0));
  fill(create("b", O_APPEND));
  close_all();
  const int fd = created("c");
  printf("next: %d\n", fd);
  fill(fd);
  check("fsync", fsync(fd) == 0);
  check_file("a", g_bytes, kSize);
  check_file("b", g_bytes, kSize);
  check_file("c", g_bytes, kSize);
  check("close", close(fd) == 0);
}

// ---------------------------------------------------------------------------------------------

static int g_other;

static void want_number(int fd) {
  check("dup2", dup2(g_other, fd) == fd);
  check("write", pwrite(fd, g_bytes, 1, 0) == 1);
  check("close", close(fd) == 0);
}
static void want_number_by_number(int fd) {
  check("dup3", syscall(SYS_dup3, g_other, fd, O_CLOEXEC) == fd);
  check("write", pwrite(fd, g_bytes, 1, 0) == 1);
  check("close", close(fd) == 0);
}
static void take_away(int fd) { by_hand(SYS_close, fd, 0, 0); }
static void replace(int fd) { by_hand(SYS_dup3, g_other, fd, 0); }

// With `close_them`, the program has closed its own as well, unseen.
static void check_meeting(const char* name, void (*act)(int), int close_them) {
  printf("%s%s\n", name, close_them ? ", and the program's own" : "");
  // Of a file that nobody caches: what would be written there is wrong.
  const int victim = create("victim", 0);
  fill(victim);
  fsync(victim);
  g_other = open("victim", O_RDWR);
  const int fd = create("a", 0), append = create("b", O_APPEND), idle = create("idle", 0);
  fill(idle);
  check("fsync", fsync(idle) == 0);
  fill(fd);
  fill(append);
  for_each_foreign(act);
  if (close_them) {
    by_hand(SYS_close, fd, 0, 0);
    by_hand(SYS_close, append, 0, 0);
    by_hand(SYS_close, idle, 0, 0);
  } else {
    // Once they are noticed, and once more.
    for (int i = 0; i < 2; ++i) {
      check("fsync", fsync(fd) == 0 && fsync(append) == 0);
      check("pwrite", pwrite(fd, g_bytes, kSize, 0) == kSize);
      for (int at = 0; at < kSize; at += 400) {
        check("rewrite", pwrite(append, g_bytes + at, 400, at) == 400);
      }
      check("ftruncate", ftruncate(append, kSize) == 0);
      check("idle", pread(idle, g_back, kSize, 0) == kSize);
      check("idle's bytes", memcmp(g_back, g_bytes, kSize) == 0);
      check("pwrite", pwrite(idle, g_bytes + 5000, 100, 5000) == 100);
      usleep(100000);
    }
    check("close", close(fd) == 0 && close(append) == 0 && close(idle) == 0);
  }
  check_file("a", g_bytes, kSize);
  check_file("b", g_bytes, kSize);
  check_file("idle", g_bytes, kSize);
  check_file("victim", g_bytes, kSize);
  closefrom(3);
  for_each_foreign(take_away);
}

int main(int argc, char** argv) {
  enter(argc, argv);
  fill_letters(g_bytes, kSize);
  check_closing("one by one", close_one_by_one);
  check_closing("by number", close_by_number);
  check_closing("a range", close_a_range);
  check_closing("from", close_from);
  check_closing("by hand", close_by_hand);
  check_closing("by hand once more", close_by_hand);
  check_meeting("dup2", want_number, 0);
  check_meeting("dup3 by number", want_number_by_number, 0);
  check_meeting("closed by hand", take_away, 0);
  check_meeting("closed by hand", take_away, 1);
  check_meeting("replaced by hand", replace, 0);
  check_meeting("replaced by hand", replace, 1);
  return 0;
}
