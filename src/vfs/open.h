// SPDX-License-Identifier: BSD-3-Clause
//
// Opening.
#ifndef NVCACHE_VFS_OPEN_H_
#define NVCACHE_VFS_OPEN_H_

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>

#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/results.h"
#include "src/vfs/name_call.h"

namespace nvcache::vfs {

struct File;

// Brackets a real open() of `path`, so that O_TRUNC is ordered with the log:
//
//   OpenGuard guard(dirfd, path, flags, resolve);  // open_how::resolve of openat2, 0 of others
//   if (guard.error() < 0) ...      // fail with it instead: the file system refuses the pending
//                                   // bytes, so it must not be truncated under them
//   int fd = <real open>;           // with guard.flags(); errno is the caller's business
//   if (guard.Opened(fd) < 0) ...   // fd < 0: the open failed
//
// Opened() starts to track a regular file. A file that cannot be tracked is left to the kernel; but
// while another process has the file in its cache and does not let go, the answer is -EIO, and the
// descriptor must be closed again. The guard may hold locks: the real open of a tracked file must
// not be a cancellation point (`holds_locks()` tells; make the raw system call then).
class OpenGuard {
 public:
  // `plain`: Replace() knows all that the real call looks at, which is not so of openat2.
  OpenGuard(int dirfd, const char* path, int flags, mode_t mode, uint64_t resolve = 0,
            bool plain = true);
  ~OpenGuard();
  OpenGuard(const OpenGuard&) = delete;
  OpenGuard& operator=(const OpenGuard&) = delete;

  // In place of the real call, where that would cut off what the log has: opens the file and cuts
  // it by way of the log; or where the log will have the name of the file that it makes, or would
  // have to have it. A descriptor, or a negated errno; kNotOurs: make the real call.
  long Replace();
  long Opened(int fd);
  bool holds_locks() const { return locked_; }
  // The flags with which the real call is made. Where paths are not seen, it does not cut the file:
  // that is cut by its descriptor, by way of the log.
  int flags() const { return flags_ & ~(cuts_unseen_ ? O_TRUNC : 0); }
  long error() const { return error_; }

 private:
  long OpenedInChild(int fd);
  long CutOpened(int fd);
  static long CutReader(int fd);
  void LockTable();
  void UnlockTable();
  void Drain();
  void PrepareToCut(uint64_t resolve, bool plain);
  long Create();
  long OpenToCut();
  long OpenThere();
  static long Cut(int fd);

  long error_;  // first: what the others hold is not held while the open waits
  int flags_;
  const char* path_;
  NameCall names_;
  Claim by_path_;
  Claim by_descriptor_;
  bool locked_ = false;
  bool cuts_ = false;          // file_ has something to cut off
  bool replaces_ = false;      // by Replace()
  bool cuts_through_ = false;  // a file of the kernel's, by way of the log
  bool cuts_unseen_ = false;   // whichever it is, by its descriptor
  int dirfd_;
  File* file_ = nullptr;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_OPEN_H_
