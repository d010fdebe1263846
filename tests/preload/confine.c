// SPDX-License-Identifier: BSD-3-Clause
//
// A program that has written confines itself: from then on the kernel kills it for every call that
// it has not allowed. It needs the calls that it makes, and nobody else makes one for it.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "tests/kit/program.h"

enum { kPatience = 10 /* seconds, about */, kMaxCalls = 24 };

static int g_fd;
static FILE* g_stream;

// ---------------------------------------------------------------------------------------------
// Filters.

// `otherwise` is what happens to those that are not listed.
static struct sock_fprog filter_of(struct sock_filter* code, const int* calls, size_t count,
                                   unsigned listed, unsigned otherwise) {
  size_t n = 0;
  code[n++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (size_t i = 0; i < count; ++i) {
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
  }
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
  return (struct sock_fprog){(unsigned short)n, code};
}

static int by_prctl(const struct sock_fprog* program) {
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0);
}
static int by_prctl_number(const struct sock_fprog* program) {
  return (int)syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0);
}
static int by_seccomp(const struct sock_fprog* program) {
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program);
}
static int by_seccomp_for_all(const struct sock_fprog* program) {
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program);
}

static void allow(int (*install_filter)(const struct sock_fprog*), const int* calls, size_t count) {
  struct sock_filter code[2 * kMaxCalls + 2];
  const struct sock_fprog program =
      filter_of(code, calls, count, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || install_filter(&program) != 0) abort();
}

// ---------------------------------------------------------------------------------------------
// What is done before and after.

static void begin(void) {
  g_fd = created("file");
  g_stream = fopen("stream", "w");
  for (int i = 0; i < 100; ++i) {
    if (write(g_fd, "before\n", 7) != 7 || fputs("before\n", g_stream) < 0) abort();
  }
  if (fflush(g_stream) != 0) abort();
}

static const int kUsed[] = {
    SYS_read,         SYS_write,  SYS_pread64,    SYS_pwrite64, SYS_lseek,
    SYS_close,        SYS_exit,   SYS_exit_group, SYS_openat,   SYS_tgkill,
    SYS_rt_sigreturn, SYS_getpid, SYS_gettid,
#ifndef __GLIBC__  // musl's streams and its raise() make others
    SYS_open,         SYS_writev, SYS_fcntl,      SYS_tkill,    SYS_rt_sigprocmask,
#endif
};

// No other call than these.
static int use_files(void) {
  char bytes[7];
  if (write(g_fd, "after\n", 6) != 6 || pwrite(g_fd, "AFTER\n", 6, 0) != 6) return 1;
  if (lseek(g_fd, 0, SEEK_SET) != 0 || read(g_fd, bytes, 7) != 7) return 2;
  if (memcmp(bytes, "AFTER\n\n", 7) != 0 || close(g_fd) != 0) return 3;
  const int other = created("other");
  if (write(other, "other\n", 6) != 6 || close(other) != 0) return 4;
  if (fputs("after\n", g_stream) < 0 || fflush(g_stream) != 0) return 5;
  return fputs("at the end\n", g_stream) < 0 ? 6 : 0;  // by exit()
}

// ---------------------------------------------------------------------------------------------
// The cases.

static int strict_mode(void) {
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 1;
  int failed = write(g_fd, "strict\n", 7) != 7;
#ifdef __GLIBC__  // musl's streams write by writev
  failed |= fputs("strict\n", g_stream) < 0 || fflush(g_stream) != 0;
#endif
  syscall(SYS_exit, failed);
  return 2;
}

static int strict_by_number(void) {
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) != 0) return 1;
  const int failed = write(g_fd, "strict\n", 7) != 7;
  syscall(SYS_exit, failed);
  return 2;
}

#define FILTER_BY(name)                    \
  static int filter_by_##name(void) {      \
    allow(by_##name, kUsed, COUNT(kUsed)); \
    return use_files();                    \
  }
FILTER_BY(prctl)
FILTER_BY(prctl_number)
FILTER_BY(seccomp)

static int g_ends[2];  // of a pipe that nobody writes to
static atomic_int g_runs;

static void* wait_for_ever(void* unused) {
  char byte;
  atomic_store(&g_runs, 1);
  if (read(g_ends[0], &byte, 1) < 0) abort();
  return unused;
}

static int filter_for_all_threads(void) {
  pthread_t thread;
  if (pipe(g_ends) != 0 || pthread_create(&thread, NULL, wait_for_ever, NULL) != 0) return 10;
  while (!atomic_load(&g_runs)) continue;
  allow(by_seccomp_for_all, kUsed, COUNT(kUsed));
  return use_files();
}

static volatile sig_atomic_t g_handled;

static void on_signal(int number) {
  (void)number;
  const int fd = open("handler", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  g_handled += write(fd, "handled\n", 8) == 8 && close(fd) == 0;
}

// Handlers that were installed before, the kernel's own one-time flag among them.
static int handlers(void) {
  const struct sigaction once = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGUSR1, &once, NULL);
  signal(SIGUSR2, on_signal);
  allow(by_prctl, kUsed, COUNT(kUsed));
  raise(SIGUSR1);
  raise(SIGUSR2);
  raise(SIGUSR2);
  return g_handled == 3 ? use_files() : 10;
}

// It dies by what it has done, not by the filter.
static int bad_pointer(void) {
  allow(by_prctl, kUsed, COUNT(kUsed));
  *(volatile int*)8 = 1;
  return 10;
}

// The kernel refuses both, and says what is wrong.
static int refused(void) {
  if (prctl(PR_SET_SECCOMP, 77, NULL) != -1 || errno != EINVAL) return 10;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1 || errno != EFAULT) return 11;
  if (syscall(SYS_seccomp, 77, 0, NULL) != -1 || errno != EINVAL) return 12;
  const struct sock_fprog empty = {0, NULL};
  if (by_prctl(&empty) != -1) return 13;
  return use_files();
}

// ---------------------------------------------------------------------------------------------
// A filter that was there before the program: what it refuses, the library does without.

#define CALL(name) \
  { #name, SYS_##name }
static const struct {
  const char* name;
  int call;
} kRefused[] = {CALL(clone),
                CALL(clone3),
                CALL(madvise),
                CALL(futex),
                CALL(flock),
                CALL(fallocate),
                CALL(statx),
                CALL(statfs),
                CALL(fstatfs),
                CALL(prctl),
                CALL(pidfd_open),
                CALL(pidfd_getfd),
                CALL(getdents64),
                CALL(linkat),
                CALL(getrandom),
                CALL(rt_sigprocmask),
                CALL(rt_tgsigqueueinfo),
                CALL(fchmod),
                CALL(openat2),
                CALL(readlink),
                CALL(ftruncate)};

static int refuse(int call, const char* self, const char* name) {
  struct sock_filter code[4];
  const struct sock_fprog program =
      filter_of(code, &call, 1, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || by_prctl(&program) != 0) return 10;
  execl(self, self, ".", "inner", name, NULL);
  return 11;
}

static int run_inside(const char* name) {
  char path[64];
  snprintf(path, sizeof(path), "inside.%s", name);
  const int fd = created(path);
  char bytes[7];
  for (int i = 0; i < 1000; ++i) {
    if (write(fd, "inside\n", 7) != 7) return 20;
  }
  if (pread(fd, bytes, 7, 700) != 7 || memcmp(bytes, "inside\n", 7) != 0) return 21;
  return close(fd) == 0 ? 0 : 22;
}

// ---------------------------------------------------------------------------------------------

// Of one that does not end, an alarm may find no thread that takes it.
static void report(const char* name, pid_t child) {
  int status = 1, hangs = 0;
  for (int ms = 0; waitpid(child, &status, WNOHANG) == 0; ++ms) {
    if (ms == kPatience * 1000) hangs = kill(child, SIGKILL) == 0;
    usleep(1000);
  }
  printf("%s: status %#x%s\n", name, status, hangs ? ", hangs" : "");
}

static void keep_file(const char* name) {
  char path[80];
  snprintf(path, sizeof(path), "%s.file", name);
  rename("file", path);
  snprintf(path, sizeof(path), "%s.stream", name);
  rename("stream", path);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  if (argc == 4 && strcmp(argv[2], "inner") == 0) return run_inside(argv[3]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  static const struct {
    const char* name;
    int (*run)(void);
  } cases[] = {
      {"strict", strict_mode},        {"strict by number", strict_by_number},
      {"prctl", filter_by_prctl},     {"prctl by number", filter_by_prctl_number},
      {"seccomp", filter_by_seccomp}, {"all threads", filter_for_all_threads},
      {"handlers", handlers},         {"bad pointer", bad_pointer},
      {"refused", refused},
  };
  for (size_t i = 0; i < COUNT(cases); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      begin();
      exit(cases[i].run());
    }
    report(cases[i].name, child);
    keep_file(cases[i].name);
  }
  for (size_t i = 0; i < COUNT(kRefused); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(refuse(kRefused[i].call, own_path(), kRefused[i].name));
    }
    report(kRefused[i].name, child);
  }
  return 0;
}
