// SPDX-License-Identifier: BSD-3-Clause
//
// Each kind of call that changes a file, a name, a lock or a descriptor, made past libc: on a file
// and in a folder that are the kernel's, and on such as were synced often.
//
//   raw_kinds LIBRARY HOW [KIND...]    in an empty folder
//
// HOW says where the code is that makes the call: `own` or `trust`, in the program from its start
// (raw_kinds_own only); or it comes when the file is hot, or before, as early-HOW: `library`, in
// LIBRARY, which is loaded then; in memory that is filled, and made executable (`stub`, `heap`,
// `stack`, `named`), or is so from the beginning (`filled`); in a file without a name (`memfd`,
// `twice`: mapped to be written as well), and in one with a name (`file`). `jit`: it makes the call
// by libc, and the memory has code that only looks so. strace shows what it announces by access().
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <sys/file.h>

#include "tests/kit/program.h"

// Syncs: of a folder; until a file that is write-through from its beginning is tried for more.
enum { kSyncs = 6, kHot = 66, kSize = 16 };

typedef long Call(long number, long a, long b, long c, long d, long e, long f);

static Call* g_call;
#define RAW(...) RAW_PICK(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define RAW_PICK(n, a, b, c, d, e, f, ...) \
  g_call(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#ifdef RAW_OWN
static long own(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long fourth __asm__("r10") = d;
  register long fifth __asm__("r8") = e;
  register long sixth __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                   : "rcx", "r11", "memory");
  return result;
}
#endif

// The arguments one place further, the seventh from the stack, and the call.
static const unsigned char kCode[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6,
                                      0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8,
                                      0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
enum { kPage = 4096, kWritable = PROT_READ | PROT_WRITE, kRuns = PROT_READ | PROT_EXEC };

static char* map(size_t size, int protection, int fd) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  char* memory = mmap(NULL, size, protection, flags, fd, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static void* filled(void* memory) { return memcpy(memory, kCode, sizeof(kCode)); }

static void* let_run(char* page, int protection) {
  CHECK(mprotect(filled(page), kPage, protection) == 0);
  return page;
}

// In a page that nothing uses any more: below all that is called from here.
static void* on_stack(const char* where) {
  const uintptr_t here = (uintptr_t)&where;
  return let_run((char*)(here - here % kPage - 64 * kPage), kWritable | kRuns);
}

static void* named(char* page) {
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, page, kPage, "code");
  return page;
}

static void* in_file(int fd, int twice) {
  CHECK(fd >= 0 && ftruncate(fd, kPage) == 0);
  if (!twice) CHECK(write(fd, kCode, sizeof(kCode)) == sizeof(kCode));
  char* code = map(kPage, kRuns, fd);
  if (twice) filled(map(kPage, kWritable, fd));
  close(fd);
  return code;
}

// As a compiler's: much of it, and constants that have the bytes of a call.
static Call* call_beside_jit(void) {
  static const unsigned char kHarmless[] = {0x55, 0x48, 0x89, 0xe5, 0xb8, 0x0f, 0x05, 0xc3,
                                            0x00, 0x48, 0x01, 0xd8, 0x85, 0xc0, 0x5d, 0xc3};
  static const size_t kSizes[] = {1 << 20, 40 << 10};
  for (size_t i = 0; i < COUNT(kSizes); ++i) {
    char* memory = map(kSizes[i], kWritable | (i == 0 ? PROT_EXEC : 0), -1);
    for (size_t at = 0; at < kSizes[i]; at += sizeof(kHarmless)) {
      memcpy(memory + at, kHarmless, sizeof(kHarmless));
    }
    CHECK(mprotect(memory, kSizes[i], kRuns) == 0 && ((int (*)(void))memory)() != 0);
  }
  return (Call*)syscall;
}

static void* code_in(const char* where) {
  if (strcmp(where, "stub") == 0) return let_run(map(kPage, kWritable, -1), kRuns);
  if (strcmp(where, "named") == 0) return let_run(named(map(kPage, kWritable, -1)), kRuns);
  if (strcmp(where, "heap") == 0) return let_run(aligned_alloc(kPage, kPage), kWritable | kRuns);
  if (strcmp(where, "stack") == 0) return on_stack(where);
  if (strcmp(where, "filled") == 0) return filled(map(kPage, kWritable | kRuns, -1));
  if (strcmp(where, "memfd") == 0) return in_file(memfd_create("code", 0), 0);
  if (strcmp(where, "twice") == 0) return in_file(memfd_create("code", 0), 1);
  if (strcmp(where, "file") == 0) return in_file(open("code", O_RDWR | O_CREAT, 0700), 0);
  return NULL;
}

static int is_own(const char* how) { return strcmp(how, "own") == 0; }
static int is_early(const char* how) { return strncmp(how, "early-", 6) == 0; }

static Call* find_call(const char* how, const char* library) {
#ifdef RAW_OWN
  if (is_own(how) || strcmp(how, "trust") == 0) return own;
#endif
  if (strcmp(how, "jit") == 0) return call_beside_jit();
  void* const code = code_in(how);
  if (code != NULL) return (Call*)code;
  CHECK(strcmp(how, "library") == 0);
  void* loaded = dlopen(library, RTLD_NOW);
  CHECK(loaded != NULL);
  Call* call = (Call*)dlsym(loaded, "raw_call");
  CHECK(call != NULL);
  return call;
}

// ----------------------------------------------------------------------------------- What is seen

static void show_text(const char* what, long n, const char* text) {
  printf("  %s: %ld ", what, n);
  for (long i = 0; i < n; ++i) putchar(text[i] >= ' ' ? text[i] : '.');
  putchar('\n');
}

// By libc, and as the kernel has it.
static void show(const char* name) {
  char text[64];
  struct stat st = {.st_size = -1};
  const int fd = open(name, O_RDONLY);
  if (fstat(fd, &st) != 0) st.st_nlink = 0;
  printf("  %s: size %ld links %ld mode %o\n", name, (long)st.st_size, (long)st.st_nlink,
         st.st_mode);
  show_text("libc", pread(fd, text, sizeof(text), 0), text);
  const long raw = RAW(SYS_open, name, O_RDONLY);
  show_text("kernel", RAW(SYS_pread64, raw, text, sizeof(text), 0), text);
  RAW(SYS_close, raw);
  if (fd >= 0) close(fd);
}

static int by_name(const void* a, const void* b) {
  return strcmp(*(char* const*)a, *(char* const*)b);
}

static void list(const char* folder) {
  char* names[64];
  size_t count = 0;
  DIR* dir = opendir(folder);
  CHECK(dir != NULL);
  for (struct dirent* entry; (entry = readdir(dir)) != NULL && count < COUNT(names);) {
    if (entry->d_name[0] != '.') names[count++] = strdup(entry->d_name);
  }
  closedir(dir);
  qsort(names, count, sizeof(names[0]), by_name);
  printf("  names:");
  for (size_t i = 0; i < count; ++i) printf(" %s", names[i]);
  printf("\n");
}

static void announced_sync(const char* what, int fd) {
  if (access(what, F_OK) == 0) abort();
  const int result = fsync(fd);
  const int error = result != 0 ? errno : 0;
  if (access("the end", F_OK) == 0) abort();
  printf("  fsync: %d %d\n", result, error);
}

// -------------------------------------------------------------------------------- Kinds: of a file

// `f` is the file, which `fd` has, and `g` is another one that is as hot. The folder has `n`, that
// libc has renamed last.
static int g_other, g_folder;

static void say(const char* what, long result) { printf("  %s: %ld\n", what, result); }

static void do_write(int fd) {
  RAW(SYS_lseek, fd, 3, SEEK_SET);
  say("write", RAW(SYS_write, fd, "RAW", 3));
  say("libc's offset", (long)lseek(fd, 0, SEEK_CUR));
}
static void do_pwrite(int fd) { say("pwrite", RAW(SYS_pwrite64, fd, "RAW", 3, 2)); }
static void do_writev(int fd) {
  struct iovec both[] = {{"RA", 2}, {"W-", 2}};
  RAW(SYS_lseek, fd, 1, SEEK_SET);
  say("writev", RAW(SYS_writev, fd, both, 2));
}
static void do_pwritev2(int fd) {
  struct iovec both[] = {{"RA", 2}, {"W+", 2}};
  say("pwritev2", RAW(SYS_pwritev2, fd, both, 2, 20, 0, RWF_DSYNC));
}
static void do_ftruncate(int fd) { say("ftruncate", RAW(SYS_ftruncate, fd, 5)); }
static void do_truncate(int fd) {
  (void)fd;
  say("truncate", RAW(SYS_truncate, "f", 30));
}
static void do_fallocate(int fd) {
  say("fallocate", RAW(SYS_fallocate, fd, 0, 0, 40));
  say("punch", RAW(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4, 4));
}
static void do_copy_file_range(int fd) {
  loff_t from = 0, to = 3;
  say("copy_file_range", RAW(SYS_copy_file_range, g_other, &from, fd, &to, 6, 0));
  from = 0, to = 5;
  say("and from it", RAW(SYS_copy_file_range, fd, &from, g_other, &to, 6, 0));
}
static void do_sendfile(int fd) {
  off_t from = 0;
  RAW(SYS_lseek, fd, 2, SEEK_SET);
  say("sendfile", RAW(SYS_sendfile, fd, g_other, &from, 7));
}
static void do_splice(int fd) {
  int ends[2];
  CHECK(pipe(ends) == 0 && write(ends[1], "SPLICE", 6) == 6);
  loff_t to = 4;
  say("splice", RAW(SYS_splice, ends[0], 0, fd, &to, 6, 0));
  to = 0;
  say("and out of it", RAW(SYS_splice, fd, &to, ends[1], 0, 8, 0));
  char text[8];
  show_text("pipe", read(ends[0], text, sizeof(text)), text);
}
static void do_mmap(int fd) {
  char* page = (char*)RAW(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK((long)page > 0);
  show_text("mapped", kSize, page);
  memcpy(page + 1, "MAP", 3);
  say("libc writes", pwrite(fd, "libc", 4, 6));
  show_text("mapped", kSize, page);
  say("munmap", RAW(SYS_munmap, page, 4096));
}
static void do_aio(int fd) {
  aio_context_t context = 0;
  struct iocb one = {.aio_fildes = (unsigned)fd,
                     .aio_lio_opcode = IOCB_CMD_PWRITE,
                     .aio_buf = (unsigned long)"AIO",
                     .aio_nbytes = 3,
                     .aio_offset = 2};
  struct iocb* list_of_one = &one;
  struct io_event event = {.res = 0};
  say("io_setup", RAW(SYS_io_setup, 1, &context));
  say("io_submit", RAW(SYS_io_submit, context, 1, &list_of_one));
  say("io_getevents", RAW(SYS_io_getevents, context, 1, 1, &event, 0));
  say("written", (long)event.res);
  RAW(SYS_io_destroy, context);
}
static void do_io_uring(int fd) {
  struct io_uring_params p = {.flags = 0};
  const long ring = RAW(SYS_io_uring_setup, 2, &p);
  if (ring < 0) return say("io_uring_setup", ring);
  const int both = PROT_READ | PROT_WRITE, shared = MAP_SHARED | MAP_POPULATE;
  const size_t sq_size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
  char* sq = (char*)RAW(SYS_mmap, 0, sq_size, both, shared, ring, IORING_OFF_SQ_RING);
  char* cq = (char*)RAW(SYS_mmap, 0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
                        both, shared, ring, IORING_OFF_CQ_RING);
  struct io_uring_sqe* entry = (struct io_uring_sqe*)RAW(SYS_mmap, 0, p.sq_entries * sizeof(*entry),
                                                         both, shared, ring, IORING_OFF_SQES);
  CHECK((long)sq > 0 && (long)cq > 0 && (long)entry > 0);
  *entry = (struct io_uring_sqe){
      .opcode = IORING_OP_WRITE, .fd = fd, .off = 2, .addr = (unsigned long)"RING", .len = 4};
  *(unsigned*)(sq + p.sq_off.array) = 0;
  __atomic_store_n((unsigned*)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
  say("io_uring_enter", RAW(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0));
  say("written", ((struct io_uring_cqe*)(cq + p.cq_off.cqes))->res);
  RAW(SYS_close, ring);
}
static void do_open_truncating(int fd) {
  (void)fd;
  const long cut = RAW(SYS_open, "f", O_WRONLY | O_TRUNC);
  say("written", RAW(SYS_write, cut, "cut", 3));
  say("close", RAW(SYS_close, cut));
}
static void do_fsync(int fd) {
  say("fsync", RAW(SYS_fsync, fd));
  say("fdatasync", RAW(SYS_fdatasync, fd));
  say("syncfs", RAW(SYS_syncfs, fd));
}
static void do_fchmod(int fd) { say("fchmod", RAW(SYS_fchmod, fd, 0640)); }

// --------------------------------------------------------------------------------------- Of a name

static void do_rename(int fd) {
  (void)fd;
  say("rename", RAW(SYS_rename, "f", "f2"));
  say("back", rename("f2", "f"));
  say("over it", RAW(SYS_rename, "n", "g"));
}
static void do_exchange(int fd) {
  (void)fd;
  say("exchange", RAW(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 2));
}
static void do_link(int fd) {
  (void)fd;
  say("link", RAW(SYS_link, "f", "l"));
  say("linkat", RAW(SYS_linkat, AT_FDCWD, "n", AT_FDCWD, "l2", 0));
}
static void do_unlink(int fd) {
  say("unlink", RAW(SYS_unlink, "n"));
  say("of the file", RAW(SYS_unlink, "f"));
  say("libc writes", pwrite(fd, "gone", 4, 0));
}
static void do_unlink_and_make(int fd) {
  say("unlink", RAW(SYS_unlinkat, AT_FDCWD, "f", 0));
  const int again = open("f", O_RDWR | O_CREAT, 0600);
  say("libc writes", pwrite(again, "another f", 9, 0));
  say("and to the old one", pwrite(fd, "gone", 4, 0));
  say("fsync", fsync(again));
  close(again);
}
static void do_symlink(int fd) {
  (void)fd;
  say("symlink", RAW(SYS_symlink, "f", "s"));
}
static void do_mkdir(int fd) {
  (void)fd;
  say("mkdir", RAW(SYS_mkdir, "d", 0700));
  const int made = open("d/in", O_RDWR | O_CREAT, 0600);
  say("libc writes", pwrite(made, "in", 2, 0));
  say("fsync", fsync(made));
  close(made);
}
static void do_rmdir(int fd) {
  (void)fd;
  say("mkdir", mkdir("d", 0700));
  say("rmdir", RAW(SYS_rmdir, "d"));
  say("again", mkdir("d", 0700));
}
static void do_create(int fd) {
  (void)fd;
  const long made = RAW(SYS_open, "made", O_RDWR | O_CREAT | O_EXCL, 0600);
  say("libc writes", write((int)made, "made", 4));
  announced_sync("a real sync", (int)made);
  say("close", close((int)made));
}
static void do_creat(int fd) {
  (void)fd;
  const long made = RAW(SYS_creat, "f", 0600);
  say("libc writes", write((int)made, "made", 4));
  say("close", RAW(SYS_close, made));
}
static void do_mknod(int fd) {
  (void)fd;
  say("mknod", RAW(SYS_mknod, "node", S_IFREG | 0600, 0));
  const int made = open("node", O_RDWR);
  say("libc writes", write(made, "node", 4));
  announced_sync("a real sync", made);
  close(made);
}
static void do_openat2(int fd) {
  (void)fd;
  struct open_how how = {.flags = O_RDWR | O_CREAT | O_TRUNC, .mode = 0600};
  const long made = RAW(SYS_openat2, AT_FDCWD, "f", &how, sizeof(how));
  say("libc writes", write((int)made, "2", 1));
  say("close", close((int)made));
}

// --------------------------------------------------------------------------------------- Of a lock

static void more_syncs(int fd) {
  for (int i = 0; i < kSyncs; ++i) CHECK(pwrite(fd, "lock", 4, 8) == 4 && fsync(fd) == 0);
}

// As another process finds it.
static void probe(const char* when, int command) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open("f", O_RDWR);
    if (command < 0) _exit(flock(fd, LOCK_EX | LOCK_NB) == 0 ? 1 : 2);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    _exit(fcntl(fd, command, &lock) != 0 ? 9 : lock.l_type == F_UNLCK ? 1 : 2);
  }
  const int status = status_of(child);
  printf("  %s: %s\n", when, status == 1 << 8 ? "free" : status == 2 << 8 ? "locked" : "?");
}

static void record_lock(int fd, int take, int look) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
  say("lock", RAW(SYS_fcntl, fd, take, &lock));
  probe("taken", look);
  more_syncs(fd);
  probe("synced", look);
  lock.l_type = F_UNLCK;
  say("unlock", RAW(SYS_fcntl, fd, take, &lock));
  probe("given up", look);
}
static void do_posix_lock(int fd) { record_lock(fd, F_SETLK, F_GETLK); }
static void do_ofd_lock(int fd) { record_lock(fd, F_OFD_SETLK, F_OFD_GETLK); }
static void do_flock(int fd) {
  say("lock", RAW(SYS_flock, fd, LOCK_EX));
  probe("taken", -1);
  more_syncs(fd);
  probe("synced", -1);
  say("unlock", RAW(SYS_flock, fd, LOCK_UN));
  probe("given up", -1);
}

// --------------------------------------------------------------------------------- Of a descriptor

static void given_again(int fd) {
  const long again = RAW(SYS_open, "second", O_RDWR | O_CREAT, 0600);
  say("the number again", again == fd);
  say("libc writes", pwrite(fd, "for second", 10, 0));
}
static void do_close(int fd) {
  say("close", RAW(SYS_close, fd));
  given_again(fd);
}
static void do_close_range(int fd) {
  say("close_range", RAW(SYS_close_range, fd, fd, 0));
  given_again(fd);
}
static void use_copy(int copy) {
  say("libc writes", pwrite(copy, "DUP", 3, 3));
  say("libc cuts", ftruncate(copy, 12));
}
static void do_dup(int fd) {
  const int copy = (int)RAW(SYS_dup, fd);
  use_copy(copy);
  say("close", close(copy));
}
static void do_dup2(int fd) {
  say("dup2", RAW(SYS_dup2, g_other, fd) == fd);
  use_copy(fd);
}
static void do_dup3(int fd) {
  say("dup3", RAW(SYS_dup3, fd, 77, O_CLOEXEC));
  use_copy(77);
  say("over it", RAW(SYS_dup3, g_other, 77, 0));
  use_copy(77);
}
static void do_dupfd(int fd) {
  const int copy = (int)RAW(SYS_fcntl, fd, F_DUPFD, 50);
  say("F_DUPFD", copy);
  say("close", RAW(SYS_close, fd));
  use_copy(copy);
  given_again(fd);
}
static void do_rights(int fd) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  struct msghdr* message = descriptor_message(fd);
  say("sendmsg", RAW(SYS_sendmsg, ends[0], message, 0));
  say("recvmsg", RAW(SYS_recvmsg, ends[1], message, 0));
  const int copy = received_descriptor(message);
  say("another one", copy != fd);
  use_copy(copy);
  say("close", close(copy));
}
static void do_pidfd(int fd) {
  const long process = RAW(SYS_pidfd_open, getpid(), 0);
  const int copy = (int)RAW(SYS_pidfd_getfd, process, fd, 0);
  use_copy(copy);
  say("close", close(copy));
}
static void do_append(int fd) {
  say("F_SETFL", RAW(SYS_fcntl, fd, F_SETFL, O_APPEND));
  say("libc writes", write(fd, "appended", 8));
}

// ----------------------------------------------------------------------------------- Of a process

static void do_fork(int fd) {
  fflush(stdout);
  const long child = RAW(SYS_fork);
  if (child == 0) {
    const long n = pwrite(fd, "CHILD", 5, 4);
    RAW(SYS_exit_group, n == 5 && fsync(fd) == 0 ? 3 : 4);
  }
  say("child", status_of((pid_t)child) >> 8);
  say("libc writes", pwrite(fd, "PARENT", 6, 6));
}
static void do_exec(int fd) {
  say("libc writes", pwrite(fd, "for cat\n", 8, 8));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    char* words[] = {"cat", "f", NULL};
    RAW(SYS_execve, "/bin/cat", words, NULL);
    _exit(9);
  }
  say("child", status_of(child));
}

static const struct {
  const char* name;
  void (*run)(int fd);
} kKinds[] = {
    {"write", do_write},
    {"pwrite", do_pwrite},
    {"writev", do_writev},
    {"pwritev2", do_pwritev2},
    {"ftruncate", do_ftruncate},
    {"truncate", do_truncate},
    {"fallocate", do_fallocate},
    {"copy_file_range", do_copy_file_range},
    {"sendfile", do_sendfile},
    {"splice", do_splice},
    {"mmap", do_mmap},
    {"aio", do_aio},
    {"io_uring", do_io_uring},
    {"open_truncating", do_open_truncating},
    {"fsync", do_fsync},
    {"fchmod", do_fchmod},
    {"rename", do_rename},
    {"exchange", do_exchange},
    {"link", do_link},
    {"unlink", do_unlink},
    {"unlink_and_make", do_unlink_and_make},
    {"symlink", do_symlink},
    {"mkdir", do_mkdir},
    {"rmdir", do_rmdir},
    {"create", do_create},
    {"creat", do_creat},
    {"mknod", do_mknod},
    {"openat2", do_openat2},
    {"posix_lock", do_posix_lock},
    {"ofd_lock", do_ofd_lock},
    {"flock", do_flock},
    {"close", do_close},
    {"close_range", do_close_range},
    {"dup", do_dup},
    {"dup2", do_dup2},
    {"dup3", do_dup3},
    {"dupfd", do_dupfd},
    {"rights", do_rights},
    {"pidfd", do_pidfd},
    {"append", do_append},
    {"fork", do_fork},
    {"exec", do_exec},
};

// ------------------------------------------------------------------------------------------ A case

static int make(const char* name, int syncs) {
  const int fd = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, "0123456789abcdef", kSize) == kSize);
  for (int i = 0; i < syncs; ++i) CHECK(pwrite(fd, "old-", 4, 0) == 4 && fsync(fd) == 0);
  return fd;
}

static void run(const char* how, const char* library, size_t kind, int hot) {
  const int early = is_early(how);
  if (early) g_call = find_call(how + 6, library);
  const int syncs = !hot ? 0 : is_own(how) || early ? kSyncs : kHot;
  g_folder = open(".", O_RDONLY | O_DIRECTORY);
  const int fd = make("f", syncs);
  g_other = make("g", syncs);
  close(make("n0", hot ? kSyncs : 0));
  for (int i = 0; i < kSyncs && hot; ++i) CHECK(fsync(g_folder) == 0);
  CHECK(rename("n0", "n") == 0);
  CHECK(pwrite(fd, "NEW", 3, 0) == 3 && pwrite(g_other, "OTHER", 5, 0) == 5);
  if (hot) {
    if (access("a write to a hot file", F_OK) == 0) abort();
    CHECK(pwrite(fd, "NEW", 3, 0) == 3);
    if (access("the end", F_OK) == 0) abort();
    announced_sync("a sync of a hot file", fd);
    announced_sync("a sync of a known folder", g_folder);
    CHECK(rename("n", "n1") == 0 && rename("n1", "n") == 0);
    CHECK(pwrite(fd, "new", 3, 12) == 3 && pwrite(g_other, "other", 5, 8) == 5);
  }
  if (!early) g_call = find_call(how, library);
  kKinds[kind].run(fd);
  show("f");
  show("g");
  list(".");
  if (pwrite(fd, "after", 5, 10) != 5) say("pwrite", errno);
  announced_sync("a real sync", fd);
  announced_sync("a real sync", g_folder);
  show("f");
  say("close", close(fd));
}

static int wanted(int argc, char** argv, const char* name) {
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return 1;
  }
  return argc == 3;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  for (size_t kind = 0; kind < COUNT(kKinds); ++kind) {
    if (!wanted(argc, argv, kKinds[kind].name)) continue;
    for (int hot = 0; hot <= 1; ++hot) {
      char name[64];
      snprintf(name, sizeof(name), "%s-%s", kKinds[kind].name, hot ? "hot" : "kernel");
      printf("%s\n", name);
      fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        CHECK(mkdir(name, 0755) == 0 && chdir(name) == 0);
        run(argv[2], argv[1], kind, hot);
        exit(0);
      }
      show_status(child);
    }
  }
  return 0;
}
