// SPDX-License-Identifier: BSD-3-Clause
//
// A file that is read and written with O_NOATIME keeps the time of its last access, by whatever
// descriptor its bytes come from the disk. The file is larger than the cache, and its time older
// than a day, which the mount option relatime brings up to date.
//
//   noatime DIRECTORY PLUGIN

#include "libc.h"
#include "tests/kit/program.h"

enum { kSize = 1 << 20, kOld = 1000000000 };

static void set_old(int fd) {
  const struct timespec times[2] = {{kOld, 0}, {0, UTIME_OMIT}};
  if (futimens(fd, times) != 0) printf("futimens: errno %d\n", errno);
}

static void show(const char* what, int fd) {
  struct stat st;
  const int result = fstat(fd, &st);
  printf("%s: %d, the time of the last access is %s\n", what, result,
         st.st_atim.tv_sec == kOld ? "kept" : "NOT KEPT");
  set_old(fd);
}

static void make(const char* path) {
  static char bytes[kSize];
  memset(bytes, 'a', sizeof(bytes));
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (write(fd, bytes, sizeof(bytes)) != kSize || fsync(fd) != 0)
    printf("write: errno %d\n", errno);
  set_old(fd);
  close(fd);
  sync();
}

static void read_pieces(int fd, const char* what) {
  char buffer[5000];
  long sum = 0;
  for (off_t at = 0; at < kSize; at += 50000) sum += pread(fd, buffer, sizeof(buffer), at);
  printf("%s: %ld bytes\n", what, sum);
  show(what, fd);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  make("a");
  const int fd = open("a", O_RDWR | O_NOATIME);
  printf("open: %d\n", fd);
  show("opened", fd);
  read_pieces(fd, "read");
  for (off_t at = 0; at < kSize; at += 30001) pwrite(fd, "0123456789", 10, at);
  fsync(fd);
  show("written", fd);
  read_pieces(fd, "read again");
  lseek(fd, 100000, SEEK_SET);
  char buffer[100];
  printf("read: %zd\n", read(fd, buffer, sizeof(buffer)));
  show("read in order", fd);

  // A write reads nothing that the program can see, whatever the engine has to read for it.
  make("b");
  const int writer = open("b", O_WRONLY);
  for (off_t at = 0; at < kSize; at += 30001) pwrite(writer, "0123456789", 10, at);
  fsync(writer);
  sync();
  show("only written", writer);
  return 0;
}
