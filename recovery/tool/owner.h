// SPDX-License-Identifier: BSD-3-Clause
//
// Who uses a pool.
#ifndef NVCACHE_RECOVERY_TOOL_OWNER_H_
#define NVCACHE_RECOVERY_TOOL_OWNER_H_

#include <cstdint>
#include <string>

#include "src/pool/pool.h"

namespace nvcache::tool {

enum class Use {
  kClean,  // nobody, and nothing is pending
  kInUse,  // a process has it
  kDirty,  // the last process died using it
};

struct Owner {
  Use use = Use::kClean;
  uint32_t pid = 0;     // of the process that has the pool, or died using it; 0: unknown
  bool alive = false;   // a process of this number exists: not always the same one
  std::string program;  // its name, when it is alive
  uint64_t since = 0;   // ns since 1970
};

Owner FindOwner(const pool::Pool& pool);

const char* UseName(Use use);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_OWNER_H_
