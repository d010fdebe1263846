// SPDX-License-Identifier: BSD-3-Clause
//
// A library that uses files before the preload library's constructor has run, and after its
// destructor: loaded into other tests' place, it does the same as a program would.
#include "tests/kit/program.h"

static int g_fd = -1;

static void check(const char* what, int good) {
  if (!good) printf("%s: wrong\n", what);
}

static void use(const char* name, const char* text) {
  struct stat st;
  char back[100] = {0};
  const int fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0644);
  const ssize_t n = (ssize_t)strlen(text);
  check("write", fd >= 0 && write(fd, text, (size_t)n) == n && fsync(fd) == 0);
  check("size", fstat(fd, &st) == 0 && pread(fd, back, 99, 0) == st.st_size);
  check("bytes", strcmp(back + st.st_size - n, text) == 0);
  check("close", close(fd) == 0);
  // One that stays open all the time.
  if (g_fd < 0) g_fd = open("early_open", O_RDWR | O_CREAT | O_APPEND, 0644);
  check("append", write(g_fd, text, (size_t)n) == n && fdatasync(g_fd) == 0);
}

static void at_exit(void) { use("early", "atexit\n"); }

__attribute__((constructor)) static void begin(void) {
  use("early", "constructor\n");
  atexit(at_exit);
}
__attribute__((destructor)) static void end(void) { use("early", "destructor\n"); }

void early_use(const char* text) { use("early", text); }
