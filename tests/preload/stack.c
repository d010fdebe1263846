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
//                                 of a signal and little more
//   stack FOLDER overflow         calls near the end of a stack: it holds, or the program's handler
//                                 is told; what lies below the guard page stays as it is
//   stack FOLDER cases            prints the names of all cases
//
// stack_test.py runs all of it without the library and with it.
#define _GNU_SOURCE
#include <limits.h>
#include <setjmp.h>
#include <sys/auxv.h>

#include "libc.h"
#include "tests/kit/program.h"

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
  if (child == 0) {
    execl(g_program, g_program, ".", "die", lost ? "lost" : "left", (char*)NULL);
    _exit(1);
  }
  CHECK(WIFSIGNALED(status_of(child)));
  if (!lost) return;
  CHECK(by_hand(SYS_unlink, (long)"lost", 0, 0) == 0);
}
static void with_dead_process(void) { with_dead(0); }
static void with_lost_file(void) { with_dead(1); }

static void die(const char* name) {
  const int fd = open_for_writing(name, 0);
  for (int i = 0; i < 64; ++i) CHECK(pwrite(fd, g_bytes, 5000, (63 - i) * 7000L) == 5000);
  raise(SIGKILL);
}

static void write_bad_vector(void) {
  g_out[700].iov_base = (void*)8;
  CHECK(writev(g_fd, g_out, kPieces) == 700);
}
static void write_bad_array(void) {
  struct iovec* bad = (struct iovec*)8;
  __asm__("" : "+r"(bad));
  CHECK(writev(g_fd, bad, kPieces) == -1 && errno == EFAULT);
}
static void read_vector_on(void) {
  lseek(g_fd, 0, SEEK_SET);
  CHECK(readv(g_fd, g_in, kPieces) == kPieces);
}
static void read_bad(void) {
  void* bad = (void*)8;
  __asm__("" : "+r"(bad));
  CHECK(pread(g_fd, bad, 5000, 0) == -1 && errno == EFAULT);
}
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
static void fork_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    CHECK(pwrite(g_fd, "child", 5, 3) == 5);
    if (g_low != NULL) *g_child_end = painted_end();
    _exit(0);
  }
  CHECK(status_of(child) == 0);
}
static void execute_nothing(void) {
  char* arguments[] = {(char*)"./nothing", NULL};
  CHECK(execv("./nothing", arguments) == -1 && errno == ENOENT);
}

static void spawn_child(void) {
  pid_t child;
  char* arguments[] = {(char*)g_program, (char*)".", (char*)"nothing", (char*)"-", NULL};
  CHECK(posix_spawn(&child, g_program, NULL, NULL, arguments, environ) == 0);
  CHECK(status_of(child) == 0);
}

typedef void (*Step)(void);

// Of each its name, what comes before it, whether it meets a bad pointer, so that a signal comes,
// and the call.
#define CASES(CASE)                                                                            \
  CASE(first_open, with_nothing, 0, g_fd = open_for_writing("new", 0))                         \
  CASE(open, with_bytes, 0, g_fd = open_for_writing("new", 0))                                 \
  CASE(open_again, with_bytes, 0, open_for_writing("file", 0))                                 \
  CASE(open_reading, with_patches, 0, CHECK(open("file", O_RDONLY) >= 0))                      \
  CASE(open_truncating, with_patches, 0, open_for_writing("file", O_TRUNC))                    \
  CASE(close, with_patches, 0, CHECK(close(g_fd) == 0))                                        \
  CASE(first_write, with_file, 0, CHECK(pwrite(g_fd, g_bytes, 64, 10) == 64))                  \
  CASE(write_64, with_bytes, 0, CHECK(pwrite(g_fd, g_bytes, 64, 10) == 64))                    \
  CASE(write_4k, with_bytes, 0, CHECK(write(g_fd, g_bytes, 4096) == 4096))                     \
  CASE(write_64k, with_bytes, 0, CHECK(pwrite(g_fd, g_bytes, 65536, 100) == 65536))            \
  CASE(write_3m, with_file, 0, CHECK(pwrite(g_fd, g_bytes, kLarge, 100) == kLarge))            \
  CASE(writev_1024, with_file, 0, CHECK(writev(g_fd, g_out, kPieces) == kPieces))              \
  CASE(pwritev_1024, with_file, 0, CHECK(pwritev(g_fd, g_out, kPieces, 5000) == kPieces))      \
  CASE(pwritev2_1024, with_file, 0, CHECK(pwritev2(g_fd, g_out, kPieces, 5000, 0) == kPieces)) \
  CASE(writev_1024_wide, with_wide_pieces, 0,                                                  \
       CHECK(writev(g_fd, g_out, kPieces) == kPieces * 2048))                                  \
  CASE(write_bad_pointer, with_bytes, 1,                                                       \
       CHECK(write(g_fd, (void*)8, 5000) == -1 && errno == EFAULT))                            \
  CASE(writev_bad_pointer, with_bytes, 1, write_bad_vector())                                  \
  CASE(writev_bad_array, with_bytes, 1, write_bad_array())                                     \
  CASE(read_64, with_bytes, 0, CHECK(pread(g_fd, g_read, 64, 10) == 64))                       \
  CASE(read_4k, with_patches, 0, CHECK(pread(g_fd, g_read, 4096, 4096) == 4096))               \
  CASE(read_4k_old, with_old_file, 0, CHECK(pread(g_fd, g_read, 4096, 4096) == 4096))          \
  CASE(read_3m, with_long_file, 0, CHECK(pread(g_fd, g_read, kLarge, 0) == kLarge))            \
  CASE(readv_1024, with_bytes, 0, read_vector_on())                                            \
  CASE(preadv_1024, with_patches, 0, CHECK(preadv(g_fd, g_in, kPieces, 0) == kPieces))         \
  CASE(preadv_1024_wide, with_wide_pieces_of_file, 0,                                          \
       CHECK(preadv(g_fd, g_in, kPieces, 0) == kPieces * 2048))                                \
  CASE(read_bad_pointer, with_bytes, 1, read_bad())                                            \
  CASE(fsync, with_patches, 0, CHECK(fsync(g_fd) == 0))                                        \
  CASE(sync, with_patches, 0, sync())                                                          \
  CASE(ftruncate_0, with_patches, 0, CHECK(ftruncate(g_fd, 0) == 0))                           \
  CASE(ftruncate_1000, with_patches, 0, CHECK(ftruncate(g_fd, 1000) == 0))                     \
  CASE(truncate, with_patches, 0, CHECK(truncate("file", 1000) == 0))                          \
  CASE(fallocate, with_patches, 0, CHECK(fallocate(g_fd, 0, 0, 200000) == 0))                  \
  CASE(lseek, with_patches, 0, CHECK(lseek(g_fd, 0, SEEK_END) >= 0))                           \
  CASE(lseek_data, with_patches, 0, CHECK(lseek(g_fd, 0, SEEK_DATA) >= 0))                     \
  CASE(rename, with_patches, 0, CHECK(rename("file", "renamed") == 0))                         \
  CASE(link, with_patches, 0, CHECK(link("file", "linked") == 0))                              \
  CASE(unlink, with_patches, 0, CHECK(unlink("file") == 0))                                    \
  CASE(unlink_closed, with_patches, 0, unlink_closed())                                        \
  CASE(stat, with_patches, 0, stat_path())                                                     \
  CASE(fstat, with_patches, 0, stat_descriptor())                                              \
  CASE(statx, with_patches, 0, stat_extended())                                                \
  CASE(chmod, with_patches, 0, CHECK(chmod("file", 0600) == 0))                                \
  CASE(dup, with_patches, 0, CHECK(dup2(g_fd, 100) == 100 && dup(g_fd) >= 0))                  \
  CASE(fcntl, with_patches, 0, CHECK(fcntl(g_fd, F_DUPFD_CLOEXEC, 50) >= 50))                  \
  CASE(mmap, with_patches, 0, map_file())                                                      \
  CASE(sendfile, with_patches, 0, send_file())                                                 \
  CASE(sigaction, with_bytes, 0, set_action())                                                 \
  CASE(fopen, with_bytes, 0, with_stream())                                                    \
  CASE(fwrite, with_stream, 0, CHECK(fwrite(g_bytes, 1, 200, g_stream) == 200))                \
  CASE(fflush, with_full_stream, 0, CHECK(fflush(g_stream) == 0))                              \
  CASE(fflush_all, with_full_stream, 0, CHECK(fflush(NULL) == 0))                              \
  CASE(fclose, with_full_stream, 0, CHECK(fclose(g_stream) == 0))                              \
  CASE(fork, with_patches, 0, fork_child())                                                    \
  CASE(exec, with_patches, 0, execute_nothing())                                               \
  CASE(posix_spawn, with_patches, 0, spawn_child())                                            \
  CASE(stat_after_death, with_dead_process, 0, stat_left())                                    \
  CASE(open_after_death, with_dead_process, 0, CHECK(open("left", O_RDONLY) >= 0))             \
  CASE(first_open_after_death, with_dead_process, 0, g_fd = open_for_writing("new", 0))        \
  CASE(first_open_lost_file, with_lost_file, 0, CHECK(open("other", O_RDWR | O_CREAT, 0644) >= 0))

#define CALL_OF(name, prepare, faults, ...) \
  static void call_##name(void) { __VA_ARGS__; }
CASES(CALL_OF)

#define ROW(name, prepare, faults, ...) {#name, prepare, call_##name, faults},
static const struct Case {
  const char* name;
  Step prepare;
  Step call;
  int faults;
} kCases[] = {CASES(ROW)};
enum { kCaseCount = COUNT(kCases) };

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

// In a function of its own: no variable is in use across the jump.
static void write_or_overflow(size_t left) {
  alarm(5);
  g_fd = open_for_writing("overflow", 0);
  if (sigsetjmp(g_out_of_it, 1) == 0) write_with(left);
  if (!is_below_untouched(g_end)) raise(SIGABRT);
  by_hand(SYS_exit_group, 0, 0, 0);  // what was left by a jump may hold locks
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
    if (child == 0) write_or_overflow(left);
    const int status = status_of(child);
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
