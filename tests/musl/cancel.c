/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Cancellation: prints what happens, the same with a front end and without. */
#define _GNU_SOURCE
#include <semaphore.h>

#include "fake.h"
#include "tests/kit/program.h"

enum { kMasked = 2 }; /* PTHREAD_CANCEL_MASKED of musl */

static int ends[2];
static sem_t ready, go;
static volatile long steps;
static long outcome;
static int error;
static int null;

static pthread_t Start(void* (*body)(void*)) {
  pthread_t thread;
  outcome = error = 0;
  CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
  return thread;
}

static void Finish(const char* name, pthread_t thread) {
  void* result;
  CHECK(pthread_join(thread, &result) == 0);
  printf("%s: %s, %ld, %s\n", name, result == PTHREAD_CANCELED ? "cancelled" : "ended", outcome,
         error ? strerror(error) : "-");
}

/* Until `thread` sleeps in the kernel: its state is in its stat file. */
static void AwaitSleep(long tid) {
  char path[64], text[256];
  snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", tid);
  for (;;) {
    const int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    const ssize_t size = read(fd, text, sizeof(text) - 1);
    CHECK(size > 0);
    close(fd);
    text[size] = 0;
    if (strstr(text, ") S ")) return;
    sched_yield();
  }
}

static volatile long reader;

static void Read(void) {
  char byte;
  reader = syscall(SYS_gettid);
  sem_post(&ready);
  outcome = read(ends[0], &byte, 1);
  error = outcome < 0 ? errno : 0;
}

static void* Blocked(void* unused) {
  Read();
  return unused;
}

static void* BlockedDisabled(void* unused) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  Read();
  return unused;
}

static void* BlockedDisabledThenTest(void* unused) {
  BlockedDisabled(unused);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  pthread_testcancel();
  return unused;
}

static void* BlockedMasked(void* unused) {
  pthread_setcancelstate(kMasked, NULL);
  Read();
  return unused;
}

static void* Pending(void* unused) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  sem_post(&ready);
  while (sem_wait(&go) != 0) continue;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  outcome = write(ends[1], "x", 1);
  return unused;
}

static void* PendingMaskedClose(void* unused) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  sem_post(&ready);
  while (sem_wait(&go) != 0) continue;
  const int copy = dup(null);
  pthread_setcancelstate(kMasked, NULL);
  outcome = close(copy);
  const ssize_t written = write(null, "x", 1);
  error = written < 0 ? errno : 0;
  return unused;
}

static void* AsyncCalls(void* unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  sem_post(&ready);
  for (;;) {
    lseek(null, 0, SEEK_CUR);
    fcntl(null, F_GETFL);
  }
  return unused;
}

static void* AsyncLoop(void* unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  sem_post(&ready);
  for (;;) steps++;
  return unused;
}

static void* AsyncFork(void* unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  sem_post(&ready);
  for (;;) {
    const pid_t child = _Fork();
    if (child == 0) _exit(0);
    outcome = child > 0;
  }
  return unused;
}

static void* AsyncOnce(void* unused) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  lseek(null, 0, SEEK_CUR);
  outcome = 1; /* never reached */
  return unused;
}

static void Cleanup(void* fd) {
  char byte = 'c';
  outcome = write(*(int*)fd, &byte, 1);
}

static void* Handler(void* unused) {
  pthread_cleanup_push(Cleanup, &null);
  Read();
  pthread_cleanup_pop(0);
  return unused;
}

static void CancelBlocked(const char* name, void* (*body)(void*), int unblock) {
  const pthread_t thread = Start(body);
  sem_wait(&ready);
  AwaitSleep(reader);
  pthread_cancel(thread);
  if (unblock) CHECK(write(ends[1], "x", 1) == 1);
  Finish(name, thread);
}

static void CancelPending(const char* name, void* (*body)(void*)) {
  const pthread_t thread = Start(body);
  sem_wait(&ready);
  pthread_cancel(thread);
  const long before = HasFake() ? fake.offers[SYS_write] : 0;
  sem_post(&go);
  Finish(name, thread);
  CHECK(!HasFake() || fake.offers[SYS_write] == before);
}

static void CancelRunning(const char* name, void* (*body)(void*), int times) {
  for (int i = 0; i < times; i++) {
    const pthread_t thread = Start(body);
    sem_wait(&ready);
    pthread_cancel(thread);
    void* result;
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  }
  printf("%s: cancelled\n", name);
}

/* The cancellation comes while the front end answers: it is let finish. */
static void CancelInside(void) {
  if (HasFake()) {
    const enum fake_answer answer = fake.answer;
    fake.answer = kHoldHeld;
    fake.held = SYS_lseek;
    const pthread_t thread = Start(AsyncOnce);
    while (!__atomic_load_n(&fake.inside, __ATOMIC_SEQ_CST)) sched_yield();
    pthread_cancel(thread);
    __atomic_store_n(&fake.release, 1, __ATOMIC_SEQ_CST);
    void* result;
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(fake.finished == 1 && outcome == 0);
    fake.answer = answer;
  }
  puts("inside an offer: cancelled");
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* nothing is left for a child to write */
  CHECK(pipe(ends) == 0);
  CHECK((null = open("/dev/null", O_RDWR)) >= 0);
  sem_init(&ready, 0, 0);
  sem_init(&go, 0, 0);
  CancelBlocked("deferred", Blocked, 0);
  CancelBlocked("disabled", BlockedDisabled, 1);
  CancelBlocked("disabled, then tested", BlockedDisabledThenTest, 1);
  CancelBlocked("masked", BlockedMasked, 0);
  CancelBlocked("with a handler", Handler, 0);
  CancelPending("pending", Pending);
  const pthread_t thread = Start(PendingMaskedClose);
  sem_wait(&ready);
  pthread_cancel(thread);
  sem_post(&go);
  Finish("masked, pending, close", thread);
  CancelRunning("asynchronous calls", AsyncCalls, 300);
  CancelRunning("asynchronous loop", AsyncLoop, 20);
  CancelRunning("asynchronous fork", AsyncFork, 20);
  CancelInside();
  while (waitpid(-1, NULL, WNOHANG) >= 0) continue;
  const pid_t child = fork();
  if (child == 0) _exit(9);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
  puts("fork works afterwards");
  return 0;
}
