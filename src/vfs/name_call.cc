// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/name_call.h"

#include <errno.h>
#include <linux/fs.h>

#include "src/sys/kernel.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/results.h"
#include "src/vfs/name_files.h"
#include "src/vfs/names_lock.h"

namespace nvcache::vfs {

namespace {

#ifndef RENAME_NOREPLACE
constexpr unsigned RENAME_NOREPLACE = 1;
#endif

}  // namespace

// ----------------------------------------------------------------------------- Find and prepare

// Where paths are not seen, a call that makes a name is left to the kernel, and noted when it has
// made one (MadeByKernel). True: a call that does more to names is one of these.
bool NameCall::TakeUnseen() {
  moves_ = unseen_.Begin();
  return moves_;
}

void NameCall::Create(int dirfd, const char* path, int flags, mode_t mode, bool past) {
  if (!SeesPaths() || !folders_.AreWanted()) return;
  struct stat st;
  const bool excludes = (flags & O_EXCL) != 0;  // the kernel refuses, if it is there
  const long found = excludes ? -ENOENT : sys::Fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW);
  constexpr int kOthers = O_DIRECTORY | O_PATH;  // the kernel refuses some of them
  if (found == -ENOENT) {
    found_ = Found::kFree;
  } else if (found == 0 && S_ISLNK(st.st_mode)) {
    const bool leads_nowhere =
        (flags & O_NOFOLLOW) == 0 && sys::Fstatat(dirfd, path, &st, 0) == -ENOENT;
    if (leads_nowhere) found_ = Found::kElsewhere;
  } else if (found == 0 && S_ISREG(st.st_mode) && (flags & kOthers) == 0 && !past &&
             st.st_uid == static_cast<uid_t>(sys::Geteuid())) {
    found_ = Found::kFile;
  }
  if (!is_free() || !folders_.Find(dirfd, path, false)) return;
  request_ = {.what = What::kCreate, .flags = flags, .mode = mode, .dirfd = dirfd, .path = path};
  Prepare(past);
  folders_.to().DropDescriptor();
  if (owed_ == Owed::kSync) created_ = Recorded::kNotInLog;
}

void NameCall::MakeFolder(int dirfd, const char* path, mode_t mode, bool past) {
  if (!SeesPaths()) return;
  request_ = {.what = What::kMakeFolder, .mode = mode, .dirfd = dirfd, .path = path};
  if (folders_.Find(dirfd, path, true)) Prepare(past);
}

void NameCall::MakeLink(const char* target, int dirfd, const char* path, bool past) {
  if (!SeesPaths()) return;
  request_ = {.what = What::kMakeLink, .dirfd = dirfd, .path = path, .target = target};
  if (folders_.Find(dirfd, path, false)) Prepare(past || target == nullptr);
}

void NameCall::Remove(int dirfd, const char* path, int flags, bool past) {
  if (TakeUnseen()) return;
  request_ = {.what = What::kRemove, .flags = flags, .dirfd = dirfd, .path = path};
  const bool is_folder = (flags & AT_REMOVEDIR) != 0;
  if (!folders_.Find(dirfd, path, is_folder)) return;
  if (past || !RemoveInVain()) {
    // It may be one of them: then the file system could not take its blocks and number back.
    if (is_folder) engine.kept_folders.Close();
    Prepare(past);
  }
  if (is_folder && !logs()) ForgetGoing();
}

void NameCall::Rename(int from_dirfd, const char* from, int dirfd, const char* path, unsigned flags,
                      bool past) {
  if (TakeUnseen()) return;
  request_ = {.what = What::kRename,
              .flags = static_cast<int>(flags),
              .dirfd = dirfd,
              .path = path,
              .from_dirfd = from_dirfd,
              .from = from};
  moves_ = true;
  if (!folders_.Find(dirfd, path, false) || !folders_.FindFrom(from_dirfd, from, false)) {
    return MoveUnseen();
  }
  folders_.EndNaming();
  if (!folders_.AnyEntry()) return;
  const long found = sys::LookAt(from_dirfd, from, &large_->seen, AT_SYMLINK_NOFOLLOW);
  has_seen_ = found == 0;
  if (found == -ENOENT && !past && PrepareInVain()) return;
  if (has_seen_) request_.seen = &large_->seen;
  Prepare(past || (flags & ~unsigned{RENAME_NOREPLACE}) != 0);
  if (logs() && has_seen_ && !SecureBytes(folders_.from(), large_->seen)) Bypass();
}

// A folder is moved, say, and slashes follow its name.
void NameCall::MoveUnseen() {
  if (!folders_.AreWanted()) return;
  if (!folders_.has_to()) folders_.Find(request_.dirfd, request_.path, true);
  if (!folders_.has_from()) folders_.FindFrom(request_.from_dirfd, request_.from, true);
  folders_.EndNaming();
  if (folders_.AnyEntry()) Bypass();
}

void NameCall::Link(int from_dirfd, const char* from, int dirfd, const char* path, int flags,
                    bool past) {
  if (TakeUnseen()) return;
  request_ = {
      .what = What::kLink, .dirfd = dirfd, .path = path, .from_dirfd = from_dirfd, .from = from};
  if (!folders_.Find(dirfd, path, false)) return;
  if (flags != 0 || !folders_.FindFrom(from_dirfd, from, false)) return Prepare(true);
  Prepare(past);
  const Folder& folder = folders_.from();
  sys::BornStat st;
  if (!logs() || sys::LookAt(folder.fd(), folder.name(), &st, AT_SYMLINK_NOFOLLOW) < 0) return;
  if (!SecureBytes(folder, st)) Bypass();
}

void NameCall::Other(int dirfd, const char* path) {
  if (SeesPaths() && folders_.Find(dirfd, path, true)) Prepare(true);
}

// The folders are found. A call that the log cannot have goes past it.
void NameCall::Prepare(bool past) {
  folders_.EndNaming();
  if (!folders_.AnyEntry()) return;
  if (!past && !sys::IsSharing() && folders_.FitOneRecord() &&
      folders_.MakeKnown(request_.what != What::kCreate) && engine.checkpoint.EndUnloggedNames() &&
      folders_.Describe(request_.target, &large_->record)) {
    way_ = Way::kLogged;
  } else {
    Bypass();
  }
}

// True: it will do nothing, and so nothing of it need be known. (Programs that replace files first
// remove leftovers of their own, which may not be there.)
bool NameCall::PrepareInVain() {
  folders_.EndNaming();
  if (!folders_.AnyEntry() || sys::IsSharing()) return false;
  way_ = Way::kInVain;
  return true;
}

// Under the lock, so that nothing comes into the log between the look and the call. Somebody
// without the log may make the name then. False: there is something to remove.
bool NameCall::RemoveInVain() {
  if (!PrepareInVain()) return false;
  const sys::InEngine inside;
  const NamesLock lock;
  const NameRequest& is = request_;
  const long found = sys::LookAt(is.dirfd, is.path, &large_->seen, AT_SYMLINK_NOFOLLOW);
  has_seen_ = found == 0;
  if (has_seen_) request_.seen = &large_->seen;
  if (found != -ENOENT) {
    way_ = Way::kKernel;
    return false;
  }
  in_vain_ = sys::Unlinkat(is.dirfd, is.path, is.flags);
  if (in_vain_ >= 0) MadeByKernel();
  moves_ = moves_ && in_vain_ >= 0;
  return true;
}

void NameCall::Bypass() {
  if (moves_) ForgetGoing();
  way_ = Way::kKernel;
  Owe(Owed::kSync);
  error_ = folders_.Bypass();
}

// Past the log, a folder is about to go.
void NameCall::ForgetGoing() const {
  sys::BornStat st;
  if (sys::LookAt(request_.dirfd, request_.path, &st, AT_SYMLINK_NOFOLLOW) < 0) return;
  if (S_ISDIR(st.st_mode)) ForgetGone(lease::TagOf(st));
}

// ------------------------------------------------------------------------------------ Make, end

long NameCall::Make() {
  if (!logs()) return kNotOurs;
  sys::InEngine inside;
  if (is_in_vain()) return request_.what == What::kRemove ? in_vain_ : RenameInVain();
  LoggedCall call(request_, folders_, large_->record);
  const long result = [&call] {
    const NamesLock lock;
    return call.Make(lock);
  }();
  const Recorded recorded = call.recorded();
  if (recorded == Recorded::kElsewhere) MakesElsewhere();
  if (recorded > Recorded::kInLog) Owe(Owed::kBypass);
  if (request_.what == What::kCreate) {
    created_ = recorded;
    large_->made = call.made();
    born_ = call.lsn();
  }
  if (result != kNotOurs && result != kBeginAnew) moves_ = moves_ && S_ISDIR(large_->record.mode);
  return result;
}

const sys::BornStat* NameCall::Seen(const char* path) const {
  const char* const goes = request_.what == What::kRemove ? request_.path : request_.from;
  return way_ == Way::kLogged && has_seen_ && path == goes ? &large_->seen : nullptr;
}

bool NameCall::GetMade(sys::BornStat* st) const {
  if (created_ == Recorded::kNothing || large_->made.st_ino == 0) return false;
  *st = large_->made;
  return true;
}

// As RemoveInVain().
long NameCall::RenameInVain() {
  const NamesLock lock;
  const NameRequest& is = request_;
  struct stat st;
  if (sys::Fstatat(is.from_dirfd, is.from, &st, AT_SYMLINK_NOFOLLOW) != -ENOENT) return kBeginAnew;
  const long result = sys::Call(SYS_renameat2, is.from_dirfd, sys::Address(is.from), is.dirfd,
                                sys::Address(is.path), is.flags);
  if (result >= 0) {
    MadeByKernel();
  } else {
    moves_ = false;
  }
  return result;
}

void NameCall::End() {
  if (moves_) ForgetFolders();
  moves_ = false;
  unseen_.End();
  if (owed_ == Owed::kBypass) folders_.Bypass();
  if (owed_ >= Owed::kSync) {
    folders_.SyncBypassed();
  } else if (owed_ == Owed::kNote) {
    folders_.NoteUnlogged();
  }
  owed_ = Owed::kNothing;
  folders_.EndInFlight();
}

}  // namespace nvcache::vfs
