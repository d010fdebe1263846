// SPDX-License-Identifier: BSD-3-Clause
//
// A program with a limit of 64 descriptors, which syncs some files again and again, and then makes
// as many descriptors as it can, of each kind: with the library as many as without. Prints how many
// that are, and what is in the files afterwards.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libc.h"

#ifdef __GLIBC__
#include <sys/pidfd.h>
#endif

enum { kLimit = 64, kHot = 6, kSize = 3000 };

static int g_hot[kHot], g_pair[2], g_listener = -1, g_made;
static char g_bytes[kSize], g_back[kSize];
static sigset_t g_signals;

static void fail(const char* what) {
  printf("%s: errno %d\n", what, errno);
  exit(1);
}

// A file that is synced twice is worth a descriptor more to the library, which closes it when the
// program does.
static int heat(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  for (int i = 0; i < 2; ++i) {
    if (pwrite(fd, g_bytes, kSize, 0) != kSize || fsync(fd) != 0) fail(name);
  }
  if (pwrite(fd, "x", 1, 5) != 1) fail(name);
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
static int by_openat(void) { return openat(AT_FDCWD, "hot0", O_RDONLY); }
static int by_creat(void) { return creat(new_name(), 0644); }
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
static int by_fopen(void) { return descriptor_of(fopen("hot1", "r")); }
static int by_tmpfile(void) { return descriptor_of(tmpfile()); }
static int by_popen(void) { return descriptor_of(popen("exit 0", "r")); }
static int by_opendir(void) {
  DIR* folder = opendir(".");
  return folder == NULL ? -1 : dirfd(folder);
}
static int by_shm_open(void) {
  const int fd = shm_open("/nvcache-test-descriptors", O_RDWR | O_CREAT, 0600);
  if (fd >= 0) shm_unlink("/nvcache-test-descriptors");
  return fd;
}
static int by_dup(void) { return dup(g_hot[0]); }
static int by_dup_of_a_pipe(void) { return dup(g_pair[0]); }
static int by_fcntl(void) { return fcntl(g_hot[1], F_DUPFD_CLOEXEC, 20); }
static int by_socket(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static int by_socketpair(void) {
  int ends[2];
  return socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
}
static int by_accept(void) { return accept(g_listener, NULL, NULL); }
static int by_accept4(void) { return accept4(g_listener, NULL, NULL, SOCK_CLOEXEC); }
static int by_pipe(void) {
  int ends[2];
  return pipe(ends);
}
static int by_pipe2(void) {
  int ends[2];
  return pipe2(ends, O_CLOEXEC);
}
static int by_epoll_create(void) { return epoll_create(1); }
static int by_epoll_create1(void) { return epoll_create1(0); }
static int by_eventfd(void) { return eventfd(0, 0); }
static int by_timerfd(void) { return timerfd_create(CLOCK_MONOTONIC, 0); }
static int by_signalfd(void) { return signalfd(-1, &g_signals, 0); }
static int by_inotify_init(void) { return inotify_init(); }
static int by_inotify_init1(void) { return inotify_init1(0); }
static int by_memfd(void) { return memfd_create("name", 0); }
static int by_pidfd(void) { return pidfd_open(getpid(), 0); }

#define BY_NUMBER(name, ...) \
  static int number_##name(void) { return (int)syscall(__VA_ARGS__); }
BY_NUMBER(openat, SYS_openat, AT_FDCWD, "hot0", O_RDONLY)
BY_NUMBER(dup, SYS_dup, g_hot[0])
BY_NUMBER(socket, SYS_socket, AF_UNIX, SOCK_STREAM, 0)
BY_NUMBER(socketpair, SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, g_pair)
BY_NUMBER(accept, SYS_accept, g_listener, NULL, NULL)
BY_NUMBER(accept4, SYS_accept4, g_listener, NULL, NULL, 0)
BY_NUMBER(pipe, SYS_pipe, g_pair)
BY_NUMBER(pipe2, SYS_pipe2, g_pair, 0)
BY_NUMBER(epoll_create, SYS_epoll_create, 1)
BY_NUMBER(epoll_create1, SYS_epoll_create1, 0)
BY_NUMBER(eventfd, SYS_eventfd, 0)
BY_NUMBER(eventfd2, SYS_eventfd2, 0, 0)
BY_NUMBER(timerfd_create, SYS_timerfd_create, CLOCK_MONOTONIC, 0)
BY_NUMBER(signalfd, SYS_signalfd, -1, &g_signals, 8)
BY_NUMBER(signalfd4, SYS_signalfd4, -1, &g_signals, 8, 0)
BY_NUMBER(inotify_init, SYS_inotify_init, 0)
BY_NUMBER(inotify_init1, SYS_inotify_init1, 0)
BY_NUMBER(memfd_create, SYS_memfd_create, "name", 0)
BY_NUMBER(memfd_secret, SYS_memfd_secret, 0)
BY_NUMBER(pidfd_open, SYS_pidfd_open, getpid(), 0)
BY_NUMBER(userfaultfd, SYS_userfaultfd, 0)

typedef int Maker(void);
static const struct {
  const char* name;
  Maker* make;
} kMakers[] = {
#define BY(name) {#name, by_##name},
    BY(open) BY(hot_open) BY(openat) BY(creat) BY(mkstemp) BY(mkostemps) BY(fopen) BY(tmpfile)
        BY(popen) BY(opendir) BY(shm_open) BY(dup) BY(dup_of_a_pipe) BY(fcntl) BY(socket)
            BY(socketpair) BY(accept) BY(accept4) BY(pipe) BY(pipe2) BY(epoll_create)
                BY(epoll_create1) BY(eventfd) BY(timerfd) BY(signalfd) BY(inotify_init)
                    BY(inotify_init1) BY(memfd) BY(pidfd)
#define NUMBER(name) {#name " by number", number_##name},
                        NUMBER(openat) NUMBER(dup) NUMBER(socket) NUMBER(socketpair) NUMBER(accept)
                            NUMBER(accept4) NUMBER(pipe) NUMBER(pipe2) NUMBER(epoll_create)
                                NUMBER(epoll_create1) NUMBER(eventfd) NUMBER(eventfd2)
                                    NUMBER(timerfd_create) NUMBER(signalfd) NUMBER(signalfd4)
                                        NUMBER(inotify_init) NUMBER(inotify_init1)
                                            NUMBER(memfd_create) NUMBER(memfd_secret)
                                                NUMBER(pidfd_open) NUMBER(userfaultfd)};
enum { kMakerCount = sizeof(kMakers) / sizeof(kMakers[0]) };

// ---------------------------------------------------------------------------------------------

static void set_limit(int hard_too) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) fail("getrlimit");
  limit.rlim_cur = kLimit;
  if (hard_too) limit.rlim_max = kLimit;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail("setrlimit");
}

// So many clients wait to be accepted. They are another process's.
static pid_t begin_to_listen(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
  unlink(address.sun_path);
  g_listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(g_listener, (struct sockaddr*)&address, sizeof(address)) != 0) fail("bind");
  if (listen(g_listener, 2 * kLimit) != 0) fail("listen");
  const pid_t child = fork();
  if (child != 0) return child;
  for (int i = 0; i < kLimit; ++i) {
    const int client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(client, (struct sockaddr*)&address, sizeof(address)) != 0) fail("connect");
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
    if (pwrite(g_hot[i], "y", 1, 10 + i) != 1) fail("hot file");
    for (int k = 0; k < syncs; ++k) {
      if (fsync(g_hot[i]) != 0) fail("fsync of a hot file");
    }
    if (pread(g_hot[i], g_back, kSize, 0) != kSize || g_back[10 + i] != 'y' || g_back[5] != 'x') {
      fail("bytes");
    }
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
    if (g_hot[i] < 0) fail(name);
  }
}

static void finish(void) {
  use_hot_files(0);
  closefrom(3);
  show_hot_files();
}

static void run_maker(const char* name, Maker* make) {
  pid_t clients = -1;
  if (pipe(g_pair) != 0) fail("pipe");
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
  if (pipe(said) != 0) fail("pipe");
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = heat("shared");
    if (fd < 0 || write(said[1], "", 1) != 1) fail("child");
    pause();
  }
  char byte;
  if (read(said[0], &byte, 1) != 1) fail("read");
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

static void run_case(int number) {
  sigemptyset(&g_signals);
  sigaddset(&g_signals, SIGUSR2);
  if (number < kMakerCount) {
    run_maker(kMakers[number].name, kMakers[number].make);
    return;
  }
  switch (number - kMakerCount) {
    case 0:
      return want_numbers_of_hot_files();
    case 1:
      return fill_in_child();
    case 2:
      return fill_hard_limit();
    case 3:
      return come_and_go();
    case 4:
      return want_numbers_of_shared_files();
    default:
      exit(2);
  }
}

int main(int argc, char** argv) {
  for (int i = 0; i < kSize; ++i) g_bytes[i] = (char)('a' + i % 23);
  if (argc == 2) {
    run_case(atoi(argv[1]));
    return 0;
  }
  if (argc != 3) return 2;
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length < 0 || chdir(argv[1]) != 0) return 2;
  self[length] = '\0';
  for (int number = 0; number < kMakerCount + 5; ++number) {
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    char* const arguments[] = {self, text, NULL};
    extern char** environ;
    pid_t child;
    int status;
    if (posix_spawn(&child, self, NULL, NULL, arguments, environ) != 0) return 3;
    if (waitpid(child, &status, 0) != child || status != 0) {
      printf("case %d: status %x\n", number, status);
    }
  }
  return 0;
}
