// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpointer of a pool, seen from outside: starting one, and asking it for something.
#ifndef NVCACHE_RECOVERY_TOOL_CHECKPOINTER_H_
#define NVCACHE_RECOVERY_TOOL_CHECKPOINTER_H_

#include <string>

#include "recovery/tool/open.h"

namespace nvcache::tool {

// Leaves one behind, unless the pool has one, or it would become a child of this process. One
// thread calls it. It leaves undone the steps that fail: the pool does without.
void StartCheckpointer(const std::string& pool);

// Asks a pool's checkpointer, if it has one, for something, for as long as this lives.
class Wish {
 public:
  enum What : uint32_t { kKeepOff = pool::kKeepOffByte, kHurry = pool::kHurryByte };
  Wish(const std::string& pool, What what);
  ~Wish();
  Wish(const Wish&) = delete;
  Wish& operator=(const Wish&) = delete;

 private:
  int fd_;
};

// Opens the pool for a recovery; a Failure with the pool's own one line when it cannot be had. Its
// checkpointer keeps off, and is waited for, if nobody else uses the pool.
class RecoveredPool : public ScopedPool {
 public:
  explicit RecoveredPool(const std::string& path);

 private:
  const Wish wish_;
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_CHECKPOINTER_H_
