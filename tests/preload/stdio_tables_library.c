// SPDX-License-Identifier: BSD-3-Clause
//
// Makes libc one that nobody knows, before the preload library's constructor looks at it: a table
// of streams begins with another word. libc itself never reads it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((constructor)) static void begin(void) {
  if (getenv("STDIO_TABLES_UNKNOWN") == NULL) return;
  uintptr_t* table = dlsym(RTLD_DEFAULT, "_IO_file_jumps");
  const uintptr_t page = (uintptr_t)(table + 1) & -(uintptr_t)4096;
  if (mprotect((void*)page, 4096, PROT_READ | PROT_WRITE) != 0) abort();
  table[1] = 1;
  if (mprotect((void*)page, 4096, PROT_READ) != 0) abort();
}
