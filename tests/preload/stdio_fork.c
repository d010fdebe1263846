// SPDX-License-Identifier: BSD-3-Clause
//
// Threads that write to streams, one that flushes all streams, and one that forks. A fork waits for
// libc's list of streams, which the flush holds while it waits for the stream of a writer: that one
// must not wait for the fork.
#include "tests/kit/program.h"

enum { kForks = 200, kWriters = 3, kLines = 50 };

static atomic_int g_done;

static void* write_files(void* name) {
  while (!g_done) {
    FILE* f = fopen(name, "w+");
    for (int i = 0; i < kLines; ++i) fprintf(f, "line %d\n", i);
    rewind(f);
    int number = -1;
    for (int i = 0; i < kLines; ++i) {
      if (fscanf(f, "line %d\n", &number) != 1 || number != i) abort();
    }
    if (fclose(f) != 0) abort();
  }
  return NULL;
}

static void* flush_all(void* unused) {
  while (!g_done) fflush(NULL);
  return unused;
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  static char names[kWriters][2] = {"a", "b", "c"};
  pthread_t threads[kWriters + 1];
  for (int i = 0; i < kWriters; ++i) pthread_create(&threads[i], NULL, write_files, names[i]);
  pthread_create(&threads[kWriters], NULL, flush_all, NULL);
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
  }
  g_done = 1;
  for (int i = 0; i <= kWriters; ++i) pthread_join(threads[i], NULL);
  puts("done");
  return 0;
}
