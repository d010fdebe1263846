// SPDX-License-Identifier: BSD-3-Clause
//
// One of the two places in which a sequence is executed: a folder of its own, and a runner in it,
// with the cache or without.
#ifndef NVCACHE_TESTS_DIFFERENTIAL_SIDE_H_
#define NVCACHE_TESTS_DIFFERENTIAL_SIDE_H_

#include <string>
#include <vector>

#include "tests/differential/generator.h"
#include "tests/differential/shared.h"
#include "tests/differential/tree.h"

namespace nvcache::differential {

struct Outcome {
  std::vector<std::string> lines;  // one for each operation
  Tree tree;
  std::string trouble;  // it did not come to its end: why
};

// When the runner is killed: before operation `before`, or some time after it has begun.
struct Kill {
  long before = -1;
  long during = -1;
  long delay_us = 0;
};

// How the cache comes into the runner.
struct FrontEnd {
  bool cached = false;  // false: the plain file system
  std::string preload;  // a library; empty: the runner's libc has NVCache in it
};

class Side {
 public:
  // Folder and memory are made and, at the end, removed.
  Side(std::string runner, FrontEnd front_end, std::string folder, std::string memory);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Outcome Run(const Sequence& sequence, const Kill& kill = {});
  // As Run, and ReadTree is left to the caller. Result: the operations that were completed.
  uint32_t RunUntilKilled(const Sequence& sequence, const Kill& kill, std::string* trouble);
  // What the operation of the last run answered.
  std::string Answer(uint32_t index) const;

  std::string root() const { return folder_ + "/root"; }
  std::string folder() const { return folder_; }
  std::string pool() const { return memory_ + "/pool"; }
  std::string said() const;  // stdout and stderr of the last run
  void KeepFiles() { keep_ = true; }

 private:
  void Prepare(const Sequence& sequence);
  void RunAll(const Sequence& sequence, const Kill& kill, std::string* trouble);
  pid_t Start(const Sequence& sequence, uint32_t index, long kill_before) const;
  int Await(pid_t pid, const Kill& kill) const;

  std::string runner_;
  FrontEnd front_end_;
  std::string folder_;
  std::string memory_;
  Shared* shared_;
  bool keep_ = false;
};

// The sequence as the runner gets it: every process ends in the end.
std::vector<std::string> WithEnds(const std::vector<std::string>& operations);

}  // namespace nvcache::differential

#endif  // NVCACHE_TESTS_DIFFERENTIAL_SIDE_H_
