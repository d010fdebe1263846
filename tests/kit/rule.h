// SPDX-License-Identifier: BSD-3-Clause
//
// The rules of a model, each of which can be broken. A rule that no broken run betrays is either
// not needed, or not explored.
#ifndef NVCACHE_TESTS_KIT_RULE_H_
#define NVCACHE_TESTS_KIT_RULE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nvcache::kit {

struct RuleText {
  const char* name;
  const char* text;
  // The seed of a run that shows it when it is broken; 0: none is known.
  uint64_t shown_at;
};

// Its place among the others.
enum class Rule : uint8_t {};

// The compiler refuses a name that no rule has.
template <size_t n>
consteval Rule RuleNamed(const RuleText (&rules)[n], std::string_view name) {
  for (size_t i = 0; i < n; ++i) {
    if (name == rules[i].name) return static_cast<Rule>(i);
  }
  throw "no rule has that name";
}

}  // namespace nvcache::kit

#endif  // NVCACHE_TESTS_KIT_RULE_H_
