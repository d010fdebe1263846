// SPDX-License-Identifier: BSD-3-Clause
//
// Recording and exploring, each in a process of its own: a process has one engine, and a broken
// invariant kills it.
#ifndef NVCACHE_TESTS_CRASH_RUN_H_
#define NVCACHE_TESTS_CRASH_RUN_H_

#include <string>

#include "tests/crash/explorer.h"
#include "tests/crash/mutants.h"
#include "tests/crash/scenarios.h"

namespace nvcache::crash {

// Below `disk` and /dev/shm; both are empty again afterwards. Throws if the scenario itself fails.
Trace Record(const Scenario& scenario, uint64_t seed, const std::string& disk);

struct Outcome {
  std::string what;  // empty: every image was recovered as it should be
  std::string crashes;
  Counts counts;
  size_t moment = 0;  // Explorer::moment, of what is wrong
};

enum class Care {
  kGlance,  // a few images of each moment, so that the last moment of a long trace is reached soon
  kFull,    // as many as the scenario asks for
};

// What of a trace is explored.
struct Extent {
  Care care = Care::kFull;
  size_t first_moment = 0;
  uint64_t images = ~uint64_t{0};  // at most, about
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
};

// `mutant` may be null.
Outcome Explore(const Scenario& scenario, const Trace& trace, const Mutant* mutant,
                const Extent& extent);

// A failing case in a file, and once more.
void Save(const std::string& path, const Trace& trace, const std::string& mutant,
          const Outcome& outcome);
Outcome Replay(const std::string& path);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_RUN_H_
