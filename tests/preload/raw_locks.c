// SPDX-License-Identifier: BSD-3-Clause
//
// A POSIX lock that the program has taken past libc stays as long as without the library: while the
// file becomes hot, is cached or write-through, and while something happens to it afterwards. The
// library hears of no such lock.
#include "libc.h"
#include "tests/kit/program.h"

enum { kHot = 3, kTriesAgain = 66 };  // syncs: until it is cached; until that is tried once more

// ---------------------------------------------------------------- A process that looks at the lock

static int g_asked[2], g_told[2];

static void tell_locks(void) {
  char name[64];
  while (read(g_asked[0], name, sizeof(name)) == sizeof(name)) {
    struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const long fd = by_hand(SYS_open, (long)name, O_RDWR, 0);
    const long result = by_hand(SYS_fcntl, fd, F_GETLK, (long)&found);
    by_hand(SYS_close, fd, 0, 0);
    const char said = result != 0 ? '?' : found.l_type == F_UNLCK ? 'f' : 'l';
    if (write(g_told[1], &said, 1) != 1) break;
  }
  _exit(0);
}

static void start_looker(void) {
  CHECK(pipe(g_asked) == 0 && pipe(g_told) == 0);
  if (fork() == 0) {
    close(g_asked[1]);
    tell_locks();
  }
  close(g_asked[0]);
}

static void probe(const char* when, const char* name) {
  char asked[64] = "", said = '?';
  snprintf(asked, sizeof(asked), "%s", name);
  CHECK(write(g_asked[1], asked, sizeof(asked)) == sizeof(asked) && read(g_told[0], &said, 1) == 1);
  printf("%s, %s: %s\n", name, when, said == 'l' ? "locked" : said == 'f' ? "free" : "?");
}

// --------------------------------------------------------------------------------- The file's ways

static void take(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
  CHECK(by_hand(SYS_fcntl, fd, F_SETLK, (long)&lock) == 0);
}

static void sync_often(int fd, int times) {
  for (int i = 0; i < times; ++i) CHECK(pwrite(fd, "abcdefgh", 8, 0) == 8 && fsync(fd) == 0);
}

// Another process that syncs it as well, and lives on.
static pid_t start_sharer(const char* name) {
  int done[2];
  char byte;
  CHECK(pipe(done) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(name, O_RDWR);
    CHECK(fd >= 0);
    sync_often(fd, kHot);
    CHECK(write(done[1], "", 1) == 1);
    pause();
  }
  CHECK(read(done[0], &byte, 1) == 1);
  close(done[0]), close(done[1]);
  return child;
}

// ----------------------------------------------------------------------------------- What may come

static void do_nothing(int fd, const char* name) {
  (void)name;
  usleep(50000);
  sync_often(fd, kHot);
}

static void map_it(int fd, const char* name) {
  (void)name;
  char* page = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(page != MAP_FAILED);
  page[0] = 'm';
  CHECK(munmap(page, 8) == 0);
}

static void open_again(int fd, const char* name) {
  (void)fd;
  char byte;
  const int other = open(name, O_RDONLY);  // stays: the kernel ends the lock when it is closed
  CHECK(other >= 0 && pread(other, &byte, 1, 0) == 1);
}

static void fork_it(int fd, const char* name) {
  (void)name;
  const pid_t child = fork();
  if (child == 0) _exit(pwrite(fd, "f", 1, 3) == 1 && fsync(fd) == 0 ? 0 : 1);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void run_another(int fd, const char* name) {
  (void)fd, (void)name;
  CHECK(system("exit 0") == 0);
}

static void share_it(int fd, const char* name) {
  const pid_t sharer = start_sharer(name);
  sync_often(fd, kHot);
  kill(sharer, SIGKILL);
  waitpid(sharer, NULL, 0);
  sync_often(fd, kTriesAgain);
}

static void rename_it(int fd, const char* name) {
  char other[64];
  snprintf(other, sizeof(other), "%s.", name);
  CHECK(rename(name, other) == 0 && rename(other, name) == 0);
  sync_often(fd, kHot);
}

// The library gives up what it has.
static void fill_numbers(int fd, const char* name) {
  (void)fd, (void)name;
  struct rlimit before, limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
  limit = before;
  limit.rlim_cur = 60;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  int made[64], count = 0;
  while (count < 64 && (made[count] = open("/dev/null", O_RDONLY)) >= 0) ++count;
  while (count > 0) close(made[--count]);
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static const struct {
  const char* name;
  void (*happen)(int fd, const char* name);
} kSteps[] = {
    {"idle", do_nothing},     {"mapped", map_it},   {"opened again", open_again},
    {"renamed", rename_it},   {"forked", fork_it},  {"run", run_another},
    {"filled", fill_numbers}, {"shared", share_it},
};

// By calls that the library does not see: a file that it sees made is write-through at once.
static int make(const char* name) {
  const long fd = by_hand(SYS_open, (long)name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  CHECK(fd >= 0 && by_hand(SYS_write, fd, (long)"some bytes", 10) == 10);
  CHECK(by_hand(SYS_close, fd, 0, 0) == 0);
  return open(name, O_RDWR);
}

static void try(const char* state, size_t step, int before, int after, int shared) {
  char name[64];
  snprintf(name, sizeof(name), "%s %zu", state, step);
  const int fd = make(name);
  CHECK(fd >= 0);
  const pid_t sharer = shared ? start_sharer(name) : -1;
  sync_often(fd, before);
  take(fd);
  probe("taken", name);
  sync_often(fd, after);
  probe("synced", name);
  kSteps[step].happen(fd, name);
  probe(kSteps[step].name, name);
  sync_often(fd, kHot);
  probe("and synced", name);
  if (sharer > 0) kill(sharer, SIGKILL), waitpid(sharer, NULL, 0);
  close(fd);
  probe("closed", name);
}

int main(int argc, char** argv) {
  enter(argc, argv);
  start_looker();
  // One process alone has files in its cache, until there is another one.
  for (size_t step = 0; step < COUNT(kSteps); ++step) {
    try("kernel", step, 0, 0, 0);
    try("to be hot", step, 0, kHot, 0);
    try("hot", step, kHot, kHot, 0);
  }
  for (size_t step = 0; step < COUNT(kSteps); ++step) try("shared", step, 0, kHot, 1);
  try("tried again", 0, 0, kTriesAgain, 1);
  return 0;
}
