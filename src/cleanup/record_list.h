// SPDX-License-Identifier: BSD-3-Clause
//
// Records that the kernel is to have next, in the order of the log.
#ifndef NVCACHE_CLEANUP_RECORD_LIST_H_
#define NVCACHE_CLEANUP_RECORD_LIST_H_

#include <cstdint>

#include "src/dramcache/cached_file.h"
#include "src/sys/check.h"

namespace nvcache::cleanup {

class RecordList {
 public:
  bool empty() const { return count_ == 0; }
  // A group is whole in a list: before one is begun, there is room for the longest.
  bool HasRoomForGroup() const { return count_ + nvlog::kMaxGroupRecords <= kMost; }
  void Add(dramcache::CachedFile& file, nvlog::Place record) {
    NVCACHE_CHECK(count_ < kMost);
    files_[count_] = &file;
    records_[count_++] = record;
  }

  // Calls write(file, records, count) for the next records that are of one file; it says how many
  // of them are dealt with, one at least. Or a negated errno, which ends it. The list is empty
  // then.
  template <typename Write>
  long ForEachRun(Write write) {
    const uint32_t count = count_;
    count_ = 0;
    for (uint32_t i = 0; i < count;) {
      uint32_t end = i + 1;
      while (end < count && files_[end] == files_[i]) ++end;
      const long done = write(*files_[i], records_ + i, end - i);
      if (done < 0) return done;
      i += static_cast<uint32_t>(done);
    }
    return 0;
  }

 private:
  static constexpr uint32_t kMost = 512;
  static_assert(kMost >= 2 * nvlog::kMaxGroupRecords);

  uint32_t count_ = 0;
  dramcache::CachedFile* files_[kMost] = {};
  nvlog::Place records_[kMost] = {};
};

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_RECORD_LIST_H_
