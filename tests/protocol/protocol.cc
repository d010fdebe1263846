// SPDX-License-Identifier: BSD-3-Clause
#include "tests/protocol/protocol.h"

#include <algorithm>

namespace nvcache::protocol {

namespace {

constexpr unsigned kCalls = 5;         // of each process
constexpr uint64_t kMostSteps = 4000;  // more: somebody waits for ever
constexpr size_t kFewChanges = 3;      // unsynced: each combination is tried; else none, all, and
constexpr unsigned kSampled = 6;       // so many others
constexpr unsigned kPatience = 4;      // one in so many looks at a lock suspects its owner
constexpr unsigned kDeathEvery = 40;   // steps
constexpr unsigned kOwnerDeathEvery = 20;
constexpr unsigned kStrangerEvery = 12;
constexpr unsigned kStopEvery = 10;
constexpr uint64_t kStopSteps = 60;

}  // namespace

// ------------------------------------------------------------------------------------------------
// The lock of a file. An owner that is dead or does not move is a suspicion, no more: it may go on.

Task<Run::Epoch> Run::Lock(size_t self) {
  for (;;) {
    co_await Step{};
    if (shared_.owner == kNobody) break;
    if (!OneIn(kPatience)) continue;
    Note(self, "takes the lock away from", static_cast<uint64_t>(shared_.owner));
    ++shared_.epoch;
    shared_.lost = pool_.next();
    if (Keeps(Rule::kLateOwnerIsPast)) shared_.past[static_cast<size_t>(shared_.owner)] = true;
    if (Keeps(Rule::kStolenIsUnknown)) {
      shared_.known = false;
      ++shared_.exits;
    }
    break;
  }
  shared_.owner = static_cast<int>(self);
  co_return shared_.epoch;
}

// ------------------------------------------------------------------------------------------------
// Calls of the program.

Task<void> Run::Write(size_t self, Change change) {
  const bool cut = change.covers[0] && change.covers[kCells - 1];
  if (Owns(self)) {
    co_await WriteBack(self, change);
    co_return;
  }
  const Lsn early = Keeps(Rule::kLsnUnderLock) ? 0 : pool_.Draw();
  for (;;) {
    const Epoch epoch = co_await Lock(self);
    const bool mapped = OneIn(10);  // or whatever else the log cannot order
    if (shared_.known && !mapped) {
      if (cut) {
        co_await CutLogged(self, change, epoch);
      } else {
        co_await WriteLogged(self, change, epoch, early);
      }
      co_return;
    }
    const bool past = mapped || OneIn(settles_ ? 5 : 2);
    if (past) {
      if (Keeps(Rule::kPassingIsPast)) shared_.past[self] = true;
      shared_.known = false;
    }
    Unlock(self, epoch);
    if (past) {
      co_await WritePast(self, change);
      co_return;
    }
    co_await Settle(self);
  }
}

// What is logged is what has happened.
Task<void> Run::WriteLogged(size_t self, Change change, Epoch epoch, Lsn early) {
  Lsn lsn = early;
  bool mine = true;
  if (!Keeps(Rule::kLsnAfterCall)) lsn = pool_.Draw();
  co_await Step{};
  Note(self, "makes the call of change", change.number);
  file_system_.Apply(change);
  co_await Step{};
  if (!Keeps(Rule::kEpochCheckedAfterLsn)) {
    mine = Mine(self, epoch);
    co_await Step{};
  }
  if (lsn == 0) lsn = pool_.Draw();
  co_await Step{};
  if (Keeps(Rule::kEpochCheckedAfterLsn)) mine = Mine(self, epoch);
  if (!Keeps(Rule::kEpochCheckedBeforeCommit)) mine = true;
  co_await Step{};
  if (!mine) {
    co_await EndPast(self);
    co_return;
  }
  Note(self, "commits its write with LSN", lsn);
  pool_.Commit({Record::Kind::kData, lsn, change, 0});
  co_await Step{};
  Unlock(self, epoch);
  PromiseChange(change);
}

// Destroys bytes that may be in the log, so it commits first, and is safe to repeat.
Task<void> Run::CutLogged(size_t self, Change change, Epoch epoch) {
  Lsn lsn = 0;
  if (!Keeps(Rule::kBoundBeforeLsn)) {
    lsn = pool_.Draw();
    co_await Step{};
  }
  if (Keeps(Rule::kCutHasBound)) shared_.bound[self] = pool_.next() - (lsn != 0 ? 1 : 0);
  co_await Step{};
  if (lsn == 0) lsn = pool_.Draw();
  co_await Step{};
  bool mine = Mine(self, epoch) || !Keeps(Rule::kEpochCheckedBeforeCommit);
  co_await Step{};
  if (mine) {
    Note(self, "commits its cut with LSN", lsn);
    pool_.Commit({Record::Kind::kData, lsn, change, 0});
    Floor at = {};
    for (size_t cell = 0; cell < kCells; ++cell) at[cell] = file_system_.versions(cell).size();
    committed_at_[change.number] = at;
  }
  co_await Step{};
  Note(self, "makes the call of change", change.number);
  file_system_.Apply(change);
  committed_at_.erase(change.number);
  co_await Step{};
  shared_.bound[self] = 0;
  mine = mine && Mine(self, epoch);
  if (!mine) {
    co_await EndPast(self);
    co_return;
  }
  Unlock(self, epoch);
  PromiseChange(change);
}

// Nothing is promised before the next fsync, as without the log; or by a sync of which the log
// hears nothing: O_SYNC, or another program's.
Task<void> Run::WritePast(size_t self, Change change) {
  if ((GroupsCount() && Keeps(Rule::kSettledBeforePassing)) ||
      (GroupMayCome() && Keeps(Rule::kLostSettledBeforePassing))) {
    co_await Settle(self);
  }
  co_await Step{};
  Note(self, "makes the call of change", change.number);
  file_system_.Apply(change);
  co_await Step{};
  if (OneIn(3)) {
    const size_t begun = file_system_.BeginSync();
    co_await Step{};
    file_system_.EndSync(begun);
    PromiseChange(change);
  }
  co_await EndPast(self);
}

Task<void> Run::EndPast(size_t self) {
  const Epoch epoch = co_await Lock(self);
  Note(self, "is no longer past the log");
  shared_.past[self] = false;
  if (Keeps(Rule::kPastIsCounted)) ++shared_.exits;
  Unlock(self, epoch);
}

Task<void> Run::Fsync(size_t self) {
  const Floor seen = Seen();
  bool known = shared_.known;
  if (Keeps(Rule::kFsyncUnderLock)) {
    const Epoch epoch = co_await Lock(self);
    known = shared_.known;
    Unlock(self, epoch);
  }
  co_await Step{};
  if (!known && Keeps(Rule::kUnknownFsyncIsReal)) co_await Settle(self);
  Note(self, "returns from fsync");
  Promise(seen);
}

// The one entrance.
Task<void> Run::Settle(size_t self) {
  Epoch epoch = co_await Lock(self);
  for (size_t other = 0; other < kProcesses; ++other) {
    if (!processes_[other].dead || !shared_.past[other]) continue;
    shared_.past[other] = false;  // its call is over, before this sync
    if (Keeps(Rule::kPastIsCounted)) ++shared_.exits;
  }
  const uint64_t exits = shared_.exits;
  Lsn settled = pool_.Draw();
  Unlock(self, epoch);
  co_await Step{};
  Note(self, "begins to settle, below", settled);
  const size_t begun = file_system_.BeginSync();
  co_await Step{};
  file_system_.EndSync(begun);
  co_await Step{};
  epoch = co_await Lock(self);
  if (!Keeps(Rule::kSettledDrawnBeforeSync)) settled = pool_.Draw();
  if (Keeps(Rule::kSettledCommitted))
    pool_.Commit({Record::Kind::kSettled, pool_.Draw(), {}, settled});
  Note(self, "has settled below", settled);
  co_await Step{};
  if (shared_.exits == exits && !SomebodyIsPast() && Mine(self, epoch)) {
    Note(self, "makes the file known");
    shared_.known = true;
  }
  Unlock(self, epoch);
}

// ------------------------------------------------------------------------------------------------
// Write-back.

// Whoever has the file open and saw no mark is seen by the next one that wants to mark it.
Task<void> Run::Open(size_t self) {
  if (Keeps(Rule::kOpenBeforeLook)) processes_[self].open = true;
  for (;;) {
    co_await Step{};
    if (shared_.write_back == kNobody || Owns(self)) break;
    shared_.wanted = true;
    const bool forced = !Keeps(Rule::kOnlyTheDeadAreRevoked) && OneIn(kPatience);
    if (Dead(shared_.write_back) || forced) co_await PublishOrphan(self);
  }
  co_await Step{};
  processes_[self].open = true;
}

Task<void> Run::Promote(size_t self) {
  const auto alone = [&] {
    for (size_t other = 0; other < kProcesses; ++other) {
      if (other != self && processes_[other].open && !processes_[other].dead) return false;
    }
    return true;
  };
  const Epoch epoch = co_await Lock(self);
  bool possible = shared_.known && shared_.write_back == kNobody;
  if (possible && !Keeps(Rule::kMarkBeforeProbe)) possible = alone();
  co_await Step{};
  if (possible && shared_.write_back == kNobody) {
    shared_.write_back = static_cast<int>(self);
    shared_.wanted = false;
    co_await Step{};
    bool promoted = !Keeps(Rule::kMarkBeforeProbe) || alone();
    // Whoever is not there any more may have taken the lock away before.
    if (Keeps(Rule::kPromotedUnderLock)) promoted = promoted && shared_.known && Mine(self, epoch);
    if (!promoted) shared_.write_back = kNobody;
    if (promoted) Note(self, "writes the file back");
  }
  Unlock(self, epoch);
}

// Nobody else has the file, so there is no lock.
Task<void> Run::WriteBack(size_t self, Change change) {
  co_await Step{};
  if (shared_.unpublished == 0 && Keeps(Rule::kUnpublishedHasBound)) {
    shared_.unpublished = pool_.next();
    co_await Step{};
  }
  const Lsn lsn = pool_.Draw();
  co_await Step{};
  if (shared_.unpublished == 0) shared_.unpublished = lsn;
  Note(self, "commits into its log, with LSN", lsn);
  Record record{Record::Kind::kData, lsn, change, 0};
  record.written_back = true;
  pool_.Commit(record);
  file_system_.Order(change);
  co_await Step{};
  PromiseChange(change);
}

// The owner's, when it is asked, now and then, and at its end.
Task<void> Run::Publish(size_t self) {
  for (const Record& record : Unpublished()) {
    co_await Step{};
    Note(self, "publishes change", record.change.number);
    file_system_.Apply(record.change, true);
  }
  co_await Step{};
  if (!Owns(self)) co_return;
  shared_.unpublished = 0;
  if (!shared_.wanted && OneIn(2)) co_return;
  Note(self, "gives write-back up");
  shared_.write_back = kNobody;
  shared_.wanted = false;
}

// Of a dead owner. A publisher may die as well: then the next one begins anew.
Task<void> Run::PublishOrphan(size_t self) {
  const bool replace = !Keeps(Rule::kOnlyTheDeadAreReplaced) && OneIn(kPatience);
  if (shared_.publisher != kNobody && !Dead(shared_.publisher) && !replace) co_return;
  const int owner = shared_.write_back;
  if (owner == kNobody || Owns(self)) co_return;
  shared_.publisher = static_cast<int>(self);
  for (const Record& record : Unpublished()) {
    co_await Step{};
    if (!Keeps(Rule::kOrphanIsPublished)) continue;
    Note(self, "publishes, of a dead process, change", record.change.number);
    file_system_.Apply(record.change, Ordered(record.change));
  }
  co_await Step{};
  if (shared_.publisher != static_cast<int>(self)) co_return;
  shared_.unpublished = 0;
  shared_.publisher = kNobody;
  shared_.write_back = kNobody;
}

// ------------------------------------------------------------------------------------------------
// What keeps the log short. One process at a time: the checkpointer's own lock is not explored.

Task<void> Run::Checkpoint(size_t self) {
  size_t begun = file_system_.BeginSync();
  if (!Keeps(Rule::kCheckpointDrawnBeforeSync)) {
    co_await Step{};
    file_system_.EndSync(begun);
    co_await Step{};
  }
  Lsn checkpoint = pool_.Draw();
  co_await Step{};
  for (size_t other = 0; other < kProcesses; ++other) {
    const Lsn bound = shared_.bound[other];
    if (bound != 0 && !processes_[other].dead) checkpoint = std::min(checkpoint, bound);
    co_await Step{};
  }
  const bool orphan = shared_.write_back != kNobody && Dead(shared_.write_back);
  if (shared_.unpublished != 0 && (!orphan || Keeps(Rule::kOrphanHasBound))) {
    checkpoint = std::min(checkpoint, shared_.unpublished);
  }
  co_await Step{};
  if (Keeps(Rule::kCheckpointDrawnBeforeSync)) {
    begun = file_system_.BeginSync();
    co_await Step{};
    file_system_.EndSync(begun);
    co_await Step{};
  }
  Note(self, "stores checkpoint", checkpoint);
  pool_.StoreCheckpoint(0, checkpoint);
  co_await Step{};
  if (Keeps(Rule::kCheckpointTwice)) pool_.StoreCheckpoint(1, checkpoint);
}

// A file that nobody writes to is given up, so that others may write to it without the log.
Task<void> Run::Forget(size_t self) {
  const Epoch epoch = co_await Lock(self);
  if (!GroupsCount() && shared_.write_back == kNobody) {
    Note(self, "forgets the file");
    shared_.known = false;
    ++shared_.exits;
  }
  Unlock(self, epoch);
}

Task<void> Run::Program(size_t self) {
  for (unsigned call = 0; call < kCalls; ++call) {
    processes_[self].at_rest = true;
    processes_[self].open = Owns(self);
    co_await Step{};
    processes_[self].at_rest = false;
    if (Owns(self) && (shared_.wanted || OneIn(3))) co_await Publish(self);
    if (OneIn(6)) {
      co_await Checkpoint(self);
      continue;
    }
    co_await Open(self);
    if (settles_ && !Owns(self)) {
      if (OneIn(2)) co_await Settle(self);
      if (OneIn(2)) co_await Promote(self);
    }
    switch (random_() % 8) {
      case 0:
        co_await Fsync(self);
        break;
      case 1:
        co_await Forget(self);
        break;
      case 2:
        co_await Promote(self);
        break;
      case 3:
      case 4:
        co_await Write(self, NewChange(true));
        break;
      default:
        co_await Write(self, NewChange(false));
        break;
    }
  }
  while (Owns(self)) co_await Publish(self);
  processes_[self].at_rest = true;
  processes_[self].open = false;
}

// ------------------------------------------------------------------------------------------------

Change Run::NewChange(bool cut) {
  Change change;
  change.number = ++last_number_;
  change.covers.fill(cut);
  if (!cut) change.covers[random_() % kCells] = true;
  return change;
}

Lsn Run::Settled() const {
  Lsn settled = 0;
  for (const Record& record : pool_.records()) {
    if (record.kind == Record::Kind::kSettled) settled = std::max(settled, record.settled);
  }
  return settled;
}

// Whether recovery would apply any group.
bool Run::GroupsCount() const {
  const Lsn passed = std::max(CountedCheckpoint(), Settled());
  return std::any_of(pool_.records().begin(), pool_.records().end(), [&](const Record& record) {
    return record.kind == Record::Kind::kData && record.lsn >= passed;
  });
}

// Whether a group may still be committed that recovery would apply.
bool Run::GroupMayCome() const { return Settled() < shared_.lost; }

// Either copy may be lost, so it counts when both have it.
Lsn Run::CountedCheckpoint() const {
  const Lsn a = pool_.checkpoint(0), b = pool_.checkpoint(1);
  return Keeps(Rule::kCheckpointTwice) ? std::min(a, b) : std::max(a, b);
}

bool Run::SomebodyIsPast() const {
  return std::any_of(shared_.past.begin(), shared_.past.end(), [](bool past) { return past; });
}

std::vector<Record> Run::Unpublished() const {
  std::vector<Record> found;
  for (const Record& record : pool_.records()) {
    if (record.written_back && shared_.unpublished != 0 && record.lsn >= shared_.unpublished) {
      found.push_back(record);
    }
  }
  return found;
}

bool Run::Ordered(const Change& change) const {
  for (size_t cell = 0; cell < kCells; ++cell) {
    const auto& versions = file_system_.versions(cell);
    if (!change.covers[cell]) continue;
    if (std::find(versions.begin(), versions.end(), change.number) != versions.end()) return true;
  }
  return false;
}

Run::Floor Run::Seen() const {
  Floor seen = {};
  for (size_t cell = 0; cell < kCells; ++cell) seen[cell] = file_system_.versions(cell).size() - 1;
  return seen;
}

void Run::Promise(const Floor& floor) {
  for (size_t cell = 0; cell < kCells; ++cell) floor_[cell] = std::max(floor_[cell], floor[cell]);
}

void Run::PromiseChange(const Change& change) {
  for (size_t cell = 0; cell < kCells; ++cell) {
    if (!change.covers[cell]) continue;
    const auto& versions = file_system_.versions(cell);
    const auto found = std::find(versions.begin(), versions.end(), change.number);
    floor_[cell] = std::max(floor_[cell], static_cast<size_t>(found - versions.begin()));
  }
}

// A process without NVCache. That it writes while groups of the file count is a documented limit.
void Run::Stranger() {
  const bool quiet = std::all_of(processes_.begin(), processes_.end(),
                                 [](const Process& p) { return p.dead || p.at_rest; });
  if (!quiet || shared_.known || GroupsCount() || shared_.write_back != kNobody) return;
  file_system_.Apply(NewChange(OneIn(2)));
  Note(kProcesses, "makes the call of change", last_number_);
  if (OneIn(2)) return;
  file_system_.EndSync(file_system_.BeginSync());
  Promise(Seen());
}

void Run::Kill(size_t victim) {
  Process& process = processes_[victim];
  if (process.dead || process.program->done() || alive_ == 1) return;
  Note(victim, "is killed");
  process.dead = true;
  --alive_;
}

void Run::Event() {
  if (OneIn(kDeathEvery)) Kill(random_() % kProcesses);
  if (shared_.write_back != kNobody && OneIn(kOwnerDeathEvery)) {
    Kill(static_cast<size_t>(shared_.write_back));
  }
  if (OneIn(kStopEvery)) processes_[random_() % kProcesses].stopped_until = steps_ + kStopSteps;
  if (OneIn(kStrangerEvery)) Stranger();
}

// ------------------------------------------------------------------------------------------------
// After a power failure.

void Run::Compare(const Content& content, const std::string& image) {
  ++images_;
  for (size_t cell = 0; cell < kCells; ++cell) {
    const auto& versions = file_system_.versions(cell);
    size_t at = static_cast<size_t>(std::find(versions.begin(), versions.end(), content[cell]) -
                                    versions.begin());
    if (at == versions.size()) {
      const auto committed = committed_at_.find(content[cell]);
      if (committed != committed_at_.end()) at = committed->second[cell];
    }
    if (at >= floor_[cell] || !failure_.empty()) continue;
    failure_ = "cell " + std::to_string(cell) + " has change " + std::to_string(content[cell]) +
               " after recovery, and " + std::to_string(versions[floor_[cell]]) +
               " was promised (" + image + ")";
  }
}

// The groups that count, in order, onto what the disk has.
Content Run::Recover(Content disk, std::vector<Record> found, Lsn checkpoint) {
  Lsn from = checkpoint;
  for (const Record& record : found) {
    if (record.kind == Record::Kind::kSettled) from = std::max(from, record.settled);
  }
  std::sort(found.begin(), found.end(),
            [](const Record& a, const Record& b) { return a.lsn < b.lsn; });
  for (const Record& record : found) {
    if (record.kind == Record::Kind::kData && record.lsn >= from) record.change.ApplyTo(&disk);
  }
  return disk;
}

// Of the records below the checkpoint: all there, any there, none.
std::vector<Record> Run::Found(Overwritten overwritten) {
  std::vector<Record> found;
  for (const Record& record : pool_.records()) {
    const bool may_go = record.lsn < CountedCheckpoint() && overwritten != Overwritten::kNone;
    if (may_go && (overwritten == Overwritten::kAll || OneIn(2))) continue;
    found.push_back(record);
  }
  return found;
}

// `kept`: of the changes that were not synced, one bit each.
void Run::LookAtImage(uint64_t kept) {
  Content disk = file_system_.disk();
  for (size_t i = 0; i < file_system_.unsynced().size(); ++i) {
    if ((kept >> i & 1) != 0) file_system_.unsynced()[i].ApplyTo(&disk);
  }
  const Lsn first = pool_.checkpoint(0), second = pool_.checkpoint(1);
  const std::pair<const char*, Lsn> readable[] = {
      {"both copies", std::max(first, second)}, {"copy 0", first}, {"copy 1", second}};
  for (const auto& [which, checkpoint] : readable) {
    for (const Overwritten some : {Overwritten::kNone, Overwritten::kAny, Overwritten::kAll}) {
      Compare(Recover(disk, Found(some), checkpoint),
              "kept of the unsynced: " + std::to_string(kept) + "; the checkpoint: " + which);
    }
  }
}

// I7: while nobody writes it back, the kernel has the newest bytes.
void Run::LookAtCache() {
  if (shared_.write_back != kNobody) return;
  for (size_t cell = 0; cell < kCells; ++cell) {
    const Number newest = file_system_.versions(cell).back();
    const Number found = file_system_.cache()[cell];
    if (found == newest || !failure_.empty()) continue;
    failure_ = "the page cache has change " + std::to_string(found) + " in cell " +
               std::to_string(cell) + ", and the newest is " + std::to_string(newest);
  }
}

void Run::LookAtImages() {
  const size_t changes = file_system_.unsynced().size();
  if (changes <= kFewChanges) {
    for (uint64_t kept = 0; kept < uint64_t{1} << changes; ++kept) LookAtImage(kept);
    return;
  }
  LookAtImage(0);
  LookAtImage((uint64_t{1} << changes) - 1);
  for (unsigned i = 0; i < kSampled; ++i) LookAtImage(random_() % (uint64_t{1} << changes));
}

void Run::Note(size_t self, const char* what, uint64_t number) {
  if (notes_ == nullptr) return;
  std::string line = std::to_string(steps_) + ": ";
  line += self < kProcesses ? "process " + std::to_string(self) : std::string("a stranger");
  line += std::string(" ") + what;
  if (number != 0) line += " " + std::to_string(number);
  notes_->push_back(line);
}

Run::Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes)
    : broken_(broken), notes_(notes), random_(seed), settles_(OneIn(2)), alive_(kProcesses) {
  for (size_t i = 0; i < kProcesses; ++i) {
    processes_[i].program.emplace(Program(i));
    processes_[i].program->Begin(&processes_[i].innermost);
  }
}

std::string Run::Failure() {
  for (;;) {
    std::vector<size_t> alive, running;
    for (size_t i = 0; i < kProcesses; ++i) {
      if (processes_[i].dead || processes_[i].program->done()) continue;
      alive.push_back(i);
      if (processes_[i].stopped_until <= steps_) running.push_back(i);
    }
    if (alive.empty() || !failure_.empty()) return failure_;
    const auto& ready = running.empty() ? alive : running;
    processes_[ready[random_() % ready.size()]].innermost.resume();
    Event();
    LookAtCache();
    LookAtImages();
    if (++steps_ > kMostSteps) return "somebody waits for ever";
  }
}

}  // namespace nvcache::protocol
