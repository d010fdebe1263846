// SPDX-License-Identifier: BSD-3-Clause
#include "tests/names/recovery.h"

#include <algorithm>

namespace nvcache::names {

// ------------------------------------------------------------------------------------------- Fold

void Recovery::Give(Name name, File file) {
  last_[name] = file;
  known_[file].insert(name);
  gone_.erase(file);
}

void Recovery::Take(Name name, File file, bool gone) {
  last_[name] = kNoFile;
  if (gone || !keeps_("says-what-is-gone"_rule)) gone_.insert(file);
  removed_.insert({name, file});
  known_[file].insert(name);
}

void Recovery::Fold() {
  const Record* intent = nullptr;  // the last change of a name, if it is none yet
  for (const Record& record : pool_.records) {
    if (record.lsn < pool_.checkpoint) continue;
    if (IsOfNames(record)) intent = IsIntent(record) ? &record : nullptr;
    if (record.others && keeps_("says-of-others"_rule)) have_others_.insert(record.file);
    switch (record.kind) {
      case Kind::kData:
        versions_[record.file] = {record.version, record.lsn};
        break;
      case Kind::kSettled:
        incomplete_.insert(record.file);
        if (const auto data = versions_.find(record.file);
            data != versions_.end() && data->second.second < record.bound) {
          versions_.erase(data);
        }
        break;
      case Kind::kContinues:
        if (keeps_("continues-found"_rule)) now_[record.file] = record.other;
        break;
      default:
        if (!IsIntent(record)) FoldChange(record);
    }
  }
  if (intent != nullptr) FoldIntent(*intent);
}

// What was done, or announced.
void Recovery::FoldChange(const Record& record) {
  switch (record.kind) {
    case Kind::kCreated:
      born_.insert(record.file);
      Give(record.name, record.file);
      break;
    case Kind::kLinks:
    case Kind::kLinked:
      Give(record.name, record.file);
      if (keeps_("link-says-from-where"_rule)) known_[record.file].insert(record.from);
      break;
    case Kind::kRemoves:
    case Kind::kRemoved:
      Take(record.name, record.file, record.gone);
      break;
    case Kind::kRenames:
    case Kind::kRenamed:
      if (record.other != kNoFile) Take(record.name, record.other, record.gone);
      Take(record.from, record.file, false);
      Give(record.name, record.file);
      break;
    default:
      break;
  }
}

// The call may have been made, or not, or it has failed. Nobody can tell by the names, for the file
// system may have them as they were long before. So it is not done, and the names are as they were,
// unless that cannot be: the file that it destroys is nowhere, and cannot be made again.
void Recovery::FoldIntent(const Record& intent) {
  const bool removes = intent.kind == Kind::kRemoves;
  const File destroyed = removes ? intent.file : intent.other;
  if (!intent.gone && destroyed != kNoFile) have_others_.insert(destroyed);
  const File file = Found(intent.file);
  const bool has_name = removes || (file != kNoFile && fs_.At(intent.name) == file);
  bool done = has_name && destroyed != kNoFile && Found(destroyed) == kNoFile && Lacks(destroyed);
  if (!keeps_("intent-done-if-shown"_rule)) done = false;
  if (!keeps_("intent-not-done"_rule)) done = true;
  if (done) return FoldChange(intent);
  if (removes) return Give(intent.name, intent.file);
  Give(intent.from, intent.file);
  known_[intent.file].insert(intent.name);
  if (intent.kind == Kind::kLinks) return;
  removed_.insert({intent.name, intent.file});
  if (intent.other != kNoFile) Give(intent.name, intent.other);
}

// ------------------------------------------------------------------------------------------- Find

File Recovery::Found(File file) const {
  const auto now = now_.find(file);
  const File there = now != now_.end() ? now->second : file;
  return fs_.Exists(there) ? there : kNoFile;
}

File Recovery::OriginOf(File file) const {
  for (const auto& [origin, now] : now_) {
    if (now == file) return origin;
  }
  return file;
}

bool Recovery::WasRemoved(Name name, File occupant) const {
  return removed_.contains({name, OriginOf(occupant)});
}

// Nobody's file is there but one that the log removed.
bool Recovery::MayGive(Name name, File file) const {
  const File occupant = fs_.At(name);
  return occupant == kNoFile || occupant == Found(file) ||
         !keeps_("replaces-what-was-removed"_rule) ||
         (WasRemoved(name, occupant) && !IsLastName(name, true));
}

// Of a file that was not removed altogether.
bool Recovery::IsLastName(Name name, bool safe_ones_count) const {
  const File occupant = fs_.At(name);
  if (gone_.contains(OriginOf(occupant))) return false;
  const auto names = fs_.NamesOf(occupant);
  return std::none_of(names.begin(), names.end(), [&](Name other) {
    return other != name && (safe_ones_count || !IsSafeName(other));
  });
}

bool Recovery::IsPlaced(File file) const {
  const File there = Found(file);
  return there != kNoFile && std::any_of(last_.begin(), last_.end(), [&](const auto& entry) {
           return entry.second == file && fs_.At(entry.first) == there;
         });
}

// By somebody whom no log knows, and later.
bool Recovery::WasMoved(File file) const {
  if (!keeps_("stays-where-it-was-moved"_rule) || have_others_.contains(file)) return false;
  const auto names = fs_.NamesOf(Found(file));
  return std::none_of(names.begin(), names.end(), [&](Name name) {
    return IsSafeName(name) || known_.at(file).contains(name);
  });
}

bool Recovery::Lacks(File file) const {
  return keeps_("makes-what-is-whole"_rule) &&
         (!born_.contains(file) || incomplete_.contains(file));
}

// ------------------------------------------------------------------------------------------- Make

Task<void> Recovery::MakeLost() {
  const auto last = last_;
  for (const auto& [name, file] : last) {
    if (file == kNoFile || Found(file) != kNoFile) continue;
    if (Lacks(file) || !MayGive(name, file)) continue;
    co_await Make(file, name);
  }
}

// First under a safe name. Of an earlier recovery that has not come so far, something may be there.
Task<void> Recovery::Make(File file, Name name) {
  const bool in_order = keeps_("continues-before-name"_rule);
  const Name safe = SafeName(file, FolderOf(name));
  if (fs_.Remove(safe)) co_await Step{};
  const File made = fs_.Create(safe);
  co_await Step{};
  if (!in_order) {
    if (fs_.At(name) != kNoFile) fs_.Remove(name);
    fs_.Link(made, name);
    co_await Step{};
  }
  pool_.Commit({.kind = Kind::kContinues, .file = file, .other = made});
  now_[file] = made;
  co_await Step{};
}

// ------------------------------------------------------------------------------------------ Place

// Whatever happens to its other names.
Task<void> Recovery::Secure() {
  if (!keeps_("safe-name-first"_rule)) co_return;
  for (const auto& [name, file] : last_) {
    const File there = Found(file);
    if (there == kNoFile || fs_.At(name) == there || WasMoved(file)) continue;
    if (fs_.Link(there, SafeName(file, FolderOf(name)))) co_await Step{};
  }
}

Task<void> Recovery::Place() {
  for (const auto& [name, file] : last_) {
    const File there = Found(file);
    if (there == kNoFile || fs_.At(name) == there || WasMoved(file)) continue;
    if (!MayGive(name, file)) continue;
    if (fs_.Remove(name)) co_await Step{};
    fs_.Link(there, name);
    co_await Step{};
  }
  for (const auto& [name, file] : last_) {
    if (file == kNoFile || IsPlaced(file)) continue;
    if (Found(file) == kNoFile || !WasMoved(file)) unresolved_.insert(file);
  }
}

Task<void> Recovery::RemoveNames() {
  for (const auto& [name, file] : last_) {
    const File occupant = fs_.At(name);
    const bool is_free = file == kNoFile || (Found(file) != kNoFile && WasMoved(file));
    if (!is_free || occupant == kNoFile) continue;
    if (!WasRemoved(name, occupant) && keeps_("removes-what-was-removed"_rule)) continue;
    if (IsLastName(name, false) && keeps_("last-name-stays"_rule)) continue;
    fs_.Remove(name);
    co_await Step{};
  }
}

// -------------------------------------------------------------------------------- Write, and sync

Task<void> Recovery::Write() {
  for (const auto& [file, data] : versions_) {
    const File there = Found(file);
    if (there == kNoFile && !gone_.contains(file)) missed_.insert(file);
    if (there == kNoFile) continue;
    fs_.Write(there, data.first);
    co_await Step{};
  }
}

Task<void> Recovery::RemoveSafeNames() {
  for (Name name = kProgramNames; name < kNames; ++name) {
    const bool known = known_.contains(OriginOf(fs_.At(name)));  // or it was made in vain
    const bool stays = known && IsLastName(name, false);
    if (stays && keeps_("last-name-stays"_rule)) continue;
    if (fs_.Remove(name)) co_await Step{};
  }
}

Task<void> Recovery::Run() {
  Fold();
  co_await Secure();
  co_await MakeLost();
  co_await Place();
  co_await RemoveNames();
  co_await Write();
  co_await RemoveSafeNames();
  if (!unresolved_.empty()) {
    fs_.Sync();
    co_return;
  }
  if (keeps_("synced-before-freed"_rule)) {
    fs_.Sync();
    co_await Step{};
    pool_.MoveCheckpoint(pool_.newest + 1);
  } else {
    pool_.MoveCheckpoint(pool_.newest + 1);
    co_await Step{};
    fs_.Sync();
  }
}

}  // namespace nvcache::names
