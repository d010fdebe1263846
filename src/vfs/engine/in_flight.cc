// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/in_flight.h"

#include "src/sys/born_stat.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

using lease::FileEntry;
using lease::FileTable;

// Recovery has no file then that a pending group could be laid over; or the file system has lost
// the removal, and what was written after it, which a sync would have kept.
bool HasNoName(int fd) {
  struct stat st;
  return fd >= 0 && sys::LookUntimed(fd, &st) == 0 && st.st_nlink == 0;
}

}  // namespace

FileEntry* InFlight::Begin(uint64_t tag) {
  NVCACHE_CHECK(tag_ == 0);
  if (tag == 0 || !engine.leases.is_open()) return nullptr;
  tag_ = tag;
  count_ = engine.file_table.BeginInFlight(tag_);
  entry_ = engine.file_table.Find(tag_);
  return entry_;
}

FileEntry* InFlight::Begin(const File& file) { return Begin(TagOf(file)); }

void InFlight::End() {
  if (tag_ != 0 && engine.leases.is_open()) engine.file_table.EndInFlight(count_);
  tag_ = 0;
  entry_ = nullptr;
}

// A process that cannot have the pool is as one without NVCache, where others do not see to it in
// time: pending groups may undo its call after a power failure.
long InFlight::Bypass(int fd) const {
  if (entry_ == nullptr) return 0;
  {
    const EntryLock lock(*entry_);
    if (FileTable::CoverageOf(*entry_).tag != tag_) return 0;
    FileTable::Forget(*entry_);
  }
  if (!engine.file_table.IsPending(*entry_) || HasNoName(fd)) return 0;
  if (fd >= 0) {
    JoinThrough(fd);
    SettleThrough(fd);
  }
  return EndPending(*entry_);
}

}  // namespace nvcache::vfs
