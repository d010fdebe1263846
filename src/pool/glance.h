// SPDX-License-Identifier: BSD-3-Clause
//
// A look at a pool that is not opened.
#ifndef NVCACHE_POOL_GLANCE_H_
#define NVCACHE_POOL_GLANCE_H_

#include <cstdint>

#include "src/pool/superblock.h"

namespace nvcache::pool {

// At a glance, for a program that may never use it. Not for a devdax device.
struct Glance {
  // kClean: this is a pool, no process uses it, and nothing is pending. kLost: it has a journal,
  // and its memory is gone, so it has to be recovered. kVoid: the same, but the journal had failed,
  // and the files have all that it promised.
  enum class Kind { kClean, kMissing, kLookCloser, kLost, kVoid };
  Kind kind;
  uint64_t id = 0;  // its id(), if it is a pool; else 0
  uint32_t commit = kCommitOwn;
};
Glance GlanceAt(const char* path);

// The file that a pool's locks lie on (byte_locks.h). A descriptor, or a negated errno.
long OpenLocked(const char* path, bool for_writing);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_GLANCE_H_
