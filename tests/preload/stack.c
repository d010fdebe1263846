// SPDX-License-Identifier: BSD-3-Clause
//
// How much of a thread's stack a call takes.
//
//   stack FOLDER measure CASE     prints the bytes of stack that the call took, measured on a
//                                 painted stack, and the bytes that the kernel's own frame of a
//                                 signal may have taken of them
//   stack FOLDER smallest CASE    makes the call on the smallest stack that a thread may have
//   stack FOLDER handler CASE     makes it in a handler, on an alternate stack of SIGSTKSZ
//   stack FOLDER tight CASE       the same on an alternate stack with room for the kernel's frame
//   of
//                                 a signal and little more
//   stack FOLDER overflow         calls near the end of a stack: it holds, or the program's handler
//                                 is told; what lies below the guard page stays as it is
//   stack FOLDER cases            prints the names of all cases
//
// stack_test.py runs all of it without the library and with it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libc.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum {
  kPage = 4096,
  kPieces = 1024,       // IOV_MAX
  kRoomy = 512 << 10,   // a stack that no call fills
  kSmallest = 16384,    // PTHREAD_STACK_MIN of glibc; musl's is smaller
  kAlternate = 8192,    // SIGSTKSZ of the headers
  kHandlerRoom = 2560,  // beyond the kernel's frame, for the handler, the call, and 2 KiB of ours
  kBelow = 64 << 10,    // memory of the program below a stack's guard page
  kLarge = 3 << 20,
};

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      dprintf(2, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)

static const char* g_program;
static char g_bytes[kLarge];  // what is written
static char g_read[kLarge];   // what was read
static struct iovec g_out[kPieces], g_in[kPieces];
static int g_fd = -1;
static FILE* g_stream;

static char* guarded(size_t size) {
  char* memory =
      mmap(NULL, kBelow + kPage + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED && mprotect(memory + kBelow, kPage, PROT_NONE) == 0);
  return memory + kBelow + kPage;
}

static int is_below_untouched(const char* stack) {
  const char* below = stack - kPage - kBelow;
  for (size_t i = 0; i < kBelow; ++i) {
    if (below[i] != 0) return 0;
  }
  return 1;
}

static volatile uint64_t* g_low;  // a painted stack, up to g_high
static volatile uint64_t* g_high;
static volatile uint64_t* volatile* g_child_end;  // as painted_end() in a child of fork, shared
static const uint64_t kPaint = 0x5a17c0de5a17c0de;

static volatile uint64_t* painted_end(void) {
  volatile uint64_t* p = g_low;
  while (p < g_high && *p == kPaint) ++p;
  return p;
}

// By nobody's wrapper.
static long by_hand(long number, const char* argument) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(argument) : "rcx", "r11", "memory");
  return result;
}

// The pieces of a vector are of `size` bytes each, and never neighbours in memory.
static void pieces(size_t size) {
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t at = (kPieces - 1 - i) * size;
    g_out[i] = (struct iovec){g_bytes + at, size};
    g_in[i] = (struct iovec){g_read + at, size};
  }
}

// ------------------------------------------------------------------------------------------ Cases

static int open_for_writing(const char* name, int flags) {
  const int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
  CHECK(fd >= 0);
  return fd;
}

static void with_nothing(void) { pieces(1); }
static void with_file(void) {
  pieces(1);
  g_fd = open_for_writing("file", O_TRUNC);
}
static void with_bytes(void) {
  with_file();
  CHECK(pwrite(g_fd, g_bytes, 100000, 0) == 100000);
}
static void with_patches(void) {  // that are no whole pages
  with_bytes();
  for (int i = 0; i < 40; ++i) CHECK(pwrite(g_fd, g_bytes, 10, i * 500) == 10);
}
static void with_long_file(void) {
  with_file();
  CHECK(pwrite(g_fd, g_bytes, kLarge, 0) == kLarge);
}
// Not in anybody's cache.
static void with_old_file(void) {
  with_bytes();
  CHECK(close(g_fd) == 0);
  g_fd = open_for_writing("other", 0);
  CHECK(write(g_fd, "x", 1) == 1 && close(g_fd) == 0);
  g_fd = open_for_writing("file", 0);
}
static void with_wide_pieces(void) {
  with_file();
  pieces(2048);
}
static void with_wide_pieces_of_file(void) {
  with_long_file();
  pieces(2048);
}
static void with_stream(void) {
  g_stream = fopen("stream", "w+");
  CHECK(g_stream != NULL);
}
static void with_full_stream(void) {
  with_stream();
  CHECK(fwrite(g_bytes, 1, 3000, g_stream) == 3000);
}

// Bytes of another process that has died, and with `lost` its file with them.
static void with_dead(int lost) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    execl(g_program, g_program, ".", "die", lost ? "lost" : "left", (char*)NULL);
    _exit(1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  if (!lost) return;
  CHECK(by_hand(SYS_unlink, "lost") == 0);
}
static void with_dead_process(void) { with_dead(0); }
static void with_lost_file(void) { with_dead(1); }

static void die(const char* name) {
  const int fd = open_for_writing(name, 0);
  for (int i = 0; i < 64; ++i) CHECK(pwrite(fd, g_bytes, 5000, (63 - i) * 7000L) == 5000);
  raise(SIGKILL);
}

static void open_new(void) { g_fd = open_for_writing("new", 0); }
static void open_again(void) { open_for_writing("file", 0); }
static void open_reading(void) { CHECK(open("file", O_RDONLY) >= 0); }
static void open_cut(void) { open_for_writing("file", O_TRUNC); }
static void close_file(void) { CHECK(close(g_fd) == 0); }
static void write_small(void) { CHECK(pwrite(g_fd, g_bytes, 64, 10) == 64); }
static void write_page(void) { CHECK(write(g_fd, g_bytes, 4096) == 4096); }
static void write_64k(void) { CHECK(pwrite(g_fd, g_bytes, 65536, 100) == 65536); }
static void write_large(void) { CHECK(pwrite(g_fd, g_bytes, kLarge, 100) == kLarge); }
static void write_vector(void) { CHECK(writev(g_fd, g_out, kPieces) == kPieces); }
static void write_vector_at(void) { CHECK(pwritev(g_fd, g_out, kPieces, 5000) == kPieces); }
static void write_vector_flags(void) { CHECK(pwritev2(g_fd, g_out, kPieces, 5000, 0) == kPieces); }
static void write_wide_vector(void) { CHECK(writev(g_fd, g_out, kPieces) == kPieces * 2048); }
static void write_bad(void) { CHECK(write(g_fd, (void*)8, 5000) == -1 && errno == EFAULT); }
static void write_bad_vector(void) {
  g_out[700].iov_base = (void*)8;
  CHECK(writev(g_fd, g_out, kPieces) == 700);
}
static void write_bad_array(void) {
  struct iovec* bad = (struct iovec*)8;
  __asm__("" : "+r"(bad));
  CHECK(writev(g_fd, bad, kPieces) == -1 && errno == EFAULT);
}
static void read_small(void) { CHECK(pread(g_fd, g_read, 64, 10) == 64); }
static void read_page(void) { CHECK(pread(g_fd, g_read, 4096, 4096) == 4096); }
static void read_large(void) { CHECK(pread(g_fd, g_read, kLarge, 0) == kLarge); }
static void read_vector(void) { CHECK(preadv(g_fd, g_in, kPieces, 0) == kPieces); }
static void read_vector_on(void) {
  lseek(g_fd, 0, SEEK_SET);
  CHECK(readv(g_fd, g_in, kPieces) == kPieces);
}
static void read_wide_vector(void) { CHECK(preadv(g_fd, g_in, kPieces, 0) == kPieces * 2048); }
static void read_bad(void) {
  void* bad = (void*)8;
  __asm__("" : "+r"(bad));
  CHECK(pread(g_fd, bad, 5000, 0) == -1 && errno == EFAULT);
}
static void sync_file(void) { CHECK(fsync(g_fd) == 0); }
static void sync_all(void) { sync(); }
static void cut_all(void) { CHECK(ftruncate(g_fd, 0) == 0); }
static void cut_some(void) { CHECK(ftruncate(g_fd, 1000) == 0); }
static void cut_path(void) { CHECK(truncate("file", 1000) == 0); }
static void allocate(void) { CHECK(fallocate(g_fd, 0, 0, 200000) == 0); }
static void seek(void) { CHECK(lseek(g_fd, 0, SEEK_END) >= 0); }
static void seek_data(void) { CHECK(lseek(g_fd, 0, SEEK_DATA) >= 0); }
static void rename_file(void) { CHECK(rename("file", "renamed") == 0); }
static void link_file(void) { CHECK(link("file", "linked") == 0); }
static void unlink_file(void) { CHECK(unlink("file") == 0); }
static void unlink_closed(void) {
  CHECK(close(g_fd) == 0);
  CHECK(unlink("file") == 0);
}
static void stat_path(void) {
  struct stat st;
  CHECK(stat("file", &st) == 0);
}
static void stat_descriptor(void) {
  struct stat st;
  CHECK(fstat(g_fd, &st) == 0);
}
static void stat_extended(void) {
  struct statx st;
  CHECK(statx(AT_FDCWD, "file", 0, STATX_BASIC_STATS, &st) == 0);
}
static void stat_left(void) {
  struct stat st;
  CHECK(stat("left", &st) == 0 && st.st_size == 63 * 7000 + 5000);
}
static void open_left(void) { CHECK(open("left", O_RDONLY) >= 0); }
static void open_lost(void) { CHECK(open("other", O_RDWR | O_CREAT, 0644) >= 0); }
static void change_mode(void) { CHECK(chmod("file", 0600) == 0); }
static void duplicate(void) { CHECK(dup2(g_fd, 100) == 100 && dup(g_fd) >= 0); }
static void control(void) { CHECK(fcntl(g_fd, F_DUPFD_CLOEXEC, 50) >= 50); }
static void map_file(void) {
  CHECK(mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, g_fd, 0) != MAP_FAILED);
}
static void send_file(void) {
  const int to = open_for_writing("to", 0);
  off_t from = 0;
  CHECK(sendfile(to, g_fd, &from, 50000) == 50000);
}
static void set_action(void) {
  struct sigaction action = {.sa_handler = SIG_IGN};
  CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && signal(SIGHUP, SIG_IGN) != SIG_ERR);
}
static void stream_open(void) { with_stream(); }
static void stream_write(void) { CHECK(fwrite(g_bytes, 1, 200, g_stream) == 200); }
static void stream_flush(void) { CHECK(fflush(g_stream) == 0); }
static void stream_flush_all(void) { CHECK(fflush(NULL) == 0); }
static void stream_close(void) { CHECK(fclose(g_stream) == 0); }
static void fork_child(void) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(pwrite(g_fd, "child", 5, 3) == 5);
    if (g_low != NULL) *g_child_end = painted_end();
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}
static void execute_nothing(void) {
  char* arguments[] = {(char*)"./nothing", NULL};
  CHECK(execv("./nothing", arguments) == -1 && errno == ENOENT);
}

extern char** environ;

static void spawn_child(void) {
  pid_t child;
  char* arguments[] = {(char*)g_program, (char*)".", (char*)"nothing", (char*)"-", NULL};
  CHECK(posix_spawn(&child, g_program, NULL, NULL, arguments, environ) == 0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

typedef void (*Step)(void);

static const struct Case {
  const char* name;
  Step prepare;
  Step call;
  int faults;  // the call meets a bad pointer, so a signal comes
} kCases[] = {
    {"first_open", with_nothing, open_new, 0},
    {"open", with_bytes, open_new, 0},
    {"open_again", with_bytes, open_again, 0},
    {"open_reading", with_patches, open_reading, 0},
    {"open_truncating", with_patches, open_cut, 0},
    {"close", with_patches, close_file, 0},
    {"first_write", with_file, write_small, 0},
    {"write_64", with_bytes, write_small, 0},
    {"write_4k", with_bytes, write_page, 0},
    {"write_64k", with_bytes, write_64k, 0},
    {"write_3m", with_file, write_large, 0},
    {"writev_1024", with_file, write_vector, 0},
    {"pwritev_1024", with_file, write_vector_at, 0},
    {"pwritev2_1024", with_file, write_vector_flags, 0},
    {"writev_1024_wide", with_wide_pieces, write_wide_vector, 0},
    {"write_bad_pointer", with_bytes, write_bad, 1},
    {"writev_bad_pointer", with_bytes, write_bad_vector, 1},
    {"writev_bad_array", with_bytes, write_bad_array, 1},
    {"read_64", with_bytes, read_small, 0},
    {"read_4k", with_patches, read_page, 0},
    {"read_4k_old", with_old_file, read_page, 0},
    {"read_3m", with_long_file, read_large, 0},
    {"readv_1024", with_bytes, read_vector_on, 0},
    {"preadv_1024", with_patches, read_vector, 0},
    {"preadv_1024_wide", with_wide_pieces_of_file, read_wide_vector, 0},
    {"read_bad_pointer", with_bytes, read_bad, 1},
    {"fsync", with_patches, sync_file, 0},
    {"sync", with_patches, sync_all, 0},
    {"ftruncate_0", with_patches, cut_all, 0},
    {"ftruncate_1000", with_patches, cut_some, 0},
    {"truncate", with_patches, cut_path, 0},
    {"fallocate", with_patches, allocate, 0},
    {"lseek", with_patches, seek, 0},
    {"lseek_data", with_patches, seek_data, 0},
    {"rename", with_patches, rename_file, 0},
    {"link", with_patches, link_file, 0},
    {"unlink", with_patches, unlink_file, 0},
    {"unlink_closed", with_patches, unlink_closed, 0},
    {"stat", with_patches, stat_path, 0},
    {"fstat", with_patches, stat_descriptor, 0},
    {"statx", with_patches, stat_extended, 0},
    {"chmod", with_patches, change_mode, 0},
    {"dup", with_patches, duplicate, 0},
    {"fcntl", with_patches, control, 0},
    {"mmap", with_patches, map_file, 0},
    {"sendfile", with_patches, send_file, 0},
    {"sigaction", with_bytes, set_action, 0},
    {"fopen", with_bytes, stream_open, 0},
    {"fwrite", with_stream, stream_write, 0},
    {"fflush", with_full_stream, stream_flush, 0},
    {"fflush_all", with_full_stream, stream_flush_all, 0},
    {"fclose", with_full_stream, stream_close, 0},
    {"fork", with_patches, fork_child, 0},
    {"exec", with_patches, execute_nothing, 0},
    {"posix_spawn", with_patches, spawn_child, 0},
    {"stat_after_death", with_dead_process, stat_left, 0},
    {"open_after_death", with_dead_process, open_left, 0},
    {"first_open_after_death", with_dead_process, open_new, 0},
    {"first_open_lost_file", with_lost_file, open_lost, 0},
};
enum { kCaseCount = sizeof(kCases) / sizeof(kCases[0]) };

static const struct Case* find(const char* name) {
  for (size_t i = 0; i < kCaseCount; ++i) {
    if (strcmp(kCases[i].name, name) == 0) return &kCases[i];
  }
  dprintf(2, "no such case: %s\n", name);
  exit(2);
}

// ------------------------------------------------------------------------------------------- Runs

static void* on_stack(void* (*entry)(void*), const void* argument, char* stack, size_t size) {
  pthread_attr_t attributes;
  pthread_t thread;
  void* result;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstack(&attributes, stack, size) == 0);
  CHECK(pthread_create(&thread, &attributes, entry, (void*)argument) == 0);
  CHECK(pthread_join(thread, &result) == 0);
  return result;
}

__attribute__((noinline)) static void* measure(void* argument) {
  const struct Case* c = argument;
  __asm__ volatile("mov %%rsp, %0" : "=r"(g_high));
  for (volatile uint64_t* p = g_low; p < g_high; ++p) *p = kPaint;
  *g_child_end = g_high;
  c->call();
  volatile uint64_t* end = painted_end();
  if (*g_child_end < end) end = *g_child_end;
  return (void*)((char*)g_high - (char*)end);
}

static void* call(void* argument) {
  ((const struct Case*)argument)->call();
  return NULL;
}

static Step g_in_handler;
static void on_signal(int signal) {
  (void)signal;
  g_in_handler();
}

static void in_handler(Step step, size_t size) {
  const stack_t stack = {.ss_sp = guarded(size), .ss_size = size};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
  g_in_handler = step;
  raise(SIGUSR1);
  const stack_t none = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(&none, NULL) == 0);
}

// What the smallest stack is for the kernel, and for libc, which may keep thread-local storage
// there.
static size_t frame_of_signal(void) {
  const unsigned long size = getauxval(AT_MINSIGSTKSZ);
  return size > 2048 ? size : 2048;
}

// ------------------------------------------------------------------------------------- Overflows

static sigjmp_buf g_out_of_it;
static volatile sig_atomic_t g_overflows;

static void on_overflow(int signal, siginfo_t* info, void* context) {
  (void)signal, (void)info, (void)context;
  ++g_overflows;
  siglongjmp(g_out_of_it, 1);
}

static char* g_end;  // the stack's lowest byte

// Goes down until so much is left of the stack, and writes there.
__attribute__((noinline)) static void write_with(size_t left) {
  volatile char room[256];
  room[0] = 1;
  if ((size_t)((char*)__builtin_frame_address(0) - g_end) > left + 512) {
    write_with(left);
  } else {
    CHECK(pwritev(g_fd, g_out, kPieces, 0) == kPieces);
  }
  room[1] = room[0];
}

// A call may be made anywhere near the end of the stack: it is done, or the program hears of the
// overflow. In a child each, for who has left a call by a jump must not make another one.
static void* overflow(void* argument) {
  char* stack = argument;
  const stack_t alternate = {.ss_sp = stack, .ss_size = kRoomy};
  struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_ONSTACK | SA_SIGINFO};
  CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
  void* wrong = NULL;
  for (size_t left = 0; left < 40000; left += 480) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(5);
      g_fd = open_for_writing("overflow", 0);
      if (sigsetjmp(g_out_of_it, 1) == 0) write_with(left);
      if (!is_below_untouched(g_end)) raise(SIGABRT);
      by_hand(SYS_exit_group, NULL);  // what was left by a jump may hold locks
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
      printf("with %zu bytes of stack left: signal %d\n", left, WTERMSIG(status));
      wrong = "";
    }
  }
  return wrong;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  char program[PATH_MAX];
  CHECK(realpath("/proc/self/exe", program) != NULL);
  g_program = program;
  CHECK(chdir(arguments[1]) == 0);
  for (size_t i = 0; i < kLarge; ++i) g_bytes[i] = (char)(i * 7 + i / 251);
  const char* mode = arguments[2];
  if (strcmp(mode, "nothing") == 0) return 0;
  if (strcmp(mode, "cases") == 0) {
    for (size_t i = 0; i < kCaseCount; ++i) puts(kCases[i].name);
    return 0;
  }
  if (strcmp(mode, "overflow") == 0) {
    with_nothing();
    g_end = guarded(kRoomy);
    return on_stack(overflow, guarded(kRoomy), g_end, kRoomy) != NULL;
  }
  if (count < 4) return 2;
  if (strcmp(mode, "die") == 0) die(arguments[3]);

  const struct Case* c = find(arguments[3]);
  c->prepare();
  if (strcmp(mode, "measure") == 0) {
    char* stack = guarded(kRoomy);
    g_low = (volatile uint64_t*)stack;
    g_child_end = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK((void*)g_child_end != MAP_FAILED);
    void* used = on_stack(measure, c, stack, kRoomy);
    printf("%zu %zu\n", (size_t)used, c->faults ? frame_of_signal() : 0);
    return 0;
  }
  if (strcmp(mode, "smallest") == 0) {
    on_stack(call, c, guarded(kSmallest), kSmallest);
    return 0;
  }
  if (strcmp(mode, "handler") == 0) {
    in_handler(c->call, kAlternate);
    return 0;
  }
  if (strcmp(mode, "tight") == 0) {
    in_handler(c->call, frame_of_signal() + kHandlerRoom);
    return 0;
  }
  return 2;
}
