/* SPDX-License-Identifier: BSD-3-Clause */
/* What few_calls_test.py counts the system calls of, each COUNT times in FOLDER; a prctl() begins
   each turn.

   few_calls replaced|unpacked|journal|appended FOLDER COUNT */
#include "tests/kit/program.h"

static char bytes[4096];

static void put(int fd) { CHECK(write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes); }

/* A file is written anew, and takes the place of the one before. */
static void replace(int folder) {
  const int fd = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  put(fd);
  CHECK(fsync(fd) == 0 && close(fd) == 0);
  CHECK(rename("new", "file") == 0 && fsync(folder) == 0);
}

/* As dpkg does, for one file. */
static void unpack(int number) {
  char name[32], new_name[32], old_name[32];
  struct stat st;
  snprintf(name, sizeof name, "f%d", number);
  snprintf(new_name, sizeof new_name, "f%d.dpkg-new", number);
  snprintf(old_name, sizeof old_name, "f%d.dpkg-tmp", number);
  CHECK(lstat(name, &st) < 0);
  CHECK(unlink(old_name) < 0 && rmdir(old_name) < 0);
  CHECK(unlink(new_name) < 0 && rmdir(new_name) < 0);
  int fd = open(new_name, O_WRONLY | O_CREAT | O_EXCL, 0);
  put(fd);
  CHECK(fchown(fd, getuid(), getgid()) == 0 && fchmod(fd, 0644) == 0);
  CHECK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0 && close(fd) == 0);
  const struct timeval times[2] = {{1000000, 0}, {1000000, 0}};
  CHECK(utimes(new_name, times) == 0);
  fd = open(new_name, O_WRONLY);
  CHECK(fd >= 0 && fsync(fd) == 0 && close(fd) == 0);
  CHECK(rename(new_name, name) == 0);
}

static void lock(int fd, short type, off_t start, off_t length) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
}

/* As SQLite does for a transaction, its journal removed. */
static void transact(int fd) {
  const off_t locks = 1 << 30;
  lock(fd, F_RDLCK, locks + 2, 510);
  lock(fd, F_WRLCK, locks + 1, 1);
  const int journal = open("db-journal", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  CHECK(journal >= 0);
  if (geteuid() == 0) CHECK(fchown(journal, 0, 0) == 0);
  CHECK(pwrite(journal, bytes, 512, 0) == 512 && pwrite(journal, bytes, 4096, 516) == 4096);
  CHECK(fdatasync(journal) == 0);
  const int folder = open(".", O_RDONLY | O_CLOEXEC);
  CHECK(fdatasync(folder) == 0 && close(folder) == 0);
  lock(fd, F_WRLCK, locks, 1);
  CHECK(pwrite(fd, bytes, 4096, 0) == 4096 && pwrite(fd, bytes, 4096, 4096) == 4096);
  CHECK(fdatasync(fd) == 0 && close(journal) == 0 && unlink("db-journal") == 0);
  lock(fd, F_RDLCK, locks + 2, 510);
  lock(fd, F_UNLCK, 0, 0);
}

static void append(int fd) { CHECK(write(fd, bytes, 512) == 512 && fdatasync(fd) == 0); }

int main(int argc, char **argv) {
  if (argc != 4 || chdir(argv[2]) != 0) return 2;
  const int folder = open(".", O_RDONLY | O_DIRECTORY);
  const int database = open("db", O_RDWR | O_CREAT, 0644);
  const int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
  CHECK(folder >= 0 && database >= 0 && log >= 0);
  for (int i = 0; i < atoi(argv[3]); ++i) {
    prctl(PR_SET_NAME, "turn");
    if (strcmp(argv[1], "replaced") == 0) replace(folder);
    if (strcmp(argv[1], "unpacked") == 0) unpack(i);
    if (strcmp(argv[1], "journal") == 0) transact(database);
    if (strcmp(argv[1], "appended") == 0) append(log);
  }
  prctl(PR_SET_NAME, "over");
  return 0;
}
