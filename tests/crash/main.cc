// SPDX-License-Identifier: BSD-3-Clause
//
// crash_explorer: see README.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/crash/recorder.h"
#include "tests/crash/run.h"

namespace nvcache::crash {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// Images of one scenario.
constexpr uint64_t kUnbounded = ~uint64_t{0};
constexpr uint64_t kMany = 30000;  // where a mutant is expected to be found
constexpr uint64_t kSome = 4000;
constexpr uint64_t kFew = 500;  // of names in the log, which take their time
// Of a scenario, until a mutant is found: threads do not do the same in all.
constexpr uint64_t kRecordings = 3;

struct Arguments {
  uint64_t seed = 0;
  double seconds = 60;
  bool json = false;
  bool mutants = false;
  uint64_t parts = 1;
  uint64_t part = 0;
  bool list = false;
  bool names = false;
  std::vector<std::string> scenarios;
  std::string mutant;
  std::string replay;
  std::string scratch = ".";
  std::string save = ".";
};

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}
double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
unsigned long long Wide(uint64_t n) { return n; }

Json ToJson(const Counts& counts) {
  return {{"moments", counts.moments},
          {"exhaustive", counts.exhaustive},
          {"images", counts.images},
          {"nested", counts.nested}};
}

void AddTo(Counts* sum, const Counts& counts) {
  sum->moments += counts.moments;
  sum->exhaustive += counts.exhaustive;
  sum->images += counts.images;
  sum->nested += counts.nested;
}

bool IsOfNames(const std::string& scenario) {
  static const std::vector<Scenario> all = NameScenarios();
  return std::any_of(all.begin(), all.end(),
                     [&](const Scenario& other) { return other.name == scenario; });
}

class Session {
 public:
  explicit Session(const Arguments& arguments) : arguments_(arguments) {
    const std::set<std::string> wanted(arguments.scenarios.begin(), arguments.scenarios.end());
    for (const Scenario& scenario : AllScenarios()) {
      const bool is_wanted =
          wanted.empty() ? IsOfNames(scenario.name) == OfNames() : wanted.count(scenario.name) > 0;
      if (is_wanted) scenarios_.push_back(scenario);
    }
    if (!wanted.empty() && scenarios_.size() != wanted.size()) {
      throw std::runtime_error("an unknown scenario; --list has their names");
    }
  }

  int Unmutated();
  int Mutants();

 private:
  using Traces = std::map<std::string, Trace>;
  struct Found {
    std::string by;  // the scenario; empty: the mutant survived
    Outcome outcome;
    Counts counts;
  };

  Found Find(const Mutant& mutant, const Traces& traces);
  void Report(const std::string& scenario, const Trace& trace, const std::string& mutant,
              const Outcome& outcome);
  std::vector<Scenario> InOrderFor(const Mutant& mutant) const {
    std::vector<Scenario> order = scenarios_;
    std::stable_partition(order.begin(), order.end(), [&](const Scenario& scenario) {
      return scenario.name == mutant.scenario;
    });
    return order;
  }
  // One mutant is tried on its own kind of scenarios.
  bool OfNames() const {
    for (const Mutant& mutant : AllMutants()) {
      if (mutant.name == arguments_.mutant) return IsOfNames(mutant.scenario);
    }
    return arguments_.names;
  }
  bool IsTried(const Mutant& mutant) const {
    if (!arguments_.mutant.empty()) return mutant.name == arguments_.mutant;
    return IsOfNames(mutant.scenario) == arguments_.names;
  }
  void Print(const Json& json) const {
    if (arguments_.json) std::printf("%s\n", json.dump(2).c_str());
  }

  const Arguments& arguments_;
  std::vector<Scenario> scenarios_;
};

void Session::Report(const std::string& scenario, const Trace& trace, const std::string& mutant,
                     const Outcome& outcome) {
  std::filesystem::create_directories(arguments_.save);
  const std::string path = arguments_.save + "/crash-" + scenario + "-" +
                           std::to_string(trace.seed) + (mutant.empty() ? "" : "-mutant") + ".case";
  Save(path, trace, mutant, outcome);
  std::fprintf(stderr,
               "crash_explorer: %s, seed %llu: %s; look at it with crash_explorer --replay %s\n",
               scenario.c_str(), Wide(trace.seed), outcome.what.c_str(), path.c_str());
}

// Every scenario once, then again with other seeds until the time is over.
int Session::Unmutated() {
  const auto begin = Clock::now();
  const auto end = begin + Seconds(arguments_.seconds);
  Counts all;
  Json rows = Json::array();
  bool failed = false;
  uint64_t rounds = 0;
  for (; !failed && (rounds == 0 || Clock::now() < end); ++rounds) {
    for (size_t i = 0; i < scenarios_.size() && !failed; ++i) {
      const Scenario& scenario = scenarios_[i];
      if (rounds > 0 && Clock::now() >= end) break;
      // In the first round each has its share of the time.
      const double left = arguments_.seconds - Since(begin);
      const double share = rounds > 0 ? left : left / static_cast<double>(scenarios_.size() - i);
      const uint64_t seed = arguments_.seed + rounds;
      const Trace trace = Record(scenario, seed, arguments_.scratch);
      const auto started = Clock::now();
      const Outcome outcome = Explore(scenario, trace, nullptr, seed, Care::kFull, kUnbounded,
                                      started + Seconds(std::max(share, 0.5)));
      AddTo(&all, outcome.counts);
      Json row = {{"scenario", scenario.name}, {"seed", seed}, {"events", trace.events.size()}};
      row.update(ToJson(outcome.counts));
      row["seconds"] = Since(started);
      row["wrong"] = outcome.what;
      rows.push_back(row);
      if (!arguments_.json && (rounds == 0 || !outcome.what.empty())) {
        std::printf(
            "%-8s %7zu events %6llu moments (%llu whole) %8llu images %8llu nested %6.1f s  %s\n",
            scenario.name.c_str(), trace.events.size(), Wide(outcome.counts.moments),
            Wide(outcome.counts.exhaustive), Wide(outcome.counts.images),
            Wide(outcome.counts.nested), Since(started), outcome.what.empty() ? "ok" : "WRONG");
      }
      if (!outcome.what.empty()) {
        Report(scenario.name, trace, "", outcome);
        failed = true;
      }
    }
  }
  Json json = {{"seed", arguments_.seed}, {"rounds", rounds}, {"runs", rows}};
  json["all"] = ToJson(all);
  json["ok"] = !failed;
  Print(json);
  if (!arguments_.json) {
    std::printf("seed %llu: %llu rounds, %llu images, %llu of them of recoveries, in %.0f s: %s\n",
                Wide(arguments_.seed), Wide(rounds), Wide(all.images + all.nested),
                Wide(all.nested), Since(begin), failed ? "WRONG" : "all recovered");
  }
  return failed ? 1 : 0;
}

// Tries the mutant on the scenarios that it changes, the likely one first, and if it survives on
// others of their recordings.
Session::Found Session::Find(const Mutant& mutant, const Traces& traces) {
  Found found;
  const uint64_t some = OfNames() ? kFew : kSome;
  // As many images as it takes, whatever the machine's speed.
  const auto is_found = [&](const Scenario& scenario, const Trace& trace, Care care) {
    found.outcome =
        Explore(scenario, trace, &mutant, trace.seed, care,
                scenario.name == mutant.scenario ? kMany : some, Clock::time_point::max());
    AddTo(&found.counts, found.outcome.counts);
    if (found.outcome.what.empty()) return false;
    found.by = scenario.name;
    if (!arguments_.mutant.empty()) Report(scenario.name, trace, mutant.name, found.outcome);
    return true;
  };
  for (uint64_t recording = 0; recording < kRecordings; ++recording) {
    for (const Scenario& scenario : InOrderFor(mutant)) {
      Trace another;
      if (recording > 0) {
        another = Record(scenario, arguments_.seed + recording, arguments_.scratch);
      }
      const Trace& trace = recording > 0 ? another : traces.at(scenario.name);
      const bool is_likely = scenario.name == mutant.scenario;
      if (is_likely && is_found(scenario, trace, Care::kGlance)) return found;
      if (is_found(scenario, trace, Care::kFull)) return found;
    }
  }
  return found;
}

// Each mutant has to be reported. A run without --mutants shows that the engine as it is never is.
int Session::Mutants() {
  const auto begin = Clock::now();
  Traces traces;
  for (const Scenario& scenario : scenarios_) {
    traces[scenario.name] = Record(scenario, arguments_.seed, arguments_.scratch);
  }
  Json rows = Json::array();
  std::string survivors;
  uint64_t number = 0;
  for (const Mutant& mutant : AllMutants()) {
    if (!IsTried(mutant) || number++ % arguments_.parts != arguments_.part % arguments_.parts)
      continue;
    const auto started = Clock::now();
    const Found found = Find(mutant, traces);
    const bool survived = found.by.empty();
    if (survived) survivors += ", " + mutant.name;
    rows.push_back({{"mutant", mutant.name},
                    {"what", mutant.what},
                    {"reported", !survived},
                    {"scenario", found.by},
                    {"images", found.counts.images + found.counts.nested},
                    {"seconds", Since(started)},
                    {"as", found.outcome.what}});
    if (arguments_.json) continue;
    std::printf("%-22s %-8s %-8s %8llu images %5.1f s  %s\n", mutant.name.c_str(),
                survived ? "SURVIVED" : "reported", found.by.c_str(),
                Wide(found.counts.images + found.counts.nested), Since(started),
                found.outcome.what.substr(found.outcome.what.rfind('/') + 1).c_str());
    std::fflush(stdout);
  }
  Print({{"seed", arguments_.seed}, {"mutants", rows}, {"ok", survivors.empty()}});
  if (!arguments_.json) {
    std::printf("seed %llu, --part %llu --parts %llu: %zu mutants, %.0f s: %s\n",
                Wide(arguments_.seed), Wide(arguments_.part), Wide(arguments_.parts), rows.size(),
                Since(begin),
                survivors.empty() ? "all reported" : ("survived: " + survivors.substr(2)).c_str());
  }
  return survivors.empty() ? 0 : 1;
}

int List() {
  for (const Scenario& scenario : AllScenarios()) {
    std::printf("scenario %-24s %s\n", scenario.name.c_str(), scenario.what.c_str());
  }
  for (const Mutant& mutant : AllMutants()) {
    std::printf("mutant   %-24s %s\n", mutant.name.c_str(), mutant.what.c_str());
  }
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app("Recovers every memory image that a crash of the engine can leave.");
  Arguments arguments;
  arguments.seed = std::random_device{}() % 1000000;
  app.add_option("--seed", arguments.seed, "Repeats the choices of a run; printed at its end");
  app.add_option("--seconds", arguments.seconds, "How long, about")->capture_default_str();
  app.add_option("--scenario", arguments.scenarios, "Only these");
  app.add_flag("--mutants", arguments.mutants, "Plants one bug after the other; each is reported");
  app.add_option("--parts", arguments.parts, "Of the mutants, one in so many")
      ->check(CLI::PositiveNumber);
  app.add_option("--part", arguments.part, "Which of them: any number, such as that of the day");
  app.add_option("--mutant", arguments.mutant, "Only this one, and saves the case");
  app.add_flag("--names", arguments.names, "Names in the log, and nothing else");
  app.add_option("--replay", arguments.replay, "One saved case, again")->type_name("FILE");
  app.add_option("--scratch", arguments.scratch, "A folder on a disk")->capture_default_str();
  app.add_option("--save", arguments.save, "Where failing cases go")->capture_default_str();
  bool streams = false;
  app.add_flag("--streams", streams, "Record the AVX-512 copy; 77 where there is none");
  app.add_flag("--json", arguments.json, "Results as JSON");
  app.add_flag("--list", arguments.list, "Scenarios and mutants");
  app.footer(
      "Exit status: 0 when all is well, 1 when an image is not recovered as it should be or a\n"
      "mutant survives, 2 when the command line is wrong or something cannot be had.\n"
      "\n"
      "Examples:\n"
      "  crash_explorer --seconds 60\n"
      "  crash_explorer --mutants --seed 1\n"
      "  crash_explorer --names --seconds 60\n"
      "  crash_explorer --replay crash-rounds-7.case\n");
  try {
    app.parse(argc, argv);
    if (arguments.list) return List();
    if (streams && !UseStreams()) return 77;
    if (!arguments.replay.empty()) {
      const Outcome outcome = Replay(arguments.replay);
      std::printf("now: %s\n", outcome.what.empty() ? "recovered" : outcome.what.c_str());
      return outcome.what.empty() ? 0 : 1;
    }
    Session session(arguments);
    return arguments.mutants || !arguments.mutant.empty() ? session.Mutants() : session.Unmutated();
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "crash_explorer: %s\n", e.what());
    return 2;
  }
}

}  // namespace
}  // namespace nvcache::crash

int main(int argc, char** argv) { return nvcache::crash::Main(argc, argv); }
