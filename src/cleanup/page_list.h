// SPDX-License-Identifier: BSD-3-Clause
//
// The pages of a batch that have to be written. A batch is written in parts of so many, each in the
// order of files and pages, so that neighbours go by one call.
#ifndef NVCACHE_CLEANUP_PAGE_LIST_H_
#define NVCACHE_CLEANUP_PAGE_LIST_H_

#include <algorithm>
#include <compare>
#include <cstdint>

#include "src/dramcache/page_cache.h"

namespace nvcache::cleanup {

class PageList {
 public:
  explicit constexpr PageList(dramcache::PageCache& cache) : cache_(cache) {}

  // False without memory.
  bool Open();
  void Close();

  bool HasRoom(uint64_t pages) const { return count_ + pages <= kMaxItems; }
  void Add(dramcache::CachedFile& file, uint64_t page) { items_[count_++] = {&file, page}; }
  // Back to the kernel, but for those of files that fail; and the list is empty. Calls
  // failed(file, error) if the kernel refuses: then this file does.
  template <typename Failed>
  void Write(Failed failed);

 private:
  struct Item {
    dramcache::CachedFile* file;
    uint64_t page;
    auto operator<=>(const Item&) const = default;
  };
  static constexpr uint32_t kMaxItems = 1024;  // 16 KiB
  static_assert(kMaxItems >= nvlog::kMaxGroupPages);

  long WriteRun(dramcache::CachedFile& file, uint64_t first, uint32_t count);

  dramcache::PageCache& cache_;
  Item* items_ = nullptr;  // kMaxItems
  uint32_t count_ = 0;
};

template <typename Failed>
void PageList::Write(Failed failed) {
  std::sort(items_, items_ + count_);
  const Item* const end = std::unique(items_, items_ + count_);
  for (const Item* item = items_; item < end;) {
    dramcache::CachedFile& file = *item->file;
    uint32_t count = 1;
    while (count < dramcache::PageCache::kMaxRun && item + count < end &&
           item[count] == Item{&file, item->page + count}) {
      ++count;
    }
    if (file.failing.load() == 0) {
      if (const long error = WriteRun(file, item->page, count); error < 0) failed(file, error);
    }
    item += count;
  }
  count_ = 0;
}

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_PAGE_LIST_H_
