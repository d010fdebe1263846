// SPDX-License-Identifier: BSD-3-Clause
#include "src/rawcall/image.h"

#include <algorithm>

#include "src/sys/crc32c.h"
#include "src/sys/user_copy.h"

namespace nvcache::rawcall {

Range Image::RangeOf(const Elf64_Phdr& header) const {
  const uintptr_t begin = object_.base + header.p_vaddr;
  const uintptr_t end = begin + header.p_memsz;
  return end < begin ? Range{} : Range{begin, end};
}

bool Image::Read(void* to, uintptr_t at, size_t n) const {
  for (size_t i = 0; i < object_.header_count; ++i) {
    const Elf64_Phdr& header = object_.headers[i];
    if (header.p_type != PT_LOAD || !RangeOf(header).Holds(at, n)) continue;
    return sys::CopyFromUser(to, reinterpret_cast<const void*>(at), n) == n;
  }
  return false;
}

Range Image::Text(size_t n, const Range& functions) const {
  for (size_t i = 0; i < object_.header_count; ++i) {
    const Elf64_Phdr& header = object_.headers[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    if (n-- == 0) return CodeOf(RangeOf(header), functions);
  }
  return {};
}

Range Image::CodeOf(const Range& segment, const Range& functions) const {
  constexpr uintptr_t kLongestFini = 64;
  const Range unwind = Segment(PT_GNU_EH_FRAME);
  Range dynamic = Segment(PT_DYNAMIC), code = segment;
  if (unwind.size() == 0 || !segment.Holds(unwind.begin, unwind.size())) return segment;
  Elf64_Dyn entry;
  for (; dynamic.Holds(dynamic.begin, sizeof(entry)); dynamic.begin += sizeof(entry)) {
    if (!Read(&entry, dynamic.begin, sizeof(entry)) || entry.d_tag == DT_NULL) break;
    const uintptr_t at = object_.base + entry.d_un.d_ptr;
    if (entry.d_tag == DT_INIT && segment.Holds(at, 1)) code.begin = at;
    if (entry.d_tag == DT_FINI && segment.Holds(at, kLongestFini)) code.end = at + kLongestFini;
  }
  if (code.begin >= code.end) return segment;
  // An object may have any function of its own called at its beginning, and at its end.
  if (functions.size() > 0 && segment.Holds(functions.begin, functions.size())) {
    code.begin = std::min(code.begin, functions.begin);
    code.end = std::max(code.end, functions.end);
  }
  return code;
}

Range Image::Segment(uint32_t type) const {
  for (size_t i = 0; i < object_.header_count; ++i) {
    if (object_.headers[i].p_type == type) return RangeOf(object_.headers[i]);
  }
  return {};
}

bool Image::FindBuildId(uint8_t* id, size_t room, size_t* size) const {
  for (size_t i = 0; i < object_.header_count; ++i) {
    if (object_.headers[i].p_type != PT_NOTE) continue;
    Range notes = RangeOf(object_.headers[i]);
    Elf64_Nhdr note;
    while (Read(&note, notes.begin, sizeof(note)) && notes.Holds(notes.begin, sizeof(note))) {
      constexpr uint32_t kMost = 1u << 16;
      if (note.n_namesz > kMost || note.n_descsz > kMost) break;
      const uintptr_t name = notes.begin + sizeof(note);
      const uintptr_t content = name + (note.n_namesz + 3) / 4 * 4;
      char gnu[4];
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(gnu) && note.n_descsz <= room &&
          Read(gnu, name, sizeof(gnu)) && __builtin_memcmp(gnu, "GNU", sizeof(gnu)) == 0) {
        *size = note.n_descsz;
        return *size > 0 && Read(id, content, *size);
      }
      notes.begin = content + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return false;
}

uint64_t Image::Key() const {
  uint8_t id[64];
  size_t size = 0;
  if (!FindBuildId(id, sizeof(id), &size)) return 0;
  const size_t bytes = object_.header_count * sizeof(Elf64_Phdr);
  const uint32_t low = sys::Crc32c(object_.headers, bytes, sys::Crc32c(id, size));
  // The build-id is a hash by itself.
  uint64_t high = 0;
  __builtin_memcpy(&high, id, size < sizeof(high) ? size : sizeof(high));
  return (high ^ low) | 1;
}

}  // namespace nvcache::rawcall
