// SPDX-License-Identifier: BSD-3-Clause
//
// A library that translates paths: what a program calls $GIVEN/..., is $MEANT/... to the kernel. It
// does so in these functions alone; so libc's fopen, mkstemp and openat2 are not translated, and
// neither is fopen where a program is built for large files. It looks around by libc's names, as
// any library may. Some of its opens answer with something else:
//
//   .../another   a descriptor of .../target
//   .../none      a number that is no descriptor
//   .../odd       -1, with a number that is no error
//   .../minus     another number below 0, and no error
//   .../later     a descriptor that it closes at the next open, where nobody sees it
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define EXPORT __attribute__((visibility("default")))

typedef char path_t[4096];

static const char* meant(const char* path, path_t text) {
  struct stat st;
  const char* const given = getenv("GIVEN");
  const size_t n = strlen(given);
  stat(path, &st);  // as anybody might
  if (strncmp(path, given, n) != 0 || (path[n] != '/' && path[n] != '\0')) return path;
  snprintf(text, sizeof(path_t), "%s%s", getenv("MEANT"), path + n);
  return text;
}

static int ends(const char* path, const char* end) {
  const size_t n = strlen(path), m = strlen(end);
  return n >= m && strcmp(path + n - m, end) == 0;
}

static const char* wanted(const char* path, path_t text) {
  const char* const translated = meant(path, text);
  if (ends(translated, "/another")) strcpy(strstr(text, "/another"), "/target");
  return translated;
}

static int later = -1;

static int answer(const char* path, int fd) {
  if (later >= 0) NEXT(close)(later);
  later = -1;
  if (ends(path, "/later")) later = fd;
  const int none = ends(path, "/none"), odd = ends(path, "/odd");
  if (!none && !odd && !ends(path, "/minus")) return fd;
  NEXT(close)(fd);
  if (none) return 1000;
  errno = odd ? 12345 : 0;
  return odd ? -1 : -5;
}

#define OPEN(name)                                              \
  EXPORT int name(const char* path, int flags, ...) {           \
    path_t text;                                                \
    va_list arguments;                                          \
    va_start(arguments, flags);                                 \
    const mode_t mode = va_arg(arguments, mode_t);              \
    va_end(arguments);                                          \
    const int fd = NEXT(name)(wanted(path, text), flags, mode); \
    return answer(path, fd);                                    \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                   \
  EXPORT int name(int dirfd, const char* path, int flags, ...) {       \
    path_t text;                                                       \
    va_list arguments;                                                 \
    va_start(arguments, flags);                                        \
    const mode_t mode = va_arg(arguments, mode_t);                     \
    va_end(arguments);                                                 \
    const int fd = NEXT(name)(dirfd, wanted(path, text), flags, mode); \
    return answer(path, fd);                                           \
  }
OPENAT(openat)
OPENAT(openat64)
#define TRANSLATE(type, name, parameters, ...) \
  EXPORT type name parameters {                \
    path_t text;                               \
    return NEXT(name)(__VA_ARGS__);            \
  }
#define TRANSLATE_TWO(name)                                 \
  EXPORT int name(const char* from, const char* to) {       \
    path_t text, other;                                     \
    return NEXT(name)(meant(from, text), meant(to, other)); \
  }
TRANSLATE(int, creat, (const char* path, mode_t mode), meant(path, text), mode)
TRANSLATE(FILE*, fopen64, (const char* path, const char* mode), meant(path, text), mode)
TRANSLATE(FILE*, freopen, (const char* path, const char* mode, FILE* stream), meant(path, text),
          mode, stream)
TRANSLATE(int, unlink, (const char* path), meant(path, text))
TRANSLATE(int, rmdir, (const char* path), meant(path, text))
TRANSLATE(int, remove, (const char* path), meant(path, text))
TRANSLATE(int, mkdir, (const char* path, mode_t mode), meant(path, text), mode)
TRANSLATE(int, mkfifo, (const char* path, mode_t mode), meant(path, text), mode)
TRANSLATE(int, truncate, (const char* path, off_t length), meant(path, text), length)
TRANSLATE(int, chmod, (const char* path, mode_t mode), meant(path, text), mode)
TRANSLATE(int, symlink, (const char* target, const char* path), target, meant(path, text))
TRANSLATE_TWO(rename)
TRANSLATE_TWO(link)
TRANSLATE(int, utimensat, (int dirfd, const char* path, const struct timespec times[2], int flags),
          dirfd, meant(path, text), times, flags)
