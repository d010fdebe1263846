// SPDX-License-Identifier: BSD-3-Clause
//
// An object as the dynamic linker has mapped it: its program headers say what is where.
#ifndef NVCACHE_RAWCALL_IMAGE_H_
#define NVCACHE_RAWCALL_IMAGE_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>

#include "src/sys/host.h"

namespace nvcache::rawcall {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool Holds(uintptr_t at, size_t n) const { return at >= begin && at <= end && end - at >= n; }
  size_t size() const { return end - begin; }
};

class Image {
 public:
  explicit Image(const LoadedObject& object) : object_(object) {}

  // Bytes of one segment of the object. False: they are not there.
  bool Read(void* to, uintptr_t at, size_t n) const;
  // The code of the n-th executable segment; empty: there are no more. A linker that makes one
  // segment of code and constants puts the code between .init and .fini; and what is known to be
  // functions is code.
  Range Text(size_t n, const Range& functions) const;
  // The segment of that type, as it is mapped.
  Range Segment(uint32_t type) const;
  // A number by which another process knows the object again: it is made of the build-id and the
  // program headers. 0: it has no build-id.
  uint64_t Key() const;

 private:
  Range RangeOf(const Elf64_Phdr& header) const;
  Range CodeOf(const Range& segment, const Range& functions) const;
  bool FindBuildId(uint8_t* id, size_t room, size_t* size) const;

  const LoadedObject& object_;
};

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_IMAGE_H_
