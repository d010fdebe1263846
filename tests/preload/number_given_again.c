// SPDX-License-Identifier: BSD-3-Clause
//
// One thread closes files; another gets their numbers at once, for sockets, which answer.
#include "tests/kit/program.h"

enum { kFiles = 20000 };

static atomic_int g_done;

static void* close_files(void* failures) {
  for (int i = 0; i < kFiles; ++i) {
    const int fd = open("a", O_RDWR | O_CREAT, 0644);
    if (fd < 0 || pwrite(fd, "x", 1, 0) != 1 || close(fd) != 0) ++*(int*)failures;
  }
  g_done = 1;
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  // Open all the time, so that to close the other descriptor is quickly done.
  const int kept = created("a");
  int failed_files = 0, failed_sockets = 0;
  pthread_t thread;
  if (kept < 0 || pthread_create(&thread, NULL, close_files, &failed_files) != 0) return 1;
  while (!g_done) {
    int pair[2];
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 1;
    if (write(pair[0], "y", 1) != 1 || read(pair[1], &byte, 1) != 1 || byte != 'y') {
      ++failed_sockets;
    }
    close(pair[0]);
    close(pair[1]);
  }
  pthread_join(thread, NULL);
  printf("%d files and %d sockets failed\n", failed_files, failed_sockets);
  return 0;
}
