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
    {"waits-after-draw",
     "a sync draws an LSN of its own, and waits until the position is above it"},
    {"joining-waits", "while a majority joins, a real sync waits as well"},
    {"joining-is-real", "and it is real as well"},
    {"real-one-waits", "the sync of a file that is passed through waits for the images, too"},
    {"settles-first", "nothing goes past the log before a record says so"},
    {"leaving-waits", "a sync waits while the mirror leaves"},
    // The reading of the pool.
    {"lsn-first", "the LSN that a round ends at is read before the groups are"},
    {"only-below-lsn", "and no group from there on is taken"},
    {"begins-again", "a round begins again when a slot was taken again meanwhile"},
    {"lsn-order", "batches take groups in the order of LSNs"},
    {"checkpoint-goes-along", "a round takes the checkpoint as well"},
    // The memory of servers.
    {"forgets-as-another", "a server that has forgotten has another incarnation"},
    {"write-is-whole", "a process that dies leaves no position without its bytes"},
    {"image-outlives-copy", "a copy that was never whole leaves the image as it was"},
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
