// SPDX-License-Identifier: BSD-3-Clause
//
// Names, and the kernel's answers about a file by one.
#ifndef NVCACHE_VFS_NAMES_H_
#define NVCACHE_VFS_NAMES_H_

#include <sys/types.h>

#include "src/vfs/engine/claim.h"

namespace nvcache::vfs {

struct File;

// For the stat family, after a real call that has met a regular file: size, blocks and times are
// the kernel's, once it has the bytes. True: when it was asked, it may have lacked some, and now
// has them; the call must be made again. The cleanup thread may have brought them since.
bool PublishInode(dev_t dev, ino_t ino);

// Replaces *size by the newest size when (dev, ino) is a cached file: for the second of these
// calls, in case the file system has refused the bytes.
void NewestSize(dev_t dev, ino_t ino, off_t* size);

// They do so by a descriptor, before the call, without the table lock, which fork holds while it
// waits for the streams' locks. False: the file system has refused the bytes.
bool PublishBytes(int fd);
void NewestSizeOf(int fd, off_t* size);

// Around a call that may take a file's last name, on a mirrored pool: the images get to know that
// before the disk does. Else, if the machine died, recovery would have records of a file that is
// gone, and could not tell it from a disk that is too old. No lock.
class Removal {
 public:
  Removal() = default;
  // A file that still has its name is none that was removed.
  ~Removal();
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

  // 0; -EIO: the call must fail. Once; the path stays there. A child of vfork announces nothing.
  long Announce(int dirfd, const char* path);

 private:
  int dirfd_ = -1;
  const char* path_ = nullptr;
  dev_t device_ = 0;
  ino_t inode_ = 0;  // 0: the log has no note of it
};

// Brackets a real call that changes names or sizes by path: rename, link, unlink, truncate.
// Each Add() drains the file that the path names (never following a last symbolic link) and keeps
// writers out until the guard goes; then its name, size and link count are read anew. The pending
// records of a file that loses its last name (Fate::kIsRemoved) stay in the log. 0, or the
// negated errno with which the file system refuses the pending bytes: then the call must fail.
//
//   NameGuard guard;
//   if (guard.Claim(dirfd, path) < 0) ...   // each name, before the first Add()
//   if (guard.Add(dirfd, path) < 0) ...
//   <real call, not a cancellation point>
//
// Claim() has other processes do the same that have the file in their cache. Where paths are not
// seen, it does nothing: UnseenCall.
class NameGuard {
 public:
  NameGuard() = default;
  ~NameGuard();
  NameGuard(const NameGuard&) = delete;
  NameGuard& operator=(const NameGuard&) = delete;

  // `logged`: the log has the change, so the file's pending records may stay so; it is no folder.
  // `seen`: what the path leads to; null: it is looked at.
  long Claim(int dirfd, const char* path, bool follow = false, bool logged = false,
             const sys::BornStat* seen = nullptr);
  // The fate of the name: kIsRemoved, if the call takes it from the file, and gives it to none
  // or to another one.
  enum class Fate { kStays, kIsRemoved };
  long Add(int dirfd, const char* path, bool follow = false, Fate fate = Fate::kStays,
           bool logged = false);

 private:
  // A file that is locked, and the fate of its records in the log.
  struct Held {
    File* file = nullptr;
    bool removes = false;  // it stays there, and the log says that the last name goes
  };
  void LetGo();

  vfs::Claim claims_[2];
  int claimed_ = 0, added_ = 0;
  bool locked_ = false;
  Held held_[2];
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAMES_H_
