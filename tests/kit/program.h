// SPDX-License-Identifier: BSD-3-Clause
//
// The C programs under test share this: what they include, and what many of them do.
#ifndef NVCACHE_TESTS_KIT_PROGRAM_H_
#define NVCACHE_TESTS_KIT_PROGRAM_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Into the folder that the command line names; what is said there is not lost.
static inline void enter(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) _exit(2);
  setvbuf(stdout, NULL, _IOLBF, 0);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// Ends this process, and says why, unless the condition holds.
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      dprintf(2, "%s:%d: %s: errno %d\n", __FILE__, __LINE__, #condition, errno); \
      _exit(9);                                                                   \
    }                                                                             \
  } while (0)

// EACH(macro, a, b, ...): macro(a) macro(b) ..., up to eight.
#define EACH(macro, ...)                                                                    \
  EACH_PICK(__VA_ARGS__, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2, EACH_1, 0) \
  (macro, __VA_ARGS__)
#define EACH_PICK(a, b, c, d, e, f, g, h, each, ...) each
#define EACH_1(macro, a) macro(a)
#define EACH_2(macro, a, ...) macro(a) EACH_1(macro, __VA_ARGS__)
#define EACH_3(macro, a, ...) macro(a) EACH_2(macro, __VA_ARGS__)
#define EACH_4(macro, a, ...) macro(a) EACH_3(macro, __VA_ARGS__)
#define EACH_5(macro, a, ...) macro(a) EACH_4(macro, __VA_ARGS__)
#define EACH_6(macro, a, ...) macro(a) EACH_5(macro, __VA_ARGS__)
#define EACH_7(macro, a, ...) macro(a) EACH_6(macro, __VA_ARGS__)
#define EACH_8(macro, a, ...) macro(a) EACH_7(macro, __VA_ARGS__)

// SHOW(call, call, ...): makes these calls in turn, then prints them, what each gave, and errno
// where it failed. errno must survive a success, unless any_errno is set.
#define SHOW(...)                           \
  do {                                      \
    struct results results_ = {.count = 0}; \
    EACH(SHOW_ONE, __VA_ARGS__)             \
    show_results(#__VA_ARGS__, &results_);  \
  } while (0)
#define SHOW_ONE(call)                            \
  errno = kNoErrno;                               \
  results_.values[results_.count] = (long)(call); \
  results_.errors[results_.count++] = errno;

enum { kNoErrno = 4711, kMostShown = 8 };
struct results {
  int count;
  long values[kMostShown];
  int errors[kMostShown];
};
static int any_errno __attribute__((unused));

static inline void show_results(const char* calls, const struct results* results) {
  printf("%s =", calls);
  for (int i = 0; i < results->count; ++i) {
    const long value = results->values[i];
    const int error = results->errors[i];
    printf("%s %ld", i > 0 ? "," : "", value);
    if (error == kNoErrno || (value >= 0 && any_errno)) continue;
    printf(value < 0 ? " errno %d" : " CHANGED ERRNO %d", error);
  }
  printf("\n");
}

static inline void title(const char* text) { printf("--- %s\n", text); }

// How many bytes, and those of the first that can be printed.
static inline void show_bytes(const char* what, const char* bytes, ssize_t count) {
  printf("    %s %zd: ", what, count);
  for (ssize_t i = 0; i < count && i < 64; ++i) {
    putchar(bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '.');
  }
  putchar('\n');
}

static inline unsigned sum_of(const char* bytes, ssize_t count) {
  unsigned sum = 0;
  for (ssize_t i = 0; i < count; ++i) sum = sum * 31 + (unsigned char)bytes[i];
  return sum;
}

static inline void fill_letters(char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) bytes[i] = (char)('a' + i % 23);
}

// Of a file, as the kernel has it: its mode, its size, a sum of its bytes, and the first of them.
static inline void show_file(const char* path) {
  struct stat st;
  if (stat(path, &st) != 0) {
    printf("    %s: errno %d\n", path, errno);
    return;
  }
  char* bytes = malloc((size_t)st.st_size + 1);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t count = read(fd, bytes, (size_t)st.st_size + 1);
  close(fd);
  printf("    mode %o size %ld sum %u", st.st_mode, (long)st.st_size, sum_of(bytes, count));
  show_bytes(path, bytes, count);
  free(bytes);
}

// Waits for the child; its status.
static inline int status_of(pid_t child) {
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return status;
}

static inline void show_status(pid_t child) {
  const int status = status_of(child);
  printf("    child: exit %d signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
         WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static inline int created(const char* name) { return open(name, O_RDWR | O_CREAT | O_TRUNC, 0644); }

static inline void sync_twice(int fd) { CHECK(fsync(fd) == 0 && fsync(fd) == 0); }

// One byte through a pipe.
static inline void tell(const int* ends) { CHECK(write(ends[1], "x", 1) == 1); }
static inline void hear(const int* ends) {
  char byte;
  CHECK(read(ends[0], &byte, 1) == 1);
}

// Runs a case in a child, in a folder of its own.
static inline void try_case(const char* name, void (*run)(void)) {
  printf("%s\n", name);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    CHECK(mkdir(name, 0755) == 0 && chdir(name) == 0);
    run();
    exit(0);
  }
  show_status(child);
}

// What a thread that does only this returns.
static inline void* in_thread(void* (*run)(void*), void* argument) {
  pthread_t thread;
  void* result = NULL;
  CHECK(pthread_create(&thread, NULL, run, argument) == 0);
  CHECK(pthread_join(thread, &result) == 0);
  return result;
}

// The path of the running program.
static inline char* own_path(void) {
  static char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  CHECK(length > 0);
  path[length] = '\0';
  return path;
}

// A system call by nobody's wrapper.
static inline long by_hand(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}

// A message of one byte that carries a descriptor; the first member of a struct mmsghdr.
static inline struct msghdr* descriptor_message(int fd) {
  static char space[CMSG_SPACE(sizeof(int))];
  static char byte[2];
  static struct iovec iov;
  static struct mmsghdr message;
  iov = (struct iovec){byte, 1};
  memset(&message, 0, sizeof(message));
  memset(space, 0, sizeof(space));
  message.msg_hdr = (struct msghdr){
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
  struct cmsghdr* header = CMSG_FIRSTHDR(&message.msg_hdr);
  *header = (struct cmsghdr){
      .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return &message.msg_hdr;
}

static inline int received_descriptor(const struct msghdr* message) {
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof(fd));
  return fd;
}

// A handler that is told the details, with signals that are blocked meanwhile; 0: none.
static inline void install(int number, void (*handler)(int, siginfo_t*, void*), int flags,
                           int blocked) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  if (blocked != 0) sigaddset(&action.sa_mask, blocked);
  if (sigaction(number, &action, NULL) != 0) printf("sigaction: %d\n", errno);
}

#endif  // NVCACHE_TESTS_KIT_PROGRAM_H_
