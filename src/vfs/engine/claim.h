// SPDX-License-Identifier: BSD-3-Clause
//
// Other processes of the user: a file is in one cache at most (I11).
#ifndef NVCACHE_VFS_ENGINE_CLAIM_H_
#define NVCACHE_VFS_ENGINE_CLAIM_H_

#include <sys/types.h>

#include <cstdint>

#include "src/sys/born_stat.h"
#include "src/vfs/engine/in_flight.h"

namespace nvcache::vfs {

// A file that this process is about to use, by a descriptor or by its name. While the claim lives,
// no other process has the file in its cache; afterwards as long as a File of it does.
class Claim {
 public:
  Claim() = default;
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Has the process that caches the file let go of it, and the pool of one that has died recovered.
  // A claim is taken once; without any lock, for it waits for other processes' disks. 0; -EIO: the
  // holder lives and does not let go.
  long Take(const sys::BornStat& st);
  // Takes it of the regular file that the path names, if it names one.
  long TakePath(int dirfd, const char* path, bool follow);
  // The same of a path that was seen to lead there.
  long TakeSeen(const sys::BornStat& st);
  // The path was seen to lead to no folder.
  bool is_no_folder() const { return is_no_folder_; }
  bool taken() const { return taken_; }
  // Somebody has let go of the file, or has died, since the claim was to be taken: earlier
  // knowledge of the file is old.
  bool has_waited() const { return has_waited_; }
  // The claim was taken for a call that changes the file, its size or its name, and that ends with
  // the claim: nothing of it is in a log of write-through any more. Without any lock. 0; -EIO: the
  // disk refuses that, so the call must fail.
  long ToChange();

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
  uint64_t tag_ = 0;
  bool taken_ = false;
  bool has_waited_ = false;
  bool is_no_folder_ = false;
  InFlight in_flight_;
};

// The descriptor's file is kForeign. No lock.
bool IsForeign(int fd);
// If it is: has the parent let go of it. 0; -EIO, if it does not, or if the file is lost; or an
// errno of fstat. No lock.
long TakeOver(int fd);
// The kernel gets what another process has of the file in its cache. True: it may have got some.
// No lock.
bool AwaitPublication(uint64_t device, uint64_t inode);

// Gives back the claims of a child that has shared this thread's memory, after its life.
void DropClaimsOfChildren();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_CLAIM_H_
