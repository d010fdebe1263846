// SPDX-License-Identifier: BSD-3-Clause
//
// The kernel answers a bad pointer with EFAULT, or with a short count when a part was moved, and
// the program lives on.
//
// How many bytes in front of a missing page are moved is the file system's business: all of them,
// or down to a block less. So of a short count only that is printed.
#define _GNU_SOURCE
#include <linux/aio_abi.h>
#include <linux/fs.h>

#include "libc.h"
#include "tests/kit/program.h"

#ifndef __GLIBC__
// musl looks into these structures itself, as the program would, and a bad pointer is the program's
// own fault. By number it is the kernel's to say.
#define stat(path, result) syscall(SYS_stat, path, result)
#define fstat(fd, result) syscall(SYS_fstat, fd, result)
#define fstatat(fd, path, result, flags) syscall(SYS_newfstatat, fd, path, result, flags)
#define utimensat(fd, path, times, flags) syscall(SYS_utimensat, fd, path, times, flags)
#define sendmsg(fd, message, flags) syscall(SYS_sendmsg, fd, message, flags)
#define recvmsg(fd, message, flags) syscall(SYS_recvmsg, fd, message, flags)
#define sendmmsg(fd, messages, count, flags) syscall(SYS_sendmmsg, fd, messages, count, flags)
#define recvmmsg(fd, messages, count, flags, timeout) \
  syscall(SYS_recvmmsg, fd, messages, count, flags, timeout)
#endif

enum { kPage = 4096, kPages = 8, kFile = 64 * kPage };

static char g_model[kFile];

static void show(const char* what, ssize_t result) {
  printf("%s: %zd %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

// Of `limit` bytes that could be moved, so many were. Returns how many.
static size_t show_short(const char* what, ssize_t result, size_t limit) {
  const int error = errno;
  const size_t moved = result < 0 ? 0 : (size_t)result;
  const int fits = moved <= limit && limit - moved < kPage;
  printf("%s: %s\n", what, fits ? "up to the missing page" : "wrong");
  if (!fits) printf("    %zd %s of %zu\n", result, strerrorname_np(error), limit);
  if (result < 0 && error != EFAULT) printf("    %s\n", strerrorname_np(error));
  return moved;
}

// kPages of memory, of which those from `good` on are missing.
static char* map_pages(int good, int protection) {
  char* pages =
      mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < kPages * kPage; ++i) pages[i] = (char)('A' + i % 23);
  mprotect(pages + good * kPage, (size_t)(kPages - good) * kPage, protection);
  return pages;
}

static void compare(int fd, const char* what) {
  static char content[kFile + 1];
  const ssize_t n = pread(fd, content, sizeof(content), 0);
  if (n != kFile || memcmp(content, g_model, kFile) != 0) {
    int i = 0;
    while (i < kFile && content[i] == g_model[i]) ++i;
    printf("%s: %zd bytes, different from byte %d on\n", what, n, i);
  }
}

static void check_plain(int fd, void* bad) {
  struct iovec good = {"0123456789", 10};
  SHOW(write(fd, bad, 10), write(fd, bad, 1 << 20), pwrite(fd, bad, 10, 3), pwrite(fd, bad, 0, 3));
  SHOW(read(fd, bad, 4), pread(fd, bad, 4, 0), pread(fd, bad, 0, 0));
  SHOW(pread(fd, bad, 3 * kPage, 100));
  struct iovec first[] = {{bad, 10}, good};
  struct iovec second[] = {good, {bad, 10}};
  SHOW(pwritev(fd, first, 2, 0), pwritev(fd, second, 2, 0));
  char bytes[10];
  struct iovec into[] = {{bytes, 10}, {bad, 10}};
  SHOW(preadv(fd, first, 1, 0), preadv(fd, into, 2, 0), writev(fd, bad, 2), readv(fd, bad, 2));
  SHOW(pwritev(fd, bad, 2, 0), preadv2(fd, bad, 2, 0, 0), writev(fd, bad, 0));
  SHOW(writev(fd, bad, 1025), syscall(SYS_pwrite64, fd, bad, 10, 0), lseek(fd, 0, SEEK_CUR));
}

// Every length of what is there, in front of what is not.
static void check_short(int fd, int protection) {
  char* pages = map_pages(2, protection);
  char* end = pages + 2 * kPage;
  static const size_t kLimits[] = {0,   1,   2,    3,    4,    7,    8,    15,   16,  17,
                                   31,  32,  63,   64,   65,   100,  127,  128,  129, 200,
                                   255, 256, 1000, 4095, 4096, 4097, 5000, 8191, 8192};
  static const size_t kBeyond[] = {1, 3, 13, 60, 100, 500, 4096, 5000};
  static char bytes[4 * kPage];
  int wrong = 0;
  for (size_t i = 0; i < COUNT(kLimits); ++i) {
    for (size_t j = 0; j < COUNT(kBeyond); ++j) {
      const size_t limit = kLimits[i];
      const size_t count = limit + kBeyond[j];
      const off_t at = (off_t)(i * 1237 + j * 4093);
      errno = 0;
      ssize_t n = pwrite(fd, end - limit, count, at);
      if (n > (ssize_t)limit || (n < 0 && errno != EFAULT) || (limit > kPage && n <= 0)) {
        if (wrong++ < 10) printf("pwrite of %zu, %zu there: %zd %d\n", count, limit, n, errno);
      }
      if (n > 0) memcpy(g_model + at, end - limit, (size_t)n);
      n = pread(fd, bytes, count, at);
      if (n != (ssize_t)count || memcmp(bytes, g_model + at, count) != 0) {
        if (wrong++ < 10) printf("pread of %zu after %zu\n", count, limit);
      }
      // The kernel reads up to the very byte.
      memset(end - limit, 0, limit);
      n = pread(fd, end - limit, count, at);
      if (n != (limit > 0 ? (ssize_t)limit : -1) || memcmp(end - limit, g_model + at, limit) != 0) {
        if (wrong++ < 10) printf("pread of %zu, %zu there: %zd %d\n", count, limit, n, errno);
      }
    }
  }
  printf("short: %d wrong\n", wrong);
  compare(fd, "short");
  munmap(pages, kPages * kPage);
}

static void check_read_only(int fd) {
  char* pages = map_pages(1, PROT_READ);
  show("into read-only memory", pread(fd, pages + kPage, 10, 0));
  show_short("into memory that becomes read-only", pread(fd, pages + 100, kPage, 0), kPage - 100);
  const ssize_t n = pwrite(fd, pages, 2 * kPage, kPage);
  show("from it", n);
  if (n > 0) memcpy(g_model + kPage, pages, (size_t)n);
  compare(fd, "read-only");
  munmap(pages, kPages * kPage);
}

// A mapping that is longer than its file: SIGBUS.
static void check_mapping(int fd) {
  const int other = created("mapped");
  for (int i = 0; i < kPage; i += 16) {
    if (write(other, "sixteen letters.", 16) != 16) printf("mapped: %d\n", errno);
  }
  char* map = mmap(NULL, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
  show("pwrite from beyond the end", pwrite(fd, map + kPage, 10, 0));
  show("pread to beyond the end", pread(fd, map + kPage, 10, 0));
  const size_t n =
      show_short("pwrite over the end", pwrite(fd, map + 96, 2 * kPage, 50), kPage - 96);
  memcpy(g_model + 50, map + 96, n);
  compare(fd, "mapping");
  munmap(map, 4 * kPage);
  close(other);
}

// More than the log takes in one piece, the end of which is missing; and appended.
static void check_large(void) {
  enum { kGood = 3 << 20, kAll = 5 << 20 };
  char* large = mmap(NULL, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(large, 'L', kAll);
  munmap(large + kGood, kAll - kGood);
  const int fd = open("large", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
  show("append", write(fd, "0123456789", 10));
  show("append, bad", write(fd, (void*)8, 10));
  const size_t n = show_short("append much", write(fd, large, kAll), kGood);
  printf("size: %d\n", lseek(fd, 0, SEEK_END) == (off_t)(10 + n));
  printf("offset: %d\n", lseek(fd, 0, SEEK_CUR) == (off_t)(10 + n));
  show("and on", write(fd, "0123456789", 10));
  char bytes[20];
  printf("read: %zd\n", pread(fd, bytes, 20, (off_t)n));
  printf("content: %d\n", memcmp(bytes, "LLLLLLLLLL0123456789", 20) == 0);
  if (ftruncate(fd, 100) != 0) printf("truncate: %d\n", errno);
  close(fd);
  munmap(large, kGood);
}

// A page comes and goes while it is written from: every count is possible, and the content follows
// it where each write goes through the log. What the kernel's own write does, which reads the page
// while it changes the file, is the kernel's: its content was seen not to follow, in one run of
// hundreds.
static volatile int g_stop;

static void* toggle(void* page) {
  while (!g_stop) {
    mprotect(page, kPage, PROT_NONE);
    mprotect(page, kPage, PROT_READ);
  }
  return NULL;
}

static void race_wrong(const char* what, int i, ssize_t n, int there) {
  printf("race: %s: write %d, %zd of it written, %d pages in front\n", what, i, n, there);
}

static void check_race(int fd) {
  const char* rule = getenv("NVCACHE_WRITE_BACK");
  const int logged = rule != NULL && strcmp(rule, "always") == 0;
  char* pages = map_pages(kPages, PROT_READ);
  pthread_t thread;
  pthread_create(&thread, NULL, toggle, pages + 2 * kPage);
  static char bytes[4 * kPage];
  for (int i = 0; i < 30000; ++i) {
    const off_t at = i % 40 * 1000;
    const size_t count = 4 * kPage - 17;
    const int there = i % 3;  // pages in front of the one that toggles
    const char* from = pages + (2 - there) * kPage + 5;
    const ssize_t n = pwrite(fd, from, count, at);
    if (n < 0 && logged && (errno != EFAULT || there > 1))
      race_wrong(strerrorname_np(errno), i, n, there);
    // Not from the page: it may be away again.
    for (ssize_t done = 0; done < n; ++done) {
      g_model[at + done] = (char)('A' + (from - pages + done) % 23);
    }
    const ssize_t m = pread(fd, bytes, count, at);
    if (m != (ssize_t)count) race_wrong("a short read", i, n, there);
    if (logged && memcmp(bytes, g_model + at, count) != 0)
      race_wrong("another content", i, n, there);
    memcpy(g_model + at, bytes, count);
  }
  g_stop = 1;
  pthread_join(thread, NULL);
  compare(fd, "race");
  munmap(pages, kPages * kPage);
}

// ---------------------------------------------------------------------------------------------
// Structures and paths, which the library looks into before the kernel does. `end` is the end of
// what is there.

static void check_controls(int fd, void* bad, char* end) {
  SHOW(fcntl(fd, F_GETLK, bad), fcntl(fd, F_SETLK, bad), fcntl(fd, F_SETLKW, bad));
  SHOW(fcntl(fd, F_OFD_GETLK, bad), fcntl(fd, F_OFD_SETLK, bad), fcntl(fd, F_SETLK, end - 8));
  SHOW(ioctl(fd, FICLONERANGE, bad), ioctl(fd, FIDEDUPERANGE, bad));
  struct file_dedupe_range* range = (void*)(end - sizeof(*range));
  memset(range, 0, sizeof(*range));
  range->dest_count = 2;
  SHOW(ioctl(fd, FIDEDUPERANGE, range), prlimit(0, RLIMIT_FSIZE, bad, NULL));
  SHOW(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, bad, NULL));
}

static void check_messages(int fd, void* bad, char* end) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) exit(1);
  struct iovec iov = {"0123456789", 10}, bad_iov = {bad, 10};
  SHOW(sendmsg(pair[0], bad, 0), syscall(SYS_sendmsg, pair[0], bad, 0));
  SHOW(sendmmsg(pair[0], bad, 2, 0), sendmmsg(pair[0], bad, 4000000000u, 0));
  SHOW(recvmsg(pair[1], bad, MSG_DONTWAIT), recvmmsg(pair[1], bad, 2, MSG_DONTWAIT, NULL));

  struct msghdr message = {.msg_iov = bad, .msg_iovlen = 1};
  SHOW(sendmsg(pair[0], &message, 0));
  message.msg_iov = &bad_iov;
  SHOW(sendmsg(pair[0], &message, 0));
  message.msg_iov = &iov;
  message.msg_control = bad;
  message.msg_controllen = 100;
  SHOW(sendmsg(pair[0], &message, 0));
  struct cmsghdr* header = (void*)(end - sizeof(*header));
  memset(header, 0, sizeof(*header));
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  message.msg_control = header;
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  SHOW(sendmsg(pair[0], &message, 0));

  struct mmsghdr* messages = (void*)(end - sizeof(*messages));
  memset(messages, 0, sizeof(*messages));
  messages->msg_hdr.msg_iov = &iov;
  messages->msg_hdr.msg_iovlen = 1;
  SHOW(sendmmsg(pair[0], messages, 2, 0));
  char bytes[20];
  struct iovec into = {bytes, sizeof(bytes)};
  struct msghdr receive = {.msg_iov = &into, .msg_iovlen = 1};
  SHOW(recvmsg(pair[1], &receive, MSG_DONTWAIT));

  // A good one, so that it is not all in vain.
  char control[CMSG_SPACE(2 * sizeof(int))] = {0};
  header = (void*)control;
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  memcpy(CMSG_DATA(header), (int[]){0, fd}, 2 * sizeof(int));
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  SHOW(sendmsg(pair[0], &message, 0));
  receive.msg_control = bad;
  receive.msg_controllen = 100;
  SHOW(recvmsg(pair[1], &receive, MSG_DONTWAIT));
  close(pair[0]);
  close(pair[1]);
}

static void check_transfers(int fd, void* bad) {
  const int other = created("other");
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) exit(1);
  SHOW(sendfile(other, fd, bad, 10), copy_file_range(fd, bad, other, NULL, 10, 0));
  SHOW(copy_file_range(fd, NULL, other, bad, 10, 0), splice(fd, bad, pipe_ends[1], NULL, 10, 0));
  SHOW(lseek(fd, 0, SEEK_CUR));
  aio_context_t context = 0;
  struct iocb* requests[] = {bad};
  SHOW(syscall(SYS_io_setup, 1, &context), syscall(SYS_io_submit, context, 1, bad));
  SHOW(syscall(SYS_io_submit, context, 1, requests));
  SHOW(syscall(SYS_io_submit, context, 1L << 40, bad));
  syscall(SYS_io_destroy, context);
  close(other);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

static void check_paths(int fd, void* bad) {
  struct stat st;
  SHOW(open(bad, O_RDWR | O_CREAT | O_TRUNC, 0644), openat(AT_FDCWD, bad, O_RDONLY));
  SHOW(syscall(SYS_openat2, AT_FDCWD, "other", bad, 24), creat(bad, 0644), stat(bad, &st));
  SHOW(stat("other", bad), fstat(fd, bad));
  SHOW(fstatat(fd, bad, &st, AT_EMPTY_PATH) < 0 && errno != EFAULT);
  SHOW(statx(AT_FDCWD, "other", 0, STATX_ALL, bad), rename(bad, "other"), rename("other", bad));
  SHOW(link(bad, "another"), linkat(fd, bad, AT_FDCWD, "another", AT_EMPTY_PATH), unlink(bad));
  SHOW(unlinkat(AT_FDCWD, bad, 0), remove(bad), truncate(bad, 10));
  SHOW(utimensat(AT_FDCWD, "other", bad, 0), syscall(SYS_clone3, bad, 64));
}

// A new file each time: some of these calls hand it to the kernel.
static int open_new(void) {
  static int number = 0;
  char name[20];
  snprintf(name, sizeof(name), "new%d", number++);
  const int fd = created(name);
  show("new", write(fd, g_model, kPage));
  return fd;
}

static void check_structures(void* bad, char* end) {
  int fd = open_new();
  check_controls(fd, bad, end);
  close(fd);
  fd = open_new();
  check_messages(fd, bad, end);
  close(fd);
  fd = open_new();
  check_transfers(fd, bad);
  close(fd);
  fd = open_new();
  check_paths(fd, bad);
  close(fd);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  const int fd = created("a");
  for (int i = 0; i < kFile; ++i) g_model[i] = (char)('a' + i % 19);
  show("fill", write(fd, g_model, kFile));
  show("begin", lseek(fd, 0, SEEK_SET));
  compare(fd, "fill");

  puts("NULL");
  check_plain(fd, NULL);
  memcpy(g_model, "0123456789", 10);
  compare(fd, "NULL");
  puts("a small number");
  check_plain(fd, (void*)8);
  // In the gap between the program's addresses and the kernel's. What is said to a length of 0
  // there depends on the kernel's version.
  show("write from the gap", write(fd, (void*)0x1234567800000000, 10));
  show("pread into the gap", pread(fd, (void*)0x1234567800000000, 10, 0));
  puts("of the kernel");
  check_plain(fd, (void*)0xffff888000000000);
  puts("no access");
  char* pages = map_pages(0, PROT_NONE);
  check_plain(fd, pages + 100);
  compare(fd, "plain");
  show("pread at the end", pread(fd, pages, 10, kFile));
  show("too much to read", pread(fd, g_model, (size_t)-1, 0));
  show("too much to write", pwrite(fd, g_model, (size_t)-1, 0));
  show("no such descriptor", writev(99, NULL, 2));

  char* part = map_pages(1, PROT_NONE);
  puts("structures: NULL");
  check_structures(NULL, part + kPage);
  puts("structures: no access");
  check_structures(part + kPage, part + kPage);
  puts("structures: of the kernel");
  check_structures((void*)0xffff888000000000, part + kPage);

  check_short(fd, PROT_NONE);
  check_read_only(fd);
  check_mapping(fd);
  check_large();
  check_race(fd);

  // Where the kernel stopped depends on the file system.
  show("the same again", pwrite(fd, g_model, kFile, 0));
  for (int i = 0; i < kFile; ++i) g_model[i] = 'z';
  show("the same", pwrite(fd, g_model, kFile, 0));
  compare(fd, "end");
  return close(fd);
}
