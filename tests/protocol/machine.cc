// SPDX-License-Identifier: BSD-3-Clause
#include "tests/protocol/machine.h"

namespace nvcache::protocol {

void FileSystem::Apply(const Change& change, bool again) {
  change.ApplyTo(&cache_);
  unsynced_.push_back({applied_++, change});
  if (!again) Order(change);
}

void FileSystem::Order(const Change& change) {
  for (size_t byte = 0; byte < kBytes; ++byte) {
    if (change.covers[byte]) versions_[byte].push_back(change.number);
  }
}

void FileSystem::EndSync(size_t begun, File file) {
  std::erase_if(unsynced_, [&](const Unsynced& unsynced) {
    const bool synced = unsynced.place < begun && unsynced.change.file == file;
    if (synced) unsynced.change.ApplyTo(&disk_);
    return synced;
  });
}

void FileSystem::EndSyncAll(size_t begun) {
  EndSync(begun, File::kA);
  EndSync(begun, File::kB);
}

Content FileSystem::DiskWith(uint64_t kept) const {
  Content disk = disk_;
  for (size_t i = 0; i < unsynced_.size(); ++i) {
    if ((kept >> i & 1) != 0) unsynced_[i].change.ApplyTo(&disk);
  }
  return disk;
}

}  // namespace nvcache::protocol
