// SPDX-License-Identifier: BSD-3-Clause
//
// Changes of a file that no log has, by every call that makes one. The fsync that follows has to
// reach the kernel: owed_sync_test.py sees whether it does.
//
//   owed_sync DIRECTORY
//
// The file is descriptor 77 throughout. For each way, numbered, three phases are announced to the
// tracer: `before`, in which an fsync has nothing to do; `after` the change; and `again`.
#define _GNU_SOURCE
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/xattr.h>
#include <utime.h>

#include "libc.h"
#include "tests/kit/program.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_getattr
#define SYS_file_getattr 468
#define SYS_file_setattr 469
#endif
#define EXT4_IOC_SETVERSION _IOW('f', 4, long)

enum { kFile = 77 };

static struct timespec const kTimes[2] = {{1000, 0}, {2000, 0}};
static struct timeval const kOldTimes[2] = {{1000, 0}, {2000, 0}};

struct xattr_args {
  uint64_t value;
  uint32_t size, flags;
};
struct attributes {  // struct file_attr, of headers that are younger than these
  uint64_t flags;
  uint32_t extent_size, extents, project, copy_extent_size;
};

static long set_flags(int fd, int by_number) {
  int flags = 0;
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return -1;
  flags ^= FS_NODUMP_FL;
  return by_number ? syscall(SYS_ioctl, fd, FS_IOC_SETFLAGS, &flags)
                   : ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static long set_more_flags(int fd, int by_number) {
  struct fsxattr attributes;
  if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes) != 0) return -1;
  attributes.fsx_xflags ^= FS_XFLAG_NODUMP;
  return by_number ? syscall(SYS_ioctl, fd, FS_IOC_FSSETXATTR, &attributes)
                   : ioctl(fd, FS_IOC_FSSETXATTR, &attributes);
}

static long set_version(int fd, unsigned long request) {
  long version = 4711;
  return ioctl(fd, request, &version);
}

static long set_attributes(const char* path) {
  struct attributes attributes = {0};
  if (syscall(SYS_file_getattr, AT_FDCWD, path, &attributes, sizeof(attributes), 0) != 0) return -1;
  attributes.flags ^= FS_XFLAG_NODUMP;
  return syscall(SYS_file_setattr, AT_FDCWD, path, &attributes, sizeof(attributes), 0);
}

static long setxattrat(int fd, const char* path, int flags) {
  struct xattr_args arguments = {(uint64_t)(uintptr_t) "value", 5, 0};
  return syscall(SYS_setxattrat, fd, path, flags, "user.at", &arguments, sizeof(arguments));
}

// What changes the file by a descriptor that is not open for reading or writing.
static long by_o_path(const char* path, long (*change)(int fd)) {
  const int fd = open(path, O_PATH);
  const long result = change(fd);
  const int error = errno;
  close(fd);
  errno = error;
  return result;
}
static long o_path_fchownat(int fd) { return fchownat(fd, "", 12345, 12345, AT_EMPTY_PATH); }
static long o_path_fchmodat2(int fd) { return syscall(SYS_fchmodat2, fd, "", 0611, AT_EMPTY_PATH); }
static long o_path_utimensat(int fd) {
  return syscall(SYS_utimensat, fd, "", kTimes, AT_EMPTY_PATH);
}

#define WAYS(WAY)                                                         \
  WAY(chmod(path, 0600))                                                  \
  WAY(fchmod(fd, 0640))                                                   \
  WAY(fchmodat(AT_FDCWD, path, 0600, 0))                                  \
  WAY(chown(path, 12345, 12345))                                          \
  WAY(lchown(path, 12345, 12345))                                         \
  WAY(fchown(fd, 12345, 12345))                                           \
  WAY(fchownat(AT_FDCWD, path, 12345, 12345, 0))                          \
  WAY(fchownat(fd, "", 12345, 12345, AT_EMPTY_PATH))                      \
  WAY(utime(path, NULL))                                                  \
  WAY(utimes(path, kOldTimes))                                            \
  WAY(lutimes(path, kOldTimes))                                           \
  WAY(futimes(fd, kOldTimes))                                             \
  WAY(futimens(fd, kTimes))                                               \
  WAY(futimesat(AT_FDCWD, path, kOldTimes))                               \
  WAY(utimensat(AT_FDCWD, path, kTimes, 0))                               \
  WAY(setxattr(path, "user.a", "b", 1, 0))                                \
  WAY(lsetxattr(path, "user.b", "b", 1, 0))                               \
  WAY(fsetxattr(fd, "user.c", "b", 1, 0))                                 \
  WAY(removexattr(path, "user.kept1"))                                    \
  WAY(lremovexattr(path, "user.kept1"))                                   \
  WAY(fremovexattr(fd, "user.kept1"))                                     \
  WAY(set_flags(fd, 0))                                                   \
  WAY(set_more_flags(fd, 0))                                              \
  WAY(set_version(fd, FS_IOC_SETVERSION))                                 \
  WAY(set_version(fd, EXT4_IOC_SETVERSION))                               \
  WAY(rename(path, "renamed"))                                            \
  WAY(link(path, "linked"))                                               \
  WAY(ftruncate(fd, 5))                                                   \
  WAY(truncate(path, 5))                                                  \
  WAY(fallocate(fd, 0, 0, 10000))                                         \
  WAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)) \
  WAY(by_o_path(path, o_path_fchownat))                                   \
  WAY(by_o_path(path, o_path_fchmodat2))                                  \
  WAY(by_o_path(path, o_path_utimensat))                                  \
  WAY(syscall(SYS_chmod, path, 0600))                                     \
  WAY(syscall(SYS_fchmod, fd, 0640))                                      \
  WAY(syscall(SYS_fchmodat, AT_FDCWD, path, 0600))                        \
  WAY(syscall(SYS_fchmodat2, AT_FDCWD, path, 0611, 0))                    \
  WAY(syscall(SYS_fchmodat2, fd, "", 0611, AT_EMPTY_PATH))                \
  WAY(syscall(SYS_chown, path, 12345, 12345))                             \
  WAY(syscall(SYS_lchown, path, 12345, 12345))                            \
  WAY(syscall(SYS_fchown, fd, 12345, 12345))                              \
  WAY(syscall(SYS_fchownat, AT_FDCWD, path, 12345, 12345, 0))             \
  WAY(syscall(SYS_utime, path, NULL))                                     \
  WAY(syscall(SYS_utimes, path, kOldTimes))                               \
  WAY(syscall(SYS_futimesat, AT_FDCWD, path, kOldTimes))                  \
  WAY(syscall(SYS_utimensat, AT_FDCWD, path, kTimes, 0))                  \
  WAY(syscall(SYS_utimensat, fd, NULL, kTimes, 0))                        \
  WAY(syscall(SYS_setxattr, path, "user.a", "b", 1, 0))                   \
  WAY(syscall(SYS_lsetxattr, path, "user.b", "b", 1, 0))                  \
  WAY(syscall(SYS_fsetxattr, fd, "user.c", "b", 1, 0))                    \
  WAY(setxattrat(AT_FDCWD, path, 0))                                      \
  WAY(setxattrat(fd, "", AT_EMPTY_PATH))                                  \
  WAY(syscall(SYS_removexattr, path, "user.kept1"))                       \
  WAY(syscall(SYS_lremovexattr, path, "user.kept1"))                      \
  WAY(syscall(SYS_fremovexattr, fd, "user.kept1"))                        \
  WAY(syscall(SYS_removexattrat, AT_FDCWD, path, 0, "user.kept1"))        \
  WAY(set_attributes(path))                                               \
  WAY(set_flags(fd, 1))                                                   \
  WAY(set_more_flags(fd, 1))                                              \
  WAY(syscall(SYS_rename, path, "renamed"))                               \
  WAY(syscall(SYS_link, path, "linked"))                                  \
  WAY(syscall(SYS_ftruncate, fd, 5))                                      \
  WAY(syscall(SYS_truncate, path, 5))                                     \
  WAY(syscall(SYS_fallocate, fd, 0, 0L, 10000L))

static int g_way;

static void announce(const char* phase) {
  char text[16];
  snprintf(text, sizeof(text), "%d %s", g_way, phase);
  prctl(PR_SET_NAME, text);
}

static void must(int done, const char* what) {
  if (done) return;
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static const char* prepare(int* fd) {
  static char path[32];
  snprintf(path, sizeof(path), "file%d", ++g_way);
  const int first = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
  must(first >= 0 && dup2(first, kFile) == kFile && close(first) == 0, "open");
  must(setxattr(path, "user.kept1", "1", 1, 0) == 0, "setxattr");
  must(write(kFile, "0123456789", 10) == 10 && fsync(kFile) == 0, "write");
  announce("before");
  must(write(kFile, "more", 4) == 4 && fsync(kFile) == 0, "write");
  *fd = kFile;
  return path;
}

static void finish(void) {
  announce("after");
  must(fsync(kFile) == 0, "fsync");
  announce("again");
  must(fsync(kFile) == 0, "fsync");
  announce("end");
  must(close(kFile) == 0, "close");
  unlink("renamed");
  unlink("linked");
}

// Each way has a file of its own.
int main(int argc, char** argv) {
  must(argc == 2 && chdir(argv[1]) == 0, "chdir");
#define TRY(expression)                                                  \
  {                                                                      \
    int fd;                                                              \
    const char* path = prepare(&fd);                                     \
    (void)path;                                                          \
    errno = 0;                                                           \
    const long result = (expression);                                    \
    printf("%d\t%s\t%d\n", g_way, #expression, result == 0 ? 0 : errno); \
    finish();                                                            \
  }
  WAYS(TRY)
  return 0;
}
