// SPDX-License-Identifier: BSD-3-Clause
#include "tests/protocol/machine.h"

#include <algorithm>

namespace nvcache::protocol {

void FileSystem::Apply(const Change& change, bool again) {
  change.ApplyTo(&cache_);
  unsynced_.push_back(change);
  if (!again) Order(change);
}

void FileSystem::Order(const Change& change) {
  for (size_t cell = 0; cell < kCells; ++cell) {
    if (change.covers[cell]) versions_[cell].push_back(change.number);
  }
}

void FileSystem::EndSync(size_t begun) {
  while (synced_ < begun) {
    unsynced_.front().ApplyTo(&disk_);
    unsynced_.erase(unsynced_.begin());
    ++synced_;
  }
}

void Pool::StoreCheckpoint(size_t copy, Lsn checkpoint) {
  checkpoints_[copy] = std::max(checkpoints_[copy], checkpoint);
}

}  // namespace nvcache::protocol
