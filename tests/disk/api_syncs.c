// SPDX-License-Identifier: BSD-3-Clause
//
// Syncs a file by the C API, which sees none of a program's outputs (output_test.py, whose steps
// these are).
//
//   api_syncs NAME FOLDER STEP IN OUT WITNESS
//
// STEP as in leaves.c. The others are for that one.
#include "nvcache.h"
#include "tests/kit/program.h"

static void write_and_sync(int file, const char* text) {
  CHECK(nvcache_pwrite(file, text, 1, 0) == 1 && nvcache_fsync(file) == 0);
}

int main(int argc, char** argv) {
  CHECK(argc == 7 && chdir(argv[2]) == 0);
  const int steps = open(argv[3], O_RDWR);
  uint32_t* const step = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, steps, 0);
  CHECK(step != MAP_FAILED);
  const int file = nvcache_open("data", O_RDWR | O_CREAT, 0644);
  CHECK(file >= 0);
  // The second sync is when the log begins; the third is one that nobody but the log answers.
  for (int i = 0; i < 3; ++i) write_and_sync(file, "0");
  __atomic_store_n(step, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(step, __ATOMIC_ACQUIRE) < 2) usleep(1000);
  write_and_sync(file, "1");
  __atomic_store_n(step, 3, __ATOMIC_RELEASE);
  return 0;
}
