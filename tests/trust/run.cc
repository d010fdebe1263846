// SPDX-License-Identifier: BSD-3-Clause
#include "tests/trust/run.h"

#include <algorithm>
#include <memory>

namespace nvcache::trust {

namespace {

constexpr unsigned kCalls = 5;           // of each process
constexpr unsigned kMostProcesses = 7;   // in all
constexpr uint64_t kMostSteps = 4000;    // more: somebody waits for ever
constexpr unsigned kDawdle = 20;         // steps, of whoever breaks a rule
constexpr unsigned kFlushEvery = 6;      // steps
constexpr unsigned kFailsOneIn = 4;      // flushes
constexpr unsigned kStrangerEvery = 10;  // steps
constexpr unsigned kDeathEvery = 60;
constexpr unsigned kBirthEvery = 20;

}  // namespace

// ------------------------------------------------------------------------------------------------
// What processes do. Others may run at each `co_await`, and nowhere else.

Task<void> Run::Program(size_t self) {
  co_await Open(self);
  for (unsigned call = 0; call < kCalls; ++call) {
    co_await Step{};
    if (OneIn(3)) {
      co_await Move(self);
    } else if (OneIn(4)) {
      Adopt(self);
    } else {
      co_await Write(self);
    }
  }
  co_await Leave(self);
}

// Checkpoint::Cover and Begin.
Task<void> Run::Open(size_t self) {
  Process& process = processes_[self];
  process.since = kComing;
  co_await Step{};
  Lsn since = 0;
  if (!Keeps("opened-before-drawn"_rule)) {
    since = Draw();
    co_await Dawdle();
  }
  process.descriptor = kernel_.Open();
  co_await Step{};
  if (since == 0) since = Draw();
  co_await Step{};
  process.since = since;
  Note(self, "has a descriptor, since", since);
}

Task<void> Run::Write(size_t self) {
  const Number number = ++last_number_;
  kernel_.Write(self, number);
  versions_[self].push_back(number);
  const size_t version = versions_[self].size() - 1;
  co_await Step{};
  const Lsn lsn = Draw();
  co_await Step{};
  Note(self, "commits with LSN", lsn);
  groups_.push_back({self, number, lsn, false});
  co_await Step{};
  floor_[self] = std::max(floor_[self], version);
}

// No process that lives has opened before it, nor one that has died and was not adopted.
bool Run::IsOldest(size_t self) const {
  return std::ranges::none_of(processes_, [&](const Process& other) {
    return other.since != 0 && other.since < processes_[self].since;
  });
}

bool Run::MayMove(size_t self) const {
  return checkpoint_ > processes_[self].since || IsOldest(self);
}

// False: it may not, or was told of an error.
Task<bool> Run::Move(size_t self) {
  if (Keeps("moved-by-the-trusted"_rule) && !MayMove(self)) co_return false;
  if (marked_ && Keeps("marked-is-looked-at"_rule)) co_return false;
  Lsn checkpoint = next_;
  co_await Step{};
  for (size_t byte = 0; byte < kBytes; ++byte) {
    kernel_.Flush(byte, OneIn(kFailsOneIn));
    co_await Step{};
  }
  if (!Keeps("drawn-before-sync"_rule)) checkpoint = next_;
  if (kernel_.Tells(&processes_[self].descriptor)) {
    Note(self, "is told of an error");
    if (Keeps("error-marks-the-pool"_rule)) marked_ = true;
    co_return false;
  }
  co_await Step{};
  if (marked_ && Keeps("marked-is-looked-at"_rule)) co_return false;
  checkpoint_ = std::max(checkpoint_, checkpoint);
  Note(self, "stores checkpoint", checkpoint);
  co_return true;
}

// Its own groups count, or such as nobody is there for any more.
bool Run::HasPending(size_t self) const {
  return std::ranges::any_of(groups_, [&](const Group& group) {
    const bool left = group.left && Keeps("left-are-moved-at-its-end"_rule);
    return group.lsn >= checkpoint_ && (group.byte == self || left);
  });
}

// Checkpoint::End. Those that are not the oldest leave their groups to it.
Task<void> Run::Leave(size_t self) {
  for (;;) {
    if (Keeps("dead-are-adopted-at-its-end"_rule)) Adopt(self);
    const bool moves = IsOldest(self) && Keeps("oldest-moves-at-its-end"_rule);
    if (!moves || marked_ || !HasPending(self)) break;
    co_await Move(self);
    co_await Step{};
  }
  Note(self, "leaves");
  Abandon(self);
}

void Run::Abandon(size_t slot) {
  processes_[slot].since = 0;
  for (Group& group : groups_) group.left = group.left || group.byte == slot;
}

// Whoever finds a dead one.
void Run::Adopt(size_t self) {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (!processes_[slot].dead || processes_[slot].since == 0) continue;
    Note(self, "adopts the log of", slot);
    Abandon(slot);
  }
}

// Of whoever breaks a rule: what comes of it would be rare otherwise.
Task<void> Run::Dawdle() {
  for (unsigned i = 0; i < kDawdle; ++i) co_await Step{};
}

// ------------------------------------------------------------------------------------------------
// The world around them.

Run::Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes)
    : broken_(broken), notes_(notes), random_(seed), stranger_(kernel_.Open()) {
  for (auto& versions : versions_) versions.push_back(0);
  Start(0);
}

void Run::Start(size_t slot) {
  Process& process = processes_[slot];
  std::destroy_at(&process);
  std::construct_at(&process);
  process.program.emplace(Program(slot));
  process.program->Begin(&process.innermost);
  ++started_;
  Note(slot, "begins");
}

void Run::Kill(size_t slot) {
  Process& process = processes_[slot];
  if (!Lives(process) || std::ranges::count_if(processes_, Lives) < 2) return;
  // The same limit.
  if (kernel_.seen() && SomebodyWillHear(kSlots) && !SomebodyWillHear(slot) && !marked_) return;
  Note(slot, "is killed");
  process.dead = true;
}

// A process that lives will hear of an error at its next sync. `besides`: not that one.
bool Run::SomebodyWillHear(size_t besides) const {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const Process& process = processes_[slot];
    const bool is_open = process.since != 0 && process.since != kComing;
    if (slot != besides && Lives(process) && is_open && kernel_.HasNews(process.descriptor))
      return true;
  }
  return false;
}

// Not, if no process of ours will hear of it then: a documented limit.
void Run::TellStranger() {
  if (!SomebodyWillHear(kSlots) || !kernel_.Tells(&stranger_)) return;
  Note(kSlots, "is told of an error");
}

void Run::Event() {
  if (OneIn(kFlushEvery)) kernel_.Flush(random_() % kBytes, OneIn(kFailsOneIn));
  if (OneIn(kStrangerEvery)) TellStranger();
  const size_t slot = random_() % kSlots;
  if (OneIn(kDeathEvery)) Kill(slot);
  const Process& process = processes_[slot];
  if (!Lives(process) && process.since == 0 && started_ < kMostProcesses && OneIn(kBirthEvery))
    Start(slot);
}

// Who goes on. Null: nobody lives.
Run::Process* Run::Next() {
  std::array<Process*, kSlots> alive;
  size_t lives = 0;
  for (Process& process : processes_) {
    if (Lives(process)) alive[lives++] = &process;
  }
  return lives == 0 ? nullptr : alive[random_() % lives];
}

// A power failure now: each group that counts is laid onto what the disk has.
void Run::LookAtImages() {
  for (size_t byte = 0; byte < kBytes; ++byte) {
    std::vector<Number> found = kernel_.Left(byte);
    const Group* last = nullptr;
    for (const Group& group : groups_) {
      const bool counts = group.byte == byte && group.lsn >= checkpoint_;
      if (counts && (last == nullptr || group.lsn > last->lsn)) last = &group;
    }
    if (last != nullptr) found = {last->number};
    images_ += found.size();
    for (const Number number : found) {
      const auto& versions = versions_[byte];
      const auto at = std::ranges::find(versions, number) - versions.begin();
      if (static_cast<size_t>(at) >= floor_[byte] || !failure_.empty()) continue;
      failure_ = "byte " + std::to_string(byte) + " has write " + std::to_string(number) +
                 " after recovery, and " + std::to_string(versions[floor_[byte]]) + " was promised";
    }
  }
}

void Run::Note(size_t self, const char* what, uint64_t number) {
  if (notes_ == nullptr) return;
  std::string line = std::to_string(steps_) + ": ";
  line += self < kSlots ? "process " + std::to_string(self) : std::string("a stranger");
  line += std::string(" ") + what;
  if (number != 0) line += " " + std::to_string(number);
  notes_->push_back(line);
}

std::string Run::Failure() {
  while (Process* const next = Next()) {
    next->innermost.resume();
    Event();
    LookAtImages();
    if (!failure_.empty()) break;
    if (++steps_ > kMostSteps) return "somebody waits for ever";
  }
  return failure_;
}

}  // namespace nvcache::trust
