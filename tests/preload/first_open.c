// SPDX-License-Identifier: BSD-3-Clause
//
// The first open for writing starts the cache, wherever it is made: under the loader's lock, in a
// library's constructor, while another thread makes it, too; and in a handler that interrupted
// malloc. Whatever the library does then, it must take none of libc's locks and ask for no memory.
// The same is asked of every other file call, and of the second start after a failed exec.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/kit/program.h"

enum { kRuns = 30, kPatience = 20 /* seconds */, kHeap = 64 << 20 };

static void say(const char* text) {
  if (write(1, text, strlen(text)) < 0) abort();
}

// ---------------------------------------------------------------------------------------------
// A malloc with a lock that its own thread must not take again. Nothing is freed.

static _Alignas(64) char g_heap[kHeap];
static size_t g_used;
static atomic_int g_holder;  // a thread's number; 0: free
static atomic_int g_signal_due;
static atomic_int g_asked;  // for memory, by the thread that has the lock

static void lock_heap(void) {
  const int self = gettid();
  int free_now = 0;
  if (atomic_load(&g_holder) == self) {
    // Waiting for oneself, as libc's own would. Exiting would wait as well.
    atomic_store(&g_asked, 1);
    say("memory is asked for while malloc's lock is held\n");
    raise(SIGKILL);
  }
  while (!atomic_compare_exchange_strong(&g_holder, &free_now, self)) free_now = 0;
  if (atomic_exchange(&g_signal_due, 0)) raise(SIGUSR1);
}

static void unlock_heap(void) { atomic_store(&g_holder, 0); }

void* malloc(size_t size) {
  lock_heap();
  const size_t at = g_used + 16;
  void* block = NULL;
  if (size < kHeap - at) {
    memcpy(g_heap + g_used, &size, sizeof(size));
    g_used = at + (size + 15) / 16 * 16;
    block = g_heap + at;
  }
  unlock_heap();
  return block;
}

void free(void* block) {
  (void)block;
  lock_heap();
  unlock_heap();
}

void* calloc(size_t count, size_t size) { return malloc(count * size); }

void* realloc(void* old, size_t size) {
  void* block = malloc(size);
  size_t before = 0;
  if (old != NULL) memcpy(&before, (char*)old - 16, sizeof(before));
  if (block != NULL && old != NULL) memcpy(block, old, before < size ? before : size);
  return block;
}

// ---------------------------------------------------------------------------------------------
// What is async-signal-safe and meets the cache.

#define EXPECT(condition)                             \
  do {                                                \
    if (!(condition)) say("wrong: " #condition "\n"); \
  } while (0)

static void use_files(const char* name, const char* other) {
  char bytes[8];
  struct stat st;
  const int fd = created(name);
  EXPECT(write(fd, "01234567", 8) == 8 && pwrite(fd, "x", 1, 3) == 1);
  EXPECT(pread(fd, bytes, 8, 0) == 8 && memcmp(bytes, "012x4567", 8) == 0);
  EXPECT(lseek(fd, 0, SEEK_END) == 8 && fsync(fd) == 0 && ftruncate(fd, 6) == 0);
  EXPECT(fstat(fd, &st) == 0 && st.st_size == 6 && stat(name, &st) == 0 && st.st_size == 6);
  const int copy = dup(fd);
  EXPECT(copy >= 0 && fcntl(copy, F_SETFD, FD_CLOEXEC) == 0 && close(fd) == 0);
  EXPECT(rename(name, other) == 0 && link(other, name) == 0 && unlink(other) == 0);
  // The cache is left, and started once more.
  char* const none[] = {NULL};
  EXPECT(execve("/there/is/no/such/program", none, none) == -1);
  const int again = open(name, O_RDWR);
  EXPECT(write(again, "again", 5) == 5 && close(again) == 0 && close(copy) == 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

// ---------------------------------------------------------------------------------------------
// In a handler that interrupted malloc.

static atomic_int g_handled;

static void on_signal(int number) {
  (void)number;
  const int saved = errno;
  use_files("handler", "handler.other");
  atomic_store(&g_handled, 1);
  errno = saved;
}

static int in_malloc(void) {
  signal(SIGUSR1, on_signal);
  atomic_store(&g_signal_due, 1);
  void* volatile block = malloc(100);
  free(block);
  return atomic_load(&g_handled) ? 0 : 1;
}

// ---------------------------------------------------------------------------------------------
// In a constructor, under the loader's lock.

static atomic_int g_in_constructor;
static atomic_int g_other_thread;  // its number
static atomic_int g_other_done;

// The other thread has done all, or sleeps in futex(), perhaps for the loader's lock.
static int waits_or_is_done(void) {
  char path[64], text[64];
  for (int seen = 0; seen < 3;) {
    if (atomic_load(&g_other_done)) return 1;
    const int thread = atomic_load(&g_other_thread);
    if (thread == 0) continue;
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
    const int fd = open(path, O_RDONLY);
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    seen = atoi(text) == SYS_futex ? seen + 1 : 0;
    usleep(1000);
  }
  return 0;
}

// By the constructor of the library.
void in_constructor(void) {
  atomic_store(&g_in_constructor, 1);
  waits_or_is_done();
  use_files("constructor", "constructor.other");
}

static void* open_meanwhile(void* unused) {
  while (!atomic_load(&g_in_constructor)) continue;
  atomic_store(&g_other_thread, gettid());
  use_files("thread", "thread.other");
  atomic_store(&g_other_done, 1);
  return unused;
}

static int under_loader(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, open_meanwhile, NULL) != 0) return 1;
  void* library = dlopen("libpreload_first_open_library.so", RTLD_NOW);
  if (library == NULL) return 2;
  pthread_join(thread, NULL);
  return 0;
}

// ---------------------------------------------------------------------------------------------

// libpmem is of use with persistent memory only, and there is none here.
static int libpmem_is_loaded(void) {
  return dlopen("libpmem.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL ? 1 : 0;
}

static int stay_light(void) {
  use_files("light", "light.other");
  return libpmem_is_loaded();
}

// Each in a process of its own, whose first open for writing it makes.
static void check(const char* what, int (*function)(void)) {
  int good = 0, status = 0;
  for (int i = 0; i < kRuns && status == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatience);
      _exit(function());
    }
    if (waitpid(child, &status, 0) == child && status == 0) ++good;
  }
  char line[100];
  snprintf(line, sizeof(line), "%s: %d of %d, status %#x%s\n", what, good, kRuns, status,
           status == SIGALRM ? ", hangs" : "");
  say(line);
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  check("in a handler that interrupted malloc", in_malloc);
  check("in a constructor under the loader's lock", under_loader);
  check("without libpmem", stay_light);
  return 0;
}
