// SPDX-License-Identifier: BSD-3-Clause
//
// Write-back. Nobody else has the file, so there is no lock.
#include <algorithm>

#include "tests/protocol/protocol.h"

namespace nvcache::protocol {

namespace {

constexpr unsigned kImpatience = 4;  // of whoever breaks a rule, and does not wait

}  // namespace

// Whoever has the file open and saw no mark is seen by the next one that wants to mark it.
Task<void> Run::Open(size_t self, File file) {
  if (processes_[self].open == file) co_return;
  Close(self);
  const bool asked_early = OthersSay(self, file);
  if (!Keeps("opened-before-asked"_rule)) {
    processes_[self].at_rest = true;  // it has made no call so far
    co_await Dawdle();
    processes_[self].at_rest = false;
  }
  if (Keeps("open-before-look"_rule)) processes_[self].open = file;
  for (;;) {
    co_await Step{};
    const Pid owner = marked_[file];
    if (owner == kNobody || owner == pid(self)) break;
    wanted_[file] = true;
    const bool forced = !Keeps("only-the-dead-are-adopted"_rule) && OneIn(kImpatience);
    if (Living(owner) == nullptr || forced) co_await AdoptSeat(self, owner);
    co_await DrainWanted(self, false);  // this process may be waited for as well
  }
  co_await Step{};
  processes_[self].open = file;
  co_await BeginUse(self, file, asked_early);
}

// Since nobody had it open, a stranger may have written to it.
Task<void> Run::BeginUse(size_t self, File file, bool asked_early) {
  co_await Step{};
  if (entry_.state.tag != file) co_return;
  const bool others = Keeps("opened-before-asked"_rule) ? OthersSay(self, file) : asked_early;
  co_await Step{};
  if (!Keeps("opened-before-said"_rule)) {
    processes_[self].said = file;
    co_await Dawdle();
  }
  if (!others && Keeps("opened-is-unknown"_rule)) {
    Note(self, "opens what nobody has open, file", static_cast<uint64_t>(file));
    entry_.state.known = false;
    ++entry_.state.bypasses;
    co_await Step{};
  }
  processes_[self].said = file;
}

void Run::Close(size_t self) {
  processes_[self].said = File::kNone;
  processes_[self].open = File::kNone;
}

bool Run::OthersSay(size_t self, File file) const {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const Process& other = processes_[slot];
    if (slot == self || (other.dead && Keeps("said-by-the-living"_rule))) continue;
    if (other.said == file) return true;
  }
  return false;
}

bool Run::OthersHave(size_t self, File file) const {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const Process& other = processes_[slot];
    if (slot == self || other.dead) continue;
    if (other.open == file || other.mapped == file) return true;
  }
  return false;
}

Task<void> Run::Promote(size_t self, File file) {
  if (processes_[self].mapped == file || marked_[file] != kNobody) co_return;
  bool alone = Keeps("mark-before-probe"_rule) || !OthersHave(self, file);
  if (!Keeps("mark-before-probe"_rule)) co_await Dawdle();
  if (!alone || marked_[file] != kNobody) co_return;
  marked_[file] = pid(self);
  wanted_[file] = false;
  co_await Step{};
  if (Keeps("mark-before-probe"_rule)) alone = !OthersHave(self, file);
  if (alone && Keeps("promoted-settled"_rule)) co_await Settle(self, file);
  co_await Step{};
  if (alone && entry_.state.tag == file) co_await RemoveTag(self, file);
  co_await Step{};
  if (alone && entry_.state.tag != file) {
    Note(self, "writes the file back");
    processes_[self].writes_back[file] = true;
  } else {
    marked_[file] = kNobody;
  }
}

Task<void> Run::WriteBack(size_t self, Change change) {
  co_await Step{};
  const Lsn lsn = pool_.Draw();
  co_await Step{};
  Note(self, "commits into its log, with LSN", lsn);
  pool_.records.push_back({Record::Kind::kBack, pid(self), lsn, change.file, change});
  file_system_.Order(change);
  co_await Step{};
  PromiseChange(change);
}

// Of one file.
Task<void> Run::WriteOut(size_t self, Pid log, File file, Lsn from) {
  std::vector<Change> changes;
  for (const Record& record : pool_.records) {
    const bool its = record.kind == Record::Kind::kBack && record.log == log;
    if (!its || record.file != file || record.lsn < from) continue;
    if (record.lsn < HandedOverBelow(log, file) && Keeps("handed-over-not-again"_rule)) continue;
    changes.push_back(record.change);
  }
  for (const Change& change : changes) {
    co_await Step{};
    if (!Keeps("drain-writes"_rule)) continue;
    Note(self, "writes back change", change.number);
    file_system_.Apply(change, true);
  }
}

// The kernel has every group below.
Task<void> Run::MoveSeatCheckpoint(Pid log, Lsn to) {
  const size_t begun = file_system_.BeginSync();
  co_await Step{};
  for (const File file : kFiles) {
    const bool handed_over = marked_[file] != log;
    const bool syncs = Keeps(handed_over ? "handed-over-synced"_rule : "drain-syncs"_rule);
    if (syncs) file_system_.EndSync(begun, file);
  }
  if (Keeps("drain-moves-checkpoint"_rule)) co_await StoreSeatCheckpoint(log, to);
}

Task<void> Run::StoreSeatCheckpoint(Pid log, Lsn to) {
  Checkpoint& checkpoint = pool_.back[log];
  co_await Step{};
  checkpoint.copies[0] = to;
  co_await Step{};
  checkpoint.copies[1] = to;
  co_await Step{};
  checkpoint.seen = to;
}

Task<void> Run::DrainWanted(size_t self, bool all) {
  for (const File file : kFiles) {
    const bool drains = processes_[self].writes_back[file] && (all || wanted_[file]);
    if (drains) co_await Drain(self, file);
  }
}

// The owner's, when it is asked, now and then, and at its end.
Task<void> Run::Drain(size_t self, File file) {
  const Lsn early = Keeps("handed-over-after-writing"_rule) ? 0 : pool_.Draw();
  co_await WriteOwn(self, file);
  co_await Step{};
  const bool give_up = wanted_[file] || OneIn(2);
  if (!give_up && OneIn(2)) co_return;
  const bool handed_over = give_up && OneIn(2) && co_await HandOver(self, file, early);
  if (!handed_over) {
    const Lsn to = pool_.next;
    for (const File each : kFiles) co_await WriteOwn(self, each);
    co_await MoveSeatCheckpoint(pid(self), to);
  }
  if (give_up) GiveUp(self, file);
}

Task<void> Run::WriteOwn(size_t self, File file) {
  const Lsn to = pool_.next;
  co_await WriteOut(self, pid(self), file, processes_[self].unwritten[file]);
  processes_[self].unwritten[file] = to;
}

// Others may have the file now.
void Run::GiveUp(size_t self, File file) {
  if (marked_[file] != pid(self)) return;
  Note(self, "gives write-back up, of file", static_cast<uint64_t>(file));
  processes_[self].writes_back[file] = false;
  marked_[file] = kNobody;
  wanted_[file] = false;
}

// Of a dead owner. Who does it may die as well: then the next one begins anew. False: another one
// is at it.
Task<bool> Run::AdoptSeat(size_t self, Pid owner) {
  const bool waits = Keeps("one-adopter"_rule) || !OneIn(kImpatience);
  if (owner == pid(self)) co_return false;
  if (waits && Living(adopter_) != nullptr) co_return false;
  adopter_ = pid(self);
  Note(self, "adopts the seat of", owner);
  const Lsn to = pool_.next;
  const Checkpoint& checkpoint = pool_.back[owner];
  const Lsn newest = std::max(checkpoint.copies[0], checkpoint.copies[1]);
  if (!Keeps("one-adopter"_rule)) co_await Dawdle();
  const Lsn from = Keeps("adopted-from-newest"_rule) ? newest : checkpoint.seen;
  for (const File file : kFiles) co_await WriteOut(self, owner, file, from);
  if (HasHandedOver(owner) && !FirstNotHandedOver(owner) && OneIn(2)) {
    Note(self, "leaves the seat");
    left_.push_back(owner);
  } else {
    co_await MoveSeatCheckpoint(owner, to);
  }
  co_await Step{};
  for (const File file : kFiles) {
    if (marked_[file] == owner) marked_[file] = kNobody;
  }
  if (adopter_ == pid(self)) adopter_ = kNobody;
  co_return true;
}

}  // namespace nvcache::protocol
