// SPDX-License-Identifier: BSD-3-Clause
//
// Write-through files that several processes share, as the next design has them: the state of a
// file in the pool's shared memory, and what a process does in each call, step by step.
//
//             Settle: draw s, sync, commit settled(s), if nothing went past meanwhile
//   unknown ------------------------------------------------------------------------> known
//      ^                                                                                |
//      +--------------------------------------------------------------------------------+
//        the lock was taken away; forgotten when idle
//
//   known:    a write by any process is write-through: real call, LSN, commit; fsync is nothing.
//   unknown:  a write is the real call alone; fsync is real. Any call may settle instead. It stays
//             so while a process that lives may be at a call that the log does not order: one that
//             went past it, or one whose lock was taken away.
//
//                 Promote: mark, then nobody else has it open
//   write-through ---------------------------------------------> write-back, of one process
//        ^                                                                   |
//        +-------------------------------------------------------------------+
//          Publish, by the owner when somebody asks; by anybody when it is dead
//
//   write-back: a write is LSN, commit; the kernel gets it later. Only a known file is.
#ifndef NVCACHE_TESTS_PROTOCOL_PROTOCOL_H_
#define NVCACHE_TESTS_PROTOCOL_PROTOCOL_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/protocol/machine.h"
#include "tests/protocol/rules.h"
#include "tests/protocol/task.h"

namespace nvcache::protocol {

// One run: processes that each make a few calls, in an order that the seed says. After each step,
// what a power failure may leave is recovered and looked at.
class Run {
 public:
  // `broken`: a rule that nobody keeps. `notes`: what was done, a line each; may be null.
  Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes = nullptr);

  // What was wrong, or an empty string.
  std::string Failure();

  uint64_t steps() const { return steps_; }
  uint64_t images() const { return images_; }

 private:
  using Epoch = uint64_t;
  static constexpr int kNobody = -1;

  // In the pool's shared memory; gone after a power failure. Each is changed by one atomic step.
  struct SharedFile {
    int owner = kNobody;
    Epoch epoch = 0;
    bool known = false;
    // Each: whether it may be at a call that the log does not order. Such a call can still come.
    std::array<bool, kProcesses> past = {};
    Lsn lost = 0;        // a lock was taken away: its owner may still commit a group below this
    uint64_t exits = 0;  // times that one of these was over, or the file was made unknown
    std::array<Lsn, kProcesses> bound = {};  // 0: none
    int write_back = kNobody;                // whose it is: the mark
    bool wanted = false;                     // somebody waits for the mark to go
    Lsn unpublished = 0;      // of the owner's groups, the first that the kernel lacks; 0: none
    int publisher = kNobody;  // of what a dead owner has left
  };
  struct Process {
    std::optional<Task<void>> program;
    std::coroutine_handle<> innermost;
    bool dead = false;
    bool at_rest = true;         // between two calls
    bool open = false;           // the kernel's: goes with the process
    uint64_t stopped_until = 0;  // steps_; a signal, or a busy machine
  };
  // For each cell, the oldest change that may be found there.
  using Floor = std::array<size_t, kCells>;

  bool Keeps(Rule rule) const { return broken_ != rule; }
  bool OneIn(unsigned n) { return random_() % n == 0; }

  // What processes do.
  Task<void> Program(size_t self);
  Task<void> Write(size_t self, Change change);
  // `early`: an LSN that was drawn too early; 0: as it should be.
  Task<void> WriteLogged(size_t self, Change change, Epoch epoch, Lsn early);
  Task<void> CutLogged(size_t self, Change change, Epoch epoch);
  Task<void> WritePast(size_t self, Change change);
  Task<void> EndPast(size_t self);
  Task<void> Open(size_t self);
  Task<void> Promote(size_t self);
  Task<void> WriteBack(size_t self, Change change);
  Task<void> Publish(size_t self);
  Task<void> PublishOrphan(size_t self);
  Task<void> Fsync(size_t self);
  Task<void> Settle(size_t self);
  Task<void> Checkpoint(size_t self);
  Task<void> Forget(size_t self);
  Task<Epoch> Lock(size_t self);
  bool Mine(size_t self, Epoch epoch) const {
    return shared_.owner == static_cast<int>(self) && shared_.epoch == epoch;
  }
  void Unlock(size_t self, Epoch epoch) {
    if (Mine(self, epoch)) shared_.owner = kNobody;
  }
  Change NewChange(bool cut);
  Lsn Settled() const;
  Lsn CountedCheckpoint() const;
  bool GroupsCount() const;
  bool GroupMayCome() const;
  bool SomebodyIsPast() const;
  bool Dead(int process) const { return processes_[static_cast<size_t>(process)].dead; }
  bool Owns(size_t self) const { return shared_.write_back == static_cast<int>(self); }
  std::vector<Record> Unpublished() const;
  bool Ordered(const Change& change) const;

  // What a call has promised when it returns.
  Floor Seen() const;
  void Promise(const Floor& floor);
  void PromiseChange(const Change& change);

  // The world around them.
  void Event();
  void Kill(size_t victim);
  void Stranger();

  // What a power failure leaves.
  void LookAtCache();
  void LookAtImages();
  void LookAtImage(uint64_t kept);
  enum class Overwritten : uint8_t { kNone, kAny, kAll };
  std::vector<Record> Found(Overwritten overwritten);
  static Content Recover(Content disk, std::vector<Record> found, Lsn checkpoint);
  void Compare(const Content& content, const std::string& image);

  void Note(size_t self, const char* what, uint64_t number = 0);

  const std::optional<Rule> broken_;
  std::vector<std::string>* const notes_;
  std::mt19937_64 random_;
  const bool settles_;  // as soon as it can: files are mostly known, and often written back
  FileSystem file_system_;
  Pool pool_;
  SharedFile shared_;
  std::array<Process, kProcesses> processes_;
  size_t alive_;
  Number last_number_ = 0;
  Floor floor_ = {};
  // A change that committed before its call: where it comes if the call is never made.
  std::map<Number, Floor> committed_at_;
  uint64_t steps_ = 0;
  uint64_t images_ = 0;
  std::string failure_;
};

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_PROTOCOL_H_
