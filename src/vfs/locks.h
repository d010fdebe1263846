// SPDX-License-Identifier: BSD-3-Clause
//
// The program's locks on files: fcntl, flock, lockf.
#ifndef NVCACHE_VFS_LOCKS_H_
#define NVCACHE_VFS_LOCKS_H_

namespace nvcache::vfs {

// A call may do this to the locks that there are. One for sharing takes the place of an exclusive
// one.
enum class LockStep { kTake, kTakeShared, kRelease };

// Before a real call on a lock.
void BeforeLock(int fd, LockStep step);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_LOCKS_H_
