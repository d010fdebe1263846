// SPDX-License-Identifier: BSD-3-Clause
//
// Files are cached when code comes that makes calls past libc: a library, and a stub in memory.
//
//   raw_later LIBRARY    in an empty folder
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/kit/program.h"

enum { kSyncs = 6 };

typedef long Call(long number, long a, long b, long c, long d);

static int make(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || write(fd, "old-old-", 8) != 8) abort();
  for (int i = 0; i < kSyncs; ++i) {
    if (pwrite(fd, "old-", 4, 0) != 4 || fsync(fd) != 0) abort();
  }
  if (pwrite(fd, "NEW", 3, 0) != 3) abort();
  return fd;
}

static void use(const char* what, Call* call, int fd) {
  char buffer[9] = {0};
  printf("%s read: %ld", what, call(SYS_pread64, fd, (long)buffer, 8, 0));
  printf(" %s\n", buffer);
  printf("%s write: %ld", what, call(SYS_pwrite64, fd, (long)"RAW", 3, 0));
  if (pread(fd, buffer, 8, 0) != 8) abort();
  printf(" %s\n", buffer);
  if (access("the sync", F_OK) == 0) abort();  // strace shows it
  printf("fsync: %d\n", fsync(fd));
}

// As a compiler has it: number, and the arguments one place further.
static Call* stub(void) {
  static const unsigned char kCode[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6,
                                        0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x0f, 0x05, 0xc3};
  void* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) abort();
  memcpy(page, kCode, sizeof(kCode));
  if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0) abort();
  return (Call*)page;
}

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  const pid_t child = fork();
  if (child == 0) {
    const int fd = make("stub");
    use("stub", stub(), fd);
    fflush(stdout);
    _exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  const int fd = make("library");
  void* library = dlopen(argv[1], RTLD_NOW);
  Call* call = library != NULL ? (Call*)dlsym(library, "raw_call") : NULL;
  if (call == NULL) return 1;
  use("library", call, fd);
  return 0;
}
