// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/name_log.h"

#include <cstddef>

#include "src/nvlog/group_writer.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/through.h"

namespace nvcache::vfs {

using lease::FileEntry;
using lease::FileTable;
using pool::NameRecord;

void Clear(NameRecord* record) { __builtin_memset(record, 0, offsetof(NameRecord, text)); }

void KeepAttributes(const struct statx& st, NameRecord* record) {
  record->mode = st.stx_mode;
  record->uid = st.stx_uid;
  record->gid = st.stx_gid;
  record->access_seconds = st.stx_atime.tv_sec;
  record->access_nanoseconds = st.stx_atime.tv_nsec;
  record->change_seconds = st.stx_mtime.tv_sec;
  record->change_nanoseconds = st.stx_mtime.tv_nsec;
}

namespace {

// `may`: whether to commit, when something is pending already. The LSN, or 0.
template <typename May>
pool::Lsn Commit(const NameRecord& record, FileEntry* a, FileEntry* b, May may) {
  nvlog::GroupWriter writer(engine.log);
  if (writer.BeginName(record) != nvlog::Outcome::kDone) return 0;
  const nvlog::Lsn lsn = writer.Draw();
  if (a != nullptr) FileTable::Raise(a->lsn, lsn);
  if (b != nullptr) FileTable::Raise(b->lsn, lsn);
  if (!may()) return 0;
  writer.Commit();
  engine.checkpoint.NotePending();
  return lsn;
}

}  // namespace

pool::Lsn CommitName(const NameRecord& record, const NamesLock& lock, FileEntry* a, FileEntry* b) {
  return Commit(record, a, b, [&] { return lock.IsOwn(); });
}

// A call that goes past the log makes the file unknown, and then looks whether something is
// pending. So either it finds this record, and waits for it, or it is found here.
bool CommitAttributes(const NameRecord& record, const NamesLock& lock, FileEntry* entry,
                      const lease::Coverage& then) {
  const auto may = [&] { return lock.IsOwn() && FileTable::CoverageOf(*entry) == then; };
  return Commit(record, entry, nullptr, may) != 0;
}

uint64_t StampOf(const struct statx& st) {
  return StampOf({st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec}, st.stx_size);
}

uint64_t StampOf(const struct stat& st) {
  return StampOf(st.st_ctim, static_cast<uint64_t>(st.st_size));
}

void CarryCloseStamp(uint64_t tag, uint64_t before, uint64_t after) {
  FileEntry* entry = engine.file_table.Find(tag);
  if (entry != nullptr) entry->close_stamp.compare_exchange_strong(before, after);
}

void KeepNamed(const lease::Coverage& now, const NameRecord& record) {
  if (!now.known || now.tag == 0) return;
  sys::Scratch<NamedRecord> named;
  named->identity = record.file;
  named->file_system = record.file_system;
  if (pool::PathOfNamed(record, named->path) > 0) KeepRecentFile(now, *named);
}

}  // namespace nvcache::vfs
