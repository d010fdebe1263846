// SPDX-License-Identifier: BSD-3-Clause
//
// Handlers that libc has not installed: by syscall(), with the kernel's own structure.

#include "libc.h"
#include "tests/kit/program.h"

enum { kRestorer = 0x04000000, kRecord = 64, kHandled = 3000 };

struct kernel_action {
  void (*handler)(int, siginfo_t*, void*);
  uint64_t flags;
  void (*restorer)(void);
  uint64_t mask;
};

void go_back(void);
__asm__("go_back: mov $15, %eax\n syscall\n");  // rt_sigreturn

static int g_fd;
static volatile sig_atomic_t g_handled, g_wrong;

static void write_here(int number, siginfo_t* info, void* context) {
  (void)context;
  const int saved = errno;
  char record[kRecord], back[kRecord];
  memset(record, 'A' + g_handled % 26, kRecord);
  g_wrong += info->si_signo != number || pwrite(g_fd, record, kRecord, 0) != kRecord ||
             pread(g_fd, back, kRecord, 0) != kRecord || memcmp(record, back, kRecord) != 0;
  ++g_handled;
  errno = saved;
}

static void count(int number, siginfo_t* info, void* context) {
  (void)context;
  printf("signal %d, number %d\n", number, info->si_signo);
}

static void show_action(const char* what, int number) {
  struct kernel_action now = {NULL, 1, NULL, 1};
  const long result = syscall(SYS_rt_sigaction, number, NULL, &now, 8);
  printf("%s: %ld %s, flags %lx, mask %lx, way back %s\n", what, result,
         now.handler == write_here ? "writes"
         : now.handler == count    ? "counts"
         : now.handler == NULL     ? "default"
                                   : "another",
         now.flags, now.mask, now.restorer == go_back ? "ours" : "another");
  struct sigaction by_name;
  const int queried = sigaction(number, NULL, &by_name);
  printf("    by name: %d flags %x, same handler %d\n", queried, (unsigned)by_name.sa_flags,
         by_name.sa_sigaction == now.handler);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  g_fd = created("a");
  SHOW(write(g_fd, "0123456789", 10));

  const uint64_t flags = SA_SIGINFO | SA_RESTART | kRestorer;
  struct kernel_action action = {write_here, flags, go_back, 1u << (SIGHUP - 1)}, old;
  SHOW(syscall(SYS_rt_sigaction, SIGALRM, &action, &old, 8));
  show_action("SIGALRM", SIGALRM);
  const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  char record[kRecord];
  for (int i = 0; g_handled < kHandled; ++i) {
    memset(record, 'a' + i % 26, kRecord);
    g_wrong += pwrite(g_fd, record, kRecord, kRecord) != kRecord;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("%d wrong\n", g_wrong);

  action.handler = count;
  SHOW(syscall(SYS_rt_sigaction, SIGSEGV, &action, &old, 8));
  show_action("SIGSEGV", SIGSEGV);
  char* pages = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SHOW(pwrite(g_fd, pages, 10, 0));
  raise(SIGSEGV);
  action.flags |= SA_RESETHAND;
  SHOW(syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8));
  raise(SIGUSR1);
  show_action("SIGUSR1", SIGUSR1);
  signal(SIGUSR1, SIG_IGN);
  SHOW(syscall(SYS_rt_sigaction, SIGUSR1, &action, &old, 8));
  printf("ignored before: %d\n", old.handler == (void*)SIG_IGN);
  const struct kernel_action none = {0};
  SHOW(syscall(SYS_rt_sigaction, SIGSEGV, &none, &old, 8));
  printf("counted before: %d\n", old.handler == count);
  SHOW(pwrite(g_fd, pages, 10, 0));

  SHOW(syscall(SYS_rt_sigaction, SIGUSR2, pages, NULL, 8));
  SHOW(syscall(SYS_rt_sigaction, SIGUSR2, NULL, pages, 8));
  SHOW(syscall(SYS_rt_sigaction, SIGUSR2, &action, NULL, 16));
  SHOW(syscall(SYS_rt_sigaction, SIGKILL, &action, NULL, 8));
  SHOW(syscall(SYS_rt_sigaction, 0, &action, NULL, 8));
  SHOW(syscall(SYS_rt_sigaction, 65, &action, NULL, 8));
  return ftruncate(g_fd, 0) | close(g_fd);
}
