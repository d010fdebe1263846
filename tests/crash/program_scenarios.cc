// SPDX-License-Identifier: BSD-3-Clause
//
// Write-back and write-through under the whole engine.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>

#include "src/lease/leases.h"
#include "src/vfs/engine/engine.h"
#include "tests/crash/log_stage.h"
#include "tests/crash/program.h"

namespace nvcache::crash {

namespace {

constexpr size_t kPage = pool::kPageSize;

// Another process that uses a file, or does not.
class Neighbour {
 public:
  // Before anything is recorded. It does not use the file yet.
  Neighbour(const Place& place, const std::string& name) {
    int orders[2], answers[2];
    struct stat st = {};
    if (::pipe(orders) != 0 || ::pipe(answers) != 0 ||
        ::stat((place.disk + "/" + name).c_str(), &st) != 0) {
      throw std::runtime_error("there is no neighbour");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(orders[1]);
      ::_exit(Obey(place.memory, st, orders[0], answers[1]));
    }
    ::close(orders[0]);
    ::close(answers[1]);
    orders_ = orders[1];
    answers_ = answers[0];
  }
  ~Neighbour() {
    ::close(orders_);
    ::close(answers_);
    ::waitpid(pid_, nullptr, 0);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  void Come() const { Order('c'); }
  void Go() const { Order('g'); }

 private:
  static int Obey(const std::string& folder, const struct stat& st, int orders, int answers) {
    constexpr uint64_t kLong = 60ull * 1000 * 1000 * 1000;
    lease::Leases leases;
    const char* why = "";
    if (!leases.Open(folder.c_str(), &why)) return 1;
    for (char order; ::read(orders, &order, 1) == 1;) {
      if (order == 'g') {
        leases.RemoveUser(st.st_dev, st.st_ino, false);
      } else {
        leases.AddUser(st.st_dev, st.st_ino);
        if (leases.IsExclusiveElsewhere(st.st_dev, st.st_ino) &&
            !leases.AwaitRelease(st.st_dev, st.st_ino, kLong)) {
          return 1;
        }
      }
      if (::write(answers, &order, 1) != 1) return 1;
    }
    leases.Close();
    return 0;
  }
  void Order(char order) const {
    if (::write(orders_, &order, 1) != 1 || ::read(answers_, &order, 1) != 1) {
      throw std::runtime_error("the neighbour does not obey");
    }
  }

  pid_t pid_ = -1;
  int orders_ = -1, answers_ = -1;
};

struct Settings {
  const char* batch_delay = "1";
  const char* batch_min = "8";
  uint64_t pool = pool::kMinPoolSize;
  const char* write_back = "always";
};

class WriteProgram : public Program {
 public:
  WriteProgram(const std::string& name, const Place& place, uint64_t seed,
               const Settings& settings = {})
      : Program(name, place, seed, settings.pool,
                {std::string("NVCACHE_WRITE_BACK=") + settings.write_back,
                 std::string("NVCACHE_BATCH_DELAY=") + settings.batch_delay,
                 std::string("NVCACHE_BATCH_MIN=") + settings.batch_min}) {}

  // It is noted that the kernel has all that the log has.
  static bool IsAllNoted() {
    const pool::Pool& pool = vfs::engine.pool();
    return pool::Peek(*pool.view().written_back(pool.seat())) == vfs::engine.log.newest();
  }

  // What a script says of a neighbour.
  void Meet(const Neighbour& neighbour) {
    using A = const Action&;
    Add({
        {"neighbour", [](A) {}},  // before anything is recorded
        // It has claimed the file when this returns: if it was cached, it is handed over.
        {"give",
         [this, &neighbour](A a) {
           capture_.Do({Operation::kHandOver, FileOf(a.Word(0)), 0, 0, 0}, "",
                       [&] { neighbour.Come(); });
         }},
        {"neighbour-goes", [&neighbour](A) { neighbour.Go(); }},
    });
  }
};

// Appends, overwrites, an fsync, and a clean end.
Trace Small(const Place& place, uint64_t seed) {
  WriteProgram program("small", place, seed);
  program.Create("a");
  uint64_t end = 0;
  for (int i = 0; i < 12; ++i) {
    const size_t n = 1 + program.random()() % 300;
    program.Write("a", end, n);
    end += n;
    if (i % 3 == 2) program.Write("a", program.random()() % end, 40);
    if (i == 5) program.Sync("a");
    if (i == 8) program.Drain();
  }
  program.Close("a");
  program.Detach();
  program.Reattach();
  program.Open("a");
  program.Write("a", 17, 100);
  program.Write("a", end, 5000);
  return program.Finish();
}

// Write calls of several pages, with and without frames, that overlap.
Trace Groups(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 5 * kPage);
  WriteProgram program("groups", place, seed);
  program.Open("a");
  auto& random = program.random();
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 1) program.Read("a", random() % (8 * kPage), kPage);
    program.Write("a", random() % (8 * kPage), 1 + random() % (6 * kPage));
    if (i % 10 == 9) program.Drain();
  }
  return program.Finish();
}

// All segments are taken several times, by groups of all sizes.
Trace Rounds(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 100);
  WriteProgram program("rounds", place, seed, {.batch_min = "1"});
  program.Do(Parse("open a, new b"));
  auto& random = program.random();
  for (int i = 0; i < 130; ++i) {
    const size_t n = i % 3 == 0 ? 1 + random() % 500 : 1 + random() % (40 * kPage / 2);
    program.Write(i % 5 == 0 ? "b" : "a", random() % (16 * kPage), n);
  }
  return program.Finish();
}

Trace Threads(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  WriteProgram program("threads", place, seed, {.pool = kLanesPool});
  program.Do(Parse("open a, new b"));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed * 3 + t);
      for (int i = 0; i < 60; ++i) {
        program.Write(random() % 2 == 0 ? "a" : "b", random() % (4 * kPage),
                      1 + random() % (2 * kPage), &random);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return program.Finish();
}

// Holes, more of them than the engine can have pending: some are the kernel's alone.
Trace Holes(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 4 * kPage);
  WriteProgram program("holes", place, seed, {.batch_delay = "1000", .batch_min = "1000"});
  program.Open("a");
  auto& random = program.random();
  for (uint64_t i = 0; i < 14; ++i) {
    program.Write("a", random() % (3 * kPage), 1 + random() % kPage);
    program.Punch("a", i * 700, 300);
    if (i % 5 == 4) program.Truncate("a", 3 * kPage + random() % kPage);
    if (i % 7 == 6) program.Sync("a");
  }
  program.Do(Parse("drain, punch a 100 2p, write a p 50, cut a 200, write a 150 300"));
  return program.Finish();
}

// Two files by turns, in batches and before them. In the end a file's last close brings it to a
// kernel that refuses it: so it is noted that the kernel has what it has not, and only the batch
// would say that the file fails.
Trace Watched(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  WriteProgram program("watched", place, seed, {.batch_delay = "60000", .batch_min = "1000"});
  program.Do(Parse("open a, open b"));
  const auto by_turns = [&program](int count) {
    for (int i = 0; i < count; ++i) {
      program.Write(i % 2 == 0 ? "a" : "b", program.random()() % 300, 1 + program.random()() % 300);
    }
  };
  for (int batch = 0; batch < 3; ++batch) {
    by_turns(8);
    program.Drain();
  }
  by_turns(6);
  program.Do(Parse("close b, open b, write a 50 200, refuse-writes a, close a"));
  if (!WriteProgram::IsAllNoted()) throw std::runtime_error("the last close brings nothing");
  program.Do(Parse("write b 100 100, write b 50 100, open a, take-writes a"));
  by_turns(3);
  program.Drain();
  return program.Finish();
}

// More files than are open at a time: their numbers are used again.
Trace Many(const Place& place, uint64_t seed) {
  WriteProgram program("many", place, seed);
  for (int i = 0; i < 40; ++i) {
    const std::string name = "f" + std::to_string(i % 22);
    program.Create(name);
    program.Write(name, static_cast<uint64_t>(i), 200);
    if (i % 2 == 0) program.Write(name, 150, 100);
    program.Close(name);
  }
  return program.Finish();
}

struct ProgramScenario {
  const char* name;
  const char* what;
  Effort effort;
  const char* script;
  bool is_cleaned = true;  // while the script goes on, and not only where it says `drain`
};

// The file of which a script says that a neighbour uses it is one that it may cache.
Trace Record(const ProgramScenario& each, const Place& place, uint64_t seed) {
  const Script script = Parse(each.script);
  MakeFiles(place, script);
  const auto met = std::find_if(script.begin(), script.end(),
                                [](const Action& action) { return action.verb == "neighbour"; });
  std::unique_ptr<Neighbour> neighbour;
  if (met != script.end()) neighbour = std::make_unique<Neighbour>(place, met->Word(0));
  if (met != script.end() && met->Has("here")) neighbour->Come();
  Settings settings;
  if (neighbour != nullptr) settings.write_back = "auto";
  if (!each.is_cleaned) {
    settings.batch_delay = "60000";
    settings.batch_min = "1000";
  }
  WriteProgram program(each.name, place, seed, settings);
  if (neighbour != nullptr) program.Meet(*neighbour);
  program.Do(script);
  return program.Finish();
}

constexpr Effort kWithDamage = WithRemovals(WithDamage(Every(200, 20)));
constexpr Effort kOfNeighbour = Every(200, 30);

const ProgramScenario kProgramScenarios[] = {
    // New files, fsync before and after writes, files that are cut.
    {"names", "new files and files that are cut", kWithDamage, R"(
       file old 2p, new a, new b
       write a 0 100, write b 0 100, write old 100 100, sync a, write a 50 200, cut old 150
       write old 300 50, drain, write b 80 100, cut a 20, cut b 5000, write b 4900 300
       write a 10 70, sync old, cut old 10, sync old, new c, write c 10 5000, write old 0 5)"},
    // Files that lose all of their bytes while some are pending, as SQLite cuts its journal; an
    // fsync after that waits for nothing.
    {"cut", "files that lose all of their bytes while some are pending", kWithDamage, R"(
       file a 2p, file b 300
       sync a, write a 100 100, write b 10 100, cut a 0, sync a, write b 50 100, write a 20 50
       write a p 30, drain, write b 200 20, cut a 0, sync a, write b 100 150, drain
       write a 0 10, cut a 0, write a 5 70, cut a 40, write a 60 10, new c, write c 0 500, cut c 0
       sync c, write c 10 20, cut b 0, cut b 1000, sync b, close b, open-cut b, write b 30 10
       close a, close c, close b, detach)"},
    // A disk that refuses what is written to one file, or loses it, and heals. What was kept at
    // first is useless after the second half.
    {"refused", "a disk refuses and heals, under the cleanup thread", WithRemovals(Every(40, 5)),
     R"(
       file a 2p, file b p, new c
       write a 100 200, write b 10 100, write c 20 100, refuse-writes a, refuse-syncs c
       write a 50 100, write c 0 300, drain, write a 10 p, write b 50 100, write c 200 300, drain

       write a 0 2p, write c 0 600, drain, write c 20 60, take-writes a, await-disk a
       write a 20 100, write b 20 100, drain, write a 60 100, cut a 100, refuse-syncs a
       take-syncs c, await-disk c, write c 10 100, write a 300 30, drain, write a 310 30
       take-syncs a, await-disk a, write a 90 30, drain, write a 80 30)"},
    // The engine and a neighbour who uses one of its files: that is write-through, and written to
    // past the log; then the neighbour goes, comes again, and the file is the one and the other.
    {"shared", "a file that a neighbour uses, under the whole engine", kOfNeighbour, R"(
       neighbour a here, file a p, file b p
       write a 5 100, get-cached b, write b 10 100, get-known a, write a 10 100
       write a p-30 60, sync a, write a 60 100, punch a 40 60, write a 70 60, get-known a
       write a 20 60, drain, get-known a, write a 30 60, neighbour-goes, get-cached a
       write a 25 60, write b 50 60, write a 35 60, give a, write a 45 60, get-known a
       write a 55 60, write a 15 30, close a, close b, detach)"},
    // The engine has a file in its cache, and a neighbour claims it, time and again: before and
    // after the checkpoint has passed what was handed over, and with something pending of another
    // file.
    {"claimed", "a file that a neighbour claims, under the whole engine", kOfNeighbour, R"(
       neighbour a, file a p, file b p, get-cached b

       get-cached a, write a 10 100, write b 10 50, write a 60 100, give a, write a 40 60
       write b 40 50, write a 70 50, sync a, write a 90 30, neighbour-goes

       get-cached a, write a 10 100, write b 10 50, write a 60 100, give a, write a 40 60
       write b 40 50, drain, write a 70 50, sync a, write a 90 30, neighbour-goes

       get-cached a, write a 10 100, write b 10 50, write a 60 100, give a, write a 40 60
       write b 40 50, punch a 50 60, write a 70 50, sync a, write a 90 30, neighbour-goes

       get-cached a, write a 10 100, write b 10 50, write a 60 100, cut a 130, give a
       write a 40 60, write b 40 50, write a 70 50, sync a, write a 90 30, neighbour-goes

       get-cached a, write a 80 30, give a, close a, close b, detach)"},
    // The disk loses what was handed over, and says so once: it is kept for recovery, and the
    // checkpoint passes it.
    {"claimed-refused", "the disk loses what was handed over", kOfNeighbour, R"(
       neighbour a, file a p, file b p, get-cached b, get-cached a
       write a 10 100, write b 10 50, cut a 300, write a 60 100, give a, write a 40 60
       refuse-syncs a, write b 40 50, drain, take-syncs a
       write b 40 50, drain, write b 40 50, drain, write b 20 30)"},
    // The same, but it loses something of another file. The one that was handed over is settled,
    // and
    // written to past the log. The cleanup thread waits for each `drain`, so that
    // one recording is like the other.
    {"claimed-beside", "the disk loses something beside what was handed over", kOfNeighbour, R"(
       neighbour a, file a p, file b p, get-cached b, get-cached a
       write a 10 100, write a 60 100, write b 10 50, give a, refuse-syncs b
       write b 20 50, drain, take-syncs b, await-disk b
       write a 40 60, sync a, write a 70 60, write b 30 50, drain, write b 20 30)",
     false},
    // Write calls that are too long for one group, and a file that is cut when it is opened.
    {"split", "write calls of several groups, a file that is cut", Every(60, 0), R"(
       file a 100, write a 50 100, write a 120 170p, write a 60p 2p
       file b 3p, write b p 500, drain, close b, open-cut b, write b 2000 200, write a 10 90p)"},
};

}  // namespace

std::vector<Scenario> ProgramScenarios() {
  std::vector<Scenario> all;
  for (const ProgramScenario& each : kProgramScenarios) {
    all.push_back({each.name, each.what, each.effort, [each](const Place& place, uint64_t seed) {
                     return Record(each, place, seed);
                   }});
  }
  const Scenario others[] = {
      {"small", "small writes, fsync, a clean end, and on", kWithDamage, Small},
      {"holes", "more holes than can be pending", Every(40, 5), Holes},
      {"groups", "overlapping writes of several pages", Every(60, 0), Groups},
      {"watched", "others look at the files meanwhile", WithWatchers(Every(200, 10)), Watched},
      {"many", "more files than numbers that are used", WithRemovals(Every(60, 0)), Many},
      {"threads", "three threads on two files", Every(60, 0), Threads},
      {"rounds", "many segments with the cleanup thread at work", Every(60, 0), Rounds},
  };
  all.insert(all.end(), std::begin(others), std::end(others));
  return all;
}

}  // namespace nvcache::crash
