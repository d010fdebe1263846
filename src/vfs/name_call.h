// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that change names, and their records in the log (docs/names.md; tests/names is the model).
// The steps of such a call, and what each of them writes for those that follow:
//
//   step      where         writes                                            for
//   find      NameFolders   the folders, which the process is in flight for   all
//   prepare   NameCall      way_ and error_; in the record all but files      guard, make
//             Create        found_, which the open looks at                   make
//             Bypass        owed_, if the log cannot have the call            end
//   guard     NameGuard     cached files, locked                              make
//   make      LoggedCall    the files in the record; created_, owed_          end
//   end       NameCall      the folders are synced, if that is owed_
//
// A change in the log is durable when the call returns. Everything else is left to the kernel; then
// a folder that was known is not any more, and nothing of it is pending.
#ifndef NVCACHE_VFS_NAME_CALL_H_
#define NVCACHE_VFS_NAME_CALL_H_

#include <sys/types.h>

#include "src/pool/name_record.h"
#include "src/sys/born_stat.h"
#include "src/sys/scratch.h"
#include "src/vfs/logged_call.h"
#include "src/vfs/name_folders.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

// Around one call, as long as it takes.
//
//   NameCall call;
//   call.Rename(...);               // or another one: no lock, for it may wait for the disk
//   if (call.error() < 0) ...       // it must fail with that
//   long result = call.Make();      // with the engine's table lock, or without
//   if (result == kNotOurs) ...     // make the real call
class NameCall {
 public:
  // `changes`: or it will change none.
  explicit NameCall(bool changes = true) : folders_(changes) {}
  ~NameCall() { End(); }
  NameCall(const NameCall&) = delete;
  NameCall& operator=(const NameCall&) = delete;

  // The call to be made. `past`: past the log. Paths stay there until the call is made.
  void Create(int dirfd, const char* path, int flags, mode_t mode, bool past);
  void MakeFolder(int dirfd, const char* path, mode_t mode, bool past);
  void MakeLink(const char* target, int dirfd, const char* path, bool past);
  void Remove(int dirfd, const char* path, int flags, bool past);
  void Rename(int from_dirfd, const char* from, int dirfd, const char* path, unsigned flags,
              bool past);
  void Link(int from_dirfd, const char* from, int dirfd, const char* path, int flags, bool past);
  // A call that the log has no record for, and that changes a name, or makes one.
  void Other(int dirfd, const char* path);

  long error() const { return error_; }
  // Make() will make the call, unless something comes in between.
  bool logs() const { return way_ != Way::kKernel; }
  // Nothing has the name that the call is to take away: the kernel refuses it.
  bool is_in_vain() const { return way_ == Way::kInVain; }
  // What the path was seen to lead to, if Make() will look again before it makes the call; or null.
  const sys::BornStat* Seen(const char* path) const;
  // The kernel's answer, of Create a descriptor; kNotOurs, kBeginAnew.
  long Make();
  // Make() was in vain, and the call was made by other means, perhaps.
  void MadeUnlogged() { Owe(Owed::kBypass); }
  // The real call was made, and may have changed a name.
  void MadeByKernel() { Owe(Owed::kNote); }
  // The call is over. No lock, for it may wait for the disk; the destructor is the last to see to
  // it.
  void End();

  // Create has found nothing by the name; or a file that the kernel opens just the same where it is
  // not asked to make one, or by then none. (If it is another user's, the kernel may ask whose the
  // folder is.)
  bool is_free() const { return found_ == Found::kFree; }
  bool is_there() const { return found_ == Found::kFile; }
  // The call makes a file of which the log will have nothing, if it succeeds: under another name,
  // or since the file there is gone. SyncElsewhere() then.
  bool creates_elsewhere() const { return found_ == Found::kElsewhere; }
  void MakesElsewhere() { found_ = Found::kElsewhere; }
  // The call has made a file, if it has succeeded, and that is new and empty: BeginKnown().
  bool has_created() const { return created_ != Recorded::kNothing; }
  // It as it was then. False: it was not looked at.
  bool GetMade(sys::BornStat* st) const;
  // The log's record of it, and its LSN; null: none.
  const pool::NameRecord* created() {
    return created_ == Recorded::kInLog ? &large_->record : nullptr;
  }
  pool::Lsn born() const { return born_; }

 private:
  using What = NameRequest::What;
  enum class Way { kKernel, kLogged, kInVain };
  // End() has to do the most of what anybody has asked for: it notes that names are in no log; it
  // syncs the folders; they go past the log before that.
  enum class Owed { kNothing, kNote, kSync, kBypass };
  // Create has found this by the name that it is to make.
  enum class Found { kOther, kFree, kFile, kElsewhere };

  // What the program's stack has no room for.
  struct Large {
    pool::NameRecord record;
    sys::BornStat seen = {};  // by the name that the call is to take away
    sys::BornStat made = {};
  };

  bool TakeUnseen();
  void MoveUnseen();
  void Prepare(bool past);
  bool PrepareInVain();
  bool RemoveInVain();
  void Bypass();
  void ForgetGoing() const;
  void Owe(Owed owed) { owed_ = owed_ < owed ? owed : owed_; }
  long RenameInVain();

  NameFolders folders_;
  NameRequest request_;
  mutable sys::Scratch<Large> large_;
  bool has_seen_ = false;
  Way way_ = Way::kKernel;
  long in_vain_ = 0;  // the kernel's answer to a removal
  Owed owed_ = Owed::kNothing;
  long error_ = 0;
  bool moves_ = false;  // a folder, perhaps
  UnseenCall unseen_;
  Found found_ = Found::kOther;
  Recorded created_ = Recorded::kNothing;
  pool::Lsn born_ = 0;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAME_CALL_H_
