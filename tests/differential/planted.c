// SPDX-License-Identifier: BSD-3-Clause
//
// A library with errors in it, for the tests of the test: DIFFERENTIAL_PLANT says which one. short:
// now and then pwrite writes less than it was given, and says that it was all. append:
// O_APPEND is lost where O_CLOEXEC is there, too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int Planted(const char* error) {
  const char* wanted = getenv("DIFFERENTIAL_PLANT");
  return wanted != NULL && strcmp(wanted, error) == 0;
}

ssize_t pwrite(int fd, const void* buffer, size_t count, off_t offset);
ssize_t pwrite(int fd, const void* buffer, size_t count, off_t offset) {
  static ssize_t (*real)(int, const void*, size_t, off_t);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "pwrite");
  if (!Planted("short") || count % 7 != 3) return real(fd, buffer, count, offset);
  const ssize_t n = real(fd, buffer, count - 1, offset);
  return n < 0 ? n : n + 1;
}

int open(const char* path, int flags, ...);
int open(const char* path, int flags, ...) {
  static int (*real)(const char*, int, ...);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  const int fd = real(path, flags, mode);
  const int both = O_APPEND | O_CLOEXEC;
  if (fd >= 0 && (flags & both) == both && Planted("append")) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_APPEND);
  }
  return fd;
}
