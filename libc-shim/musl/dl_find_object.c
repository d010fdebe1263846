/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Debian's libgcc finds the unwind tables of a piece of code with glibc's _dl_find_object; musl has
 * dl_iterate_phdr only. This is the one on top of the other, a member of libstdc++.a. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>

struct dl_find_object { /* as in glibc 2.35 on x86-64 */
  unsigned long long flags;
  void* map_start;
  void* map_end;
  void* link_map;
  void* eh_frame; /* what PT_GNU_EH_FRAME says */
  unsigned long long reserved[7];
};
_Static_assert(sizeof(struct dl_find_object) == 96, "libgcc has one of this size on its stack");

int _dl_find_object(void* code, struct dl_find_object* result);

struct search {
  uintptr_t code;
  struct dl_find_object* result;
};

static int look_into(struct dl_phdr_info* object, size_t size, void* argument) {
  (void)size;
  const struct search* search = argument;
  const ElfW(Phdr)* segment = 0;
  const ElfW(Phdr)* tables = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &object->dlpi_phdr[i];
    if (header->p_type == PT_GNU_EH_FRAME) tables = header;
    if (header->p_type == PT_LOAD &&
        search->code - object->dlpi_addr - header->p_vaddr < header->p_memsz) {
      segment = header;
    }
  }
  if (!segment) return 0;
  if (!tables) return -1;
  const uintptr_t start = object->dlpi_addr + segment->p_vaddr;
  *search->result = (struct dl_find_object){
      .map_start = (void*)start,
      .map_end = (void*)(start + segment->p_memsz),
      .eh_frame = (void*)(object->dlpi_addr + tables->p_vaddr),
  };
  return 1;
}

/* 0, or -1: nobody knows this code, or it has no tables. */
int _dl_find_object(void* code, struct dl_find_object* result) {
  struct search search = {(uintptr_t)code, result};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}
