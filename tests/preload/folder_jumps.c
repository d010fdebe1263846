/* SPDX-License-Identifier: BSD-3-Clause */
/* A handler leaves a sync of a folder by a jump, at many moments of it. What the library has opened
   for that sync does not stay open. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { FOLDERS = 200, NUMBERS = 1024 };

static sigjmp_buf out;

static void leave(int signal) {
  (void)signal;
  siglongjmp(out, 1);
}

static void set_timer(long microseconds) {
  const struct itimerval timer = {{0, 0}, {0, microseconds}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static int count_open(void) {
  int count = 0;
  for (int fd = 0; fd < NUMBERS; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

int main(void) {
  struct sigaction action = {.sa_handler = leave};
  sigaction(SIGALRM, &action, NULL);
  const int file = open("file", O_WRONLY | O_CREAT, 0600); /* so that there is a pool */
  if (file < 0 || write(file, "x", 1) != 1) return 1;
  close(file);
  const int before = count_open();
  for (int i = 0; i < FOLDERS; ++i) {
    char name[32];
    snprintf(name, sizeof(name), "folder%d", i);
    mkdir(name, 0700);
    const int fd = open(name, O_RDONLY | O_DIRECTORY);
    fsync(fd);
    if (sigsetjmp(out, 1) == 0) {
      set_timer(5 + i % 40 * 5);
      fsync(fd);
    }
    set_timer(0);
    close(fd);
  }
  printf("%d descriptors more\n", count_open() - before);
  return 0;
}
