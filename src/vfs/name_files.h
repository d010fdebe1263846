// SPDX-License-Identifier: BSD-3-Clause
//
// The files whose names a logged call changes (name_call.h).
#ifndef NVCACHE_VFS_NAME_FILES_H_
#define NVCACHE_VFS_NAME_FILES_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/sys/born_stat.h"
#include "src/vfs/folder.h"

namespace nvcache::vfs {

// Tells other processes, by the files' entries, what a call does to their names. LoggedCall says
// before the call which files they are, and notes after it what has happened to them. Lock of
// names.
class NameFiles {
 public:
  NameFiles() = default;
  ~NameFiles();
  NameFiles(const NameFiles&) = delete;
  NameFiles& operator=(const NameFiles&) = delete;

  // The file or folder gets its first name, or another one.
  void Gets(const struct statx& st);
  // The file or folder loses its last name.
  void LosesLast(const struct statx& st);
  // The file that has the folder's name loses it, and has others.
  void LosesOne(const Folder& folder, const struct statx& st);

  // The pool's journal on a disk has the birth of the file that gets a name, and all of its bytes,
  // and they count in recovery.
  bool IsInJournal() const;
  // Recovery has records of one that gets or loses a name, and may need it for them: it cannot make
  // it again.
  bool MayMiss() const;
  // One loses its last name of which recovery has records.
  bool IsLastOfPending() const;
  // The one that gets a name is older than such a call which the journal lacks: if that took this
  // name, recovery could not tell that it is not the one that is back.
  bool MayTakeRemovedName() const;

  // The file or folder that gets a name is a new one. Nothing is known of it that was known of one
  // before with its number.
  void NoteNew() const;
  // The file or folder that loses a name has lost it. The outcome is committed later: no process
  // may log what it writes to a file without a name.
  void NoteLost() const;
  // The file or folder that gets another name has it, and it is the folder's. False: something else
  // has that name, so somebody without the log has changed the names between the look and the call.
  bool NoteMoved(const Folder& folder, uint64_t inode) const;

  // The tag of what gets a name, and StampOf() it before the call.
  uint64_t tag() const { return named_.tag; }
  uint64_t stamp() const { return named_.stamp; }

 private:
  struct Stamped {
    uint64_t tag = 0, stamp = 0;
  };
  Stamped named_;  // gets a name
  Stamped loser_;  // loses one of its names
  int loser_fd_ = -1;
  uint64_t gone_tag_ = 0;  // loses its last name
};

// Nothing of the file or folder is in the log any more, where recovery would look for it in vain;
// and another one may get its number, and be born in the same tick of the file system's clock.
void ForgetGone(uint64_t tag);

// The log can have the move of the folder `name` with that tag: it is empty, so it takes no path of
// a record with it; and it is known, so nothing comes into it but under the lock of names.
bool CanMoveFolder(int dirfd, const char* name, uint64_t tag);

// Has the log, or the disk, have all bytes of the file that has the folder's name: what another
// process writes to it meanwhile was not promised. False: the log cannot have its new name; of a
// folder, CanMoveFolder. No lock, for it may sync.
bool SecureBytes(const Folder& folder, const sys::BornStat& st);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAME_FILES_H_
