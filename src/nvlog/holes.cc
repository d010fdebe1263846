// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/holes.h"

#include <errno.h>
#include <linux/magic.h>
#include <unistd.h>

#include <algorithm>

#include "src/sys/kernel.h"

namespace nvcache::nvlog {

namespace {

// A file system's hole is zero. But not every file system looks at the pages that are mapped before
// it calls something a hole.
bool KnowsItsHoles(int fd) {
  struct statfs fs = {};
  return fd >= 0 && sys::Fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

}  // namespace

void Holes::Open(int fd) { fd_ = KnowsItsHoles(fd) ? fd : -1; }

Place Holes::AfterNothing(Place place, Place end) const {
  if (fd_ < 0) return place;
  const uint64_t page = pool::kSegmentsOffset + place / kUnitsPerPage * pool::kPageSize;
  if (page >= data_begin_ && page < data_end_) return place;
  if (page < hole_begin_ || page >= hole_end_) {
    const long data = sys::Lseek(fd_, static_cast<off_t>(page), SEEK_DATA);
    const bool none = data == -ENXIO;  // nothing up to the end of the pool
    const long hole = data < 0 ? data : sys::Lseek(fd_, data, SEEK_HOLE);
    if (hole < 0 && !none) return place;
    // The kernel looks at page after page, so it is asked once.
    hole_begin_ = page;
    hole_end_ = none ? ~uint64_t{0} : static_cast<uint64_t>(data);
    data_begin_ = none ? 0 : static_cast<uint64_t>(data);
    data_end_ = none ? 0 : static_cast<uint64_t>(hole);
    if (data_begin_ <= page && !none) return place;
  }
  return std::min((hole_end_ - pool::kSegmentsOffset) / pool::kUnitSize, end);
}

}  // namespace nvcache::nvlog
