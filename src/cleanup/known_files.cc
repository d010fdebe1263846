// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/known_files.h"

#include "src/sys/memory.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;
using nvlog::Lsn;
using nvlog::RecordHeader;

bool KnownFiles::Open(uint32_t count) {
  count_ = count;
  by_number_ = static_cast<std::atomic<CachedFile*>*>(sys::Reserve(count * sizeof(*by_number_)));
  published_ = static_cast<std::atomic<Lsn>*>(sys::Reserve(count * sizeof(*published_)));
  return by_number_ != nullptr && published_ != nullptr;
}

void KnownFiles::Close() {
  if (by_number_ != nullptr) sys::UnmapUnlocked(by_number_, count_ * sizeof(*by_number_));
  by_number_ = nullptr;
  if (published_ != nullptr) sys::UnmapUnlocked(published_, count_ * sizeof(*published_));
  published_ = nullptr;
}

void KnownFiles::Add(CachedFile& file) {
  NVCACHE_CHECK(file.tag.number < count_);
  by_number_[file.tag.number].store(&file, std::memory_order_release);
  sys::Lock lock(lock_);
  file.list_previous = nullptr;
  file.list_next = list_;
  if (list_ != nullptr) list_->list_previous = &file;
  list_ = &file;
}

void KnownFiles::Remove(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0 && file.failing.load() == 0);
  sys::Lock lock(lock_);
  (file.list_previous != nullptr ? file.list_previous->list_next : list_) = file.list_next;
  if (file.list_next != nullptr) file.list_next->list_previous = file.list_previous;
}

CachedFile& KnownFiles::Of(const RecordHeader& header) const {
  NVCACHE_CHECK(header.file < count_);
  CachedFile* file = by_number_[header.file].load(std::memory_order_acquire);
  NVCACHE_CHECK(file != nullptr && file->tag.number == header.file);
  return *file;
}

}  // namespace nvcache::cleanup
