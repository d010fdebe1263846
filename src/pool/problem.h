// SPDX-License-Identifier: BSD-3-Clause
//
// What went wrong with a pool.
#ifndef NVCACHE_POOL_PROBLEM_H_
#define NVCACHE_POOL_PROBLEM_H_

#include "src/sys/text.h"

namespace nvcache::pool {

// What went wrong: one line that names the pool, what is wrong and what to do.
struct Problem {
  int error = 0;  // errno, for programs
  sys::Text<480> text;
};

// Each says it, and returns false. `error`: errno. `result`: what the kernel has said.
bool Fail(Problem* problem, const char* path, int error, const char* what, const char* advice);
// Of open(): the same for a pool to be made and one to be used.
bool FailOpen(Problem* problem, const char* path, long result);
bool FailMap(Problem* problem, const char* path, long result);
bool FailNotPersistent(Problem* problem, const char* path);

// For `what`.
using What = sys::Text<200>;

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_PROBLEM_H_
