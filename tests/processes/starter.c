// SPDX-License-Identifier: BSD-3-Clause
//
// A program that starts others, in all the ways that there are. It knows nothing of NVCache.
//
//   race HOW MAP COUNT    executes true, without an environment, while a thread writes files: after
//                         COUNT writes. MAP says how much of each was acknowledged
//   failed                tries to execute what is not there, then writes, and waits for a line
//   written HOW WHO COUNT COUNT programs are written by WHO (a sibling that goes on, or itself) and
//                         executed by a child at once. Prints how many were busy
//   waits SIZE            writes a file, closes it, and makes no call until it is killed
#include "tests/kit/program.h"

enum { kFiles = 32, kWrite = 100, kBusy = 26, kOther = 99 };

static void execute(const char* how, const char* path, char** environment) {
  char* const arguments[] = {(char*)path, NULL};
  const char* name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
  if (strcmp(how, "execve") == 0) {
    execve(path, arguments, environment);
  } else if (strcmp(how, "execvpe") == 0) {
    execvpe(name, arguments, environment);
  } else if (strcmp(how, "fexecve") == 0) {
    fexecve(open(path, O_RDONLY | O_CLOEXEC), arguments, environment);
  } else if (strcmp(how, "execveat") == 0) {
    syscall(SYS_execveat, AT_FDCWD, path, arguments, environment, 0);
  } else if (strcmp(how, "number") == 0) {
    syscall(SYS_execve, path, arguments, environment);
  } else {
    errno = EINVAL;
  }
}

// ---------------------------------------------------------------------------------------------

static _Atomic unsigned* acknowledged;
static _Atomic unsigned writes;

static void* write_files(void* unused) {
  char bytes[kWrite];
  for (unsigned i = 0;; ++i) {
    char name[16];
    const unsigned file = i % kFiles;
    snprintf(name, sizeof(name), "f%u", file);
    const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK(fd >= 0);
    memset(bytes, 'a' + (int)file % 26, kWrite);
    for (int k = 0; k < 3; ++k) {
      CHECK(write(fd, bytes, kWrite) == kWrite);
      atomic_fetch_add(&acknowledged[file], kWrite);
      atomic_fetch_add(&writes, 1);
    }
    close(fd);
  }
  return unused;
}

static int race(const char* how, const char* map, unsigned count) {
  const int fd = open(map, O_RDWR);
  acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(acknowledged != MAP_FAILED);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, write_files, NULL) == 0);
  while (atomic_load(&writes) < count) continue;
  char* none[] = {NULL};
  execute(how, "/bin/true", none);
  perror(how);
  return 2;
}

static int failed(void) {
  char* none[] = {NULL};
  const char* const ways[] = {"execve", "execvpe", "fexecve", "execveat", "number"};
  for (size_t i = 0; i < COUNT(ways); ++i) execute(ways[i], "/no/such", none);
  const int fd = open("file", O_RDWR | O_CREAT, 0644);
  CHECK(write(fd, "some", 4) == 4);
  char line[2];
  puts("written");
  fflush(stdout);
  return read(0, line, 1) == 1 ? 0 : 1;
}

// ---------------------------------------------------------------------------------------------

static void copy_program(const char* name) {
  static char bytes[1 << 20];
  const int from = open("/bin/true", O_RDONLY);
  const int to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
  const ssize_t n = read(from, bytes, sizeof(bytes));
  CHECK(to >= 0 && n > 0 && write(to, bytes, (size_t)n) == n);
  close(from);
  close(to);
}

static void write_script(const char* name) {
  const int to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
  CHECK(to >= 0 && write(to, "#!/bin/true\n", 12) == 12);
  close(to);
}

static int result_of(pid_t child) {
  const int status = status_of(child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// 0, kBusy, or another.
static int run(const char* how, const char* path) {
  if (strcmp(how, "posix_spawn") == 0) {
    pid_t child;
    char* const arguments[] = {(char*)path, NULL};
    const int error = posix_spawn(&child, path, NULL, NULL, arguments, environ);
    return error == 0 ? result_of(child) : error;
  }
  if (strcmp(how, "system") == 0) {
    const int status = system(path);
    return WEXITSTATUS(status) == 126 ? kBusy : WEXITSTATUS(status);
  }
  const pid_t child = fork();
  if (child == 0) {
    execute(how, path, environ);
    _exit(errno == ETXTBSY ? kBusy : kOther);
  }
  return result_of(child);
}

// A process that writes what it is told, one letter a program, and lives on.
static pid_t start_writer(int* orders, int* answers) {
  int to[2], from[2];
  CHECK(pipe(to) == 0 && pipe(from) == 0);
  const pid_t writer = fork();
  *orders = to[1];
  *answers = from[0];
  if (writer != 0) {
    close(to[0]);
    close(from[1]);
    return writer;
  }
  close(to[1]);
  char name[64];
  while (read(to[0], name, sizeof(name)) == sizeof(name)) {
    if (name[2] == 's') {
      write_script(name);
    } else {
      copy_program(name);
    }
    CHECK(write(from[1], "x", 1) == 1);
  }
  _exit(0);
}

static int written(const char* how, const char* who, int count) {
  int orders = -1, answers = -1, busy = 0, wrong = 0;
  setenv("PATH", "/nowhere:.:/bin", 1);
  const int sibling = strcmp(who, "sibling") == 0;
  const pid_t writer = sibling ? start_writer(&orders, &answers) : 0;
  for (int i = 0; i < count; ++i) {
    char name[64] = {0}, answer;
    // The descriptor of a script would be closed before its interpreter opens it.
    const int script = i % 2 == 0 && strcmp(how, "fexecve") != 0;
    snprintf(name, sizeof(name), "./%s%d", script ? "script" : "program", i);
    if (sibling) {
      CHECK(write(orders, name, sizeof(name)) == sizeof(name) && read(answers, &answer, 1) == 1);
    } else if (script) {
      write_script(name);
    } else {
      copy_program(name);
    }
    const int result = run(how, name);
    busy += result == kBusy;
    wrong += result != kBusy && result != 0;
  }
  close(orders);
  if (writer != 0) wrong += result_of(writer) != 0;
  printf("%s, written by %s: %d of %d busy, %d wrong\n", how, sibling ? "a sibling" : "itself",
         busy, count, wrong);
  return busy + wrong != 0;
}

static int waits(long size) {
  char* bytes = calloc(1, (size_t)size);
  const int fd = open("large", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  CHECK(write(fd, bytes, (size_t)size) == size);
  close(fd);
  puts("written");
  fflush(stdout);
  for (;;) pause();
  return 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "race") == 0 && argc == 5)
    return race(argv[2], argv[3], (unsigned)atoi(argv[4]));
  if (strcmp(what, "failed") == 0) return failed();
  if (strcmp(what, "written") == 0 && argc == 5) return written(argv[2], argv[3], atoi(argv[4]));
  if (strcmp(what, "waits") == 0 && argc == 3) return waits(atol(argv[2]));
  return 3;
}
