// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_TRUST_RULES_H_
#define NVCACHE_TESTS_TRUST_RULES_H_

#include "tests/kit/rule.h"

namespace nvcache::trust {

using kit::Rule;

inline constexpr kit::RuleText kRules[] = {
    {"opened-before-drawn",
     "a process draws the LSN from which it may be trusted when it has opened", 580},
    {"moved-by-the-trusted",
     "the oldest moves the checkpoint, or who has opened before what it would pass", 1014},
    {"drawn-before-sync", "the checkpoint is drawn before the sync begins", 47},
    {"error-marks-the-pool",
     "who is told of an error marks the pool: the next sync says that all is well", 1},
    {"marked-is-looked-at", "of a marked pool the checkpoint stays, whoever syncs", 31},
    {"oldest-moves-at-its-end", "the oldest moves the checkpoint before it leaves", 771},
    {"left-are-moved-at-its-end", "beyond what others have left as well", 58506},
    {"dead-are-adopted-at-its-end",
     "who leaves adopts the dead first: the oldest may be one of them", 2609},
};

consteval Rule operator""_rule(const char* name, size_t length) {
  return kit::RuleNamed(kRules, {name, length});
}

}  // namespace nvcache::trust

#endif  // NVCACHE_TESTS_TRUST_RULES_H_
