// SPDX-License-Identifier: BSD-3-Clause
//
// Planted bugs in what is done to names (mutants.h).
#ifndef NVCACHE_TESTS_CRASH_NAME_MUTANTS_H_
#define NVCACHE_TESTS_CRASH_NAME_MUTANTS_H_

#include <vector>

#include "tests/crash/mutants.h"

namespace nvcache::crash {

std::vector<Mutant> NameMutants();

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_NAME_MUTANTS_H_
