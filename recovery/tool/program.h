// SPDX-License-Identifier: BSD-3-Clause
//
// Finds out what kind of program a file is, and whether NVCache's part of libc gets into it.
#ifndef NVCACHE_RECOVERY_TOOL_PROGRAM_H_
#define NVCACHE_RECOVERY_TOOL_PROGRAM_H_

#include <optional>
#include <string>
#include <string_view>

#include "src/pool/note.h"

namespace nvcache::tool {

enum class Kind {
  kUnknown,       // not found, not readable, not a program: exec decides
  kGlibc,         // LD_PRELOAD gets libnvcache.so into it
  kNvcache,       // linked with nvcache-musl-gcc, statically or not: needs no LD_PRELOAD
  kStatic,        // and without NVCache
  kOtherLinker,   // another libc's
  kOtherMachine,  // than x86-64 with 64 bits
  kPrivileged,    // gets more rights than its user has
};

struct Program {
  Kind kind = Kind::kUnknown;
  // The file that is executed: for a script, its interpreter. Empty when it was not found.
  std::string path;
  std::string linker;     // its dynamic linker, or empty
  std::string sanitizer;  // the library it needs that wants to be loaded first, or empty
};

// Whether a library of this name or path is AddressSanitizer's: it ends a program in which it is
// not the first.
bool WantsToBeFirst(std::string_view library);

// The program that execvp would start as `name`. Scripts are followed to their interpreter, as the
// kernel does, and through /usr/bin/env. Reads a bounded part of each file, whatever is in it.
Program Examine(const std::string& name);

// The note of a library or program, if it has one.
std::optional<pool::ElfNoteContent> ReadNote(const std::string& path);

// Whether the program itself can use the cache; an unknown one may.
bool CanCache(Kind kind);

// Whether programs that this one starts see its LD_PRELOAD, and it can bear it itself.
bool PassesPreload(Kind kind);

struct Obstacle {
  std::string what;    // "is a static program without NVCache"
  std::string remedy;  // "link it with ..."
};

// Says why a program cannot use the cache.
Obstacle ObstacleOf(const Program& program);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_PROGRAM_H_
