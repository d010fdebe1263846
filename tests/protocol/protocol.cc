// SPDX-License-Identifier: BSD-3-Clause
//
// Write-through. Others may run at each `co_await`, and nowhere else.
#include "tests/protocol/protocol.h"

#include <algorithm>

namespace nvcache::protocol {

namespace {

constexpr unsigned kPatience = 4;  // one in so many looks at a lock suspects its owner
constexpr unsigned kDawdle = 20;   // steps
constexpr unsigned kLurk = 400;    // at most

}  // namespace

bool Run::Replace(const State& seen, const State& wanted) {
  if (entry_.state != seen) return false;
  entry_.state = wanted;
  return true;
}

Task<bool> Run::Pending() {
  const Lsn lsn = entry_.lsn;
  co_await Step{};
  co_return lsn >= std::max(pool_.through.seen, entry_.settled);
}

// ------------------------------------------------------------------------------------------------
// The lock of an entry. An owner that is dead or does not move is a suspicion, no more: it may go
// on.

Task<Run::Lock> Run::Take(size_t self) {
  for (;;) {
    co_await Step{};
    const Lock seen = entry_.lock;
    if (seen.owner == kNobody) {
      entry_.lock = {pid(self), seen.taking + 1};
      co_return entry_.lock;
    }
    if (OneIn(kPatience) && co_await TakeAway(self, seen)) co_return {pid(self), seen.taking + 1};
  }
}

Task<bool> Run::TakeAway(size_t self, Lock seen) {
  co_await Step{};
  if (entry_.lock != seen) co_return false;
  entry_.lock = {pid(self), seen.taking + 1};
  Note(self, "takes the lock away from", seen.owner);
  co_await Step{};
  if (Keeps("theft-is-unknown"_rule)) entry_.state.known = false;
  if (Keeps("theft-bypasses"_rule)) ++entry_.state.bypasses;
  co_await Step{};
  co_return true;
}

// ------------------------------------------------------------------------------------------------
// Calls of the program.

Task<void> Run::Write(size_t self, Change change) {
  const Lsn early = Keeps("lsn-under-lock"_rule) ? 0 : pool_.Draw();
  bool past = OneIn(4);  // the log cannot order it, or has no room
  for (;;) {
    if (Keeps("passing-before-look"_rule)) Raise(self);
    co_await Step{};
    const bool tagged = entry_.state.tag == change.file;
    co_await Step{};
    if (!Keeps("passing-before-look"_rule)) Raise(self);
    if (!tagged || past) {
      if (tagged) co_await BeginPast(self, change.file);
      co_await RealCall(self, change);
      co_return;
    }
    if (!Keeps("owner-passes"_rule)) Lower(self);
    const Lock mine = co_await Take(self);
    co_await Step{};
    // Of this file: while the count is up, no other one's that gets the entry becomes known.
    const bool known = entry_.state.known;
    co_await Step{};
    if (known) co_await WriteLogged(self, change, mine, early);
    Unlock(mine);
    if (Keeps("owner-passes"_rule)) Lower(self);
    if (known) co_return;
    past = OneIn(4);
    if (!past) co_await Settle(self, change.file);
  }
}

// What is logged is what has happened. `early`: an LSN that was drawn too early.
Task<void> Run::WriteLogged(size_t self, Change change, Lock mine, Lsn early) {
  Lsn lsn = Keeps("lsn-after-call"_rule) ? early : pool_.Draw();
  co_await Step{};
  Note(self, "makes the logged call of change", change.number);
  file_system_.Apply(change);
  co_await Step{};
  bool locked = entry_.lock == mine;
  if (!Keeps("locked-after-lsn"_rule)) co_await Step{};
  if (lsn == 0) lsn = pool_.Draw();
  co_await Step{};
  if (Keeps("lsn-raised"_rule) && Keeps("lsn-raised-before-look"_rule))
    entry_.lsn = std::max(entry_.lsn, lsn);
  co_await Step{};
  if (Keeps("locked-after-lsn"_rule)) locked = entry_.lock == mine;
  co_await Step{};
  if (!Keeps("lsn-raised-before-look"_rule)) entry_.lsn = std::max(entry_.lsn, lsn);
  if (locked || !Keeps("locked-before-commit"_rule)) {
    Note(self, "commits its write with LSN", lsn);
    pool_.records.push_back({Record::Kind::kThrough, pid(self), lsn, change.file, change});
    co_await Step{};
    PromiseChange(change);
  }
}

// The count is up.
Task<void> Run::BeginPast(size_t self, File file) {
  Lock mine;
  if (Keeps("past-under-lock"_rule)) mine = co_await Take(self);
  co_await Step{};
  Note(self, "goes past the log");
  if (Keeps("past-is-unknown"_rule)) entry_.state.known = false;
  if (Keeps("past-bypasses"_rule)) ++entry_.state.bypasses;
  co_await Step{};
  Unlock(mine);
  if (!Keeps("settled-before-past"_rule)) co_return;
  const bool has_room = !OneIn(3);
  while (co_await Pending()) {
    if (has_room) co_await Settle(self, file, true);
    if (has_room) break;
    co_await MoveCheckpoint(self);
  }
}

// Nothing is promised before the next fsync, as without the log; or by a sync of which the log
// hears nothing: O_SYNC, or another program's.
Task<void> Run::RealCall(size_t self, Change change) {
  if (!Keeps("passing-until-end"_rule)) Lower(self);
  co_await Step{};
  Note(self, "makes the call of change", change.number);
  file_system_.Apply(change);
  co_await Step{};
  if (OneIn(3)) {
    const size_t begun = file_system_.BeginSync();
    co_await Step{};
    file_system_.EndSync(begun, change.file);
    PromiseChange(change);
  }
  if (Keeps("passing-until-end"_rule)) Lower(self);
}

// Each store through it is a call that passes.
Task<void> Run::Map(size_t self, File file) {
  Process& process = processes_[self];
  if (process.mapped != File::kNone) co_return;
  Raise(self);
  co_await Step{};
  if (entry_.state.tag == file) co_await BeginPast(self, file);
  Note(self, "maps the file");
  process.mapped = file;
  if (!Keeps("mapping-passes"_rule)) Lower(self);
}

Task<void> Run::Fsync(size_t self, File file) {
  const Floor seen = Seen(file);
  co_await Step{};
  State state = entry_.state;
  if (state.tag == file && Keeps("fsync-under-lock"_rule)) {
    const Lock mine = co_await Take(self);
    co_await Step{};
    state = entry_.state;
    co_await Step{};
    Unlock(mine);
  }
  co_await Step{};
  if (state.tag != file) {
    const size_t begun = file_system_.BeginSync();
    co_await Step{};
    file_system_.EndSync(begun, file);
  } else if (!state.known && Keeps("unknown-fsync-real"_rule)) {
    co_await Settle(self, file);
  }
  Note(self, "returns from fsync");
  Promise(seen);
}

// ------------------------------------------------------------------------------------------------
// The one way to a file that is known. There is no lock. `past`: for a call that goes past the log.

Task<void> Run::Settle(size_t self, File file, bool past) {
  State state;
  Lsn settled = co_await DrawSettled(&state);
  bool passing = Keeps("scan-before-sync"_rule) && co_await SomebodyPasses(self, past);
  if (!Keeps("bypasses-before-scan"_rule)) state.bypasses = entry_.state.bypasses;
  Note(self, "begins to settle, below", settled);
  const size_t begun = file_system_.BeginSync();
  co_await Step{};
  if (!Keeps("removal-bypasses"_rule)) co_await Dawdle();
  file_system_.EndSync(begun, file);
  co_await Step{};
  if (!Keeps("scan-before-sync"_rule)) passing = co_await SomebodyPasses(self, past);
  if (!Keeps("settle-scans"_rule)) passing = false;
  if (!Keeps("settled-before-sync"_rule)) settled = pool_.Draw();
  const bool its = state.tag == file;
  if (its && !Keeps("settled-seen-when-committed"_rule)) {
    entry_.settled = std::max(entry_.settled, settled);
    co_await Step{};
  }
  if (Keeps("settled-committed"_rule)) {
    Note(self, "has settled below", settled);
    pool_.records.push_back({Record::Kind::kSettled, pid(self), pool_.Draw(), file, {}, settled});
  }
  co_await Step{};
  if (its) entry_.settled = std::max(entry_.settled, settled);
  co_await Step{};
  State known = state;
  known.known = true;
  if (!its || passing) co_return;
  if (!Keeps("known-in-one-step"_rule) && entry_.state == state) {
    co_await Step{};
    entry_.state.known = true;
  }
  if (Replace(state, known)) Note(self, "makes the file known");
}

// s, and in *state what the entry was around that time.
Task<Lsn> Run::DrawSettled(State* state) {
  Lsn settled = 0;
  do {
    if (!Keeps("bypasses-before-settled"_rule)) {
      settled = pool_.Draw();
      co_await Dawdle();
    }
    co_await Step{};
    *state = entry_.state;
    co_await Step{};
    if (!Keeps("state-after-settled"_rule)) co_await Dawdle();
    if (Keeps("bypasses-before-settled"_rule)) settled = pool_.Draw();
    co_await Step{};
  } while (Keeps("state-after-settled"_rule) && entry_.state != *state);
  co_return settled;
}

// Of whoever breaks a rule: what comes of it would be rare otherwise.
Task<void> Run::Dawdle() {
  for (unsigned i = 0; i < kDawdle; ++i) co_await Step{};
}

// The same, until the moment that it waits for.
Task<void> Run::Lurk(std::function<bool()> moment) {
  for (unsigned i = 0; i < kLurk && !moment(); ++i) co_await Step{};
}

Task<bool> Run::SomebodyPasses(size_t self, bool past) {
  bool passing = false;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    co_await Step{};
    const Process& other = processes_[slot];
    const bool own = past && slot == self && !Keeps("past-settles-uncounted"_rule);
    if (!other.dead && other.passing > (own ? 1 : 0)) passing = true;
  }
  co_return passing;
}

Task<void> Run::SetTag(size_t self, File file) {
  if (entry_.state.tag != File::kNone && OneIn(2)) co_await RemoveTag(self, entry_.state.tag);
  const State state = entry_.state;
  co_await Step{};
  if (state.tag != File::kNone) co_return;
  if (!Replace(state, {file, false, state.bypasses})) co_return;
  processes_[self].said = file;
  Note(self, "sets the tag of file", static_cast<uint64_t>(file));
  if (OneIn(2)) co_await Settle(self, file);
}

Task<void> Run::RemoveTag(size_t self, File file) {
  State state = entry_.state;
  co_await Step{};
  Lock mine;
  if (Keeps("removed-under-lock"_rule)) mine = co_await Take(self);
  co_await Step{};
  if (!Keeps("state-before-removals-lock"_rule)) {
    co_await Dawdle();
    state = entry_.state;
  }
  const bool pending = co_await Pending() && Keeps("removed-not-pending"_rule);
  co_await Step{};
  if (state.tag == file && !pending) {
    State none{File::kNone, false, state.bypasses + (Keeps("removal-bypasses"_rule) ? 1 : 0)};
    bool removed = Replace(state, none);
    if (!Keeps("removed-in-one-step"_rule) && !removed) {
      entry_.state.known = false;
      entry_.state.tag = File::kNone;
      removed = true;
    }
    if (removed) Note(self, "removes the tag of file", static_cast<uint64_t>(file));
  }
  co_await Step{};
  Unlock(mine);
}

// ------------------------------------------------------------------------------------------------
// What keeps the log short.

// False: another process is at it.
Task<bool> Run::MoveCheckpoint(size_t self) {
  if (Keeps("one-checkpointer"_rule) && Living(checkpointer_) != nullptr) co_return false;
  checkpointer_ = pid(self);
  std::vector<Pid> left = left_;
  co_await Step{};
  Lsn checkpoint = pool_.next;
  co_await Step{};
  const size_t begun = file_system_.BeginSync();
  co_await Step{};
  file_system_.EndSyncAll(begun);
  co_await Step{};
  if (!Keeps("checkpoint-before-sync"_rule)) checkpoint = pool_.next;
  Note(self, "stores checkpoint", checkpoint);
  pool_.through.copies[0] = checkpoint;
  if (!Keeps("checkpoint-twice"_rule)) pool_.through.seen = checkpoint;
  co_await Step{};
  if (Keeps("checkpoint-twice"_rule)) pool_.through.copies[1] = checkpoint;
  co_await Step{};
  pool_.through.seen = std::max(pool_.through.seen, checkpoint);
  if (!Keeps("left-found-before-draw"_rule)) left = left_;
  co_await PassLeft(left, checkpoint);
  co_await Step{};
  if (checkpointer_ == pid(self)) checkpointer_ = kNobody;
  co_return true;
}

// Of all files: sync and syncfs.
Task<void> Run::Sync(size_t self) {
  const Floor a = Seen(File::kA), b = Seen(File::kB);
  if (Keeps("sync-moves-checkpoint"_rule)) {
    while (!co_await MoveCheckpoint(self)) co_await Step{};
  } else {
    const size_t begun = file_system_.BeginSync();
    co_await Step{};
    file_system_.EndSyncAll(begun);
  }
  Note(self, "returns from sync");
  Promise(a);
  Promise(b);
}

// Whoever dies meanwhile leaves it to the next.
Task<void> Run::AdoptLogs(size_t self) {
  if (dead_.empty()) co_return;
  const Pid log = dead_.front();
  const bool marks = marked_[File::kA] == log || marked_[File::kB] == log;
  if ((marks || HasHandedOver(log)) && !co_await AdoptSeat(self, log)) co_return;
  for (const File file : kFiles) {
    const auto counts = [&](const Record& record) {
      return record.log == log && record.file == file && record.kind == Record::Kind::kThrough &&
             record.lsn >= pool_.through.seen;
    };
    co_await Step{};
    if (std::any_of(pool_.records.begin(), pool_.records.end(), counts)) {
      co_await Settle(self, file);
    }
  }
  if (!Keeps("dead-segments-wait"_rule)) {
    std::erase_if(pool_.records, [&](const Record& record) {
      return record.log == log && !record.of_write_back();
    });
  }
  std::erase(dead_, log);
}

}  // namespace nvcache::protocol
