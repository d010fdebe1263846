// SPDX-License-Identifier: BSD-3-Clause
//
// What the protocol runs on: files of a few bytes in a file system that may lose what was not
// synced, and a pool that keeps what was committed.
#ifndef NVCACHE_TESTS_PROTOCOL_MACHINE_H_
#define NVCACHE_TESTS_PROTOCOL_MACHINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nvcache::protocol {

// A file of two bytes, and one of one byte, which may have the same entry.
enum class File : uint8_t { kNone, kA, kB };
inline constexpr size_t kBytes = 3;
inline constexpr std::array kFiles = {File::kA, File::kB};
constexpr File FileOf(size_t byte) { return byte < 2 ? File::kA : File::kB; }
template <typename Value>
struct PerFile {
  Value& operator[](File file) { return values[static_cast<size_t>(file)]; }
  const Value& operator[](File file) const { return values[static_cast<size_t>(file)]; }
  std::array<Value, kFiles.size() + 1> values = {};
};

// Every change of a file has a number of its own, and leaves it in the bytes that it covers. So a
// byte says which change it is from; 0 is what was there at first.
using Number = uint32_t;
using Content = std::array<Number, kBytes>;

struct Change {
  Number number = 0;
  File file = File::kNone;
  std::array<bool, kBytes> covers = {};

  void ApplyTo(Content* content) const {
    for (size_t byte = 0; byte < kBytes; ++byte) {
      if (covers[byte]) (*content)[byte] = number;
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
  size_t BeginSync() const { return applied_; }
  void EndSync(size_t begun, File file);
  void EndSyncAll(size_t begun);

  const Content& cache() const { return cache_; }
  const Content& disk() const { return disk_; }
  size_t unsynced() const { return unsynced_.size(); }
  // The disk, if of what is not synced those changes arrive whose bit is set.
  Content DiskWith(uint64_t kept) const;
  // The changes that a byte had, in their order; [0] is 0.
  const std::vector<Number>& versions(size_t byte) const { return versions_[byte]; }

 private:
  struct Unsynced {
    size_t place;  // in the order in which the kernel got them
    Change change;
  };

  Content cache_ = {};
  Content disk_ = {};
  size_t applied_ = 0;
  std::vector<Unsynced> unsynced_;
  std::array<std::vector<Number>, kBytes> versions_ = {{{0}, {0}, {0}}};
};

using Lsn = uint64_t;
using Pid = uint32_t;  // of one process; no other one has it later
inline constexpr Pid kNobody = 0;

// What a log says. Each lies in a segment of its own, so each may be overwritten by itself once its
// checkpoint has passed it.
struct Record {
  enum class Kind : uint8_t { kThrough, kSettled, kBack, kHandedOver };
  Kind kind = Kind::kThrough;
  Pid log = kNobody;
  Lsn lsn = 0;
  File file = File::kNone;
  Change change;  // kThrough: the kernel has it; kBack: gets it later
  Lsn bound = 0;  // kSettled: s; kHandedOver: p; of the file's groups below it

  // The seat's checkpoint passes it, not that of write-through.
  bool of_write_back() const { return kind == Kind::kBack || kind == Kind::kHandedOver; }
};

// A checkpoint: two records of it, and what others may rely on.
struct Checkpoint {
  std::array<Lsn, 2> copies = {1, 1};
  Lsn seen = 1;
};

// What survives everything: the logs of all processes, and the checkpoints.
struct Pool {
  Lsn Draw() { return next++; }

  Lsn next = 1;
  std::vector<Record> records;
  Checkpoint through;               // of all logs' write-through groups
  std::array<Checkpoint, 16> back;  // of each process's write-back groups
};

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_MACHINE_H_
