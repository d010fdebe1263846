// SPDX-License-Identifier: BSD-3-Clause
//
// Children of vfork: what they do to their descriptors, signals and files, what becomes of them,
// and what their parent has afterwards. Programs that they start know nothing of NVCache.

#include "libc.h"
#include "tests/kit/program.h"

enum { kSize = 5000, kRounds = 100, kThreads = 3 };

static char* const no_environment[] = {NULL};
static char bytes[kSize];

static int made(const char* name, int flags) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
  CHECK(fd >= 0 && write(fd, bytes, kSize) == kSize);
  return fd;
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
  show_status(child);
  errno = 0;
  const pid_t none = vfork();
  if (none == 0) {
    execve("no such program", no_environment, no_environment);
    _exit(errno == ENOENT ? 4 : 5);
  }
  show_status(none);
}

// The child's descriptors are its own.
static void descriptors(int flags) {
  const int a = made("a", flags), b = made("b", flags), c = made("c", flags | O_APPEND);
  const pid_t child = vfork();
  if (child == 0) {
    int ends[2];
    char byte = 0;
    close(a);
    if (created("of the child") != a) _exit(10);
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
  show_status(child);
  struct stat st;
  CHECK(fstat(a, &st) == 0 && st.st_size == kSize);
  CHECK(pwrite(a, "A", 1, 0) == 1 && pwrite(b, "B", 1, 1) == 1 && write(c, "end", 3) == 3);
  CHECK(lseek(a, 0, SEEK_CUR) == kSize && lseek(b, 0, SEEK_CUR) == kSize);
  CHECK(fcntl(200, F_GETFD) < 0 && errno == EBADF);
  sync_twice(a);
  sync_twice(b);
  sync_twice(c);
  CHECK(pwrite(a, "a", 1, 1) == 1 && pwrite(b, "b", 1, 2) == 1 && write(c, "last", 4) == 4);
  show_file("a");
  show_file("b");
  show_file("c");
  show_file("renamed");
  CHECK(close(a) == 0 && close(b) == 0 && close(c) == 0 && close(a) < 0);
}

static void all_closed(void) {
  const int a = made("all", O_CLOEXEC);
  const pid_t child = vfork();
  if (child == 0) {
    if (close_range(3, ~0u, 0) != 0) _exit(10);
    if (open("after all", O_WRONLY | O_CREAT, 0644) != 3 || write(3, "x", 1) != 1) _exit(11);
    _exit(0);
  }
  show_status(child);
  CHECK(pwrite(a, "x", 1, 0) == 1 && close(a) == 0);
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
  CHECK(pipe(s.go) == 0 && pipe(s.done) == 0);
  s.fd = made(name, cloexec | O_APPEND);
  s.copy = how == kOtherClosed ? dup(s.fd) : -1;
  const pid_t child = vfork();
  if (child == 0) start(&s);
  CHECK(child > 0 && close(s.go[0]) == 0 && close(s.done[1]) == 0);
  if (how == kClosedLater) CHECK(fcntl(s.fd, F_SETFD, FD_CLOEXEC) == 0);
  if (how == kOtherClosed) CHECK(close(s.copy) == 0);
  char found[3 * kSize];
  for (int i = 0; i < 2; ++i) {
    CHECK(write(s.fd, "parent", 6) == 6);
    sync_twice(s.fd);
    CHECK(pread(s.fd, found, sizeof(found), 0) > kSize);
  }
  CHECK(write(s.go[1], "\n", 1) == 1 && read(s.done[0], found, 1) == 1);
  const ssize_t n = pread(s.fd, found, sizeof(found), 0);
  CHECK(n == kSize + 12 + 15 && memcmp(found + n - 15, "of the program\n", 15) == 0);
  CHECK(write(s.fd, "more", 4) == 4 && close(s.go[1]) == 0 && close(s.done[0]) == 0);
  show_status(child);
  CHECK(close(s.fd) == 0);
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
  CHECK(sigaction(signal, &action, NULL) == 0);
}

static void signals(void) {
  handle(SIGUSR1, on_signal, SA_RESTART);
  handle(SIGUSR2, on_signal, (int)SA_RESETHAND);
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, SIGTERM);
  CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
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
  show_status(child);
  struct sigaction action;
  CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == on_signal);
  CHECK(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == on_signal);
  CHECK(sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
  CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGTERM) == 1);
  CHECK(sigismember(&mask, SIGUSR1) == 0 && sigismember(&mask, SIGHUP) == 0);
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
  CHECK(pthread_create(&thread, NULL, killer, NULL) == 0);
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
    const int status = status_of(child);
    if (status != SIGKILL) printf("the child's status: %x\n", (unsigned)status);
    victim = 0;
    const int now = handled;
    raise(SIGUSR1);
    CHECK(handled == now + 1);
    CHECK(pwrite(fd, bytes, kSize, 0) == kSize && ftruncate(fd, kSize) == 0);
    if (i % 10 == 0) sync_twice(fd);
  }
  over = 1;
  CHECK(pthread_join(thread, NULL) == 0 && close(fd) == 0 && unlink("handler") == 0);
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
    CHECK(pwrite(fd, &number, sizeof(number), 100) == sizeof(number));
    CHECK(pread(fd, found, kSize, 0) == kSize && memcmp(found, bytes, 100) == 0);
    CHECK(memcmp(found + 100, &number, sizeof(number)) == 0);
    CHECK(close(fd) == 0 && rename(name, other) == 0);
  }
  return NULL;
}

static void threads(void) {
  pthread_t thread[kThreads];
  over = 0;
  for (size_t i = 0; i < kThreads; ++i)
    CHECK(pthread_create(&thread[i], NULL, work, (void*)i) == 0);
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
    CHECK(status_of(child) == 0);
    CHECK(write(fd, "parent", 6) == 6);
  }
  over = 1;
  for (size_t i = 0; i < kThreads; ++i) CHECK(pthread_join(thread[i], NULL) == 0);
  CHECK(close(fd) == 0);
  show_file("log");
}

// ---------------------------------------------------------------------------------------------
// A child that makes children.

static void nested(void) {
  const int fd = made("nested", O_CLOEXEC | O_APPEND);
  const pid_t child = vfork();
  if (child == 0) {
    const pid_t second = vfork();
    if (second == 0) {
      if (write(fd, "second", 6) != 6) _exit(30);
      const pid_t third = vfork();
      if (third == 0) run("exit 5");
      if (status_of(third) != 5 << 8) _exit(31);
      _exit(4);
    }
    if (status_of(second) != 4 << 8) _exit(10);
    const pid_t forked = fork();
    if (forked == 0) {
      const int other = created("of the fork");
      if (write(other, "forked", 6) != 6 || write(fd, "forked", 6) != 6) _exit(32);
      if (fsync(other) != 0) _exit(33);
      if (fsync(other) != 0) _exit(34);
      if (write(other, "more", 4) != 4 || close(other) != 0) _exit(35);
      _exit(6);
    }
    if (status_of(forked) != 6 << 8) _exit(11);
    pid_t spawned;
    char* const arguments[] = {"sh", "-c", "exit 8", NULL};
    if (posix_spawn(&spawned, "/bin/sh", NULL, NULL, arguments, no_environment) != 0) _exit(12);
    if (status_of(spawned) != 8 << 8) _exit(13);
    _exit(9);
  }
  show_status(child);
  CHECK(write(fd, "parent", 6) == 6);
  sync_twice(fd);
  CHECK(write(fd, "end", 3) == 3 && close(fd) == 0);
  show_file("nested");
  show_file("of the fork");
}

// ---------------------------------------------------------------------------------------------
// Another process has the file in its cache; the child's parent has not touched any.

static void other_process(void) {
  int go[2], done[2];
  CHECK(pipe(go) == 0 && pipe(done) == 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const int fd = made("held", O_APPEND), renamed = made("to be renamed", 0);
    sync_twice(fd);
    sync_twice(renamed);
    CHECK(write(fd, "pending", 7) == 7 && pwrite(renamed, "pending", 7, 0) == 7);
    tell(done);
    hear(go);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 9 && write(fd, "holder", 6) == 6);
    CHECK(pwrite(renamed, "after", 5, 0) == 5);
    sync_twice(fd);
    exit(0);
  }
  hear(done);
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
  show_status(child);
  tell(go);
  show_status(holder);
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
  show_status(child);
  sync_twice(fd);
  CHECK(pwrite(fd, "x", 1, 0) == 1 && close(fd) == 0);
  show_file("cached later");
}

int main(int argc, char** argv) {
  enter(argc, argv);
  fill_letters(bytes, kSize);
  try_case("memory", memory);
  try_case("descriptors", inherited_open);
  try_case("descriptors, closed on exec", closed_on_exec);
  try_case("all closed", all_closed);
  try_case("programs", programs);
  try_case("signals", signals);
  try_case("killed", killed);
  try_case("threads", threads);
  try_case("nested", nested);
  try_case("other process", other_process);
  try_case("cached later", cached_later);
  return 0;
}
