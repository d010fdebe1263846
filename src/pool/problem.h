// SPDX-License-Identifier: BSD-3-Clause
//
// An error of a pool, for people.
#ifndef NVCACHE_POOL_PROBLEM_H_
#define NVCACHE_POOL_PROBLEM_H_

#include "src/sys/text.h"

namespace nvcache::pool {

// One line that names the pool, the error and the remedy.
struct Problem {
  int error = 0;  // errno, for programs
  sys::Text<480> text;
};

// Each says it, and returns false. `error`: errno. `result`: the kernel's.
bool Fail(Problem* problem, const char* path, int error, const char* what, const char* advice);
// It says what open() answered, for a pool to be made as for one to be used.
bool FailOpen(Problem* problem, const char* path, long result);
bool FailMap(Problem* problem, const char* path, long result);
bool FailNotPersistent(Problem* problem, const char* path);

// For `what`.
using What = sys::Text<200>;

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_PROBLEM_H_
