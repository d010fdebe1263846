// SPDX-License-Identifier: BSD-3-Clause
//
// Who may move the checkpoint of write-through, where a disk refuses bytes and a program without
// NVCache hears of it. README.md says more.
#ifndef NVCACHE_TESTS_TRUST_RUN_H_
#define NVCACHE_TESTS_TRUST_RUN_H_

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/protocol/task.h"
#include "tests/trust/kernel.h"
#include "tests/trust/rules.h"

namespace nvcache::trust {

using Lsn = uint64_t;
using protocol::Step;
using protocol::Task;

class Run {
 public:
  // `broken`: a rule that nobody keeps. `notes`: what was done, a line each; may be null.
  Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes = nullptr);

  // What was wrong, or an empty string.
  std::string Failure();

  uint64_t steps() const { return steps_; }
  uint64_t images() const { return images_; }

 private:
  static constexpr size_t kSlots = kBytes;  // each process writes a byte of its own
  static constexpr Lsn kComing = ~Lsn{0};   // Seats::kComing

  struct Group {
    size_t byte;
    Number number;
    Lsn lsn;
    bool left;  // its process has ended, or was adopted
  };
  struct Process {
    std::optional<Task<void>> program;
    std::coroutine_handle<> innermost;
    bool dead = false;
    Descriptor descriptor;
    Lsn since = 0;  // in shared memory; 0: it has no descriptor
  };

  bool Keeps(Rule rule) const { return broken_ != rule; }
  bool OneIn(unsigned n) { return random_() % n == 0; }

  // What processes do.
  Task<void> Program(size_t self);
  Task<void> Open(size_t self);
  Task<void> Write(size_t self);
  Task<bool> Move(size_t self);
  Task<void> Leave(size_t self);
  Task<void> Dawdle();
  void Adopt(size_t self);
  void Abandon(size_t slot);
  bool IsOldest(size_t self) const;
  bool MayMove(size_t self) const;
  bool HasPending(size_t self) const;
  Lsn Draw() { return next_++; }

  // The world around them.
  static bool Lives(const Process& process) {
    return process.program && !process.dead && !process.program->done();
  }
  bool SomebodyWillHear(size_t besides) const;
  void TellStranger();
  void Start(size_t slot);
  void Kill(size_t slot);
  void Event();
  Process* Next();
  void LookAtImages();
  void Note(size_t self, const char* what, uint64_t number = 0);

  const std::optional<Rule> broken_;
  std::vector<std::string>* const notes_;
  std::mt19937_64 random_;
  Kernel kernel_;
  Descriptor stranger_;  // of a program without NVCache
  std::array<Process, kSlots> processes_;
  std::vector<Group> groups_;
  Lsn next_ = 1;
  Lsn checkpoint_ = 1;
  bool marked_ = false;                               // an error was heard of
  std::array<std::vector<Number>, kBytes> versions_;  // of each byte, in their order
  std::array<size_t, kBytes> floor_ = {};             // the oldest that may be found
  unsigned started_ = 0;
  Number last_number_ = 0;
  uint64_t steps_ = 0, images_ = 0;
  std::string failure_;
};

}  // namespace nvcache::trust

#endif  // NVCACHE_TESTS_TRUST_RUN_H_
