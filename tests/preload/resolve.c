// SPDX-License-Identifier: BSD-3-Clause
//
// openat2 finds a file in ways of its own (RESOLVE_*). Whichever it cuts off, or does not: files
// that are in the cache are as long as the kernel says, and so are those of the same names that it
// passed by. Prints all that a program can see.
//
//   resolve DIRECTORY PLUGIN
#define _GNU_SOURCE
#include <linux/openat2.h>

#include "libc.h"
#include "tests/kit/program.h"

// Two folders with the same names in them; the process is in one, and opens from the other.
enum { kFiles = 4 };
static const char* const kNames[kFiles] = {"f", "inside/f", "inside/deep/f", "inside/g"};
static int g_files[kFiles];

// All of them are open, cached, and have bytes that the kernel has not seen.
static void prepare(void) {
  for (int i = 0; i < kFiles; ++i) {
    g_files[i] = open(kNames[i], O_RDWR | O_CREAT | O_EXCL, 0644);
    if (g_files[i] < 0 || write(g_files[i], "twenty bytes of text", 20) != 20) exit(2);
  }
}

static void show_and_close(void) {
  for (int i = 0; i < kFiles; ++i) {
    char bytes[64];
    struct stat st;
    const ssize_t n = pread(g_files[i], bytes, sizeof(bytes), 0);
    printf(" %ld:%zd", (long)lseek(g_files[i], 0, SEEK_END), n);
    if (fstat(g_files[i], &st) != 0 || st.st_size != n) printf("!%ld", (long)st.st_size);
    // What was cut off stays so, whatever is written then.
    if (pwrite(g_files[i], "x", 1, 30) != 1) printf(" pwrite errno %d", errno);
    printf("+%zd", pread(g_files[i], bytes, sizeof(bytes), 0));
    close(g_files[i]);
    unlink(kNames[i]);
  }
  printf("\n");
}

// A mount or a rename anywhere on the machine, at the same time, makes the kernel refuse a path
// with
// ".." by EAGAIN, which asks for one more attempt (openat2(2)). RESOLVE_CACHED may give it each
// time.
static int open_as(int from, const char* path, const void* how, size_t size) {
  int fd = -1;
  for (int attempt = 0; attempt < 1000 && (attempt == 0 || errno == EAGAIN) && fd < 0; ++attempt) {
    errno = 0;
    fd = (int)syscall(SYS_openat2, from, path, how, size);
  }
  return fd;
}

static void try(int from, const char* path, unsigned long flags, unsigned long resolve) {
  const struct open_how how = {
      .flags = flags, .mode = (flags & O_CREAT) != 0 ? 0644 : 0, .resolve = resolve};
  prepare();
  const int fd = open_as(from, path, &how, sizeof(how));
  printf("%-14s flags %06lo resolve %02lx: fd %d errno %d", path, flags, resolve, fd, errno);
  if (fd >= 0) {
    printf(" size %ld wrote %zd", (long)lseek(fd, 0, SEEK_END), write(fd, "new", 3));
    close(fd);
  }
  show_and_close();
  unlink("inside/new");
}

// struct open_how is the program's memory, and may be of another version of it.
static void try_structure(int from, const char* what, const void* how, size_t size) {
  prepare();
  const int fd = open_as(from, "/f", how, size);
  printf("%s: fd %d errno %d", what, fd, errno);
  if (fd >= 0) close(fd);
  show_and_close();
}

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  mkdir("inside", 0755);
  mkdir("inside/deep", 0755);
  if (symlink("/f", "inside/absolute") != 0 || symlink("f", "inside/relative") != 0 ||
      symlink("../f", "inside/out") != 0 || symlink("deep", "inside/folder") != 0) {
    return 2;
  }
  const int inside = open("inside", O_PATH | O_DIRECTORY);

  const char* const paths[] = {"f",        "/f",  "../f",     "deep/../f", "/deep/../../f",
                               "absolute", "out", "folder/f", "/new",      "deep",
                               ""};
  const unsigned long flags[] = {O_RDWR | O_TRUNC, O_WRONLY | O_TRUNC | O_NOFOLLOW,
                                 O_RDWR | O_TRUNC | O_CREAT, O_RDWR | O_TRUNC | O_CREAT | O_EXCL};
  const unsigned long resolves[] = {0,
                                    RESOLVE_IN_ROOT,
                                    RESOLVE_BENEATH,
                                    RESOLVE_NO_SYMLINKS,
                                    RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
                                    RESOLVE_CACHED,
                                    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,
                                    0x4000};
  for (size_t p = 0; p < COUNT(paths); ++p) {
    for (size_t f = 0; f < COUNT(flags); ++f) {
      for (size_t r = 0; r < COUNT(resolves); ++r) {
        // No file is made in the machine's own root.
        const int absolute = paths[p][0] == '/' || strcmp(paths[p], "absolute") == 0;
        const int rooted = (resolves[r] & RESOLVE_IN_ROOT) != 0;
        if (absolute && !rooted && (flags[f] & O_CREAT) != 0) continue;
        try(inside, paths[p], flags[f], resolves[r]);
      }
    }
  }

  struct {
    struct open_how how;
    unsigned long more;
  } later = {{.flags = O_RDWR | O_TRUNC, .resolve = RESOLVE_IN_ROOT}, 0};
  try_structure(inside, "whole", &later, sizeof(struct open_how));
  try_structure(inside, "without resolve", &later, 16);
  try_structure(inside, "empty", &later, 0);
  try_structure(inside, "longer, zeros", &later, sizeof(later));
  later.more = 1;
  try_structure(inside, "longer", &later, sizeof(later));
  try_structure(inside, "huge", &later, 1u << 20);
  try_structure(inside, "null", NULL, sizeof(struct open_how));
  try_structure(inside, "bad", (void*)8, sizeof(struct open_how));
  later.how.flags |= 1ul << 40;
  try_structure(inside, "unknown flag", &later, sizeof(struct open_how));
  try_structure(-1, "no folder", &later, sizeof(struct open_how));

  char* page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || munmap(page + 4096, 4096) != 0) return 2;
  try_structure(inside, "half", page + 4096 - 16, sizeof(struct open_how));

  // They lead nowhere outside of a root.
  unlink("inside/absolute");
  unlink("inside/relative");
  unlink("inside/out");
  return 0;
}
