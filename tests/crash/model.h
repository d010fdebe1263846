// SPDX-License-Identifier: BSD-3-Clause
//
// What the files may hold after recovery, at one moment of a trace: every write call that has
// returned (I1), in the order of the log (I3), of the others each group whole or not at all (I2),
// and nothing else.
//
// Of write-through, and of what goes past the log, each piece that the kernel was told of may be
// there without the others. It is certain to be there if its call has returned and the log has it,
// or if it was synced. While its call has not returned, nor any fsync that began later, older
// groups may be laid over it.
//
// Where files are in folders: after each call that changes names, all of them are as they were then
// or, while the call is running, before it (I9); and so are mode, owner, and times that were set.
// Two names lead to one file where they did.
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
    // One of these, where there are names. kAnyTime: that one may be anything.
    std::vector<Attributes> attributes;
  };
  std::vector<File> files;
  std::vector<Entries> names;  // one of these, if there are any
  bool clean = false;          // the pool says so before recovery does anything
  // Calls that append, and have begun and not returned: each may have left one group unfinished.
  uint32_t running = 0;
};

class Model {
 public:
  explicit Model(const Trace& trace);

  void Apply(const Event& event);
  // After a power failure; or `killed`: then the kernel has all that it was told.
  Expected Now(bool killed = false) const;
  // The file's bytes before its first item, and after each, in their order.
  std::vector<std::string> History(uint32_t file) const;

 private:
  enum State : uint8_t { kNotBegun, kRunning, kReturned };
  void ApplyToDisk(const Event& event);
  void ApplyToNames(const Event& event);
  void ApplyToAttributes(const Event& event);
  void ApplySync(const Event& event);
  bool IsCertain(size_t item, bool killed) const;
  bool IsLoose(size_t item, bool killed) const;
  Expected::File FileNow(uint32_t file, bool killed) const;
  using Group = std::pair<uint32_t, uint64_t>;  // operation and order
  static Group GroupOf(const Item& item) { return {item.operation, item.order}; }
  // Items of one file that may be there, in their order.
  struct Items {
    uint32_t file;
    std::vector<size_t> all;
    std::vector<size_t> open;  // those that may be not there
    // Those over which older ones may lie; by group.
    std::map<Group, std::vector<size_t>> loose;
  };
  void Try(const Items& items, size_t next, std::vector<bool>* taken,
           Expected::File* expected) const;
  // The items in front of which the loose ones of a group lie.
  using Places = std::map<Group, size_t>;
  void TryPlaces(const Items& items, const std::vector<bool>& taken, Places* places,
                 Expected::File* expected) const;
  std::vector<size_t> PlacesOf(const Items& items, const std::vector<size_t>& loose) const;
  bool Consistent(const std::vector<size_t>& items, const std::vector<bool>& taken) const;
  std::string Content(const Items& items, const std::vector<bool>& taken,
                      const Places& places) const;
  void Do(const Item& item, std::string* content) const;

  const Trace& trace_;
  std::vector<State> states_;                 // of operations
  std::vector<bool> durable_;                 // of operations: a sync has made them so
  std::vector<std::vector<size_t>> by_file_;  // items
  // Of pieces, by item.
  enum Reached : uint8_t { kNothing, kKernel, kDisk };
  std::vector<Reached> reached_;
  std::vector<bool> promised_;                                          // a sync has returned
  std::map<uint32_t, size_t> by_data_;                                  // items
  std::map<std::pair<uint32_t, uint16_t>, std::vector<size_t>> syncs_;  // begun: items by then
  std::map<uint32_t, std::vector<size_t>> promises_;                    // the same, by operation
  bool closed_ = false;
  // All that names and attributes have been, from the last that are certain on.
  std::vector<Entries> names_;
  std::map<uint32_t, std::vector<Attributes>> attributes_;  // of files
  bool past_ = false;                                       // a call in no log is running
  bool half_ = false;                                       // the last change has another half
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_MODEL_H_
