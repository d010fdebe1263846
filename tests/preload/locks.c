// SPDX-License-Identifier: BSD-3-Clause
//
// The program's fcntl locks last as long as without the library, whatever becomes of the file in
// the cache: they go when it closes a descriptor of the file, and not when the library closes one.

#include "libc.h"
#include "tests/kit/program.h"

// Whether another process would find a lock.
static void probe(const char* when, const char* name) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(name, O_RDWR);
    fcntl(fd, F_GETLK, &lock);
    printf("%s: %s\n", when, lock.l_type == F_UNLCK ? "free" : "locked");
    exit(0);
  }
  waitpid(child, NULL, 0);
}

static int create(const char* name) {
  const int fd = created(name);
  if (write(fd, "some bytes", 10) != 10) exit(2);
  return fd;
}

static void lock(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
  if (fcntl(fd, F_SETLK, &lock) != 0) exit(2);
}

static void lock_by_hand(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
  if (by_hand(SYS_fcntl, fd, F_SETLK, (long)&lock) != 0) exit(2);
}

static void lock_with_lockf(int fd) {
  if (lseek(fd, 0, SEEK_SET) != 0 || lockf(fd, F_LOCK, 5) != 0) exit(2);
}

static void map(int fd) {
  void* page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) exit(2);
  munmap(page, 1);
}

static void try(const char* how, void (*take)(int)) {
  char name[64];
  printf("%s\n", how);
  for (int i = 0; i < 3; ++i) {
    snprintf(name, sizeof(name), "%s %d", how, i);
    const int fd = create(name), other = i == 2 ? open(name, O_RDONLY) : -1;
    take(fd);
    probe("taken", name);
    if (i == 1) map(fd);
    probe(i == 1 ? "mapped" : "again", name);
    if (write(fd, "more", 4) != 4) exit(2);
    if (other >= 0) {
      close(other);
      probe("another descriptor closed", name);
    }
    close(fd);
    probe("closed", name);
  }
}

// In a folder whose names the log has, of whose file it does not know all.
static void rename_in_known_folder(void) {
  if (mkdir("known", 0755) != 0) exit(2);
  const int fd = create("known/old"), folder = open("known", O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < 3; ++i) {
    if (fsync(folder) != 0) exit(2);
  }
  lock(fd);
  if (rename("known/old", "known/new") != 0) exit(2);
  probe("renamed", "known/new");
  if (link("known/new", "known/linked") != 0) exit(2);
  probe("linked", "known/linked");
}

int main(int argc, char** argv) {
  if (argc < 2 || (strcmp(argv[1], "executed") != 0 && chdir(argv[1]) != 0)) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(argv[1], "executed") == 0) {
    probe("executed", "kept");
    probe("executed, mapped", "mapped");
    probe("executed, by hand", "by hand");
    probe("executed, closed", "closed");
    create("cached once more");
    return 0;
  }
  try("fcntl", lock);
  try("lockf", lock_with_lockf);
  try("hand", lock_by_hand);
  rename_in_known_folder();
  lock(create("kept"));
  const int mapped = create("mapped"), closed = create("closed");
  lock(mapped);
  map(mapped);
  lock_by_hand(create("by hand"));
  lock(closed);
  close(closed);
  char* const arguments[] = {argv[0], "executed", NULL};
  execv("/proc/self/exe", arguments);
  return 2;
}
