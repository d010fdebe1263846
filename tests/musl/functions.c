/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Each function of libc that makes a wanted call offers it once, with these registers, and returns
 * what the front end says. */
#define _GNU_SOURCE
#include <sys/xattr.h>
#include <utime.h>

#include "fake.h"
#include "tests/kit/program.h"

static int calls;

/* `call` offers `number`, `cancellable` or not, with `...` as its first registers. */
#define EXPECT(cancellable, number, call, ...)                                            \
  do {                                                                                    \
    const long registers[] = {__VA_ARGS__};                                               \
    Begin(number, 5);                                                                     \
    const long good = (long)(call);                                                       \
    End(#call, number, cancellable, registers, sizeof(registers) / sizeof(registers[0])); \
    Begin(number, -EXDEV);                                                                \
    errno = 0;                                                                            \
    const long bad = (long)(call);                                                        \
    const int error = errno;                                                              \
    fake.answer = kRefuse;                                                                \
    if (bad != -1 || error != EXDEV) Fail(#call, "the error", bad, error);                \
    if (good != 5 && good != 0) Fail(#call, "the result", good, 0);                       \
    calls++;                                                                              \
  } while (0)

static void Begin(long number, long result) {
  fake.watched = number;
  fake.offers[number] = 0;
  fake.result = result;
  fake.answer = kDone;
}

static void Fail(const char* call, const char* what, long a, long b) {
  fake.answer = kRefuse;
  fprintf(stderr, "%s: %s is wrong: %ld, %ld\n", call, what, a, b);
  exit(1);
}

static void End(const char* call, long number, int cancellable, const long* registers,
                size_t count) {
  fake.answer = kRefuse;
  if (fake.offers[number] != 1) Fail(call, "the number of offers", fake.offers[number], 1);
  if (fake.last_cancellable != cancellable) Fail(call, "cancellable", !cancellable, cancellable);
  for (size_t i = 0; i < count; i++) {
    if (fake.last[i] != registers[i]) Fail(call, "a register", (long)i, fake.last[i]);
  }
}

#define P(pointer) ((long)(pointer))

int main(void) {
  CHECK(HasFake());
  char buffer[16] = "abc";
  struct iovec iov[2] = {{buffer, 4}, {buffer + 4, 4}};
  struct stat attributes;
  struct timespec times[2] = {{1, 2}, {3, 4}};
  struct timeval old_times[2] = {{1, 2}, {3, 4}};
  struct utimbuf utimes_buffer = {1, 2};
  off_t offset = 0, offset2 = 0;
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = 1};
  struct mmsghdr messages = {.msg_hdr = message};
  struct rlimit limit = {1, 2};
  struct sigaction action = {.sa_handler = SIG_IGN};
  char* const arguments[] = {"x", NULL};

  EXPECT(1, SYS_open, open("p", O_RDONLY), P("p"), O_RDONLY | 0100000);
  EXPECT(1, SYS_open, creat("p", 0600), P("p"), O_CREAT | O_WRONLY | O_TRUNC | 0100000, 0600);
  EXPECT(1, SYS_openat, openat(7, "p", O_RDWR), 7, P("p"), O_RDWR | 0100000);
  EXPECT(1, SYS_close, close(99), 99);
  EXPECT(0, SYS_dup, dup(99), 99);
  EXPECT(0, SYS_dup2, dup2(99, 98), 99, 98);
  EXPECT(0, SYS_dup3, dup3(99, 98, O_CLOEXEC), 99, 98, O_CLOEXEC);
  EXPECT(0, SYS_fcntl, fcntl(99, F_GETFL), 99, F_GETFL);
  EXPECT(1, SYS_fcntl, fcntl(99, F_SETLKW, buffer), 99, F_SETLKW, P(buffer));
  EXPECT(0, SYS_ioctl, ioctl(99, FIONREAD, buffer), 99, FIONREAD, P(buffer));
  EXPECT(0, SYS_setns, setns(99, 1), 99, 1);
  EXPECT(0, SYS_unshare, unshare(CLONE_FS), CLONE_FS);
  EXPECT(1, SYS_read, read(99, buffer, 3), 99, P(buffer), 3);
  EXPECT(1, SYS_pread64, pread(99, buffer, 3, 1L << 40), 99, P(buffer), 3, 1L << 40);
  EXPECT(1, SYS_readv, readv(99, iov, 2), 99, P(iov), 2);
  EXPECT(1, SYS_preadv, preadv(99, iov, 2, 9), 99, P(iov), 2, 9);
  EXPECT(1, SYS_write, write(99, buffer, 3), 99, P(buffer), 3);
  EXPECT(1, SYS_pwrite64, pwrite(99, buffer, 3, 9), 99, P(buffer), 3, 9);
  EXPECT(1, SYS_writev, writev(99, iov, 2), 99, P(iov), 2);
  EXPECT(1, SYS_pwritev, pwritev(99, iov, 2, 9), 99, P(iov), 2, 9);
  EXPECT(0, SYS_lseek, lseek(99, -3, SEEK_END), 99, -3, SEEK_END);
  EXPECT(1, SYS_fsync, fsync(99), 99);
  EXPECT(1, SYS_fdatasync, fdatasync(99), 99);
  EXPECT(0, SYS_sync_file_range, sync_file_range(99, 1, 2, 3), 99, 1, 2, 3);
  EXPECT(0, SYS_syncfs, syncfs(99), 99);
  EXPECT(0, SYS_ftruncate, ftruncate(99, 5), 99, 5);
  EXPECT(0, SYS_truncate, truncate("p", 5), P("p"), 5);
  EXPECT(0, SYS_fallocate, fallocate(99, 1, 2, 3), 99, 1, 2, 3);
  EXPECT(0, SYS_stat, stat("p", &attributes), P("p"));
  EXPECT(0, SYS_lstat, lstat("p", &attributes), P("p"));
  EXPECT(0, SYS_fstat, fstat(99, &attributes), 99);
  EXPECT(0, SYS_newfstatat, fstatat(99, "p", &attributes, 0), 99, P("p"));
  EXPECT(0, SYS_utimensat, utimensat(99, "p", times, 0), 99, P("p"), P(times), 0);
  EXPECT(0, SYS_utimensat, futimens(99, times), 99, 0, P(times), 0);
  EXPECT(0, SYS_utimensat, utimes("p", old_times), AT_FDCWD, P("p"));
  EXPECT(0, SYS_utimensat, utime("p", &utimes_buffer), AT_FDCWD, P("p"));
  EXPECT(0, SYS_chmod, chmod("p", 1), P("p"), 1);
  EXPECT(0, SYS_fchmod, fchmod(99, 1), 99, 1);
  EXPECT(0, SYS_fchmodat, fchmodat(99, "p", 1, 0), 99, P("p"), 1);
  EXPECT(0, SYS_chown, chown("p", 1, 2), P("p"), 1, 2);
  EXPECT(0, SYS_lchown, lchown("p", 1, 2), P("p"), 1, 2);
  EXPECT(0, SYS_fchown, fchown(99, 1, 2), 99, 1, 2);
  EXPECT(0, SYS_fchownat, fchownat(99, "p", 1, 2, 0), 99, P("p"), 1, 2, 0);
  EXPECT(0, SYS_setxattr, setxattr("p", "n", "v", 1, 0), P("p"), P("n"), P("v"), 1, 0);
  EXPECT(0, SYS_lsetxattr, lsetxattr("p", "n", "v", 1, 0), P("p"), P("n"), P("v"), 1, 0);
  EXPECT(0, SYS_fsetxattr, fsetxattr(99, "n", "v", 1, 0), 99, P("n"), P("v"), 1, 0);
  EXPECT(0, SYS_removexattr, removexattr("p", "n"), P("p"), P("n"));
  EXPECT(0, SYS_lremovexattr, lremovexattr("p", "n"), P("p"), P("n"));
  EXPECT(0, SYS_fremovexattr, fremovexattr(99, "n"), 99, P("n"));
  EXPECT(0, SYS_rename, rename("a", "b"), P("a"), P("b"));
  EXPECT(0, SYS_renameat, renameat(99, "a", 98, "b"), 99, P("a"), 98, P("b"));
  EXPECT(0, SYS_link, link("a", "b"), P("a"), P("b"));
  EXPECT(0, SYS_linkat, linkat(99, "a", 98, "b", 0), 99, P("a"), 98, P("b"), 0);
  EXPECT(0, SYS_unlink, unlink("a"), P("a"));
  EXPECT(0, SYS_unlink, remove("a"), P("a"));
  EXPECT(0, SYS_unlinkat, unlinkat(99, "a", 0), 99, P("a"), 0);
  EXPECT(0, SYS_mmap, mmap(NULL, 4096, PROT_READ, MAP_SHARED, 99, 8192), 0, 4096, PROT_READ,
         MAP_SHARED, 99, 8192);
  EXPECT(0, SYS_sendfile, sendfile(99, 98, &offset, 3), 99, 98, P(&offset), 3);
  EXPECT(0, SYS_copy_file_range, copy_file_range(99, &offset, 98, &offset2, 3, 0), 99, P(&offset),
         98, P(&offset2), 3, 0);
  EXPECT(0, SYS_splice, splice(99, NULL, 98, NULL, 3, 0), 99, 0, 98, 0, 3, 0);
  EXPECT(1, SYS_sendmsg, sendmsg(99, &message, 0), 99);
  EXPECT(1, SYS_recvmsg, recvmsg(99, &message, 0), 99);
  EXPECT(1, SYS_recvmmsg, recvmmsg(99, &messages, 1, 0, NULL), 99, P(&messages), 1, 0);
  EXPECT(0, SYS_rt_sigaction, sigaction(SIGUSR1, &action, NULL), SIGUSR1);
  EXPECT(0, SYS_execve, execve("p", arguments, environ), P("p"), P(arguments), P(environ));
  EXPECT(0, SYS_prlimit64, setrlimit(RLIMIT_FSIZE, &limit), 0, RLIMIT_FSIZE);
  EXPECT(0, SYS_prlimit64, prlimit(0, RLIMIT_FSIZE, &limit, NULL), 0, RLIMIT_FSIZE, P(&limit));
  EXPECT(0, SYS_fork, fork());
  EXPECT(0, SYS_fork, vfork());

  Begin(SYS_sendmsg, 5); /* one by one */
  const int sent = sendmmsg(99, &messages, 1, 0);
  End("sendmmsg()", SYS_sendmsg, 1, (const long[]){99}, 1);
  CHECK(sent == 1 && messages.msg_len == 5);

  Begin(SYS_sync, 0); /* without a result */
  sync();
  End("sync()", SYS_sync, 0, fake.last, 0);
  printf("%d functions\n", calls);
  return 0;
}
