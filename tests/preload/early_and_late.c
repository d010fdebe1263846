// SPDX-License-Identifier: BSD-3-Clause
//
// Files that are used before main and after it, by the program and by a library of its own; in a
// program whose malloc uses files, too.
#define _GNU_SOURCE
#include <stdalign.h>

#include "tests/kit/program.h"

void early_use(const char* text);

// ---------------------------------------------------------------------------------------------
// Gives out memory and never takes it back; keeps a diary of it.

static alignas(16) char g_memory[16 << 20];
static atomic_size_t g_used;
static _Thread_local int g_inside;
static atomic_long g_entries, g_wrong;

static void write_diary(void) {
  if (g_inside) return;
  g_inside = 1;
  const int saved = errno;
  const int fd = open("diary", O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0 || write(fd, "entry\n", 6) != 6 || close(fd) != 0) atomic_fetch_add(&g_wrong, 1);
  atomic_fetch_add(&g_entries, 1);
  errno = saved;
  g_inside = 0;
}

void* malloc(size_t size) {
  const size_t rounded = (size + 31) / 16 * 16;
  const size_t at = atomic_fetch_add(&g_used, rounded);
  if (at + rounded > sizeof(g_memory)) abort();
  memcpy(g_memory + at, &size, sizeof(size));
  write_diary();
  return g_memory + at + 16;
}
void free(void* memory) { (void)memory; }
void* calloc(size_t n, size_t size) { return malloc(n * size); }
void* realloc(void* old, size_t size) {
  void* memory = malloc(size);
  size_t before = 0;
  if (old != NULL) memcpy(&before, (char*)old - 16, sizeof(before));
  return old != NULL ? memcpy(memory, old, before < size ? before : size) : memory;
}
void* aligned_alloc(size_t alignment, size_t size) {
  const size_t memory = (size_t)malloc(size + alignment);
  return (void*)((memory + alignment - 1) / alignment * alignment);
}
void* memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = aligned_alloc(alignment, size);
  return 0;
}

// ---------------------------------------------------------------------------------------------

static int g_fd;

// The compiler may leave out a pair whose memory nobody sees.
static void allocate_once(size_t size) {
  void* volatile memory = malloc(size);
  free(memory);
}

static void* allocate(void* unused) {
  for (int i = 0; i < 100; ++i) {
    allocate_once(100);
    if (pwrite(g_fd, "thread", 6, 100) != 6) atomic_fetch_add(&g_wrong, 1);
  }
  return unused;
}

static void at_exit(void) {
  early_use("program's atexit\n");
  if (write(g_fd, "late", 4) != 4 || fsync(g_fd) != 0) _exit(9);
}
__attribute__((constructor)) static void begin(void) { early_use("program's constructor\n"); }
__attribute__((destructor)) static void end(void) {
  early_use("program's destructor\n");
  const int fd = created("last");
  if (write(fd, "last", 4) != 4 || fsync(fd) != 0 || close(fd) != 0) _exit(9);
  // How often libc and the library ask for memory is their business.
  unlink("diary");
}

int main(int argc, char* argv[]) {
  (void)argv;
  if (argc < 2) return 2;
  setvbuf(stdout, NULL, _IONBF, 0);
  atexit(at_exit);
  early_use("main\n");
  g_fd = created("a");
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, allocate, NULL);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  allocate_once(1000);
  const int fd = open("diary", O_RDONLY);
  const long size = lseek(fd, 0, SEEK_END);
  printf("%ld wrong, diary %s\n", atomic_load(&g_wrong),
         size == atomic_load(&g_entries) * 6 ? "complete" : "incomplete");
  return close(fd);
}
