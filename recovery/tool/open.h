// SPDX-License-Identifier: BSD-3-Clause
//
// Opening a pool for a subcommand.
#ifndef NVCACHE_RECOVERY_TOOL_OPEN_H_
#define NVCACHE_RECOVERY_TOOL_OPEN_H_

#include <string>

#include "src/pool/pool.h"

namespace nvcache::tool {

// Closes itself; the engine's pool lives as long as the process and does not.
class ScopedPool : public pool::Pool {
 public:
  ~ScopedPool() { Close(); }
  // It has no memory: this is what its journal had when it was opened (lost.h).
  bool lost = false;
};

// A Failure with the pool's own one line when it cannot be had.
void OpenPool(ScopedPool* pool, const std::string& path, pool::Mode mode, bool emulate);
void CreatePool(const std::string& path, const pool::CreateOptions& options);

// A pool that exists was either made on persistent memory or with --emulate: a command that only
// looks at it or saves its contents does not have to be told again.
inline constexpr bool kAnyMemory = true;

// "power", "disk", "mirrored", "process", and what they mean.
struct Level {
  const char* name;
  const char* meaning;
};
Level LevelOf(const pool::Pool& pool);
Level LevelOf(const ScopedPool& pool);
// That of a pool whose file is a journal.
Level DiskLevel(uint32_t commit);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_OPEN_H_
