// SPDX-License-Identifier: BSD-3-Clause
//
// Children of vfork: what they do to their descriptors, signals and files, what becomes of them,
// and what their parent has afterwards. Programs that they start know nothing of NVCache.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libc.h"

enum { kSize = 5000, kRounds = 100, kThreads = 3 };

static char* const no_environment[] = {NULL};
static char bytes[kSize];

static void fail(const char* what) {
  printf("%s: wrong, errno %d\n", what, errno);
  exit(9);
}
#define WANT(condition) \
  if (!(condition)) fail(#condition)

static int made(const char* name, int flags) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
  if (fd < 0 || write(fd, bytes, kSize) != kSize) fail(name);
  return fd;
}

static void sync_twice(int fd) { WANT(fsync(fd) == 0 && fsync(fd) == 0); }

static void show_status(const char* name, pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) fail(name);
  printf("%s: status %x\n", name, (unsigned)status);
}

static void show_file(const char* name) {
  char found[2 * kSize];
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  const ssize_t n = read(fd, found, sizeof(found));
  if (n < 0 || close(fd) != 0) fail(name);
  unsigned sum = 0;
  for (ssize_t i = 0; i < n; ++i) sum = sum * 31 + (unsigned char)found[i];
  printf("%s: %zd bytes, %u, %.*s\n", name, n, sum, n < 40 ? (int)n : 0, found);
}

// Runs a shell in place of the child.
static void run(const char* script) {
  char* const arguments[] = {"sh", "-c", (char*)script, NULL};
  execve("/bin/sh", arguments, no_environment);
  _exit(127);
}

// ---------------------------------------------------------------------------------------------

static volatile int shared;

static void __attribute__((noinline)) write_over_stack(void) {
  volatile char stack[20000];
  for (size_t i = 0; i < sizeof(stack); ++i) stack[i] = 'x';
}

static void memory(void) {
  volatile int before = 5;
  const pid_t child = vfork();
  if (child == 0) {
    usleep(20000);
    write_over_stack();
    shared = 7;
    _exit(3);
  }
#ifdef __GLIBC__
  // Nothing is cached yet: the parent has waited, and has one memory with its child.
  printf("shared %d\n", shared);
#endif
  printf("before %d\n", before);
  show_status("memory", child);
  errno = 0;
  const pid_t none = vfork();
  if (none == 0) {
    execve("no such program", no_environment, no_environment);
    _exit(errno == ENOENT ? 4 : 5);
  }
  show_status("no program", none);
}

// The child's descriptors are its own.
static void descriptors(int flags) {
  const int a = made("a", flags), b = made("b", flags), c = made("c", flags | O_APPEND);
  const pid_t child = vfork();
  if (child == 0) {
    int ends[2];
    char byte = 0;
    close(a);
    if (open("of the child", O_RDWR | O_CREAT | O_TRUNC, 0644) != a) _exit(10);
    if (write(a, "from the child", 14) != 14 || pread(a, &byte, 1, 0) != 1) _exit(11);
    if (byte != 'f' || fsync(a) != 0 || ftruncate(a, 4) != 0) _exit(12);
    if (pipe(ends) != 0 || dup2(ends[1], b) != b || write(b, "x", 1) != 1) _exit(13);
    if (read(ends[0], &byte, 1) != 1 || byte != 'x') _exit(14);
    if (write(c, "appended", 8) != 8) _exit(15);
    if (dup2(c, 200) != 200 || write(200, "twice", 5) != 5) _exit(16);
    if (fcntl(b, F_SETFD, FD_CLOEXEC) != 0 || close(b) != 0) _exit(17);
    if (rename("of the child", "renamed") != 0 || chmod("renamed", 0600) != 0) _exit(18);
    _exit(0);
  }
  show_status("descriptors", child);
  struct stat st;
  WANT(fstat(a, &st) == 0 && st.st_size == kSize);
  WANT(pwrite(a, "A", 1, 0) == 1 && pwrite(b, "B", 1, 1) == 1 && write(c, "end", 3) == 3);
  WANT(lseek(a, 0, SEEK_CUR) == kSize && lseek(b, 0, SEEK_CUR) == kSize);
  WANT(fcntl(200, F_GETFD) < 0 && errno == EBADF);
  sync_twice(a);
  sync_twice(b);
  sync_twice(c);
  WANT(pwrite(a, "a", 1, 1) == 1 && pwrite(b, "b", 1, 2) == 1 && write(c, "last", 4) == 4);
  show_file("a");
  show_file("b");
  show_file("c");
  show_file("renamed");
  WANT(close(a) == 0 && close(b) == 0 && close(c) == 0 && close(a) < 0);
}

static void all_closed(void) {
  const int a = made("all", O_CLOEXEC);
  const pid_t child = vfork();
  if (child == 0) {
    if (close_range(3, ~0u, 0) != 0) _exit(10);
    if (open("after all", O_WRONLY | O_CREAT, 0644) != 3 || write(3, "x", 1) != 1) _exit(11);
    _exit(0);
  }
  show_status("all closed", child);
  WANT(pwrite(a, "x", 1, 0) == 1 && close(a) == 0);
  show_file("all");
  show_file("after all");
}

// ---------------------------------------------------------------------------------------------
// A program that knows nothing of us gets a descriptor, and writes when the parent has synced the
// file twice.

enum inheritance { kOpen, kCopied, kMadeOpen, kClosedLater, kOtherClosed, kOpenedByChild };

struct starting {
  const char* name;
  enum inheritance how;
  int fd, copy, go[2], done[2];
};

// The child.
static void __attribute__((noinline, noreturn)) start(const struct starting* s) {
  int out = s->how == kOtherClosed ? s->copy : s->fd;
  if (s->how == kOpenedByChild) out = open(s->name, O_WRONLY | O_APPEND);
  if (s->how == kMadeOpen && fcntl(out, F_SETFD, 0) != 0) _exit(10);
  if (s->how == kCopied || s->how == kOpenedByChild) {
    if (dup2(out, 9) != 9) _exit(11);
    out = 9;
  }
  if (out != 9 && dup2(s->go[0], 9) != 9) _exit(12);  // something else is there
  char script[100];
  dup2(s->go[0], 0);
  dup2(s->done[1], 1);
  close(s->go[1]);
  close(s->done[0]);
  snprintf(script, sizeof(script), "read x; echo of the program >&%d; echo; read x", out);
  run(script);
  _exit(13);
}

static void program(const char* name, enum inheritance how) {
  const int cloexec = how == kCopied || how == kMadeOpen || how == kOtherClosed ? O_CLOEXEC : 0;
  struct starting s = {.name = name, .how = how};
  WANT(pipe(s.go) == 0 && pipe(s.done) == 0);
  s.fd = made(name, cloexec | O_APPEND);
  s.copy = how == kOtherClosed ? dup(s.fd) : -1;
  const pid_t child = vfork();
  if (child == 0) start(&s);
  WANT(child > 0 && close(s.go[0]) == 0 && close(s.done[1]) == 0);
  if (how == kClosedLater) WANT(fcntl(s.fd, F_SETFD, FD_CLOEXEC) == 0);
  if (how == kOtherClosed) WANT(close(s.copy) == 0);
  char found[3 * kSize];
  for (int i = 0; i < 2; ++i) {
    WANT(write(s.fd, "parent", 6) == 6);
    sync_twice(s.fd);
    WANT(pread(s.fd, found, sizeof(found), 0) > kSize);
  }
  WANT(write(s.go[1], "\n", 1) == 1 && read(s.done[0], found, 1) == 1);
  const ssize_t n = pread(s.fd, found, sizeof(found), 0);
  WANT(n == kSize + 12 + 15 && memcmp(found + n - 15, "of the program\n", 15) == 0);
  WANT(write(s.fd, "more", 4) == 4 && close(s.go[1]) == 0 && close(s.done[0]) == 0);
  show_status(name, child);
  WANT(close(s.fd) == 0);
  show_file(name);
}

static void programs(void) {
  program("open", kOpen);
  program("copied", kCopied);
  program("made open", kMadeOpen);
  program("closed later", kClosedLater);
  program("other closed", kOtherClosed);
  program("opened by child", kOpenedByChild);
}

// ---------------------------------------------------------------------------------------------

static volatile int handled, reset;

static void on_signal(int signal) {
  const int fd = open("handler", O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0 || write(fd, "h", 1) != 1 || close(fd) != 0) _exit(20);
  signal == SIGUSR1 ? ++handled : ++reset;
}

static void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {.sa_flags = flags};
  action.sa_handler = handler;
  WANT(sigaction(signal, &action, NULL) == 0);
}

static void signals(void) {
  handle(SIGUSR1, on_signal, SA_RESTART);
  handle(SIGUSR2, on_signal, (int)SA_RESETHAND);
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, SIGTERM);
  WANT(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
  const pid_t child = vfork();
  if (child == 0) {
    struct sigaction action;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    if (sigismember(&mask, SIGTERM) != 1 || sigismember(&mask, SIGUSR1) != 0) _exit(10);
    if (sigaction(SIGUSR1, NULL, &action) != 0 || action.sa_handler != on_signal) _exit(11);
    raise(SIGUSR1);
    raise(SIGUSR2);
    if (sigaction(SIGUSR2, NULL, &action) != 0 || action.sa_handler != SIG_DFL) _exit(12);
    if (signal(SIGUSR1, SIG_DFL) != on_signal || signal(SIGSEGV, SIG_DFL) != SIG_DFL) _exit(13);
    action.sa_handler = on_signal;
    action.sa_flags = 0;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGHUP, &action, NULL) != 0 || signal(SIGHUP, SIG_IGN) != on_signal) _exit(14);
    sigfillset(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    kill(getppid(), SIGUSR1);
    _exit(0);
  }
  show_status("signals", child);
  struct sigaction action;
  WANT(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == on_signal);
  WANT(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == on_signal);
  WANT(sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
  WANT(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGTERM) == 1);
  WANT(sigismember(&mask, SIGUSR1) == 0 && sigismember(&mask, SIGHUP) == 0);
  raise(SIGUSR1);
  raise(SIGUSR2);
#ifdef __GLIBC__
  printf("handled %d, reset %d\n", handled, reset);
#endif
  show_file("handler");
}

// ---------------------------------------------------------------------------------------------
// Somebody kills the child, whatever it is doing.

static volatile pid_t victim;
static volatile int over;

static void* killer(void* unused) {
  unsigned wait = 1;
  while (!over) {
    const pid_t pid = victim;
    if (pid != 0) {
      wait = wait * 1103515245u + 12345u;
      usleep((wait >> 16) % 300);
      kill(pid, SIGKILL);
      while (victim == pid && !over) usleep(10);
    }
  }
  return unused;
}

static void killed(void) {
  pthread_t thread;
  handle(SIGUSR1, on_signal, SA_RESTART);
  const int fd = made("killed", O_CLOEXEC);
  WANT(pthread_create(&thread, NULL, killer, NULL) == 0);
  for (int i = 0; i < kRounds; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      victim = getpid();
      for (;;) {
        struct stat st;
        const int other = open("killed", O_WRONLY | O_TRUNC);
        write(other, "child", 5);
        stat("killed", &st);
        rename("no such file", "killed");
        raise(SIGUSR1);
        close(other);
      }
    }
    victim = child;  // a copy has its own
    int status;
    WANT(waitpid(child, &status, 0) == child);
    if (status != SIGKILL) printf("the child's status: %x\n", (unsigned)status);
    victim = 0;
    const int now = handled;
    raise(SIGUSR1);
    WANT(handled == now + 1);
    WANT(pwrite(fd, bytes, kSize, 0) == kSize && ftruncate(fd, kSize) == 0);
    if (i % 10 == 0) sync_twice(fd);
  }
  over = 1;
  WANT(pthread_join(thread, NULL) == 0 && close(fd) == 0 && unlink("handler") == 0);
  show_file("killed");
}

// ---------------------------------------------------------------------------------------------

static void* work(void* argument) {
  const int number = (int)(size_t)argument;
  char name[30], other[30];
  snprintf(name, sizeof(name), "thread %d", number);
  snprintf(other, sizeof(other), "moved %d", number);
  for (int i = 0; !over; ++i) {
    char found[kSize];
    const int fd = made(name, O_CLOEXEC);
    if (i % 3 == 0) sync_twice(fd);
    WANT(pwrite(fd, &number, sizeof(number), 100) == sizeof(number));
    WANT(pread(fd, found, kSize, 0) == kSize && memcmp(found, bytes, 100) == 0);
    WANT(memcmp(found + 100, &number, sizeof(number)) == 0);
    WANT(close(fd) == 0 && rename(name, other) == 0);
  }
  return NULL;
}

static void threads(void) {
  pthread_t thread[kThreads];
  over = 0;
  for (size_t i = 0; i < kThreads; ++i) WANT(pthread_create(&thread[i], NULL, work, (void*)i) == 0);
  const int fd = made("log", O_CLOEXEC | O_APPEND);
  for (int i = 0; i < kRounds; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      const int out = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
      dup2(out, 1);
      if (i % 10 == 0) run("echo of the program");
      if (write(1, "child", 5) != 5) _exit(1);
      _exit(0);
    }
    int status;
    WANT(waitpid(child, &status, 0) == child && status == 0);
    WANT(write(fd, "parent", 6) == 6);
  }
  over = 1;
  for (size_t i = 0; i < kThreads; ++i) WANT(pthread_join(thread[i], NULL) == 0);
  WANT(close(fd) == 0);
  show_file("log");
}

// ---------------------------------------------------------------------------------------------
// A child that makes children.

static void nested(void) {
  const int fd = made("nested", O_CLOEXEC | O_APPEND);
  const pid_t child = vfork();
  if (child == 0) {
    int status;
    const pid_t second = vfork();
    if (second == 0) {
      if (write(fd, "second", 6) != 6) _exit(30);
      const pid_t third = vfork();
      if (third == 0) run("exit 5");
      if (waitpid(third, &status, 0) != third || status != 5 << 8) _exit(31);
      _exit(4);
    }
    if (waitpid(second, &status, 0) != second || status != 4 << 8) _exit(10);
    const pid_t forked = fork();
    if (forked == 0) {
      const int other = open("of the fork", O_RDWR | O_CREAT | O_TRUNC, 0644);
      if (write(other, "forked", 6) != 6 || write(fd, "forked", 6) != 6) _exit(32);
      if (fsync(other) != 0 || fsync(other) != 0 || write(other, "more", 4) != 4) _exit(33);
      if (close(other) != 0) _exit(34);
      _exit(6);
    }
    if (waitpid(forked, &status, 0) != forked || status != 6 << 8) _exit(11);
    pid_t spawned;
    char* const arguments[] = {"sh", "-c", "exit 8", NULL};
    if (posix_spawn(&spawned, "/bin/sh", NULL, NULL, arguments, no_environment) != 0) _exit(12);
    if (waitpid(spawned, &status, 0) != spawned || status != 8 << 8) _exit(13);
    _exit(9);
  }
  show_status("nested", child);
  WANT(write(fd, "parent", 6) == 6);
  sync_twice(fd);
  WANT(write(fd, "end", 3) == 3 && close(fd) == 0);
  show_file("nested");
  show_file("of the fork");
}

// ---------------------------------------------------------------------------------------------
// Another process has the file in its cache; the child's parent has not touched any.

static void other_process(void) {
  int go[2], done[2];
  char byte;
  WANT(pipe(go) == 0 && pipe(done) == 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const int fd = made("held", O_APPEND), renamed = made("to be renamed", 0);
    sync_twice(fd);
    sync_twice(renamed);
    WANT(write(fd, "pending", 7) == 7 && pwrite(renamed, "pending", 7, 0) == 7);
    WANT(write(done[1], "x", 1) == 1 && read(go[0], &byte, 1) == 1);
    struct stat st;
    WANT(fstat(fd, &st) == 0 && st.st_size == 9 && write(fd, "holder", 6) == 6);
    WANT(pwrite(renamed, "after", 5, 0) == 5);
    sync_twice(fd);
    exit(0);
  }
  WANT(read(done[0], &byte, 1) == 1);
  const pid_t child = vfork();
  if (child == 0) {
    struct stat st;
    if (stat("held", &st) != 0 || st.st_size != kSize + 7) _exit(10);
    const int fd = open("held", O_WRONLY | O_TRUNC | O_APPEND);
    if (fd < 0) _exit(errno);
    if (write(fd, "new bytes", 9) != 9) _exit(11);
    if (rename("to be renamed", "was renamed") != 0) _exit(12);
    _exit(0);
  }
  show_status("other process", child);
  WANT(write(go[1], "x", 1) == 1);
  show_status("holder", holder);
  show_file("held");
  show_file("was renamed");
}

// ---------------------------------------------------------------------------------------------

static void inherited_open(void) { descriptors(0); }
static void closed_on_exec(void) { descriptors(O_CLOEXEC); }

// The file was there before, so that the child is one that shares memory; and closed on exec, so
// that it may be cached.
static void cached_later(void) {
  const int fd = made("cached later", O_CLOEXEC);
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  show_status("cached later", child);
  sync_twice(fd);
  WANT(pwrite(fd, "x", 1, 0) == 1 && close(fd) == 0);
  show_file("cached later");
}

static void try(const char* name, void (*function)(void)) {
  printf("%s\n", name);
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    if (mkdir(name, 0755) != 0 || chdir(name) != 0) fail(name);
    function();
    exit(0);
  }
  show_status(name, pid);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 0; i < kSize; ++i) bytes[i] = (char)('a' + i % 23);
  try("memory", memory);
  try("descriptors", inherited_open);
  try("descriptors, closed on exec", closed_on_exec);
  try("all closed", all_closed);
  try("programs", programs);
  try("signals", signals);
  try("killed", killed);
  try("threads", threads);
  try("nested", nested);
  try("other process", other_process);
  try("cached later", cached_later);
  return 0;
}
