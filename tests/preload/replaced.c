// SPDX-License-Identifier: BSD-3-Clause
//
// The file of a library that the program needs is cut or written over while it is mapped. Nobody
// looks at what it had: all is bound, and the program does not call it any more.
//
//   replaced LIBRARY HOW WHEN OTHER    in an empty folder
//
// HOW: `cut`, to nothing; `zeros`; `renamed`, by another file. WHEN: `early` or `late`, before a
// file is hot or afterwards. OTHER: a library that needs nothing, and is loaded then.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/kit/program.h"

int replaced(void);

static void replace(const char* library, const char* how) {
  struct stat st;
  CHECK(stat(library, &st) == 0);
  char* zeros = calloc(1, (size_t)st.st_size);
  char other[4096];
  snprintf(other, sizeof(other), "%s.new", library);
  const int renames = strcmp(how, "renamed") == 0;
  const int fd = renames ? open(other, O_WRONLY | O_CREAT, 0755) : open(library, O_WRONLY);
  CHECK(fd >= 0);
  if (strcmp(how, "cut") == 0) CHECK(ftruncate(fd, 0) == 0);
  if (strcmp(how, "cut") != 0) CHECK(write(fd, zeros, (size_t)st.st_size) == st.st_size);
  close(fd);
  if (renames) CHECK(rename(other, library) == 0);
  free(zeros);
}

static int make_hot(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && write(fd, "some bytes", 10) == 10);
  for (int i = 0; i < 6; ++i) CHECK(pwrite(fd, "more", 4, 0) == 4 && fsync(fd) == 0);
  return fd;
}

static void look(const char* what, int fd) {
  char text[20] = "";
  CHECK(access("a sync of a hot file", F_OK) != 0);
  CHECK(fsync(fd) == 0);
  CHECK(access("the end", F_OK) != 0);
  CHECK(pread(fd, text, sizeof(text) - 1, 0) >= 0);
  printf("%s: %s\n", what, text);
}

// Each is called for the first time, and so has to be found.
static void call_others(int fd) {
  struct iovec both[] = {{"RA", 2}, {"W-", 2}};
  SHOW(pwritev(fd, both, 2, 3), fallocate(fd, 0, 0, 30), ftruncate(fd, 12), lseek(fd, 0, SEEK_END));
  SHOW(dup2(fd, 99), fchmod(99, 0640), lockf(99, F_LOCK, 1), close(99));
  SHOW(link("f", "l"), symlink("f", "s"), mkdir("d", 0700), rmdir("d"), unlink("l"));
  SHOW(sync_file_range(fd, 0, 0, 0), posix_fadvise(fd, 0, 0, 0), truncate("f", 11), chdir("."));
  FILE* stream = fopen("g", "w+");
  SHOW(fputs("text", stream) >= 0, fflush(stream), fclose(stream));
  void* page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  SHOW(page != MAP_FAILED, mprotect(page, 4096, PROT_NONE), munmap(page, 4096));
}

int main(int argc, char** argv) {
  CHECK(argc == 5);
  printf("%d\n", replaced());
  const int late = strcmp(argv[3], "late") == 0;
  const int before = late ? make_hot("before") : -1;
  replace(argv[1], argv[2]);
  if (late) look("before", before);
  const int fd = make_hot("f");
  look("f", fd);
  call_others(fd);
  printf("loaded: %d\n", dlopen(argv[4], RTLD_NOW) != NULL);
  const int last = make_hot("last");
  look("last", last);
  fflush(stdout);
  _exit(0);  // what would be called at the end is gone
}
