// SPDX-License-Identifier: BSD-3-Clause
//
// races FOLDER [race]: two threads write to two files, sync and read them, each both. There is
// nothing wrong with that; with a second argument there is, for both add to a variable.
#include "libc.h"
#include "tests/kit/program.h"

enum { kThreads = 2, kRounds = 80, kStep = 1000 };

static int g_files[2];
static volatile int g_sum;
static int g_race;

static void* use(void* which) {
  char bytes[kStep + 100];
  memset(bytes, 'a' + (int)(intptr_t)which, sizeof(bytes));
  for (int i = 0; i < kRounds; ++i) {
    for (int file = 0; file < 2; ++file) {
      CHECK(pwrite(g_files[file], bytes, sizeof(bytes), (long)i * kStep) == sizeof(bytes));
      CHECK(fsync(g_files[file]) == 0);
      CHECK(pread(g_files[file], bytes, 100, 0) == 100);
    }
    if (g_race) g_sum = g_sum + 1;
  }
  return NULL;
}

int main(int argc, char** argv) {
  CHECK(argc >= 2 && chdir(argv[1]) == 0);
  g_race = argc > 2;
  for (int file = 0; file < 2; ++file) {
    g_files[file] = open(file == 0 ? "one" : "other", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(g_files[file] >= 0);
  }
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i)
    CHECK(pthread_create(&threads[i], NULL, use, (void*)i) == 0);
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
