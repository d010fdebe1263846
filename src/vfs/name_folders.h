// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_NAME_FOLDERS_H_
#define NVCACHE_VFS_NAME_FOLDERS_H_

#include <cstdint>

#include "src/pool/name_record.h"
#include "src/vfs/folder.h"

namespace nvcache::vfs {

// The folders of a call that changes names (name_call.h): that of the name which it makes or takes
// away, and that of the old name, if the call has one. The process is naming until they are found,
// and in flight for each of them until the call is over.
class NameFolders {
 public:
  // `changes`: the call changes a name, or may.
  explicit NameFolders(bool changes);
  ~NameFolders();
  NameFolders(const NameFolders&) = delete;
  NameFolders& operator=(const NameFolders&) = delete;

  // Some folder has an entry, so those of the call have to be found.
  bool AreWanted() const;
  // False: Folder::Find. `slashes`: as there.
  bool Find(int dirfd, const char* path, bool slashes);
  bool FindFrom(int dirfd, const char* path, bool slashes);
  // All folders of the call are found.
  void EndNaming();

  // One of them has an entry, so the call is in the log, or goes past it. EndNaming() was before.
  bool AnyEntry() const;
  // One record can have the call.
  bool FitOneRecord() const;
  bool has_to() const { return has_to_; }
  bool has_from() const { return has_from_; }
  Folder& to() { return to_; }
  const Folder& from() const { return from_; }
  // How often this call is in flight for that folder, or is taken to.
  uint32_t CountOwn(uint64_t tag) const;

  // Has them be known, and open, if `opens`. False: they cannot be just now. No lock.
  bool MakeKnown(bool opens);
  // Their descriptors are theirs, for sure. `from_seen`: so is that of the old name's.
  bool Confirm(bool from_seen);
  // All that the record has but for files. `target`: of a symbolic link; or null.
  bool Describe(const char* target, pool::NameRecord* record);
  // Known still; and from now on something of them is pending. A checkpoint that is drawn later
  // ends that, also if the call changes nothing. Lock of names.
  bool Hold() const;

  // Each of them goes past the log (Folder::Bypass), and has no descriptor afterwards. No lock.
  long Bypass();
  // A call past the log is over. It is on the disk before a later one can be in the log; the
  // folders are known again, perhaps. No lock.
  void SyncBypassed();
  // The kernel has made a call in folders that had no entry. Where syncs have to wait for such
  // names, their folder is worth to be known. No lock.
  void NoteUnlogged();
  void EndInFlight();

 private:
  bool MakeOneKnown(Folder& folder) const { return folder.MakeKnown(CountOwn(folder.tag())); }
  template <typename Function>
  void ForEach(Function function);

  bool naming_ = false;
  bool has_to_ = false, has_from_ = false;
  Folder to_, from_;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAME_FOLDERS_H_
