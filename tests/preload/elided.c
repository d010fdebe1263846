// SPDX-License-Identifier: BSD-3-Clause
//
// Ways in which a file gets into other hands, and whether its fsync is elided afterwards:
// elided_test.py counts those that reach the kernel.
//
//   elided DIRECTORY
//
// The file is descriptor 77 throughout. For each way, numbered, a phase is announced to the tracer:
// `hot`, in which each of kSyncs writes is followed by an fsync, after others that make it so; or
// `all`, in which no sync at all should be real.
#define _GNU_SOURCE
#include <aio.h>

#include "libc.h"
#include "tests/kit/program.h"

enum { kFile = 77, kSyncs = 5, kSize = 8192 };

static char* const no_environment[] = {NULL};
static char name[16];
static const char* self;
static char* at;  // a mapping of the file

static void move(int fd, int to) {
  CHECK(fd >= 0 && dup2(fd, to) == to);
  close(fd);
}

// A new file of kSize bytes, on disk.
static void make(int flags) {
  char bytes[kSize];
  memset(bytes, '.', kSize);
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  CHECK(fd >= 0 && write(fd, bytes, kSize) == kSize && close(fd) == 0);
  move(open(name, flags), kFile);
}

static void announce(int number, const char* phase) {
  char text[16];
  snprintf(text, sizeof(text), "%d %s", number, phase);
  prctl(PR_SET_NAME, text);
}

// What the program does with the file in the end. `place`: -1 for where the descriptor is.
static void put(int place, int i) {
  const char bytes[3] = {'a', (char)('0' + i % 10), 'z'};
  CHECK((place < 0 ? write(kFile, bytes, 3) : pwrite(kFile, bytes, 3, place + 3 * i)) == 3);
}

static void sync_hot(int number, int place) {
  announce(number, "warm");
  for (int i = 0; i < 4; ++i) {
    put(place, i);
    CHECK(fsync(kFile) == 0);
  }
  announce(number, "hot");
  for (int i = 0; i < kSyncs; ++i) {
    put(place, i + 4);
    CHECK(fsync(kFile) == 0);
  }
  announce(number, "over");
}

// ---------------------------------------------------------------------------------------------
// Looks at it.

static void map(int protection, int flags) {
  at = mmap(NULL, kSize, protection, flags, kFile, 0);
  CHECK(at != MAP_FAILED);
}

static void plain(void) { make(O_RDWR); }
static void mapped_to_read(void) {
  make(O_RDWR);
  map(PROT_READ, MAP_SHARED);
}
static void mapped_privately(void) {
  make(O_RDWR);
  map(PROT_READ | PROT_WRITE, MAP_PRIVATE);
}
static void mapped_to_write(void) {
  make(O_RDWR);
  map(PROT_READ | PROT_WRITE, MAP_SHARED);
}
static void mapped_and_protected(void) {
  mapped_to_read();
  CHECK(fsync(kFile) == 0 && fsync(kFile) == 0);
  CHECK(mprotect(at + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
  at[5000] = 'm';
}
static void mapped_and_moved(void) {
  mapped_to_read();
  char* const place = mmap(NULL, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK((at = mremap(at, kSize, kSize, MREMAP_MAYMOVE | MREMAP_FIXED, place)) == place);
  CHECK(mprotect(at, kSize, PROT_READ | PROT_WRITE) == 0);
  at[5000] = 'm';
}
static void mapped_and_unmapped(void) {
  mapped_to_read();
  CHECK(munmap(at, kSize) == 0);
  CHECK(mmap(at, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
  CHECK(mprotect(at, kSize, PROT_READ | PROT_WRITE) == 0);
  at[5000] = 'm';
  at = NULL;
}
static void sent_out(void) {
  make(O_RDWR);
  int ends[2];
  char bytes[100];
  off_t from = 10;
  CHECK(pipe(ends) == 0 && fsync(kFile) == 0 && fsync(kFile) == 0);
  CHECK(sendfile(ends[1], kFile, &from, 100) == 100 && read(ends[0], bytes, 100) == 100);
  from = 10;
  CHECK(splice(kFile, &from, ends[1], NULL, 100, 0) == 100 && read(ends[0], bytes, 100) == 100);
  from = 10;
  const int other = created("copy");
  CHECK(copy_file_range(kFile, &from, other, NULL, 100, 0) == 100);
  close(other);
  close(ends[0]);
  close(ends[1]);
}
static void sent_in(void) {
  make(O_RDWR);
  const int other = created("copy");
  off_t to = 5000;
  CHECK(write(other, "copied", 6) == 6 && lseek(other, 0, SEEK_SET) == 0);
  CHECK(copy_file_range(other, NULL, kFile, &to, 6, 0) == 6);
  close(other);
}

static void run_aio(int (*start)(struct aiocb*)) {
  char bytes[6] = "async";
  make(O_RDWR);
  struct aiocb request = {
      .aio_fildes = kFile, .aio_buf = bytes, .aio_nbytes = 5, .aio_offset = 5000};
  CHECK(start(&request) == 0);
  while (aio_error(&request) == EINPROGRESS) usleep(1000);
  CHECK(aio_return(&request) == 5);
}
static void read_by_aio(void) { run_aio(aio_read); }
static void written_by_aio(void) { run_aio(aio_write); }

static void of_a_stream(void) {
  make(O_RDWR);
  FILE* stream = fopen(name, "r+");
  CHECK(stream != NULL && fprintf(stream, "stream") == 6 && fflush(stream) == 0);
  move(dup(fileno(stream)), kFile);
  fclose(stream);
  CHECK((stream = fdopen(dup(kFile), "r+")) != NULL && fclose(stream) == 0);
}
static void on_standard_error(void) {
  make(O_RDWR | O_APPEND);
  const int saved = dup(2);
  CHECK(dup2(kFile, 2) == 2 && fputs("error ", stderr) >= 0);
  CHECK(dup2(saved, 2) == 2 && close(saved) == 0);
}
static void where_libc_writes_errors(void) {
  make(O_RDWR | O_APPEND);
  const int saved = dup(2);
  CHECK(dup2(kFile, 2) == 2);
  errno = ENOENT;
  perror("error");
  CHECK(dup2(saved, 2) == 2 && close(saved) == 0);
}
static void direct(void) { make(O_RDWR | O_DIRECT); }

// ---------------------------------------------------------------------------------------------
// Has it, too.

static void become_true(void) {
  char* const arguments[] = {"true", NULL};
  execve("/bin/true", arguments, no_environment);
  _exit(127);
}

static void in_a_child_too(void) {
  make(O_RDWR);
  const pid_t child = fork();
  if (child == 0) _exit(pwrite(kFile, "child", 5, 5000) == 5 ? 0 : 1);
  CHECK(status_of(child) == 0);
}
static void execute_in_child(void) {
  const pid_t child = fork();
  if (child == 0) become_true();
  CHECK(status_of(child) == 0);
}
static void in_a_program_too(void) {
  make(O_RDWR);
  execute_in_child();
}
static void closed_on_exec(void) {
  make(O_RDWR);
  CHECK(fcntl(kFile, F_SETFD, FD_CLOEXEC) == 0);
  execute_in_child();
}
static void spawn(const posix_spawn_file_actions_t* actions) {
  char* const arguments[] = {"true", NULL};
  pid_t child;
  CHECK(posix_spawn(&child, "/bin/true", actions, NULL, arguments, no_environment) == 0);
  CHECK(status_of(child) == 0);
}
static void spawned(void) {
  make(O_RDWR);
  spawn(NULL);
}
static void spawned_to_read(void) {
  make(O_RDWR);
  CHECK(fcntl(kFile, F_SETFD, FD_CLOEXEC) == 0);
  const int reader = open(name, O_RDONLY);
  spawn(NULL);
  close(reader);
}
static void spawned_as_output(void) {
  make(O_RDWR);
  CHECK(fcntl(kFile, F_SETFD, FD_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  CHECK(posix_spawn_file_actions_adddup2(&actions, kFile, 1) == 0);
  spawn(&actions);
  posix_spawn_file_actions_destroy(&actions);
}
static void output_of_vfork(void) {
  make(O_RDWR);
  CHECK(fcntl(kFile, F_SETFD, FD_CLOEXEC) == 0);
  const pid_t child = vfork();
  if (child == 0) {
    if (dup2(kFile, 1) == 1) become_true();
    _exit(1);
  }
  CHECK(status_of(child) == 0);
}

static void send_away(int fd) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  CHECK(sendmsg(pair[0], descriptor_message(fd), 0) == 1);
  close(pair[0]);
  close(pair[1]);
}
static void sent_away(void) {
  make(O_RDWR);
  send_away(kFile);
}
static void sent_away_to_read(void) {
  make(O_RDWR);
  const int reader = open(name, O_RDONLY);
  send_away(reader);
  close(reader);
}
static void received(void) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const pid_t child = fork();
  if (child == 0) {
    make(O_RDWR);
    CHECK(sendmsg(pair[0], descriptor_message(kFile), 0) == 1);
    _exit(0);
  }
  struct msghdr* const message = descriptor_message(-1);
  CHECK(recvmsg(pair[1], message, 0) == 1);
  CHECK(status_of(child) == 0);
  move(received_descriptor(message), kFile);
  close(pair[0]);
  close(pair[1]);
}

// ---------------------------------------------------------------------------------------------
// By another process: a child, or a program that has the file from its start on.

static void run_in_child(int number, int place, int flags, int standard) {
  const pid_t child = fork();
  if (child == 0) {
    char digits[16], where[16];
    make(flags);
    if (standard >= 0) move(dup(kFile), standard);
    snprintf(digits, sizeof(digits), "%d", number);
    snprintf(where, sizeof(where), "%d", place);
    execl(self, self, "started", digits, where, standard >= 0 ? "output" : "file", NULL);
    _exit(127);
  }
  CHECK(status_of(child) == 0);
}
static int run_started(char** arguments) {
  if (strcmp(arguments[4], "output") == 0) CHECK(dup2(1, kFile) == kFile);
  sync_hot(atoi(arguments[2]), atoi(arguments[3]));
  return 0;
}

static void by_a_child(int number) {
  make(O_RDWR);
  const pid_t child = fork();
  if (child == 0) {
    sync_hot(number, 0);
    _exit(0);
  }
  CHECK(status_of(child) == 0);
}
static void by_a_program(int number) { run_in_child(number, 0, O_RDWR, -1); }
static void appended_by_a_program(int number) { run_in_child(number, -1, O_RDWR | O_APPEND, -1); }
static void output_of_a_program(int number) { run_in_child(number, -1, O_WRONLY | O_APPEND, 1); }
static void at_an_offset_of_others(int number) { run_in_child(number, -1, O_RDWR, -1); }

// It stays open here, and a child that shares this process's memory sets its mode.
static void mode_set_by_vfork(int number) {
  make(O_RDWR);
  CHECK(fcntl(kFile, F_SETFD, FD_CLOEXEC) == 0);
  announce(number, "warm");
  for (int i = 0; i < 4; ++i) {
    put(0, i);
    CHECK(fsync(kFile) == 0);
  }
  announce(number, "hot");
  for (int i = 0; i < kSyncs; ++i) {
    const pid_t child = vfork();
    if (child == 0) _exit(i % 2 == 0 ? chmod(name, 0600) : fchmod(kFile, 0640));
    CHECK(status_of(child) == 0 && fsync(kFile) == 0);
  }
  announce(number, "over");
}

// ---------------------------------------------------------------------------------------------

// Beside the file: names of libc's making, in a folder that is synced.
static void temporary_names(int number) {
  make(O_RDWR);
  CHECK(mkdir("names", 0755) == 0);
  const int folder = open("names", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; i < 3; ++i) CHECK(fsync(folder) == 0);
  announce(number, "all");
  for (int i = 0; i < kSyncs; ++i) {
    char file[] = "names/fXXXXXX.c", other[] = "names/dXXXXXX";
    const int fd = mkstemps(file, 2);
    CHECK(fd >= 0 && write(fd, file, sizeof(file)) == sizeof(file) && fsync(fd) == 0);
    close(fd);
    CHECK(mkdtemp(other) == other && fsync(folder) == 0);
  }
  announce(number, "over");
  close(folder);
}

static const struct {
  const char* name;
  void (*make)(void);
  void (*run)(int number);  // in place of both
} ways[] = {
#define WAY(name) \
  { #name, name, NULL }
#define RUN(name) \
  { #name, NULL, name }
    WAY(plain),
    WAY(mapped_to_read),
    WAY(mapped_privately),
    WAY(mapped_to_write),
    WAY(mapped_and_protected),
    WAY(mapped_and_moved),
    WAY(mapped_and_unmapped),
    WAY(sent_out),
    WAY(sent_in),
    WAY(read_by_aio),
    WAY(written_by_aio),
    WAY(of_a_stream),
    WAY(on_standard_error),
    WAY(where_libc_writes_errors),
    WAY(direct),
    WAY(in_a_child_too),
    WAY(in_a_program_too),
    WAY(closed_on_exec),
    WAY(spawned),
    WAY(spawned_to_read),
    WAY(spawned_as_output),
    WAY(output_of_vfork),
    WAY(sent_away),
    WAY(sent_away_to_read),
    WAY(received),
    RUN(by_a_child),
    RUN(by_a_program),
    RUN(appended_by_a_program),
    RUN(output_of_a_program),
    RUN(at_an_offset_of_others),
    RUN(mode_set_by_vfork),
    RUN(temporary_names)};

static void show(int number, const char* way) {
  char bytes[2 * kSize];
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  const ssize_t n = read(fd, bytes, sizeof(bytes));
  close(fd);
  if (at != NULL) CHECK(memcmp(at, bytes, kSize) == 0);
  printf("%d\t%s\t%zd bytes, %u\n", number, way, n, sum_of(bytes, n));
}

// O_DIRECT has a program write whole sectors.
static void sync_sectors(int number) {
  char* sector;
  CHECK(posix_memalign((void**)&sector, 4096, 4096) == 0);
  memset(sector, 's', 4096);
  announce(number, "hot");
  for (int i = 0; i < kSyncs; ++i) {
    CHECK(pwrite(kFile, sector, 4096, 0) == 4096 && fsync(kFile) == 0);
  }
  announce(number, "over");
  free(sector);
}

int main(int argc, char** argv) {
  self = argv[0];
  if (argc == 5 && strcmp(argv[1], "started") == 0) return run_started(argv);
  if (argc != 2 || chdir(argv[1]) != 0) return 2;
  for (int i = 0; i < (int)COUNT(ways); ++i) {
    snprintf(name, sizeof(name), "f%d", i);
    at = NULL;
    fflush(stdout);
    sync();  // two files may have to share an entry, and only one that has nothing pending lets go
    if (ways[i].run != NULL) {
      ways[i].run(i);
    } else {
      ways[i].make();
      ways[i].make == direct ? sync_sectors(i) : sync_hot(i, 0);
    }
    show(i, ways[i].name);
    if (at != NULL) munmap(at, kSize);
    close(kFile);
  }
  return 0;
}
