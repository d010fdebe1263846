/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls every function of the C API once or more. Its argument names the case; what the cache did
 * is for the caller (functions_test.py) to look up in the pool.
 */
#include <errno.h>
#include <nvcache.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "line %d: %s; errno %d\n", __LINE__, #condition, errno); \
      _Exit(1);                                                                \
    }                                                                          \
  } while (0)

static int Open(const char* path) {
  const int fd = nvcache_open(path, O_RDWR | O_CREAT, 0640);
  CHECK(fd >= 0);
  return fd;
}

/* Every function, with results and errors as those of the system calls. */
static void Functions(const char* path) {
  char buffer[100];
  struct stat st;
  const int fd = Open(path);
  CHECK(nvcache_fstat(fd, &st) == 0 && st.st_size == 0 && (st.st_mode & 0777) == 0640);
  CHECK(nvcache_write(fd, "0123456789", 10) == 10);
  CHECK(nvcache_pwrite(fd, "abc", 3, 8000) == 3);
  CHECK(nvcache_fstat(fd, &st) == 0 && st.st_size == 8003);
  CHECK(nvcache_lseek(fd, 0, SEEK_CUR) == 10);
  CHECK(nvcache_lseek(fd, -3, SEEK_END) == 8000);
  CHECK(nvcache_read(fd, buffer, sizeof(buffer)) == 3 && memcmp(buffer, "abc", 3) == 0);
  CHECK(nvcache_read(fd, buffer, sizeof(buffer)) == 0);
  CHECK(nvcache_pread(fd, buffer, 5, 3) == 5 && memcmp(buffer, "34567", 5) == 0);
  CHECK(nvcache_fsync(fd) == 0);
  CHECK(nvcache_ftruncate(fd, 4) == 0);
  CHECK(nvcache_fstat(fd, &st) == 0 && st.st_size == 4);
  CHECK(nvcache_drain(fd) == 0);
  CHECK(nvcache_close(fd) == 0);

  CHECK(nvcache_close(fd) == -1 && errno == EBADF);
  CHECK(nvcache_read(fd, buffer, 1) == -1 && errno == EBADF);
  CHECK(nvcache_pwrite(fd, buffer, 1, 0) == -1 && errno == EBADF);
  CHECK(nvcache_lseek(fd, 0, SEEK_SET) == -1 && errno == EBADF);
  CHECK(nvcache_fsync(fd) == -1 && errno == EBADF);
  CHECK(nvcache_ftruncate(fd, 0) == -1 && errno == EBADF);
  CHECK(nvcache_fstat(fd, &st) == -1 && errno == EBADF);
  CHECK(nvcache_drain(fd) == -1 && errno == EBADF);
  CHECK(nvcache_open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
  CHECK(nvcache_open(path, O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
}

/* Things that are no regular files. */
static void Pipes(void) {
  char c = 0;
  int ends[2];
  CHECK(pipe(ends) == 0);
  CHECK(nvcache_write(ends[1], "x", 1) == 1 && nvcache_read(ends[0], &c, 1) == 1 && c == 'x');
  CHECK(nvcache_lseek(ends[0], 0, SEEK_CUR) == -1 && errno == ESPIPE);
  CHECK(nvcache_close(ends[0]) == 0 && nvcache_close(ends[1]) == 0);
  const int fd = nvcache_open("/dev/null", O_WRONLY);
  CHECK(nvcache_write(fd, "x", 1) == 1 && nvcache_close(fd) == 0);
}

enum { kThreads = 8, kRecords = 200, kRecord = 700 };

struct Writer {
  pthread_t thread;
  int number;
  const char* path;
};

/* Its own records of a common file; the first call of all starts the engine. */
static void* WriteRecords(void* argument) {
  const struct Writer* writer = argument;
  char record[kRecord];
  const int fd = Open(writer->path);
  for (int i = 0; i < kRecords; ++i) {
    memset(record, 'a' + writer->number, sizeof(record));
    const off_t place = (off_t)(i * kThreads + writer->number) * kRecord;
    CHECK(nvcache_pwrite(fd, record, sizeof(record), place) == kRecord);
    CHECK(nvcache_pread(fd, record, 1, place) == 1 && record[0] == 'a' + writer->number);
  }
  CHECK(nvcache_close(fd) == 0);
  return NULL;
}

static void Threads(const char* path) {
  struct Writer writers[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    writers[i].number = i;
    writers[i].path = path;
    CHECK(pthread_create(&writers[i].thread, NULL, WriteRecords, &writers[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(writers[i].thread, NULL) == 0);
  char record[kRecord];
  const int fd = Open(path);
  for (int i = 0; i < kThreads * kRecords; ++i) {
    CHECK(nvcache_read(fd, record, kRecord) == kRecord);
    CHECK(record[0] == 'a' + i % kThreads && record[kRecord - 1] == record[0]);
  }
  CHECK(nvcache_close(fd) == 0);
}

/* Parent and child go on writing to the same description. */
static void Fork(const char* path) {
  const int fd = Open(path);
  CHECK(nvcache_write(fd, "parent ", 7) == 7);
  const pid_t child = fork();
  if (child == 0) {
    CHECK(nvcache_write(fd, "child ", 6) == 6);
    exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(nvcache_write(fd, "parent", 6) == 6);
  CHECK(nvcache_close(fd) == 0);
}

/* Dies with writes pending; nothing but the log has them. */
static void Die(const char* path) {
  const int fd = Open(path);
  for (int i = 0; i < 100; ++i) CHECK(nvcache_pwrite(fd, "durable\n", 8, 8 * i) == 8);
  _Exit(0);
}

/* The engine's own descriptors, which libc's calls see, are none here; and the engine gives one up
 * when there is no other number. */
static void Hidden(const char* path) {
  const struct rlimit few = {64, 64};
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  int hidden = 0;
  struct stat st;
  const int fd = Open(path);
  CHECK(nvcache_write(fd, "x", 1) == 1);
  for (int other = 3; other < getdtablesize(); ++other) {
    if (other == fd || fcntl(other, F_GETFD) < 0) continue;
    CHECK(nvcache_fstat(other, &st) == -1 && errno == EBADF);
    CHECK(nvcache_close(other) == -1 && errno == EBADF && fcntl(other, F_GETFD) >= 0);
    ++hidden;
  }
  CHECK(hidden > 0);
  CHECK(nvcache_drain(fd) == 0);
  while (dup(STDOUT_FILENO) >= 0) continue;
  CHECK(errno == EMFILE);
  const int last = nvcache_open("/dev/null", O_RDONLY);
  CHECK(last >= 0 && nvcache_close(last) == 0);
  CHECK(nvcache_close(fd) == 0);
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const char* name = argv[1];
  const char* path = argv[2];
  if (strcmp(name, "functions") == 0) Functions(path);
  if (strcmp(name, "pipes") == 0) Pipes();
  if (strcmp(name, "threads") == 0) Threads(path);
  if (strcmp(name, "fork") == 0) Fork(path);
  if (strcmp(name, "die") == 0) Die(path);
  if (strcmp(name, "hidden") == 0) Hidden(path);
  return 0;
}
