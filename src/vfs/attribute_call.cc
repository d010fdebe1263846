// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/attribute_call.h"

#include <fcntl.h>

#include "src/pool/identify.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/folder.h"
#include "src/vfs/lend.h"
#include "src/vfs/name_log.h"
#include "src/vfs/names.h"

namespace nvcache::vfs {

using lease::Coverage;
using lease::FileTable;
using pool::Deed;
using pool::NameRecord;

namespace {

bool FillFileSystem(int fd, NameRecord* record) {
  struct statfs fs = {};
  static_assert(sizeof(fs.f_fsid) == sizeof(record->file_system));
  if (sys::Fstatfs(fd, &fs) < 0) return false;
  __builtin_memcpy(&record->file_system, &fs.f_fsid, sizeof(record->file_system));
  return true;
}

// The time of a cached file is about to become another one, and no program outside has done it.
void NoteKernelChange(const struct stat& st) {
  if (!engine.active() || !engine.files.AnyInCaches()) return;
  const TableLock lock;
  if (File* file = engine.files.Find(st.st_dev, st.st_ino); file != nullptr) {
    const dramcache::KernelChange change(*file);
  }
}

}  // namespace

// No log knows anything of most files: the kernel is not asked about one that is known to be open.
AttributeCall::AttributeCall(int fd) : fd_(fd) {
  vfs::Publish(fd);
  if (!engine.active() || !engine.leases.is_open()) return;
  Access access;
  if (access.Enter(fd, Access::kData) == 0 && !access.cached()) {
    device_ = access.file().device;
    inode_ = access.file().inode;
    birth_ = access.file().birth;
  } else {
    access.Leave();
    if (Look()) NoteKernelChange(st_);
  }
}

AttributeCall::AttributeCall(int dirfd, const char* path, bool follow, bool own)
    : by_path_(true), dirfd_(dirfd), path_(path), follow_(follow) {
  sys::BornStat st;
  if (!own && unseen_.Begin()) return;
  if ((!engine.active() && !sys::IsSharing()) || !engine.leases.is_open()) return;
  if (sys::LookAt(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0) return;
  st_ = st;
  device_ = st.st_dev;
  inode_ = st.st_ino;
  birth_ = st.birth;
  if (S_ISREG(st.st_mode)) PublishInode(device_, inode_);
  NoteKernelChange(st_);
}

void AttributeCall::OpenPath() {
  if (!by_path_ || owns_fd_) return;
  const int flags = O_PATH | O_CLOEXEC | (follow_ ? 0 : O_NOFOLLOW);
  const long fd = sys::Openat(dirfd_, path_, flags);
  owns_fd_ = fd >= 0;
  fd_ = owns_fd_ ? static_cast<int>(fd) : -1;
}

AttributeCall::~AttributeCall() {
  if (owns_fd_) sys::Close(fd_);
}

bool AttributeCall::Look() {
  sys::BornStat st;
  if (sys::Look(fd_, &st) < 0) return false;
  st_ = st;
  device_ = st.st_dev;
  inode_ = st.st_ino;
  birth_ = st.birth;
  return true;
}

// A descriptor known to be open is a file's.
uint64_t AttributeCall::Tag() const {
  return lease::TagOf(device_, inode_, birth_, st_.st_ino != 0 ? st_.st_mode : S_IFREG);
}

long AttributeCall::Begin(uint32_t set) {
  set_ = set;
  if (inode_ == 0) return 0;
  if (engine.standing.asleep() && !sys::IsSharing()) const TableLock wakes;
  entry_ = in_flight_.Begin(Tag());
  if (entry_ == nullptr) return 0;
  if (st_.st_ino == 0 && (!Look() || Tag() != in_flight_.tag())) {
    in_flight_.End();  // the program has put something else there, unseen
    entry_ = st_.st_ino != 0 ? in_flight_.Begin(Tag()) : nullptr;
    if (entry_ == nullptr) return 0;
  }
  const Coverage now = FileTable::CoverageOf(*entry_);
  const bool may_log = now.known && set != 0;
  if (!may_log || !RecallNamed(now)) OpenPath();
  if (may_log && JoinPool(fd_, st_)) {
    Recall(now.bypasses);
    return 0;
  }
  OpenPath();
  if (engine.file_table.IsPending(*entry_)) JoinDevice(fd_, st_);
  entry_ = nullptr;
  return in_flight_.Bypass(-1);
}

// Recovery looks for the file by the path, where it has no right to use handles.
bool AttributeCall::AddPath(const char* path) {
  NameRecord& record = *record_;
  size_t end = 0;
  return pool::AddText(&record, &NameRecord::name_length, "", &end) &&
         pool::AddText(&record, &NameRecord::from_length, "", &end) &&
         pool::AddText(&record, &NameRecord::target_length, path, &end) &&
         pool::AddText(&record, &NameRecord::folder_path_length, "", &end) &&
         pool::AddText(&record, &NameRecord::from_folder_path_length, "", &end);
}

// The log's latest word on the program's file, if it still has that name. Before the call,
// which changes it.
void AttributeCall::Recall(uint64_t bypasses) {
  Access access;
  sys::Scratch<pool::FileRecord> said;
  if (owns_fd_ || access.Enter(fd_, Access::kData) != 0 || access.cached() ||
      access.file().bypasses_seen.load() != bypasses ||
      !CopyRecentRecord(access.file(), said.get()) || said->inode != st_.st_ino ||
      said->handle_size > pool::kMaxNameHandle) {
    return;
  }
  pool::Identity file = {};
  file.inode = said->inode;
  file.birth_seconds = said->birth_seconds;
  file.birth_nanoseconds = said->birth_nanoseconds;
  file.handle_type = said->handle_type;
  file.handle_size = said->handle_size;
  __builtin_memcpy(file.handle, said->handle, said->handle_size);
  Fill(file, said->file_system);
  if (AddPath(said->path)) recalled_ = bypasses;
}

void AttributeCall::Fill(const pool::Identity& file, uint64_t file_system) {
  Clear(record_.get());
  record_->file_system = file_system;
  record_->file = file;
}

// The same of a file that need not be open, by the program's path. It needs no descriptor then, for
// the pool is joined.
bool AttributeCall::RecallNamed(const Coverage& now) {
  sys::Scratch<NamedRecord> said;
  if (!by_path_ || !engine.checkpoint.IsOfFileSystem(device_) || !CopyRecentFile(now, said.get()) ||
      said->identity.inode != inode_) {
    return false;
  }
  Fill(said->identity, said->file_system);
  if (AddPath(said->path)) recalled_ = now.bypasses;
  return recalled_ == now.bypasses;
}

bool AttributeCall::Ask(struct statx* st) {
  sys::Scratch<char[pool::kMaxPath]> path;
  Clear(record_.get());
  return pool::IdentifyAt(fd_, "", &record_->file, st) == 0 && FillFileSystem(fd_, record_.get()) &&
         AddPath(ReadPath(fd_, st_.st_dev, st_.st_ino, path.get()) ? path.get() : "");
}

bool AttributeCall::LookAgain(struct statx* st) const {
  constexpr uint32_t kAll = STATX_BASIC_STATS | STATX_BTIME;
  if (fd_ >= 0 || !by_path_) return sys::Statx(fd_, "", AT_EMPTY_PATH, kAll, st) == 0;
  const int flags = follow_ ? 0 : AT_SYMLINK_NOFOLLOW;
  return sys::Statx(dirfd_, path_, flags, kAll, st) == 0 && sys::BirthOf(*st) == birth_;
}

bool AttributeCall::Identify(uint64_t bypasses, struct statx* st) {
  NameRecord& record = *record_;
  const bool has = recalled_ == bypasses ? LookAgain(st) : Ask(st);
  if (!has || sys::DeviceOf(*st) != st_.st_dev || st->stx_ino != st_.st_ino) return false;
  record.device = st_.st_dev;
  record.deed = Deed::kAttributes;
  record.set = set_;
  KeepAttributes(*st, &record);
  return true;
}

void KeepCoverage(int fd, const sys::BornStat& before) {
  sys::BornStat st;
  if (!engine.active() || !engine.leases.is_open()) return;
  const uint64_t tag = lease::TagOf(before);
  const lease::FileEntry* entry = engine.file_table.Find(tag);
  // A file that was written since has no stamp to be carried on.
  if (entry == nullptr || entry->close_stamp.load() != StampOf(before)) return;
  if (sys::Look(fd, &st) < 0) return;
  // A program without us has not written in between.
  if (st.st_mtim.tv_sec != before.st_mtim.tv_sec || st.st_mtim.tv_nsec != before.st_mtim.tv_nsec) {
    return;
  }
  CarryCloseStamp(tag, StampOf(before), StampOf(st));
}

// Bytes that are written after a mode was taken away do not come back with it; times protect
// nothing.
void AttributeCall::OweSync() const {
  const auto owe = [this](File& file) {
    file.changes.fetch_add(1);
    if (set_ != pool::kSetTimes) file.barriers.fetch_add(1);
  };
  if (by_path_) {
    if (!engine.attached() || !S_ISREG(st_.st_mode)) return;
    const TableLock lock;
    if (File* file = engine.files.Find(st_.st_dev, st_.st_ino); file != nullptr) owe(*file);
  } else {
    Access access;
    if (access.Enter(fd_, Access::kData) == 0) owe(access.file());
  }
}

void AttributeCall::End(bool done) {
  if (!done) return;
  LogChange();
  OweSync();
}

// The record has the attributes as they are now, under the lock: so the last one has the newest.
void AttributeCall::LogChange() {
  if (entry_ == nullptr) return;
  bool logged = false;
  {
    sys::InEngine inside;
    const NamesLock lock;
    const Coverage now = FileTable::CoverageOf(*entry_);
    struct statx st;
    logged = lock.can_log() && now.known && now.tag == in_flight_.tag() &&
             Identify(now.bypasses, &st) && CommitAttributes(*record_, lock, entry_, now);
    if (logged) CarryCloseStamp(in_flight_.tag(), StampOf(st_), StampOf(st));
  }
  if (!logged) in_flight_.Bypass(-1);
}

}  // namespace nvcache::vfs
