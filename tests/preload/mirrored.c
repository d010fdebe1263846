// SPDX-License-Identifier: BSD-3-Clause
//
// Each call that changes a file or syncs one, by itself: prints its name, and 0 or its error.
//
//   mirrored DIRECTORY     with the folder `folder`, and the files `file`, `other`, `gone`, `cut`,
//                          `written`, `target` and `shared`
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int plain, durable, synchronous, other, folder, ends[2];
static struct iovec iov = {"bytes", 5};

static void Say(const char* name, int failed) {
  printf("%s\t%s\n", name, failed ? strerrorname_np(errno) : "0");
  fflush(stdout);
}

// The call is made once; a negative result is an error.
#define CALL(name, ...)           \
  do {                            \
    errno = 0;                    \
    Say(name, (__VA_ARGS__) < 0); \
  } while (0)

static int Open(const char* path, int flags) {
  const int fd = open(path, flags, 0600);
  if (fd < 0) {
    perror(path);
    exit(1);
  }
  return fd;
}

static void Syncs(void) {
  CALL("fsync", fsync(plain));
  CALL("fdatasync", fdatasync(plain));
  CALL("fsync by number", syscall(SYS_fsync, plain));
  CALL("fsync of a folder", fsync(folder));
  CALL("sync_file_range, begun", sync_file_range(plain, 0, 0, SYNC_FILE_RANGE_WRITE));
  CALL("sync_file_range",
       sync_file_range(plain, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
  CALL("syncfs", syncfs(plain));
  CALL("sync by number", syscall(SYS_sync));
  char* map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
  CALL("mmap", map == MAP_FAILED ? -1 : 0);
  map[0] = 'm';
  CALL("msync, later", msync(map, 4096, MS_ASYNC));
  CALL("msync", msync(map, 4096, MS_SYNC));
  CALL("msync by number", syscall(SYS_msync, map, 4096L, (long)MS_SYNC));
}

static void Writes(void) {
  CALL("write", write(plain, "bytes", 5));
  CALL("pwrite", pwrite(plain, "bytes", 5, 0));
  CALL("writev", writev(plain, &iov, 1));
  CALL("pwritev", pwritev(plain, &iov, 1, 0));
  CALL("pwritev2", pwritev2(plain, &iov, 1, 0, 0));
  CALL("pwritev2, RWF_DSYNC", pwritev2(plain, &iov, 1, 0, RWF_DSYNC));
  CALL("pwritev2, RWF_SYNC", pwritev2(plain, &iov, 1, -1, RWF_SYNC));
  CALL("write, O_DSYNC", write(durable, "bytes", 5));
  CALL("write, O_SYNC", write(synchronous, "bytes", 5));
  CALL("write by number, O_DSYNC", syscall(SYS_write, durable, "bytes", 5L));
  CALL("write into a pipe", write(ends[1], "bytes", 5));
  CALL("read", pread(plain, (char[5]){0}, 5, 0));
  CALL("ftruncate", ftruncate(plain, 100));
  CALL("truncate", truncate("cut", 10));
  CALL("fallocate", fallocate(plain, 0, 0, 8192));
  CALL("posix_fallocate", (errno = posix_fallocate(plain, 0, 9000)) == 0 ? 0 : -1);
  CALL("sendfile, O_DSYNC", sendfile(durable, other, &(off_t){0}, 5));
  CALL("copy_file_range", copy_file_range(other, &(off64_t){0}, plain, &(off64_t){0}, 5, 0));
  CALL("splice, O_DSYNC", splice(ends[0], NULL, durable, &(off64_t){0}, 5, 0));
  unsigned attributes = 0;
  CALL("ioctl, which reads", ioctl(plain, FS_IOC_GETFLAGS, &attributes));
  CALL("ioctl, which sets", ioctl(plain, FS_IOC_SETFLAGS, &attributes));
}

static void Streams(void) {
  FILE* stream = fdopen(dup(plain), "w");
  CALL("stream", fputs("bytes", stream) < 0 ? -1 : fflush(stream));
  clearerr(stream);
  fclose(stream);
  stream = fdopen(dup(durable), "w");
  CALL("stream, O_DSYNC", fputs("bytes", stream) < 0 ? -1 : fflush(stream));
  fclose(stream);
}

static int Await(struct aiocb* request, int started) {
  if (started < 0) return -1;
  const struct aiocb* const list[] = {request};
  while (aio_error(request) == EINPROGRESS) aio_suspend(list, 1, NULL);
  return aio_return(request) < 0 ? -1 : 0;
}

static void Requests(void) {
  struct aiocb request = {.aio_fildes = plain, .aio_buf = "bytes", .aio_nbytes = 5};
  CALL("aio_write", Await(&request, aio_write(&request)));
  CALL("aio_fsync", Await(&request, aio_fsync(O_DSYNC, &request)));
  request.aio_fildes = durable;
  CALL("aio_write, O_DSYNC", Await(&request, aio_write(&request)));
  aio_context_t context = 0;
  CALL("io_setup", syscall(SYS_io_setup, 4, &context));
  struct iocb one = {.aio_fildes = (unsigned)plain,
                     .aio_lio_opcode = IOCB_CMD_PWRITE,
                     .aio_buf = (unsigned long)"b",
                     .aio_nbytes = 1};
  struct iocb* list[] = {&one};
  CALL("io_submit", syscall(SYS_io_submit, context, 1, list));
  one.aio_rw_flags = RWF_DSYNC;
  CALL("io_submit, RWF_DSYNC", syscall(SYS_io_submit, context, 1, list));
  one = (struct iocb){.aio_fildes = (unsigned)plain, .aio_lio_opcode = IOCB_CMD_FDSYNC};
  CALL("io_submit, a sync", syscall(SYS_io_submit, context, 1, list));
  syscall(SYS_io_destroy, context);
}

// Of a file that its parent has in the cache.
static int UnlinkInChild(const char* path) {
  const int fd = Open(path, O_RDWR | O_CLOEXEC);
  if (write(fd, "bytes", 5) < 0 && errno != EIO) return -1;
  const pid_t child = vfork();
  if (child == 0) _exit(unlink(path) == 0 ? 0 : errno);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  errno = WEXITSTATUS(status);
  return errno == 0 ? 0 : -1;
}

static void Names(void) {
  CALL("open", open("file", O_RDWR));
  CALL("open, O_CREAT", open("new", O_RDWR | O_CREAT, 0600));
  CALL("open, O_TRUNC", open("cut", O_RDWR | O_TRUNC));
  CALL("rename", rename("other", "renamed"));
  CALL("link", link("renamed", "linked"));
  CALL("symlink", symlink("renamed", "symbolic"));
  CALL("unlink", unlink("gone"));
  for (int i = 0; i < 2; ++i) {
    const int fd = Open(i == 0 ? "written" : "target", O_RDWR);
    CALL(i == 0 ? "write, again" : "write, once more", write(fd, "bytes", 5));
  }
  CALL("unlink of what was written", unlink("written"));
  CALL("rename over what was written", rename("linked", "target"));
  CALL("unlink by a child of vfork", UnlinkInChild("shared"));
  CALL("mkdir", mkdir("made", 0700));
  CALL("rmdir", rmdir("made"));
  CALL("mkfifo", mkfifo("fifo", 0600));
  CALL("chmod", chmod("file", 0640));
  CALL("fchmod", fchmod(plain, 0600));
  CALL("chown", chown("file", getuid(), getgid()));
  CALL("fchown", fchown(plain, getuid(), getgid()));
  CALL("utimensat", utimensat(AT_FDCWD, "file", NULL, 0));
  CALL("setxattr", setxattr("file", "user.a", "b", 1, 0));
  CALL("fsetxattr", fsetxattr(plain, "user.a", "b", 1, 0));
  CALL("stat", stat("file", &(struct stat){0}));
}

// The lowest number that is free.
static int Lowest(void) {
  const int fd = dup(0);
  close(fd);
  return fd;
}

int main(int argc, char** argv) {
  if (argc != 2 || chdir(argv[1]) != 0) return 2;
  plain = Open("file", O_RDWR);
  durable = Open("file", O_RDWR | O_DSYNC);
  synchronous = Open("file", O_RDWR | O_SYNC);
  other = Open("other", O_RDWR);
  folder = Open("folder", O_RDONLY | O_DIRECTORY);
  if (pipe(ends) != 0) return 2;
  Syncs();
  Writes();
  Streams();
  Requests();
  Names();
  // An open that fails leaves no descriptor behind.
  const int before = Lowest();
  const int opened = open("another", O_RDWR | O_CREAT, 0600);
  printf("descriptors\t%d\n", Lowest() - before - (opened >= 0));
  return 0;
}
