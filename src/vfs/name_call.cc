// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/name_call.h"

#include <errno.h>
#include <linux/fs.h>

#include "src/nvlog/through.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/text.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/names_lock.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/name_log.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

namespace {

using lease::Standing;
using lease::Tallies;
using lease::Tally;
using pool::Deed;
using pool::NameRecord;

#ifndef RENAME_NOREPLACE
constexpr unsigned RENAME_NOREPLACE = 1;
#endif

// A process that follows the file describes it anew: the log's path of it is old. A write of
// it that is under way has the tally's lock, so its LSN is below that of the new name.
void NoteMove(uint64_t tag) {
  Tally* tally = engine.tallies.Find(tag);
  if (tally == nullptr) return;
  const uint64_t lock = engine.tallies.Lock(*tally);
  const Standing now = Tallies::StandingOf(*tally);
  if (now.tag == tag) {
    Tallies::Change(*tally, now, {tag, now.exits + 1, now.known, now.refused});
  }
  engine.tallies.Unlock(*tally, lock);
}

// A new file, of which nothing is known that was known of one before with its number.
void BeginLeft(uint64_t tag, const struct statx& st) {
  Tally* tally = engine.tallies.Find(tag);
  if (tally == nullptr) return;
  Tallies::Forget(*tally);
  tally->left.store(MarkOf(st));
}

// Nothing but the two names that every folder has.
bool IsEmptyFolder(int dirfd, const char* name) {
  const long fd = sys::Openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  uint8_t entries[128];
  constexpr long kNoOthers = 48;  // as getdents64 has the two
  const long n = sys::Call(SYS_getdents64, fd, sys::Address(entries), long{sizeof(entries)});
  sys::Close(static_cast<int>(fd));
  return n >= 0 && n <= kNoOthers;
}

// An empty folder takes no path of a record with it, and nothing comes into one that is known but
// under the lock of names.
bool CanMoveFolder(int dirfd, const char* name, uint64_t tag) {
  const Tally* tally = engine.tallies.Find(tag);
  return tally != nullptr && Tallies::StandingOf(*tally).known && IsEmptyFolder(dirfd, name);
}

// A new folder: each of its names will be in the log.
void BeginKnownFolder(int dirfd, const char* name, uint64_t tag, uint32_t own) {
  Tally& tally = engine.tallies.At(tag);
  if (!engine.tallies.SetTag(tally, tag)) return;
  const Standing then = Tallies::StandingOf(tally);
  if (then.tag != tag || !engine.tallies.AwaitNaming()) return;
  if (engine.tallies.AnybodyChanges(tag, own)) return;
  if (IsEmptyFolder(dirfd, name)) Tallies::Change(tally, then, {tag, then.exits, true});
}

// A new symbolic link: its owner and its times will be in the log.
void BeginKnownLink(uint64_t tag, uint64_t left) {
  Tally& tally = engine.tallies.At(tag);
  if (!engine.tallies.SetTag(tally, tag)) return;
  const Standing then = Tallies::StandingOf(tally);
  if (then.tag != tag || engine.tallies.AnybodyPasses(tag)) return;
  if (Tallies::Change(tally, then, {tag, then.exits, true})) tally.left.store(left);
}

// A file of our cache becomes write-through, with what it has in the log, so that it need not be
// drained (NameGuard). By the rule `always` it would not be cached again: there it stays. No lock.
void GiveBackCached(const struct stat& st) {
  if (!engine.files.AnyInCaches() || IsHotFromTheStart()) return;
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
  sys::Close(static_cast<int>(fd));
  return error;
}

}  // namespace

// ------------------------------------------------------------------------------------ Preparation

NameCall::NameCall(bool changes) {
  if (!changes || (!engine.active() && !sys::IsSharing()) || !engine.leases.is_open()) return;
  if (engine.process.asleep() && !sys::IsSharing()) const TableLock wakes;
  naming_ = true;
  engine.tallies.BeginNaming();
}

NameCall::~NameCall() {
  End();
  if (loser_ >= 0) sys::Close(loser_);
  if (naming_ && engine.leases.is_open()) engine.tallies.EndNaming();
}

// A change that the log does not have is on the disk before a later one can be in the log. The
// folders are known again, perhaps.
void NameCall::End() {
  if (moves_) ForgetFolders();
  moves_ = false;
  if (astray_) GoPast();
  if (past_) {
    SyncPast();
  } else if (by_kernel_) {
    SeeToUnlogged();
  }
  past_ = by_kernel_ = false;
  folder_.EndPassing();
  from_.EndPassing();
}

void NameCall::GoPastAfterAll() {
  what_ = What::kNothing;
  GoPast();
}

// How often this call is passing for that folder, or is taken to.
uint32_t NameCall::CountOwn(uint64_t tag) const {
  return static_cast<uint32_t>(folder_.PassesFor(tag)) +
         static_cast<uint32_t>(from_.PassesFor(tag));
}

bool NameCall::MakeKnown(Folder& folder) const { return folder.MakeKnown(CountOwn(folder.tag())); }

void NameCall::SyncPast() {
  const auto sync = [this](Folder& folder) {
    if (folder.tally() == nullptr || MakeKnown(folder) || folder.Sync()) return;
    engine.checkpoint.EndPending();  // there is no descriptor left for it
  };
  if (has_folder_) sync(folder_);
  if (has_from_ && !from_.IsSame(folder_)) sync(from_);
}

// Where syncs have to wait for such names, their folder is worth to be known.
void NameCall::SeeToUnlogged() {
  if (!engine.leases.is_open()) return;
  const auto see = [this](Folder& folder) {
    const lease::Tallies& tallies = engine.tallies;
    if (tallies.WereUnloggedAwaited() && tallies.WarmUp(folder.tag()) && MakeKnown(folder)) {
      return;
    }
    tallies.NoteUnlogged(folder.device());
  };
  if (has_folder_) see(folder_);
  if (has_from_ && !from_.IsSame(folder_)) see(from_);
  // Meanwhile the first folder has become known.
  if (!has_folder_ && !has_from_) engine.tallies.NoteUnlogged(0);
}

bool NameCall::Find(int dirfd, const char* path, bool slashes) {
  if (!naming_ || !engine.tallies.HasFolders()) return false;
  has_folder_ = folder_.Find(dirfd, path, slashes);
  if (has_folder_) folder_.BeginPassing();
  return has_folder_;
}

bool NameCall::FindFrom(int dirfd, const char* path) {
  has_from_ = from_.Find(dirfd, path, false, &folder_);
  if (has_from_) from_.BeginPassing();
  return has_from_;
}

// Of all folders of the call.
void NameCall::AreFound() {
  if (!naming_ || !has_folder_) return;
  engine.tallies.EndNaming();
  naming_ = false;
}

bool NameCall::HasFolders() const {
  return (has_folder_ && folder_.tally() != nullptr) || (has_from_ && from_.tally() != nullptr);
}

// The folders are found. A call that the log cannot have goes past it.
void NameCall::Begin(What what, bool past) {
  AreFound();
  if (!HasFolders()) return;
  const bool loggable = !past && !sys::IsSharing() && has_folder_ &&
                        (!has_from_ || from_.device() == folder_.device());
  if (loggable && AreKnown(what) && engine.checkpoint.EndUnloggedNames() && Describe()) {
    what_ = what;
  } else {
    GoPast();
  }
}

// And open, but for a file that is made.
bool NameCall::AreKnown(What what) {
  if (!MakeKnown(folder_) || (what != What::kCreate && !folder_.Open())) return false;
  if (!has_from_) return true;
  if (from_.IsSame(folder_)) return from_.OpenAs(folder_);
  return MakeKnown(from_) && from_.Open();
}

// It was made by the program's path: while we have no descriptor, its own has the lowest number. In
// between, somebody may have put another folder in the place of this one.
bool NameCall::IsWhereSaid() {
  struct stat st;
  const bool is = folder_.Open() &&
                  sys::Fstatat(folder_.fd(), folder_.name(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                  st.st_dev == folder_.device() && st.st_ino == record_->file.inode;
  folder_.DropDescriptor();
  return is;
}

// Another folder may get the number of one that is replaced.
void NameCall::ForgetReplaced() const {
  struct stat st;
  if (sys::Fstatat(dirfd_, path_, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) return;
  Tally* tally = engine.tallies.Find(lease::TagOf(st.st_dev, st.st_ino, st.st_mode));
  if (tally != nullptr) Tallies::Forget(*tally);
}

void NameCall::GoPast() {
  if (moves_) ForgetReplaced();
  astray_ = false;
  past_ = true;
  if (has_folder_) error_ = folder_.GoPast();
  if (has_from_ && error_ == 0) error_ = from_.GoPast();
  folder_.DropDescriptor();
  from_.DropDescriptor();
}

// All that the record has but for files.
bool NameCall::Describe() {
  NameRecord& record = *record_;
  const size_t target_length = has_target_ ? record.target_length : 0u;
  sys::Scratch<char[pool::kMaxPath]> target_copy;
  sys::Scratch<FolderRecord> folder, other;
  const bool has_other = has_from_ && !from_.IsSame(folder_);
  __builtin_memcpy(target_copy.get(), record.text, target_length);
  target_copy.get()[target_length] = '\0';
  Clear(&record);
  record.device = folder_.device();
  size_t end = 0;
  if (!folder_.Describe(folder.get()) || (has_other && !from_.Describe(other.get()))) return false;
  const FolderRecord& from = has_other ? *other : *folder;
  record.file_system = folder->file_system;
  record.folder = folder->identity;
  if (has_from_) record.from_folder = from.identity;
  return pool::AddText(&record, &NameRecord::name_length, folder_.name(), &end) &&
         pool::AddText(&record, &NameRecord::from_length, has_from_ ? from_.name() : "", &end) &&
         pool::AddText(&record, &NameRecord::target_length, target_copy.get(), &end) &&
         pool::AddText(&record, &NameRecord::folder_path_length, folder->path, &end) &&
         pool::AddText(&record, &NameRecord::from_folder_path_length, has_from_ ? from.path : "",
                       &end);
}

void NameCall::Create(int dirfd, const char* path, int flags, mode_t mode, bool past) {
  flags_ = flags;
  mode_ = mode;
  if (!naming_ || !engine.tallies.HasFolders()) return;
  struct stat st;
  const bool excludes = (flags & O_EXCL) != 0;  // the kernel refuses, if it is there
  const long found = excludes ? -ENOENT : sys::Fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW);
  is_free_ = found == -ENOENT;
  elsewhere_ = found == 0 && S_ISLNK(st.st_mode) && (flags & (O_EXCL | O_NOFOLLOW)) == 0 &&
               sys::Fstatat(dirfd, path, &st, 0) == -ENOENT;
  constexpr int kOthers = O_EXCL | O_DIRECTORY | O_PATH;  // the kernel refuses some of them
  is_there_ = found == 0 && S_ISREG(st.st_mode) && (flags & kOthers) == 0 && !past &&
              st.st_uid == static_cast<uid_t>(sys::Geteuid());
  if (!is_free_ || !Find(dirfd, path, false)) return;
  AreFound();
  if (!HasFolders()) return;
  dirfd_ = dirfd;
  path_ = path;
  Begin(What::kCreate, past);
  folder_.DropDescriptor();
  created_ = past_;
}

// By a symbolic link that led nowhere, say: the name is in the folder that the file is in now.
void NameCall::CreatedElsewhere(int fd) {
  sys::Scratch<char[pool::kMaxPath]> path;
  struct stat st;
  Folder folder;
  if (sys::Fstat(fd, &st) < 0 || !ReadPath(fd, st.st_dev, st.st_ino, path.get()) ||
      !folder.Find(AT_FDCWD, path.get(), false)) {
    return engine.tallies.NoteUnlogged(0);  // wherever it is
  }
  folder.BeginPassing();
  if (folder.tally() == nullptr) return engine.tallies.NoteUnlogged(folder.device());
  folder.GoPast();
  if (!folder.MakeKnown(1) && !folder.Sync()) engine.tallies.NoteUnlogged(0);
}

void NameCall::MakeFolder(int dirfd, const char* path, mode_t mode, bool past) {
  mode_ = mode;
  if (Find(dirfd, path, true)) Begin(What::kMakeFolder, past);
}

void NameCall::MakeLink(const char* target, int dirfd, const char* path, bool past) {
  if (!Find(dirfd, path, false) || !HasFolders()) return;
  const size_t length = CopyPath(record_->text, target, pool::kMaxPath);
  record_->target_length = static_cast<uint16_t>(length);
  has_target_ = true;
  Begin(What::kMakeLink, past || length == 0);
}

// True: it will do nothing, and so nothing of it need be known. (Programs that replace files first
// remove leftovers of their own, which may not be there.)
bool NameCall::BeginInVain(What what) {
  AreFound();
  in_vain_ = HasFolders() && !sys::IsSharing();
  if (in_vain_) what_ = what;
  return in_vain_;
}

void NameCall::Remove(int dirfd, const char* path, int flags, bool past) {
  flags_ = flags;
  dirfd_ = dirfd;
  path_ = path;
  const bool is_folder = (flags & AT_REMOVEDIR) != 0;
  if (!Find(dirfd, path, is_folder)) return;
  struct stat st;
  // A file is there, as a rule.
  const bool looks = is_folder && !past && HasFolders();
  const bool missing = looks && sys::Fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == -ENOENT;
  if (!missing || !BeginInVain(What::kRemove)) Begin(What::kRemove, past);
}

// Of the file that gets another name. Another process may write to it meanwhile: of that, nothing
// was promised.
bool NameCall::KnowsBytes(const Folder& folder, const struct stat& st) {
  const uint64_t tag = lease::TagOf(st.st_dev, st.st_ino, st.st_mode);
  if (S_ISDIR(st.st_mode)) return CanMoveFolder(folder.fd(), folder.name(), tag);
  if (!S_ISREG(st.st_mode)) return true;
  GiveBackCached(st);
  const Tally* tally = engine.tallies.Find(tag);
  if (tally != nullptr && Tallies::StandingOf(*tally).known) return true;
  if (SyncUnknown(folder, st) < 0) return false;
  if (tally != nullptr && engine.tallies.IsPending(*tally)) engine.checkpoint.EndPending();
  return tally == nullptr || !engine.tallies.IsPending(*tally);
}

void NameCall::Rename(int from_dirfd, const char* from, int dirfd, const char* path, unsigned flags,
                      bool past) {
  flags_ = static_cast<int>(flags);
  moves_ = true;
  dirfd_ = dirfd;
  path_ = path;
  from_dirfd_ = from_dirfd;
  from_path_ = from;
  if (!Find(dirfd, path, false)) return Others(from_dirfd, from, dirfd, path);
  if (!FindFrom(from_dirfd, from)) return Others(from_dirfd, from, dirfd, path);
  AreFound();
  if (!HasFolders()) return;
  struct stat st;
  const long found = sys::Fstatat(from_dirfd, from, &st, AT_SYMLINK_NOFOLLOW);
  if (found == -ENOENT && !past && BeginInVain(What::kRename)) return;
  Begin(What::kRename, past || (flags & ~unsigned{RENAME_NOREPLACE}) != 0);
  if (logs() && found == 0 && !KnowsBytes(from_, st)) GoPastAfterAll();
}

void NameCall::Link(int from_dirfd, const char* from, int dirfd, const char* path, int flags,
                    bool past) {
  if (!Find(dirfd, path, false)) return;
  if (flags != 0 || !FindFrom(from_dirfd, from)) return Begin(What::kNothing, true);
  Begin(What::kLink, past);
  struct stat st;
  if (!logs() || sys::Fstatat(from_.fd(), from_.name(), &st, AT_SYMLINK_NOFOLLOW) < 0) return;
  if (!KnowsBytes(from_, st)) GoPastAfterAll();
}

void NameCall::Other(int dirfd, const char* path) {
  if (Find(dirfd, path, true)) Begin(What::kNothing, true);
}

// A folder is moved, say.
void NameCall::Others(int from_dirfd, const char* from, int dirfd, const char* path) {
  moves_ = true;
  if (!naming_ || !engine.tallies.HasFolders()) return;
  if (!has_folder_) Find(dirfd, path, true);
  if (!has_from_ && from_.Find(from_dirfd, from, true)) {
    has_from_ = true;
    from_.BeginPassing();
  }
  AreFound();
  if (HasFolders()) GoPast();
}

// --------------------------------------------------------------------------------- Under the lock

// Known, and from now on something of it is pending: a checkpoint that is drawn later ends that,
// also if the call changes nothing.
bool NameCall::Hold(const Folder& folder) const {
  Tally* tally = folder.tally();
  if (tally == nullptr) return false;
  const uint64_t lock = engine.tallies.Lock(*tally);
  const bool known = folder.IsKnown() && Tallies::IsOwn(*tally, lock);
  if (known) Tallies::Raise(tally->lsn, engine.log.Draw());
  engine.tallies.Unlock(*tally, lock);
  return known;
}

// The flags of a file that loses its last name, in that folder.
uint32_t NameCall::GoneOf(const struct statx& st) const {
  if (!S_ISREG(st.stx_mode) || st.stx_size == 0) return pool::kNameGone;
  const Tally* tally = engine.tallies.Find(lease::TagOf(folder_.device(), st.stx_ino));
  const bool known = tally != nullptr && Tallies::StandingOf(*tally).known;
  return known ? pool::kNameGone : pool::kNameGone | pool::kNameLacks;
}

// Looks where the names lead to. 0; or the call's result, for it will change nothing.
long NameCall::Look() {
  NameRecord& record = *record_;
  record.flags = 0;
  struct statx st;
  if (what_ == What::kRemove) {
    const long error = pool::IdentifyAt(folder_.fd(), folder_.name(), &record.file, &st);
    if (error == -ENAMETOOLONG) return kBeginAnew;
    if (error < 0) return error;
    const bool is_folder = S_ISDIR(st.stx_mode);
    if (is_folder != ((flags_ & AT_REMOVEDIR) != 0)) return kNotOurs;
    record.flags = is_folder || st.stx_nlink == 1 ? GoneOf(st) : pool::kNameHasOthers;
    if (record.flags == pool::kNameHasOthers) KeepLoser(st);
    return 0;
  }
  if (what_ != What::kRename && what_ != What::kLink) return 0;
  long error = pool::IdentifyAt(from_.fd(), from_.name(), &record.file, &st);
  if (error == -ENAMETOOLONG) return kBeginAnew;
  if (error < 0) return error;
  const bool is_folder = S_ISDIR(st.stx_mode);
  if (is_folder && what_ == What::kLink) return kNotOurs;
  const uint64_t tag = lease::TagOf(folder_.device(), st.stx_ino, st.stx_mode);
  if (is_folder && !CanMoveFolder(from_.fd(), from_.name(), tag)) return kBeginAnew;
  record.mode = is_folder ? S_IFDIR : 0;
  if (!is_folder && st.stx_nlink > 1) record.flags |= pool::kNameHasOthers;
  type_ = st.stx_mode;
  left_ = MarkOf(st);
  struct statx other;
  error = pool::IdentifyAt(folder_.fd(), folder_.name(), &record.other, &other);
  if (error == -ENOENT) {
    record.other = {};
    return 0;
  }
  if (error < 0 || is_folder) return kBeginAnew;
  const bool same = other.stx_ino == st.stx_ino;
  if (what_ == What::kLink || S_ISDIR(other.stx_mode) || same || flags_ != 0) return kNotOurs;
  if (other.stx_nlink == 1) {
    record.flags |= GoneOf(other);
  } else {
    KeepLoser(other);
  }
  return 0;
}

// A file that loses one of its names.
void NameCall::KeepLoser(const struct statx& st) {
  const long fd = sys::Openat(folder_.fd(), folder_.name(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  loser_ = fd >= 0 ? static_cast<int>(fd) : -1;
  loser_left_ = MarkOf(st);
  loser_tag_ = lease::TagOf(folder_.device(), st.stx_ino, st.stx_mode);
}

// Notes the call's changes of the files themselves. False: somebody without the log has changed
// the names between the look and the call.
bool NameCall::NoteChanged() {
  bool as_said = true;
  if (what_ == What::kRemove && (flags_ & AT_REMOVEDIR) != 0) {
    Tally* tally =
        engine.tallies.Find(lease::TagOf(folder_.device(), record_->file.inode, S_IFDIR));
    if (tally != nullptr) Tallies::Forget(*tally);  // another folder may get its number
  } else if (what_ != What::kRemove) {
    const uint64_t tag = lease::TagOf(folder_.device(), record_->file.inode, type_);
    NoteMove(tag);
    struct stat st;
    as_said = sys::Fstatat(folder_.fd(), folder_.name(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
              st.st_ino == record_->file.inode;
    if (as_said) KeepLeft(tag, left_, MarkOf(st));
  }
  if (loser_ < 0) return as_said;
  struct stat st;
  if (sys::Fstat(loser_, &st) == 0) KeepLeft(loser_tag_, loser_left_, MarkOf(st));
  sys::Close(loser_);
  loser_ = -1;
  return as_said;
}

long NameCall::Call() {
  const int fd = folder_.fd();
  const char* name = folder_.name();
  switch (what_) {
    case What::kCreate:
      return sys::Openat(dirfd_, path_, flags_ | O_CREAT | O_EXCL, mode_);
    case What::kMakeFolder:
      return sys::Call(SYS_mkdirat, fd, sys::Address(name), static_cast<long>(mode_));
    case What::kMakeLink:
      return sys::Call(SYS_symlinkat, sys::Address(pool::TextsOf(*record_).target), fd,
                       sys::Address(name));
    case What::kRemove:
      return sys::Unlinkat(fd, name, flags_);
    case What::kRename:
      return sys::Call(SYS_renameat2, from_.fd(), sys::Address(from_.name()), fd,
                       sys::Address(name), flags_);
    case What::kLink:
      return sys::Linkat(from_.fd(), from_.name(), fd, name, 0);
    case What::kNothing:
      break;
  }
  NVCACHE_CHECK(false);
}

namespace {

struct Deeds {
  Deed announced, done;
};

}  // namespace

bool NameCall::Commit(Deed deed) {
  record_->deed = deed;
  return CommitName(*record_, *lock_, folder_.tally(), has_from_ ? from_.tally() : nullptr);
}

// Adds the file that the call has made. `result` is its own.
bool NameCall::AddCreated(long result) {
  NameRecord& record = *record_;
  struct statx st;
  const bool opened = what_ == What::kCreate;
  const long error = opened ? pool::IdentifyAt(static_cast<int>(result), "", &record.file, &st)
                            : pool::IdentifyAt(folder_.fd(), folder_.name(), &record.file, &st);
  if (error < 0 || st.stx_ino == 0) return false;
  KeepAttributes(st, &record);
  type_ = st.stx_mode;
  left_ = MarkOf(st);
  if (opened) BeginLeft(lease::TagOf(DeviceOf(st), st.stx_ino), st);
  if (opened && (DeviceOf(st) != folder_.device() || !IsWhereSaid())) {
    elsewhere_ = true;
    return false;
  }
  return S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode) || S_ISLNK(st.stx_mode);
}

long NameCall::MakeUnderLock() {
  const bool creates =
      what_ == What::kCreate || what_ == What::kMakeFolder || what_ == What::kMakeLink;
  if (!lock_->can_log() || !Hold(folder_) || (has_from_ && !Hold(from_))) return kBeginAnew;
  if (const long found = Look(); found != 0) return found;
  const Deeds deeds = what_ == What::kRemove   ? Deeds{Deed::kRemoves, Deed::kRemoved}
                      : what_ == What::kRename ? Deeds{Deed::kRenames, Deed::kRenamed}
                                               : Deeds{Deed::kLinks, Deed::kLinked};
  if (!creates && !Commit(deeds.announced)) return kBeginAnew;
  const long result = Call();
  if (result < 0) return result;
  if (creates) {
    astray_ = !AddCreated(result) || !Commit(Deed::kCreated);
  } else {
    astray_ = !NoteChanged() || !Commit(deeds.done);
  }
  created_ = what_ == What::kCreate;
  logged_ = !astray_;
  if (what_ == What::kMakeFolder && !astray_) {
    const uint64_t tag = lease::TagOf(folder_.device(), record_->file.inode, S_IFDIR);
    BeginKnownFolder(folder_.fd(), folder_.name(), tag, CountOwn(tag));
  }
  if (what_ == What::kMakeLink && !astray_) {
    BeginKnownLink(lease::TagOf(folder_.device(), record_->file.inode, S_IFLNK), left_);
  }
  return result;
}

// Under the lock, so that nothing comes into the log between the look and the call. Somebody
// without the log may make the name then.
long NameCall::MakeInVain() {
  sys::InEngine inside;
  const NamesLock lock;
  const bool removes = what_ == What::kRemove;
  const int dirfd = removes ? dirfd_ : from_dirfd_;
  const char* path = removes ? path_ : from_path_;
  struct stat st;
  if (sys::Fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) != -ENOENT) return kBeginAnew;
  const long result = removes ? sys::Unlinkat(dirfd, path, flags_)
                              : sys::Call(SYS_renameat2, dirfd, sys::Address(path), dirfd_,
                                          sys::Address(path_), flags_);
  if (result >= 0) {
    MadeByKernel();
  } else {
    moves_ = false;
  }
  return result;
}

long NameCall::Make() {
  if (!logs()) return kNotOurs;
  if (in_vain_) return MakeInVain();
  sys::InEngine inside;
  const NamesLock lock;
  lock_ = &lock;
  const long result = MakeUnderLock();
  lock_ = nullptr;
  if (result != kNotOurs && result != kBeginAnew) moves_ = moves_ && S_ISDIR(record_->mode);
  return result;
}

// -------------------------------------------------------------------------------------- New files

// A process that has written to it before it has the tag has left some bytes there; one that is at
// it still is passing.
void BeginKnown(int fd, const NameRecord* created) {
  struct stat st;
  if (created == nullptr && sys::Fstat(fd, &st) < 0) return;
  const uint64_t tag = created != nullptr ? lease::TagOf(created->device, created->file.inode)
                                          : lease::TagOf(st.st_dev, st.st_ino);
  Tally& tally = engine.tallies.At(tag);
  if (!GetTag(tally, tag)) {
    engine.checkpoint.EndPending();  // of another file, which has it
    if (!GetTag(tally, tag)) return;
  }
  Access access;
  if (access.Enter(fd, Access::kData) != 0 || access.cached()) return;
  File& file = access.file();
  if (lease::TagOf(file.device, file.inode) != tag) return;
  const uint32_t changes = file.changes.load();
  const Standing then = Tallies::StandingOf(tally);
  if (then.tag != tag || engine.tallies.AnybodyPasses(tag) ||
      engine.leases.IsHandedOn(file.device, file.inode)) {
    return;
  }
  if (sys::Fstat(fd, &st) < 0 || st.st_size != 0) return;
  if (!Tallies::Change(tally, then, {tag, then.exits, true})) return;
  sys::Scratch<pool::FileRecord> record;
  if (created != nullptr && pool::DescribeMade(*created, record.get())) {
    file.exits_seen.store(then.exits);
    NoteDescription(file, changes, *record);
  }
  access.Leave();
  TableLock lock;
  const Description* description = engine.descriptors.Of(fd);
  if (IsDescription(description)) engine.files.SayOpen(*description->file.load());
}

}  // namespace nvcache::vfs
