// SPDX-License-Identifier: BSD-3-Clause
//
// A program that looks at every number of a descriptor finds its own and no others, whatever call
// it asks with, and so does what it executes.
#define _GNU_SOURCE
#include <sys/file.h>
#include <sys/xattr.h>

#include "libc.h"
#include "tests/kit/program.h"

enum { kEnd = 5000, kSize = 5000 };

static struct stat st;
static struct iovec none;
static char byte;
static int null_fd, null_to;

// Each gives -1 and EBADF where nothing is open, and does no harm to what is: if the test fails,
// that is a pool, and what all processes of this user share.
#define CALLS(CALL)                                                             \
  CALL(getfd, fcntl(fd, F_GETFD))                                               \
  CALL(getfl, fcntl(fd, F_GETFL))                                               \
  CALL(get_owner, fcntl(fd, F_GETOWN))                                          \
  CALL(get_lease, fcntl(fd, F_GETLEASE))                                        \
  CALL(fstat_, fstat(fd, &st))                                                  \
  CALL(fstatat_, fstatat(fd, "", &st, AT_EMPTY_PATH))                           \
  CALL(dup_, close(dup(fd)))                                                    \
  CALL(dup_above, close(fcntl(fd, F_DUPFD, 3)))                                 \
  CALL(dup2_same, dup2(fd, fd))                                                 \
  CALL(dup2_, dup2(fd, null_to))                                                \
  CALL(dup3_, dup3(fd, null_to, 0))                                             \
  CALL(read_, read(fd, &byte, 0))                                               \
  CALL(pread_, pread(fd, &byte, 1, 0))                                          \
  CALL(readv_, readv(fd, &none, 0))                                             \
  CALL(write_, write(fd, &byte, 0))                                             \
  CALL(lseek_, lseek(fd, 0, SEEK_CUR))                                          \
  CALL(fsync_, fsync(fd))                                                       \
  CALL(fdatasync_, fdatasync(fd))                                               \
  CALL(syncfs_, syncfs(fd))                                                     \
  CALL(sync_range, sync_file_range(fd, 0, 1, 0))                                \
  CALL(fallocate_, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1))                    \
  CALL(posix_fallocate_, (errno = posix_fallocate(fd, 0, 1)) == 0 ? 0 : -1)     \
  CALL(ioctl_, ioctl(fd, FIONREAD, &st))                                        \
  CALL(futimens_, futimens(fd, NULL))                                           \
  /* as pools and files of leases have it; a device is everybody's */           \
  CALL(fchmod_, fd == null_fd || fd == null_to ? 0 : fchmod(fd, 0600))          \
  CALL(fchown_, fchown(fd, (uid_t)-1, (gid_t)-1))                               \
  CALL(lockf_, lockf(fd, F_TEST, 0))                                            \
  CALL(flock_, flock(fd, LOCK_SH | LOCK_NB))                                    \
  CALL(sendfile_, sendfile(null_fd, fd, &(off_t){0}, 1))                        \
  CALL(map, mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0) \
  CALL(getfd_by_number, syscall(SYS_fcntl, fd, F_GETFD))                        \
  CALL(fstat_by_number, syscall(SYS_fstat, fd, &st))                            \
  CALL(dup_by_number, close((int)syscall(SYS_dup, fd)))                         \
  CALL(dup2_by_number, syscall(SYS_dup2, fd, fd))                               \
  CALL(read_by_number, syscall(SYS_read, fd, &byte, 0))                         \
  CALL(flock_by_number, syscall(SYS_flock, fd, LOCK_SH | LOCK_NB))              \
  CALL(advise_by_number, syscall(SYS_fadvise64, fd, 0, 0, POSIX_FADV_NORMAL))   \
  CALL(readahead_by_number, syscall(SYS_readahead, fd, 0, 0))                   \
  CALL(list_by_number, syscall(SYS_flistxattr, fd, NULL, 0))                    \
  CALL(statfs_by_number, syscall(SYS_fstatfs, fd, (char[256]){0}))
#define FUNCTION(name, ...) \
  static long name(int fd) { return __VA_ARGS__; }
CALLS(FUNCTION)

#define ROW(name, ...) {#name, name},
static const struct {
  const char* name;
  long (*call)(int fd);
} calls[] = {CALLS(ROW)};

static void scan(const char* when) {
  for (size_t i = 0; i < COUNT(calls); ++i) {
    printf("%s, %s:", when, calls[i].name);
    for (int fd = 3; fd < kEnd; ++fd) {
      errno = 0;
      if (calls[i].call(fd) >= 0 || errno != EBADF) printf(" %d", fd);
    }
    printf("\n");
  }
}

// How many descriptors this process has of a file, by the names that the kernel gives them.
static void count(const char* when, const char* name) {
  int found = 0;
  for (int fd = 3; fd < kEnd; ++fd) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0) continue;
    path[n] = '\0';
    const char* base = strrchr(path, '/');
    found += base != NULL && strcmp(base + 1, name) == 0;
  }
  printf("%s: %d of %s\n", when, found, name);
}

// What is open in a program that knows of no library.
static int look(void) {
  for (int fd = 3; fd < kEnd; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) printf(" %d", fd);
  }
  printf("\n");
  return 0;
}

// The same in place of a child, which has done this.
static void execute_after(const char* when, void (*act)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    act();
    printf("%s:", when);
    fflush(stdout);
    char* const arguments[] = {own_path(), NULL};
    char* const environment[] = {NULL};
    execve(arguments[0], arguments, environment);
    _exit(1);
  }
  show_status(child);
}

static void nothing(void) {}
// A child that has the cache itself.
static int use_cache(void) {
  const int fd = created("child");
  CHECK(write(fd, "bytes", 5) == 5);
  return fd;
}
static void use(void) { use_cache(); }
static void lock_and_unlock(void) {
  const int fd = use_cache();
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  lock.l_type = F_UNLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
}
static void lease(void) {
  // No other descriptor of the file is open.
  const int taken = fcntl(use_cache(), F_SETLEASE, F_WRLCK) == 0;
  printf("a lease: %s\n", taken ? "taken" : strerror(errno));
}

int main(int argc, char** argv) {
  if (argc < 2) return look();
  enter(argc, argv);
  closefrom(3);
  null_fd = open("/dev/null", O_WRONLY);
  null_to = open("/dev/null", O_WRONLY);
  const int fd = created("cached");
  const int closed = created("closed");
  char bytes[kSize] = "some";
  CHECK(write(fd, bytes, kSize) == kSize && write(closed, bytes, kSize) == kSize);
  close(closed);
  scan("here");
  const pid_t child = fork();
  if (child == 0) {
    // Nobody shall wait for what it has of its parent's.
    count("in a child", "cached");
    count("in a child", "closed");
    scan("in a child");
    exit(0);
  }
  show_status(child);
  execute_after("executed", nothing);
  execute_after("executed, cached", use);
  execute_after("executed, was locked", lock_and_unlock);
  execute_after("executed, with a lease", lease);
  return 0;
}
