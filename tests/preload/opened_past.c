// SPDX-License-Identifier: BSD-3-Clause
//
// Writes by libc to a file that was opened past it: prints the name of each, and 0 or its error. It
// is not in mirrored.c, for a program with such calls caches nothing.
//
//   opened_past DIRECTORY     with the file `other`
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int pipe_end;

// Past libc: the engine hears nothing of it.
static int OpenPast(const char* path, int flags) {
  long result = SYS_openat;
  register long mode __asm__("r10") = 0;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"((long)AT_FDCWD), "S"(path), "d"((long)flags), "r"(mode)
                   : "rcx", "r11", "memory");
  return (int)result;
}

enum end { kClose, kCloseRange, kStream, kInPlace };

// By a number that a pipe had before, which was written to.
static int WritePast(int flags, enum end end) {
  const int number = dup(pipe_end);
  if (number < 0 || write(number, "b", 1) != 1) return -1;
  int opened = end == kInPlace ? OpenPast("other", flags) : -1;
  if (end == kInPlace) dup2(opened, number);
  if (end == kClose) close(number);
  if (end == kCloseRange) close_range((unsigned)number, (unsigned)number, 0);
  if (end == kStream) fclose(fdopen(number, "w"));
  if (end != kInPlace) opened = OpenPast("other", flags);
  if (end != kInPlace && opened != number) return errno = EBADFD, -1;
  const int done = (int)write(number, "bytes", 5), error = errno;
  close(number);
  if (end == kInPlace) close(opened);
  errno = error;
  return done;
}

static void Say(const char* name, int written) {
  printf("%s\t%s\n", name, written < 0 ? strerrorname_np(errno) : "0");
}

int main(int argc, char** argv) {
  int ends[2];
  if (argc != 2 || chdir(argv[1]) != 0 || pipe(ends) != 0) return 2;
  pipe_end = ends[1];
  Say("write, opened past libc", WritePast(O_RDWR, kClose));
  Say("write, O_DSYNC, opened past libc", WritePast(O_RDWR | O_DSYNC, kClose));
  Say("the same, close_range", WritePast(O_RDWR | O_DSYNC, kCloseRange));
  Say("the same, fclose", WritePast(O_RDWR | O_DSYNC, kStream));
  Say("the same, dup2", WritePast(O_RDWR | O_DSYNC, kInPlace));
  return 0;
}
