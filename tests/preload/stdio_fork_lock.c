// SPDX-License-Identifier: BSD-3-Clause
//
// One thread holds a stream's lock, a second one flushes all streams and waits for that with libc's
// list of streams locked, a third one forks and waits for the list. Whatever file call the first
// one makes now, it must not wait for the fork: one that fails with EFBIG has its file taken out of
// the cache, and others open, rename and close.
#include "tests/kit/program.h"

enum { kLimit = 8192, kPatience = 20 /* seconds */ };

static FILE* g_stream;
static atomic_int g_flusher;  // its number
static atomic_int g_locked, g_may_fork;

// Opens what says whether a thread of ours sleeps, and in which call.
static int watch(int thread) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", thread);
  return open(path, O_RDONLY);
}

static void await_futex(int watched) {
  char text[64];
  for (int seen = 0; seen < 3;) {
    const ssize_t n = pread(watched, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    seen = atoi(text) == SYS_futex ? seen + 1 : 0;
    usleep(1000);
  }
}

static void* flush_all(void* unused) {
  while (!atomic_load(&g_locked)) continue;
  atomic_store(&g_flusher, gettid());
  fflush(NULL);
  return unused;
}

static void write_too_much(void) {
  static char bytes[2 * kLimit];
  memset(bytes, 'x', sizeof(bytes));
  const size_t n = fwrite_unlocked(bytes, 1, sizeof(bytes), g_stream);
  const int flushed = fflush_unlocked(g_stream);
  printf("too much: %s, %s\n", n == sizeof(bytes) && flushed == 0 ? "taken" : strerror(errno),
         ferror_unlocked(g_stream) ? "an error" : "no error");
}

static void use_other_files(void) {
  const int fd = created("b");
  const int written = write(fd, "0123456789", 10) == 10 && ftruncate(fd, 5) == 0;
  const int renamed = rename("b", "c") == 0 && unlink("c") == 0;
  printf("others: %d %d %d\n", written, renamed, close(fd));
}

static void (*const kCalls[])(void) = {write_too_much, use_other_files};

static void* hold_stream(void* call) {
  flockfile(g_stream);
  const int main_thread = watch(getpid());
  atomic_store(&g_locked, 1);
  while (atomic_load(&g_flusher) == 0) continue;
  const int flusher = watch(atomic_load(&g_flusher));
  await_futex(flusher);
  atomic_store(&g_may_fork, 1);
  await_futex(main_thread);
  kCalls[(long)call]();
  funlockfile(g_stream);
  return NULL;
}

// In a process of its own; the alarm's default action ends one that hangs.
static int run(long call) {
  alarm(kPatience);
  g_stream = fopen("a", "w+");
  fputs("begin", g_stream);
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, hold_stream, (void*)call);
  pthread_create(&threads[1], NULL, flush_all, NULL);
  while (!atomic_load(&g_may_fork)) continue;
  const pid_t child = fork();
  // The child has no other thread: whatever they have locked is free.
  if (child == 0) _exit(fflush(NULL) == 0 && fclose(fopen("/dev/null", "w")) == 0 ? 0 : 1);
  int status = 1;
  if (waitpid(child, &status, 0) != child) return 2;
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
  struct stat st;
  if (fclose(g_stream) == 0 && stat("a", &st) == 0) printf("size: %d\n", (int)st.st_size);
  return status == 0 ? 0 : 3;
}

// With one thread libc itself locks nothing.
static int fork_alone(void) {
  const pid_t child = fork();
  if (child == 0) _exit(fflush(NULL) == 0 ? 0 : 1);
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0 && fflush(NULL) == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  enter(argc, argv);
  signal(SIGXFSZ, SIG_IGN);
  // The pool is made by the first open for writing, and larger than the limit.
  close(open("first", O_WRONLY | O_CREAT, 0644));
  const struct rlimit limit = {kLimit, kLimit};
  setrlimit(RLIMIT_FSIZE, &limit);
  static const char* const names[] = {"a write beyond the limit", "other files", "alone"};
  for (long call = 0; call < 3; ++call) {
    const pid_t process = fork();
    if (process == 0) _exit(call < 2 ? run(call) : fork_alone());
    int status = 1;
    waitpid(process, &status, 0);
    printf("%s: status %#x%s\n", names[call], status, status == SIGALRM ? ", hangs" : "");
  }
  // The last one that has the pool has something in the log: its counters begin anew with each.
  const int last = created("last");
  printf("last: %d\n", (int)write(last, "0123456789", 10));
  close(last);
  return 0;
}
