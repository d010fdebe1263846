// SPDX-License-Identifier: BSD-3-Clause
//
// Goes through a trace. At each moment at which more may be left of it than before, the images that
// a crash can leave are built, recovered by replay::Replay, and compared with the model.
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

#include "src/nvlog/record.h"
#include "src/pool/pool.h"
#include "tests/crash/machine.h"
#include "tests/crash/medium.h"
#include "tests/crash/model.h"
#include "tests/crash/name_machine.h"
#include "tests/crash/trace.h"

namespace nvcache::crash {

// The end of a process: after so many events.
struct Crash {
  size_t events;
  bool killed;  // it was killed, and everything that it did is still there, but not more durable
  Choice choice;
};
// The second is that of the recovery after the first, and so on.
using Crashes = std::vector<Crash>;

struct Failure {
  std::string what;
  Crashes crashes;
};

struct Counts {
  uint64_t moments = 0;
  uint64_t exhaustive = 0;  // moments of which all images were tried
  uint64_t images = 0;
  uint64_t nested = 0;  // of these, after a crash of recovery
};

struct Plan {
  uint64_t seed = 1;
  Limits limits;
  Limits nested_limits = {8, 4, 4, false};
  uint32_t nested_every = 40;  // images: recovery crashes, too
  // The process is killed at each moment; so often, recovery crashes after that. 0: it is not.
  uint32_t killed_every = 0;
  // Of two whole records of each checkpoint one is damaged, or the first header of a segment:
  // which, is a matter of the moment.
  bool damage = false;
  bool handles = false;            // recovery may open files by these in all images
  bool watched = false;            // others look at the files after a kill (Effort::watched)
  size_t first_moment = 0;         // it begins there (Explorer::moment)
  uint64_t images = ~uint64_t{0};  // at most, about
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  // Applied to what the engine did and to what recovery did: a planted bug.
  std::function<void(Trace*, bool of_recovery)> mutate;
  // Changes headers of records before recovery sees them, so that it takes for whole what it should
  // not: a check that is missing in recovery. Returns the places of those that it has changed.
  std::function<std::vector<nvlog::Place>(const pool::View&)> blind;
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
  // That of the engine which is tried: how many events were before it, but for those of memory that
  // is never written back.
  size_t moment() const { return moment_; }

 private:
  // A trace and the moment that was reached in it: of the engine, of the recovery after it, or of
  // the recovery after that.
  struct Level {
    Level(const Trace& t, Machine* m, int d, bool k, uint32_t b);
    Level(const Level& killed, const Trace& t, Machine* m, bool k);
    void Advance(size_t events, Model* model);
    bool AtEnd() const { return at == trace.events.size(); }

    const Trace& trace;
    Machine& machine;
    Memory memory;
    Disk disk;
    NameMedium names;
    std::string shared;  // what the processes share, as they have left it
    size_t at = 0;
    size_t moment = 0;  // the same without kVolatile: these come when another thread lets them
    int depth;
    bool kept;      // this recovery leaves groups where they are
    uint32_t boot;  // which run of the kernel this is
  };

  bool Over() const;
  void BeginMoment(size_t moment);
  void CountImage(const Level& level);
  std::string Explore(Level* level, const Expected& fixed);
  std::string TryImage(Level* level, const Choice& choice, const Expected& expected);
  std::string TryKill(Level* level, const Expected& expected, bool nest);
  std::string CheckKilled(Level* level, const Choice& choice, const Expected& expected, bool away);
  Expected ExpectedOfKilled(const Level& level, const Expected& expected) const;
  // The recovery that was just checked, as a trace of its own.
  Trace Recovery(const Level& level, std::string image);
  Trace RecoveryOfKilled(const Level& level);
  Expected ExpectedAt(const Level& level, const Expected& fixed) const;
  Expected AfterFirst(const Level& level, const Expected& expected) const;
  std::vector<size_t> Moments(const std::vector<Event>& events) const;
  static Choice Everything(const Level& level);

  void Put(Level* level, const Choice& choice, bool away, bool killed);
  void DamageCheckpoints(Level* level);
  void DamageSegment(Level* level);
  void Restore(Level* level, const Choice& choice);
  std::string Check(Level* level, const Choice& choice, const Expected& expected, bool away);
  std::string CheckCreation(Level* level, const Expected& expected);
  std::string Recover(const Level& level, uint32_t running, bool* clean, bool may_keep);
  std::string UseAgain(pool::Pool* pool);
  std::string CompareFiles(const Level& level, const Choice& choice,
                           const Expected& expected) const;
  std::string CompareSeen(std::vector<Machine::File> seen) const;
  bool has_names() const { return trace_.root != kNobody; }
  static NameMachine& NamesOf(const Level& level) {
    return static_cast<NameMachine&>(level.machine);
  }
  std::string Step(Level* level, const Crashes& crashes, size_t next, const Expected& fixed);

  Trace trace_;  // as mutated
  const Plan plan_;
  Model model_;
  std::vector<std::unique_ptr<Machine>> machines_;  // one for each depth
  std::mt19937_64 random_;                          // of the moment
  size_t moment_ = 0;
  uint64_t in_moment_ = 0;  // a number for each image of it
  Counts counts_;
  Crashes crashes_;
  std::vector<uint32_t> blinded_;  // lines
  std::string garbage_;            // where the processes had what they share
  // Of the recovery that was just checked.
  Trace recovery_;
  size_t recovery_events_ = 0;
  bool privileged_ = true;  // recovery, and each one after it
  bool clean_before_ = false;
  bool kept_ = false;
};

// For people to read and for FromText.
std::string ToText(const Crashes& crashes);
Crashes FromText(const std::string& text);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_EXPLORER_H_
