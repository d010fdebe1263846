// SPDX-License-Identifier: BSD-3-Clause
//
// Opens, cuts, renames and removes files that it has synced often, by paths that a library
// translates (interposer_library.c), and says what it finds. At the untranslated paths lie decoys.
//   interposer GIVEN MEANT
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kSyncs = 70 };

static const char *given, *meant;

static const char* in(const char* folder, const char* name) {
  static char text[4][4096];
  static int next;
  next = (next + 1) % 4;
  snprintf(text[next], sizeof(text[next]), "%s/%s", folder, name);
  return text[next];
}
static const char* path(const char* name) { return in(given, name); }

static void say(const char* what, long result) {
  printf("%s %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerror(errno) : "");
}

static void show(const char* what, int fd) {
  char text[200] = "";
  struct stat st;
  if (fstat(fd, &st) != 0) {
    say(what, -1);
    return;
  }
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  for (ssize_t i = 0; i < n; ++i) {
    if (text[i] == '\0') text[i] = '.';
  }
  printf("%s: %zd of %ld bytes, %lu names, \"%s\"\n", what, n, (long)st.st_size,
         (unsigned long)st.st_nlink, text);
}

// Often enough for any rule to have it in the log.
static int hot(const char* name) {
  const int fd = open(path(name), O_RDWR | O_CREAT | O_EXCL, 0644);
  char text[40];
  const int n = snprintf(text, sizeof(text), "content of %s", name);
  if (fd < 0 || pwrite(fd, text, (size_t)n, 0) != n) say(name, -1);
  int result = 0;
  for (int i = 0; i < kSyncs && result == 0; ++i) result = fsync(fd);
  if (result != 0) say("fsync", result);
  pwrite(fd, text, (size_t)n, 0);
  return fd;
}

static void cut_again(const char* what, int old, int fd) {
  show(what, old);
  if (fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) pwrite(fd, "cut", 3, 0);
  show(what, old);
  if (fd >= 0) close(fd);
  pwrite(old, "longer again", 12, 1);
  fsync(old);
}

static void cut(void) {
  const int old = hot("cut");
  cut_again("open", old, open(path("cut"), O_WRONLY | O_TRUNC));
  cut_again("open64", old, open64(path("cut"), O_RDWR | O_TRUNC | O_CREAT, 0600));
  cut_again("openat", old, openat(AT_FDCWD, path("cut"), O_RDWR | O_TRUNC));
  cut_again("creat", old, creat(path("cut"), 0600));
  cut_again("only read", old, open(path("cut"), O_RDONLY | O_TRUNC));
  cut_again("exclusive", old, open(path("cut"), O_RDWR | O_CREAT | O_EXCL | O_TRUNC, 0600));
  cut_again("folder", old, open(path("."), O_RDWR | O_TRUNC));
  cut_again("number", old,
            (int)syscall(SYS_openat, AT_FDCWD, in(meant, "cut"), O_RDWR | O_TRUNC, 0));
  cut_again("number of open", old, (int)syscall(SYS_open, in(meant, "cut"), O_RDWR | O_TRUNC, 0));
  cut_again("number of creat", old, (int)syscall(SYS_creat, in(meant, "cut"), 0600));
  struct open_how how = {.flags = O_RDWR | O_TRUNC};
  cut_again("openat2", old,
            (int)syscall(SYS_openat2, AT_FDCWD, in(meant, "cut"), &how, sizeof(how)));
  FILE* stream = fopen64(path("cut"), "w");
  show("fopen64", old);
  fputs("stream", stream);
  fclose(stream);
  show("fopen64", old);
  stream = freopen(path("cut"), "w", fopen64(path("cut"), "r"));
  show("freopen", old);
  fputs("reopened", stream);
  fclose(stream);
  show("freopen", old);
  say("truncate", truncate(path("cut"), 4));
  show("truncate", old);
  close(old);
}

// libc opens these inside itself, by the path as it is.
static void inside(void) {
  char text[80];
  FILE* stream = fopen(path("decoy"), "r");
  printf("fopen: %s",
         stream != NULL && fgets(text, sizeof(text), stream) != NULL ? text : "none\n");
  if (stream != NULL) fclose(stream);
  char name[4096], folder[4096];
  snprintf(name, sizeof(name), "%s/temporary-XXXXXX", given);
  snprintf(folder, sizeof(folder), "%s/folder-XXXXXX", given);
  const int fd = mkstemp(name);
  struct stat st;
  printf("mkstemp: %d, mkdtemp: %d\n", fd >= 0 && stat(name, &st) == 0,
         mkdtemp(folder) != NULL && stat(folder, &st) == 0);
  close(fd);
  say("its name", syscall(SYS_unlink, name));
  say("its folder", syscall(SYS_rmdir, folder));
}

static void names(void) {
  int fds[7];
  static const char* const all[] = {"a", "b", "c", "d", "e", "f", "decoy"};
  for (int i = 0; i < 7; ++i) fds[i] = hot(all[i]);
  const int folder = open(path("."), O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < 3; ++i) say("sync of the folder", fsync(folder));
  say("rename", rename(path("a"), path("a2")));
  say("unlink", unlink(path("b")));
  say("link", link(path("d"), path("d2")));
  say("rename over", rename(path("f"), path("e")));
  say("rename of none", rename(path("none-such"), path("x")));
  say("unlink of none", unlink(path("none-such")));
  say("mkdir", mkdir(path("folder"), 0755));
  say("mkdir again", mkdir(path("folder"), 0755));
  close(open(path("folder/file"), O_WRONLY | O_CREAT, 0644));
  say("rmdir", rmdir(path("folder")));
  say("move of a folder", rename(path("folder"), path("moved")));
  say("remove", remove(path("moved/file")));
  say("rmdir", rmdir(path("moved")));
  say("symlink", symlink("c", path("s")));
  say("mkfifo", mkfifo(path("fifo"), 0600));
  say("chmod", chmod(path("c"), 0640));
  const struct timespec times[2] = {{1000, 0}, {2000, 0}};
  say("utimensat", utimensat(AT_FDCWD, path("c"), times, 0));
  for (int i = 0; i < 7; ++i) {
    struct stat st;
    pwrite(fds[i], "later", 5, 20);
    say("fsync", fsync(fds[i]));
    show(all[i], fds[i]);
    if (i == 2) printf("mode %o\n", fstat(fds[i], &st) == 0 ? st.st_mode & 07777 : 0);
    close(fds[i]);
  }
  say("sync of the folder", fsync(folder));
  close(folder);
  if (fork() == 0) {
    say("rename in a child", rename(path("a2"), path("a3")));
    const int fd = open(path("a3"), O_WRONLY | O_TRUNC);
    pwrite(fd, "child", 5, 0);
    exit(fsync(fd));
  }
  int status;
  wait(&status);
  say("child", status);
}

static void answers(void) {
  const int target = hot("target"), next = hot("next");
  close(open(path("another"), O_WRONLY | O_CREAT, 0644));
  int fd = open(path("another"), O_RDWR);
  pwrite(fd, "other", 5, 0);
  show("another", fd);
  show("target", target);
  close(fd);
  fd = open(path("another"), O_WRONLY | O_TRUNC);
  show("target", target);
  close(fd);
  fd = open(path("none"), O_RDWR | O_CREAT | O_TRUNC, 0644);
  say("none", fd);
  say("write", pwrite(fd, "x", 1, 0));
  say("fsync", fsync(fd));
  for (int i = 0; i < 2; ++i) {
    const char* const name = i == 0 ? "odd" : "minus";
    say(name, open(path(name), O_RDWR | O_CREAT | O_TRUNC, 0644));
    say(name, openat64(AT_FDCWD, path(name), O_RDWR | O_TRUNC));
    say("write", pwrite(target, "after it", 8, 2));
    say("fsync", fsync(target));
    show(name, open64(path("next"), O_RDONLY));
  }
  fd = open(path("later"), O_RDWR | O_CREAT, 0644);
  for (int i = 0; i < kSyncs; ++i) pwrite(fd, "early", 5, 0), fsync(fd);
  const int after = open(path("after"), O_RDWR | O_CREAT, 0644);  // later is closed by now
  pwrite(after, "after", 5, 0);
  say("fsync", fsync(after));
  show("after", after);
  close(after);
  show("next", next);
  close(next);
  close(target);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  given = arguments[1];
  meant = arguments[2];
  setvbuf(stdout, NULL, _IOLBF, 0);
  inside();
  cut();
  names();
  answers();
  return 0;
}
