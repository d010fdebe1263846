// SPDX-License-Identifier: BSD-3-Clause
//
// Which functions libc's streams have for their files: looks at each kind of stream, and at all of
// the memory in which libc's tables lie.
//
//   stdio_tables caught|passed      (in the folder of its files)
//
// Then it waits for the end of its standard input.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <wchar.h>

#include "tests/kit/program.h"

enum { kRead = 14, kWrite, kSeek, kClose, kStat, kPlaces = 21 };
static const char* const kNames[] = {"_IO_file_read", "_IO_file_write", "_IO_file_seek",
                                     "_IO_file_close", "_IO_file_stat"};
static uintptr_t g_libc[COUNT(kNames)];  // libc's own functions

static int is_libcs(uintptr_t word) {
  for (size_t i = 0; i < COUNT(g_libc); ++i) {
    if (word == g_libc[i]) return 1;
  }
  return 0;
}

static int is_ours(uintptr_t word) {
  Dl_info info;
  return dladdr((void*)word, &info) != 0 && strstr(info.dli_fname, "libnvcache") != NULL;
}

// A stream that is mapped, and a pipe, close in their own way.
static void look_at(const char* what, FILE* stream, int caught, int closes) {
  CHECK(stream != NULL);
  const uintptr_t* const table = *(uintptr_t**)((char*)stream + sizeof(FILE));
  int ours = 0;
  for (int i = kRead; i <= kStat; ++i) {
    if (i != kClose || closes) ours += is_ours(table[i]);
  }
  const int expected = !caught ? 0 : closes ? 5 : 4;
  printf("%s: %d of %d functions are ours\n", what, ours, expected);
  CHECK(ours == expected);
}

static void look_at_streams(int caught) {
  look_at("stdin", stdin, caught, 1);
  look_at("stderr", stderr, caught, 1);
  FILE* f = fopen("a", "w+");
  look_at("bytes", f, caught, 1);
  CHECK(fputws(L"wide", f) >= 0);
  look_at("wide characters", f, caught, 1);
  CHECK(fclose(f) == 0);
  f = fopen("a", "r,ccs=UTF-8");
  look_at("converted", f, caught, 1);
  CHECK(fclose(f) == 0);
  f = fopen("a", "rm");
  look_at("to be mapped", f, caught, 1);
  CHECK(fgetc(f) == 'w' && fclose(f) == 0);
  f = freopen("a", "rm", fopen("/dev/null", "r"));
  look_at("to be mapped, reopened", f, caught, 1);
  CHECK(fgetc(f) == 'w');
  const int mapped = f->_flags2 & 1;  // libc's _IO_FLAGS2_MMAP
  look_at("mapped", f, caught, !mapped);
  CHECK(fclose(f) == 0);
  f = popen("true", "r");
  look_at("a pipe", f, caught, 0);
  CHECK(pclose(f) == 0);
}

// Whatever a table looks like: no word of libc leads past us, or every one does.
static int look_at_memory(struct dl_phdr_info* info, size_t size, void* words) {
  (void)size;
  if (strstr(info->dlpi_name, "libc.so.6") == NULL) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_GNU_RELRO) continue;
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    const uintptr_t end = begin + info->dlpi_phdr[i].p_memsz;
    for (uintptr_t at = (begin + 7) & -(uintptr_t)8; at + 8 <= end; at += 8) {
      ((int*)words)[0] += is_ours(*(uintptr_t*)at);
      ((int*)words)[1] += is_libcs(*(uintptr_t*)at);
    }
  }
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const int caught = strcmp(argv[1], "caught") == 0;
  for (size_t i = 0; i < COUNT(kNames); ++i) {
    g_libc[i] = (uintptr_t)dlsym(RTLD_DEFAULT, kNames[i]);
    CHECK(g_libc[i] != 0);
  }
  look_at_streams(caught);
  int words[2] = {0, 0};
  CHECK(dl_iterate_phdr(look_at_memory, words) == 1);
  printf("%d words of libc lead to us, %d past us\n", words[0], words[1]);
  CHECK(caught ? words[0] >= 10 && words[1] == 0 : words[0] == 0 && words[1] >= 10);
  puts("ready");
  while (getchar() != EOF) continue;
  return 0;
}
