// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/logged_call.h"

#include <errno.h>
#include <linux/fs.h>

#include "src/pool/identify.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/births.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/results.h"
#include "src/vfs/name_log.h"

namespace nvcache::vfs {

namespace {

using lease::FileEntry;
using lease::FileTable;
using pool::Deed;

struct Deeds {
  Deed announced, done;
};

// Nothing is announced before a call that makes something new.
Deeds DeedsOf(NameRequest::What what) {
  switch (what) {
    case NameRequest::What::kRemove:
      return {Deed::kRemoves, Deed::kRemoved};
    case NameRequest::What::kRename:
      return {Deed::kRenames, Deed::kRenamed};
    case NameRequest::What::kLink:
      return {Deed::kLinks, Deed::kLinked};
    default:
      return {Deed::kCreated, Deed::kCreated};
  }
}

// The flags of a file that loses its last name.
uint32_t GoneOf(const struct statx& st) {
  if (!S_ISREG(st.stx_mode) || st.stx_size == 0) return pool::kNameGone;
  const FileEntry* entry = engine.file_table.Find(lease::TagOf(st));
  const bool known = entry != nullptr && FileTable::CoverageOf(*entry).known;
  return known ? pool::kNameGone : pool::kNameGone | pool::kNameLacks;
}

// pool::IdentifyAt(). A file that the log knows has the handle that it had.
long IdentifyNamed(const Folder& folder, pool::Identity* identity, struct statx* st) {
  const long error = pool::BeginIdentity(folder.fd(), folder.name(), identity, st);
  if (error < 0) return error;
  const FileEntry* entry = engine.file_table.Find(lease::TagOf(*st));
  if (entry != nullptr && CopyHandle(FileTable::CoverageOf(*entry), identity)) return 0;
  return pool::AddHandle(folder.fd(), folder.name(), identity);
}

// The answer to a call whose name leads to nothing that can be identified.
long AnswerTo(long error) { return error == -ENAMETOOLONG ? kBeginAnew : error; }

}  // namespace

long LoggedCall::Make(const NamesLock& lock) {
  if (!lock.can_log() || !folders_.Hold()) return kBeginAnew;
  const long found = Look();
  if (request_.what != What::kCreate && !folders_.Confirm(from_seen_)) return kBeginAnew;
  if (found != 0) return found;
  const Deeds deeds = DeedsOf(request_.what);
  if (!Makes() && !Commit(deeds.announced, lock)) return kBeginAnew;
  const bool waits = MustBeInJournal();
  if (waits) engine.pool().own_journal().Await();
  const bool unsaid = engine.pool().has_journal() && !waits && files_.IsLastOfPending();
  const long result = Call();
  if (result < 0) return result;
  recorded_ = Recorded::kNotInLog;
  const bool as_said = Makes() ? NoteMade(result) : NoteChanged();
  if (as_said && Commit(deeds.done, lock)) {
    recorded_ = Recorded::kInLog;
    if (unsaid) engine.file_table.NoteRemoved(lsn_);
    BeginKnown();
  }
  return result;
}

bool LoggedCall::Makes() const {
  const What what = request_.what;
  return what == What::kCreate || what == What::kMakeFolder || what == What::kMakeLink;
}

// ------------------------------------------------------------------------------------ Before it

// 0; or the call's result, for it will change nothing.
long LoggedCall::Look() {
  record_.flags = 0;
  if (request_.what == What::kRemove) return LookAtGoing();
  return Makes() ? 0 : LookAtMoving();
}

long LoggedCall::LookAtGoing() {
  const Folder& folder = folders_.to();
  struct statx st;
  const long error = IdentifyNamed(folder, &record_.file, &st);
  if (error < 0) return AnswerTo(error);
  if (IsSeen(st)) folders_.to().NoteConfirmed();
  const bool is_folder = S_ISDIR(st.stx_mode);
  if (is_folder != ((request_.flags & AT_REMOVEDIR) != 0)) return kNotOurs;
  if (is_folder || st.stx_nlink == 1) {
    record_.flags = GoneOf(st);
    files_.LosesLast(st);
  } else {
    record_.flags = pool::kNameHasOthers;
    files_.LosesOne(folder, st);
  }
  return 0;
}

// The folder's descriptor leads by the name to the file that the program's path leads to, and to no
// other one, for the file has no other name: so it is that folder's.
bool LoggedCall::IsSeen(const struct statx& st) const {
  const sys::BornStat* seen = request_.seen;
  return seen != nullptr && !S_ISDIR(st.stx_mode) && st.stx_nlink == 1 &&
         seen->st_ino == st.stx_ino && seen->st_dev == sys::DeviceOf(st) &&
         seen->birth == sys::BirthOf(st);
}

long LoggedCall::LookAtMoving() {
  const Folder& from = folders_.from();
  struct statx st;
  const long error = IdentifyNamed(from, &record_.file, &st);
  if (error < 0) return AnswerTo(error);
  from_seen_ = IsSeen(st);
  const bool is_folder = S_ISDIR(st.stx_mode);
  if (is_folder && request_.what == What::kLink) return kNotOurs;
  files_.Gets(st);
  if (is_folder && !CanMoveFolder(from.fd(), from.name(), files_.tag())) return kBeginAnew;
  record_.mode = is_folder ? S_IFDIR : 0;
  if (!is_folder && st.stx_nlink > 1) record_.flags |= pool::kNameHasOthers;
  return LookAtReplaced(st);
}

long LoggedCall::LookAtReplaced(const struct statx& moving) {
  const Folder& folder = folders_.to();
  struct statx st;
  const long error = IdentifyNamed(folder, &record_.other, &st);
  if (error == -ENOENT) {
    record_.other = {};
    return 0;
  }
  if (error < 0 || S_ISDIR(moving.stx_mode)) return kBeginAnew;
  const bool same = st.stx_ino == moving.stx_ino;
  const bool replaces = request_.what == What::kRename && request_.flags == 0;
  if (!replaces || S_ISDIR(st.stx_mode) || same) return kNotOurs;
  if (st.stx_nlink == 1) {
    record_.flags |= GoneOf(st);
    files_.LosesLast(st);
  } else {
    files_.LosesOne(folder, st);
  }
  return 0;
}

// The file system may commit the call at once, and be the only one to know of it. Recovery sees by
// a file that the journal knows that it was moved (replay/moved.h), and makes one that is gone
// again from its records. So the journal has to know before of the rest: that a name goes, or
// changes, of a file that may be missed; that a file is replaced by one of which the journal has
// not all, birth and bytes; and that a name is free which an older file gets. Then recovery finds
// those that may be missed where the journal has them, but for what it was told of last.
bool LoggedCall::MustBeInJournal() const {
  if (!engine.pool().has_journal()) return false;
  const bool removes = request_.what == What::kRemove, renames = request_.what == What::kRename;
  if ((renames || request_.what == What::kLink) && files_.MayTakeRemovedName()) return true;
  if ((renames || removes) && files_.MayMiss()) return true;
  return renames && !pool::IsNone(record_.other) && !files_.IsInJournal();
}

bool LoggedCall::Commit(Deed deed, const NamesLock& lock) {
  record_.deed = deed;
  lsn_ = CommitName(record_, lock, folders_.to().entry(),
                    folders_.has_from() ? folders_.from().entry() : nullptr);
  return lsn_ != 0;
}

// ------------------------------------------------------------------------------------- The call

// A file is made by the program's own path: we have no descriptor open then.
long LoggedCall::Call() const {
  const Folder& to = folders_.to();
  const Folder& from = folders_.from();
  const long name = sys::Address(to.name());
  switch (request_.what) {
    case What::kCreate:
      return sys::Openat(request_.dirfd, request_.path, request_.flags | O_CREAT | O_EXCL,
                         request_.mode);
    case What::kMakeFolder:
      return sys::Call(SYS_mkdirat, to.fd(), name, static_cast<long>(request_.mode));
    case What::kMakeLink:
      return sys::Call(SYS_symlinkat, sys::Address(pool::TextsOf(record_).target), to.fd(), name);
    case What::kRemove:
      return sys::Unlinkat(to.fd(), to.name(), request_.flags);
    case What::kRename:
      return sys::Call(SYS_renameat2, from.fd(), sys::Address(from.name()), to.fd(), name,
                       request_.flags);
    case What::kLink:
      return sys::Linkat(from.fd(), from.name(), to.fd(), to.name(), 0);
    case What::kOther:
      break;
  }
  NVCACHE_CHECK(false);
}

// -------------------------------------------------------------------------------------- After it

// Adds to the record what the call has made. `result` is its own. False: the log cannot have it.
bool LoggedCall::NoteMade(long result) {
  const Folder& folder = folders_.to();
  struct statx st;
  const bool opened = request_.what == What::kCreate;
  const long error = opened ? pool::IdentifyAt(static_cast<int>(result), "", &record_.file, &st)
                            : pool::IdentifyAt(folder.fd(), folder.name(), &record_.file, &st);
  if (error < 0 || st.stx_ino == 0) return false;
  sys::Fill(st, &made_);
  KeepAttributes(st, &record_);
  files_.Gets(st);
  if (opened) files_.NoteNew();
  if (opened && (sys::DeviceOf(st) != folder.device() || !IsWhereSaid())) {
    recorded_ = Recorded::kElsewhere;
    return false;
  }
  return S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode) || S_ISLNK(st.stx_mode);
}

// While we have no descriptor, the program's own has the lowest number. In between, somebody may
// have put another folder in the place of this one.
bool LoggedCall::IsWhereSaid() {
  Folder& folder = folders_.to();
  const auto leads_there = [&] {
    struct stat st;
    return sys::Fstatat(folder.fd(), folder.name(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == folder.device() && st.st_ino == record_.file.inode;
  };
  // One that was kept open is that folder's, or the new file would not be there.
  const bool is = (folder.OpenKept() && leads_there()) || (folder.Open() && leads_there());
  folder.DropDescriptor();
  return is;
}

bool LoggedCall::NoteChanged() {
  files_.NoteLost();
  if (request_.what == What::kRemove) return true;
  if (!files_.NoteMoved(folders_.to(), record_.file.inode)) return false;
  const FileEntry* entry = engine.file_table.Find(files_.tag());
  if (entry != nullptr && !S_ISDIR(record_.mode)) KeepNamed(FileTable::CoverageOf(*entry), record_);
  return true;
}

// A new file is known when its process follows it.
void LoggedCall::BeginKnown() const {
  const uint64_t tag = files_.tag();
  if (request_.what == What::kMakeFolder) {
    const Folder& folder = folders_.to();
    BeginKnownFolder(folder.fd(), folder.name(), tag, folders_.CountOwn(tag));
    KeepBirth(tag, lsn_);
  } else if (request_.what == What::kMakeLink) {
    BeginKnownLink(record_, tag, files_.stamp());
  }
}

}  // namespace nvcache::vfs
