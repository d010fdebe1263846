// SPDX-License-Identifier: BSD-3-Clause
//
// Folders whose names the log knows (docs/names.md). Each has an entry (src/lease/file_table.h):
//
//   none    --- two syncs of it, or of files in it, within kWarmSeconds ---> known
//   known   --- a call that changes its names and is in no log ------------> unknown
//           --- somebody has taken the lock of names from another one -----> unknown
//   unknown --- a real sync, and nobody is at such a call -----------------> known
//
// While a folder is known, each change of its names is in the log, and its fsync is nothing.
#ifndef NVCACHE_VFS_FOLDER_H_
#define NVCACHE_VFS_FOLDER_H_

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

#include "src/lease/file_table.h"
#include "src/pool/name_record.h"
#include "src/sys/born_stat.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/kept_folders.h"
#include "src/vfs/engine/recent_records.h"

namespace nvcache::vfs {

// Bytes of a path that the kernel takes, with the final zero.
inline constexpr size_t kLongestPath = 4096;

// Where a call finds a name: the folder, which is looked up once, and the name in it.
class Folder {
 public:
  Folder() = default;
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // False: the path leads to no folder, or has no last name that a call can give: the kernel will
  // say so. `slashes`: they may follow the name, for it is a folder's. `beside`: has just been
  // found, and need not be looked up again if the path says the same.
  bool Find(int dirfd, const char* path, bool slashes, const Folder* beside = nullptr);
  // Finds the folder that is open there, not with O_PATH, and looks like this. `name()` is nothing.
  bool FindOpen(int fd, const sys::BornStat& st);
  // The folder's descriptor, for the calls that change it. False: it cannot be had.
  bool Open();
  // The same, perhaps one that was kept open (KeptFolders): nothing is changed by it before
  // Confirm() or NoteConfirmed().
  bool OpenKept();
  // The descriptor is the folder's, for sure.
  bool Confirm();
  void NoteConfirmed() { confirmed_ = true; }

  // Before a call that gives the program a descriptor: it gets the lowest number, as ever. And
  // before one that gets descriptors of the program: it may have closed one that had this number.
  // Not after FindOpen().
  void DropDescriptor();

  int fd() const { return fd_; }
  const char* name() const { return name_; }
  uint64_t tag() const { return tag_; }
  // Or it is taken for it, for they have one entry.
  bool IsSame(const Folder& other) const { return tag_ == other.tag_; }
  // The other one's descriptor, for as long as that lives, if it is the same folder.
  bool OpenAs(const Folder& other);
  uint64_t device() const { return device_; }
  // Null: it has none.
  lease::FileEntry* entry() const;
  bool IsKnown() const;

  // For a record. False: recovery would not find it.
  bool Describe(NamedRecord* record);

  // Around a call that changes its names, or may: before it is asked whether it has an entry. Ends
  // with the folder's life at the latest.
  void BeginInFlight();
  void EndInFlight();

  // A process in flight for this one is taken for one of a folder with that tag.
  bool IsInFlightFor(uint64_t tag) const;

  // Has it be known, by a real sync. `own`: so often the caller is in flight for it, or another
  // folder of its class. False: it cannot be just now. It need not be open then. No lock.
  bool MakeKnown(uint32_t own);
  // fsync. No lock.
  bool Sync();
  // Before a call that changes its names and is in no log: it is known no more, and nothing of it
  // is pending. 0; -EIO: the disk refuses, so the call must fail. No lock.
  long Bypass();

 private:
  void Take(const sys::BornStat& st);
  KeptFolders::Key key() const { return {mount_, device_, inode_, birth_}; }
  bool Look(int dirfd, const char* path, const Folder* beside);
  bool SyncToKnow(uint32_t own);
  const char* parent() const { return parent_ != nullptr ? parent_ : "."; }

  sys::Scratch<char[kLongestPath]> path_;
  const char* parent_ = nullptr;  // null: `dirfd_` itself
  const char* name_ = "";
  int dirfd_ = -1;
  int fd_ = -1;
  bool owns_fd_ = false;
  int kept_ = KeptFolders::kNone;  // its handle, if that is kept
  bool confirmed_ = false;
  bool in_flight_ = false;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t birth_ = 0;  // sys::BornStat
  uint64_t mount_ = 0;  // the same
  uint64_t tag_ = 0;    // 0: it can have no entry
};

// Nothing but the two names that every folder has.
bool IsEmptyFolder(int dirfd, const char* name);

// The pool, and for its write-through files the file system of what is open there. False: they
// cannot be had. No lock.
bool JoinDevice(int fd);
bool JoinDevice(int fd, const struct stat& st);
// The same, if names are to be in the log.
bool JoinPool(int fd);
bool JoinPool(int fd, const struct stat& st);

// A path of the program's, of less than `size` bytes. Its length; 0: it is empty, too long, or
// there is none.
size_t CopyPath(char* to, const char* path, size_t size);

// The path by which the kernel knows what is open there, of kMaxPath bytes; of what was removed,
// another text.
bool ReadPath(int fd, char* path);
// If it leads there.
bool ReadPath(int fd, uint64_t device, uint64_t inode, char* path);

// fsync of what is open there, which is not tracked: 0, if it is a folder, and all of its names are
// on the disk or in the log; kNotOurs: it has to be synced. No lock.
long SyncFolder(int fd);

// A file was synced for real. The folder that it is in may be worth to be known.
void WarmFolderOf(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_FOLDER_H_
