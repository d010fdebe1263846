// SPDX-License-Identifier: BSD-3-Clause
//
// The whole engine in known folders: names in the log (docs/names.md).
#ifndef NVCACHE_TESTS_CRASH_NAME_SCENARIOS_H_
#define NVCACHE_TESTS_CRASH_NAME_SCENARIOS_H_

#include <vector>

#include "tests/crash/scenarios.h"

namespace nvcache::crash {

std::vector<Scenario> NameScenarios();

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_NAME_SCENARIOS_H_
