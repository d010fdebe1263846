// SPDX-License-Identifier: BSD-3-Clause
//
// What may be left of the names in folders, at one moment of a trace. A file system keeps, of the
// changes since the names were last synced,
//
//   a prefix of the calls, as a journal does (ext4, XFS)
//   the same, with a rename half done: both names lead to the file, which is no folder
//   of each folder a prefix of its own (Btrfs, of which one folder was synced)
//
// But none loses a file because one of its names was taken away, if it had another one; and a file
// that has a name has all attributes that it got before that.
#ifndef NVCACHE_TESTS_CRASH_NAME_MEDIUM_H_
#define NVCACHE_TESTS_CRASH_NAME_MEDIUM_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/crash/trace.h"

namespace nvcache::crash {

// The first `all` changes are there; or, if `folders` are not empty, of each of these so many.
struct NameChoice {
  uint32_t all = 0;
  std::vector<std::pair<uint32_t, uint32_t>> folders;
  bool operator==(const NameChoice&) const = default;
};

class NameMedium {
 public:
  explicit NameMedium(const Trace& trace);
  // A file that comes later.
  void Add(const FileInfo& file) { certain_.attributes.push_back(file.identity); }

  void Apply(const Event& event, const Trace& trace);

  struct Left {
    Entries names;
    std::vector<Attributes> attributes;  // of all files
  };
  NameChoice Everything() const { return {static_cast<uint32_t>(changes_.size()), {}}; }
  Left Build(const NameChoice& choice) const;
  // All that may be left, or so many of it.
  std::vector<NameChoice> Choices(size_t most, std::mt19937_64* random) const;

 private:
  struct Change {
    uint32_t folder;  // kNobody: attributes of `now`, not a name
    std::string name;
    uint32_t before, now;
    AttributeChange set = {};
    bool more = false;        // the next one is of the same call
    bool in_journal = false;  // a sync has covered it, where there is one journal for all ...
    bool in_folder = false;   // ... and where each folder is synced by itself
  };
  std::vector<uint32_t> FoldersOf(uint32_t file) const;
  void Sync(size_t changes, uint32_t file);
  bool IsAcross(const std::vector<bool>& inside) const;
  void Forget();
  bool IsFolder(const Change& change) const;
  std::vector<bool> WhichAreThere(const NameChoice& choice) const;
  void ChooseByFolder(size_t most, std::mt19937_64* random, std::vector<NameChoice>* choices) const;

  Left certain_;
  Entries now_;                                              // what the kernel has
  std::vector<Change> changes_;                              // since `certain_`
  uint64_t forgotten_ = 0;                                   // changes that are in it
  std::map<std::pair<uint32_t, uint16_t>, uint64_t> syncs_;  // begun: all changes by then
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_NAME_MEDIUM_H_
