// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/page_list.h"

#include "src/sys/check.h"
#include "src/sys/memory.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;

bool PageList::Open() {
  count_ = 0;
  items_ = static_cast<Item*>(sys::Reserve(kMaxItems * sizeof(Item)));
  return items_ != nullptr;
}

void PageList::Close() {
  if (items_ != nullptr) sys::UnmapUnlocked(items_, kMaxItems * sizeof(Item));
  items_ = nullptr;
}

long PageList::WriteRun(CachedFile& file, uint64_t first, uint32_t count) {
  radix::PageDescriptor* pages[dramcache::PageCache::kMaxRun] = {};
  for (uint32_t i = 0; i < count; ++i) {
    pages[i] = file.pages.Find(cache_.supply(), first + i);
    NVCACHE_CHECK(pages[i] != nullptr);
    pages[i]->lock.Lock();
  }
  const long error = cache_.WriteBack(file, first, pages, count);
  for (uint32_t i = count; i > 0; --i) pages[i - 1]->lock.Unlock();
  return error;
}

}  // namespace nvcache::cleanup
