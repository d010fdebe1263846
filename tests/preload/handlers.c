// SPDX-License-Identifier: BSD-3-Clause
//
// Handlers that make file calls, whatever they have interrupted, or never return to it.
#define _GNU_SOURCE
#include <setjmp.h>

#include "tests/kit/program.h"

enum { kPage = 4096, kThreads = 4, kRecord = 64, kRounds = 20000 };
// So many of each there are at least, whatever time that takes.
enum { kManySignals = 100, kManyJumps = 10 };
enum { kMostSeconds = 60 };  // for one handler

static int g_fd;
static int g_log;
static atomic_int g_wrong;
static atomic_int g_stop;
static _Thread_local volatile int g_thread = -1;  // kThreads: main; -1: it has just begun
static _Thread_local volatile unsigned g_handled;
static atomic_ulong g_all_handled;
static atomic_ulong g_appended;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void expect(int condition, const char* what) {
  if (condition) return;
  if (atomic_fetch_add(&g_wrong, 1) < 10) {
    dprintf(2, "%s, thread %d: errno %d\n", what, g_thread, errno);
  }
}

// As pthread_sigqueue, which musl does not have.
static void queue_signal(pid_t thread, int number, int value) {
  siginfo_t info;
  memset(&info, 0, sizeof(info));
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_int = value;
  expect(syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, number, &info) == 0, "queue");
}

// Every 100 us of time, and of work.
static void start_timers(void) {
  const struct itimerval often = {{0, 100}, {0, 100}};
  setitimer(ITIMER_REAL, &often, NULL);
  setitimer(ITIMER_PROF, &often, NULL);
}

static void stop_timers(void) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  setitimer(ITIMER_PROF, &never, NULL);
}

// ---------------------------------------------------------------------------------------------
// Everybody writes into the same page, the handlers as well; and they open, close, stat, append.

static off_t place_of(int thread, int handler) { return (thread * 2 + handler) * kRecord; }

static void busy_handler(int number, siginfo_t* info, void* context) {
  (void)context;
  if (g_thread < 0) return;
  const int saved = errno;
  char record[kRecord], back[kRecord];
  ++g_handled;
  atomic_fetch_add(&g_all_handled, 1);
  memset(record, (int)('A' + g_handled % 26), kRecord);
  const off_t at = place_of(g_thread, 1);
  expect(number == info->si_signo, "number");
  expect(pwrite(g_fd, record, kRecord, at) == kRecord, "pwrite in a handler");
  expect(pread(g_fd, back, kRecord, at) == kRecord && memcmp(back, record, kRecord) == 0,
         "pread in a handler");
  expect(write(g_log, "handler\n", 8) == 8, "append in a handler");
  atomic_fetch_add(&g_appended, 1);
  if (g_handled % 64 == 0) {
    const int fd = created("opened");
    expect(fd >= 0 && write(fd, record, kRecord) == kRecord && close(fd) == 0, "open in a handler");
    expect(fsync(g_fd) == 0, "fsync in a handler");
  }
  errno = saved;
}

static void work(int rounds) {
  char record[kRecord], back[kRecord];
  const off_t at = place_of(g_thread, 0);
  for (int i = 0; i < rounds && !atomic_load(&g_stop); ++i) {
    memset(record, 'a' + i % 26, kRecord);
    errno = 4711;
    expect(pwrite(g_fd, record, kRecord, at) == kRecord, "pwrite");
    expect(errno == 4711, "errno");
    expect(pread(g_fd, back, kRecord, at) == kRecord && memcmp(back, record, kRecord) == 0,
           "pread");
    expect(write(g_log, "program\n", 8) == 8, "append");
    atomic_fetch_add(&g_appended, 1);
    if (i % 512 == 0) {
      const int fd = open("mine", O_RDWR | O_CREAT, 0644);
      expect(fd >= 0 && pwrite(fd, record, kRecord, kPage * g_thread) == kRecord, "open");
      expect(ftruncate(fd, kPage * 8) == 0 && close(fd) == 0, "truncate");
    }
  }
}

static void* run(void* number) {
  g_thread = (int)(long)number;
  work(kRounds);
  return NULL;
}

static void check_content(void) {
  char page[kPage];
  const ssize_t n = pread(g_fd, page, kPage, 0);
  expect(n == (kThreads + 1) * 2 * kRecord, "size");
  for (ssize_t at = 0; at < n; at += kRecord) {
    for (int i = 1; i < kRecord; ++i) expect(page[at + i] == page[at], "a torn record");
  }
  expect(lseek(g_log, 0, SEEK_END) == (off_t)(8 * atomic_load(&g_appended)), "size of the log");
  char line[8];
  for (unsigned long i = 0; i < atomic_load(&g_appended); ++i) {
    expect(pread(g_log, line, 8, (off_t)(8 * i)) == 8, "line");
    expect(memcmp(line, "handler\n", 8) == 0 || memcmp(line, "program\n", 8) == 0, "a torn line");
  }
}

static void check_busy(int flags) {
  atomic_store(&g_all_handled, 0);
  // Both share their places in the file.
  install(SIGALRM, busy_handler, flags, SIGPROF);
  install(SIGPROF, busy_handler, flags, SIGALRM);
  char record[kRecord];
  memset(record, '-', kRecord);
  for (int i = 0; i < 2 * (kThreads + 1); ++i) {
    expect(pwrite(g_fd, record, kRecord, i * kRecord) == kRecord, "fill");
  }
  pthread_t threads[kThreads];
  start_timers();
  for (long i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, run, (void*)i);
  work(kRounds);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  while (atomic_load(&g_all_handled) < kManySignals) work(1);
  stop_timers();
  check_content();
  puts("busy");
}

// ---------------------------------------------------------------------------------------------
// A handler that does not return.

static sigjmp_buf g_back;
static volatile int g_may_jump, g_written;

static void jump_out(int number) {
  (void)number;
  if (g_may_jump) siglongjmp(g_back, 1);
}

static void check_jumps(void) {
  const int fd = created("jumps");
  static char page[kPage], back[kPage];
  signal(SIGALRM, jump_out);
  signal(SIGPROF, jump_out);
  volatile int jumps = 0, rounds = 0;
  g_written = 0;
  start_timers();
  const double end = now() + 1.5;
  while (now() < end || jumps < kManyJumps) {
    ++rounds;
    memset(page, 'a' + rounds % 26, kPage);
    if (sigsetjmp(g_back, 1) != 0) {
      g_may_jump = 0;
      ++jumps;
      // All of the interrupted write, or nothing; and nothing at all only before one has returned.
      const ssize_t n = pread(fd, back, kPage, 0);
      expect(n == kPage || (n == 0 && !g_written), "read after a jump");
      for (int i = 1; i < n; ++i) expect(back[i] == back[0], "a torn page");
      continue;
    }
    g_may_jump = 1;
    for (int i = 0; i < 50; ++i) {
      expect(pwrite(fd, page, kPage, 0) == kPage, "write");
      g_written = 1;
      expect(pwrite(fd, page, 100, kPage + 50 * i) == 100, "small write");
    }
    g_may_jump = 0;
  }
  stop_timers();
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  for (int i = 1; i < 65; ++i) expect(sigismember(&blocked, i) == 0, "a mask that stayed");
  expect(ftruncate(fd, 0) == 0 && close(fd) == 0, "close");
  puts("jumps");
}

// ---------------------------------------------------------------------------------------------
// Writing much more than a disk takes at once: how long does a handler wait?

static volatile int g_seen;
static atomic_int g_sent;

static void count_it(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  g_seen = info->si_value.sival_int;
}

static void* interrupt(void* thread) {
  double longest = 0;
  for (int i = 1; !atomic_load(&g_stop); ++i) {
    const double begin = now();
    atomic_store(&g_sent, i);
    queue_signal(*(pid_t*)thread, SIGINT, i);
    while (g_seen != i && !atomic_load(&g_stop) && now() < begin + kMostSeconds) usleep(200);
    if (now() - begin > longest) longest = now() - begin;
    usleep(10000);
  }
  // Not for the whole log, nor for ever.
  if (longest >= kMostSeconds) dprintf(2, "a handler waited %f s\n", longest);
  expect(longest < kMostSeconds, "late");
  return NULL;
}

static void check_full(int flags) {
  const int fd = created("full");
  static char page[4 * kPage];
  install(SIGINT, count_it, flags, 0);
  atomic_store(&g_stop, 0);
  pid_t self = gettid();
  pthread_t thread;
  pthread_create(&thread, NULL, interrupt, &self);
  const double end = now() + 2;
  for (int i = 0; now() < end; ++i) {
    memset(page, 'a' + i % 26, sizeof(page));
    expect(pwrite(fd, page, sizeof(page), (off_t)sizeof(page) * (i % 2000)) == sizeof(page),
           "write");
  }
  atomic_store(&g_stop, 1);
  pthread_join(thread, NULL);
  atomic_store(&g_stop, 0);
  expect(ftruncate(fd, 0) == 0 && close(fd) == 0, "close");
  puts("full");
}

// ---------------------------------------------------------------------------------------------
// What a handler is told, and how it is called, when its signal had to wait.

static volatile int g_details[4];  // by how the handler was installed
static atomic_int g_noted;
static atomic_int g_outside;  // grows while no handler runs
static char g_stack[1 << 16];

static void note(int index, int number, siginfo_t* info) {
  char here;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  const int details = (info->si_code == SI_QUEUE) | (info->si_value.sival_int == 4711) << 1 |
                      (info->si_pid == getpid()) << 2 | sigismember(&blocked, number) << 3 |
                      sigismember(&blocked, SIGUSR2) << 4 | sigismember(&blocked, SIGUSR1) << 5 |
                      (&here >= g_stack && &here < g_stack + sizeof(g_stack)) << 6;
  if (g_details[index] != 0) expect(g_details[index] == details, "details");
  g_details[index] = details;
  atomic_fetch_add(&g_noted, 1);
}

#define NOTES(name, index)                                       \
  static void name(int number, siginfo_t* info, void* context) { \
    (void)context;                                               \
    note(index, number, info);                                   \
  }
NOTES(plain, 0)
NOTES(open_to_itself, 1)
NOTES(aside, 2)
static void only_once(int number, siginfo_t* info, void* context) {
  (void)context;
  note(3, number, info);
  struct sigaction action;
  sigaction(number, NULL, &action);
  expect(action.sa_handler == SIG_DFL, "reset");
  install(number, only_once, SA_RESETHAND, 0);
}

// One after the other, so that none interrupts another's handler.
static void* send_each(void* thread) {
  for (int i = 0; !atomic_load(&g_stop); ++i) {
    const int before = atomic_load(&g_noted);
    queue_signal(*(pid_t*)thread, SIGRTMIN + i % 4, 4711);
    while (atomic_load(&g_noted) == before && !atomic_load(&g_stop)) usleep(20);
    const int inside = atomic_load(&g_outside);
    while (atomic_load(&g_outside) == inside && !atomic_load(&g_stop)) usleep(20);
  }
  return NULL;
}

static void check_details(void) {
  const stack_t stack = {.ss_sp = g_stack, .ss_size = sizeof(g_stack)};
  sigaltstack(&stack, NULL);
  install(SIGRTMIN, plain, 0, SIGUSR2);
  install(SIGRTMIN + 1, open_to_itself, SA_NODEFER, 0);
  install(SIGRTMIN + 2, aside, SA_ONSTACK, 0);
  install(SIGRTMIN + 3, only_once, SA_RESETHAND, 0);
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);
  pid_t self = gettid();
  pthread_t thread;
  pthread_create(&thread, NULL, send_each, &self);
  const double end = now() + 1;
  while (now() < end) {
    expect(pwrite(g_fd, "x", 1, 0) == 1, "pwrite");
    atomic_fetch_add(&g_outside, 1);
  }
  atomic_store(&g_stop, 1);
  pthread_join(thread, NULL);
  atomic_store(&g_stop, 0);
  pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
  for (int i = 0; i < 4; ++i) printf("details: %x\n", (unsigned)g_details[i]);
}

// ---------------------------------------------------------------------------------------------

// Signals that wait are the parent's; and so is a handler's _exit.
static void leave(int number) {
  (void)number;
  _exit(3);
}

static void check_ends(void) {
  for (int i = 0; i < 5; ++i) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGALRM, leave);
      const int fd = open("child", O_RDWR | O_CREAT, 0644);
      const struct itimerval soon = {{0, 0}, {0, 5000 + 100 * i}};
      setitimer(ITIMER_REAL, &soon, NULL);
      for (;;) expect(pwrite(fd, "child", 5, 0) == 5, "child");
    }
    show_status(child);
  }
}

static pid_t g_parent;
static volatile int g_handled_in_child;

static void note_child(int number) {
  (void)number;
  if (getpid() != g_parent) g_handled_in_child = 1;
}

static void check_forks(void) {
  g_parent = getpid();
  signal(SIGALRM, note_child);
  const struct itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 50; ++i) {
    expect(pwrite(g_fd, "y", 1, 0) == 1, "pwrite");
    const pid_t child = fork();
    if (child == 0) {
      sigset_t blocked;
      pthread_sigmask(SIG_BLOCK, NULL, &blocked);
      // A child has no timer of its own.
      expect(pwrite(g_fd, "y", 1, 0) == 1, "pwrite of a child");
      _exit(sigismember(&blocked, SIGUSR2) == 0 && !g_handled_in_child ? 0 : 1);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    expect(status == 0, "a child's signals");
  }
  stop_timers();
  puts("forks");
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  g_thread = kThreads;
  g_fd = created("a");
  g_log = open("log", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
  check_busy(SA_RESTART);
  check_busy(0);
  check_jumps();
  check_full(SA_RESTART);
  check_full(0);
  check_details();
  check_ends();
  check_forks();
  printf("%d wrong\n", atomic_load(&g_wrong));

  // How much was written depends on time.
  expect(ftruncate(g_fd, 0) == 0 && ftruncate(g_log, 0) == 0, "truncate");
  unlink("opened");
  unlink("mine");
  unlink("child");
  return close(g_fd) | close(g_log) | (atomic_load(&g_wrong) != 0);
}
