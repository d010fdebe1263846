// SPDX-License-Identifier: BSD-3-Clause
//
// Loaded before libnvcache.so, it says in the system call trace what cannot be seen there: that a
// stream is being opened. It says so by a write to descriptor -1, which does nothing.
//
//   audit: begin       what is opened by this thread from now on is a stream's
//   audit: end
//   audit: stream N    descriptor N has become a stream's
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

static void Say(const char* text) {
  long number = SYS_write;
  __asm__ volatile("syscall"
                   : "+a"(number)
                   : "D"(-1L), "S"(text), "d"(strlen(text))
                   : "rcx", "r11", "memory");
}

// The next definition of the function that is being defined.
#define NEXT(name) (__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))

#define OPENS(name, parameters, arguments) \
  FILE* name parameters {                  \
    Say("audit: begin");                   \
    FILE* opened = NEXT(name) arguments;   \
    Say("audit: end");                     \
    return opened;                         \
  }

OPENS(fopen, (const char* path, const char* mode), (path, mode))
OPENS(fopen64, (const char* path, const char* mode), (path, mode))
OPENS(freopen, (const char* path, const char* mode, FILE* file), (path, mode, file))
OPENS(freopen64, (const char* path, const char* mode, FILE* file), (path, mode, file))
OPENS(tmpfile, (void), ())
OPENS(tmpfile64, (void), ())

FILE* fdopen(int fd, const char* mode) {
  char text[40];
  snprintf(text, sizeof(text), "audit: stream %d", fd);
  Say(text);
  return NEXT(fdopen)(fd, mode);
}
