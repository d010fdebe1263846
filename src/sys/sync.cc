// SPDX-License-Identifier: BSD-3-Clause
//
// When a commit of ext4's journal fails, the journal is given up, and the call that waits for that
// commit hears of it. But a sync that begins a moment later finds the commit done, and says 0,
// although all that was in it is lost. That ends when something changes the file system: it finds
// the journal given up, and becomes read-only. The failed commit may have been another program's,
// or one that no process has waited for. Btrfs says 0 to the second sync of a file whose first has
// failed.
//
// So, after a success, the file system is made to begin a change that comes to nothing: an
// attribute is removed that is not there. If that cannot be, the sync is asked again.
#include <errno.h>
#include <linux/magic.h>

#include "src/sys/kernel.h"

namespace nvcache::sys {

namespace {

constexpr char kNoAttribute[] = "user.nvcache.no-file-has-this";  // removed, if one had it

// An overlay may lie over one of the others.
bool KeepsQuiet(int fd) {
  struct statfs fs;
  if (Fstatfs(fd, &fs) < 0) return false;
  return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC ||
         fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

// A file system that has files open to write is not made read-only but by an error.
bool IsToWrite(int fd) { return (Fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY; }

long Sync(long number, int fd) {
  CheckSync();
  const long result = Call(number, fd);
  if (result < 0 || !KeepsQuiet(fd)) return result;
  const long change = Call(SYS_fremovexattr, fd, Address(kNoAttribute));
  if (change != -EROFS && change != -EIO) return result;  // the rest says nothing of the disk
  // On a read-only file system, syncfs() reports no error.
  const long again = Call(SYS_fsync, fd);
  return again == 0 && change == -EROFS && IsToWrite(fd) ? change : again;
}

}  // namespace

long Fsync(int fd) { return Sync(SYS_fsync, fd); }
long Fdatasync(int fd) { return Sync(SYS_fdatasync, fd); }
long Syncfs(int fd) { return Sync(SYS_syncfs, fd); }

}  // namespace nvcache::sys
