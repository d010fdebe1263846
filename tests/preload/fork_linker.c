// SPDX-License-Identifier: BSD-3-Clause
//
// A thread is inside the dynamic linker, with its lock, while another one forks: the child has the
// lock and not the thread. open() may be called there, so it must not wait for that lock.
#include "libc.h"
// Those that the others need come first.
#include <link.h>

#include "tests/kit/program.h"

enum { kPatience = 20 /* seconds */ };

static atomic_int g_inside, g_may_leave;

static int stay(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)info, (void)size, (void)unused;
  atomic_store(&g_inside, 1);
  while (!atomic_load(&g_may_leave)) usleep(1000);
  return 1;
}

static void* look(void* unused) {
  dl_iterate_phdr(stay, NULL);
  return unused;
}

static void use_files(const char* name) {
  char bytes[10] = "0123456789", found[10];
  const int fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0644);
  CHECK(fd >= 0);
  for (int i = 0; i < 3; ++i) CHECK(write(fd, bytes, sizeof(bytes)) == 10 && fsync(fd) == 0);
  CHECK(pread(fd, found, sizeof(found), 20) == 10 && memcmp(found, bytes, 10) == 0);
  CHECK(rename(name, "renamed") == 0 && rename("renamed", name) == 0 && close(fd) == 0);
}

// The alarm's default action ends a child that waits.
static void fork_inside(const char* name) {
  pthread_t thread;
  atomic_store(&g_inside, 0);
  atomic_store(&g_may_leave, 0);
  CHECK(pthread_create(&thread, NULL, look, NULL) == 0);
  while (!atomic_load(&g_inside)) usleep(1000);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatience);
    use_files(name);
    _exit(0);
  }
  show_status(child);
  atomic_store(&g_may_leave, 1);
  CHECK(pthread_join(thread, NULL) == 0);
  show_file(name);
}

int main(int argc, char** argv) {
  enter(argc, argv);
  // The parent has not used a file yet; then it has, and a file is in its cache.
  fork_inside("by the first");
  use_files("of the parent");
  fork_inside("by the second");
  fork_inside("of the parent");
  return 0;
}
