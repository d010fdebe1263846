// SPDX-License-Identifier: BSD-3-Clause
//
// Makes every call that the preload library wraps at least once, and prints what it gave: results,
// errno, sizes, contents. Built against plain glibc; run without the library, with it, and with it
// and a pool, the output must be the same each time. On musl, where NVCache is in libc itself, the
// same without a pool and with one; names that only glibc has are left out there.
//
//   every_call DIRECTORY PLUGIN     (an empty directory on a disk; a shared object to load, or "-"
//                                   for a static program, which loads nothing)
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <grp.h>
#include <linux/aio_abi.h>
#include <linux/btrfs.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <mqueue.h>
#include <pty.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/quota.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/swap.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <syslog.h>
#include <utime.h>
#include <utmp.h>
#include <utmpx.h>
#include <wordexp.h>

#include "libc.h"
#include "tests/kit/program.h"

#ifdef __GLIBC__
#include <execinfo.h>
#include <sys/pidfd.h>
#endif
#if __has_include(<fts.h>)
#include <fts.h>
#endif

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_getxattrat
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#endif
#ifndef SYS_file_getattr
#define SYS_file_getattr 468
#define SYS_file_setattr 469
#endif

// Exported by libc, declared nowhere.
int capset(struct __user_cap_header_struct*, const struct __user_cap_data_struct*);
int __xstat(int, const char*, struct stat*);
int __xstat64(int, const char*, struct stat64*);
int __lxstat(int, const char*, struct stat*);
int __lxstat64(int, const char*, struct stat64*);
int __fxstat(int, int, struct stat*);
int __fxstat64(int, int, struct stat64*);
int __fxstatat(int, int, const char*, struct stat*, int);
int __fxstatat64(int, int, const char*, struct stat64*, int);
sighandler_t bsd_signal(int, sighandler_t);
sighandler_t __sysv_signal(int, sighandler_t);
#ifdef __GLIBC__
int __open(const char*, int, ...);
int __open64(const char*, int, ...);
int __open_2(const char*, int);
int __open64_2(const char*, int);
int __openat_2(int, const char*, int);
int __openat64_2(int, const char*, int);
int __close(int);
int __dup2(int, int);
int __fcntl(int, int, ...);
int __pipe(int[2]);
ssize_t __read(int, void*, size_t);
ssize_t __write(int, const void*, size_t);
ssize_t __pread64(int, void*, size_t, off64_t);
ssize_t __pwrite64(int, const void*, size_t, off64_t);
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off64_t, size_t);
off_t __lseek(int, off_t, int);
off64_t old_llseek(int, off64_t, int);
__asm__(".symver old_llseek, llseek@GLIBC_2.2.5");  // old binaries only
int __dprintf_chk(int, int, const char*, ...);
int __vdprintf_chk(int, int, const char*, va_list);
void __syslog_chk(int, int, const char*, ...);
void __vsyslog_chk(int, int, const char*, va_list);
ssize_t __send(int, const void*, size_t, int);
int __connect(int, const struct sockaddr*, socklen_t);
FILE* _IO_fopen(const char*, const char*);
FILE* _IO_fdopen(int, const char*);
int _IO_fclose(FILE*);
FILE* _IO_popen(const char*, const char*);
pid_t __vfork(void);
int __clone(int (*)(void*), void*, int, void*, ...);
void __backtrace_symbols_fd(void* const*, int, int);
int __sigaction(int, const struct sigaction*, struct sigaction*);
int __cxa_at_quick_exit(void (*)(void*), void*);
#else
// Names that only glibc has, of functions that musl has as well.
#define __open open
#define __open64 open
#define __open_2 open
#define __open64_2 open
#define __openat_2 openat
#define __openat64_2 openat
#define __close close
#define __dup2 dup2
#define __fcntl fcntl
#define __pipe pipe
#define fcntl64 fcntl
#define __read read
#define __write write
#define __pread64 pread
#define __pwrite64 pwrite
#define __read_chk(fd, bytes, count, size) read(fd, bytes, count)
#define __pread_chk(fd, bytes, count, offset, size) pread(fd, bytes, count, offset)
#define __pread64_chk(fd, bytes, count, offset, size) pread(fd, bytes, count, offset)
#define __lseek lseek
#define old_llseek lseek
#define __dprintf_chk(fd, flag, ...) dprintf(fd, __VA_ARGS__)
#define __vdprintf_chk(fd, flag, format, arguments) vdprintf(fd, format, arguments)
#define __syslog_chk(priority, flag, ...) syslog(priority, __VA_ARGS__)
#define __vsyslog_chk(priority, flag, format, arguments) vsyslog(priority, format, arguments)
#define __send send
#define __connect connect
#define tgkill(process, thread, signal) syscall(SYS_tgkill, process, thread, signal)
#define _IO_fopen fopen
#define _IO_fdopen fdopen
#define _IO_fclose fclose
#define _IO_popen popen
#define __vfork vfork
#define __clone clone
#define __sigaction sigaction
#define __cxa_at_quick_exit(function, library) at_quick_exit((void (*)(void))(void*)(function))
#define fcloseall() fflush(NULL)
#define ssignal signal
#define sysv_signal __sysv_signal
#endif

// async_library.c
struct io_uring;
struct io_uring_params;
int io_submit(void*, long, struct iocb**);
int io_uring_setup(unsigned, struct io_uring_params*);
int io_uring_queue_init(unsigned, struct io_uring*, unsigned);
int io_uring_queue_init_params(unsigned, struct io_uring*, struct io_uring_params*);
long write_by_ring(int, const char*, long, long);

static volatile int g_minus_one = -1;
static void check_opening(void) {
  title("opening");
  int fd;
  SHOW(fd = open("a", O_RDWR | O_CREAT | O_EXCL, 0644), write(fd, "hello", 5), close(fd));
  SHOW(close(fd), open("a", O_RDWR | O_CREAT | O_EXCL, 0644), open("missing/a", O_RDONLY));
  SHOW(fd = open64("a", O_RDONLY), __close(fd), fd = __open("a", O_RDONLY), close(fd));
  SHOW(fd = __open64("a", O_RDONLY), close(fd), fd = openat(AT_FDCWD, "a", O_RDWR), close(fd));
  SHOW(fd = openat64(AT_FDCWD, "a", O_WRONLY | O_APPEND), write(fd, " world", 6), close(fd));
  show_file("a");
  SHOW(fd = creat("b", 0600), read(fd, &fd, 1), close(fd), fd = creat64("b", 0600));
  SHOW(write(fd, "bbb", 3), close(fd), fd = __open_2("a", O_RDONLY), close(fd));
  SHOW(fd = __open64_2("a", O_RDONLY), close(fd), fd = __openat_2(AT_FDCWD, "a", O_RDWR));
  SHOW(close(fd), fd = __openat64_2(AT_FDCWD, "a", O_RDWR | O_TRUNC), write(fd, "shorter", 7));
  SHOW(close(fd));
  show_file("a");
  SHOW(fd = open(".", O_RDWR | O_TMPFILE, 0600), write(fd, "nameless", 8));
  SHOW(linkat(fd, "", AT_FDCWD, "named", AT_EMPTY_PATH), close(fd));
  show_file("named");
}

static void check_temporary(void) {
  title("temporary files");
  char names[8][16] = {"tXXXXXX",    "tXXXXXX",    "tXXXXXX",    "tXXXXXX",
                       "tXXXXXX.ab", "tXXXXXX.ab", "tXXXXXX.ab", "tXXXXXX.ab"};
  int fds[8];
  SHOW((fds[0] = mkstemp(names[0])), (fds[1] = mkstemp64(names[1])));
  SHOW((fds[2] = mkostemp(names[2], O_CLOEXEC)), (fds[3] = mkostemp64(names[3], O_APPEND)));
  SHOW((fds[4] = mkstemps(names[4], 3)), (fds[5] = mkstemps64(names[5], 3)));
  SHOW((fds[6] = mkostemps(names[6], 3, O_CLOEXEC)), (fds[7] = mkostemps64(names[7], 3, O_APPEND)));
  SHOW(mkstemp(strdup("nonsense")));
  for (int i = 0; i < 8; ++i) {
    SHOW(write(fds[i], "temporary", 9), fsync(fds[i]), close(fds[i]), rename(names[i], "kept"));
  }
  show_file("kept");
  FILE* stream = tmpfile();
  SHOW(fprintf(stream, "x%dy", 12), fseek(stream, 0, SEEK_END), ftell(stream), fclose(stream));
  stream = tmpfile64();
  SHOW(fileno(stream), fclose(stream));
}

static void check_data(void) {
  title("data");
  char b[64] = {0};
  char c[64] = {0};
  const struct iovec out[2] = {{"abc", 3}, {"defgh", 5}};
  const struct iovec in[2] = {{b, 4}, {c, 4}};
  int fd;
  SHOW(fd = created("d"), write(fd, "0123456789", 10), __write(fd, "ABCDEF", 6), write(fd, "", 0));
  SHOW(write(-1, "x", 1), pwrite(fd, "p", 1, 20), pwrite64(fd, "q", 1, 21));
  SHOW(__pwrite64(fd, "r", 1, 22), pwrite(fd, "r", 1, -1), writev(fd, out, 2));
  SHOW(writev(fd, out, g_minus_one), pwritev(fd, out, 2, 100), pwritev64(fd, out, 2, 200));
  SHOW(pwritev2(fd, out, 2, 300, 0), pwritev64v2(fd, out, 2, -1, 0));
  SHOW(pwritev2(fd, out, 1, -1, RWF_DSYNC), lseek(fd, 0, SEEK_CUR), lseek64(fd, 0, SEEK_END));
  SHOW(__lseek(fd, -5, SEEK_CUR), old_llseek(fd, 0, SEEK_SET), lseek(fd, -1, SEEK_SET));
  SHOW(lseek(fd, 0, 77), read(fd, b, 4));
  show_bytes("read", b, 4);
  SHOW(__read(fd, b, 4));
  show_bytes("read", b, 4);
  SHOW(__read_chk(fd, b, 4, sizeof(b)), pread(fd, b, 8, 98));
  show_bytes("pread", b, 8);
  SHOW(pread64(fd, b, 8, 1000), __pread64(fd, b, 8, 16));
  show_bytes("pread", b, 8);
  SHOW(__pread_chk(fd, b, 8, 200, sizeof(b)), __pread64_chk(fd, b, 8, 300, sizeof(b)));
  show_bytes("pread", b, 8);
  SHOW(readv(fd, in, 2));
  show_bytes("readv", b, 4);
  show_bytes("readv", c, 4);
  SHOW(preadv(fd, in, 2, 16), preadv64(fd, in, 2, 20));
  show_bytes("preadv", b, 4);
  SHOW(preadv2(fd, in, 2, 100, 0), preadv64v2(fd, in, 2, -1, 0));
  show_bytes("preadv2", c, 4);
  SHOW(preadv(fd, in, 2, -1), preadv2(fd, in, 2, 100, 1 << 30), lseek(fd, 0, SEEK_HOLE) > 0);
  SHOW(lseek(fd, 0, SEEK_DATA), close(fd));
  show_file("d");
}

static void check_large(void) {
  title("a larger file");
  enum { kSize = 3 * 1024 * 1024 };
  char* data = malloc(kSize);
  for (int i = 0; i < kSize; ++i) data[i] = (char)(i * 7 + i / 4096);
  int fd;
  SHOW(fd = created("large"), write(fd, data, kSize), pwrite(fd, "overwritten", 11, 8190));
  memcpy(data + 8190, "overwritten", 11);
  char* back = malloc(kSize);
  SHOW(pread(fd, back, kSize, 0), memcmp(data, back, kSize), fdatasync(fd));
  SHOW(pread(fd, back, 100000, 1234567), memcmp(data + 1234567, back, 100000), close(fd));
  free(data);
  free(back);
}

static void check_size(void) {
  title("durability and size");
  int fd;
  SHOW(fd = created("s"), write(fd, "0123456789", 10), fsync(fd), fdatasync(fd), fsync(-1));
  SHOW(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE), sync_file_range(fd, 0, 0, 77), syncfs(fd));
  SHOW(syncfs(-1));
  sync();
  SHOW(ftruncate(fd, 5), ftruncate64(fd, 6), ftruncate(fd, -1));
  show_file("s");
  SHOW(write(fd, "abc", 3), truncate("s", 12), truncate64("s", 11), truncate("nosuch", 11));
  show_file("s");
  SHOW(pwrite(fd, "late", 4, 7), fallocate(fd, 0, 0, 5000));
  SHOW(fallocate64(fd, FALLOC_FL_KEEP_SIZE, 0, 9000));
  SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8), fallocate(fd, 0, -1, 5000));
  SHOW(posix_fallocate(fd, 0, 6000), posix_fallocate64(fd, 0, 0), posix_fallocate(-1, 0, 10));
  SHOW(lseek(fd, 0, SEEK_END), close(fd));
  show_file("s");
}

static void check_descriptors(void) {
  title("descriptors");
  int fd;
  int copy;
  SHOW(fd = created("e"), copy = dup(fd), write(fd, "one", 3), write(copy, "two", 3));
  SHOW(lseek(copy, 0, SEEK_CUR), dup2(fd, copy), dup2(fd, fd), __dup2(fd, 100));
  SHOW(dup3(fd, 101, O_CLOEXEC), dup3(fd, fd, 0), write(100, "three", 5), fcntl(101, F_GETFD));
  SHOW(fcntl(fd, F_DUPFD, 110), fcntl64(fd, F_DUPFD_CLOEXEC, 110), __fcntl(fd, F_GETFL));
  SHOW(fcntl(fd, F_SETFL, O_APPEND), fcntl(copy, F_GETFL) & O_APPEND, fcntl(-1, F_GETFL));
  SHOW(fcntl(fd, 4711), pwrite(fd, "end", 3, 0));
  SHOW(lseek(fd, 4, SEEK_SET));
  int waiting = -1;
  SHOW(ioctl(fd, FIONREAD, &waiting), waiting, ioctl(fd, FIOCLEX), ioctl(fd, TIOCGWINSZ, &waiting));
  SHOW(ioctl(fd, _IO(0xee, 1), 0));  // unknown
  SHOW(ioctl(fd, _IOR(0xee, 1, int), &waiting), ioctl(fd, BTRFS_IOC_SYNC, 0));
  SHOW(ioctl(fd, FITRIM, NULL) < 0, ioctl(-1, FITHAW, 0), ioctl(-1, FIONREAD, &waiting));
  SHOW(dup2(-1, 100), dup2(0, 100), lseek(100, 0, SEEK_CUR) == lseek(0, 0, SEEK_CUR));
  SHOW(close_range(100, 105, CLOSE_RANGE_CLOEXEC), fcntl(101, F_GETFD), close_range(100, 105, 0));
  SHOW(write(101, "x", 1), close_range(10, 5, 0));
  closefrom(106);
  SHOW(write(110, "x", 1), close(copy), close(fd));
  show_file("e");
  SHOW(unshare(0), setns(-1, 0), syscall(SYS_setns, -1, 0));
}

static void check_others(void) {
  title("what is no file");
  int ends[2], fd;
  sigset_t none;
  sigemptyset(&none);
  const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
  SHOW(pipe(ends), close(ends[0]) + close(ends[1]), __pipe(ends), close(ends[0]) + close(ends[1]));
  SHOW(pipe2(ends, O_NONBLOCK), read(ends[0], ends, 1), close(ends[0]) + close(ends[1]));
  SHOW(pipe2(ends, -1), socketpair(AF_UNIX, SOCK_STREAM, 0, ends), close(ends[0]) + close(ends[1]));
  SHOW(fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  SHOW(bind(fd, (const struct sockaddr*)&address, sizeof(address)), listen(fd, 5));
  SHOW(accept(fd, NULL, NULL), accept4(fd, NULL, NULL, 0), close(fd), unlink("socket"));
  SHOW(fd = epoll_create(1), close(fd), fd = epoll_create1(EPOLL_CLOEXEC), fcntl(fd, F_GETFD));
  SHOW(close(fd), fd = eventfd(7, 0));
  uint64_t count = 0;
  SHOW(read(fd, &count, sizeof(count)), count, close(fd), fd = timerfd_create(CLOCK_MONOTONIC, 0));
  SHOW(close(fd), fd = signalfd(-1, &none, 0), close(fd), fd = inotify_init(), close(fd));
  SHOW(fd = inotify_init1(IN_NONBLOCK), close(fd), fd = memfd_create("name", 0), close(fd));
  SHOW(fd = pidfd_open(getpid(), 0), close(fd));
  DIR* folder = opendir(".");
  SHOW(fd = dirfd(folder), closedir(folder), opendir("nothing") == NULL);
}

// All that the process is, it becomes again: rights.c gives some up.
static void check_rights(void) {
  title("rights");
  const uid_t user = getuid();
  const gid_t group = getgid();
  int fd;
  SHOW(fd = created("rights"), write(fd, "some", 4));
  SHOW(setuid(user) | seteuid(user) | setreuid(user, -1) | setresuid(-1, user, user));
  SHOW(setgid(group) | setegid(group) | setregid(-1, group) | setresgid(group, -1, group));
  SHOW(setfsuid(user) == (int)user && setfsgid(group) == (int)group);
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  SHOW(syscall(SYS_capget, &header, data), capset(&header, data), write(fd, "more", 4));
  gid_t groups[64];
  const int count = getgroups(64, groups);
  SHOW(initgroups("root", group), setgroups(count, groups), pwrite(fd, "rest", 4, 8));
  char back[16];
  SHOW(pread(fd, back, sizeof(back), 0), close(fd));
  show_file("rights");
}

static int count_file(const char* path, const struct stat* st, int flag) {
  if (flag == FTW_F && strcmp(path, "./walked") == 0) SHOW(st->st_size);
  return 0;
}
static int count_file64(const char* path, const struct stat64* st, int flag) {
  if (flag == FTW_F && strcmp(path, "./walked") == 0) SHOW(st->st_size);
  return 0;
}
static int count_file_n(const char* path, const struct stat* st, int flag, struct FTW* ftw) {
  return (void)ftw, count_file(path, st, flag);
}
static int count_file_n64(const char* path, const struct stat64* st, int flag, struct FTW* ftw) {
  return (void)ftw, count_file64(path, st, flag);
}

static void check_attributes(void) {
  title("attributes");
  struct stat st;
  struct stat64 st64;
  struct statx stx;
  int fd;
  SHOW(fd = open("walked", O_RDWR | O_CREAT | O_TRUNC, 0640));
#define SIZE(call)                                                           \
  SHOW(write(fd, "0123456789", 10));                                         \
  memset(&st, 0, sizeof(st));                                                \
  memset(&st64, 0, sizeof(st64));                                            \
  SHOW(call);                                                                \
  printf("    size %ld %ld mode %o\n", (long)st.st_size, (long)st64.st_size, \
         st.st_mode | st64.st_mode)
  SIZE(stat("walked", &st));
  SIZE(stat64("walked", &st64));
  SIZE(lstat("walked", &st));
  SIZE(lstat64("walked", &st64));
  SIZE(fstat(fd, &st));
  SIZE(fstat64(fd, &st64));
  SIZE(fstatat(AT_FDCWD, "walked", &st, 0));
  SIZE(fstatat64(fd, "", &st64, AT_EMPTY_PATH));
  SIZE(__xstat(1, "walked", &st));
  SIZE(__xstat64(1, "walked", &st64));
  SIZE(__lxstat(1, "walked", &st));
  SIZE(__lxstat64(1, "walked", &st64));
  SIZE(__fxstat(1, fd, &st));
  SIZE(__fxstat64(1, fd, &st64));
  SIZE(__fxstatat(1, AT_FDCWD, "walked", &st, 0));
  SIZE(__fxstatat64(1, AT_FDCWD, "walked", &st64, 0));
  SIZE(statx(AT_FDCWD, "walked", 0, STATX_BASIC_STATS, &stx));
  SHOW(stx.stx_size, stat("nosuch", &st), fstat(-1, &st));
  SHOW(statx(-1, "", AT_EMPTY_PATH, STATX_SIZE, &stx));

  SHOW(ftw(".", count_file, 8), ftw64(".", count_file64, 8), nftw(".", count_file_n, 8, FTW_PHYS));
  SHOW(nftw64(".", count_file_n64, 8, FTW_PHYS));
#if __has_include(<fts.h>)
  char* const roots[] = {"walked", NULL};
  SHOW(write(fd, "more", 4));
  FTS* tree = fts_open(roots, FTS_PHYSICAL, NULL);
  SHOW(fts_children(tree, 0)->fts_statp->st_size, fts_read(tree)->fts_statp->st_size);
  SHOW(fts_close(tree), write(fd, "more", 4));
#ifdef __GLIBC__
  FTS64* tree64 = fts64_open(roots, FTS_PHYSICAL, NULL);
  SHOW(fts64_children(tree64, 0)->fts_statp->st_size, fts64_read(tree64)->fts_statp->st_size);
  SHOW(fts64_close(tree64));
#endif
#endif

  const struct timeval tv[2] = {{1000, 0}, {2000, 0}};
  const struct timespec ts[2] = {{3000, 0}, {4000, 0}};
  const struct utimbuf ut = {5000, 6000};
#define TIME(call)         \
  SHOW(write(fd, "t", 1)); \
  SHOW(call);              \
  SHOW(syncfs(fd));        \
  SHOW(fstat(fd, &st));    \
  SHOW(st.st_mtim.tv_sec)
  TIME(utime("walked", &ut));
  TIME(utimes("walked", tv));
  TIME(lutimes("walked", tv));
  TIME(futimes(fd, tv));
  TIME(futimens(fd, ts));
  TIME(futimesat(AT_FDCWD, "walked", tv));
  TIME(utimensat(AT_FDCWD, "walked", ts, 0));
  SHOW(utimensat(AT_FDCWD, "nosuch", ts, 0), utimensat(AT_FDCWD, "walked", ts, 4711));
  SHOW(syscall(SYS_utimensat, fd, NULL, ts, 0), close(fd));
}

// A write takes set-user-ID bits and capabilities away; one that came before they were set does
// not.
static void check_permissions(void) {
  const int fd = open("permitted", O_RDWR | O_CREAT, 0644);
  struct stat st;
  const uid_t owner = getuid();
  const gid_t group = getgid();
  // CAP_DAC_OVERRIDE, as the kernel keeps it (struct vfs_ns_cap_data, second revision).
  const unsigned capability[5] = {0x02000000, 2, 0, 0, 0};
  const char* const name = "security.capability";
  char value[64];
#define PERMIT(call)                               \
  SHOW(write(fd, "p", 1));                         \
  SHOW(call);                                      \
  SHOW(syncfs(fd));                                \
  SHOW(fstat(fd, &st));                            \
  SHOW(st.st_mode);                                \
  SHOW(st.st_uid == owner && st.st_gid == group);  \
  SHOW(fgetxattr(fd, name, value, sizeof(value))); \
  SHOW(fremovexattr(fd, name))
  PERMIT(chmod("permitted", 04711));
  PERMIT(fchmod(fd, 06755));
  PERMIT(fchmodat(AT_FDCWD, "permitted", 04700, 0));
  PERMIT(lchmod("permitted", 04701));
  PERMIT(chown("permitted", owner, group));
  PERMIT(lchown("permitted", owner, group));
  PERMIT(fchown(fd, owner, group));
  PERMIT(fchownat(AT_FDCWD, "permitted", owner, group, AT_SYMLINK_NOFOLLOW));
  PERMIT(setxattr("permitted", name, capability, sizeof(capability), 0));
  PERMIT(lsetxattr("permitted", name, capability, sizeof(capability), 0));
  PERMIT(fsetxattr(fd, name, capability, sizeof(capability), XATTR_CREATE));
  PERMIT(syscall(SYS_fsetxattr, fd, name, capability, sizeof(capability), 0));
  PERMIT(syscall(SYS_chmod, "permitted", 04711));
  // A write takes the permission away, and whoever asks next sees that.
#define LOSE(call)                                              \
  SHOW(fsetxattr(fd, name, capability, sizeof(capability), 0)); \
  SHOW(write(fd, "p", 1));                                      \
  SHOW(call)
  struct {
    void* value;
    unsigned size, flags;
  } asked = {value, sizeof(value), 0};
  LOSE(getxattr("permitted", name, value, sizeof(value)));
  LOSE(lgetxattr("permitted", name, value, sizeof(value)));
  LOSE(fgetxattr(fd, name, value, sizeof(value)));
  LOSE(listxattr("permitted", value, sizeof(value)));
  LOSE(llistxattr("permitted", value, sizeof(value)));
  LOSE(flistxattr(fd, value, sizeof(value)));
  LOSE(syscall(SYS_getxattr, "permitted", name, value, sizeof(value)));
  LOSE(syscall(SYS_lgetxattr, "permitted", name, value, sizeof(value)));
  LOSE(syscall(SYS_fgetxattr, fd, name, value, sizeof(value)));
  LOSE(syscall(SYS_listxattr, "permitted", value, sizeof(value)));
  LOSE(syscall(SYS_llistxattr, "permitted", value, sizeof(value)));
  LOSE(syscall(SYS_flistxattr, fd, value, sizeof(value)));
  LOSE(syscall(SYS_getxattrat, fd, "", AT_EMPTY_PATH, name, &asked, sizeof(asked)));
  SHOW(fsetxattr(fd, "user.name", "value", 5, 0));
  SHOW(getxattr("permitted", "user.name", value, sizeof(value)), fremovexattr(fd, "user.name"));
  LOSE(syscall(SYS_listxattrat, AT_FDCWD, "permitted", 0, value, sizeof(value)));
  SHOW(chmod("nosuch", 0644), fchmod(-1, 0644), fchownat(AT_FDCWD, "nosuch", owner, group, 4711));
  SHOW(fsetxattr(fd, "nonsense", "", 0, 0), fsetxattr(fd, name, capability, sizeof(capability), 0));
  SHOW(removexattr("permitted", name), lremovexattr("permitted", name));
  SHOW(syscall(SYS_fremovexattr, fd, name), close(fd));
}

// A file that may not be changed, or at its end alone, until it may again. For root, on a file
// system that has such flags; else all say the same error.
static void check_forbidden(void) {
  title("forbidden");
  // What a run that was killed in the middle has left.
  int none = 0;
  const int left = open("forbidden", O_RDONLY);
  if (left >= 0) ioctl(left, FS_IOC_SETFLAGS, &none);
  close(left);
  for (int way = 0; way < 6; ++way) {
    const int append = way % 2;
    int fd;
    SHOW(fd = created("forbidden"), write(fd, "before", 6));
    int flags = 0;
    struct fsxattr more = {0};
    unsigned long young[3] = {0};  // struct file_attr
    SHOW(ioctl(fd, FS_IOC_GETFLAGS, &flags), ioctl(fd, FS_IOC_FSGETXATTR, &more));
    SHOW(syscall(SYS_file_getattr, fd, "", young, sizeof(young), AT_EMPTY_PATH));
    int forbidden = flags | (append ? FS_APPEND_FL : FS_IMMUTABLE_FL);
    if (way < 2) SHOW(ioctl(fd, FS_IOC_SETFLAGS, &forbidden));
    more.fsx_xflags |= append ? FS_XFLAG_APPEND : FS_XFLAG_IMMUTABLE;
    if (way / 2 == 1) SHOW(ioctl(fd, FS_IOC_FSSETXATTR, &more));
    young[0] |= append ? FS_XFLAG_APPEND : FS_XFLAG_IMMUTABLE;
    if (way == 4) SHOW(syscall(SYS_file_setattr, fd, "", young, sizeof(young), AT_EMPTY_PATH));
    if (way == 5) SHOW(syscall(SYS_file_setattr, AT_FDCWD, "forbidden", young, sizeof(young), 0));
    SHOW(write(fd, "and after", 9), pwrite(fd, "B", 1, 0), ftruncate(fd, 0), fsync(fd));
    SHOW(unlink("forbidden"), ioctl(fd, FS_IOC_SETFLAGS, &flags), write(fd, "!", 1));
    show_file("forbidden");
    SHOW(close(fd), unlink("forbidden"));
  }
}

static void check_names(void) {
  title("names");
  int fd;
  SHOW(fd = created("n1"), write(fd, "n", 1), rename("n1", "n2"), write(fd, "a", 1));
  SHOW(renameat(AT_FDCWD, "n2", AT_FDCWD, "n3"), write(fd, "m", 1));
  SHOW(renameat2(AT_FDCWD, "n3", AT_FDCWD, "n4", RENAME_NOREPLACE), write(fd, "e", 1));
  SHOW(link("n4", "n5"), write(fd, "s", 1));
  SHOW(linkat(AT_FDCWD, "n4", AT_FDCWD, "n6", AT_SYMLINK_FOLLOW));
  show_file("n6");
  SHOW(unlink("n4"), unlinkat(AT_FDCWD, "n5", 0), write(fd, "!", 1));
  show_file("n6");
  SHOW(remove("n6"), write(fd, "!", 1));
  char b[8];
  SHOW(pread(fd, b, 8, 0));
  show_bytes("unlinked", b, 7);
  SHOW(close(fd), unlink("n6"), remove("n6"), rename("n6", "n7"), link("n6", "n7"));
  SHOW(mkdir("dir", 0755), remove("dir"));
}

static void check_transfers(void) {
  title("transfers");
  int from;
  int to;
  int pipes[2];
  SHOW(from = created("f"), to = created("g"), write(from, "abcdefghijklmnopqrstuvwxyz", 26));
  SHOW(write(to, ">", 1), lseek(from, 0, SEEK_SET));
  off_t at = 20;
  SHOW(sendfile(to, from, NULL, 3), sendfile64(to, from, &at, 2), lseek(from, 0, SEEK_CUR));
  SHOW(lseek(to, 0, SEEK_CUR), copy_file_range(from, NULL, to, NULL, 4, 0));
  SHOW(lseek(from, 0, SEEK_CUR), pipe(pipes), write(from, "?", 1));
  SHOW(splice(from, NULL, pipes[1], NULL, 5, 0), splice(pipes[0], NULL, to, NULL, 5, 0));
  SHOW(write(to, "<", 1), read(from, &at, 1), splice(from, NULL, to, NULL, 5, 0));
  show_file("f");
  show_file("g");
  SHOW(ioctl(to, FICLONE, -1), close(pipes[0]) | close(pipes[1]));
  char* map;
  SHOW((map = mmap(NULL, 26, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0)) == MAP_FAILED);
  map[0] = 'M';
  show_file("f");
  SHOW(pwrite(from, "W", 1, 1));
  show_bytes("mapped", map, 4);
  SHOW(munmap(map, 26), (map = mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, to, 0)) == MAP_FAILED);
  show_bytes("mapped", map, 12);
  SHOW(munmap(map, 4096), (map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0)) == MAP_FAILED);
  SHOW(mlockall(MCL_FUTURE), munlockall(), mlockall(0), close(from), close(to));
}

// A page that is written by a call, and then in place.
static void check_mappings(void) {
  title("mappings");
  enum { kPage = 4096 };
  int fd;
  char* map;
  SHOW(fd = created("m"), ftruncate(fd, 2 * kPage), fsync(fd) | fsync(fd));
  SHOW(pwrite(fd, "cached", 6, 0));
  SHOW((map = mmap(NULL, 2 * kPage, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED);
  show_bytes("mapped", map, 6);
  SHOW(pwrite(fd, "mapped", 6, 0), fsync(fd) | fsync(fd), pwrite(fd, "M", 1, 0));
  show_bytes("mapped", map, 6);
  SHOW(mprotect(map, kPage, PROT_READ | PROT_WRITE));
  map[1] = 'A';
  char found[6];
  SHOW(pread(fd, found, 6, 0));
  show_bytes("read", found, 6);
  SHOW(pwrite(fd, "P", 1, 2));
  show_bytes("mapped", map, 6);
  SHOW(pkey_mprotect(map + kPage, kPage, PROT_READ | PROT_WRITE, -1));
  map[kPage] = 'K';
  SHOW(fsync(fd), mprotect(map + 1, 1, PROT_WRITE), munmap(map + 1, 1));
  SHOW(msync(map, kPage, MS_SYNC), msync(map, kPage, MS_ASYNC), msync(map + 1, 1, MS_SYNC));
  SHOW(mremap(map + 1, 1, 1, 0) == MAP_FAILED, mremap(map, 2 * kPage, kPage, 0) == map);
  SHOW((map = mremap(map, kPage, 2 * kPage, MREMAP_MAYMOVE)) == MAP_FAILED);
  show_bytes("mapped", map + kPage, 1);
  SHOW(munmap(map, 2 * kPage), close(fd), fd = open("m", O_RDWR));
  SHOW((map = (char*)syscall(SYS_mmap, NULL, kPage, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED);
  SHOW(syscall(SYS_mprotect, map, kPage, PROT_READ | PROT_WRITE));
  SHOW(syscall(SYS_msync, map, kPage, MS_SYNC));
  SHOW(syscall(SYS_pkey_mprotect, map, kPage, PROT_READ | PROT_WRITE, -1));
  map[3] = 'N';
  SHOW((map = (char*)syscall(SYS_mremap, map, kPage, 2 * kPage, MREMAP_MAYMOVE)) == MAP_FAILED);
  SHOW(syscall(SYS_munmap, map, 2 * kPage), syscall(SYS_munmap, 1, 1), close(fd));
  show_file("m");
}

// What libc writes to standard error by itself.
static void check_errors(void) {
  title("errors");
  int fd;
  int saved;
  SHOW((saved = dup(2)) < 0, fd = open("errors", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644));
  SHOW(dup2(fd, 2), write(2, "error: ", 7));
  errno = ENOENT;
  perror("perror");
  errno = EPERM;
  perror(NULL);
  SHOW(fsync(2) | fsync(2), write(fd, "more: ", 6));
  psignal(SIGSEGV, "psignal");
  const siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_TKILL};
  psiginfo(&info, "psiginfo");
  SHOW(write(2, "end", 3), dup2(saved, 2), close(saved) | close(fd));
  show_file("errors");
}

// Calls that give the kernel a file: what they do with it is in lend.c, for most need rights. Here,
// that they are made, and say what the kernel says.
static void check_lending(void) {
  title("lending");
  int fd;
  char path[] = "lent";
  SHOW(fd = created("lent"), write(fd, "no module, no image", 19), swapon("nosuch", 0));
  SHOW(swapon("lent", -1), acct("nosuch"), acct("."));
  SHOW(quotactl(QCMD(Q_QUOTAON, USRQUOTA), "nosuch", 1, path));
  SHOW(quotactl(QCMD(Q_GETFMT, USRQUOTA), "nosuch", 1, path));
  SHOW(mount("lent", "nosuch", "ext4", 0, NULL), fsconfig(-1, 1, "source", "lent", 0));
  SHOW(fsconfig(-1, 3, "source", "lent", AT_FDCWD), fsconfig(-1, 5, "source", NULL, fd));
  SHOW(fanotify_init(0x80000000, O_RDWR), write(fd, "!", 1), close(fd));
  show_file("lent");
  SHOW(fd = (int)syscall(SYS_open, "lent", O_RDONLY), syscall(SYS_swapon, "nosuch", 0));
  SHOW(syscall(SYS_acct, "nosuch"));
  SHOW(syscall(SYS_quotactl, QCMD(Q_QUOTAON, USRQUOTA), "nosuch", 1, "lent"));
  SHOW(syscall(SYS_quotactl_fd, -1, QCMD(Q_QUOTAON, USRQUOTA), 1, "lent"));
  SHOW(syscall(SYS_mount, "lent", "nosuch", "ext4", 0, NULL));
  SHOW(syscall(SYS_fsconfig, -1, 1, "source", "lent", 0));
  SHOW(syscall(SYS_fanotify_init, 0x80000000, O_RDWR), syscall(SYS_finit_module, -1, "", 0));
  SHOW(syscall(SYS_finit_module, fd, "", -1), syscall(SYS_kexec_file_load, -1, -1, 1L, "", -1L));
  SHOW(close(fd));
}

static void check_messages(void) {
  title("messages");
  int pair[2];
  int fd;
  SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), fd = created("h"), write(fd, "here", 4));
  struct msghdr* message = descriptor_message(fd);
  SHOW(sendmsg(pair[0], message, 0), recvmsg(pair[1], message, 0));
  const int twin = received_descriptor(message);
  SHOW(write(twin, "there", 5), write(fd, "!", 1));
  message = descriptor_message(twin);
  SHOW(sendmmsg(pair[0], (struct mmsghdr*)message, 1, 0), close(twin));
  SHOW(recvmmsg(pair[1], (struct mmsghdr*)message, 1, 0, NULL));
  const int third = received_descriptor(message);
  SHOW(write(third, "!", 1), close(third), close(fd));
  show_file("h");
  SHOW(sendmsg(-1, message, 0));
  const int self = pidfd_open(getpid(), 0);
  SHOW(fd = open("h", O_RDWR));
  int got;
  SHOW(got = pidfd_getfd(self, fd, 0), write(got, "pidfd", 5));
  show_file("h");
  SHOW(close(got), got = (int)syscall(SYS_pidfd_getfd, self, fd, 0), write(got, "again", 5));
  show_file("h");
  SHOW(close(got) | close(fd) | close(self) | close(pair[0]) | close(pair[1]));
  struct {
    struct file_handle handle;
    unsigned char space[MAX_HANDLE_SZ];
  } handle = {.handle.handle_bytes = MAX_HANDLE_SZ};
  int mount;
  const int named = name_to_handle_at(AT_FDCWD, "h", &handle.handle, &mount, 0);
  const int here = open(".", O_RDONLY);
  got = named == 0 ? open_by_handle_at(here, &handle.handle, O_RDWR | O_TRUNC) : -1;
  if (got < 0) got = open("h", O_RDWR | O_TRUNC);  // not allowed to everybody
  SHOW(write(got, "handle", 6), close(got));
  got = named == 0 ? (int)syscall(SYS_open_by_handle_at, here, &handle.handle, O_RDWR) : -1;
  if (got < 0) got = open("h", O_RDWR);
  SHOW(write(got, "H", 1), close(got) | close(here));
  show_file("h");
}

// Nothing but what leaves the program.
static void check_leaving(void) {
  title("what leaves");
  int pair[2], ends[2], more[2];
  char bytes[16];
  struct iovec iov = {"bytes", 5}, to = {bytes, 5};
  struct sockaddr_un name = {AF_UNIX, "socket"};
  const struct sockaddr* at = (const struct sockaddr*)&name;
  SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), pipe(ends), pipe(more));
  SHOW(__send(pair[0], "one", 3, 0), sendto(pair[0], "two", 3, 0, NULL, 0), send(-1, "x", 1, 0));
  SHOW(syscall(SYS_sendto, pair[0], "six", 3, 0, NULL, 0), read(pair[1], bytes, 16));
  SHOW(shutdown(pair[0], SHUT_WR), send(pair[0], "x", 1, MSG_NOSIGNAL),
       syscall(SYS_shutdown, -1, 0));
  const int bound = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
  SHOW(bind(bound, at, sizeof(name)), listen(bound, 1), connect(other, at, sizeof(name)));
  SHOW(syscall(SYS_bind, -1, 0, 0), syscall(SYS_listen, -1, 0), syscall(SYS_connect, -1, 0, 0));
  SHOW(__connect(-1, at, sizeof(name)));
  SHOW(close(bound) + close(other), unlink("socket"), close(pair[0]) + close(pair[1]));
  SHOW(vmsplice(ends[1], &iov, 1, 0), tee(ends[0], more[1], 5, 0), syscall(SYS_tee, -1, -1, 1, 0));
  SHOW(syscall(SYS_vmsplice, -1, &iov, 1, 0), read(more[0], bytes, 16));
  show_bytes("through the pipes", bytes, 5);
  const int event = eventfd(0, 0);
  SHOW(eventfd_write(event, 3), read(event, bytes, 8), eventfd_write(-1, 1), close(event));
  FILE* pipe_to = popen("cat >/dev/null", "w");
  SHOW(fputs("gone", pipe_to) >= 0, pclose(pipe_to));
  const struct {
    long type;
    char text[8];
  } message = {1, "text"};
  const int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 1, 0600);
  struct sembuf up = {0, 1, 0};
  SHOW(msgsnd(queue, &message, 4, 0), msgsnd(-1, &message, 4, 0), msgctl(queue, IPC_RMID, NULL));
  SHOW(semop(set, &up, 1), semtimedop(set, &up, 1, NULL), semctl(set, 0, GETVAL),
       semctl(set, 0, IPC_RMID));
  SHOW(syscall(SYS_msgsnd, -1, &message, 4, 0), syscall(SYS_semop, -1, &up, 1),
       syscall(SYS_semtimedop, -1, &up, 1, 0));
  SHOW(mq_send(-1, "x", 1, 0), mq_timedsend(-1, "x", 1, 0, NULL),
       syscall(SYS_mq_timedsend, -1, "x", 1, 0, NULL));
  const union sigval value = {0};
  const pid_t self = getpid();
  SHOW(kill(self, 0), killpg(getpgrp(), 0), kill(self, 1000), syscall(SYS_kill, self, 0));
  signal(SIGUSR2, SIG_IGN);
  SHOW(sigqueue(self, SIGUSR2, value), syscall(SYS_tgkill, self, self, 0),
       syscall(SYS_rt_sigqueueinfo, self, 1000, NULL));
  SHOW(tgkill(self, self, 0), syscall(SYS_pidfd_send_signal, -1, 0, NULL, 0));
  SHOW(syscall(SYS_rt_tgsigqueueinfo, self, self, 1000, NULL));
  SHOW(process_vm_writev(self, &iov, 1, &to, 1, 0),
       syscall(SYS_process_vm_writev, self, &iov, 1, &to, 1, 1));
  show_bytes("memory", bytes, 5);
  syslog(LOG_DEBUG, "%s", "nobody need hear it");
  __syslog_chk(LOG_DEBUG, 1, "%s", "nor this");
  for (int i = 0; i < 2; ++i) close(ends[i]), close(more[i]);
}

static void log_by_list(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsyslog(LOG_DEBUG, format, arguments);
  va_end(arguments);
  va_start(arguments, format);
  __vsyslog_chk(LOG_DEBUG, 1, format, arguments);
  va_end(arguments);
}

static void write_to_d(void* unused) {
  (void)unused;
  close(write(created("d"), "quickly", 7) == 7 ? -1 : 1);
}

static int call_vdprintf(int fd, int checked, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int n =
      checked ? __vdprintf_chk(fd, 1, format, arguments) : vdprintf(fd, format, arguments);
  va_end(arguments);
  return n;
}

static void check_streams(const char* directory) {
  title("streams");
  FILE* f = fopen("st", "w");
  SHOW(fileno(f), fprintf(f, "stream %d\n", 1), fclose(f));
  show_file("st");
  f = fopen64("st", "a+");
  SHOW(fputs("more\n", f), fflush(f));
  show_file("st");
  SHOW(freopen("st2", "w", f) == f, fputs("reopened", f), freopen64("st", "r", f) == f);
  char line[64];
  SHOW(fgets(line, sizeof(line), f) == line);
  show_bytes("line", line, (ssize_t)strlen(line));
  SHOW(_IO_fclose(f));
  show_file("st2");
  SHOW((f = fopen("nosuch", "r")) == NULL, (f = _IO_fopen("st", "r+")) == NULL);
  SHOW(freopen(NULL, "r", f) == f, fclose(f));
  int fd;
  SHOW(fd = created("st3"), write(fd, "raw ", 4), (f = fdopen(fd, "w")) == NULL);
  SHOW(fputs("cooked", f), fclose(f));
  show_file("st3");
  SHOW(fdopen(-1, "r") == NULL, fd = open("st3", O_RDWR | O_APPEND));
  SHOW((f = _IO_fdopen(fd, "a")) == NULL, dprintf(fd, "%s", " dprintf"));
  SHOW(__dprintf_chk(fd, 1, "%s", " chk"), call_vdprintf(fd, 0, "%s", " v"));
  SHOW(call_vdprintf(fd, 1, "%s", " vchk"), write(fd, "!", 1), fclose(f));
  show_file("st3");
  f = fmemopen(line, sizeof(line), "w");
  SHOW(fputs("memory", f), fclose(f), fcloseall());

  // Descriptors that have a stream already.
  fflush(stdout);
  const int output = dup(1);
  fd = created("st4");
  dup2(fd, 1);
  printf("printed ");
  fflush(stdout);
  ssize_t written = write(fd, "written ", 8);
  close(1);
  close(fd);
  fd = created("st5");  // 1, or a lower one
  const int again = dup(fd);
  printf("printed ");
  fflush(stdout);
  written += write(again, "written ", 8);
  dup2(output, 1);
  if (fd != 1) close(fd);
  close(again);
  close(output);
  SHOW(written);
  show_file("st4");
  show_file("st5");
  SHOW((f = fopen("st6", "w")) == NULL, fputs("first ", f), fflush(f), fd = created("st7"));
  SHOW(write(fd, "raw ", 4), dup2(fd, fileno(f)) == fileno(f), fputs("second ", f), fflush(f));
  SHOW(write(fd, "raw", 3), fclose(f), close(fd));
  show_file("st6");
  show_file("st7");

#ifdef __GLIBC__
  void* frames[4];
  const int depth = backtrace(frames, 4);
  SHOW(fd = created("trace"), write(fd, "#", 1));
  backtrace_symbols_fd(frames, depth, fd);
  __backtrace_symbols_fd(frames, depth, fd);
  SHOW(lseek(fd, 0, SEEK_CUR) > 10, close(fd));
  SHOW(unlink("trace"));  // addresses differ from run to run
#endif

  char name[64];
  snprintf(name, sizeof(name), "/nvcache-every-call-%d", getpid());
  SHOW(fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), ftruncate(fd, 10), close(fd));
  SHOW(shm_unlink(name));

  snprintf(name, sizeof(name), "%.40s/wtmp", directory);
  SHOW(close(open("wtmp", O_CREAT | O_RDWR, 0644)));
  struct utmpx record = {.ut_type = USER_PROCESS, .ut_id = "x", .ut_line = "ttyX"};
  updwtmpx("wtmp", &record);
  updwtmp("wtmp", (struct utmp*)&record);
  SHOW(utmpname("wtmp"), pututxline(&record) != NULL, pututline((struct utmp*)&record) != NULL);
  endutxent();
  struct stat st;
  SHOW(stat("wtmp", &st), st.st_size);
}

static int run_child(void* argument) {
  const int fd = open("child", O_WRONLY | O_CREAT | O_APPEND, 0644);
  const char text[2] = {*(const char*)argument, 0};
  if (write(fd, text, 1) != 1) return 1;
  close(fd);
  return 7;
}

static char g_stack[1 << 16] __attribute__((aligned(16)));

static void check_processes(void) {
  title("processes");
  int fd;
  int status;
  pid_t child;
  SHOW(fd = created("p"), write(fd, "parent ", 7));
  fflush(stdout);
#define CHILD(call)                            \
  fflush(stdout);                              \
  child = (call);                              \
  if (child == 0) {                            \
    if (write(fd, "child ", 6) != 6) _exit(9); \
    _exit(run_child("c"));                     \
  }                                            \
  show_status(child);                          \
  SHOW(lseek(fd, 0, SEEK_CUR));                \
  SHOW(write(fd, "p ", 2))
  CHILD(fork());
  CHILD(vfork());
  CHILD(__vfork());
  CHILD(_Fork());
  CHILD((pid_t)syscall(SYS_fork));
  CHILD((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  show_file("p");
  show_file("child");
  child = clone(run_child, g_stack + sizeof(g_stack), SIGCHLD, "1");
  show_status(child);
  child = __clone(run_child, g_stack + sizeof(g_stack), SIGCHLD, "2");
  show_status(child);
#ifdef __GLIBC__  // musl's child would crash
  SHOW(clone(NULL, g_stack + sizeof(g_stack), SIGCHLD, "2"));
#endif
  show_file("child");

  SHOW(write(fd, "before ", 7));
  char* const arguments[] = {"sh", "-c", "cat p; echo; exit 3", NULL};
  // What a child prints comes first.
  errno = kNoErrno;
  int spawned = posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ);
  int error = errno;
  show_status(child);
  SHOW(spawned, error);
  errno = kNoErrno;
  spawned = posix_spawnp(&child, "sh", NULL, NULL, arguments, environ);
  error = errno;
  show_status(child);
  SHOW(spawned, error);
  SHOW(posix_spawn(&child, "/nosuch", NULL, NULL, arguments, environ));
  posix_spawn_file_actions_t actions;
  const int redirected = open("redirected", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  SHOW(write(redirected, "ours ", 5), posix_spawn_file_actions_init(&actions));
  SHOW(posix_spawn_file_actions_adddup2(&actions, redirected, 1));
  SHOW(posix_spawn_file_actions_adddup2(&actions, -1, 1));
  SHOW(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ));
  show_status(child);
  SHOW(posix_spawn_file_actions_destroy(&actions), lseek(redirected, 0, SEEK_CUR));
  SHOW(close(redirected));
  show_file("redirected");
  SHOW(write(fd, "after ", 6), system("tail -c 6 p; echo; exit 4") >> 8, write(fd, "again ", 6));
  char line[256];
  FILE* p = popen("tail -c 6 p", "r");
  SHOW(fgets(line, sizeof(line), p) == line);
  show_bytes("popen", line, 6);
  SHOW(pclose(p));
  p = _IO_popen("exit 5", "r");
  SHOW(pclose(p) >> 8);
  wordexp_t words;
  SHOW(wordexp("$(tail -c 6 p) *.none", &words, 0), words.we_wordc);
  show_bytes("word", words.we_wordv[0], (ssize_t)strlen(words.we_wordv[0]));
  wordfree(&words);
  SHOW(wordexp("$(tail -c 6 p)", &words, WRDE_NOCMD));

  char* const echo[] = {"echo", "x y", "z", NULL};
  char* const environment[] = {"A=B", NULL};
#define EXEC(call)  \
  fflush(stdout);   \
  child = fork();   \
  if (child == 0) { \
    call;           \
    _Exit(errno);   \
  }                 \
  show_status(child)
  EXEC(execv("/bin/echo", echo));
  EXEC(execve("/bin/echo", echo, environment));
  EXEC(execvp("echo", echo));
  EXEC(execvpe("echo", echo, environment));
  EXEC(execl("/bin/echo", "echo", "a", "b", "c", "d", "e", "f", "g", "h", "i", NULL));
  EXEC(execl("/bin/echo", "echo", NULL));
  EXEC(execlp("echo", "echo", "only", NULL));
  EXEC(execle("/usr/bin/printenv", "printenv", "A", NULL, environment));
  EXEC(execv("/nosuch", echo));
  const int program = open("/bin/echo", O_RDONLY | O_CLOEXEC);
  EXEC(fexecve(program, echo, environ));
  EXEC(execveat(program, "", echo, environ, AT_EMPTY_PATH));
  close(program);
  EXEC(quick_exit(__cxa_at_quick_exit(write_to_d, NULL) == 0 ? 8 : 7));
  show_file("d");

  // A daemon's standard descriptors, which were files before.
  fflush(stdout);
  int pipes[2];
  SHOW(pipe(pipes));
  fflush(stdout);
  child = fork();
  if (child == 0) {
    dup2(fd, 0);
    if (daemon(1, 0) != 0) _exit(1);
    char byte = 'x';
    if (read(0, &byte, 1) != 0) _exit(1);  // /dev/null
    if (write(1, "lost", 4) == 4) dprintf(pipes[1], "daemon");
    _exit(0);
  }
  show_status(child);
  close(pipes[1]);
  ssize_t n = read(pipes[0], line, sizeof(line));
  show_bytes("daemon", line, n);
  close(pipes[0]);

  int terminal;
  fflush(stdout);
  child = forkpty(&terminal, NULL, NULL, NULL);
  if (child == 0) _exit(write(1, "typed", 5) == 5 && isatty(0) ? 6 : 1);
  memset(line, 0, sizeof(line));
  SHOW(read(terminal, line, sizeof(line)));
  show_status(child);
  SHOW(close(terminal), login_tty(-1), waitpid(-1, &status, WNOHANG), write(fd, ".", 1), close(fd));
  show_file("p");
}

static void* read_forever(void* argument) {
  const int fd = *(int*)argument;
  char byte;
  for (;;) {
    if (pread(fd, &byte, 1, 0) != 1) return NULL;
  }
}

static void check_threads(void) {
  title("threads");
  int fd;
  pthread_t thread;
  void* result;
  SHOW(fd = open("a", O_RDWR), pthread_create(&thread, NULL, read_forever, &fd));
  usleep(20000);
  int type = -1;
  SHOW(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type));
  printf("    type %d\n", type);
  SHOW(pthread_cancel(thread), pthread_join(thread, &result), result == PTHREAD_CANCELED);
  SHOW(close(fd));
}

static void check_async(void) {
  title("asynchronous");
  int fd;
  char b[16] = {0};
#ifndef __GLIBC__
  any_errno = 1;  // musl's threads for AIO leave EAGAIN there, or not
#endif
  SHOW(fd = created("as"), write(fd, "synchronous", 11));
#define AIO(type, start, wait, finish)                                                 \
  {                                                                                    \
    type request = {.aio_fildes = fd, .aio_buf = b, .aio_nbytes = 4, .aio_offset = 2}; \
    const type* list[1] = {&request};                                                  \
    SHOW(start);                                                                       \
    SHOW(wait(list, 1, NULL));                                                         \
    SHOW(finish(&request));                                                            \
  }
  AIO(struct aiocb, aio_read(&request), aio_suspend, aio_return);
  show_bytes("aio", b, 4);
  AIO(struct aiocb64, aio_read64(&request), aio_suspend64, aio_return64);
  memcpy(b, "ASYN", 4);
  AIO(struct aiocb, aio_write(&request), aio_suspend, aio_return);
  AIO(struct aiocb64, aio_write64(&request), aio_suspend64, aio_return64);
  AIO(struct aiocb, aio_fsync(O_SYNC, &request), aio_suspend, aio_return);
  AIO(struct aiocb64, aio_fsync64(O_DSYNC, &request), aio_suspend64, aio_return64);
  show_file("as");
  struct aiocb request = {
      .aio_fildes = fd, .aio_buf = "list", .aio_nbytes = 4, .aio_lio_opcode = LIO_WRITE};
  struct aiocb* list[2] = {&request, NULL};
  SHOW(lio_listio(LIO_WAIT, list, 2, NULL));
  struct aiocb64 request64 = {.aio_fildes = fd,
                              .aio_buf = "list64",
                              .aio_nbytes = 6,
                              .aio_offset = 20,
                              .aio_lio_opcode = LIO_WRITE};
  struct aiocb64* list64[2] = {&request64, NULL};
  SHOW(lio_listio64(LIO_WAIT, list64, 2, NULL));
  show_file("as");

  aio_context_t context = 0;
  SHOW(syscall(SYS_io_setup, 4, &context));
  struct iocb kernel = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                        .aio_fildes = (unsigned)fd,
                        .aio_buf = (unsigned long)"kernel",
                        .aio_nbytes = 6,
                        .aio_offset = 4};
  struct iocb* submitted[1] = {&kernel};
  struct io_event event;
  SHOW(syscall(SYS_io_submit, context, 1, submitted));
  SHOW(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), event.res);
  show_file("as");
  SHOW(close(fd), fd = open("as", O_RDWR), pwrite(fd, "cached again", 12, 0));
  kernel.aio_fildes = (unsigned)fd;
  SHOW(io_submit((void*)context, 1, submitted));
  SHOW(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), syscall(SYS_io_destroy, context));
  show_file("as");
  SHOW(close(fd));
  any_errno = 0;
}

// A ring turns the cache off for its process, so each has one of its own.
static void check_rings(void) {
  title("rings");
  for (int kind = 0; kind < 3; ++kind) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      int fd;
      SHOW(fd = created("ring"), write(fd, "before the ring", 15));
      if (kind == 0) SHOW(io_uring_setup(5, NULL));
      if (kind == 1) SHOW(io_uring_queue_init(5, NULL, 2));
      if (kind == 2) SHOW(io_uring_queue_init_params(5, NULL, NULL));
      SHOW(write_by_ring(fd, "by", 2, 4));
      show_file("ring");
      SHOW(write(fd, "!", 1));
      fflush(stdout);
      _exit(0);
    }
    show_status(child);
    show_file("ring");
  }
}

static void copy_file(const char* from, const char* to) {
  static char buffer[1 << 20];
  const int in = open(from, O_RDONLY);
  const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
  ssize_t n;
  while ((n = read(in, buffer, sizeof(buffer))) > 0) {
    if (write(out, buffer, (size_t)n) != n) abort();
  }
  close(in);
  close(out);
}

static void on_signal(int signal) { printf("    signal %d\n", signal); }

static void show_handler(sighandler_t handler) {
  printf("    %s\n", handler == SIG_DFL     ? "default"
                     : handler == SIG_IGN   ? "ignored"
                     : handler == SIG_ERR   ? "error"
                     : handler == SIG_HOLD  ? "held"
                     : handler == on_signal ? "ours"
                                            : "whose?");
}

static void show_action(int (*query)(int, const struct sigaction*, struct sigaction*), int signal) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  SHOW(query(signal, NULL, &action));
  show_handler(action.sa_handler);
  unsigned long mask;
  memcpy(&mask, &action.sa_mask, sizeof(mask));
  printf("    flags %x mask %lx\n", (unsigned)action.sa_flags, mask);
}

// For one signal that the library has a use for itself, and others that it has not.
static void check_signals(int signal_number) {
  title("signals");
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND | SA_RESTART | SA_NODEFER;
  sigaddset(&action.sa_mask, SIGHUP);
  show_action(sigaction, signal_number);
  struct sigaction old;
  SHOW(sigaction(signal_number, &action, &old));
  show_handler(old.sa_handler);
  show_action(__sigaction, signal_number);
  SHOW(raise(signal_number));
  show_action(sigaction, signal_number);
  show_handler(signal(signal_number, on_signal));
  show_action(sigaction, signal_number);
  SHOW(raise(signal_number), siginterrupt(signal_number, 1));
  show_action(sigaction, signal_number);
  show_handler(bsd_signal(signal_number, SIG_IGN));
  show_action(sigaction, signal_number);
  SHOW(kill(getpid(), signal_number));
  show_handler(ssignal(signal_number, on_signal));
  show_action(sigaction, signal_number);
  SHOW(siginterrupt(signal_number, 0));
  show_action(sigaction, signal_number);
  show_handler(sysv_signal(signal_number, on_signal));
  show_action(sigaction, signal_number);
  SHOW(raise(signal_number));
  show_handler(__sysv_signal(signal_number, SIG_DFL));
  show_handler(sigset(signal_number, on_signal));
  show_action(sigaction, signal_number);
  show_handler(sigset(signal_number, SIG_HOLD));
  SHOW(raise(signal_number));
  show_handler(sigset(signal_number, on_signal));
  SHOW(sigignore(signal_number), raise(signal_number));
  show_action(sigaction, signal_number);
  show_handler(signal(signal_number, SIG_DFL));
  show_action(sigaction, signal_number);
  show_handler(signal(signal_number, SIG_ERR));
  SHOW(sigaction(0, NULL, NULL), sigaction(65, &action, NULL));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    raise(signal_number);
    _exit(0);
  }
  show_status(child);
}

static void check_loading(const char* plugin) {
  title("loading");
  copy_file(plugin, "plugin.so");
  void* library;
  SHOW((library = dlopen("./plugin.so", RTLD_NOW)) == NULL);
  if (library == NULL) printf("%s\n", dlerror());
  SHOW(((int (*)(void))dlsym(library, "answer"))(), dlclose(library));
#ifdef __GLIBC__
  SHOW((library = dlmopen(LM_ID_BASE, "./plugin.so", RTLD_NOW)) == NULL, dlclose(library));
#endif
  // By the search path of the caller, which is this program and not the library.
  SHOW((library = dlopen("libpreload_plugin.so", RTLD_NOW)) == NULL, dlclose(library));
  SHOW(dlopen("./nosuch.so", RTLD_NOW) == NULL);
  show_bytes("dlerror", dlerror(), 11);
  SHOW(dlopen("libnosuch.so", RTLD_NOW) == NULL, dlopen(NULL, RTLD_NOW) == NULL);
}

// What makes names and nothing else, and takes them away.
static void make_names(void) {
  char temporary[] = "zdXXXXXX";
  SHOW(mkdir("zd", 0755), mkdirat(AT_FDCWD, "zd/in", 0755), rmdir("zd/in"), symlink("zd", "zs"));
  SHOW(symlinkat("zs", AT_FDCWD, "zd/s"), mknod("zf", S_IFIFO | 0600, 0));
  SHOW(mknodat(AT_FDCWD, "zd/f", S_IFIFO | 0600, 0), mkfifo("zf", 0600));
  SHOW(mkfifoat(AT_FDCWD, "zd/f2", 0600), mkdtemp(temporary) != NULL, rmdir(temporary));
  SHOW(syscall(SYS_mkdir, "zn", 0755), syscall(SYS_mkdirat, AT_FDCWD, "zn/in", 0755));
  SHOW(syscall(SYS_rmdir, "zn"), syscall(SYS_rmdir, "zn/in"), syscall(SYS_symlink, "zd", "zn/s"));
  SHOW(syscall(SYS_symlinkat, "zd", AT_FDCWD, "zn/s2"));
  SHOW(syscall(SYS_mknod, "zn/f", S_IFIFO | 0600, 0));
  SHOW(syscall(SYS_mknodat, AT_FDCWD, "zn/f2", S_IFIFO | 0600, 0));
  // What is left is compared as files.
  const char* const names[] = {"zs",   "zd/s",  "zf",   "zd/f", "zd/f2",
                               "zn/s", "zn/s2", "zn/f", "zn/f2"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) SHOW(unlink(names[i]));
  SHOW(rmdir("zd"), rmdir("zn"));
}

static void check_syscalls(void) {
  title("system calls by number");
  char b[32] = {0};
  char c[32] = {0};
  const struct iovec out[2] = {{"abc", 3}, {"defgh", 5}};
  const struct iovec in[2] = {{b, 4}, {c, 4}};
  struct stat st;
  struct statx stx;
  struct open_how how = {.flags = O_RDWR | O_CREAT | O_TRUNC, .mode = 0644};
  const struct timespec ts[2] = {{3000, 0}, {4000, 0}};
  int fd;
  SHOW(fd = (int)syscall(SYS_open, "y", O_RDWR | O_CREAT | O_TRUNC, 0644), syscall(SYS_close, fd));
  SHOW(syscall(SYS_close, fd), fd = (int)syscall(SYS_creat, "y", 0644), syscall(SYS_close, fd));
  SHOW(fd = (int)syscall(SYS_openat2, AT_FDCWD, "y", &how, sizeof(how)), syscall(SYS_close, fd));
  SHOW(fd = (int)syscall(SYS_openat, AT_FDCWD, "y", O_RDWR | O_TRUNC, 0));
  SHOW(syscall(SYS_write, fd, "0123456789", 10), syscall(SYS_pwrite64, fd, "P", 1, 12));
  SHOW(syscall(SYS_writev, fd, out, 2), syscall(SYS_pwritev, fd, out, 2, 30, 0));
  SHOW(syscall(SYS_pwritev2, fd, out, 2, -1L, 0L, 0), syscall(SYS_lseek, fd, 2, SEEK_SET));
  SHOW(syscall(SYS_read, fd, b, 4));
  show_bytes("read", b, 4);
  SHOW(syscall(SYS_pread64, fd, b, 4, 12));
  show_bytes("pread", b, 4);
  SHOW(syscall(SYS_readv, fd, in, 2), syscall(SYS_preadv, fd, in, 2, 30, 0));
  show_bytes("preadv", c, 4);
  SHOW(syscall(SYS_preadv2, fd, in, 2, -1L, 0L, 0));
  show_bytes("preadv2", c, 4);
  SHOW(syscall(SYS_fsync, fd), syscall(SYS_fdatasync, fd));
  SHOW(syscall(SYS_sync_file_range, fd, 0, 0, 0), syscall(SYS_syncfs, fd), syscall(SYS_sync));
  SHOW(syscall(SYS_fstat, fd, &st), st.st_size, syscall(SYS_ftruncate, fd, 20));
  SHOW(syscall(SYS_stat, "y", &st), st.st_size, syscall(SYS_truncate, "y", 22));
  SHOW(syscall(SYS_lstat, "y", &st), st.st_size, syscall(SYS_fallocate, fd, 0, 0, 25));
  SHOW(syscall(SYS_newfstatat, AT_FDCWD, "y", &st, 0), st.st_size);
  SHOW(syscall(SYS_pwrite64, fd, "last", 4, 26));
  SHOW(syscall(SYS_statx, AT_FDCWD, "y", 0, STATX_SIZE, &stx), stx.stx_size);
  int copy;
  SHOW(copy = (int)syscall(SYS_dup, fd), syscall(SYS_dup2, fd, copy));
  SHOW(syscall(SYS_dup3, fd, copy, O_CLOEXEC), syscall(SYS_fcntl, copy, F_GETFD));
  SHOW(syscall(SYS_ioctl, fd, FIOCLEX, 0), syscall(SYS_close_range, copy, copy, 0));
  SHOW(syscall(SYS_unshare, 0));
  struct rlimit limit;
  struct rlimit64 limit64;
  SHOW(getrlimit(RLIMIT_FSIZE, &limit) | getrlimit64(RLIMIT_FSIZE, &limit64));
  SHOW(setrlimit(RLIMIT_FSIZE, &limit), setrlimit64(RLIMIT_FSIZE, &limit64));
  SHOW(prlimit(0, RLIMIT_FSIZE, &limit, &limit), prlimit64(0, RLIMIT_FSIZE, &limit64, &limit64));
  SHOW(syscall(SYS_setrlimit, RLIMIT_FSIZE, &limit));
  SHOW(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, &limit));
  SHOW(prctl(PR_SET_SECCOMP, 77, NULL, 0, 0), syscall(SYS_prctl, PR_SET_SECCOMP, 77, NULL, 0, 0));
  SHOW(syscall(SYS_seccomp, 77, 0, NULL), syscall(SYS_utimensat, AT_FDCWD, "y", ts, 0));
  SHOW(syscall(SYS_utime, "y", NULL), syscall(SYS_utimes, "y", NULL));
  SHOW(syscall(SYS_futimesat, AT_FDCWD, "y", NULL), syscall(SYS_rename, "y", "y2"));
  SHOW(syscall(SYS_renameat, AT_FDCWD, "y2", AT_FDCWD, "y3"));
  SHOW(syscall(SYS_renameat2, AT_FDCWD, "y3", AT_FDCWD, "y4", 0), syscall(SYS_link, "y4", "y5"));
  SHOW(syscall(SYS_linkat, AT_FDCWD, "y4", AT_FDCWD, "y6", 0), syscall(SYS_unlink, "y4"));
  SHOW(syscall(SYS_unlinkat, AT_FDCWD, "y5", 0), syscall(SYS_pwrite64, fd, "!", 1, 0));
  show_file("y6");
  make_names();
  SHOW(copy = (int)syscall(SYS_openat, AT_FDCWD, "y7", O_RDWR | O_CREAT | O_TRUNC, 0644));
  SHOW(syscall(SYS_lseek, fd, 0, SEEK_SET), syscall(SYS_sendfile, copy, fd, NULL, 4));
  SHOW(syscall(SYS_copy_file_range, fd, NULL, copy, NULL, 4, 0));
  show_file("y7");
  int pipes[2];
  SHOW(pipe(pipes), syscall(SYS_write, pipes[1], "piped", 5));
  SHOW(syscall(SYS_splice, pipes[0], NULL, copy, NULL, 5, 0), close(pipes[0]) | close(pipes[1]));
  show_file("y7");
  int pair[2];
  SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  struct msghdr* message = descriptor_message(copy);
  SHOW(syscall(SYS_sendmsg, pair[0], message, 0), syscall(SYS_recvmsg, pair[1], message, 0));
  SHOW(close(received_descriptor(message)));
  message = descriptor_message(copy);
  SHOW(syscall(SYS_sendmmsg, pair[0], message, 1, 0));
  SHOW(syscall(SYS_recvmmsg, pair[1], message, 1, 0, NULL), close(received_descriptor(message)));
  SHOW(close(pair[0]) | close(pair[1]), syscall(SYS_mlockall, MCL_FUTURE), syscall(SYS_munlockall));
  char* map = (char*)syscall(SYS_mmap, NULL, 4, PROT_READ, MAP_SHARED, fd, 0);
  show_bytes("mapped", map, 4);
  SHOW(munmap(map, 4), syscall(SYS_close, copy), syscall(SYS_close, fd));
  SHOW(syscall(SYS_getppid) == getppid(), syscall(4711), syscall(-1));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    char* const echo[] = {"echo", "by number", NULL};
    syscall(SYS_execve, "/bin/echo", echo, environ);
    _exit(1);
  }
  show_status(child);
  child = fork();
  if (child == 0) {
    char* const echo[] = {"echo", "by number", "at", NULL};
    syscall(SYS_execveat, AT_FDCWD, "/bin/echo", echo, environ, 0);
    _exit(1);
  }
  show_status(child);
  fflush(stdout);
  child = fork();
  if (child == 0) {
    fd = created("y8");
    if (write(fd, "exit", 4) == 4) syscall(SYS_exit_group, 5);
  }
  show_status(child);
  show_file("y8");
}

// Who lets go of a lock twice caches nothing any more.
static void check_locks(void) {
  title("locks");
  int fd;
  SHOW(fd = created("locked"), write(fd, "0123456789", 10), lseek(fd, 0, SEEK_SET));
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -3};
  SHOW(fcntl(fd, F_SETLK, &lock), lseek(fd, 4, SEEK_SET), lockf(fd, F_LOCK, 2));
  SHOW(lockf64(fd, F_ULOCK, 2), flock(fd, LOCK_EX), flock(fd, LOCK_SH | LOCK_NB),
       flock(fd, LOCK_UN));
  SHOW(write(fd, "after", 5), fsync(fd), close(fd));
  show_file("locked");
}

// The calls after which the library does nothing any more come last.
static void check_turning_off(void) {
  title("turning off");
  int fd;
  SHOW(fd = created("z"), write(fd, "cached ", 7));
  const pid_t child =
      clone(run_child, g_stack + sizeof(g_stack), CLONE_VM | CLONE_VFORK | SIGCHLD, "3");
  show_status(child);
  SHOW(write(fd, "uncached", 8), lseek(fd, 0, SEEK_CUR), close(fd));
  show_file("z");
  show_file("child");
  SHOW(close_range(200, 300, CLOSE_RANGE_UNSHARE), syscall(SYS_io_uring_setup, 0, NULL) < 0);
  SHOW(unshare(CLONE_FILES), fanotify_init(FAN_CLASS_NOTIF, O_RDWR));
}

int main(int argc, char** argv) {
  const int first_errno = errno;
  if (argc != 3 || chdir(argv[1]) != 0) return 2;
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  SHOW(first_errno);
  check_opening();
  check_temporary();
  check_data();
  check_large();
  check_size();
  check_descriptors();
  check_others();
  check_permissions();
  check_forbidden();
  check_attributes();
  check_names();
  check_transfers();
  check_mappings();
  check_errors();
  check_lending();
  check_messages();
  check_leaving();
  log_by_list("%d", 1);
  check_streams(argv[1]);
  check_processes();
  check_threads();
  check_signals(SIGSEGV);
  check_signals(SIGBUS);
  check_signals(SIGUSR1);
  check_signals(SIGRTMIN + 3);
  check_async();
  check_rings();
  if (strcmp(argv[2], "-") != 0) check_loading(argv[2]);
  check_syscalls();
  check_rights();
  check_locks();
  check_turning_off();
  title("end");
  return 0;
}
