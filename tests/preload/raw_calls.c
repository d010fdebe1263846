// SPDX-License-Identifier: BSD-3-Clause
//
// A program that makes some calls by libc, and some past it, on the same files.
//
//   raw_calls LIBRARY    in an empty folder; the library is not used
#include "tests/kit/program.h"

enum { kSyncs = 6 };

static int make(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || write(fd, "old-old-", 8) != 8) abort();
  for (int i = 0; i < kSyncs; ++i) {
    if (pwrite(fd, "old-", 4, 0) != 4 || fsync(fd) != 0) abort();
  }
  return fd;
}

static void data(void) {
  char buffer[9] = {0};
  const int fd = make("data");
  if (pwrite(fd, "NEW", 3, 0) != 3) abort();
  long n = by_hand(SYS_lseek, fd, 0, SEEK_SET);
  n = by_hand(SYS_read, fd, (long)buffer, 8);
  printf("read: %ld %s\n", n, buffer);
  by_hand(SYS_lseek, fd, 0, SEEK_SET);
  n = by_hand(SYS_write, fd, (long)"RAW", 3);
  if (pread(fd, buffer, 8, 0) != 8) abort();
  printf("write: %ld %s\n", n, buffer);
  if (access("the sync", F_OK) == 0) abort();  // strace shows it
  printf("fsync: %d\n", fsync(fd));
  printf("ftruncate: %ld", by_hand(SYS_ftruncate, fd, 4, 0));
  struct stat st;
  if (fstat(fd, &st) != 0) abort();
  printf(" %ld\n", (long)st.st_size);
}

static void number(void) {
  const int fd = make("first");
  if (pwrite(fd, "1111", 4, 0) != 4) abort();
  by_hand(SYS_close, fd, 0, 0);
  const long again = by_hand(SYS_open, (long)"second", O_RDWR | O_CREAT, 0600);
  printf("the number again: %d\n", again == fd);
  if (write(fd, "for-second", 10) != 10 || fsync(fd) != 0) abort();
}

static void names(void) {
  if (mkdir("folder", 0700) != 0) abort();
  const int folder = open("folder", O_RDONLY | O_DIRECTORY);
  const int fd = make("folder/a");
  for (int i = 0; i < kSyncs; ++i) {
    if (fsync(folder) != 0) abort();
  }
  if (rename("folder/a", "folder/b") != 0 || fsync(folder) != 0) abort();
  printf("rename: %ld\n", by_hand(SYS_rename, (long)"folder/b", (long)"folder/c", 0));
  if (access("the sync", F_OK) == 0) abort();  // strace shows it
  printf("fsync: %d %d\n", fsync(folder), close(fd));
}

static void lock(void) {
  const int fd = open("data", O_RDWR);
  struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  printf("lock: %ld\n", by_hand(SYS_fcntl, fd, F_SETLK, (long)&l));
  for (int i = 0; i < kSyncs; ++i) {
    if (pwrite(fd, "lock", 4, 0) != 4 || fsync(fd) != 0) abort();
  }
  const pid_t child = fork();
  if (child == 0) {
    struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    _exit(fcntl(fd, F_GETLK, &other) == 0 && other.l_type != F_UNLCK ? 0 : 1);
  }
  int status;
  if (waitpid(child, &status, 0) != child) abort();
  printf("held: %d\n", status == 0);
}

int main(void) {
  data();
  number();
  names();
  lock();
  return 0;
}
