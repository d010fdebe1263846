// SPDX-License-Identifier: BSD-3-Clause
//
// Threads that end in the middle: cancelled at a call, cancelled at any instruction, by
// pthread_exit; and what they still write while they go.
#include "tests/kit/program.h"

enum { kRecord = 100, kRounds = 400 };

static int g_fd;

static void check(const char* what, int good) {
  if (!good) printf("%s: wrong, errno %d\n", what, errno);
}

static void sleep_us(long us) {
  const struct timespec t = {0, us * 1000};
  nanosleep(&t, NULL);
}

// Starts, cancels, joins; prints whether the thread was cancelled.
static void cancel(const char* what, void* (*run)(void*), void* argument, long us) {
  pthread_t thread;
  void* result = NULL;
  pthread_create(&thread, NULL, run, argument);
  sleep_us(us);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  printf("%s: %s\n", what, result == PTHREAD_CANCELED ? "cancelled" : "went on");
}

// ---------------------------------------------------------------------------------------------
// Calls that sleep in the kernel.

// Two ways to wait for the same lock. The first is no cancellation point in musl.
#ifdef __GLIBC__
enum { kWaitForLock = F_OFD_SETLKW };
#else
enum { kWaitForLock = F_SETLKW };
#endif

static int g_pipe[2];
static atomic_int g_cleaned;

static void clean(void* unused) {
  (void)unused;
  check("write in a cleanup handler", write(g_fd, "cleanup\n", 8) == 8);
  atomic_fetch_add(&g_cleaned, 1);
}

#define WITH_CLEANUP(name, ...)        \
  static void* name(void* unused) {    \
    pthread_cleanup_push(clean, NULL); \
    __VA_ARGS__;                       \
    pthread_cleanup_pop(0);            \
    return unused;                     \
  }

static char g_much[1 << 20];

WITH_CLEANUP(read_pipe, ssize_t n = read(g_pipe[0], (char[1]){0}, 1); (void)n)
WITH_CLEANUP(
    write_pipe, for (;;) {
      ssize_t n = write(g_pipe[1], g_much, sizeof(g_much));
      (void)n;
    })
WITH_CLEANUP(open_fifo, close(open("fifo", O_RDONLY)))
WITH_CLEANUP(truncate_fifo, close(open("fifo", O_WRONLY | O_TRUNC)))
WITH_CLEANUP(wait_for_lock, struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
             int fd = open("locked", O_RDWR); fcntl(fd, kWaitForLock, &lock))
// Cancelled before the call: the data must not move, and the call never returns.
WITH_CLEANUP(write_cancelled, pthread_cancel(pthread_self());
             check("cancelled write", write(g_fd, "never\n", 6) == -2))
WITH_CLEANUP(read_cancelled, pthread_cancel(pthread_self());
             check("cancelled read", pread(g_fd, (char[1]){0}, 1, 0) == -2))
WITH_CLEANUP(sync_cancelled, pthread_cancel(pthread_self()); check("fsync", fsync(g_fd) == -2))
WITH_CLEANUP(leave, pthread_exit(PTHREAD_CANCELED))

static void check_deferred(void) {
  if (pipe(g_pipe) != 0 || mkfifo("fifo", 0644) != 0) exit(1);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  const int locked = open("locked", O_RDWR | O_CREAT, 0644);
  check("lock", fcntl(locked, F_OFD_SETLK, &lock) == 0);
  cancel("read from a pipe", read_pipe, NULL, 20000);
  cancel("write to a full pipe", write_pipe, NULL, 20000);
  cancel("open of a fifo", open_fifo, NULL, 20000);
  cancel("open of a fifo, truncating", truncate_fifo, NULL, 20000);
  cancel("wait for a lock", wait_for_lock, NULL, 20000);
  cancel("write", write_cancelled, NULL, 0);
  cancel("pread", read_cancelled, NULL, 0);
  cancel("fsync", sync_cancelled, NULL, 0);
  cancel("pthread_exit", leave, NULL, 0);
  printf("cleanup handlers: %d\n", atomic_load(&g_cleaned));
  close(locked);
  unlink("fifo");
}

// ---------------------------------------------------------------------------------------------
// At any instruction. A lock that the thread has left behind would stop everybody.

static atomic_long g_begun, g_acknowledged, g_ended;

static void at_end(void* unused) {
  (void)unused;
  check("append after a cancellation", write(g_fd, "end\n", 4) == 4);
  atomic_fetch_add(&g_ended, 1);
}

static void* write_for_ever(void* kind) {
  char record[kRecord];
  memset(record, 'r', kRecord);
  int old = -1;
  pthread_cleanup_push(at_end, NULL);
  check("setcanceltype", pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0);
  check("type before", old == PTHREAD_CANCEL_DEFERRED);
  for (long i = 0;; ++i) {
    atomic_fetch_add(&g_begun, 1);
    if (kind == NULL) {
      check("pwrite", pwrite(g_fd, record, kRecord, 1 << 20) == kRecord);
    } else {
      check("pread", pread(g_fd, record, kRecord, 0) == kRecord);
      check("ftruncate", i % 8 != 0 || ftruncate(g_fd, 1 << 21) == 0);
    }
    atomic_fetch_add(&g_acknowledged, 1);
  }
  pthread_cleanup_pop(0);
  return NULL;
}

static void* compute_for_ever(void* unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  check("pwrite", pwrite(g_fd, "x", 1, 1 << 20) == 1);
  for (volatile long i = 0;; ++i) {
  }
  return unused;
}

static void* change_type(void* unused) {
  int old = -1;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  check("pwrite", pwrite(g_fd, "x", 1, 1 << 20) == 1);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
  check("asynchronous before", old == PTHREAD_CANCEL_ASYNCHRONOUS);
  check("pwrite", pwrite(g_fd, "x", 1, 1 << 20) == 1);
  check("no such type", pthread_setcanceltype(4711, NULL) == EINVAL);
  check("pwrite", pwrite(g_fd, "x", 1, 1 << 20) == 1);
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
  check("deferred before", old == PTHREAD_CANCEL_DEFERRED);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  pthread_cancel(pthread_self());
  check("not cancelled", pwrite(g_fd, "x", 1, 1 << 20) == 1);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  check("cancelled", pwrite(g_fd, "y", 1, 1 << 20) == -2);
  return unused;
}

static void check_asynchronous(void) {
  cancel("a loop", compute_for_ever, NULL, 10000);
  cancel("changing the type", change_type, NULL, 10000);
  int cancelled = 0;
  for (int i = 0; i < kRounds; ++i) {
    pthread_t threads[2];
    for (long kind = 0; kind < 2; ++kind) {
      pthread_create(&threads[kind], NULL, write_for_ever, (void*)kind);
    }
    sleep_us(50 + i % 10 * 97);
    for (int kind = 0; kind < 2; ++kind) {
      void* result = NULL;
      pthread_cancel(threads[kind]);
      pthread_join(threads[kind], &result);
      cancelled += result == PTHREAD_CANCELED;
    }
    // Would wait for ever.
    check("append", write(g_fd, "main\n", 5) == 5);
    check("ftruncate", ftruncate(g_fd, 1 << 21) == 0);
  }
  printf("cancelled: %d\n", cancelled);
  // The compiler's tables know calls, not every instruction: glibc alone loses a few, too.
  check("cleanup handlers", atomic_load(&g_ended) * 10 >= cancelled * 9L);
  const long lost = atomic_load(&g_begun) - atomic_load(&g_acknowledged);
  check("one call each", lost >= 0 && lost <= cancelled);
  check("some work", atomic_load(&g_acknowledged) > 0);
}

// ---------------------------------------------------------------------------------------------

static void destroy(void* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0644);
  check("destructor", fd >= 0 && write(fd, name, strlen(name)) > 0 && close(fd) == 0);
  check("destructor, shared", write(g_fd, "destructor\n", 11) == 11);
}

static void* with_key(void* key) {
  pthread_setspecific(*(pthread_key_t*)key, "key");
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  for (;;) check("pwrite", pwrite(g_fd, "z", 1, 1 << 20) == 1);
  return NULL;
}

int main(int argc, char** argv) {
  enter(argc, argv);
  // One file becomes hot, so there is a pool; by the default rule, the other one stays the
  // kernel's.
  const int hot = created("hot");
  for (int i = 0; i < 3; ++i) check("hot", write(hot, "h", 1) == 1 && fsync(hot) == 0);
  close(hot);
  g_fd = created("log");
  check_deferred();
  char back[200] = {0};
  const ssize_t n = pread(g_fd, back, sizeof(back) - 1, 0);
  printf("%zd bytes:\n%s", n, back);
  check("record", pwrite(g_fd, g_much, kRecord, 0) == kRecord);
  check_asynchronous();
  pthread_key_t key;
  pthread_key_create(&key, destroy);
  for (int i = 0; i < 10; ++i) cancel("with a key", with_key, &key, 1000);
  check("end", ftruncate(g_fd, 0) == 0 && close(g_fd) == 0);
  return 0;
}
