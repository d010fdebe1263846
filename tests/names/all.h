// SPDX-License-Identifier: BSD-3-Clause
//
// Not some sequences of calls, but each.
#ifndef NVCACHE_TESTS_NAMES_ALL_H_
#define NVCACHE_TESTS_NAMES_ALL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/names/act.h"

namespace nvcache::names {

// Each sequence of up to so many calls of one process, on each kind of file system, with two files
// at first, of which one has two names in half of them. In each of its steps the power leaves all
// that it may, once. A call that changes nothing is left out, and so is one that syncs as the first
// one: all is synced then.
class AllSequences {
 public:
  enum Of {
    kChanges,  // of names, all made, and logged writes
    kAll,      // writes past the log, syncs, and refused calls as well
  };
  AllSequences(Of of, size_t calls) : calls_(calls), acts_(ActsOf(of)) {}

  // What was wrong with the first one that is; empty: nothing with any.
  std::string Failure();
  uint64_t sequences() const { return sequences_; }
  uint64_t images() const { return images_; }

 private:
  static std::vector<Act> ActsOf(Of of);
  std::string Extend(const State& state, File newest);
  std::string Try();

  const size_t calls_;
  const std::vector<Act> acts_;
  bool linked_ = false;
  Loss loss_ = {};
  std::vector<Act> script_;
  uint64_t sequences_ = 0, images_ = 0;
};

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_ALL_H_
