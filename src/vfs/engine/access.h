// SPDX-License-Identifier: BSD-3-Clause
//
// Entering a file through a descriptor.
#ifndef NVCACHE_VFS_ENGINE_ACCESS_H_
#define NVCACHE_VFS_ENGINE_ACCESS_H_

#include "src/sys/deferral.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/results.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

namespace nvcache::vfs {

// Holds a descriptor's file, shared, with the locks that a data call needs besides. While it does,
// the description stays open, the file keeps its state, and its size does not shrink.
class Access {
 public:
  // kUnlessKernel: a file that is only watched is not ours; the call is the kernel's, whenever
  // made.
  enum Need : unsigned { kData = 0, kOffset = 1, kGrow = 2, kUnlessKernel = 4 };

  Access() = default;
  ~Access() { Leave(); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  // 0; kNotOurs for untracked and pass-through descriptors; -EBADF for one that is being closed.
  long Enter(int fd, unsigned need) { return Enter(fd, need, nullptr); }
  // Enters for a write of `length` bytes: with kGrow, too, if it is likely to need that.
  struct Write {
    const off_t* offset;  // null: the description's
    uint64_t length;
    int flags;  // RWF_*
  };
  long EnterToWrite(int fd, unsigned need, const Write& write) { return Enter(fd, need, &write); }
  void Leave();

  File& file() const { return *file_; }
  Description& description() const { return *description_; }
  bool cached() const { return file_->state.load(std::memory_order_relaxed) == State::kCached; }
  bool readable() const { return (flags() & O_ACCMODE) != O_WRONLY; }
  bool writable() const { return (flags() & O_ACCMODE) != O_RDONLY; }
  // With kOffset.
  void MoveOffset(int fd, uint64_t offset);
  // The write begins at the file's end.
  bool AppendsTo(const Write& write) const { return Appends(*description_, write); }
  bool grows() const { return (need_ & kGrow) != 0; }

 private:
  long Enter(int fd, unsigned need, const Write* write);
  static bool Appends(const Description& description, const Write& write);
  static bool Grows(const Description& description, const File& file, const Write& write);
  int flags() const { return description_->flags.load(std::memory_order_relaxed); }

  sys::InEngine inside_;  // goes after the locks
  Description* description_ = nullptr;
  File* file_ = nullptr;  // not null: entered
  unsigned need_ = 0;
};

// A call that the kernel makes on a file that is its own. It may wait for the disk, so it is made
// without the file's lock: others may open and close the file. Until it is over, nobody begins to
// cache the file.
class KernelCall {
 public:
  // Leaves the file.
  explicit KernelCall(Access& access) : file_(access.file()) {
    file_.in_kernel.fetch_add(1);
    access.Leave();
  }
  ~KernelCall() { file_.in_kernel.fetch_sub(1); }
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

 private:
  File& file_;
};

// The table lock, for a call that comes in by another way.
class TableLock {
 public:
  TableLock() { engine.LockTable(); }
  ~TableLock() { engine.table_lock.Unlock(); }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

 private:
  sys::InEngine inside_;
};

// Access, exclusively, under the table lock: for calls that change more than data.
class ExclusiveAccess {
 public:
  explicit ExclusiveAccess(int fd);
  ~ExclusiveAccess();
  ExclusiveAccess(const ExclusiveAccess&) = delete;
  ExclusiveAccess& operator=(const ExclusiveAccess&) = delete;

  // False: untracked or pass-through, and nothing is held.
  bool entered() const { return file_ != nullptr; }
  File& file() const { return *file_; }
  bool cached() const { return file_->state.load(std::memory_order_relaxed) == State::kCached; }

 private:
  sys::InEngine inside_;
  File* file_ = nullptr;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_ACCESS_H_
