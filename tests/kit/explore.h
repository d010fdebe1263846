// SPDX-License-Identifier: BSD-3-Clause
//
// The command of an explorer: runs by seed with all rules kept, with each one broken in turn, and
// one again, step by step.
#ifndef NVCACHE_TESTS_KIT_EXPLORE_H_
#define NVCACHE_TESTS_KIT_EXPLORE_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/kit/rule.h"

namespace nvcache::kit {

inline unsigned long long Wide(uint64_t n) { return n; }

// Run(seed, broken rule, notes) has Failure(), steps() and images().
template <typename Run>
class Explorer {
 public:
  // A rule that is broken must show within `most_runs`.
  Explorer(const char* name, std::span<const RuleText> rules, uint64_t most_runs)
      : name_(name), rules_(rules), most_runs_(most_runs) {}

  // Another thing that the command does: `function` gets the option's number, and returns the exit
  // status.
  void Add(const char* option, const char* text, std::function<int(uint64_t)> function) {
    others_.push_back({option, text, std::move(function), std::nullopt});
  }

  // Exit status: 0; 1: something was wrong, or a broken rule was not reported; 2: the command line.
  int Main(int argc, char** argv, const std::string& about) {
    CLI::App app{about + "\nExample: " + name_ + " --seconds 60"};
    app.add_option("--seed", seed_, "of the first run; 0: any, as without --rules")
        ->default_str("where each rule showed");
    app.add_option("--seconds", seconds_, "how long")->capture_default_str();
    app.add_option("--runs", runs_, "how many, however long they take");
    app.add_flag("--rules", breaks_, "break each rule in turn");
    app.add_option("--rule", rule_, "this one only");
    app.add_option("--replay", replay_, "the run of this seed, step by step");
    app.add_flag("--list", lists_, "the rules");
    for (Other& other : others_) app.add_option(other.option, other.number, other.text);
    CLI11_PARSE(app, argc, argv);
    if (!rule_.empty() && !Find()) {
      std::fprintf(stderr, "%s: no rule %s; --list has them\n", name_, rule_.c_str());
      return 2;
    }
    if (lists_) return List();
    for (const Other& other : others_) {
      if (other.number) return other.function(*other.number);
    }
    if (replay_) return Replay();
    if (seed_ == 0 || (!seed_ && !breaks_)) seed_ = std::random_device{}();
    return breaks_ ? BreakRules() : Explore();
  }

 private:
  struct Other {
    const char *option, *text;
    std::function<int(uint64_t)> function;
    std::optional<uint64_t> number;
  };

  std::optional<Rule> Find() const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (rule_ == rules_[i].name) return static_cast<Rule>(i);
    }
    return std::nullopt;
  }

  // A check within a run stops the process: its seed must not be lost.
  void SayWhenStopped() const {
    static const char* name;
    name = name_;
    std::signal(SIGABRT, [](int) {
      std::printf("seed %llu: a check has stopped it\nagain: %s --replay %llu\n", Wide(running_),
                  name, Wide(running_));
      std::fflush(stdout);
    });
  }

  // All rules kept: nothing may be wrong.
  int Explore() const {
    SayWhenStopped();
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>{seconds_};
    uint64_t runs = 0, steps = 0, images = 0;
    const auto is_over = [&] { return runs_ ? runs == *runs_ : Clock::now() >= end; };
    for (uint64_t seed = *seed_; !is_over(); ++seed, ++runs) {
      running_ = seed;
      Run run(seed, std::nullopt);
      const std::string failure = run.Failure();
      steps += run.steps();
      images += run.images();
      if (failure.empty()) continue;
      std::printf("seed %llu: %s\nagain: %s --replay %llu\n", Wide(seed), failure.c_str(), name_,
                  Wide(seed));
      return 1;
    }
    std::printf("%llu runs from seed %llu on, %llu steps, %llu images: nothing wrong\n", Wide(runs),
                Wide(*seed_), Wide(steps), Wide(images));
    return runs > 0 ? 0 : 1;
  }

  // Each rule broken in turn: something must be wrong.
  int BreakRules() const {
    int kept = 0;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const RuleText& rule = rules_[i];
      if (!rule_.empty() && rule_ != rule.name) continue;
      const uint64_t first = seed_.value_or(rule.shown_at);
      uint64_t runs = 0;
      std::string failure;
      while (runs < most_runs_ && failure.empty()) {
        failure = Run(first + runs++, static_cast<Rule>(i)).Failure();
      }
      if (failure.empty()) ++kept;
      Say(rule, first + runs - 1, failure);
    }
    if (kept > 0) std::printf("%d broken rules were not reported\n", kept);
    return kept > 0 ? 1 : 0;
  }

  // Which seed is to be written down in its place, if the one that is there shows nothing any more.
  void Say(const RuleText& rule, uint64_t seed, const std::string& failure) const {
    if (failure.empty()) {
      std::printf("%-28s NOT REPORTED\n", rule.name);
    } else {
      std::printf("%-28s seed %llu: %s\n", rule.name, Wide(seed), failure.c_str());
      if (!seed_ && seed != rule.shown_at) {
        std::printf("%-28s shows at seed %llu no more: write %llu down\n", rule.name,
                    Wide(rule.shown_at), Wide(seed));
      }
    }
    std::fflush(stdout);
  }

  int Replay() const {
    std::vector<std::string> notes;
    const std::string failure = Run(*replay_, Find(), &notes).Failure();
    for (const std::string& note : notes) std::printf("%s\n", note.c_str());
    std::printf("%s\n", failure.empty() ? "nothing wrong" : failure.c_str());
    return failure.empty() ? 0 : 1;
  }

  int List() const {
    for (const RuleText& rule : rules_) std::printf("%-28s %s\n", rule.name, rule.text);
    return 0;
  }

  static inline uint64_t running_ = 0;
  const char* name_;
  std::span<const RuleText> rules_;
  uint64_t most_runs_;
  std::optional<uint64_t> seed_, runs_;
  double seconds_ = 20;
  bool breaks_ = false, lists_ = false;
  std::string rule_;
  std::optional<uint64_t> replay_;
  std::vector<Other> others_;
};

}  // namespace nvcache::kit

#endif  // NVCACHE_TESTS_KIT_EXPLORE_H_
