// SPDX-License-Identifier: BSD-3-Clause
//
// Threads write more than the log has room for, to more files than the pool has records for, while
// another one's exec fails again and again, and at last the descriptors are unshared: the cache is
// left while writers sleep for room. Every write returns, and every byte is in its file.
#include "tests/kit/program.h"

enum { kThreads = 3, kRounds = 12, kFiles = 24, kBlock = 20000 };

static atomic_int g_working = kThreads;

static int fail(const char* what) {
  printf("%s failed\n", what);
  return 0;
}

static int write_files(int thread) {
  static char blocks[kThreads][kBlock];
  int files[kFiles];
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kFiles; ++i) {
      char name[32];
      snprintf(name, sizeof(name), "%d.%d", thread, i);
      files[i] = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
      if (files[i] < 0) return fail("open");
      memset(blocks[thread], 'a' + (thread + round + i) % 26, kBlock);
      if (write(files[i], blocks[thread], kBlock) != kBlock) return fail("write");
      const struct iovec pieces[2] = {{blocks[thread], 100}, {blocks[thread], 3}};
      if (writev(files[i], pieces, 2) != 103) return fail("writev");
    }
    for (int i = 0; i < kFiles; ++i) {
      if (close(files[i]) != 0) return fail("close");
    }
  }
  return 1;
}

static void* run(void* thread) {
  if (!write_files((int)(long)thread)) puts("a writer has failed");
  atomic_fetch_sub(&g_working, 1);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  pthread_t threads[kThreads];
  for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, run, (void*)i);
  char* const none[] = {NULL};
  while (atomic_load(&g_working) > 0) {
    if (execve("/there/is/no/such/program", none, none) != -1) return 1;
    usleep(200);
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);

  atomic_store(&g_working, kThreads);
  for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, run, (void*)i);
  usleep(1000);
  if (unshare(CLONE_FS) != 0) puts("unshare failed");
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  puts("done");
  return 0;
}
