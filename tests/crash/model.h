// SPDX-License-Identifier: BSD-3-Clause
//
// What the files may hold after recovery, at one moment of a trace: every write call that has
// returned (I1), in the order of the log (I3), of the others each group whole or not at all (I2),
// and nothing else.
#ifndef NVCACHE_TESTS_CRASH_MODEL_H_
#define NVCACHE_TESTS_CRASH_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/crash/trace.h"

namespace nvcache::crash {

struct Expected {
  struct File {
    std::vector<std::string> contents;  // one of these
    bool absent = false;                // or nothing, if the file system has lost the name
  };
  std::vector<File> files;
  bool clean = false;  // the pool says so before recovery does anything
  // Calls that append, and have begun and not returned: each may have left one group unfinished.
  uint32_t running = 0;
};

class Model {
 public:
  explicit Model(const Trace& trace);

  void Apply(const Event& event);
  Expected Now() const;

 private:
  enum State : uint8_t { kNotBegun, kRunning, kReturned };
  Expected::File FileNow(uint32_t file) const;
  void Try(uint32_t file, const std::vector<size_t>& items, const std::vector<size_t>& open,
           size_t next, std::vector<bool>* taken, Expected::File* expected) const;
  bool Consistent(const std::vector<size_t>& items, const std::vector<bool>& taken) const;
  std::string Content(uint32_t file, const std::vector<bool>& taken) const;

  const Trace& trace_;
  std::vector<State> states_;                 // of operations
  std::vector<bool> durable_;                 // of operations: a sync has made them so
  std::vector<std::vector<size_t>> by_file_;  // items
  bool closed_ = false;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_MODEL_H_
