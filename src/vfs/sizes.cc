// SPDX-License-Identifier: BSD-3-Clause
//
// Offsets, sizes and durability.
#include <errno.h>

#include <cstdint>

#include "src/sys/kernel.h"
#include "src/vfs/access.h"

namespace nvcache::vfs {

namespace {

// No disk file system refuses an offset up to here.
constexpr int64_t kAnywhere = INT32_MAX;

// Makes the kernel's copy the newest and calls `change`, which may alter the file's size; with
// everybody else kept out, and nothing in the log that replay could bring back over it (I9). Nor
// may what it `cuts`, or lets the file lose by being shorter, come back under a later entry.
template <typename Change>
long WithKernel(int fd, bool cuts, Change change) {
  if (long error = engine.TakeOver(fd); error < 0) return error;
  ExclusiveAccess access(fd);
  if (!access.entered() || !access.cached()) return kNotOurs;
  File& file = access.file();
  if (long error = engine.DrainExclusively(file); error < 0) return error;
  const uint64_t size = file.size.load();
  const long result = change();
  engine.Resync(file);
  const bool grew_from_nothing = file.opened_cut && file.size.load() > 0;
  if (cuts || grew_from_nothing || file.size.load() < size) engine.cleaner.AwaitSync(file);
  file.changes.fetch_add(1);
  return result;
}

// Cuts all of the file off, at the speed of the log: what is pending need not reach the disk first,
// and fsync need not wait for it. kNotOurs: not so, if at all.
long Empty(int fd) {
  if (long error = engine.TakeOver(fd); error < 0) return error;
  ExclusiveAccess access(fd);
  if (!access.entered() || !access.cached()) return kNotOurs;
  File& file = access.file();
  if (file.size.load() == 0 || file.failing.load() != 0 || engine.CheckBacking(file) < 0) {
    return kNotOurs;
  }
  if (engine.cleaner.Cut(file) < 0) return kNotOurs;
  file.size.store(0);
  file.sparse.store(false);
  return 0;
}

// Of a file that has this size, as SQLite does at each checkpoint. No byte that the log has is
// touched: nothing is drained. The kernel's size may lag behind, and is right afterwards; its time
// and the blocks behind the end are its business. kNotOurs: not so, if at all.
long KeepSize(int fd, off_t length) {
  if (long error = engine.TakeOver(fd); error < 0) return error;
  ExclusiveAccess access(fd);
  if (!access.entered() || !access.cached()) return kNotOurs;
  File& file = access.file();
  if (file.size.load() != static_cast<uint64_t>(length) || file.failing.load() != 0 ||
      engine.CheckBacking(file) < 0) {
    return kNotOurs;
  }
  return sys::Ftruncate(file.backing_fd, length);
}

// A hole or data of the kernel's, once it has the bytes that we have.
long SeekData(Access& access, int fd, off_t offset, int whence) {
  if (long error = engine.Publish(access.file()); error < 0) return error;
  return sys::Lseek(fd, offset, whence);
}

}  // namespace

long Lseek(int fd, off_t offset, int whence) {
  Access access;
  if (long r = access.Enter(fd, Access::kOffset); r != 0) return r;
  if (!access.cached()) return sys::Lseek(fd, offset, whence);
  const uint64_t shared = access.description().offset;
  const uint64_t size = access.file().size.load(std::memory_order_acquire);
  int64_t base = 0;
  switch (whence) {
    case SEEK_SET:
      break;
    case SEEK_CUR:
      base = static_cast<int64_t>(shared);
      break;
    case SEEK_END:
      base = static_cast<int64_t>(size);
      break;
    case SEEK_DATA:
    case SEEK_HOLE: {
      const long found = SeekData(access, fd, offset, whence);
      if (found >= 0) access.MoveOffset(fd, static_cast<uint64_t>(found));
      return found;
    }
    default:
      return -EINVAL;
  }
  int64_t target;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) return -EINVAL;
  if (target > kAnywhere) {
    // How far one may go is the file system's to say.
    if (const long error = sys::Lseek(fd, target, SEEK_SET); error < 0) return error;
  }
  access.MoveOffset(fd, static_cast<uint64_t>(target));
  return target;
}

long Fsync(int fd) {
  Access access;
  if (long r = access.Enter(fd, Access::kData); r != 0) return r;
  if (!access.cached()) return kNotOurs;
  File& file = access.file();
  const int error = file.errors.Take(&access.description().errors_heard);
  const uint32_t changes = file.changes.load();
  const uint32_t awaited = file.awaited.load();
  if (error == 0 && file.changes_synced.load() == changes) return 0;
  // By the program's own descriptor: each hears once of an error, after which the kernel may have
  // dropped bytes, and what ours has to hear is for the cleanup thread (I10). If there was one, the
  // program's has it, too, and should not tell it a second time.
  const long result = sys::Fsync(fd);
  if (error != 0) return -error;
  if (result < 0) return result;
  // After it: another thread's fsync that finds all of them covered returns at once. Attributes may
  // have been set meanwhile.
  file.changes_synced.store(changes);
  file.awaited_synced.store(awaited);
  engine.cleaner.SettleName(file);
  return 0;
}

long Ftruncate(int fd, off_t length) {
  {
    Access access;
    if (long r = access.Enter(fd, Access::kData); r != 0) return r;
    if (!access.writable()) return -EINVAL;
    if (length < 0) return -EINVAL;
  }
  const long r = length == 0 ? Empty(fd) : KeepSize(fd, length);
  if (r != kNotOurs) return r;
  return WithKernel(fd, false, [&] { return sys::Ftruncate(fd, length); });
}

long Fallocate(int fd, int mode, off_t offset, off_t length) {
  if (IsInternal(fd)) return -EBADF;
  const bool cuts = (mode & ~FALLOC_FL_KEEP_SIZE) != 0;
  return WithKernel(fd, cuts, [&] { return sys::Fallocate(fd, mode, offset, length); });
}

void DrainAll() {
  if (!engine.active()) return;
  TableLock lock;
  if (engine.attached()) engine.cleaner.DrainAll();
}

long Drain(int fd) {
  Access access;
  if (long r = access.Enter(fd, Access::kData); r != 0) return r;
  return access.cached() ? engine.cleaner.Drain(access.file()) : kNotOurs;
}

}  // namespace nvcache::vfs
