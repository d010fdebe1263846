// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/births.h"

#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"
#include "src/vfs/folder.h"
#include "src/vfs/name_log.h"

namespace nvcache::vfs {

namespace {

using lease::Coverage;
using lease::FileEntry;
using lease::FileTable;
using pool::NameRecord;

uint64_t TagOfCreated(const NameRecord& record) {
  constexpr uint64_t kNsOfSecond = 1000 * 1000 * 1000;
  const pool::Identity& file = record.file;
  const uint64_t birth =
      static_cast<uint64_t>(file.birth_seconds) * kNsOfSecond + file.birth_nanoseconds;
  return lease::TagOf(record.device, file.inode, birth, S_IFREG);
}

bool MayBeWrittenUnseen(const File& file) {
  return engine.file_table.AnybodyInFlight(TagOf(file), file.device, file.inode) ||
         engine.leases.IsHandedOn(file.device, file.inode);
}

}  // namespace

// A process that has written to it before it has the tag has left some bytes there; one that is at
// it still is in flight.
void BeginKnown(int fd, const NameRecord* record, pool::Lsn born) {
  sys::BornStat st;
  if (record == nullptr && sys::Look(fd, &st) < 0) return;
  const uint64_t tag = record != nullptr ? TagOfCreated(*record) : lease::TagOf(st);
  FileEntry& entry = engine.file_table.At(tag);
  if (!GetTag(entry, tag)) {
    engine.checkpoint.EndPending();  // of another file, which has it
    if (!GetTag(entry, tag)) return;
  }
  Access access;
  if (access.Enter(fd, Access::kData) != 0 || access.cached()) return;
  File& file = access.file();
  if (TagOf(file) != tag) return;
  const uint32_t changes = file.changes.load();
  const Coverage then = FileTable::CoverageOf(entry);
  if (then.tag != tag || MayBeWrittenUnseen(file)) return;
  if (sys::Fstat(fd, &st) < 0 || st.st_size != 0) return;
  if (!FileTable::Change(entry, then, {tag, then.bypasses, true})) return;
  if (record != nullptr) {
    KeepNamed({tag, then.bypasses, true}, *record);
    KeepBirth(tag, born);
  }
  sys::Scratch<pool::FileRecord> said;
  if (record != nullptr && pool::DescribeMade(*record, said.get())) {
    file.bypasses_seen.store(then.bypasses);
    KeepRecentRecord(file, changes, *said);
  }
  access.Leave();
  TableLock lock;
  const Description* description = engine.descriptors.Of(fd);
  if (IsDescription(description)) engine.files.SayOpen(*description->file.load());
}

void BeginKnownFolder(int dirfd, const char* name, uint64_t tag, uint32_t own) {
  FileEntry& entry = engine.file_table.At(tag);
  if (!engine.file_table.SetTag(entry, tag)) return;
  const Coverage then = FileTable::CoverageOf(entry);
  if (then.tag != tag || !engine.file_table.AwaitNaming()) return;
  if (engine.file_table.AnybodyChanges(tag, own)) return;
  if (IsEmptyFolder(dirfd, name)) FileTable::Change(entry, then, {tag, then.bypasses, true});
}

void BeginKnownLink(const NameRecord& record, uint64_t tag, uint64_t stamp) {
  FileEntry& entry = engine.file_table.At(tag);
  if (!engine.file_table.SetTag(entry, tag)) return;
  const Coverage then = FileTable::CoverageOf(entry);
  if (then.tag != tag || engine.file_table.AnybodyInFlight(tag, record.device, record.file.inode)) {
    return;
  }
  if (FileTable::Change(entry, then, {tag, then.bypasses, true})) entry.close_stamp.store(stamp);
}

void SyncElsewhere(int fd) {
  sys::Scratch<char[pool::kMaxPath]> path;
  struct stat st;
  Folder folder;
  if (sys::Fstat(fd, &st) < 0 || !ReadPath(fd, st.st_dev, st.st_ino, path.get()) ||
      !folder.Find(AT_FDCWD, path.get(), false)) {
    return engine.file_table.NoteUnlogged(0);  // wherever it is
  }
  folder.BeginInFlight();
  if (folder.entry() == nullptr) return engine.file_table.NoteUnlogged(folder.device());
  folder.Bypass();
  if (!folder.MakeKnown(1) && !folder.Sync()) engine.file_table.NoteUnlogged(0);
}

}  // namespace nvcache::vfs
