// SPDX-License-Identifier: BSD-3-Clause
//
// Goes through a trace. At each moment at which more may be left of it than before, the images that
// a crash can leave are built, recovered by recovery::Replay, and compared with the model.
#ifndef NVCACHE_TESTS_CRASH_EXPLORER_H_
#define NVCACHE_TESTS_CRASH_EXPLORER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/pool/pool.h"
#include "tests/crash/machine.h"
#include "tests/crash/medium.h"
#include "tests/crash/model.h"
#include "tests/crash/trace.h"

namespace nvcache::crash {

// A crash: after so many events, with this left.
struct Crash {
  size_t events;
  Choice choice;
};
// The second one is a crash of the recovery from the first.
using Crashes = std::vector<Crash>;

struct Failure {
  std::string what;
  Crashes crashes;
};

struct Counts {
  uint64_t moments = 0;
  uint64_t exhaustive = 0;  // moments of which all images were tried
  uint64_t images = 0;
  uint64_t nested = 0;  // images of crashes of recovery
};

struct Plan {
  uint64_t seed = 1;
  Limits limits;
  Limits nested_limits = {8, 4, 4, false};
  uint32_t nested_every = 40;  // images
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  // Applied to the events of the engine and to those of recovery: a planted bug.
  std::function<void(std::vector<Event>*)> mutate;
  // Told of each crash before it is tried.
  std::function<void(const Crashes&)> trying;
};

class Explorer {
 public:
  Explorer(const Trace& trace, const Plan& plan);

  // The first image that is not recovered as it should be.
  std::optional<Failure> Run();
  // One image, again. Empty: it is recovered as it should be.
  std::string Again(const Crashes& crashes);
  const Counts& counts() const { return counts_; }

 private:
  // A trace and the moment that was reached in it.
  struct Level {
    Level(const Trace& t, Machine* m);
    void Advance(size_t events, Model* model);

    const Trace& trace;
    Machine& machine;
    Memory memory;
    Disk disk;
    size_t at = 0;
  };

  std::optional<std::string> TryAll(const Expected& expected);
  std::string TryImage(const Choice& choice, const Expected& expected);
  std::string ExploreRecovery(const Expected& expected, const Choice& outer);
  Expected AfterFirst(const Expected& expected) const;
  static std::vector<size_t> Moments(const std::vector<Event>& events);

  static void Put(Level* level, const Choice& choice);
  static void Restore(Level* level, const Choice& choice);
  std::string Check(Level* level, const Choice& choice, const Expected& expected);
  std::string CheckCreation(Level* level, const Expected& expected);
  std::string Recover(Machine* machine, bool* clean, bool may_keep);
  std::string CompareFiles(Machine* machine, const Choice& choice, const Expected& expected) const;

  Trace trace_;  // as mutated
  const Plan plan_;
  Model model_;
  Machine machine_;
  Machine nested_machine_;
  Level level_;
  std::mt19937_64 random_;
  Counts counts_;
  Crashes crashes_;
  // Of the recovery that was just checked.
  Trace recovery_;
  size_t recovery_events_ = 0;
  bool clean_before_ = false;
  bool kept_ = false;
};

// For people to read and for FromText.
std::string ToText(const Crashes& crashes);
Crashes FromText(const std::string& text);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_EXPLORER_H_
