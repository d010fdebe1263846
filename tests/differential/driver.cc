// SPDX-License-Identifier: BSD-3-Clause
//
// Executes random sequences of file calls twice and compares. differential --help, and README.md.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/differential/generator.h"
#include "tests/differential/side.h"
#include "tests/kit/files.h"
#include "tests/kit/random.h"

namespace nvcache::differential {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string runner;
  FrontEnd front_end;
  std::string nvcache;
  std::string scratch;
  std::vector<std::string> cases;
  uint64_t seed = 0;
  int rounds = 1'000'000'000;
  int length = 1000;
  int seconds = 0;
  bool crash = false;
  bool must_find = false;
  std::string plant;
  bool keep = false;
  bool trace = false;
};

struct Difference {
  size_t index;  // of the operation; the number of operations: the trees
  std::string kind;
  std::string text;
};

// How many blocks a file has depends on when the file system chose them: extents may need blocks of
// their own. About the same is the same, but something is not nothing.
bool AboutTheSame(const std::string& a, const std::string& b) {
  const long x = std::atol(a.c_str());
  const long y = std::atol(b.c_str());
  constexpr long kSlack = 64;
  return (x == 0) == (y == 0) && std::abs(x - y) <= kSlack + std::max(x, y) / 8;
}

// Words with a colon may be excused.
bool SameWord(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto both = [&](const char* start) { return a.starts_with(start) && b.starts_with(start); };
  if (both("blocks:")) return AboutTheSame(a.substr(7), b.substr(7));
  return false;
}

bool SameLine(const std::string& a, const std::string& b) {
  std::istringstream some(a);
  std::istringstream others(b);
  std::string word;
  std::string other;
  while (some >> word) {
    if (!(others >> other) || !SameWord(word, other)) return false;
  }
  return !(others >> other);
}

std::string NameOf(const std::string& operation) {
  std::istringstream words(operation);
  std::string who;
  std::string name;
  words >> who >> name;
  return name;
}

class Driver {
 public:
  explicit Driver(const Options& options)
      : options_(options),
        plain_(options.runner, {}, Folder("plain"), Memory("plain")),
        other_(options.runner, options.front_end, Folder("other"), Memory("other")) {}

  bool Run() {
    const auto start = Clock::now();
    uint64_t operations = 0;
    for (int round = 0; round < options_.rounds; ++round) {
      const std::chrono::duration<double> passed = Clock::now() - start;
      if (options_.seconds > 0 && passed.count() > options_.seconds) break;
      const uint64_t seed = options_.seed + static_cast<uint64_t>(round);
      const bool good = options_.crash ? CrashRound(seed) : Round(seed);
      operations += static_cast<uint64_t>(options_.length);
      if (!good) return false;
      Count();
    }
    if (!options_.must_find && !CacheWasUsed()) return false;
    const std::chrono::duration<double> passed = Clock::now() - start;
    fmt::print("{} operations in {:.0f} s, no difference\n", operations, passed.count());
    return true;
  }

  // What is hot is write-through in one run, and cached in another.
  bool Replay(const std::string& path) {
    Sequence sequence = ReadCase(path);
    bool good = ReplayOnce(path, sequence);
    if (std::ranges::find(sequence.settings, kThroughHot) != sequence.settings.end()) {
      sequence.settings.emplace_back(kCacheHot);
      good = ReplayOnce(path, sequence) && good;
    }
    return good;
  }

  // Some sequences write nothing that could be cached.
  bool CacheWasUsed() const {
    if (!options_.front_end.cached || cached_ >= rounds_ * 3 / 4) return true;
    fmt::print("the cache was used in {} of {} sequences only\n", cached_, rounds_);
    return false;
  }

 private:
  bool ReplayOnce(const std::string& path, const Sequence& sequence) {
    const auto difference = Compare(sequence);
    if (difference) {
      fmt::print("{}, {}: {}\n", path, sequence.settings.back(), difference->text);
    }
    Count();
    return !difference;
  }

  // The sequence that was executed: a line that NVCache says of the pool tells that it was used.
  void Count() {
    if (other_.said().find(" is emulated: ") != std::string::npos) ++cached_;
    ++rounds_;
  }

  std::string Folder(const char* side) const {
    return fmt::format("{}/differential-{}/{}", options_.scratch, ::getpid(), side);
  }
  static std::string Memory(const char* side) {
    return fmt::format("/dev/shm/nvcache-test-differential-{}-{}", ::getpid(), side);
  }

  static Sequence ReadCase(const std::string& path) {
    Sequence sequence;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("NVCACHE_")) sequence.settings.push_back(line);
      if (!line.empty() && line[0] >= '0' && line[0] <= '9') sequence.operations.push_back(line);
    }
    if (sequence.settings.empty()) {
      sequence.settings = {"NVCACHE_SIZE=1280k", "NVCACHE_DRAM=64k", kCacheAll};
    }
    if (sequence.operations.empty()) throw std::runtime_error(path + ": no operations");
    return sequence;
  }

  // ---- Comparing
  std::optional<Difference> Compare(const Sequence& sequence) {
    Outcome expected;
    Outcome found;
    std::thread plain([&] { expected = plain_.Run(sequence); });
    found = other_.Run(sequence);
    plain.join();
    const std::vector<std::string> all = WithEnds(sequence.operations);
    for (size_t i = 0; options_.trace && i < all.size(); ++i) {
      fmt::print("{}\n  plain: {}\n  other: {}\n", all[i], expected.lines[i], found.lines[i]);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (SameLine(expected.lines[i], found.lines[i])) continue;
      std::string text = fmt::format("operation {}: {}\n  plain: {}\n  other: {}\n", i, all[i],
                                     expected.lines[i], found.lines[i]);
      if (!expected.trouble.empty()) text += "  plain: " + expected.trouble + "\n";
      if (!found.trouble.empty()) text += "  other: " + found.trouble + "\n";
      return Difference{i, NameOf(all[i]), text + Said()};
    }
    if (expected.trouble != found.trouble || !expected.trouble.empty()) {
      return Difference{
          all.size(), "end",
          fmt::format("plain: {}\nother: {}\n{}", expected.trouble, found.trouble, Said())};
    }
    const std::string trees = CompareTrees(expected.tree, found.tree);
    if (trees.empty()) return std::nullopt;
    return Difference{all.size(), "files", "files, plain and other:\n" + trees};
  }

  std::string Said() const {
    const std::string said = other_.said();
    return said.empty() ? "" : "--- what its programs said\n" + said + "---\n";
  }

  bool Round(uint64_t seed) {
    const Sequence sequence = Generate(seed, options_.length, Ending::kOwn);
    const auto difference = Compare(sequence);
    if (!difference) return true;
    fmt::print("seed {} (--seed {} --rounds 1 --length {}): {}", seed, seed, options_.length,
               difference->text);
    Shrink(sequence, *difference, seed);
    return false;
  }

  // ---- Shrinking
  // Whether the same call (or the files) still differs. What depends on time may need some tries.
  std::optional<Difference> StillDiffers(const Sequence& sequence, const std::string& kind) {
    for (int i = 0; i < tries_; ++i) {
      auto difference = Compare(sequence);
      if (difference && difference->kind == kind) return difference;
    }
    return std::nullopt;
  }

  void Shrink(Sequence sequence, const Difference& difference, uint64_t seed) {
    std::fflush(stdout);
    tries_ = 1;
    while (!StillDiffers(sequence, difference.kind)) {
      tries_ *= 2;
      if (tries_ > 8) {
        fmt::print("it did not come again in {} tries\n", 15);
        return Print(sequence, seed);
      }
    }
    if (tries_ > 1) tries_ *= 2;
    if (difference.index < sequence.operations.size()) {
      Sequence shorter = sequence;
      shorter.operations.resize(difference.index + 1);
      if (StillDiffers(shorter, difference.kind)) sequence = shorter;
    }
    for (size_t chunk = sequence.operations.size() / 2; chunk > 0; chunk /= 2) {
      while (RemoveChunks(&sequence, chunk, difference.kind) && chunk == 1) {
      }
    }
    SimplifyNumbers(&sequence, difference.kind);
    if (const auto last = StillDiffers(sequence, difference.kind)) {
      fmt::print("shrunk: {}", last->text);
    }
    Print(sequence, seed);
    shrunk_ = sequence.operations.size();
  }

  bool RemoveChunks(Sequence* sequence, size_t chunk, const std::string& kind) {
    bool removed = false;
    for (size_t end = sequence->operations.size(); end > 0;) {
      const size_t begin = end > chunk ? end - chunk : 0;
      Sequence shorter = *sequence;
      shorter.operations.erase(shorter.operations.begin() + static_cast<long>(begin),
                               shorter.operations.begin() + static_cast<long>(end));
      if (StillDiffers(shorter, kind)) {
        *sequence = shorter;
        removed = true;
      }
      end = begin;
    }
    return removed;
  }

  // Lengths and offsets, to the smallest of a few that still does it; and threads.
  void SimplifyNumbers(Sequence* sequence, const std::string& kind) {
    for (size_t i = 0; i < sequence->operations.size(); ++i) {
      for (const char* key : {" len=", " off=", " vec="}) {
        for (const char* value : {"0", "1", "100", "4096", "10000"}) {
          std::string& line = sequence->operations[i];
          const size_t at = line.find(key);
          if (at == std::string::npos) break;
          const size_t from = at + 5;
          const size_t to = std::min(line.find(' ', from), line.size());
          const std::string now = line.substr(from, to - from);
          if (now.size() < std::string(value).size() || now == value) break;
          const std::string old = line;
          line.replace(from, to - from, value);
          if (StillDiffers(*sequence, kind)) break;
          sequence->operations[i] = old;
        }
      }
      std::string& line = sequence->operations[i];
      if (line[2] == '0') continue;
      const std::string old = line;
      line[2] = '0';
      if (!StillDiffers(*sequence, kind)) sequence->operations[i] = old;
    }
  }

  static void Print(const Sequence& sequence, uint64_t seed) {
    fmt::print("--- run it again with --case FILE\n# seed {}\n", seed);
    for (const std::string& setting : sequence.settings) fmt::print("{}\n", setting);
    for (const std::string& line : sequence.operations) fmt::print("{}\n", line);
    fmt::print("---\n");
  }

  // ---- Killing
  bool CrashRound(uint64_t seed) {
    kit::Random random(seed ^ 0xc4a5);
    Kill kill;
    const auto at = static_cast<long>(random.Below(static_cast<uint64_t>(options_.length)));
    if (random.Below(3) == 0) {
      kill.before = at;
    } else {
      kill.during = at;
      kill.delay_us = static_cast<long>(random.Below(300));
    }
    const Ending ending = kill.before >= 0 ? Ending::kKilledBetween : Ending::kKilledInside;
    const Sequence sequence = Generate(seed, options_.length, ending);
    std::string trouble;
    const uint32_t done = other_.RunUntilKilled(sequence, kill, &trouble);
    const std::string command = fmt::format("{} recover {} > {}/recovered 2>&1", options_.nvcache,
                                            other_.pool(), other_.folder());
    for (uint32_t i = 0; options_.trace && i <= done; ++i) {
      fmt::print("{}\n", WithEnds(sequence.operations)[i]);
    }
    const bool has_pool = std::filesystem::exists(other_.pool());
    const int status = has_pool ? std::system(command.c_str()) : 0;
    const Tree found = ReadTree(other_.root());
    std::string differences;
    if (trouble.empty() && status == 0) {
      for (uint32_t k = done; k <= done + 1; ++k) {
        Kill plain_kill;
        plain_kill.before = k;
        std::string ignored;
        plain_.RunUntilKilled(sequence, plain_kill, &ignored);
        std::string now = CompareTrees(ReadTree(plain_.root()), found);
        for (uint32_t i = 0; i < done; ++i) {
          if (SameLine(plain_.Answer(i), other_.Answer(i))) continue;
          now += fmt::format("  operation {}: {} without, {} with NVCache\n", i, plain_.Answer(i),
                             other_.Answer(i));
          break;
        }
        if (now.empty()) return true;
        differences += fmt::format("after {} operations, plain and recovered:\n{}", k, now);
        if (kill.before >= 0) break;
      }
    }
    const std::vector<std::string> all = WithEnds(sequence.operations);
    fmt::print(
        "seed {} (--crash --seed {} --rounds 1 --length {}): killed at {}, next {}: {}\n{}\n"
        "recovery's status {:#x}: {}\n{}{}",
        seed, seed, options_.length, at, done, all[std::min<size_t>(done, all.size() - 1)], trouble,
        status, kit::Slurp(other_.folder() + "/recovered"), differences, Said());
    return false;
  }

 public:
  std::optional<size_t> shrunk() const { return shrunk_; }
  void Keep() {
    plain_.KeepFiles();
    other_.KeepFiles();
    fmt::print("kept: {} and {}\n", plain_.folder(), other_.folder());
  }

 private:
  const Options& options_;
  Side plain_;
  Side other_;
  int rounds_ = 0;
  int cached_ = 0;  // rounds in which the cache was used
  int tries_ = 1;
  std::optional<size_t> shrunk_;
};

int Main(const Options& options) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Driver driver(options);
  if (!options.cases.empty()) {
    bool good = true;
    for (const std::string& file : options.cases) good = driver.Replay(file) && good;
    return driver.CacheWasUsed() && good ? 0 : 1;
  }
  fmt::print("seed {}\n", options.seed);
  std::fflush(stdout);
  const bool good = driver.Run();
  if (!good && options.keep) driver.Keep();
  if (!options.must_find) return good ? 0 : 1;
  // A broken library: it has to be found, and by a sequence that a person can read.
  const bool found = !good && driver.shrunk() && *driver.shrunk() <= 12;
  if (!found) fmt::print("the planted error was not found, or not shrunk\n");
  return found ? 0 : 1;
}

}  // namespace
}  // namespace nvcache::differential

int main(int argc, char** argv) {
  nvcache::differential::Options options;
  options.seed = std::random_device()();
  CLI::App app("Compares the file calls of a program with and without NVCache");
  app.add_option("--runner", options.runner, "the program that makes the calls")->required();
  CLI::Option* library =
      app.add_option("--library", options.front_end.preload, "is preloaded on one side");
  app.add_flag("--built-in", options.front_end.cached,
               "the runner's libc has the cache: it gets a pool on one side")
      ->excludes(library);
  app.add_option("--nvcache", options.nvcache, "the command, for --crash");
  app.add_option("--scratch", options.scratch, "folder for the files")->required();
  app.add_option("--seed", options.seed, "of the first sequence");
  app.add_option("--rounds", options.rounds, "sequences");
  app.add_option("--length", options.length, "operations of a sequence");
  app.add_option("--seconds", options.seconds, "stop after that time");
  app.add_option("--case", options.cases, "execute these sequences, and no others");
  app.add_flag("--crash", options.crash, "kill the program, recover, compare the files");
  app.add_flag("--must-find", options.must_find, "a difference is expected");
  app.add_option("--plant", options.plant, "the error of the library with errors");
  app.add_flag("--trace", options.trace, "print what each operation answered");
  app.add_flag("--keep", options.keep, "leave the files of a failure");
  app.footer("Neither --library nor --built-in: plain twice.");
  CLI11_PARSE(app, argc, argv);
  options.scratch = std::filesystem::absolute(options.scratch);  // for NVCACHE_INCLUDE
  if (!options.front_end.preload.empty()) options.front_end.cached = true;
  if (!options.plant.empty()) ::setenv("DIFFERENTIAL_PLANT", options.plant.c_str(), 1);
  return nvcache::differential::Main(options);
}
