// SPDX-License-Identifier: BSD-3-Clause
//
// A program that locks its memory.
//
//   locked_memory FOLDER FLAGS before|after   mlockall(FLAGS) before the first open for writing, or
//                                             after it
//   locked_memory FOLDER limits               what is refused to a program that has not the right
//
// What it prints is the same with the library, but for the last lines: numbers for
// locked_memory_test.py.
#define _GNU_SOURCE
#include <glob.h>
#include <linux/capability.h>

#include "libc.h"
#include "tests/kit/program.h"

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

enum { kPage = 4096, kBytes = 8 << 20, kEnough = 100 << 20 };

static int g_by_number;

static int lock_all(int flags) {
  return g_by_number ? (int)syscall(SYS_mlockall, flags) : mlockall(flags);
}
static int unlock_all(void) { return g_by_number ? (int)syscall(SYS_munlockall) : munlockall(); }

static void show(const char* what, int result) {
  printf("%s: %d %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

static char* map_some(void) {
  char* memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) show("mmap", -1);
  return memory;
}

static void show_resident(const char* what, char* memory) {
  unsigned char pages[kBytes / kPage];
  int resident = 0;
  if (mincore(memory, kBytes, pages) != 0) show("mincore", -1);
  for (size_t i = 0; i < sizeof(pages); ++i) resident += pages[i] & 1;
  printf("%s: %s\n", what,
         resident == 0                ? "not there"
         : resident == kBytes / kPage ? "there"
                                      : "part");
}

// Of the first line that begins so in a file of /proc, or of the first after `section`, in KiB.
static long number_of(const char* file, const char* section, const char* name) {
  FILE* lines = fopen(file, "r");
  char line[1000];
  long number = -1;
  int inside = section == NULL;
  while (lines != NULL && number < 0 && fgets(line, sizeof(line), lines) != NULL) {
    if (!inside) {
      inside = strstr(line, section) != NULL;
    } else if (strncmp(line, name, strlen(name)) == 0) {
      number = atol(line + strlen(name));
    }
  }
  if (lines != NULL) fclose(lines);
  return number;
}

static void write_file(const char* name) {
  const int fd = created(name);
  if (fd < 0 || write(fd, name, strlen(name)) != (ssize_t)strlen(name)) show("write", -1);
  close(fd);
}

static long blocks_of_leases(void) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof(path), "/dev/shm/nvcache-leases-%u", (unsigned)geteuid());
  return stat(path, &st) == 0 ? st.st_blocks / 2 : 0;
}

static void try_flags(const char* what, int flags) {
  show(what, lock_all(flags));
  show("unlocked", unlock_all());
}

static int limits(void) {
  write_file("first");
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
  if (syscall(SYS_capget, &header, data) != 0) return 1;
  data[0].effective &= ~(1u << 14);  // CAP_IPC_LOCK
  if (syscall(SYS_capset, &header, data) != 0) return 1;
  // The last has room for all of this program, but not for what the library has reserved.
  struct rlimit limit;
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const rlim_t kLimits[] = {0, 64 << 10, limit.rlim_max < kEnough ? limit.rlim_max : kEnough};
  for (size_t i = 0; i < 3; ++i) {
    limit.rlim_cur = kLimits[i];
    show("limit", setrlimit(RLIMIT_MEMLOCK, &limit));
    try_flags("none", 0);
    try_flags("unknown", 64);
    try_flags("on fault alone", MCL_ONFAULT);
    try_flags("current", MCL_CURRENT);
    try_flags("current, on fault", MCL_CURRENT | MCL_ONFAULT);
    try_flags("future", MCL_FUTURE);
    try_flags("both", MCL_CURRENT | MCL_FUTURE);
  }
  return 0;
}

int main(int count, char** arguments) {
  if (count < 3 || chdir(arguments[1]) != 0) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  g_by_number = getenv("BY_NUMBER") != NULL;
  if (strcmp(arguments[2], "limits") == 0) return limits();
  if (count < 4) return 2;
  const int flags = atoi(arguments[2]);
  const long blocks = blocks_of_leases();
  char* old = map_some();
  if (strcmp(arguments[3], "after") == 0) write_file("first");
  show("locked", lock_all(flags));
  write_file("second");
  char* new = map_some();
  show_resident("old memory", old);
  show_resident("new memory", new);
  const long locked = number_of("/proc/self/status", NULL, "VmLck:");
  const long leases = number_of("/proc/self/smaps", "nvcache-leases", "Rss:");
  const long grown = blocks_of_leases() - blocks;
  // The future is as the last call says.
  show("current alone", lock_all(MCL_CURRENT | MCL_ONFAULT));
  show_resident("newer memory", map_some());
  show("unlocked", unlock_all());
  printf("then locked: %ld\n", number_of("/proc/self/status", NULL, "VmLck:"));
  show_resident("newest memory", map_some());
  write_file("third");
  printf("KiB: %ld %ld %ld\n", locked, leases, grown);
  return 0;
}
