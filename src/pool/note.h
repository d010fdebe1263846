// SPDX-License-Identifier: BSD-3-Clause
//
// An ELF note: this library, or this statically linked program, is NVCache. The dynamic linker of
// NVCache's musl may carry it as well.
#ifndef NVCACHE_POOL_NOTE_H_
#define NVCACHE_POOL_NOTE_H_

#include <cstdint>

#include "src/pool/format.h"

namespace nvcache::pool {

inline constexpr char kNoteName[8] = "NVCache";
inline constexpr uint32_t kNoteType = 1;

struct ElfNoteContent {
  uint32_t pool_version;
  uint32_t front_end_version;
};

struct ElfNote {
  uint32_t name_size = sizeof(kNoteName);
  uint32_t content_size = sizeof(ElfNoteContent);
  uint32_t type = kNoteType;
  char name[sizeof(kNoteName)] = {'N', 'V', 'C', 'a', 'c', 'h', 'e', '\0'};
  ElfNoteContent content;
};
static_assert(sizeof(ElfNote) == 28 && alignof(ElfNote) == 4);

}  // namespace nvcache::pool

#define NVCACHE_NOTE_SECTION __attribute__((section(".note.nvcache"), aligned(4), used))

// Once in a front end, in an object that is always linked.
#define NVCACHE_NOTE(version)                                                 \
  NVCACHE_NOTE_SECTION static const ::nvcache::pool::ElfNote nvcache_note = { \
      .content = {::nvcache::pool::kVersion, version}}

#endif  // NVCACHE_POOL_NOTE_H_
