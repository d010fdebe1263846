// SPDX-License-Identifier: BSD-3-Clause
//
// Write-through files that several processes share, as docs/write-through.md has them: the entry of
// a file in shared memory, and what a process does in each call, step by step.
//
//   no tag:   a write is the real call, fsync as well.
//
//             Settle: draw s, sync, commit Settled(s), if nobody was passing
//   unknown ------------------------------------------------------------------> known
//      ^                                                                          |
//      +--------------------------------------------------------------------------+
//        a call past the log; the lock was taken away
//
//   known:    a write is write-through: real call, LSN, commit; fsync is nothing.
//   unknown:  a write settles first, or is the real call alone; fsync is real.
//
//                 Promote: mark, nobody else has it open, settle, remove the tag
//   the kernel's -----------------------------------------------------------------> write-back
//        ^                                                                              |
//        +------------------------------------------------------------------------------+
//          Drain, by the owner when somebody asks; AdoptSeat, when it is dead
//
//   unknown, or known <------------------------------------------------------- write-back
//          HandOver, by the owner: no sync
//
//   write-back: a write is LSN, commit; the kernel gets it later.
#ifndef NVCACHE_TESTS_PROTOCOL_PROTOCOL_H_
#define NVCACHE_TESTS_PROTOCOL_PROTOCOL_H_

#include <array>
#include <cstdint>
#include <functional>
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
  static constexpr size_t kSlots = 3;

  // Who has the lock. Each taking has a number of its own.
  struct Lock {
    Pid owner = kNobody;
    uint64_t taking = 0;
    bool operator==(const Lock&) const = default;
  };
  // Changes in one step.
  struct State {
    File tag = File::kNone;
    bool known = false;
    uint64_t bypasses = 0;
    bool operator==(const State&) const = default;
  };
  // In shared memory; gone after a power failure. It is any file's, one at a time.
  struct FileEntry {
    Lock lock;
    State state;
    Lsn lsn = 0;      // no group of the file has a higher one, nor will any from a lost lock
    Lsn settled = 0;  // groups of the file below it count no more
  };
  // A slot, and the process that has it.
  struct Process {
    Pid pid = kNobody;
    std::optional<Task<void>> program;
    std::coroutine_handle<> innermost;
    bool dead = false;
    bool at_rest = true;        // between two calls
    int passing = 0;            // in shared memory
    File open = File::kNone;    // the kernel's: goes with the process
    File mapped = File::kNone;  // can be written to; counts as open
    File said = File::kNone;    // that it has it open; the kernel's as well
    PerFile<bool> writes_back;
    PerFile<Lsn> unwritten;      // of its write-back groups, the first that the kernel lacks
    uint64_t stopped_until = 0;  // steps_; a signal, or a busy machine
  };
  // The groups of a file that recovery applies.
  struct Bounds {
    Lsn through = 0;  // of write-through from here on
    Lsn back = 0;     // of write-back, if they are not below their seat's checkpoint either
  };
  // For each byte, the oldest change that may be found there.
  using Floor = std::array<size_t, kBytes>;

  bool Keeps(Rule rule) const { return broken_ != rule; }
  bool OneIn(unsigned n) { return random_() % n == 0; }

  // What processes do: protocol.cc.
  Task<void> Write(size_t self, Change change);
  Task<void> WriteLogged(size_t self, Change change, Lock mine, Lsn early);
  Task<void> BeginPast(size_t self, File file);
  Task<void> RealCall(size_t self, Change change);
  Task<void> Map(size_t self, File file);
  Task<void> Fsync(size_t self, File file);
  Task<void> Settle(size_t self, File file, bool past = false);
  Task<Lsn> DrawSettled(State* state);
  Task<void> Dawdle();
  Task<void> Lurk(std::function<bool()> moment);
  Task<bool> SomebodyPasses(size_t self, bool past);
  Task<void> SetTag(size_t self, File file);
  Task<void> RemoveTag(size_t self, File file);
  Task<bool> MoveCheckpoint(size_t self);
  Task<void> Sync(size_t self);
  Task<void> AdoptLogs(size_t self);
  Task<Lock> Take(size_t self);
  Task<bool> TakeAway(size_t self, Lock seen);
  void Unlock(Lock mine) {
    if (entry_.lock == mine) entry_.lock.owner = kNobody;
  }
  bool Replace(const State& seen, const State& wanted);
  Task<bool> Pending();
  void Raise(size_t self) { ++processes_[self].passing; }
  void Lower(size_t self) { --processes_[self].passing; }

  // write_back.cc
  Task<void> Open(size_t self, File file);
  Task<void> BeginUse(size_t self, File file, bool asked_early);
  void Close(size_t self);
  bool OthersSay(size_t self, File file) const;
  Task<void> Promote(size_t self, File file);
  Task<void> WriteBack(size_t self, Change change);
  Task<void> DrainWanted(size_t self, bool all);
  Task<void> Drain(size_t self, File file);
  void GiveUp(size_t self, File file);
  Task<bool> AdoptSeat(size_t self, Pid owner);
  Task<void> WriteOut(size_t self, Pid log, File file, Lsn from);
  Task<void> WriteOwn(size_t self, File file);
  Task<void> MoveSeatCheckpoint(Pid log, Lsn to);
  Task<void> StoreSeatCheckpoint(Pid log, Lsn to);
  bool OthersHave(size_t self, File file) const;

  // hand_over.cc
  Task<bool> HandOver(size_t self, File file, Lsn early);
  Task<Lsn> DrawHandedOver(Lsn early);
  Task<void> PassHandedOver(size_t self);
  Task<void> PassLeft(const std::vector<Pid>& left, Lsn checkpoint);
  Lsn HandedOverBelow(Pid log, File file) const;
  Lsn LastHandedOver(Pid log) const;
  std::optional<Lsn> FirstNotHandedOver(Pid log) const;
  bool HasHandedOver(Pid log) const;

  // The world around them: run.cc.
  Task<void> Program(size_t self);
  Task<void> Call(size_t self, File file);
  void Start(size_t slot);
  Change NewChange(File file, bool whole);
  Process* Living(Pid pid);
  Process* Next();
  Pid pid(size_t self) const { return processes_[self].pid; }
  void Event();
  void Kill(size_t victim);
  void Stranger(File file);

  // What a call has promised when it returns.
  Floor Seen(File file) const;
  void Promise(const Floor& floor);
  void PromiseChange(const Change& change);

  // What a power failure leaves.
  void LookAtCache();
  bool HasChanged();
  void LookAtImages();
  void LookAtImage(uint64_t kept);
  enum class Overwritten : uint8_t { kNone, kAny, kAll };
  std::vector<Record> Found(Overwritten overwritten);
  Content Recover(Content disk, const std::vector<Record>& found, size_t copy) const;
  Content CacheWhenAllAreDead() const;
  Bounds BoundsOf(File file, const std::vector<Record>& records, Lsn checkpoint) const;
  bool GroupsCount(File file) const;
  void Compare(const Content& content, uint64_t kept, const char* copy);

  void Note(size_t self, const char* what, uint64_t number = 0);

  const std::optional<Rule> broken_;
  std::vector<std::string>* const notes_;
  std::mt19937_64 random_;
  const bool moves_;  // the entry goes from one file to the other, often
  const bool backs_;  // files are written back
  FileSystem file_system_;
  Pool pool_;
  FileEntry entry_;
  PerFile<Pid> marked_;         // who writes it back, or is about to
  PerFile<bool> wanted_;        // somebody waits for the mark to go
  Pid adopter_ = kNobody;       // of a dead process's write-back; the kernel's lock
  Pid checkpointer_ = kNobody;  // the kernel's lock
  std::array<Process, kSlots> processes_;
  std::vector<Pid> dead_;  // whose logs nobody has adopted
  std::vector<Pid> left_;  // whose seats have handed over groups only, and nobody else
  Pid last_pid_ = kNobody;
  size_t alive_ = 0;
  Number last_number_ = 0;
  Floor floor_ = {};
  uint64_t steps_ = 0;
  uint64_t images_ = 0;
  std::vector<uint64_t> looked_;  // what the images were made of
  std::string failure_;
};

}  // namespace nvcache::protocol

#endif  // NVCACHE_TESTS_PROTOCOL_PROTOCOL_H_
