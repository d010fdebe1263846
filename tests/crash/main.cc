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
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/crash/recorder.h"
#include "tests/crash/run.h"

namespace nvcache::crash {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// Images of one scenario.
constexpr uint64_t kWhereShown = 1000;
constexpr uint64_t kMany = 30000;  // where a mutant is expected to be found
constexpr uint64_t kSome = 4000;
constexpr uint64_t kFew = 500;  // of names in the log, which take their time
// Of a scenario, until a mutant is found: threads do not do the same in all.
constexpr uint64_t kRecordings = 3;

// Of mutants that do not show where they did.
constexpr uint64_t kFirstSeed = 1;

struct Arguments {
  std::optional<uint64_t> given_seed;
  uint64_t seed = 0;
  double seconds = 60;
  bool json = false;
  bool mutants = false;
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
  using Traces = std::map<std::pair<std::string, uint64_t>, Trace>;
  struct Found {
    Shown at;  // no scenario: the mutant survived
    Outcome outcome;
    Counts counts;
  };

  const Trace& TraceOf(const Scenario& scenario, uint64_t seed);
  bool IsFound(const Mutant& mutant, const Scenario& scenario, uint64_t seed, const Extent& extent,
               Found* found);
  bool FindWhereShown(const Mutant& mutant, Found* found);
  Found Find(const Mutant& mutant);
  void Report(const std::string& scenario, const Trace& trace, const std::string& mutant,
              const Outcome& outcome);
  std::vector<Scenario> InOrderFor(const Mutant& mutant) const {
    std::vector<Scenario> order = scenarios_;
    std::stable_partition(order.begin(), order.end(), [&](const Scenario& scenario) {
      return scenario.name == mutant.shown.scenario;
    });
    return order;
  }
  // One mutant is tried on its own kind of scenarios.
  bool OfNames() const {
    for (const Mutant& mutant : AllMutants()) {
      if (mutant.name == arguments_.mutant) return IsOfNames(mutant.shown.scenario);
    }
    return arguments_.names;
  }
  bool IsTried(const Mutant& mutant) const {
    if (!arguments_.mutant.empty()) return mutant.name == arguments_.mutant;
    return IsOfNames(mutant.shown.scenario) == arguments_.names;
  }
  // Not where it was shown, unless it was not looked for there.
  bool IsElsewhere(const Mutant& mutant, const Shown& at) const {
    return !arguments_.given_seed && !at.scenario.empty() && at != mutant.shown;
  }
  void Print(const Json& json) const {
    if (arguments_.json) std::printf("%s\n", json.dump(2).c_str());
  }

  const Arguments& arguments_;
  std::vector<Scenario> scenarios_;
  Traces traces_;
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
      const Outcome outcome =
          Explore(scenario, trace, nullptr, {.end = started + Seconds(std::max(share, 0.5))});
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

const Trace& Session::TraceOf(const Scenario& scenario, uint64_t seed) {
  const auto [place, is_new] = traces_.try_emplace({scenario.name, seed});
  if (is_new) place->second = Record(scenario, seed, arguments_.scratch);
  return place->second;
}

// As many images as it takes, whatever the machine's speed.
bool Session::IsFound(const Mutant& mutant, const Scenario& scenario, uint64_t seed,
                      const Extent& extent, Found* found) {
  const Trace& trace = TraceOf(scenario, seed);
  found->outcome = Explore(scenario, trace, &mutant, extent);
  AddTo(&found->counts, found->outcome.counts);
  found->at = {};
  if (found->outcome.what.empty()) return false;
  found->at = {scenario.name, seed, found->outcome.moment};
  if (!arguments_.mutant.empty()) Report(scenario.name, trace, mutant.name, found->outcome);
  return true;
}

bool Session::FindWhereShown(const Mutant& mutant, Found* found) {
  const Extent extent = {.first_moment = mutant.shown.moment, .images = kWhereShown};
  return std::any_of(scenarios_.begin(), scenarios_.end(), [&](const Scenario& scenario) {
    return scenario.name == mutant.shown.scenario &&
           IsFound(mutant, scenario, mutant.shown.seed, extent, found);
  });
}

// Tries the mutant where it was shown; then on the scenarios that it changes, that one first, and
// if it survives on others of their recordings.
Session::Found Session::Find(const Mutant& mutant) {
  Found found;
  if (!arguments_.given_seed && FindWhereShown(mutant, &found)) return found;
  const uint64_t some = OfNames() ? kFew : kSome;
  for (uint64_t recording = 0; recording < kRecordings; ++recording) {
    const uint64_t seed = arguments_.seed + recording;
    for (const Scenario& scenario : InOrderFor(mutant)) {
      const bool is_likely = scenario.name == mutant.shown.scenario;
      Extent extent = {.images = is_likely ? kMany : some};
      // Where a glance finds it, full care has to find it as well: that is the place to write down.
      const Extent glance = {.care = Care::kGlance, .images = extent.images};
      if (is_likely && IsFound(mutant, scenario, seed, glance, &found)) {
        extent.first_moment = found.at.moment;
      }
      if (IsFound(mutant, scenario, seed, extent, &found)) return found;
    }
  }
  return found;
}

// Each mutant has to be reported. A run without --mutants shows that the engine as it is never is.
int Session::Mutants() {
  const auto begin = Clock::now();
  Json rows = Json::array();
  std::string survivors;
  for (const Mutant& mutant : AllMutants()) {
    if (!IsTried(mutant)) continue;
    const auto started = Clock::now();
    const Found found = Find(mutant);
    const bool survived = found.at.scenario.empty();
    if (survived) survivors += ", " + mutant.name;
    rows.push_back({{"mutant", mutant.name},
                    {"what", mutant.what},
                    {"reported", !survived},
                    {"scenario", found.at.scenario},
                    {"seed", found.at.seed},
                    {"moment", found.at.moment},
                    {"moved", IsElsewhere(mutant, found.at)},
                    {"images", found.counts.images + found.counts.nested},
                    {"seconds", Since(started)},
                    {"as", found.outcome.what}});
    if (arguments_.json) continue;
    std::printf("%-22s %-8s %-8s %8llu images %5.1f s  %s\n", mutant.name.c_str(),
                survived ? "SURVIVED" : "reported", found.at.scenario.c_str(),
                Wide(found.counts.images + found.counts.nested), Since(started),
                found.outcome.what.substr(found.outcome.what.rfind('/') + 1).c_str());
    if (IsElsewhere(mutant, found.at)) {
      std::printf(
          "%-22s is reported elsewhere than shown.cc says; write down: {\"%s\", %llu, %zu}\n",
          mutant.name.c_str(), found.at.scenario.c_str(), Wide(found.at.seed), found.at.moment);
    }
    std::fflush(stdout);
  }
  Print({{"seed", arguments_.seed}, {"mutants", rows}, {"ok", survivors.empty()}});
  if (!arguments_.json) {
    std::printf("seed %llu: %zu mutants, %.0f s: %s\n", Wide(arguments_.seed), rows.size(),
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
  app.add_option("--seed", arguments.given_seed,
                 "Repeats the choices of a run; printed at its end; 0: any")
      ->default_str("any; of mutants, where each was reported last");
  app.add_option("--seconds", arguments.seconds, "How long, about")->capture_default_str();
  app.add_option("--scenario", arguments.scenarios, "Only these");
  app.add_flag("--mutants", arguments.mutants, "Plants one bug after the other; each is reported");
  app.add_option("--mutant", arguments.mutant, "Only this one, and saves the case");
  app.add_flag("--names", arguments.names, "Names in the log, and nothing else");
  app.add_option("--replay", arguments.replay, "One saved case, again")->type_name("FILE");
  app.add_option("--scratch", arguments.scratch, "A folder on a disk")->capture_default_str();
  app.add_option("--save", arguments.save, "Where failing cases go")->capture_default_str();
  bool streams = false;
  app.add_flag("--streams", streams, "Record the fused copy; 77 where there is none");
  app.add_flag("--json", arguments.json, "Results as JSON");
  app.add_flag("--list", arguments.list, "Scenarios and mutants");
  app.footer(
      "Exit status: 0 when all is well, 1 when an image is not recovered as it should be or a\n"
      "mutant survives, 2 when the command line is wrong or something cannot be had.\n"
      "\n"
      "Examples:\n"
      "  crash_explorer --seconds 60\n"
      "  crash_explorer --mutants\n"
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
    const bool mutants = arguments.mutants || !arguments.mutant.empty();
    arguments.seed = arguments.given_seed.value_or(mutants ? kFirstSeed : 0);
    if (arguments.seed == 0) arguments.seed = std::random_device{}() % 1000000;
    Session session(arguments);
    return mutants ? session.Mutants() : session.Unmutated();
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
