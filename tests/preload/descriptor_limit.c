// SPDX-License-Identifier: BSD-3-Clause
//
// A program with a limit of 64 descriptors, which syncs some files again and again, and then makes
// as many descriptors as it can, of each kind: with the library as many as without. Prints how many
// that are, and what is in the files afterwards.
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "libc.h"
#include "tests/kit/program.h"

#ifdef __GLIBC__
#include <sys/pidfd.h>
#endif

enum { kLimit = 64, kHot = 6, kSize = 3000 };

static int g_hot[kHot], g_pair[2], g_listener = -1, g_made;
static char g_bytes[kSize], g_back[kSize];
static sigset_t g_signals;

// A file that is synced twice is worth a descriptor more to the library, which closes it when the
// program does.
static int heat(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  for (int i = 0; i < 2; ++i) CHECK(pwrite(fd, g_bytes, kSize, 0) == kSize && fsync(fd) == 0);
  CHECK(pwrite(fd, "x", 1, 5) == 1);
  return fd;
}

static const char* new_name(void) {
  static char name[32];
  snprintf(name, sizeof(name), "made%d", g_made);
  return name;
}

static int descriptor_of(FILE* stream) { return stream == NULL ? -1 : fileno(stream); }

// ---------------------------------------------------------------------------------------------

static int by_open(void) { return open(new_name(), O_RDWR | O_CREAT, 0644); }
static int by_hot_open(void) { return heat(new_name()); }
static int by_mkstemp(void) {
  char name[] = "temporaryXXXXXX";
  const int fd = mkstemp(name);
  if (fd >= 0) unlink(name);
  return fd;
}
static int by_mkostemps(void) {
  char name[] = "temporaryXXXXXX.c";
  const int fd = mkostemps(name, 2, O_CLOEXEC);
  if (fd >= 0) unlink(name);
  return fd;
}
static int by_opendir(void) {
  DIR* folder = opendir(".");
  return folder == NULL ? -1 : dirfd(folder);
}
static int by_shm_open(void) {
  const int fd = shm_open("/nvcache-test-descriptors", O_RDWR | O_CREAT, 0600);
  if (fd >= 0) shm_unlink("/nvcache-test-descriptors");
  return fd;
}
static int by_socketpair(void) {
  int ends[2];
  return socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
}
static int by_pipe(void) {
  int ends[2];
  return pipe(ends);
}
static int by_pipe2(void) {
  int ends[2];
  return pipe2(ends, O_CLOEXEC);
}

#define MAKERS(MAKER)                                                                        \
  MAKER(open, by_open())                                                                     \
  MAKER(hot_open, by_hot_open())                                                             \
  MAKER(openat, openat(AT_FDCWD, "hot0", O_RDONLY))                                          \
  MAKER(creat, creat(new_name(), 0644))                                                      \
  MAKER(mkstemp, by_mkstemp())                                                               \
  MAKER(mkostemps, by_mkostemps())                                                           \
  MAKER(fopen, descriptor_of(fopen("hot1", "r")))                                            \
  MAKER(tmpfile, descriptor_of(tmpfile()))                                                   \
  MAKER(popen, descriptor_of(popen("exit 0", "r")))                                          \
  MAKER(opendir, by_opendir())                                                               \
  MAKER(shm_open, by_shm_open())                                                             \
  MAKER(dup, dup(g_hot[0]))                                                                  \
  MAKER(dup_of_a_pipe, dup(g_pair[0]))                                                       \
  MAKER(fcntl, fcntl(g_hot[1], F_DUPFD_CLOEXEC, 20))                                         \
  MAKER(socket, socket(AF_UNIX, SOCK_STREAM, 0))                                             \
  MAKER(socketpair, by_socketpair())                                                         \
  MAKER(accept, accept(g_listener, NULL, NULL))                                              \
  MAKER(accept4, accept4(g_listener, NULL, NULL, SOCK_CLOEXEC))                              \
  MAKER(pipe, by_pipe())                                                                     \
  MAKER(pipe2, by_pipe2())                                                                   \
  MAKER(epoll_create, epoll_create(1))                                                       \
  MAKER(epoll_create1, epoll_create1(0))                                                     \
  MAKER(eventfd, eventfd(0, 0))                                                              \
  MAKER(timerfd, timerfd_create(CLOCK_MONOTONIC, 0))                                         \
  MAKER(signalfd, signalfd(-1, &g_signals, 0))                                               \
  MAKER(inotify_init, inotify_init())                                                        \
  MAKER(inotify_init1, inotify_init1(0))                                                     \
  MAKER(memfd, memfd_create("name", 0))                                                      \
  MAKER(pidfd, pidfd_open(getpid(), 0))                                                      \
  MAKER(openat_by_number, (int)syscall(SYS_openat, AT_FDCWD, "hot0", O_RDONLY))              \
  MAKER(dup_by_number, (int)syscall(SYS_dup, g_hot[0]))                                      \
  MAKER(socket_by_number, (int)syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0))                 \
  MAKER(socketpair_by_number, (int)syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, g_pair)) \
  MAKER(accept_by_number, (int)syscall(SYS_accept, g_listener, NULL, NULL))                  \
  MAKER(accept4_by_number, (int)syscall(SYS_accept4, g_listener, NULL, NULL, 0))             \
  MAKER(pipe_by_number, (int)syscall(SYS_pipe, g_pair))                                      \
  MAKER(pipe2_by_number, (int)syscall(SYS_pipe2, g_pair, 0))                                 \
  MAKER(epoll_create_by_number, (int)syscall(SYS_epoll_create, 1))                           \
  MAKER(epoll_create1_by_number, (int)syscall(SYS_epoll_create1, 0))                         \
  MAKER(eventfd_by_number, (int)syscall(SYS_eventfd, 0))                                     \
  MAKER(eventfd2_by_number, (int)syscall(SYS_eventfd2, 0, 0))                                \
  MAKER(timerfd_create_by_number, (int)syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0))      \
  MAKER(signalfd_by_number, (int)syscall(SYS_signalfd, -1, &g_signals, 8))                   \
  MAKER(signalfd4_by_number, (int)syscall(SYS_signalfd4, -1, &g_signals, 8, 0))              \
  MAKER(inotify_init_by_number, (int)syscall(SYS_inotify_init, 0))                           \
  MAKER(inotify_init1_by_number, (int)syscall(SYS_inotify_init1, 0))                         \
  MAKER(memfd_create_by_number, (int)syscall(SYS_memfd_create, "name", 0))                   \
  MAKER(memfd_secret_by_number, (int)syscall(SYS_memfd_secret, 0))                           \
  MAKER(pidfd_open_by_number, (int)syscall(SYS_pidfd_open, getpid(), 0))                     \
  MAKER(userfaultfd_by_number, (int)syscall(SYS_userfaultfd, 0))

#define FUNCTION(name, ...) \
  static int make_##name(void) { return __VA_ARGS__; }
MAKERS(FUNCTION)

typedef int Maker(void);
#define ROW(name, ...) {#name, make_##name},
static const struct {
  const char* name;
  Maker* make;
} kMakers[] = {MAKERS(ROW)};
enum { kMakerCount = COUNT(kMakers) };

// ---------------------------------------------------------------------------------------------

static void set_limit(int hard_too) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = kLimit;
  if (hard_too) limit.rlim_max = kLimit;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

// So many clients wait to be accepted. They are another process's.
static pid_t begin_to_listen(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
  unlink(address.sun_path);
  g_listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(g_listener, (struct sockaddr*)&address, sizeof(address)) == 0);
  CHECK(listen(g_listener, 2 * kLimit) == 0);
  const pid_t child = fork();
  if (child != 0) return child;
  for (int i = 0; i < kLimit; ++i) {
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(client, (struct sockaddr*)&address, sizeof(address)) == 0);
  }
  pause();
  _exit(0);
}

static void make_all(const char* name, Maker* make) {
  errno = 0;
  while (make() >= 0) ++g_made;
  printf("%s: %d, errno %d\n", name, g_made, errno);
}

static void use_hot_files(int syncs) {
  for (int i = 0; i < kHot; ++i) {
    CHECK(pwrite(g_hot[i], "y", 1, 10 + i) == 1);
    for (int k = 0; k < syncs; ++k) CHECK(fsync(g_hot[i]) == 0);
    CHECK(pread(g_hot[i], g_back, kSize, 0) == kSize && g_back[10 + i] == 'y' && g_back[5] == 'x');
  }
}

static void show_hot_files(void) {
  for (int i = 0; i < kHot; ++i) {
    char name[16];
    snprintf(name, sizeof(name), "hot%d", i);
    const int fd = open(name, O_RDONLY);
    memcpy(g_back, g_bytes, kSize);
    g_back[5] = 'x';
    g_back[10 + i] = 'y';
    char found[kSize];
    const int same = read(fd, found, kSize) == kSize && memcmp(found, g_back, kSize) == 0;
    if (!same) printf("%s: WRONG\n", name);
    close(fd);
  }
}

static void prepare(void) {
  for (int i = 0; i < kHot; ++i) {
    char name[16];
    snprintf(name, sizeof(name), "hot%d", i);
    g_hot[i] = heat(name);
    CHECK(g_hot[i] >= 0);
  }
}

static void finish(void) {
  use_hot_files(0);
  closefrom(3);
  show_hot_files();
}

static void run_maker(const char* name, Maker* make) {
  pid_t clients = -1;
  CHECK(pipe(g_pair) == 0);
  if (strncmp(name, "accept", 6) == 0) clients = begin_to_listen();
  set_limit(0);
  prepare();
  make_all(name, make);
  finish();
  if (clients > 0) kill(clients, SIGKILL);
  unlink("socket");
}

// Every number is wanted, also when there is no room to move what has it.
static void want_numbers(void) {
  for (int fd = g_hot[kHot - 1] + 1; fd < kLimit; ++fd) {
    if (dup2(0, fd) != fd) printf("dup2 to %d: errno %d\n", fd, errno);
  }
}

static void want_numbers_of_hot_files(void) {
  set_limit(0);
  prepare();
  want_numbers();
  printf("all numbers are had\n");
  finish();
}

// The library has a descriptor for all files that several processes sync.
static void want_numbers_of_shared_files(void) {
  int said[2];
  CHECK(pipe(said) == 0);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = heat("shared");
    CHECK(fd >= 0);
    tell(said);
    pause();
  }
  hear(said);
  set_limit(0);
  prepare();
  heat("shared");
  want_numbers();  // that of the file is among them
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(kLimit - 1);
  const int again = open("shared", O_RDONLY);
  const ssize_t length = read(again, g_back, kSize);
  printf("shared: %zd bytes, %c\n", length, g_back[5]);
  finish();
}

// The child has a copy of what its parent has, and of what the library has.
static void fill_in_child(void) {
  set_limit(0);
  prepare();
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    make_all("open in a child", by_open);
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  finish();
}

// Where the hard limit lets nothing be beyond the soft one, the library has one, for all files.
static void fill_hard_limit(void) {
  set_limit(1);
  prepare();
  int free = 0;
  for (int fd = 0; fd < kLimit; ++fd) free += fcntl(fd, F_GETFD) < 0;
  while (by_hot_open() >= 0) ++g_made;
  printf("open up to the hard limit: errno %d%s\n", errno, g_made >= free - 1 ? "" : ", TOO FEW");
  finish();
}

// What is free again is used again, and given up once more.
static void come_and_go(void) {
  set_limit(0);
  prepare();
  for (int round = 0; round < 2; ++round) {
    const int first = g_made;
    int made[kLimit], count = 0;
    while ((made[count] = by_hot_open()) >= 0) ++count, ++g_made;
    use_hot_files(2);
    for (int i = 0; i < count; ++i) close(made[i]);
    printf("round %d: %d\n", round, g_made - first);
    use_hot_files(2);
  }
  finish();
}

static void (*const kOthers[])(void) = {want_numbers_of_hot_files, fill_in_child, fill_hard_limit,
                                        come_and_go, want_numbers_of_shared_files};
enum { kCaseCount = kMakerCount + COUNT(kOthers) };

static void run_case(int number) {
  sigemptyset(&g_signals);
  sigaddset(&g_signals, SIGUSR2);
  if (number < kMakerCount) {
    run_maker(kMakers[number].name, kMakers[number].make);
  } else if (number < kCaseCount) {
    kOthers[number - kMakerCount]();
  }
}

int main(int argc, char** argv) {
  fill_letters(g_bytes, kSize);
  if (argc == 2) {
    run_case(atoi(argv[1]));
    return 0;
  }
  char* const self = own_path();
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  for (int number = 0; number < kCaseCount; ++number) {
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    char* const arguments[] = {self, text, NULL};
    pid_t child;
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    const int status = status_of(child);
    if (status != 0) printf("case %d: status %x\n", number, status);
  }
  return 0;
}
