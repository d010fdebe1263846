// SPDX-License-Identifier: BSD-3-Clause
//
// The first descriptor that a program makes has the lowest number, whatever its limit is; and so
// has the next one, and one of a file that it syncs.
#include "libc.h"
#include "tests/kit/program.h"

enum { kLeast = 7, kMost = 80 };

static void show(const char* limit) {
  const int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
  printf("limit %s: %d, %d", limit, first, second);
  close(first), close(second);
  const int fd = open("file", O_RDWR | O_CREAT, 0644);
  for (int i = 0; i < 3; ++i) CHECK(pwrite(fd, "some bytes", 10, 0) == 10 && fsync(fd) == 0);
  const int next = open("/dev/null", O_RDONLY);
  printf(", %d, %d\n", fd, next);
}

static void run_with(int limit, char** argv) {
  char number[16];
  snprintf(number, sizeof(number), "%d", limit);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit limits = {.rlim_cur = (rlim_t)limit, .rlim_max = 1024};
    char* const arguments[] = {argv[0], argv[1], number, NULL};
    close_range(3, ~0u, 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &limits) == 0);
    execv("/proc/self/exe", arguments);
    _exit(1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) printf("limit %d: status %d\n", limit, status);
}

int main(int argc, char** argv) {
  if (argc == 3 && strspn(argv[2], "0123456789") == strlen(argv[2])) {
    show(argv[2]);
    return 0;
  }
  enter(argc, argv);
  for (int limit = kLeast; limit <= kMost; ++limit) run_with(limit, argv);
  return 0;
}
