// SPDX-License-Identifier: BSD-3-Clause
//
// What a child of fork finds that has used no file for a while: its parent has gone on with them,
// or is gone, and others have come.

#include "libc.h"
#include "tests/kit/program.h"

enum { kSize = 4000 };

static char bytes[kSize];
static int to_child[2], to_parent[2];

static int made(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  CHECK(fd >= 0 && write(fd, bytes, kSize) == kSize);
  return fd;
}
static void expect(int fd, off_t at, const char* text) {
  char found[100];
  const size_t n = strlen(text);
  CHECK(pread(fd, found, n, at) == (ssize_t)n && memcmp(found, text, n) == 0);
}

// A lock that the child has before it uses the file, of which the parent has had one.
static void locks(void) {
  struct flock lock = {.l_type = F_WRLCK};
  const int fd = made("locks");
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  lock.l_type = F_UNLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  sync_twice(fd);
  CHECK(pwrite(fd, "before", 6, 0) == 6);
  const pid_t child = fork();
  if (child == 0) {
    lock.l_type = F_WRLCK;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    CHECK(pwrite(fd, "child", 5, 100) == 5);
    expect(fd, 0, "before");
    tell(to_parent);
    hear(to_child);
    _exit(0);
  }
  hear(to_parent);
  lock.l_type = F_WRLCK;
  CHECK(fcntl(fd, F_GETLK, &lock) == 0);
  printf("locked: %d, by the child: %d\n", lock.l_type == F_WRLCK, lock.l_pid == child);
  tell(to_child);
  show_status(child);
  expect(fd, 100, "child");
}

// The parent has written on, and so has another process that has opened the file since.
static void others(void) {
  const int fd = made("others"), second = made("second");
  sync_twice(fd);
  const pid_t child = fork();
  if (child == 0) {
    hear(to_child);
    expect(fd, 0, "parent");
    expect(second, 0, "other");
    CHECK(lseek(fd, 0, SEEK_CUR) == kSize + 3 && write(fd, "child", 5) == 5);
    CHECK(pwrite(second, "child", 5, 50) == 5 && close(fd) == 0);
    _exit(0);
  }
  CHECK(pwrite(fd, "parent", 6, 0) == 6 && write(fd, "end", 3) == 3);
  CHECK(close(second) == 0);
  int over[2];
  CHECK(pipe(over) == 0);
  const pid_t other = fork();
  if (other == 0) {
    const int again = open("second", O_RDWR);
    sync_twice(again);
    CHECK(pwrite(again, "other", 5, 0) == 5);
    tell(to_parent);
    hear(over);
    _exit(0);
  }
  hear(to_parent);
  tell(to_child);
  show_status(child);
  tell(over);
  show_status(other);
  expect(fd, kSize, "endchild");
}

// The parent is gone, and others have the file; somebody who had it was killed.
static void orphan(void) {
  const int fd = made("orphan");
  sync_twice(fd);
  CHECK(pwrite(fd, "pending", 7, 10) == 7);
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0) {
      hear(to_child);
      expect(fd, 10, "pending");
      expect(fd, 0, "killed");
      CHECK(pwrite(fd, "child", 5, 50) == 5);
      tell(to_parent);
      _exit(0);
    }
    _exit(0);
  }
  show_status(parent);
  CHECK(close(fd) == 0);
  const pid_t killed = fork();
  if (killed == 0) {
    const int again = open("orphan", O_RDWR);
    sync_twice(again);
    CHECK(pwrite(again, "killed", 6, 0) == 6);
    raise(SIGKILL);
  }
  show_status(killed);
  tell(to_child);
  hear(to_parent);
  const int again = open("orphan", O_RDONLY);
  expect(again, 50, "child");
  expect(again, 10, "pending");
}

// A program that knows nothing of NVCache, started by such a child.
static void program(void) {
  const int fd = made("program");
  sync_twice(fd);
  CHECK(pwrite(fd, "parent", 6, 0) == 6 && lseek(fd, 0, SEEK_SET) == 0);
  const int copy = dup(fd);
  const pid_t child = fork();
  if (child == 0) {
    char script[60];
    char* const arguments[] = {"sh", "-c", script, NULL};
    char* const none[] = {NULL};
    snprintf(script, sizeof(script), "head -c 6 <&%d; echo; echo program >&%d", copy, copy);
    execve("/bin/sh", arguments, none);
    _exit(1);
  }
  show_status(child);
  expect(fd, 0, "parent");
  CHECK(lseek(fd, 0, SEEK_CUR) > 6 && write(fd, "end", 3) == 3);
}

// Memory that both have is used without a call.
static void mapped(void) {
  const int fd = made("mapped");
  char* const map = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && close(fd) == 0);
  const pid_t child = fork();
  if (child == 0) {
    hear(to_child);
    memcpy(map + 200, "child", 5);
    _exit(0);
  }
  const int again = open("mapped", O_RDWR);
  sync_twice(again);
  CHECK(pwrite(again, "parent", 6, 0) == 6);
  tell(to_child);
  show_status(child);
  expect(again, 200, "child");
  printf("%.6s\n", map);
}

// Children of children, which use nothing, and one that does.
static void deep(void) {
  const int fd = made("deep");
  sync_twice(fd);
  for (int depth = 0; depth < 5; ++depth) {
    CHECK(pwrite(fd, "parent", 6, 0) == 6);
    const pid_t child = fork();
    if (child != 0) {
      CHECK(status_of(child) == 0);
      if (depth > 0) _exit(0);
      break;
    }
    if (depth == 4) {
      expect(fd, 0, "parent");
      CHECK(pwrite(fd, "deepest", 7, 500) == 7);
      _exit(0);
    }
  }
  expect(fd, 500, "deepest");
}

int main(int argc, char** argv) {
  enter(argc, argv);
  fill_letters(bytes, kSize);
  CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
  try_case("locks", locks);
  try_case("others", others);
  try_case("orphan", orphan);
  try_case("program", program);
  try_case("mapped", mapped);
  try_case("deep", deep);
  return 0;
}
