// SPDX-License-Identifier: BSD-3-Clause
//
// main leaves by pthread_exit, and the program ends with its last thread: a thread of the library
// must not keep it alive.
#include "tests/kit/program.h"

static void* write_something(void* unused) {
  const int fd = created("a");
  usleep(100000);  // main is gone
  printf("%zd\n", write(fd, "0123456789", 10));
  return unused;
}

static void say_goodbye(void) { puts("goodbye"); }

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  atexit(say_goodbye);
  pthread_t thread;
  if (pthread_create(&thread, NULL, write_something, NULL) != 0) return 1;
  pthread_exit(NULL);
}
