// SPDX-License-Identifier: BSD-3-Clause
//
// Syncs a file, and then lets one thing leave, which is all that it ever says (output_test.py). The
// test has the journal by then, so the sync is told alone, and what leaves has to wait.
//
//   leaves NAME FOLDER STEP IN OUT WITNESS
//
// STEP: a file in memory, whose first word says how far the program is: 1 it is ready, 2 the sync
// may come (says the test), 3 it has returned, 4 the call has. IN, OUT: descriptors of a pipe or a
// socket pair, as NAME needs. WITNESS: the test's pid. FOLDER has `data`, and what else a name
// needs.
#include <aio.h>
#include <linux/aio_abi.h>
#include <mqueue.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <termios.h>

#include "tests/kit/program.h"

extern char** environ;

static int in = -1, out = -1, other = -1;
static pid_t witness;
static FILE* stream;
static volatile uint32_t* step;
static const char kText[] = "heard";
static const size_t kLength = sizeof(kText) - 1;

static void wait_for(const volatile uint32_t* word, uint32_t until) {
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < until) usleep(1000);
}

// ---------------------------------------------------------------------------------------------
// What has to be there before the sync.

static void open_stream(void) { stream = fdopen(out, "w"); }
// A shell knows no longer numbers.
static void open_nine(void) {
  CHECK(dup2(out, 9) == 9 && close(out) == 0);
  out = 9;
}
static void open_kernels(void) { other = open("kernels", O_WRONLY | O_CREAT, 0644); }
static void open_nonblocking(void) { CHECK(fcntl(out, F_SETFL, O_NONBLOCK) == 0); }
static void open_event(void) { other = out; }
static void open_queue(void) { other = msgget((key_t)getppid(), 0); }
static void open_set(void) { other = semget((key_t)getppid(), 1, 0); }
static void open_mq(void) {
  char name[64];
  snprintf(name, sizeof(name), "/leaves-%d", witness);
  other = (int)mq_open(name, O_WRONLY);
}
static void open_filled_pipe(void) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  CHECK(write(ends[1], kText, kLength) == (ssize_t)kLength);
  other = ends[0];
}
static void open_source(void) {
  other = open("source", O_RDWR | O_CREAT, 0644);
  CHECK(write(other, kText, kLength) == (ssize_t)kLength);
  lseek(other, 0, SEEK_SET);
}
static void open_both(void) {
  open_kernels();
  in = other;
  open_source();
}
static void open_socket(void) { other = socket(AF_UNIX, SOCK_STREAM, 0); }
static void open_datagram(void) { other = socket(AF_UNIX, SOCK_DGRAM, 0); }

// ---------------------------------------------------------------------------------------------
// What leaves.

static struct sockaddr_un address(const char* name) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strcpy(to.sun_path, name);
  return to;
}

static void do_write(void) { CHECK(write(out, kText, kLength) == (ssize_t)kLength); }
// Its own pipe's end is none of others, but the library does not know.
static void do_own_pipe(void) {
  int ends[2];
  char read_back[16];
  CHECK(pipe(ends) == 0 && write(ends[1], kText, kLength) == (ssize_t)kLength);
  CHECK(read(ends[0], read_back, sizeof(read_back)) == (ssize_t)kLength);
  CHECK(write(out, read_back, kLength) == (ssize_t)kLength);
}
static void do_writev(void) {
  const struct iovec iov = {(void*)kText, kLength};
  CHECK(writev(out, &iov, 1) == (ssize_t)kLength);
}
static void do_syscall_write(void) { CHECK(syscall(SYS_write, out, kText, kLength) > 0); }
static void do_stream(void) {
  fputs(kText, stream);
  CHECK(fflush(stream) == 0);
}
static void do_dprintf(void) { CHECK(dprintf(out, "%s", kText) > 0); }
static void do_send(void) { CHECK(send(out, kText, kLength, 0) > 0); }
static void do_sendto(void) {
  const struct sockaddr_un to = address("datagrams");
  CHECK(sendto(other, kText, kLength, 0, (const struct sockaddr*)&to, sizeof(to)) > 0);
}
static void do_syscall_sendto(void) {
  CHECK(syscall(SYS_sendto, out, kText, kLength, 0, 0, 0) > 0);
}
static void do_sendmsg(void) {
  struct iovec iov = {(void*)kText, kLength};
  const struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
  CHECK(sendmsg(out, &message, 0) > 0);
}
static void do_sendmmsg(void) {
  struct iovec iov = {(void*)kText, kLength};
  struct mmsghdr message = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
  CHECK(sendmmsg(out, &message, 1, 0) == 1);
}
static void do_connect(void) {
  const struct sockaddr_un to = address("listener");
  CHECK(connect(other, (const struct sockaddr*)&to, sizeof(to)) == 0);
}
static void do_bind(void) {
  const struct sockaddr_un to = address("made");
  CHECK(bind(other, (const struct sockaddr*)&to, sizeof(to)) == 0);
}
static void do_shutdown(void) { CHECK(shutdown(out, SHUT_WR) == 0); }
static void do_close(void) { CHECK(close(out) == 0); }
static void do_fclose(void) { CHECK(fclose(stream) == 0); }
static void do_close_range(void) { CHECK(close_range((unsigned)out, (unsigned)out, 0) == 0); }
static void do_dup2(void) { CHECK(dup2(in, out) == out); }
static void do_open_fifo(void) { CHECK((other = open("fifo", O_RDONLY | O_NONBLOCK)) >= 0); }
static void do_ioctl(void) {
  const struct winsize size = {.ws_row = 77, .ws_col = 11};
  CHECK(ioctl(out, TIOCSWINSZ, &size) == 0);
}
static void do_event_write(void) {
  const uint64_t one = 1;
  CHECK(write(other, &one, sizeof(one)) == sizeof(one));
}
static void do_eventfd_write(void) { CHECK(eventfd_write(other, 1) == 0); }
static void do_msgsnd(void) {
  const struct {
    long type;
    char text[8];
  } message = {1, "heard"};
  CHECK(msgsnd(other, &message, kLength, 0) == 0);
}
static void do_mq_send(void) { CHECK(mq_send((mqd_t)other, kText, kLength, 0) == 0); }
static void do_semop(void) {
  struct sembuf up = {0, 1, 0};
  CHECK(semop(other, &up, 1) == 0);
}
static void do_semtimedop(void) {
  struct sembuf up = {0, 1, 0};
  CHECK(semtimedop(other, &up, 1, NULL) == 0);
}
static void do_splice(void) { CHECK(splice(other, NULL, out, NULL, kLength, 0) > 0); }
static void do_tee(void) { CHECK(tee(other, out, kLength, 0) > 0); }
static void do_vmsplice(void) {
  const struct iovec iov = {(void*)kText, kLength};
  CHECK(vmsplice(out, &iov, 1, 0) > 0);
}
static void do_sendfile(void) { CHECK(sendfile(out, other, NULL, kLength) > 0); }
static void do_copy_range(void) { CHECK(copy_file_range(other, NULL, in, NULL, kLength, 0) > 0); }
static void do_kill(void) { CHECK(kill(witness, SIGUSR1) == 0); }
static void do_sigqueue(void) {
  const union sigval value = {0};
  CHECK(sigqueue(witness, SIGUSR1, value) == 0);
}
static void do_tgkill(void) { CHECK(tgkill(witness, witness, SIGUSR1) == 0); }
static void do_syscall_kill(void) { CHECK(syscall(SYS_kill, witness, SIGUSR1) == 0); }
static void do_pidfd(void) {
  const long fd = syscall(SYS_pidfd_open, witness, 0);
  CHECK(fd >= 0 && syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0) == 0);
}
static void do_vm_write(void) {
  const struct iovec from = {(void*)kText, kLength};
  const struct iovec to = {(void*)strtoul(getenv("LEAVES_TO"), NULL, 16), kLength};
  CHECK(process_vm_writev(witness, &from, 1, &to, 1, 0) == (ssize_t)kLength);
}
static void do_file(void) { CHECK(pwrite(other, kText, kLength, 0) == (ssize_t)kLength); }
static void do_aio(void) {
  struct aiocb request = {.aio_fildes = other, .aio_buf = (void*)kText, .aio_nbytes = kLength};
  CHECK(aio_write(&request) == 0);
  const struct aiocb* list[] = {&request};
  while (aio_error(&request) == EINPROGRESS) aio_suspend(list, 1, NULL);
}
static void do_io_submit(void) {
  aio_context_t context = 0;
  CHECK(syscall(SYS_io_setup, 1, &context) == 0);
  struct iocb request = {.aio_lio_opcode = IOCB_CMD_PWRITE,
                         .aio_fildes = (uint32_t)other,
                         .aio_buf = (uint64_t)kText,
                         .aio_nbytes = kLength};
  struct iocb* list[] = {&request};
  CHECK(syscall(SYS_io_submit, context, 1, list) == 1);
}
static void do_ftruncate(void) { CHECK(ftruncate(other, 12345) == 0); }
static void do_truncate(void) { CHECK(truncate("kernels", 12345) == 0); }
static void do_fallocate(void) { CHECK(fallocate(other, 0, 0, 12345) == 0); }
static void do_rename(void) { CHECK(rename("old", "made") == 0); }
static void do_link(void) { CHECK(link("old", "made") == 0); }
static void do_unlink(void) { CHECK(unlink("old") == 0); }
static void do_remove(void) { CHECK(remove("old") == 0); }
static void do_mkdir(void) { CHECK(mkdir("made", 0755) == 0); }
static void do_symlink(void) { CHECK(symlink("old", "made") == 0); }
static void do_mkfifo(void) { CHECK(mkfifo("made", 0644) == 0); }
static void do_create(void) { CHECK(open("made", O_WRONLY | O_CREAT | O_EXCL, 0644) >= 0); }
static void do_cut(void) { CHECK(open("old", O_WRONLY | O_TRUNC) >= 0); }
static void do_fopen(void) { CHECK(fopen("made", "w") != NULL); }
static void do_chmod(void) { CHECK(chmod("old", 0600) == 0); }
static void do_fchown(void) { CHECK(chown("old", 1, 1) == 0); }
static void do_utimens(void) {
  const struct timespec times[2] = {{1, 0}, {1, 0}};
  CHECK(utimensat(AT_FDCWD, "old", times, 0) == 0);
}
static void do_setxattr(void) { CHECK(setxattr("old", "user.heard", kText, kLength, 0) == 0); }
static char* const kEcho[] = {"sh", "-c", "echo heard >&$0", NULL};
static char number[16];
static char* const* echo_to(void) {
  static char* arguments[] = {"sh", "-c", "echo heard >&$0", number, NULL};
  snprintf(number, sizeof(number), "%d", out);
  return arguments;
}
static void do_exec(void) { execv("/bin/sh", echo_to()); }
static void do_execlp(void) {
  echo_to();
  execlp("sh", "sh", "-c", kEcho[2], number, (char*)NULL);
}
static void do_vfork(void) {
  char* const* arguments = echo_to();
  if (vfork() == 0) {
    execv("/bin/sh", arguments);
    _exit(1);
  }
}
static void do_spawn(void) {
  pid_t child;
  CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, echo_to(), environ) == 0);
}
static void do_system(void) {
  char command[64];
  snprintf(command, sizeof(command), "echo heard >&%d", out);
  CHECK(system(command) == 0);
}
static void do_popen(void) {
  char command[64];
  snprintf(command, sizeof(command), "echo heard >&%d", out);
  CHECK(popen(command, "r") != NULL);
}
// What it read from has ended.
static void open_cat(void) {
  char command[64];
  open_nine();
  snprintf(command, sizeof(command), "cat; echo heard >&%d", out);
  CHECK((stream = popen(command, "w")) != NULL);
}
static void do_pclose(void) { CHECK(pclose(stream) == 0); }
// Its parent's sync is told.
static void fork_writer(void) {
  if (fork() != 0) return;
  wait_for(step, 3);
  do_write();
  _exit(0);
}
// The kernel gets what the cache has of the file, for the child.
static void do_fork(void) {
  if (fork() == 0) {
    do_write();
    _exit(0);
  }
}
// The cleanup thread has something to write.
static int data = -1;
static void do_write_more(void) {
  CHECK(pwrite(data, "3", 1, 0) == 1);
  wait_for(step, 5);
}
static void do_wait(void) { wait_for(step, 5); }
static void do_sync_late(void) {
  usleep(5000);
  CHECK(pwrite(data, "3", 1, 0) == 1 && fsync(data) == 0);
}
static void map(const char* name) {
  CHECK((other = open(name, O_RDWR | O_CREAT, 0644)) >= 0 && ftruncate(other, 4096) == 0);
  CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0) != MAP_FAILED);
}
static void map_kernels(void) { map("kernels"); }
// As SQLite has one. The first is exclusive, as all whose names begin so (output_test.py).
static void map_index(void) { map("data-shm"); }
static void map_open_index(void) { map("others-shm"); }
static void on_signal(int number) {
  (void)number;
  do_write();
}
static void handle_signal(void) { signal(SIGUSR2, on_signal); }
static void do_return(void) {}
static void do_underscore_exit(void) { _exit(0); }
static void do_exit_group(void) { syscall(SYS_exit_group, 0); }
static void do_exit(void) { exit(0); }
static void do_quick_exit(void) { quick_exit(0); }
static void do_thread_exit(void) { pthread_exit(NULL); }

static const struct {
  const char* name;
  void (*begin)(void);
  void (*leave)(void);
} kAll[] = {
    {"write", handle_signal, do_write},
    {"write that does not block", open_nonblocking, do_write},
    {"write to a pipe of its own", NULL, do_own_pipe},
    {"write beside an index that is mapped", map_index, do_write},
    {"writev", NULL, do_writev},
    {"write by number", NULL, do_syscall_write},
    {"stream", open_stream, do_stream},
    {"dprintf", NULL, do_dprintf},
    {"send", NULL, do_send},
    {"sendto", open_datagram, do_sendto},
    {"sendto by number", NULL, do_syscall_sendto},
    {"sendmsg", NULL, do_sendmsg},
    {"sendmmsg", NULL, do_sendmmsg},
    {"write to a socket", NULL, do_write},
    {"write to a terminal", NULL, do_write},
    {"connect", open_socket, do_connect},
    {"bind", open_socket, do_bind},
    {"shutdown", NULL, do_shutdown},
    {"close", NULL, do_close},
    {"close of a socket", NULL, do_close},
    {"fclose", open_stream, do_fclose},
    {"close_range", NULL, do_close_range},
    {"dup2", NULL, do_dup2},
    {"open of a FIFO", NULL, do_open_fifo},
    {"ioctl", NULL, do_ioctl},
    {"event by write", open_event, do_event_write},
    {"eventfd_write", open_event, do_eventfd_write},
    {"msgsnd", open_queue, do_msgsnd},
    {"mq_send", open_mq, do_mq_send},
    {"semop", open_set, do_semop},
    {"semtimedop", open_set, do_semtimedop},
    {"splice", open_filled_pipe, do_splice},
    {"tee", open_filled_pipe, do_tee},
    {"vmsplice", NULL, do_vmsplice},
    {"sendfile", open_source, do_sendfile},
    {"copy_file_range", open_both, do_copy_range},
    {"kill", NULL, do_kill},
    {"kill by number", NULL, do_syscall_kill},
    {"sigqueue", NULL, do_sigqueue},
    {"tgkill", NULL, do_tgkill},
    {"pidfd_send_signal", NULL, do_pidfd},
    {"process_vm_writev", NULL, do_vm_write},
    {"a file of the kernel's", open_kernels, do_file},
    {"aio_write", open_kernels, do_aio},
    {"io_submit", open_kernels, do_io_submit},
    {"ftruncate", open_kernels, do_ftruncate},
    {"truncate", open_kernels, do_truncate},
    {"fallocate", open_kernels, do_fallocate},
    {"rename", NULL, do_rename},
    {"link", NULL, do_link},
    {"unlink", NULL, do_unlink},
    {"remove", NULL, do_remove},
    {"mkdir", NULL, do_mkdir},
    {"symlink", NULL, do_symlink},
    {"mkfifo", NULL, do_mkfifo},
    {"open that makes a file", NULL, do_create},
    {"open that cuts a file", NULL, do_cut},
    {"fopen", NULL, do_fopen},
    {"chmod", NULL, do_chmod},
    {"chown", NULL, do_fchown},
    {"utimensat", NULL, do_utimens},
    {"setxattr", NULL, do_setxattr},
    {"execv", open_nine, do_exec},
    {"execlp", open_nine, do_execlp},
    {"vfork", open_nine, do_vfork},
    {"posix_spawn", open_nine, do_spawn},
    {"system", open_nine, do_system},
    {"popen", open_nine, do_popen},
    {"pclose", open_cat, do_pclose},
    {"fork", fork_writer, do_return},
    {"fork after the sync", NULL, do_fork},
    {"return from main", NULL, do_return},
    {"exit", NULL, do_exit},
    {"_exit", NULL, do_underscore_exit},
    {"exit_group", NULL, do_exit_group},
    {"quick_exit", NULL, do_quick_exit},
    {"the last thread's end", NULL, do_thread_exit},
    {"(the cleanup thread)", NULL, do_write_more},
    {"(a late sync)", NULL, do_sync_late},
    {"(nothing)", NULL, do_wait},
    {"(a mapping)", map_kernels, do_return},
    {"(a mapping of an index)", map_open_index, do_return},
};

int main(int argc, char** argv) {
  if (argc == 1) {
    for (size_t i = 0; i < sizeof(kAll) / sizeof(*kAll); ++i) puts(kAll[i].name);
    return 0;
  }
  CHECK(argc == 7);
  size_t which = 0;
  while (strcmp(kAll[which].name, argv[1]) != 0) CHECK(++which < sizeof(kAll) / sizeof(*kAll));
  const int steps = open(argv[3], O_RDWR);
  step = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, steps, 0);
  CHECK(step != MAP_FAILED);
  in = atoi(argv[4]);
  out = atoi(argv[5]);
  witness = atoi(argv[6]);
  CHECK(chdir(argv[2]) == 0);
  // What it starts is without NVCache, and waits for nothing.
  unsetenv("LD_PRELOAD");
  data = open("data", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  CHECK(data >= 0 && pwrite(data, "0", 1, 0) == 1 && fsync(data) == 0 && fsync(data) == 0);
  const int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (kAll[which].begin != NULL) kAll[which].begin();
  CHECK(pwrite(data, "1", 1, 0) == 1 && fsync(data) == 0);
  struct stat st;
  CHECK(fstat(data, &st) == 0);  // the kernel has its bytes
  __atomic_store_n(step, 1, __ATOMIC_RELEASE);
  wait_for(step, 2);
  // What has the cache's bytes brought to the kernel would wait for that.
  const bool starts = kAll[which].begin == open_nine;
  CHECK(starts ? fsync(folder) == 0 : pwrite(data, "2", 1, 0) == 1 && fsync(data) == 0);
  __atomic_store_n(step, 3, __ATOMIC_RELEASE);
  kAll[which].leave();
  __atomic_store_n(step, 4, __ATOMIC_RELEASE);
  return 0;
}
