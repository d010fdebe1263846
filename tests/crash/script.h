// SPDX-License-Identifier: BSD-3-Clause
//
// What a scenario does, in words:
//
//      file a p, new b
//   0: write a p-40 80, clean 1
//   1: adopt (thread (write b 70 40))
//
// Actions stand behind commas, or on lines of their own. A process's number is an action as well:
// what follows is done by it. Numbers may be told in pages: p, 2p, p-40. What happens meanwhile is
// in parentheses.
#ifndef NVCACHE_TESTS_CRASH_SCRIPT_H_
#define NVCACHE_TESTS_CRASH_SCRIPT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nvcache::crash {

struct Action;
using Script = std::vector<Action>;

struct Action {
  std::string verb;
  std::vector<std::string> words;  // after it
  Script meanwhile;

  // Throws if there is none.
  const std::string& Word(size_t i) const;
  uint64_t Number(size_t i) const;
  uint64_t Number(size_t i, uint64_t otherwise) const {
    return i < words.size() ? Number(i) : otherwise;
  }
  // From there on.
  std::string Rest(size_t i) const;
  bool Has(const std::string& word) const;
  // Of `open a as b`: b; of `open a`: a.
  const std::string& Alias() const { return Has("as") ? Word(2) : Word(0); }
};

// Throws if the text makes no sense.
Script Parse(const std::string& text);

// Does what scripts say, as far as it knows the verbs.
class Actor {
 public:
  void Do(const Script& script) const;

 protected:
  using Verbs = std::map<std::string, std::function<void(const Action&)>>;
  // Of these, the last one counts.
  void Add(Verbs verbs) {
    verbs.merge(verbs_);
    verbs_ = std::move(verbs);
  }

 private:
  Verbs verbs_;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_SCRIPT_H_
