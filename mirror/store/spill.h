// SPDX-License-Identifier: BSD-3-Clause
//
// A spill has on a disk what a server remembers while its machine is off.
//
// Invariants
//   A spill is loaded once: before the server that has loaded it answers anything, it is gone from
//   the disk. A second load would make a server that has forgotten and says that it has not.
//   A spill that is loaded is whole: its last bytes are written last, and say what all others have
//   to be.
//   A mirror name that this run of the kernel remembers is not taken from a spill: the spill is
//   older.
#ifndef NVCACHE_MIRROR_STORE_SPILL_H_
#define NVCACHE_MIRROR_STORE_SPILL_H_

#include <cstddef>
#include <string>

#include "mirror/store/memories.h"

namespace nvcache::mirror {

// Writes all to the file `path`, which takes its name when it is whole and on the disk. A
// StoreError if that fails; then there is no such file. Nobody may be answered any more.
void WriteSpill(Memories& memories, const std::string& path);

struct Loaded {
  size_t names = 0;
  std::string ignored;  // why a file that is there was not loaded; empty: it was, or there is none
};
// Loads `path`, if it is there, and removes it. A StoreError: the server must not answer.
Loaded LoadSpill(Memories& memories, const std::string& path);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_SPILL_H_
