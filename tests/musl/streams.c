/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What libc offers from inside: streams, directories, requests of POSIX AIO, and many threads at
 * once. */
#define _GNU_SOURCE
#include <aio.h>

#include "fake.h"
#include "tests/kit/program.h"

enum { kThreads = 4, kWrites = 2000 };

static long Offers(long number) {
  return HasFake() ? __atomic_exchange_n(&fake.offers[number], 0, __ATOMIC_SEQ_CST) : 0;
}

/* `count` offers of `number` since the last look. */
#define OFFERED(number, count) CHECK(Offers(number) == (count) || !HasFake())

static void Streams(const char* path) {
  char text[6] = "";
  Offers(SYS_open);
  Offers(SYS_close);
  FILE* file = fopen(path, "w+");
  CHECK(file);
  OFFERED(SYS_open, 1);
  Offers(SYS_writev);
  CHECK(fputs("hello", file) >= 0);
  OFFERED(SYS_writev, 0);
  CHECK(fflush(file) == 0);
  OFFERED(SYS_writev, 1);
  Offers(SYS_lseek);
  rewind(file);
  OFFERED(SYS_lseek, 1);
  Offers(SYS_readv);
  CHECK(fread(text, 1, 5, file) == 5 && strcmp(text, "hello") == 0);
  OFFERED(SYS_readv, 1);
  CHECK(freopen(path, "r", file) && fgetc(file) == 'h');
  OFFERED(SYS_open, 1);
  OFFERED(SYS_dup2, 1);
  CHECK(fclose(file) == 0);
  OFFERED(SYS_close, 2);
  const int fd = open(path, O_WRONLY);
  Offers(SYS_writev);
  CHECK(dprintf(fd, "%d", 12345) == 5);
  OFFERED(SYS_writev, 1);
  CHECK(lockf(fd, F_LOCK, 0) == 0);
  close(fd);
  CHECK(remove(path) == 0);
  OFFERED(SYS_unlink, 1);
}

static void Requests(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0);
  struct aiocb request = {.aio_fildes = fd, .aio_buf = "data", .aio_nbytes = 4};
  const struct aiocb* list[] = {&request};
  Offers(SYS_pwrite64);
  CHECK(aio_write(&request) == 0 && aio_suspend(list, 1, NULL) == 0);
  CHECK(aio_error(&request) == 0 && aio_return(&request) == 4);
  OFFERED(SYS_pwrite64, 1);
  CHECK(close(fd) == 0 && unlink(path) == 0);
}

static void* Write(void* null) {
  for (int i = 0; i < kWrites; i++) CHECK(write(*(int*)null, "x", 1) == 1);
  return NULL;
}

static void Threads(void) {
  int null = open("/dev/null", O_WRONLY);
  pthread_t threads[kThreads];
  Offers(SYS_write);
  for (int i = 0; i < kThreads; i++) CHECK(pthread_create(&threads[i], NULL, Write, &null) == 0);
  for (int i = 0; i < kThreads; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  OFFERED(SYS_write, (long)kThreads * kWrites);
  close(null);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  Streams(argv[1]);
  Requests(argv[1]);
  Threads();
  puts("streams, requests, threads");
  return 0;
}
