// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts around mirror/core have to keep to: programs, the reading of the pool, the memory
// of servers. mutants.py breaks mirror/core itself.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_RULES_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_RULES_H_

#include <optional>

#include "tests/kit/rule.h"

namespace nvcache::simulation {

using kit::Rule;

inline constexpr kit::RuleText kRules[] = {
    // Programs.
    {"waits-after-draw", "a sync draws an LSN of its own, and waits until the position is above it",
     1},
    {"joining-waits", "while a majority joins, a real sync waits as well", 2},
    {"joining-is-real", "and it is real as well", 3},
    {"real-one-waits", "the sync of a file that is passed through waits for the images, too", 1},
    {"settles-first", "nothing goes past the log before a record says so", 5},
    {"leaving-waits", "a sync waits while the mirror leaves", 1},
    // The reading of the pool.
    {"lsn-first", "the LSN that a round ends at is read before the groups are", 1},
    {"only-below-lsn", "and no group from there on is taken", 3},
    {"begins-again", "a round begins again when a slot was taken again meanwhile", 1662},
    {"lsn-order", "batches take groups in the order of LSNs", 1},
    {"checkpoint-goes-along", "a round takes the checkpoint as well", 1},
    // The memory of servers.
    {"forgets-as-another", "a server that has forgotten has another incarnation", 1},
    {"write-is-whole", "a process that dies leaves no position without its bytes", 17},
    {"image-outlives-copy", "a copy that was never whole leaves the image as it was", 390},
};

consteval Rule RuleNamed(std::string_view name) { return kit::RuleNamed(kRules, name); }

// The rule that this run breaks, if any.
class Broken {
 public:
  explicit Broken(std::optional<Rule> rule) : rule_(rule) {}
  bool Is(Rule rule) const { return rule_ == rule; }

 private:
  std::optional<Rule> rule_;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_RULES_H_
