// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/name_folders.h"

#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/through_file.h"
#include "src/vfs/name_log.h"

namespace nvcache::vfs {

namespace {

using lease::FileEntry;
using lease::FileTable;
using pool::NameRecord;

bool HoldOne(const Folder& folder) {
  FileEntry* entry = folder.entry();
  if (entry == nullptr) return false;
  const EntryLock lock(*entry);
  if (!folder.IsKnown() || !lock.IsOwn()) return false;
  FileTable::Raise(entry->lsn, engine.log.Draw());
  return true;
}

}  // namespace

// Each folder once.
template <typename Function>
void NameFolders::ForEach(Function function) {
  if (has_to_) function(to_);
  if (has_from_ && !from_.IsSame(to_)) function(from_);
}

// ----------------------------------------------------------------------------------------- Finding

NameFolders::NameFolders(bool changes) {
  if (!changes || (!engine.active() && !sys::IsSharing()) || !engine.leases.is_open()) return;
  if (engine.standing.asleep() && !sys::IsSharing()) const TableLock wakes;
  naming_ = true;
  engine.file_table.BeginNaming();
}

NameFolders::~NameFolders() {
  if (naming_ && engine.leases.is_open()) engine.file_table.EndNaming();
}

bool NameFolders::AreWanted() const { return naming_ && engine.file_table.HasFolders(); }

bool NameFolders::Find(int dirfd, const char* path, bool slashes) {
  has_to_ = AreWanted() && to_.Find(dirfd, path, slashes);
  if (has_to_) to_.BeginInFlight();
  return has_to_;
}

bool NameFolders::FindFrom(int dirfd, const char* path, bool slashes) {
  has_from_ = from_.Find(dirfd, path, slashes, has_to_ ? &to_ : nullptr);
  if (has_from_) from_.BeginInFlight();
  return has_from_;
}

void NameFolders::EndNaming() {
  if (!naming_ || !has_to_) return;
  engine.file_table.EndNaming();
  naming_ = false;
}

bool NameFolders::AnyEntry() const {
  return (has_to_ && to_.entry() != nullptr) || (has_from_ && from_.entry() != nullptr);
}

bool NameFolders::FitOneRecord() const {
  return has_to_ && (!has_from_ || from_.device() == to_.device());
}

uint32_t NameFolders::CountOwn(uint64_t tag) const {
  return static_cast<uint32_t>(to_.IsInFlightFor(tag)) +
         static_cast<uint32_t>(from_.IsInFlightFor(tag));
}

// ----------------------------------------------------------------------------------------- Logging

bool NameFolders::MakeKnown(bool opens) {
  if (!MakeOneKnown(to_) || (opens && !to_.OpenKept())) return false;
  if (!has_from_) return true;
  if (from_.IsSame(to_)) return from_.OpenAs(to_);
  return MakeOneKnown(from_) && from_.OpenKept();
}

bool NameFolders::Confirm(bool from_seen) {
  if (from_seen) from_.NoteConfirmed();
  if (!has_from_) return to_.Confirm();
  if (!from_.Confirm()) return false;
  if (from_.fd() == to_.fd()) to_.NoteConfirmed();
  return to_.Confirm();
}

bool NameFolders::Describe(const char* target, NameRecord* record) {
  sys::Scratch<char[pool::kMaxPath]> text;
  if (target != nullptr && CopyPath(text.get(), target, pool::kMaxPath) == 0) return false;
  sys::Scratch<NamedRecord> folder, other;
  const bool has_other = has_from_ && !from_.IsSame(to_);
  Clear(record);
  record->device = to_.device();
  if (!to_.Describe(folder.get()) || (has_other && !from_.Describe(other.get()))) return false;
  const NamedRecord& from = has_other ? *other : *folder;
  record->file_system = folder->file_system;
  record->folder = folder->identity;
  if (has_from_) record->from_folder = from.identity;
  size_t end = 0;
  const auto add = [&](auto length, const char* value) {
    return pool::AddText(record, length, value, &end);
  };
  return add(&NameRecord::name_length, to_.name()) &&
         add(&NameRecord::from_length, has_from_ ? from_.name() : "") &&
         add(&NameRecord::target_length, target != nullptr ? text.get() : "") &&
         add(&NameRecord::folder_path_length, folder->path) &&
         add(&NameRecord::from_folder_path_length, has_from_ ? from.path : "");
}

bool NameFolders::Hold() const { return HoldOne(to_) && (!has_from_ || HoldOne(from_)); }

// -------------------------------------------------------------------------------- Past the log

long NameFolders::Bypass() {
  long error = has_to_ ? to_.Bypass() : 0;
  if (has_from_ && error == 0) error = from_.Bypass();
  to_.DropDescriptor();
  from_.DropDescriptor();
  return error;
}

void NameFolders::SyncBypassed() {
  ForEach([this](Folder& folder) {
    if (folder.entry() == nullptr || MakeOneKnown(folder) || folder.Sync()) return;
    engine.checkpoint.EndPending();  // there is no descriptor left for it
  });
}

void NameFolders::NoteUnlogged() {
  if (!engine.leases.is_open()) return;
  ForEach([this](Folder& folder) {
    const FileTable& file_table = engine.file_table;
    if (file_table.WereUnloggedAwaited() && file_table.WarmUp(folder.tag()) && MakeOneKnown(folder))
      return;
    file_table.NoteUnlogged(folder.device());
  });
  // Meanwhile the first folder has become known.
  if (!has_to_ && !has_from_) engine.file_table.NoteUnlogged(0);
}

void NameFolders::EndInFlight() {
  to_.EndInFlight();
  from_.EndInFlight();
}

}  // namespace nvcache::vfs
