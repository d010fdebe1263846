// SPDX-License-Identifier: BSD-3-Clause
//
// A program that uses SIGSEGV and SIGBUS for itself gets its own faults, with everything that the
// kernel says about them, and none of those in its system calls.
#define _GNU_SOURCE
#include <setjmp.h>

#include "libc.h"
#include "tests/kit/program.h"

enum { kPage = 4096 };

static char* g_page;  // no access until somebody touches it
static volatile int g_faults;
static volatile int g_details;  // bits
static sigjmp_buf g_back;
static char g_stack[1 << 16];

static void bits(int number, siginfo_t* info, void* context) {
  char here;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  g_details = (number == SIGSEGV) | (info->si_addr == g_page + 7) << 1 |
              (info->si_code == SEGV_ACCERR) << 2 | (context != NULL) << 3 |
              sigismember(&blocked, number) << 4 | sigismember(&blocked, SIGUSR2) << 5 |
              (&here >= g_stack && &here < g_stack + sizeof(g_stack)) << 6;
  ++g_faults;
}

static void make_accessible(int number, siginfo_t* info, void* context) {
  bits(number, info, context);
  mprotect(g_page, kPage, PROT_READ | PROT_WRITE);
}

static void jump_out(int number, siginfo_t* info, void* context) {
  bits(number, info, context);
  siglongjmp(g_back, 1);
}

static void plain(int number) {
  ++g_faults;
  if (number == SIGSEGV) mprotect(g_page, kPage, PROT_READ | PROT_WRITE);
}

static void forbid(void) { mprotect(g_page, kPage, PROT_NONE); }

static void show(const char* what) {
  printf("%s: %d faults, details %x\n", what, g_faults, g_details);
  g_faults = g_details = 0;
}

static void show_call(const char* what, ssize_t result) {
  printf("%s: %zd %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

// How a child ends that does `what`.
static void show_end(const char* name, void (*what)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    what();
    _exit(0);
  }
  printf("%s\n", name);
  show_status(child);
}

static int g_fd;

static void touch_it(void) { g_page[7] = 1; }
static void default_fault(void) {
  signal(SIGSEGV, SIG_DFL);
  touch_it();
}
static void ignored_fault(void) {
  signal(SIGSEGV, SIG_IGN);
  touch_it();
}
static void ignored_kill(void) {
  signal(SIGSEGV, SIG_IGN);
  kill(getpid(), SIGSEGV);
  _exit(7);
}
static void default_kill(void) {
  signal(SIGBUS, SIG_DFL);
  kill(getpid(), SIGBUS);
  for (;;) pause();
}
static void once(void) {
  install(SIGSEGV, bits, SA_RESETHAND, SIGUSR2);
  touch_it();  // comes twice
}

static int g_depth;

static void overflow(void) {
  char buffer[4096];
  memset((void*)buffer, 1, sizeof(buffer));
  __asm__ volatile("" : : "r"(buffer) : "memory");
  if (++g_depth > 0) overflow();
  __asm__ volatile("" : : "r"(buffer) : "memory");
}
static void overflow_default(void) {
  signal(SIGSEGV, SIG_DFL);
  overflow();
}
static void write_after_exec_of_handlers(void) {
  signal(SIGSEGV, SIG_DFL);
  const int fd = created("child");
  _exit(write(fd, g_page, 10) == -1 && errno == EFAULT ? 5 : 6);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  g_page = mmap(NULL, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g_fd = created("a");
  show_call("write", write(g_fd, "0123456789", 10));

  install(SIGSEGV, make_accessible, 0, SIGUSR2);
  touch_it();
  show("repaired");
  forbid();
  show_call("the kernel does not ask", pwrite(g_fd, g_page, 10, 0));
  show_call("nor when it reads", pread(g_fd, g_page, 10, 0));
  show("in a call");

  install(SIGSEGV, make_accessible, SA_NODEFER, SIGUSR2);
  touch_it();
  show("not deferred");
  forbid();

  const stack_t stack = {.ss_sp = g_stack, .ss_size = sizeof(g_stack)};
  sigaltstack(&stack, NULL);
  install(SIGSEGV, make_accessible, SA_ONSTACK, SIGUSR2);
  touch_it();
  show("on another stack");
  forbid();

  install(SIGSEGV, jump_out, 0, SIGUSR2);
  for (int i = 0; i < 3; ++i) {
    if (sigsetjmp(g_back, 1) == 0) touch_it();
    show("jumped out");
    show_call("write", pwrite(g_fd, g_page, 10, 0));
  }

  signal(SIGSEGV, plain);
  touch_it();
  show("plain");
  forbid();
  show_call("write", pwrite(g_fd, g_page, 10, 0));
  raise(SIGSEGV);
  show("raised");
  forbid();

  install(SIGBUS, jump_out, 0, SIGUSR2);
  const int fd = created("mapped");
  char* map = mmap(NULL, kPage, PROT_READ, MAP_SHARED, fd, 0);
  if (sigsetjmp(g_back, 1) == 0) printf("%d\n", *(volatile char*)map);
  show("bus error");
  show_call("write", pwrite(g_fd, map, 10, 0));

  show_end("default", default_fault);
  show_end("ignored", ignored_fault);
  show_end("ignored, sent", ignored_kill);
  show_end("default, sent", default_kill);
  show_end("once", once);
  show_end("overflow", overflow_default);
  show_end("in a child", write_after_exec_of_handlers);
  show_call("write", write(g_fd, "0123456789", 10));
  return close(g_fd);
}
