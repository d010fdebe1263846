// SPDX-License-Identifier: BSD-3-Clause
//
// Planted bugs. What a bug in the protocol changes for the medium is which stores, PWBs, fences and
// syncs there are, and in which order. So a mutant is a change of a recording: the engine that was
// recorded stays as it is, and all mutants are tried on the same runs. There is one for every step
// (src/pmem/step.h), which leaves it out, and one for each order that the protocol relies on. A
// check that recovery lacks is what it would see if the check had nothing to find: so there the
// image is changed, and recovery, too, stays as it is.
#ifndef NVCACHE_TESTS_CRASH_MUTANTS_H_
#define NVCACHE_TESTS_CRASH_MUTANTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/nvlog/record.h"
#include "src/pool/pool.h"
#include "tests/crash/trace.h"

namespace nvcache::crash {

// Where a mutant is reported: a scenario as it is recorded with that seed, and a moment.
struct Shown {
  std::string scenario;
  uint64_t seed = 0;
  size_t moment = 0;  // Explorer::moment
  bool operator==(const Shown&) const = default;
};

struct Mutant {
  std::string name;
  std::string what;
  // Changes nothing where there is nothing to change.
  std::function<void(Trace*, bool of_recovery)> apply;
  // A check that recovery lacks: Plan::blind. May be empty.
  std::function<std::vector<nvlog::Place>(const pool::View&)> blind = {};
  Shown shown = {};  // where it was reported last; no scenario: it is new
};

std::vector<Mutant> AllMutants();
Shown ShownAt(const std::string& mutant);  // shown.cc

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_MUTANTS_H_
