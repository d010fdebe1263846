// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/folder.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "src/pool/identify.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/root.h"
#include "src/sys/user_copy.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/names_lock.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

namespace {

using lease::Coverage;
using lease::FileEntry;
using lease::FileTable;

// Somebody was at a call of the same class.
constexpr uint64_t kAgainNs = 50 * 1000;

// Whether the process may log names. One that may not says so.
bool AdmitNames() {
  if (engine.standing.MayLogNames()) return true;
  engine.process.LackNames();
  return false;
}

bool IsDots(const char* name) { return sys::Equal(name, ".") || sys::Equal(name, ".."); }

}  // namespace

bool ReadPath(int fd, char* path) {
  const long n = sys::ReadLinkTo(fd, path, pool::kMaxPath - 1);
  if (n <= 0 || path[0] != '/') return false;
  path[n] = '\0';
  return true;
}

bool ReadPath(int fd, uint64_t device, uint64_t inode, char* path) {
  struct stat st;
  return ReadPath(fd, path) && sys::Fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         st.st_dev == device && st.st_ino == inode;
}

bool JoinPool(int fd) {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && JoinPool(fd, st);
}

bool JoinPool(int fd, const struct stat& st) {
  return engine.settings.names && engine.settings.write_back == settings::WriteBack::kAuto &&
         JoinDevice(fd, st);
}

bool JoinDevice(int fd) {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && JoinDevice(fd, st);
}

bool JoinDevice(int fd, const struct stat& st) {
  if (sys::IsSharing() || !engine.callers.Know()) return false;
  TableLock lock;
  // A program that may not make such a file now may later: it is no reason to say anything.
  if (!engine.attached() && sys::SoftLimit(RLIMIT_FSIZE) < engine.settings.size) return false;
  return engine.active() && engine.attachment.Attach() && engine.checkpoint.UseFileSystem(fd, st);
}

// Page by page: the page behind it may not be there.
size_t CopyPath(char* to, const char* path, size_t size) {
  for (size_t n = 0; n < size;) {
    const size_t in_page =
        pool::kPageSize - reinterpret_cast<uintptr_t>(path + n) % pool::kPageSize;
    const size_t wanted = std::min(in_page, size - n);
    const size_t copied = sys::CopyFromUser(to + n, path + n, wanted);
    const char* end = std::find(to + n, to + n + copied, '\0');
    if (end != to + n + copied) return static_cast<size_t>(end - to);
    if (copied < wanted) return 0;
    n += copied;
  }
  return 0;
}

bool IsEmptyFolder(int dirfd, const char* name) {
  const long fd = sys::Openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  uint8_t entries[128];
  constexpr long kNoOthers = 48;  // as getdents64 has the two
  const long n = sys::Call(SYS_getdents64, fd, sys::Address(entries), long{sizeof(entries)});
  OwnDescriptors::Return(static_cast<int>(fd));
  return n >= 0 && n <= kNoOthers;
}

// ----------------------------------------------------------------------------------------- Folder

Folder::~Folder() {
  EndInFlight();
  DropDescriptor();
}

void Folder::BeginInFlight() {
  in_flight_ = true;
  engine.file_table.BeginInFlight(tag_);
}

bool Folder::IsInFlightFor(uint64_t tag) const {
  return in_flight_ && engine.file_table.AreOneClass(tag_, tag);
}

void Folder::EndInFlight() {
  if (in_flight_ && engine.leases.is_open()) engine.file_table.EndInFlight(tag_);
  in_flight_ = false;
}

void Folder::Take(const sys::BornStat& st) {
  device_ = st.st_dev;
  inode_ = st.st_ino;
  birth_ = st.birth;
  mount_ = st.mount;
  tag_ = lease::TagOf(st);
}

bool Folder::Look(int dirfd, const char* path, const Folder* beside) {
  if (beside != nullptr && beside->dirfd_ == dirfd && sys::Equal(beside->parent(), path)) {
    device_ = beside->device_;
    inode_ = beside->inode_;
    birth_ = beside->birth_;
    mount_ = beside->mount_;
    tag_ = beside->tag_;
    return true;
  }
  sys::BornStat st;
  if (sys::LookAt(dirfd, path, &st, 0) < 0 || !S_ISDIR(st.st_mode)) return false;
  Take(st);
  return true;
}

bool Folder::Find(int dirfd, const char* path, bool slashes, const Folder* beside) {
  char* copy = path_.get();
  size_t end = CopyPath(copy, path, kLongestPath);
  while (slashes && end > 1 && copy[end - 1] == '/') copy[--end] = '\0';
  size_t begin = end;
  while (begin > 0 && copy[begin - 1] != '/') --begin;
  name_ = copy + begin;
  if (end == begin || end - begin > pool::kMaxName || IsDots(name_)) return false;
  dirfd_ = dirfd;
  if (begin == 0) return Look(dirfd, parent(), beside);
  // "/name" is in "/"; else the slash ends the folder's path.
  if (begin > 1) {
    copy[begin - 1] = '\0';
    parent_ = copy;
  } else {
    parent_ = "/";
  }
  return Look(dirfd, parent(), beside);
}

bool Folder::FindOpen(int fd, const sys::BornStat& st) {
  if ((sys::Fcntl(fd, F_GETFL) & O_PATH) != 0) return false;
  fd_ = fd;
  confirmed_ = true;
  Take(st);
  return true;
}

bool Folder::OpenKept() {
  if (fd_ >= 0) return true;
  kept_ = engine.kept_folders.Take(key());
  if (kept_ == KeptFolders::kNone) return Open();
  fd_ = engine.kept_folders.fd(kept_);
  return true;
}

bool Folder::Confirm() {
  sys::BornStat st;
  confirmed_ = confirmed_ || (fd_ >= 0 && sys::Look(fd_, &st) == 0 && st.st_dev == device_ &&
                              st.st_ino == inode_ && st.birth == birth_);
  if (!confirmed_ && kept_ != KeptFolders::kNone) engine.kept_folders.Forget(kept_);
  return confirmed_;
}

// A copy of it may be kept, for the next call.
bool Folder::Open() {
  if (fd_ >= 0 && Confirm()) return true;
  DropDescriptor();
  const long fd = sys::Openat(dirfd_, parent(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  fd_ = static_cast<int>(fd);
  owns_fd_ = true;
  if (!Confirm()) return false;
  const PoolPin pin;
  if (pin.ok() && IsKnown()) kept_ = engine.kept_folders.Offer(key(), fd_);
  return true;
}

void Folder::DropDescriptor() {
  if (owns_fd_) sys::Close(fd_);
  if (kept_ != KeptFolders::kNone) engine.kept_folders.Release(kept_);
  kept_ = KeptFolders::kNone;
  fd_ = -1;
  owns_fd_ = confirmed_ = false;
}

FileEntry* Folder::entry() const { return engine.file_table.Find(tag_); }

bool Folder::IsKnown() const {
  const FileEntry* entry = this->entry();
  if (entry == nullptr) return false;
  const Coverage now = FileTable::CoverageOf(*entry);
  return now.tag == tag_ && now.known;
}

bool Folder::OpenAs(const Folder& other) {
  if (device_ != other.device_ || inode_ != other.inode_ || birth_ != other.birth_) {
    return OpenKept();
  }
  if (fd_ < 0) fd_ = other.fd_;
  return fd_ >= 0;
}

bool Folder::Describe(NamedRecord* record) {
  const FileEntry* entry = this->entry();
  const Coverage now = entry != nullptr ? FileTable::CoverageOf(*entry) : Coverage{};
  if (CopyRecentFolder(now, record) && record->identity.inode == inode_) return true;
  struct statfs fs = {};
  static_assert(sizeof(fs.f_fsid) == sizeof(record->file_system));
  if (!Open() || !AdmitNames() || sys::Fstatfs(fd_, &fs) < 0 ||
      pool::Identify(fd_, &record->identity) < 0 ||
      (record->identity.handle_size == 0 && !sys::AtMachineRoot()) ||
      !ReadPath(fd_, device_, inode_, record->path)) {
    return false;
  }
  __builtin_memcpy(&record->file_system, &fs.f_fsid, sizeof(record->file_system));
  KeepRecentFolder(now, *record);
  return true;
}

bool Folder::MakeKnown(uint32_t own) {
  if (sys::IsSharing() || tag_ == 0 || engine.turns.with_outsider()) return false;
  if (engine.checkpoint.IsOfFileSystem(device_) && IsKnown()) return true;
  if (!Open() || !AdmitNames() || !JoinPool(fd_)) return false;
  constexpr int kAttempts = 3;
  for (int i = 0; i < kAttempts; ++i) {
    if (IsKnown() || SyncToKnow(own)) return true;
    sys::Word word{0};
    sys::FutexWait(&word, 0, kAgainNs);
  }
  return false;
}

// A process that changes a name without having seen the tag is in flight still when it is asked who
// is; the sync comes after that, and covers the calls that are over. A process that sees the tag
// makes the folder unknown.
bool Folder::SyncToKnow(uint32_t own) {
  engine.file_table.NoteFolder(device_);
  FileEntry& entry = engine.file_table.At(tag_);
  const bool tagged = GetTag(entry, tag_);
  const Coverage then = FileTable::CoverageOf(entry);
  const bool alone = tagged && then.tag == tag_ && engine.file_table.AwaitNaming() &&
                     !engine.file_table.AnybodyChanges(tag_, own);
  return alone && EndPending(entry) == 0 && Sync() && !engine.file_table.IsPending(entry) &&
         FileTable::Change(entry, then, {tag_, then.bypasses, true});
}

bool Folder::Sync() {
  if (!Open()) return false;
  const long fd = sys::Openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const long error = sys::Fsync(static_cast<int>(fd));
  OwnDescriptors::Return(static_cast<int>(fd));
  return error == 0;
}

// Under the lock, so that no logged change of it is on its way.
long Folder::Bypass() {
  FileEntry* entry = this->entry();
  if (entry == nullptr) return 0;
  const uint64_t lock = engine.file_table.LockNames();
  if (FileTable::CoverageOf(*entry).tag == tag_) FileTable::Forget(*entry);
  engine.file_table.UnlockNames(lock);
  // Else no living process may be there to move the checkpoint.
  if (engine.file_table.IsPending(*entry) && Open()) JoinDevice(fd_);
  return EndPending(*entry);
}

// ---------------------------------------------------------------------------------------- Syncing

long SyncFolder(int fd) {
  if (!engine.active() || !SeesPaths() || !engine.settings.names || !engine.leases.is_open()) {
    return kNotOurs;
  }
  sys::BornStat st;
  if (sys::Look(fd, &st) < 0 || !S_ISDIR(st.st_mode)) return kNotOurs;
  const sys::InEngine inside;
  Folder folder;
  if (!folder.FindOpen(fd, st)) return kNotOurs;
  if (engine.standing.asleep()) const TableLock wakes;
  if (folder.entry() == nullptr && !engine.file_table.WarmUp(folder.tag())) return kNotOurs;
  if (!folder.MakeKnown(0) || !engine.checkpoint.EndUnloggedNames()) return kNotOurs;
  const NamesLock lock;
  return lock.can_log() && folder.IsKnown() ? 0 : kNotOurs;
}

void WarmFolderOf(int fd) {
  if (!engine.active() || !SeesPaths() || !engine.settings.names || !engine.leases.is_open()) {
    return;
  }
  sys::Scratch<char[pool::kMaxPath]> path;
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || st.st_nlink == 0) return;
  if (!ReadPath(fd, st.st_dev, st.st_ino, path.get())) return;
  Folder folder;
  if (!folder.Find(AT_FDCWD, path.get(), false) || folder.device() != st.st_dev) return;
  if (folder.entry() == nullptr && engine.file_table.WarmUp(folder.tag())) folder.MakeKnown(0);
}

}  // namespace nvcache::vfs
