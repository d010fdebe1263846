// SPDX-License-Identifier: BSD-3-Clause
//
// The only thread leaves by pthread_exit right after the library has started threads of its own,
// which may not have run yet; often enough to see it.
#include "tests/kit/program.h"

static void leave(void) {
  alarm(20);  // the default action ends a process that does not end
  const int fd = created("a");
  if (write(fd, "x", 1) != 1) _exit(1);
  pthread_exit(NULL);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  int ended = 0;
  for (int i = 0; i < 40; ++i) {
    const pid_t child = fork();
    if (child == 0) leave();
    int status = 0;
    ended += waitpid(child, &status, 0) == child && status == 0;
    if (status != 0) break;
  }
  printf("%d\n", ended);
  return 0;
}
