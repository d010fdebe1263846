// SPDX-License-Identifier: BSD-3-Clause
//
// The part of a call that changes names (name_call.h) which is under the lock of names:
//
//   Hold       the folders are known still, and something of them is pending from now on
//   Look       what the names lead to: it is in the record, and in NameFiles
//   announce   a record is committed, but for what makes a name and destroys none
//   await      at level `disk`, the journal has that, where recovery could not see by the disk what
//              the call has done
//   Call       relative to the folders, which were looked up once
//   note       the entries of the files are as they are to be now
//   record     the outcome is committed, if the call has met what was announced
#ifndef NVCACHE_VFS_LOGGED_CALL_H_
#define NVCACHE_VFS_LOGGED_CALL_H_

#include <sys/types.h>

#include <climits>

#include "src/pool/name_record.h"
#include "src/sys/born_stat.h"
#include "src/vfs/name_files.h"
#include "src/vfs/name_folders.h"
#include "src/vfs/names_lock.h"

namespace nvcache::vfs {

// The log cannot have the call now, after all, and nothing has happened: it is to be begun anew,
// past the log.
inline constexpr long kBeginAnew = LONG_MIN + 20;

// The call that the program asks for. Its paths stay there until the call is made.
struct NameRequest {
  // kOther: the log has no record for it.
  enum class What { kOther, kCreate, kMakeFolder, kMakeLink, kRemove, kRename, kLink };
  What what = What::kOther;
  int flags = 0;
  mode_t mode = 0;
  int dirfd = -1;  // of the name that is made or goes
  const char* path = nullptr;
  int from_dirfd = -1;  // of the old name
  const char* from = nullptr;
  const char* target = nullptr;  // a symbolic link's
  // What the path that is to go, or the old one, was seen to lead to; or null.
  const sys::BornStat* seen = nullptr;
};

// The outcome of a call.
enum class Recorded { kNothing, kInLog, kNotInLog, kElsewhere };

class LoggedCall {
 public:
  // `record` has all but files. All stay there.
  LoggedCall(const NameRequest& request, NameFolders& folders, pool::NameRecord& record)
      : request_(request), folders_(folders), record_(record) {}

  // The kernel's answer, of kCreate a descriptor; or kBeginAnew, or kNotOurs, and nothing has
  // happened.
  long Make(const NamesLock& lock);
  // kNothing: the call has changed nothing. kElsewhere: it has made a file in another folder than
  // was looked up.
  Recorded recorded() const { return recorded_; }
  // The file that the call has made, as it was then; a number of 0: it was not looked at.
  const sys::BornStat& made() const { return made_; }
  // Of the record of that, or 0.
  pool::Lsn lsn() const { return lsn_; }

 private:
  using What = NameRequest::What;

  bool Makes() const;
  long Look();
  long LookAtGoing();
  long LookAtMoving();
  long LookAtReplaced(const struct statx& moving);
  bool IsSeen(const struct statx& st) const;
  long Call() const;
  bool NoteMade(long result);
  bool IsWhereSaid();
  bool NoteChanged();
  void BeginKnown() const;
  bool MustBeInJournal() const;
  bool Commit(pool::Deed deed, const NamesLock& lock);

  const NameRequest& request_;
  NameFolders& folders_;
  pool::NameRecord& record_;
  NameFiles files_;
  Recorded recorded_ = Recorded::kNothing;
  pool::Lsn lsn_ = 0;
  bool from_seen_ = false;  // IsSeen() the file that moves
  sys::BornStat made_ = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LOGGED_CALL_H_
