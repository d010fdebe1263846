// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/space.h"

#include <errno.h>
#include <sys/resource.h>

#include <algorithm>

#include "src/sys/kernel.h"
#include "src/vfs/engine.h"

namespace nvcache::vfs {

namespace {

// Growth that is granted at once after a look at the file system, and how much room beyond it must
// have been there: other programs use the disk, too, and metadata takes blocks.
constexpr uint64_t kGrant = 64u << 20;
constexpr uint64_t kMargin = 16u << 20;

// Grants by device; two devices that share a cell ask a little more often.
constexpr uint64_t kCells = 16;
struct Cell {
  std::atomic<uint64_t> device{0};
  std::atomic<int64_t> granted{0};
};
constinit Cell cells[kCells];

// RLIMIT_FSIZE, as of the last look. Never more than it is.
constinit std::atomic<uint64_t> size_limit{0};

uint64_t FreeBytes(int fd) {
  struct statfs fs;
  if (sys::Fstatfs(fd, &fs) < 0) return UINT64_MAX;
  return fs.f_bavail * static_cast<uint64_t>(fs.f_bsize);
}

uint64_t PendingBytes() { return (engine.log.head() - engine.log.tail()) * pool::kUnitSize; }

}  // namespace

bool WithinSizeLimit(uint64_t size) {
  if (size <= size_limit.load(std::memory_order_relaxed)) return true;
  const uint64_t limit = sys::SoftLimit(RLIMIT_FSIZE);
  size_limit.store(limit, std::memory_order_relaxed);
  return size <= limit;
}

void ForgetSizeLimit() { size_limit.store(0, std::memory_order_relaxed); }

long ReserveSpace(File& file, uint64_t growth, uint64_t size) {
  Cell& cell = cells[file.device % kCells];
  const auto wanted = static_cast<int64_t>(growth);
  if (!WithinSizeLimit(size)) return -EFBIG;
  if (cell.device.load(std::memory_order_relaxed) == file.device &&
      cell.granted.fetch_sub(wanted, std::memory_order_relaxed) >= wanted) {
    return 0;
  }
  uint64_t free = FreeBytes(file.backing_fd);
  if (free < growth + PendingBytes() + kGrant + kMargin) {
    // Close to the end. What is pending may have its blocks already; only the disk knows.
    engine.cleaner.Drain(file);
    free = FreeBytes(file.backing_fd);
    cell.granted.store(0, std::memory_order_relaxed);
    return free < growth ? -ENOSPC : 0;
  }
  cell.granted.store(static_cast<int64_t>(kGrant), std::memory_order_relaxed);
  cell.device.store(file.device, std::memory_order_relaxed);
  return 0;
}

}  // namespace nvcache::vfs
