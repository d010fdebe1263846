// SPDX-License-Identifier: BSD-3-Clause
//
// A program that writes what another one can compute, and says in shared memory how much of it was
// acknowledged, so that this is known after it was killed at any instruction. It knows nothing of
// NVCache. What it does is in its arguments, or in lines that it reads; each is answered by a line.
//
//   seat MEMORY [CALL]
//   burst FILE INDEX BLOCK SPAN START COUNT SEED
//                    opens the file and leaves it open; writes block START, START + 1, ..., each to
//                    the place of its number modulo SPAN; COUNT of them, or, for 0, until word 0 of
//                    the memory says stop. Word INDEX says how many of them were written
//   append FILE INDEX BLOCK NUMBER SEED           opens, appends one block, closes
//   copy FILE TO FLAGS                            reads all of it; FLAGS: those of open
//   fork NAME INDEX BLOCK SPAN SEED               opens NAME.0 to NAME.3 and writes block 0 of
//                    each; its four children write block 1, and then a burst to NAME.own.0 ...
#include "tests/kit/program.h"

enum { kWords = 2048, kMost = 1 << 18, kWorkers = 4 };

static _Atomic uint64_t* memory;
static uint64_t block[kMost / sizeof(uint64_t)];

static long answer(long result) {
  if (result < 0) {
    printf("%ld %s\n", result, strerrorname_np(errno));
  } else {
    printf("%ld\n", result);
  }
  fflush(stdout);
  return result;
}

static void fill(size_t size, uint64_t seed, uint64_t number) {
  for (size_t i = 0; i < size / sizeof(uint64_t); i += 2) {
    block[i] = seed;
    block[i + 1] = number;
  }
}

static long burst_to(int fd, long index, size_t size, long span, long start, long count,
                     long seed) {
  for (long n = 0; count > 0 ? n < count : memory[0] == 0; ++n) {
    fill(size, (uint64_t)seed, (uint64_t)(start + n));
    const ssize_t done = pwrite(fd, block, size, (start + n) % span * (long)size);
    if (done != (ssize_t)size) {
      if (done >= 0) errno = EIO;
      return -1;
    }
    memory[index] = (uint64_t)n + 1;
  }
  return (long)memory[index];
}

static long append_to(const char* name, long index, size_t size, long number, long seed) {
  const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  fill(size, (uint64_t)seed, (uint64_t)number);
  const ssize_t done = write(fd, block, size);
  if (done == (ssize_t)size) memory[index] = (uint64_t)number + 1;
  if (close(fd) < 0) return -1;
  return done;
}

static long copy(const char* name, const char* to, int flags) {
  const int from = open(name, flags | O_CLOEXEC);
  const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  long total = 0;
  if (from < 0 || out < 0) return -1;
  for (;;) {
    const ssize_t n = read(from, block, sizeof(block));
    if (n < 0 || (n > 0 && write(out, block, (size_t)n) != n)) return -1;
    if (n == 0) break;
    total += n;
  }
  close(from);
  close(out);
  return total;
}

static int forks(const char* name, long index, size_t size, long span, long seed) {
  int fds[kWorkers];
  char own[600];
  for (int i = 0; i < kWorkers; ++i) {
    snprintf(own, sizeof(own), "%s.%d", name, i);
    fds[i] = open(own, O_RDWR | O_CREAT, 0644);
    fill(size, (uint64_t)(seed + i), 0);
    if (fds[i] < 0 || pwrite(fds[i], block, size, 0) != (ssize_t)size) return -1;
  }
  for (int i = 0; i < kWorkers; ++i) {
    const pid_t child = fork();
    if (child < 0) return -1;
    if (child > 0) {
      printf("%d ", (int)child);
      fflush(stdout);
      continue;
    }
    fill(size, (uint64_t)(seed + i), 1);
    if (pwrite(fds[i], block, size, (long)size) != (ssize_t)size) exit(4);
    snprintf(own, sizeof(own), "%s.own.%d", name, i);
    const int fd = open(own, O_RDWR | O_CREAT, 0644);
    exit(fd < 0 || burst_to(fd, index + i, size, span, 0, 0, seed + i) < 0 ? 5 : 0);
  }
  return 0;
}

static long obey(const char* line) {
  char word[16], a[256], b[256];
  long n[6] = {0};
  if (sscanf(line, "%15s %255s %ld %ld %ld %ld %ld %ld", word, a, &n[0], &n[1], &n[2], &n[3], &n[4],
             &n[5]) < 2) {
    exit(2);
  }
  const int copies = strcmp(word, "copy") == 0;
  if (!copies && (n[0] < 1 || n[0] >= kWords || n[1] < 16 || n[1] > kMost || n[1] % 16 != 0)) {
    exit(2);
  }
  if (strcmp(word, "burst") == 0) {
    const int fd = open(a, O_RDWR | O_CREAT, 0644);
    return answer(fd < 0 ? -1 : burst_to(fd, n[0], (size_t)n[1], n[2], n[3], n[4], n[5]));
  }
  if (strcmp(word, "append") == 0) return answer(append_to(a, n[0], (size_t)n[1], n[2], n[3]));
  if (strcmp(word, "fork") == 0) return answer(forks(a, n[0], (size_t)n[1], n[2], n[3]));
  if (copies && sscanf(line, "%*s %*s %255s %ld", b, &n[0]) == 2) {
    return answer(copy(a, b, (int)n[0]));
  }
  exit(2);
}

int main(int argc, char** argv) {
  const int fd = argc >= 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
  memory = fd < 0
               ? MAP_FAILED
               : mmap(NULL, kWords * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return 2;
  close(fd);
  if (argc == 3) return obey(argv[2]) < 0 ? 1 : 0;
  static char line[600];
  for (;;) {
    // Byte by byte: children must not have what is for their parent.
    size_t n = 0;
    while (n + 1 < sizeof(line) && read(0, &line[n], 1) == 1 && line[n] != '\n') ++n;
    line[n] = '\0';
    if (n == 0) return 0;
    obey(line);
  }
}
