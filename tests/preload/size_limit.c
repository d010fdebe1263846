// SPDX-License-Identifier: BSD-3-Clause
//
// RLIMIT_FSIZE: set before the program, raised and lowered by it, in every way there is.

#include "libc.h"
#include "tests/kit/program.h"

static char g_bytes[400000];
static volatile sig_atomic_t g_signals;

static void count(int number) { g_signals += number == SIGXFSZ; }

static void show(const char* what, ssize_t result) {
  printf("%s: %zd %s, %d signals\n", what, result, result < 0 ? strerrorname_np(errno) : "",
         g_signals);
  g_signals = 0;
}

static void show_open(int fd) {
  static char back[sizeof(g_bytes)];
  struct stat st;
  fstat(fd, &st);
  const ssize_t n = pread(fd, back, sizeof(back), 0);
  printf("    size %ld, read %zd, sum %x\n", (long)st.st_size, n, sum_of(back, n));
}

// ---------------------------------------------------------------------------------------------

static int by_setrlimit(rlim_t soft) {
  const struct rlimit limit = {soft, RLIM_INFINITY};
  return setrlimit(RLIMIT_FSIZE, &limit);
}
static int by_setrlimit64(rlim_t soft) {
  const struct rlimit64 limit = {soft, RLIM_INFINITY};
  return setrlimit64(RLIMIT_FSIZE, &limit);
}
static int by_prlimit(rlim_t soft) {
  const struct rlimit limit = {soft, RLIM_INFINITY};
  struct rlimit old;
  return prlimit(0, RLIMIT_FSIZE, &limit, &old);
}
static int by_prlimit64(rlim_t soft) {
  const struct rlimit64 limit = {soft, RLIM_INFINITY};
  return prlimit64(getpid(), RLIMIT_FSIZE, &limit, NULL);
}
static int by_number(rlim_t soft) {
  const struct rlimit limit = {soft, RLIM_INFINITY};
  return (int)syscall(SYS_setrlimit, RLIMIT_FSIZE, &limit);
}
static int by_newer_number(rlim_t soft) {
  const struct rlimit64 limit = {soft, RLIM_INFINITY};
  return (int)syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, NULL);
}
static void* set_in_thread(void* soft) {
  const struct rlimit64 limit = {*(rlim_t*)soft, RLIM_INFINITY};
  return (void*)(long)prlimit64(gettid(), RLIMIT_FSIZE, &limit, NULL);
}
static int by_thread(rlim_t soft) { return (int)(long)in_thread(set_in_thread, &soft); }

static const struct {
  const char* name;
  int (*set)(rlim_t soft);
} kWays[] = {{"setrlimit", by_setrlimit}, {"setrlimit64", by_setrlimit64},
             {"prlimit", by_prlimit},     {"prlimit64", by_prlimit64},
             {"by number", by_number},    {"by newer number", by_newer_number},
             {"for a thread", by_thread}};

static void check_way(int way, int append) {
  int (*set)(rlim_t) = kWays[way].set;
  char name[20];
  snprintf(name, sizeof(name), "a%d%d", way, append);
  printf("%s%s\n", kWays[way].name, append ? ", append" : "");
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | (append ? O_APPEND : 0), 0644);
  show("begin", write(fd, g_bytes, 100000));
  show("set", set(150000));
  show("below", write(fd, g_bytes, 40000));
  show("across", write(fd, g_bytes, 40000));
  show("at the limit", write(fd, g_bytes, 1));
  show("nothing", write(fd, g_bytes, 0));
  show_open(fd);
  show("raise", set(300000));
  show("below", write(fd, g_bytes, 100000));
  show_open(fd);
  close(fd);

  const int other = open(name, O_RDWR | (append ? O_APPEND : 0));
  show("cached again", pwrite(other, "again", 5, 249990));
  show("lower, pending", set(120000));
  show_open(other);
  show("fsync", fsync(other));
  show("inside", pwrite(other, "inside", 6, 10));
  show("across", pwrite(other, "across", 6, 119997));
  show("beyond, overwrite", pwrite(other, "beyond", 6, 200000));
  show("beyond, at the end", pwrite(other, "beyond", 6, 350000));
  show("ftruncate up", ftruncate(other, 260000));
  show("ftruncate down", ftruncate(other, 110000));
  show("ftruncate to the limit", ftruncate(other, 120000));
  show("fallocate", fallocate(other, 0, 119000, 2000));
  show("write at the end", (lseek(other, 0, SEEK_END), write(other, "e", 1)));
  show_open(other);
  close(other);

  const int late = open(name, O_RDWR);
  show("lower", set(50000));
  close(late);
  const int large = open(name, O_RDWR);
  show("larger than the limit", pwrite(large, "larger", 6, 49997));
  show("far beyond", pwrite(large, "larger", 6, 100000));
  show("fsync", fsync(large));
  show("no limit", set(RLIM_INFINITY));
  show("anywhere", pwrite(large, "anywhere", 8, 350000));
  show("fsync", fsync(large));
  show_open(large);
  close(large);
}

// Limits that are negative to the kernel, though large to whoever compares them without a sign; and
// the largest that is none.
static void check_huge(rlim_t limit) {
  printf("limit %lx\n", (unsigned long)limit);
  const int fd = open("huge", O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int i = 0; i < 3; ++i) show("cached", (pwrite(fd, g_bytes, 5000, 0), fsync(fd)));
  show("set", by_setrlimit(limit));
  show("inside", pwrite(fd, "inside", 6, 10));
  show("at the end", pwrite(fd, "end", 3, 5000));
  show("ftruncate up", ftruncate(fd, 9000));
  show("fsync", fsync(fd));
  const int other = open("huge", O_RDWR);
  for (int i = 0; i < 3; ++i) show("again", (pwrite(other, "again", 5, i), fsync(other)));
  close(other);
  const int late = open("late", O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (int i = 0; i < 3; ++i) show("late", (pwrite(late, "late", 4, 4L * i), fsync(late)));
  show("late", pwrite(late, "late", 4, 12));
  show("lower, that is higher", by_setrlimit(20000));
  for (int i = 0; i < 3; ++i) show("late", (pwrite(late, "late", 4, 4L * i), fsync(late)));
  show("inside", pwrite(fd, "inside", 6, 10));
  show("across", pwrite(fd, "across", 6, 19997));
  show("set", by_setrlimit(limit));
  show("inside", pwrite(fd, "within", 6, 10));
  show("inside", pwrite(late, "within", 6, 1));
  show_open(fd);
  show_open(late);
  show("no limit", by_setrlimit(RLIM_INFINITY));
  close(fd);
  close(late);
}

// Of one that was there before.
static void check_inherited(void) {
  const int fd = created("inherited");
  show("below", write(fd, g_bytes, 60000));
  show("across", write(fd, g_bytes, 60000));
  show("at the limit", write(fd, g_bytes, 60000));
  show("raise", by_setrlimit(150000));
  show("below", write(fd, g_bytes, 60000));
  show_open(fd);
  close(fd);
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGXFSZ, count);
  fill_letters(g_bytes, sizeof(g_bytes));
  if (argc == 2) {
    check_inherited();
    return 0;
  }
  const char* const program = own_path();
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  for (int way = 0; way < (int)COUNT(kWays); ++way) {
    check_way(way, 0);
    check_way(way, 1);
  }
  check_huge((rlim_t)1 << 63);
  check_huge(((rlim_t)1 << 63) + 100000);
  check_huge(RLIM_INFINITY - 1);
  check_huge(((rlim_t)1 << 63) - 1);
  puts("inherited");
  by_setrlimit(100000);
  execl(program, "size_limit", "inherited", NULL);
  return 3;
}
