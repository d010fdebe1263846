// SPDX-License-Identifier: BSD-3-Clause
//
// The files that have a number in the log, for the cleanup thread: it finds them by what a record
// says, and takes memory back that they hold without need.
#ifndef NVCACHE_CLEANUP_KNOWN_FILES_H_
#define NVCACHE_CLEANUP_KNOWN_FILES_H_

#include <atomic>
#include <cstdint>

#include "src/dramcache/cached_file.h"
#include "src/sys/check.h"
#include "src/sys/lock.h"

namespace nvcache::cleanup {

// Calls function(page) for each page that a data record writes.
template <typename Function>
void ForEachPage(const nvlog::RecordHeader& header, Function function) {
  const uint64_t first = header.offset / pool::kPageSize;
  const uint64_t count = nvlog::PagesOf(header.offset, header.length);
  for (uint64_t page = first; page < first + count; ++page) function(page);
}

class KnownFiles {
 public:
  // Numbers are below `count`. False without memory.
  bool Open(uint32_t count);
  void Close();

  void Add(dramcache::CachedFile& file);
  void Remove(dramcache::CachedFile& file);

  dramcache::CachedFile& Of(const nvlog::RecordHeader& header) const;
  // A file with that number was published, and the record's group was there by then.
  bool IsPublished(const nvlog::RecordHeader& header) const {
    NVCACHE_CHECK(header.file < count_);
    return header.lsn <= published_[header.file].load(std::memory_order_relaxed);
  }
  void NotePublished(uint32_t number, nvlog::Lsn lsn) { published_[number].store(lsn); }

  // A file whose lock is held just now is left for later.
  template <typename Supply>
  void Trim(Supply& supply) {
    sys::Lock lock(lock_);
    for (dramcache::CachedFile* file = list_; file != nullptr; file = file->list_next) {
      if (!file->lock.TryLock()) continue;
      file->pages.Trim(supply);
      file->lock.Unlock();
    }
  }

 private:
  std::atomic<dramcache::CachedFile*>* by_number_ = nullptr;
  // Of each number: the LSN with which a file that had it was published last.
  std::atomic<nvlog::Lsn>* published_ = nullptr;
  uint32_t count_ = 0;                     // numbers
  sys::Mutex<sys::Rank::kFileList> lock_;  // list_
  dramcache::CachedFile* list_ = nullptr;
};

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_KNOWN_FILES_H_
