// SPDX-License-Identifier: BSD-3-Clause
//
// What is recorded: the real engine, through its front door or at the level of the log alone.
#ifndef NVCACHE_TESTS_CRASH_SCENARIOS_H_
#define NVCACHE_TESTS_CRASH_SCENARIOS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/crash/trace.h"

namespace nvcache::crash {

// Folders of a recording; empty before and afterwards.
struct Place {
  std::string disk;    // files, on a file system that is cached
  std::string memory;  // the pool
};

// How much of what it can leave is tried.
struct Effort {
  bool removals = false;       // files are also removed by somebody else after the crash
  uint32_t nested_every = 40;  // images: how often recovery is crashed, too
  uint64_t exhaustive = 64;    // images of one moment
  uint32_t killed_every = 0;   // moments: how often recovery is crashed after a kill; 0: no kills
  // In most images, one record of the checkpoint, or one header of a segment, is damaged as well.
  bool damage = false;
  // Recovery may open files by handles in all images, not only in some: names that the log does not
  // know can be all that a file has.
  bool handles = false;
  // Others look at the files while recovery runs after a kill: they see no older byte again. The
  // process is killed before and after each write to a file, too.
  bool watched = false;
};

// Of every so many images and moments.
constexpr Effort Every(uint32_t nested, uint32_t killed, uint64_t exhaustive = 64) {
  return {.nested_every = nested, .exhaustive = exhaustive, .killed_every = killed};
}
constexpr Effort WithRemovals(Effort effort) {
  effort.removals = true;
  return effort;
}
constexpr Effort WithDamage(Effort effort) {
  effort.damage = true;
  return effort;
}
constexpr Effort WithWatchers(Effort effort) {
  effort.watched = true;
  return effort;
}
constexpr Effort WithHandles(Effort effort) {
  effort.handles = true;
  return effort;
}

struct Scenario {
  std::string name;
  std::string what;
  Effort effort;
  // One for each process: a process has one engine.
  std::function<Trace(const Place& place, uint64_t seed)> record;
};

std::vector<Scenario> LogScenarios();      // the log alone
std::vector<Scenario> ProgramScenarios();  // the whole engine
std::vector<Scenario> NameScenarios();     // with names in the log
std::vector<Scenario> AllScenarios();

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_SCENARIOS_H_
