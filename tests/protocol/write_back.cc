// SPDX-License-Identifier: BSD-3-Clause
//
// Write-back, of file A. Nobody else has the file, so there is no lock.
#include <algorithm>

#include "tests/protocol/protocol.h"

namespace nvcache::protocol {

namespace {

constexpr unsigned kImpatience = 4;  // of whoever breaks a rule, and does not wait

}  // namespace

// Whoever has the file open and saw no mark is seen by the next one that wants to mark it.
Task<void> Run::Open(size_t self, File file) {
  if (Keeps(Rule::kOpenBeforeLook)) processes_[self].open = file;
  while (file == File::kA) {
    co_await Step{};
    if (marked_ == kNobody || marked_ == pid(self)) break;
    wanted_ = true;
    const bool forced = !Keeps(Rule::kOnlyTheDeadAreAdopted) && OneIn(kImpatience);
    if (Living(marked_) == nullptr || forced) co_await AdoptWriteBack(self);
  }
  co_await Step{};
  processes_[self].open = file;
}

bool Run::OthersHave(size_t self, File file) const {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const Process& other = processes_[slot];
    if (slot == self || other.dead) continue;
    if (other.open == file || other.mapped == file) return true;
  }
  return false;
}

Task<void> Run::Promote(size_t self) {
  if (processes_[self].mapped == File::kA || marked_ != kNobody) co_return;
  bool alone = Keeps(Rule::kMarkBeforeProbe) || !OthersHave(self, File::kA);
  if (!Keeps(Rule::kMarkBeforeProbe)) co_await Dawdle();
  if (!alone || marked_ != kNobody) co_return;
  marked_ = pid(self);
  wanted_ = false;
  co_await Step{};
  if (Keeps(Rule::kMarkBeforeProbe)) alone = !OthersHave(self, File::kA);
  if (alone && Keeps(Rule::kPromotedSettled)) co_await Settle(self, File::kA);
  co_await Step{};
  if (alone && tally_.state.tag == File::kA) co_await RemoveTag(self, File::kA);
  co_await Step{};
  if (alone && tally_.state.tag != File::kA) {
    Note(self, "writes the file back");
    processes_[self].writes_back = true;
    processes_[self].unwritten = pool_.next;
  } else {
    marked_ = kNobody;
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

Task<void> Run::WriteOut(size_t self, Pid log, Lsn from) {
  std::vector<Change> changes;
  for (const Record& record : pool_.records) {
    const bool its = record.kind == Record::Kind::kBack && record.log == log;
    if (its && record.lsn >= from) changes.push_back(record.change);
  }
  for (const Change& change : changes) {
    co_await Step{};
    if (!Keeps(Rule::kDrainWrites)) continue;
    Note(self, "writes back change", change.number);
    file_system_.Apply(change, true);
  }
}

Task<void> Run::MoveSeatCheckpoint(Pid log, Lsn to) {
  Checkpoint& checkpoint = pool_.back[log];
  const size_t begun = file_system_.BeginSync();
  co_await Step{};
  if (Keeps(Rule::kDrainSyncs)) file_system_.EndSync(begun, File::kA);
  co_await Step{};
  if (!Keeps(Rule::kDrainMovesCheckpoint)) co_return;
  checkpoint.copies[0] = to;
  co_await Step{};
  checkpoint.copies[1] = to;
  co_await Step{};
  checkpoint.seen = to;
}

// The owner's, when it is asked, now and then, and at its end.
Task<void> Run::Drain(size_t self) {
  const Lsn to = pool_.next;
  co_await WriteOut(self, pid(self), processes_[self].unwritten);
  processes_[self].unwritten = to;
  co_await Step{};
  const bool give_up = wanted_ || OneIn(2);
  if (!give_up && OneIn(2)) co_return;
  co_await MoveSeatCheckpoint(pid(self), to);
  if (!give_up || marked_ != pid(self)) co_return;
  Note(self, "gives write-back up");
  processes_[self].writes_back = false;
  marked_ = kNobody;
  wanted_ = false;
}

// Of a dead owner. Who does it may die as well: then the next one begins anew.
Task<void> Run::AdoptWriteBack(size_t self) {
  const Pid owner = marked_;
  const bool waits = Keeps(Rule::kOneAdopter) || !OneIn(kImpatience);
  if (owner == kNobody || owner == pid(self)) co_return;
  if (waits && Living(adopter_) != nullptr) co_return;
  adopter_ = pid(self);
  Note(self, "adopts the write-back of", owner);
  const Lsn to = pool_.next;
  const Checkpoint& checkpoint = pool_.back[owner];
  const Lsn newest = std::max(checkpoint.copies[0], checkpoint.copies[1]);
  if (!Keeps(Rule::kOneAdopter)) co_await Dawdle();
  co_await WriteOut(self, owner, Keeps(Rule::kAdoptedFromNewest) ? newest : checkpoint.seen);
  co_await MoveSeatCheckpoint(owner, to);
  co_await Step{};
  if (marked_ == owner) marked_ = kNobody;
  if (adopter_ == pid(self)) adopter_ = kNobody;
}

}  // namespace nvcache::protocol
