// SPDX-License-Identifier: BSD-3-Clause
//
// What the files may hold after recovery, at one moment of a trace: every write call that has
// returned (I1), in the order of the log (I3), of the others each group whole or not at all (I2),
// and nothing else. Of write-through and of what goes past the log, each piece that the kernel was
// told of may be there without the others. It is certain to be there if its call has returned and
// the log has it, or if a sync has returned that began later.
#ifndef NVCACHE_TESTS_CRASH_MODEL_H_
#define NVCACHE_TESTS_CRASH_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
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
  // After a power failure; or `killed`: then the kernel has all that it was told.
  Expected Now(bool killed = false) const;

 private:
  enum State : uint8_t { kNotBegun, kRunning, kReturned };
  void ApplyToDisk(const Event& event);
  bool IsCertain(size_t item, bool killed) const;
  Expected::File FileNow(uint32_t file, bool killed) const;
  void Try(uint32_t file, const std::vector<size_t>& items, const std::vector<size_t>& open,
           size_t next, std::vector<bool>* taken, Expected::File* expected) const;
  bool Consistent(const std::vector<size_t>& items, const std::vector<bool>& taken) const;
  std::string Content(uint32_t file, const std::vector<bool>& taken) const;

  const Trace& trace_;
  std::vector<State> states_;                 // of operations
  std::vector<bool> durable_;                 // of operations: a sync has made them so
  std::vector<std::vector<size_t>> by_file_;  // items
  // Of pieces, by item.
  enum Reached : uint8_t { kNothing, kKernel, kDisk };
  std::vector<Reached> reached_;
  std::map<uint32_t, size_t> by_data_;                                 // items
  std::map<std::pair<uint32_t, uint16_t>, std::vector<size_t>> syncs_;  // begun: items by then
  bool closed_ = false;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_MODEL_H_
