// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/run.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace nvcache::crash {

namespace {

constexpr char kHeading[] = "NVCache crash case 1\n";

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + " cannot be read; name a saved case");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Exit status of a child that runs `body`; -signal.
template <typename Function>
int InChild(Function body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("no process can be made; end some others");
  if (pid == 0) {
    int status = 1;
    try {
      status = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "crash_explorer: %s\n", e.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Its path is in the records, so where that has another length, a recording has other events, and
// the places of shown.cc are others.
constexpr size_t kPathLength = 59;

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& where) {
    std::filesystem::create_directories(where);
    path_ = std::filesystem::canonical(where).string() + "/nvcache-test-crash-";
    constexpr char kMade[] = "XXXXXX";
    const size_t length = path_.size() + std::strlen(kMade);
    path_.append(length < kPathLength ? kPathLength - length : 0, '-').append(kMade);
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error(where +
                               ": no folder can be made there; name another with --scratch");
    }
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a child that explores leaves, even if it is killed.
struct Shared {
  Counts counts;
  size_t moment;
  char what[4096];
  size_t length;
  char crashes[8 << 20];
};

class SharedMemory {
 public:
  SharedMemory() {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory");
    shared_ = static_cast<Shared*>(memory);
  }
  ~SharedMemory() { ::munmap(shared_, sizeof(Shared)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  Shared* operator->() { return shared_; }

 private:
  Shared* shared_;
};

void Keep(Shared* shared, const std::string& crashes) {
  shared->length = std::min(crashes.size(), sizeof(shared->crashes));
  std::memcpy(shared->crashes, crashes.data(), shared->length);
}

// Runs body(explorer) in a child, with every crash noted before it is tried.
template <typename Function>
Outcome Guarded(const Trace& trace, Plan plan, Function body) {
  SharedMemory shared;
  const int status = InChild([&] {
    Shared* s = shared.operator->();
    const Explorer* running = nullptr;
    plan.trying = [s, &running](const Crashes& crashes) {
      Keep(s, ToText(crashes));
      s->moment = running->moment();
    };
    Explorer explorer(trace, plan);
    running = &explorer;
    const std::string what = body(explorer);
    s->counts = explorer.counts();
    std::strncpy(s->what, what.c_str(), sizeof(s->what) - 1);
    return 0;
  });
  Outcome outcome = {shared->what, std::string(shared->crashes, shared->length), shared->counts,
                     shared->moment};
  if (status != 0) {
    outcome.what = status < 0 ? "recovery was killed by signal " + std::to_string(-status)
                              : "the explorer failed";
  }
  if (outcome.what.empty()) outcome.crashes.clear();
  return outcome;
}

}  // namespace

Trace Record(const Scenario& scenario, uint64_t seed, const std::string& disk) {
  const TemporaryFolder files(disk);
  const TemporaryFolder memory("/dev/shm");
  const TemporaryFolder result(disk);
  const std::string path = result.path() + "/trace";
  const int status = InChild([&] {
    const Trace trace = scenario.record({files.path(), memory.path()}, seed);
    std::ofstream(path, std::ios::binary) << trace.ToBytes();
    return 0;
  });
  if (status != 0) {
    throw std::runtime_error(scenario.name + ", seed " + std::to_string(seed) +
                             ": it could not be recorded, status " + std::to_string(status));
  }
  return Trace::FromBytes(ReadAll(path));
}

Outcome Explore(const Scenario& scenario, const Trace& trace, const Mutant* mutant,
                const Extent& extent) {
  Plan plan;
  plan.seed = trace.seed;
  plan.limits.exhaustive = scenario.effort.exhaustive;
  if (extent.care == Care::kGlance) plan.limits = plan.nested_limits;
  plan.limits.removals = scenario.effort.removals;
  plan.nested_limits.removals = scenario.effort.removals;
  plan.nested_every = scenario.effort.nested_every;
  plan.killed_every = scenario.effort.killed_every;
  plan.damage = scenario.effort.damage;
  plan.handles = scenario.effort.handles;
  plan.watched = scenario.effort.watched;
  plan.first_moment = extent.first_moment;
  plan.images = extent.images;
  plan.end = extent.end;
  if (mutant != nullptr) {
    plan.mutate = mutant->apply;
    plan.blind = mutant->blind;
  }
  return Guarded(trace, plan, [](Explorer& explorer) {
    const auto failure = explorer.Run();
    return failure ? failure->what : std::string();
  });
}

void Save(const std::string& path, const Trace& trace, const std::string& mutant,
          const Outcome& outcome) {
  std::ofstream out(path, std::ios::binary);
  out << kHeading << mutant << "\n"
      << outcome.what << "\n"
      << outcome.crashes.size() << "\n"
      << outcome.crashes << trace.ToBytes();
}

Outcome Replay(const std::string& path) {
  const std::string bytes = ReadAll(path);
  if (bytes.rfind(kHeading, 0) != 0) {
    throw std::runtime_error(path + " is no saved case; name a file that was saved by --save");
  }
  size_t at = sizeof(kHeading) - 1;
  const auto line = [&] {
    const size_t end = bytes.find('\n', at);
    std::string text = bytes.substr(at, end - at);
    at = end + 1;
    return text;
  };
  const std::string mutant = line();
  const std::string what = line();
  const size_t length = std::stoul(line());
  const std::string crashes = bytes.substr(at, length);
  const Trace trace = Trace::FromBytes(bytes.substr(at + length));
  Plan plan;
  for (const Scenario& scenario : AllScenarios()) {
    if (scenario.name != trace.scenario) continue;
    plan.damage = scenario.effort.damage;
    plan.handles = scenario.effort.handles;
    plan.watched = scenario.effort.watched;
  }
  for (const Mutant& m : AllMutants()) {
    if (m.name != mutant) continue;
    plan.mutate = m.apply;
    plan.blind = m.blind;
  }
  std::printf("scenario %s, seed %llu, %s%s\nsaved as: %s\n%s", trace.scenario.c_str(),
              static_cast<unsigned long long>(trace.seed),
              mutant.empty() ? "the engine as it is" : "mutant: ", mutant.c_str(), what.c_str(),
              crashes.c_str());
  Outcome outcome =
      Guarded(trace, plan, [&](Explorer& explorer) { return explorer.Again(FromText(crashes)); });
  outcome.crashes = crashes;
  return outcome;
}

}  // namespace nvcache::crash
