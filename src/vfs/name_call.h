// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that change names, and their records in the log (docs/names.md; tests/names is the model).
// Where the folders are known (folder.h), such a call is made here, under the lock of names of all
// processes of the user:
//
//   announcement   committed, but for what makes a name and destroys none
//   the call       relative to the folders, which were looked up once
//   outcome        committed, if the call has met what was announced
//
// A change in the log is durable when the call returns. Everything else is left to the kernel; then
// a folder that was known is not any more, and nothing of it is pending.
#ifndef NVCACHE_VFS_NAME_CALL_H_
#define NVCACHE_VFS_NAME_CALL_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <climits>

#include "src/pool/name_record.h"
#include "src/vfs/engine/passing.h"
#include "src/vfs/folder.h"

namespace nvcache::vfs {

class NamesLock;

// It cannot be logged now, after all, and nothing has happened: to be begun anew, past the log.
inline constexpr long kBeginAnew = LONG_MIN + 20;

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
  explicit NameCall(bool changes = true);
  ~NameCall();
  NameCall(const NameCall&) = delete;
  NameCall& operator=(const NameCall&) = delete;

  // The call to be made. `past`: not by way of the log. Paths stay there until the call is made.
  void Create(int dirfd, const char* path, int flags, mode_t mode, bool past);
  void MakeFolder(int dirfd, const char* path, mode_t mode, bool past);
  void MakeLink(const char* target, int dirfd, const char* path, bool past);
  void Remove(int dirfd, const char* path, int flags, bool past);
  void Rename(int from_dirfd, const char* from, int dirfd, const char* path, unsigned flags,
              bool past);
  void Link(int from_dirfd, const char* from, int dirfd, const char* path, int flags, bool past);
  // A call that the log has no record for, and that changes a name, or makes one.
  void Other(int dirfd, const char* path);
  void Others(int from_dirfd, const char* from, int dirfd, const char* path);

  long error() const { return error_; }
  // Make() will make the call, unless something comes in between.
  bool logs() const { return what_ != What::kNothing; }
  // Nothing has the name that the call is to take away: Make() lets the kernel refuse it.
  bool is_in_vain() const { return in_vain_; }
  // The kernel's answer, of Create a descriptor; kNotOurs, kBeginAnew.
  long Make();
  // The call was made by other means, perhaps.
  void GoPastAfterwards() { astray_ = true; }
  // The real call was made, and may have changed a name.
  void MadeByKernel() { by_kernel_ = true; }
  // The call is over. No lock, for it may wait for the disk; the destructor is the last to see to
  // it.
  void End();
  // The call makes a file of which the log will have nothing, if it succeeds: under another name,
  // or since the file there is gone. CreatedElsewhere then. No lock.
  bool creates_elsewhere() const { return elsewhere_; }
  void MakesElsewhere() { elsewhere_ = true; }
  static void CreatedElsewhere(int fd);
  // Of Create: nothing has the name; a file has it that the kernel opens just the same where it is
  // not asked to make one, or by then none. (Of another user's, it may ask whose the folder is.)
  bool is_free() const { return is_free_; }
  bool is_there() const { return is_there_; }
  // The call has made a file, if it has succeeded, and that is new and empty.
  bool has_created() const { return created_; }
  // The log's record of it; null: none.
  const pool::NameRecord* created() { return created_ && logged_ ? record_.get() : nullptr; }

 private:
  enum class What { kNothing, kCreate, kMakeFolder, kMakeLink, kRemove, kRename, kLink };

  bool Find(int dirfd, const char* path, bool slashes);
  bool FindFrom(int dirfd, const char* path);
  void AreFound();
  void Begin(What what, bool past);
  bool HasFolders() const;
  uint32_t CountOwn(uint64_t tag) const;
  bool MakeKnown(Folder& folder) const;
  bool AreKnown(What what);
  bool IsWhereSaid();
  bool KnowsBytes(const Folder& folder, const struct stat& st);
  bool Describe();
  bool Hold(const Folder& folder) const;
  long Look();
  long MakeUnderLock();
  bool BeginInVain(What what);
  long MakeInVain();
  long Call();
  bool AddCreated(long result);
  void KeepLoser(const struct statx& st);
  uint32_t GoneOf(const struct statx& st) const;
  bool NoteChanged();
  bool Commit(pool::Deed deed);
  void ForgetReplaced() const;
  void GoPast();
  void GoPastAfterAll();
  void SyncPast();
  void SeeToUnlogged();

  bool naming_ = false;
  What what_ = What::kNothing;
  long error_ = 0;
  bool created_ = false;
  bool logged_ = false;  // its outcome is
  bool in_vain_ = false;
  bool elsewhere_ = false;
  bool is_free_ = false, is_there_ = false;
  bool astray_ = false;  // the call was made, and is not in the log: ends with GoPast
  bool moves_ = false;   // a folder, perhaps
  bool past_ = false;    // it is not in the log, and nothing else is pending
  bool by_kernel_ = false;
  int flags_ = 0;
  mode_t mode_ = 0;
  int dirfd_ = -1;  // of a file that is made, or in vain, as the program has given them
  const char* path_ = nullptr;
  int from_dirfd_ = -1;
  const char* from_path_ = nullptr;
  // Of what gets its first name, or another one: its st_mode, and MarkOf() it before that.
  uint32_t type_ = 0;
  uint64_t left_ = 0;
  // The same of one that loses its name and has others, and its descriptor.
  int loser_ = -1;
  uint64_t loser_left_ = 0, loser_tag_ = 0;
  bool has_folder_ = false, has_from_ = false;
  bool has_target_ = false;  // the record has one
  Folder folder_, from_;
  const NamesLock* lock_ = nullptr;
  sys::Scratch<pool::NameRecord> record_;
};

// The descriptor's file was just made by a NameCall, and the process follows it: each byte that it
// gets will be in the log. `created`: NameCall::created(). No lock.
void BeginKnown(int fd, const pool::NameRecord* created);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAME_CALL_H_
