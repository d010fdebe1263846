// SPDX-License-Identifier: BSD-3-Clause
//
// What the protocol runs on: a file of a few cells in a file system that may lose what was not
// synced, and a pool that keeps what was committed.
#ifndef NVCACHE_TESTS_PROTOCOL_MACHINE_H_
#define NVCACHE_TESTS_PROTOCOL_MACHINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nvcache::protocol {

inline constexpr size_t kCells = 2;
inline constexpr size_t kProcesses = 3;

// Every change of the file has a number of its own, and leaves it in the cells that it covers. So
// the content of a cell says which change it is from; 0 is what was there at first.
using Number = uint32_t;
using Content = std::array<Number, kCells>;

struct Change {
  Number number = 0;
  std::array<bool, kCells> covers = {};

  void ApplyTo(Content* content) const {
    for (size_t cell = 0; cell < kCells; ++cell) {
      if (covers[cell]) (*content)[cell] = number;
    }
  }
};

// The kernel's page cache and the disk below it. A sync is not one step: what it makes durable is
// what was there when it began. Of the rest a power failure keeps any part.
class FileSystem {
 public:
  // `again`: these bytes are not news, they were in a log until now.
  void Apply(const Change& change, bool again = false);
  // It counts as made, wherever its bytes are: its place in the order of all changes.
  void Order(const Change& change);
  size_t BeginSync() const { return synced_ + unsynced_.size(); }
  void EndSync(size_t begun);

  const Content& cache() const { return cache_; }
  const Content& disk() const { return disk_; }
  const std::vector<Change>& unsynced() const { return unsynced_; }
  // The changes that a cell had, in their order; [0] is 0.
  const std::vector<Number>& versions(size_t cell) const { return versions_[cell]; }

 private:
  Content cache_ = {};
  Content disk_ = {};
  size_t synced_ = 0;  // changes that are on the disk
  std::vector<Change> unsynced_;
  std::array<std::vector<Number>, kCells> versions_ = {{{0}, {0}}};
};

using Lsn = uint64_t;

// What a log says. Each lies in a segment of its own, so each may be overwritten by itself once the
// checkpoint has passed it.
struct Record {
  enum class Kind : uint8_t { kData, kSettled };
  Kind kind = Kind::kData;
  Lsn lsn = 0;
  Change change;              // kData
  Lsn settled = 0;            // kSettled: groups below it count no more
  bool written_back = false;  // kData: the kernel gets it later
};

// What survives everything: the logs of all processes, and the checkpoint, which is kept twice.
class Pool {
 public:
  Lsn Draw() { return next_++; }
  Lsn next() const { return next_; }
  void Commit(const Record& record) { records_.push_back(record); }
  // Copy 0, then copy 1; never back.
  void StoreCheckpoint(size_t copy, Lsn checkpoint);

  const std::vector<Record>& records() const { return records_; }
  Lsn checkpoint(size_t copy) const { return checkpoints_[copy]; }

 private:
  Lsn next_ = 1;
  std::vector<Record> records_;
  std::array<Lsn, 2> checkpoints_ = {};
};

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_MACHINE_H_
