// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/space.h"

#include <errno.h>
#include <linux/falloc.h>

#include "src/sys/kernel.h"
#include "src/sys/size_limit.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

namespace {

// The room granted at once after a look at the file system, and the room beyond it that must have
// been there: other programs use the disk, too, and metadata takes blocks.
constexpr uint64_t kGrant = 64u << 20;
constexpr uint64_t kMargin = 16u << 20;

// Grants by device; two devices that share a cell ask a little more often.
constexpr uint64_t kCells = 16;
struct Cell {
  std::atomic<uint64_t> device{0};
  std::atomic<int64_t> granted{0};
  sys::Mutex<sys::Rank::kSpace> lock;  // the rest; grants are made under it
  // Granted room that may have no blocks yet, because its records are pending: `recent` since
  // the log's newest LSN was `mark`, `older` before.
  uint64_t recent = 0;
  uint64_t older = 0;
  uint64_t mark = 0;
  // Little room is left: every write allocates its blocks, and nothing is pending without.
  bool exact = false;
};
constinit Cell cells[kCells];

// RLIMIT_FSIZE, as of the last look. Never more than it is.
constinit std::atomic<uint64_t> size_limit{0};

uint64_t FreeBytes(int fd) {
  struct statfs fs;
  if (sys::Fstatfs(fd, &fs) < 0) return UINT64_MAX;
  return fs.f_bavail * static_cast<uint64_t>(fs.f_bsize);
}

uint64_t PageDown(uint64_t offset) { return offset / pool::kPageSize * pool::kPageSize; }
uint64_t PageUp(uint64_t offset) { return PageDown(offset + pool::kPageSize - 1); }

// Gives these bytes their blocks now. If there are none, or the file system cannot do that: the
// write is the kernel's.
long Allocate(File& file, uint64_t begin, uint64_t end) {
  long result = engine.own.Check(file);
  if (result < 0) return result;
  const dramcache::KernelChange change(file);
  do {
    result = sys::Fallocate(file.backing_fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                            static_cast<off_t>(end - begin));
  } while (result == -EINTR);
  return result < 0 ? -ENOSPC : 0;
}

// True: `wanted` bytes are granted, and more. False: little room is left. Cell locked.
bool Grant(Cell& cell, const File& file, uint64_t wanted) {
  // The mark may be another pool's.
  if (engine.cleaner.cleaned() > cell.mark || engine.log.newest() < cell.mark) {
    cell.older = cell.recent;
    cell.recent = 0;
    cell.mark = engine.log.newest();
  }
  const uint64_t needed = wanted + cell.older + cell.recent + kGrant + kMargin;
  if (FreeBytes(file.backing_fd) < needed) return false;
  cell.recent += wanted + kGrant;
  cell.exact = false;
  cell.granted.store(static_cast<int64_t>(kGrant), std::memory_order_relaxed);
  cell.device.store(file.device, std::memory_order_relaxed);
  return true;
}

// Granted room has its blocks when it is on disk. Cell locked.
void BecomeExact(Cell& cell) {
  if (cell.exact) return;
  cell.granted.store(0);
  engine.cleaner.DrainAll();
  cell.older = cell.recent = 0;
  cell.exact = true;
}

}  // namespace

bool AwaitRoom(uint32_t room) {
  // Whether the process has a thread that makes room.
  const auto makes_room = [] {
    if (engine.busy()) return true;
    TableLock lock;
    return engine.attached() && engine.attachment.StartThreads();
  };
  if (engine.cleaner.overloaded() || !makes_room()) return false;
  engine.log.WaitForRoom(room, true);
  return true;
}

bool WithinSizeLimit(uint64_t size) {
  if (size <= size_limit.load(std::memory_order_relaxed)) return true;
  const uint64_t limit = sys::FileSizeLimit();
  size_limit.store(limit, std::memory_order_relaxed);
  return size <= limit;
}

void ResetSpaceLocks() {
  for (Cell& cell : cells) cell.lock.Reset();
}

void ForgetSizeLimit() { size_limit.store(0, std::memory_order_relaxed); }

long ReserveSpace(File& file, uint64_t begin, uint64_t end) {
  const uint64_t size = file.size.load(std::memory_order_relaxed);
  if (end > size && !WithinSizeLimit(end)) return -EFBIG;
  if (begin > size) file.sparse.store(true, std::memory_order_relaxed);
  const uint64_t from = file.sparse.load(std::memory_order_relaxed) ? begin : size;

  // The disk has less room than was granted, or the quota has.
  const int failing = file.failing.load(std::memory_order_relaxed);
  if (failing == ENOSPC || failing == EDQUOT) return Allocate(file, from, end);

  Cell& cell = cells[file.device % kCells];
  // The page that the file ends in counts each time: blocks may be smaller, and it may have few.
  const auto wanted = static_cast<int64_t>(PageUp(end) - PageDown(from));
  if (cell.device.load(std::memory_order_relaxed) == file.device &&
      cell.granted.fetch_sub(wanted, std::memory_order_relaxed) >= wanted) {
    return 0;
  }
  {
    sys::Lock lock(cell.lock);
    if (Grant(cell, file, static_cast<uint64_t>(wanted))) return 0;
    BecomeExact(cell);
  }
  return Allocate(file, from, end);
}

}  // namespace nvcache::vfs
