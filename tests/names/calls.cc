// SPDX-License-Identifier: BSD-3-Clause
//
// What a process does. Two steps of it, others can come in between.
#include <algorithm>
#include <iterator>

#include "tests/names/run.h"

namespace nvcache::names {

namespace {

constexpr unsigned kCalls = 6;    // of each process
constexpr unsigned kDawdle = 40;  // steps

}  // namespace

Task<void> Run::Program(int self) {
  for (unsigned call = 0; call < kCalls; ++call) {
    co_await Step{};
    co_await Do(self, AnyAct());
  }
}

Task<void> Run::Scripted(int self) {
  for (const Act& act : *script_) {
    ++begun_;
    co_await Step{};
    co_await Do(self, act);
  }
}

Act Run::AnyAct() {
  constexpr What kOften[] = {What::kCreate,    What::kCreate, What::kCreate, What::kRemove,
                             What::kRemove,    What::kRename, What::kRename, What::kRename,
                             What::kRename,    What::kLink,   What::kWrite,  What::kWrite,
                             What::kWritePast, What::kFsync,  What::kFsync,  What::kMoveCheckpoint,
                             What::kWriteOpen};
  const What what = kOften[random_() % std::size(kOften)];
  const Name name = AnyName(), to = AnyName();
  return {what, name, to, (what == What::kRemove || what == What::kRename) && OneIn(8)};
}

Task<void> Run::Do(int self, Act act) {
  switch (act.what) {
    case What::kWrite:
    case What::kWritePast:
      open_[Index(self)] = fs_.At(act.name);
      co_await Write(self, fs_.At(act.name), act.what == What::kWrite);
      break;
    case What::kWriteOpen:
      co_await Write(self, open_[Index(self)], true);
      break;
    case What::kFsync:
      co_await Fsync(self, act.name);
      break;
    case What::kMoveCheckpoint:
      co_await MoveCheckpoint(self);
      break;
    default:
      co_await Change(self, act);
  }
}

// ---------------------------------------------------------------------------------------- The lock

Task<void> Run::TakeLock(int self) {
  while (owner_ != kNobody) {
    const bool dead = processes_[Index(owner_)].dead;
    if (!dead && !IsStopped(owner_)) {
      co_await Step{};
      continue;
    }
    Note(std::to_string(self), "takes the lock from " + std::to_string(owner_));
    if (!dead) late_.insert(owner_);
    owner_ = self;
    // Of any file, the other one may have taken the last name.
    if (Keeps("removed-is-unknown"_rule)) {
      known_.fill(false);
      for (int& past : past_log_) ++past;
    }
    if (Keeps("thief-syncs"_rule)) co_await PassCheckpoint(self);
    break;
  }
  if (owner_ == kNobody) owner_ = self;
  const auto is_dead = [&](int other) { return processes_[Index(other)].dead; };
  if (std::none_of(late_.begin(), late_.end(), is_dead)) co_return;
  if (Keeps("death-of-the-late-syncs"_rule)) co_await PassCheckpoint(self);
  std::erase_if(late_, is_dead);
}

void Run::ReleaseLock(int self) {
  if (owner_ == self) owner_ = kNobody;
}

// ---------------------------------------------------------------------------------- The checkpoint

Task<void> Run::MoveCheckpoint(int self) {
  if (Keeps("checkpoint-under-lock"_rule)) co_await TakeLock(self);
  co_await PassCheckpoint(self);
  ReleaseLock(self);
}

// With the lock, as it begins.
Task<void> Run::PassCheckpoint(int self) {
  Lsn checkpoint = pool_.newest + 1;
  co_await Step{};
  fs_.Sync();
  const size_t state = states_.size() - 1;
  const uint64_t time = steps_;
  Note(std::to_string(self), "syncs all");
  co_await Step{};
  if (!Keeps("checkpoint-before-sync"_rule)) checkpoint = pool_.newest + 1;
  pool_.MoveCheckpoint(checkpoint);
  Promise(state);
  const auto is_synced = [&](const auto& touched) { return touched.second <= time; };
  std::erase_if(touched_files_, is_synced);
  std::erase_if(touched_names_, is_synced);
  co_await Step{};
}

// --------------------------------------------------------------------------------------- Changes

void Run::Announce(const Deed& deed) {
  const size_t names = fs_.NamesOf(deed.file).size();
  if (deed.act.what == What::kRemove) {
    pool_.Commit({.kind = Kind::kRemoves,
                  .file = deed.file,
                  .name = deed.act.name,
                  .gone = names == 1,
                  .others = names > 1});
  } else {
    pool_.Commit({.kind = deed.act.what == What::kLink ? Kind::kLinks : Kind::kRenames,
                  .file = deed.file,
                  .name = deed.act.to,
                  .from = deed.act.name,
                  .other = Keeps("intent-says-what"_rule) ? deed.other : kNoFile,
                  .gone = fs_.NamesOf(deed.other).size() == 1,
                  .others = names > 1});
  }
}

bool Run::Call(const Deed& deed) {
  if (deed.act.refused) return false;
  switch (deed.act.what) {
    case What::kCreate:
      return fs_.Create(deed.act.name) != kNoFile;
    case What::kRemove:
      return fs_.Remove(deed.act.name);
    case What::kRename:
      return fs_.Rename(deed.act.name, deed.act.to);
    case What::kLink:
      return fs_.Link(fs_.At(deed.act.name), deed.act.to);
    default:
      return false;
  }
}

void Run::Commit(const Deed& deed) {
  const size_t names = fs_.NamesOf(deed.file).size();
  switch (deed.act.what) {
    case What::kCreate:
      pool_.Commit({.kind = Kind::kCreated, .file = deed.file, .name = deed.act.name});
      break;
    case What::kRemove:
      pool_.Commit(
          {.kind = Kind::kRemoved, .file = deed.file, .name = deed.act.name, .gone = names == 0});
      break;
    case What::kRename:
      pool_.Commit({.kind = Kind::kRenamed,
                    .file = deed.file,
                    .name = deed.act.to,
                    .from = deed.act.name,
                    .other = Keeps("intent-says-what"_rule) ? deed.other : kNoFile,
                    .gone = !fs_.Exists(deed.other),
                    .others = names > 1});
      break;
    case What::kLink:
      pool_.Commit({.kind = Kind::kLinked,
                    .file = deed.file,
                    .name = deed.act.to,
                    .from = deed.act.name,
                    .others = names > 2});
      break;
    default:
      break;
  }
}

Task<void> Run::Change(int self, Act act) {
  co_await TakeLock(self);
  if (IsPossible(Now(), act)) {
    const Deed deed = Plan(act);
    if (co_await MakeKnown(self, deed)) {
      if (!deed.logs) ++unlogged_;
      co_await Carry(self, deed);
      if (!deed.logs) --unlogged_;
    }
  }
  late_.erase(self);
  ReleaseLock(self);
}

Run::Deed Run::Plan(const Act& act) const {
  Deed deed = {act, fs_.At(act.name)};
  if (act.what == What::kRename) deed.other = fs_.At(act.to);
  deed.destroys = act.what == What::kRemove || deed.other != kNoFile;
  deed.spreads = act.what == What::kRename || act.what == What::kLink;
  deed.logs = late_.empty() || !Keeps("syncs-beside-the-late"_rule);
  deed.version = fs_.Version(deed.file);
  return deed;
}

// All bytes of the file that gets another name. False: somebody has come in between; begin anew.
Task<bool> Run::MakeKnown(int self, const Deed& deed) {
  if (!deed.spreads || known_[Index(deed.file)] || !Keeps("known-before-name"_rule)) co_return true;
  co_await Settle(self, deed.file);
  // Of whoever breaks a rule: what comes of it would be rare otherwise.
  const unsigned dawdles = Keeps("looked-at-before-intent"_rule) ? 0 : kDawdle;
  for (unsigned i = 0; i < dawdles && HasLock(self); ++i) co_await Step{};
  if (!HasLock(self) && Keeps("looked-at-before-intent"_rule)) co_return false;
  co_return fs_.At(deed.act.name) == deed.file &&
      (deed.act.what == What::kLink ? fs_.At(deed.act.to) == kNoFile
                                    : fs_.At(deed.act.to) == deed.other);
}

// Of whoever breaks the rule: what comes of it would be rare otherwise.
template <typename Condition>
Task<void> Run::DawdleWhile(Condition condition) {
  const unsigned dawdles = Keeps("settled-has-name"_rule) ? 0 : kDawdle;
  for (unsigned i = 0; i < dawdles && condition(); ++i) co_await Step{};
}

Task<void> Run::Carry(int self, Deed deed) {
  const Rule announces = deed.destroys ? "intent-first"_rule : "others-are-announced"_rule;
  const bool announced = deed.act.what != What::kCreate && Keeps(announces);
  if (deed.logs && announced && HasLock(self)) Announce(deed);
  deed.early = deed.act.what == What::kLink && !Keeps("logged-after-call"_rule);
  if (deed.logs && deed.early) Commit(deed);
  co_await Step{};
  const File moved = fs_.At(deed.act.name), replaced = deed.spreads ? fs_.At(deed.act.to) : kNoFile;
  const bool done = Call(deed);
  Note(std::to_string(self), done ? "the call is made" : "the call fails");
  if (!done) co_return;
  const size_t state = states_.size();
  Happened();
  if (deed.act.what == What::kCreate) deed.file = fs_.At(deed.act.name);
  co_await Step{};
  for (const File file : {deed.file, deed.other}) ForgetGone(file);
  // Who has lost the lock may have met others than it looked up.
  if (moved != deed.file) removed_unseen_.insert(moved);
  if (replaced != deed.other) removed_unseen_.insert(replaced);
  co_await DawdleWhile([&] { return replaced != kNoFile && !fs_.Exists(replaced); });
  // By looking at the new name, and at how many names each file has now.
  const bool as_said = deed.act.what == What::kCreate ||
                       (moved == deed.file && replaced == deed.other) || !Keeps("as-said"_rule);
  const bool late = !HasLock(self);
  const bool commits = deed.logs && as_said && !(late && Keeps("locked-before-commit"_rule));
  if (commits) {
    End(deed, replaced, state);
  } else if (!late) {
    co_await PassCheckpoint(self);
  } else if (Keeps("late-owner-syncs"_rule)) {
    co_await MoveCheckpoint(self);
  } else {
    Promise(state);
  }
}

void Run::ForgetGone(File file) {
  if (file == kNoFile || fs_.Exists(file) || !Keeps("removed-is-unknown"_rule)) return;
  known_[Index(file)] = false;
  ++past_log_[Index(file)];
}

void Run::End(const Deed& deed, File replaced, size_t state) {
  const bool announced_only = deed.destroys && !Keeps("outcome-committed"_rule);
  if (!deed.early && !announced_only) Commit(deed);
  const size_t file = Index(deed.file);
  // Unless somebody has written to it meanwhile.
  const bool unwritten = past_log_[file] == 0 || !Keeps("known-if-unwritten"_rule);
  if (deed.act.what == What::kCreate && unwritten) known_[file] = true;
  if (deed.spreads) promised_bytes_[file] = std::max(promised_bytes_[file], deed.version);
  if (replaced != kNoFile && !fs_.Exists(replaced)) replaced_.insert({deed.act.to, replaced});
  Promise(state);
}

// ------------------------------------------------------------------------------------------ Bytes

// That calls which write take a lock of the file is for tests/protocol.
Task<void> Run::Write(int self, File file, bool logged) {
  if (file == kNoFile) co_return;
  if (!logged) known_[Index(file)] = false;
  // Recovery would lay a group that still counts over what goes past the log.
  while (!known_[Index(file)] && pool_.IsPending(file)) {
    co_await Settle(self, file);
    if (!logged) known_[Index(file)] = false;
  }
  fs_.Write(file, ++last_version_);
  Note(std::to_string(self), "writes");
  if (!known_[Index(file)]) ++past_log_[Index(file)];
  if (known_[Index(file)]) {
    pool_.Commit({.kind = Kind::kData, .file = file, .version = last_version_});
    PromiseBytes(file);
  }
  co_await Step{};
}

Task<void> Run::Settle(int self, File file) {
  const Lsn bound = pool_.Draw();
  const int past_log = past_log_[Index(file)];
  co_await Step{};
  if (!HasLock(self)) co_await DawdleWhile([&] { return fs_.Exists(file); });
  fs_.SyncFile(file);
  const int version = fs_.Version(file);
  const bool has_name = fs_.Exists(file) || !Keeps("settled-has-name"_rule);
  Note(std::to_string(self), "syncs a file");
  co_await Step{};
  if (!has_name && !HasLock(self)) {
    co_await TakeLock(self);
    ReleaseLock(self);
  }
  pool_.Commit({.kind = Kind::kSettled, .file = file, .bound = bound});
  const bool may_be_known = fs_.Exists(file) || !Keeps("removed-is-unknown"_rule);
  known_[Index(file)] = known_[Index(file)] || (may_be_known && past_log == past_log_[Index(file)]);
  promised_bytes_[Index(file)] = std::max(promised_bytes_[Index(file)], version);
}

// Of the file, and of its folder.
Task<void> Run::Fsync(int self, Name name) {
  if (Keeps("fsync-under-lock"_rule)) co_await TakeLock(self);
  const File file = fs_.At(name);
  const size_t state = states_.size() - 1;
  const bool real = !late_.empty() && Keeps("syncs-beside-the-late"_rule);
  if (real) co_await PassCheckpoint(self);
  ReleaseLock(self);
  if (file != kNoFile && !known_[Index(file)]) co_await Settle(self, file);
  if (file != kNoFile && known_[Index(file)]) PromiseBytes(file);
  if (!real) Promise(state);
}

}  // namespace nvcache::names
