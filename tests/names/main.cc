// SPDX-License-Identifier: BSD-3-Clause
//
// names_explorer: see README.md.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/names/run.h"

namespace nvcache::names {
namespace {

using Clock = std::chrono::steady_clock;

// A rule that is broken must show within so many runs.
constexpr uint64_t kMostRuns = 300000;

struct Arguments {
  uint64_t seed = 0;
  double seconds = 20;
  bool rules = false;
  bool list = false;
  std::string rule;
  std::optional<uint64_t> replay;
};

unsigned long long Wide(uint64_t n) { return n; }

std::optional<Rule> Find(const std::string& name) {
  for (const RuleText& rule : kRules) {
    if (name == rule.name) return rule.rule;
  }
  return std::nullopt;
}

// All rules kept: nothing may be wrong.
int Explore(const Arguments& arguments) {
  const auto end = Clock::now() + std::chrono::duration<double>(arguments.seconds);
  uint64_t runs = 0, steps = 0, images = 0;
  for (uint64_t seed = arguments.seed; Clock::now() < end; ++seed, ++runs) {
    Run run(seed, std::nullopt);
    const std::string failure = run.Failure();
    steps += run.steps();
    images += run.images();
    if (failure.empty()) continue;
    std::printf("seed %llu: %s\nagain: names_explorer --replay %llu\n", Wide(seed), failure.c_str(),
                Wide(seed));
    return 1;
  }
  std::printf("%llu runs from seed %llu on, %llu steps, %llu images: nothing wrong\n", Wide(runs),
              Wide(arguments.seed), Wide(steps), Wide(images));
  return runs > 0 ? 0 : 1;
}

// Each rule broken in turn: something must be wrong.
int BreakRules(const Arguments& arguments) {
  int kept = 0;
  for (const RuleText& rule : kRules) {
    if (!arguments.rule.empty() && arguments.rule != rule.name) continue;
    uint64_t seed = arguments.seed;
    std::string failure;
    for (uint64_t runs = 0; runs < kMostRuns && failure.empty(); ++runs, ++seed) {
      failure = Run(seed, rule.rule).Failure();
    }
    if (failure.empty()) ++kept;
    std::printf("%-28s %s\n", rule.name,
                failure.empty() ? "NOT REPORTED"
                                : ("seed " + std::to_string(seed - 1) + ": " + failure).c_str());
    std::fflush(stdout);
  }
  if (kept > 0) std::printf("%d broken rules were not reported\n", kept);
  return kept > 0 ? 1 : 0;
}

int Replay(const Arguments& arguments) {
  std::vector<std::string> notes;
  const std::string failure = Run(*arguments.replay, Find(arguments.rule), &notes).Failure();
  for (const std::string& note : notes) std::printf("%s\n", note.c_str());
  std::printf("%s\n", failure.empty() ? "nothing wrong" : failure.c_str());
  return failure.empty() ? 0 : 1;
}

int List() {
  for (const RuleText& rule : kRules) std::printf("%-28s %s\n", rule.name, rule.text);
  return 0;
}

}  // namespace
}  // namespace nvcache::names

int main(int argc, char** argv) {
  using nvcache::names::Arguments;
  Arguments arguments;
  CLI::App app{
      "Explores what recovery makes of names that the log has, in a model.\n"
      "Example: names_explorer --seconds 60"};
  app.add_option("--seed", arguments.seed, "of the first run; 0: any")->default_str("0");
  app.add_option("--seconds", arguments.seconds, "how long")->capture_default_str();
  app.add_flag("--rules", arguments.rules, "break each rule in turn");
  app.add_option("--rule", arguments.rule, "this one only");
  app.add_option("--replay", arguments.replay, "the run of this seed, step by step");
  app.add_flag("--list", arguments.list, "the rules");
  CLI11_PARSE(app, argc, argv);
  if (!arguments.rule.empty() && !nvcache::names::Find(arguments.rule)) {
    std::fprintf(stderr, "names_explorer: no rule %s; --list has them\n", arguments.rule.c_str());
    return 2;
  }
  if (arguments.list) return nvcache::names::List();
  if (arguments.replay) return nvcache::names::Replay(arguments);
  if (arguments.seed == 0) arguments.seed = std::random_device{}();
  if (arguments.rules) return nvcache::names::BreakRules(arguments);
  return nvcache::names::Explore(arguments);
}
