// SPDX-License-Identifier: BSD-3-Clause
//
// What the first implementation of NVCache got wrong, one case each: peers_test.py runs them and
// looks at the files afterwards. What is checked here holds without the library as well.
//
//   peers CASE     in an empty folder on a disk
#include "tests/kit/program.h"

static char letters[20000];  // a to z, over and over

static int Open(const char* name, int flags) {
  const int fd = open(name, flags, 0644);
  CHECK(fd >= 0);
  return fd;
}

static void Write(int fd, const char* bytes, size_t count) {
  CHECK(write(fd, bytes, count) == (ssize_t)count);
}

static void Expect(int fd, off_t offset, const char* bytes, size_t count) {
  char found[sizeof(letters)];
  CHECK(pread(fd, found, sizeof(found), offset) == (ssize_t)count);
  CHECK(memcmp(found, bytes, count) == 0);
}

// Nothing that the process could still do happens.
static void Die(void) { kill(getpid(), SIGKILL); }

static void rename_while_dirty(void) {
  const int fd = Open("old", O_RDWR | O_CREAT);
  Write(fd, letters, 10000);
  CHECK(rename("old", "new") == 0);
  Write(fd, letters, 5000);
  // A new file under the old name must not get what was written before, or after.
  const int other = Open("old", O_WRONLY | O_CREAT | O_EXCL);
  Write(other, "another file", 12);
  Die();
}

static void truncate_while_dirty(void) {
  const int fd = Open("shorter", O_RDWR | O_CREAT);
  Write(fd, letters, 10000);
  CHECK(ftruncate(fd, 3000) == 0);
  Expect(fd, 0, letters, 3000);
  const int island = Open("island", O_RDWR | O_CREAT);
  Write(island, letters, 10000);
  CHECK(ftruncate(island, 3000) == 0);
  CHECK(pwrite(island, "island", 6, 5000) == 6);
  char zeros[2000] = {0};
  char found[2006];
  CHECK(pread(island, found, sizeof(found), 3000) == 2006);
  CHECK(memcmp(found, zeros, 2000) == 0 && memcmp(found + 2000, "island", 6) == 0);
  Die();
}

static void append(void) {
  Write(Open("log", O_WRONLY | O_CREAT), "first ", 6);
  const int fd = Open("log", O_RDWR | O_APPEND);
  Write(fd, "second ", 7);
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  Write(fd, "third ", 6);
  CHECK(lseek(fd, 0, SEEK_CUR) == 19);
  // On Linux O_APPEND wins over pwrite's offset.
  CHECK(pwrite(fd, "fourth", 6, 2) == 6);
  Expect(fd, 0, "first second third fourth", 25);
  Expect(Open("log", O_RDONLY), 0, "first second third fourth", 25);
}

static void all_bytes(void) {
  const int fd = Open("file", O_RDWR | O_CREAT);
  const int copy = dup(fd);
  CHECK(copy >= 0);
  Write(fd, "by the first, ", 14);
  Write(copy, "by its copy, ", 13);
  CHECK(dup2(fd, 100) == 100);
  CHECK(close(fd) == 0);
  Write(100, "by a number", 11);
  Expect(copy, 0, "by the first, by its copy, by a number", 38);
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  char found[20];
  Write(pair[0], "socket", 6);
  CHECK(read(pair[1], found, sizeof(found)) == 6 && memcmp(found, "socket", 6) == 0);
  CHECK(pipe(pair) == 0);
  Write(pair[1], "pipe", 4);
  CHECK(read(pair[0], found, sizeof(found)) == 4 && memcmp(found, "pipe", 4) == 0);
  Write(STDOUT_FILENO, "stdout\n", 7);
}

static void vectors(void) {
  const int fd = Open("file", O_RDWR | O_CREAT);
  Write(fd, letters, 1000);
  CHECK(lseek(fd, 500, SEEK_SET) == 500);
  struct iovec parts[] = {{"one ", 4}, {"", 0}, {"two ", 4}, {"three", 5}};
  CHECK(writev(fd, parts, 4) == 13);
  CHECK(lseek(fd, 0, SEEK_CUR) == 513);
  CHECK(writev(fd, parts, 1) == 4);
  CHECK(pwritev(fd, parts, 4, 20) == 13);
  CHECK(lseek(fd, 0, SEEK_CUR) == 517);
}

static void reader_of_dirty(void) {
  const int writer = Open("file", O_WRONLY | O_CREAT);
  Write(writer, letters, 9000);
  const int reader = Open("file", O_RDONLY);
  Expect(reader, 0, letters, 9000);
  Write(writer, "more", 4);
  Expect(reader, 9000, "more", 4);
  struct stat st;
  CHECK(fstat(reader, &st) == 0 && st.st_size == 9004);
  CHECK(lseek(reader, 0, SEEK_END) == 9004);
}

static void last_byte_of_stream(void) {
  for (int size = 4094; size <= 4098; ++size) {
    char name[20];
    snprintf(name, sizeof(name), "%d", size);
    FILE* file = fopen(name, "w");
    CHECK(file != NULL);
    for (int i = 0; i < size; ++i) CHECK(fputc(letters[i], file) == letters[i]);
    CHECK(fclose(file) == 0);
    const int fd = Open(name, O_RDONLY);
    Expect(fd, 0, letters, (size_t)size);
  }
}

static void wrong_mode(void) {
  const int writer = Open("file", O_WRONLY | O_CREAT);
  Write(writer, letters, 100);
  const int reader = Open("file", O_RDONLY);
  char byte = 'x';
  struct iovec part = {&byte, 1};
  const int path = Open("file", O_PATH);
#define REFUSED(call) CHECK((errno = 0, (call) == -1) && errno == EBADF)
  REFUSED(write(reader, &byte, 1));
  REFUSED(pwrite(reader, &byte, 1, 0));
  REFUSED(writev(reader, &part, 1));
  REFUSED(pwritev(reader, &part, 1, 0));
  REFUSED(fallocate(reader, 0, 0, 1));
  REFUSED(read(writer, &byte, 1));
  REFUSED(pread(writer, &byte, 1, 0));
  REFUSED(readv(writer, &part, 1));
  REFUSED(preadv(writer, &part, 1, 0));
  REFUSED(read(path, &byte, 1));
  REFUSED(write(path, &byte, 1));
  CHECK(ftruncate(reader, 0) == -1 && errno == EINVAL);
  CHECK(close(writer) == 0);
  REFUSED(write(writer, &byte, 1));
  REFUSED(fsync(writer));
  REFUSED(close(writer));
  CHECK(byte == 'x');
}

static void close_on_exec(void) {
  const int fd = Open("file", O_RDWR | O_CREAT | O_CLOEXEC);
  CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  Write(fd, letters, sizeof(letters));
  Expect(fd, 0, letters, sizeof(letters));
}

static void close_while_dirty(void) {
  const int fd = Open("file", O_WRONLY | O_CREAT);
  for (int i = 0; i < 200; ++i) Write(fd, letters, sizeof(letters));
  Write(STDOUT_FILENO, "closing\n", 8);
  CHECK(close(fd) == 0);
  Write(STDOUT_FILENO, "closed\n", 7);
}

// Appends numbered records to a file of its own, saying which are there, until it is killed.
static void record_first(void);
static void record_second(void);
static void Record(const char* name) {
  const int fd = Open(name, O_WRONLY | O_CREAT | O_APPEND);
  for (int i = 0;; ++i) {
    char record[40];
    const int size = snprintf(record, sizeof(record), "%s %d\n", name, i);
    Write(fd, record, (size_t)size);
    Write(STDOUT_FILENO, record, (size_t)size);
  }
}
static void record_first(void) { Record("first"); }
static void record_second(void) { Record("second"); }

#define CASE(name) \
  { #name, name }
static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {CASE(rename_while_dirty),
             CASE(truncate_while_dirty),
             CASE(append),
             CASE(all_bytes),
             CASE(vectors),
             CASE(reader_of_dirty),
             CASE(last_byte_of_stream),
             CASE(wrong_mode),
             CASE(close_on_exec),
             CASE(close_while_dirty),
             CASE(record_first),
             CASE(record_second)};

int main(int argc, char** argv) {
  for (size_t i = 0; i < sizeof(letters); ++i) letters[i] = (char)('a' + i % 26);
  for (size_t i = 0; i < COUNT(cases); ++i) {
    if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  }
  return 2;
}
