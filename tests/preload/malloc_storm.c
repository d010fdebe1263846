// SPDX-License-Identifier: BSD-3-Clause
//
// As first_open.c, with libc's own malloc: a timer's handler interrupts it anywhere, and makes the
// first open for writing.
#include "tests/kit/program.h"

enum { kRuns = 30, kPatience = 20 /* seconds */, kBlocks = 50 };

static volatile sig_atomic_t g_done;

static void open_first(int number) {
  const int saved = errno;
  if (!g_done) {
    const int fd = open("a", O_WRONLY | O_CREAT, 0644);
    if (write(fd, "x", 1) != 1 || close(fd) != 0) kill(getpid(), SIGKILL);
    g_done = 1;
  }
  errno = saved;
  (void)number;
}

static void allocate(void) {
  void* volatile blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) blocks[i] = malloc(16 + i * 400);
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
}

static int run(int round) {
  alarm(kPatience);
  signal(SIGPROF, open_first);
  const suseconds_t often = 200 + round * 7;
  const struct itimerval timer = {{0, often}, {0, often}};
  setitimer(ITIMER_PROF, &timer, NULL);
  while (!g_done) allocate();
  for (int i = 0; i < 100; ++i) allocate();
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  int good = 0;
  for (int i = 0; i < kRuns; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(run(i));
    int status = 1;
    if (waitpid(child, &status, 0) == child && status == 0) ++good;
  }
  printf("%d of %d\n", good, kRuns);
  return 0;
}
