// SPDX-License-Identifier: BSD-3-Clause
//
// Whether code calls the kernel by itself, and may touch files so.
//
// A search for the bytes of `syscall`, `sysenter` and `int $0x80` finds every such instruction, and
// as many other places, within constants and data: some 60 in a program of the size of node. What
// is an instruction is told by reading the function around the place from its beginning. Outside
// of all functions it counts if the code there falls into step with it, and, where the rest of the
// object is in functions, if it also ends as such a call does.
#ifndef NVCACHE_RAWCALL_SEARCH_H_
#define NVCACHE_RAWCALL_SEARCH_H_

#include <cstdint>

#include "src/rawcall/image.h"

namespace nvcache::rawcall {

enum class Verdict : uint8_t { kUnknown, kHarmless, kRaw };

// Told of each instruction that is found; false: that is enough.
struct Site {
  uintptr_t at;
  int64_t number;  // kUnknownNumber
  bool in_function;
};
struct Listener {
  bool (*hear)(void* context, const Site& site) = nullptr;
  void* context = nullptr;
};

// Searches an object; kRaw as well if some of its code cannot be read. A listener hears all sites.
Verdict SearchObject(const Image& image, const Listener& listener = {});
// Searches executable memory of which nothing else is known.
Verdict SearchMemory(const Range& range);

// Objects that call the kernel with numbers that are not to be seen, and are known not to touch a
// file of the program's: by the last part of their path.
bool IsTrusted(const char* path);
// The last part of a path.
const char* NameOf(const char* path);

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_SEARCH_H_
