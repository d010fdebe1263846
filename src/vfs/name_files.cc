// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/name_files.h"

#include <errno.h>

#include "src/pool/mirror_words.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through_file.h"
#include "src/vfs/name_log.h"

namespace nvcache::vfs {

namespace {

using lease::Coverage;
using lease::FileEntry;
using lease::FileTable;

// A process that follows the file describes it anew: the log's path of it is old. A write of
// it that is under way has the entry's lock, so its LSN is below that of the new name.
void NoteMove(uint64_t tag) {
  FileEntry* entry = engine.file_table.Find(tag);
  if (entry == nullptr) return;
  const EntryLock lock(*entry);
  const Coverage now = FileTable::CoverageOf(*entry);
  if (now.tag == tag) {
    FileTable::Change(*entry, now, {tag, now.bypasses + 1, now.known, now.refused});
  }
}

// A file of our cache becomes write-through, with what it has in the log, so that it need not be
// drained (NameGuard). No lock.
void GiveBackCached(const struct stat& st) {
  if (!engine.files.AnyInCaches()) return;
  TableLock lock;
  File* file = engine.files.Find(st.st_dev, st.st_ino);
  if (file != nullptr && file->state.load() == State::kCached) GiveBack(*file);
}

bool IsOpenHere(const struct stat& st) {
  TableLock lock;
  return engine.files.Find(st.st_dev, st.st_ino) != nullptr;
}

// To be opened, a file has to be closed, and with that the program's record locks of it would go:
// of one that the program has open, the whole device is synced.
long SyncUnknown(const Folder& folder, const struct stat& st) {
  if (IsOpenHere(st)) return engine.checkpoint.SyncDevice(st.st_dev) ? 0 : -EIO;
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const long fd = sys::Openat(folder.fd(), folder.name(), kFlags);
  if (fd < 0) return fd;
  const long error = sys::Fsync(static_cast<int>(fd));
  OwnDescriptors::Return(static_cast<int>(fd));
  return error;
}

// Its birth counts in recovery, and all of its bytes are in the log since then.
bool IsMadeAgain(const FileEntry& entry) {
  const Coverage now = FileTable::CoverageOf(entry);
  const pool::Lsn born = now.known ? BirthOf(now.tag) : 0;
  return born != 0 && born >= engine.pool().through_checkpoint() && entry.settled.load() <= born;
}

// The journal has all that is below.
pool::Lsn Mirrored() { return pool::MirrorWords(engine.pool().view()).mirrored(); }

}  // namespace

NameFiles::~NameFiles() {
  if (loser_fd_ >= 0) sys::Close(loser_fd_);
}

void NameFiles::Gets(const struct statx& st) { named_ = {lease::TagOf(st), StampOf(st)}; }

void NameFiles::LosesLast(const struct statx& st) { gone_tag_ = lease::TagOf(st); }

void NameFiles::LosesOne(const Folder& folder, const struct statx& st) {
  const long fd = sys::Openat(folder.fd(), folder.name(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  loser_fd_ = fd >= 0 ? static_cast<int>(fd) : -1;
  loser_ = {lease::TagOf(st), StampOf(st)};
}

bool NameFiles::IsInJournal() const {
  const FileEntry* entry = engine.file_table.Find(named_.tag);
  return entry != nullptr && IsMadeAgain(*entry) && entry->lsn.load() < Mirrored();
}

bool NameFiles::MayTakeRemovedName() const {
  const FileEntry* entry = engine.file_table.Find(named_.tag);
  return (entry == nullptr || !IsMadeAgain(*entry)) && engine.file_table.removed() >= Mirrored();
}

bool NameFiles::IsLastOfPending() const {
  const FileEntry* entry = engine.file_table.Find(gone_tag_);
  return entry != nullptr && engine.file_table.IsPending(*entry);
}

bool NameFiles::MayMiss() const {
  for (const uint64_t tag : {named_.tag, gone_tag_, loser_.tag}) {
    const FileEntry* entry = engine.file_table.Find(tag);
    if (entry != nullptr && engine.file_table.IsPending(*entry) && !IsMadeAgain(*entry)) {
      return true;
    }
  }
  return false;
}

void NameFiles::NoteNew() const {
  FileEntry* entry = engine.file_table.Find(named_.tag);
  if (entry == nullptr) return;
  FileTable::Forget(*entry);
  entry->close_stamp.store(named_.stamp);
}

void NameFiles::NoteLost() const {
  if (gone_tag_ != 0) ForgetGone(gone_tag_);
  if (loser_fd_ < 0) return;
  NoteMove(loser_.tag);
  struct stat st;
  if (sys::Fstat(loser_fd_, &st) == 0) CarryCloseStamp(loser_.tag, loser_.stamp, StampOf(st));
}

bool NameFiles::NoteMoved(const Folder& folder, uint64_t inode) const {
  NoteMove(named_.tag);
  struct stat st;
  if (sys::Fstatat(folder.fd(), folder.name(), &st, AT_SYMLINK_NOFOLLOW) < 0) return false;
  if (st.st_ino != inode) return false;
  CarryCloseStamp(named_.tag, named_.stamp, StampOf(st));
  return true;
}

// A write of it that is under way has the entry's lock, so its LSN is below that of the removal.
void ForgetGone(uint64_t tag) {
  FileEntry* entry = engine.file_table.Find(tag);
  if (entry == nullptr) return;
  const EntryLock lock(*entry);
  if (FileTable::CoverageOf(*entry).tag == tag) FileTable::Forget(*entry);
}

bool CanMoveFolder(int dirfd, const char* name, uint64_t tag) {
  const FileEntry* entry = engine.file_table.Find(tag);
  return entry != nullptr && FileTable::CoverageOf(*entry).known && IsEmptyFolder(dirfd, name);
}

bool SecureBytes(const Folder& folder, const sys::BornStat& st) {
  const uint64_t tag = lease::TagOf(st);
  if (S_ISDIR(st.st_mode)) return CanMoveFolder(folder.fd(), folder.name(), tag);
  if (!S_ISREG(st.st_mode)) return true;
  GiveBackCached(st);
  const FileEntry* entry = engine.file_table.Find(tag);
  if (entry != nullptr && FileTable::CoverageOf(*entry).known) return true;
  if (SyncUnknown(folder, st) < 0) return false;
  if (entry != nullptr && engine.file_table.IsPending(*entry)) engine.checkpoint.EndPending();
  return entry == nullptr || !engine.file_table.IsPending(*entry);
}

}  // namespace nvcache::vfs
