// SPDX-License-Identifier: BSD-3-Clause
//
// What one call of a process does.
#ifndef NVCACHE_TESTS_NAMES_ACT_H_
#define NVCACHE_TESTS_NAMES_ACT_H_

#include <array>
#include <string>

#include "tests/names/file_system.h"

namespace nvcache::names {

enum class What {
  // Of names
  kCreate,
  kRemove,
  kRename,
  kLink,
  // Of bytes
  kWrite,
  kWritePast,  // the log
  kWriteOpen,  // to the file that it wrote to before, whatever names that has
  kFsync,
  kMoveCheckpoint,
};

struct Act {
  What what;
  Name name = 0;
  Name to = 0;           // of a rename or a link
  bool refused = false;  // by the kernel
};

// The file that each of the programs' names leads to.
using State = std::array<File, kProgramNames>;

// Whether the call changes anything there, once it gets so far.
bool IsPossible(const State& state, const Act& act);

std::string TextOf(Name name);
std::string TextOf(const Act& act);

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_ACT_H_
