// SPDX-License-Identifier: BSD-3-Clause
//
// A pool for use: opened, and recovered if that has to be done.
#ifndef NVCACHE_RECOVERY_TOOL_TAKE_H_
#define NVCACHE_RECOVERY_TOOL_TAKE_H_

#include <string>

#include "recovery/tool/commands.h"
#include "src/pool/pool.h"

namespace nvcache::tool {

// The pool may be free later.
struct Busy : Failure {
  explicit Busy(const pool::Problem& problem) : Failure{kRunFailed, problem.text.c_str()} {}
};

// Opens it, with the gate. Somebody else who has that is waited for, for a while; then: Busy.
void TakePool(pool::Pool* pool, const std::string& path, bool emulate);
// If nobody uses it, the groups that dead processes have left are brought to the files. A Failure
// if something cannot be.
void RecoverTaken(pool::Pool& pool);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_TAKE_H_
