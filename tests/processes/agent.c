// SPDX-License-Identifier: BSD-3-Clause
//
// A process that does what it is told, one call a line, and answers with a line: the result, errno
// where it failed, and what was read. It knows nothing of NVCache.
//
//   open SLOT NAME FLAGS     pread SLOT OFFSET LENGTH         stat NAME       rename NAME NAME
//   close SLOT               pwrite SLOT OFFSET LENGTH BYTE   fstat SLOT      unlink NAME
//   dup SLOT SLOT            read SLOT LENGTH                 fsync SLOT      truncate NAME LENGTH
//   exec                     write SLOT LENGTH BYTE           lock SLOT TYPE  ftruncate SLOT LENGTH
//   fork                     seek SLOT OFFSET WHENCE          map SLOT        look OFFSET
//   poke OFFSET BYTE         mapped SLOT OFFSET
#include "tests/kit/program.h"

enum { kSlots = 8, kFirst = 20, kMapped = 40, kMost = 1 << 18 };

static char buffer[kMost];
static char line[512];

static void answer(long result) {
  printf(result < 0 ? "%ld %s\n" : "%ld\n", result, result < 0 ? strerrorname_np(errno) : "");
}

static void answer_bytes(long result, const char* bytes) {
  unsigned long hash = 1469598103934665603u;  // FNV-1a
  for (long i = 0; i < result; ++i) hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
  if (result < 0) {
    answer(result);
  } else {
    printf("%ld %lx\n", result, hash);
  }
}

static void answer_stat(int result, const struct stat* st) {
  if (result < 0) {
    answer(result);
  } else {
    printf("size %ld links %ld mode %o blocks %s\n", (long)st->st_size, (long)st->st_nlink,
           st->st_mode, st->st_blocks > 0 ? "some" : "none");
  }
}

// Numbers of descriptors that are the same with and without a library that opens some of its own.
static long keep(int fd, int slot) {
  if (fd < 0) return fd;
  if (dup2(fd, kFirst + slot) < 0) return -1;
  close(fd);
  return slot;
}

static long mapped(int fd, long offset) {
  char* page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, offset & ~4095l);
  struct stat st;
  if (page == MAP_FAILED) return -1;
  const long byte = fstat(fd, &st) == 0 && offset < st.st_size ? page[offset & 4095] : 1000;
  munmap(page, 4096);
  return byte;
}

// A mapping that stays, to be read until it is to be written.
static char* map;

static long map_file(int fd) {
  if (dup2(fd, kMapped) < 0) return -1;
  if (map != NULL) munmap(map, kMost);
  map = mmap(NULL, kMost, PROT_READ, MAP_SHARED, kMapped, 0);
  if (map == MAP_FAILED) map = NULL;
  return map != NULL ? 0 : -1;
}

// Where there is a file to be mapped.
static char* mapped_at(long offset) {
  struct stat st;
  const int there = map != NULL && fstat(kMapped, &st) == 0 && offset < st.st_size;
  return there && offset < kMost ? map + offset : NULL;
}

static long look(long offset) {
  const char* at = mapped_at(offset);
  return at != NULL ? *at : 1000;
}

static long poke(long offset, char byte) {
  if (map != NULL && mprotect(map, kMost, PROT_READ | PROT_WRITE) != 0) return -1;
  char* at = mapped_at(offset);
  if (at != NULL) *at = byte;
  return at != NULL;
}

static long lock(int fd, int type) {
  const struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_len = 100};
  return fcntl(fd, F_SETLK, &lock);
}

// The child goes on in our place; we wait for it, so that whoever started us sees one process.
static void become_child(void) {
  const pid_t child = fork();
  if (child == 0) {
    answer(0);
    return;
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) kill(getpid(), WTERMSIG(status));
  _exit(WEXITSTATUS(status));
}

static void obey(char** argv) {
  char word[16], a[64], b[64];
  long n[4] = {0};
  struct stat st;
  if (sscanf(line, "%15s", word) != 1) return;
  const int numbers = sscanf(line, "%*s %ld %ld %ld %ld", &n[0], &n[1], &n[2], &n[3]);
  const int fd = kFirst + (int)n[0];
  if (numbers >= 3 && n[2] > kMost) exit(3);
  if (strcmp(word, "open") == 0 && sscanf(line, "%*s %*d %63s %ld", a, &n[1]) == 2) {
    answer(keep(open(a, (int)n[1], 0644), (int)n[0]));
  } else if (strcmp(word, "close") == 0) {
    answer(close(fd));
  } else if (strcmp(word, "dup") == 0) {
    answer(dup2(fd, kFirst + (int)n[1]));
  } else if (strcmp(word, "pread") == 0) {
    answer_bytes(pread(fd, buffer, (size_t)n[2], n[1]), buffer);
  } else if (strcmp(word, "pwrite") == 0) {
    memset(buffer, (int)n[3], (size_t)n[2]);
    answer(pwrite(fd, buffer, (size_t)n[2], n[1]));
  } else if (strcmp(word, "read") == 0) {
    answer_bytes(read(fd, buffer, (size_t)n[1]), buffer);
  } else if (strcmp(word, "write") == 0) {
    memset(buffer, (int)n[2], (size_t)n[1]);
    answer(write(fd, buffer, (size_t)n[1]));
  } else if (strcmp(word, "seek") == 0) {
    answer(lseek(fd, n[1], (int)n[2]));
  } else if (strcmp(word, "stat") == 0 && sscanf(line, "%*s %63s", a) == 1) {
    answer_stat(stat(a, &st), &st);
  } else if (strcmp(word, "fstat") == 0) {
    answer_stat(fstat(fd, &st), &st);
  } else if (strcmp(word, "fsync") == 0) {
    answer(fsync(fd));
  } else if (strcmp(word, "lock") == 0) {
    answer(lock(fd, (int)n[1]));
  } else if (strcmp(word, "mapped") == 0) {
    answer(mapped(fd, n[1]));
  } else if (strcmp(word, "map") == 0) {
    answer(map_file(fd));
  } else if (strcmp(word, "look") == 0) {
    answer(look(n[0]));
  } else if (strcmp(word, "poke") == 0) {
    answer(poke(n[0], (char)n[1]));
  } else if (strcmp(word, "ftruncate") == 0) {
    answer(ftruncate(fd, n[1]));
  } else if (strcmp(word, "truncate") == 0 && sscanf(line, "%*s %63s %ld", a, &n[1]) == 2) {
    answer(truncate(a, n[1]));
  } else if (strcmp(word, "rename") == 0 && sscanf(line, "%*s %63s %63s", a, b) == 2) {
    answer(rename(a, b));
  } else if (strcmp(word, "unlink") == 0 && sscanf(line, "%*s %63s", a) == 1) {
    answer(unlink(a));
  } else if (strcmp(word, "fork") == 0) {
    become_child();
  } else if (strcmp(word, "exec") == 0) {
    execv("/proc/self/exe", argv);
    answer(-1);
  } else {
    exit(2);
  }
  fflush(stdout);
}

// Lines are read byte by byte: what follows is for the process that exec makes of this one.
static int next_line(void) {
  size_t n = 0;
  while (n + 1 < sizeof(line) && read(0, &line[n], 1) == 1 && line[n] != '\n') ++n;
  line[n] = '\0';
  return n > 0;
}

int main(int argc, char** argv) {
  if (argc == 2) {
    answer(0);  // after exec
    fflush(stdout);
  }
  char* again[] = {argv[0], "again", NULL};
  while (next_line()) obey(again);
  return 0;
}
