// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/locks.h"

#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/turns.h"

namespace nvcache::vfs {

namespace {

// A file that is not tracked has no File to remember it.
constinit std::atomic<uint32_t> untracked{0};

std::atomic<uint32_t>& AskedOf(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  File* file = IsDescription(description) ? description->file.load() : nullptr;
  return file != nullptr ? file->locks : untracked;
}

// A child lets go of a lock that it has from its parent, who may have written under it.
void TakeOverAll(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  if (!IsDescription(description) || !engine.process.IsForked(*description)) return;
  for (int foreign = 0; foreign >= 0 && engine.files.AnyInCaches();) {
    foreign = -1;
    {
      TableLock lock;
      engine.files.ForEach([&](const File& file) {
        if (file.state.load() != State::kForeign || file.descriptions == nullptr) return;
        foreign = engine.descriptors.NumberOf(*file.descriptions);
      });
    }
    if (foreign >= 0 && TakeOver(foreign) < 0) return;
  }
}

}  // namespace

void BeforeLock(int fd, LockStep step, bool inherited) {
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
  if (inherited) TakeOverAll(fd);
  TableLock lock;
  const uint32_t known = AskedOf(fd).fetch_or(kLockReleased);
  engine.turns.End((known & kLockReleased) != 0);
}

}  // namespace nvcache::vfs
