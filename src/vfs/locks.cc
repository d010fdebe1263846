// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/locks.h"

#include "src/vfs/engine/access.h"

namespace nvcache::vfs {

namespace {

// A file that is not tracked has no File to remember it.
constinit std::atomic<uint32_t> untracked{0};

std::atomic<uint32_t>& AskedOf(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  File* file = IsDescription(description) ? description->file.load() : nullptr;
  return file != nullptr ? file->locks : untracked;
}

}  // namespace

void BeforeLock(int fd, LockStep step) {
  if (!engine.active()) return;
  const bool exclusive = step == LockStep::kTake;
  const uint32_t asked = exclusive ? kLockAsked | kLockExclusive : kLockAsked;
  const uint32_t before = AskedOf(fd).load(std::memory_order_relaxed);
  const bool ends = step == LockStep::kTakeShared ? (before & kLockExclusive) != 0
                                                  : !exclusive && (before & kLockAsked) != 0;
  if (!ends) {
    if ((before & asked) != asked && step != LockStep::kRelease) AskedOf(fd).fetch_or(asked);
    return;
  }
  TableLock lock;
  engine.turns.End();
}

}  // namespace nvcache::vfs
