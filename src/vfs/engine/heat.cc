// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/heat.h"

#include "src/sys/born_stat.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

// Another process that has a file by the same description, or looks at it without a call, would not
// see its bytes if it was cached here. Table lock.
bool IsInOtherHands(const File& file) {
  if (file.state.load() == State::kLent) return true;
  for (const Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (engine.standing.IsForked(*d) || d->given.load()) return true;
  }
  return false;
}

bool HasEntry(const File& file) {
  return engine.leases.is_open() && engine.file_table.Find(TagOf(file)) != nullptr;
}

// The descriptor's file, if it is the kernel's, and hot enough for more; or nullptr. Table lock.
File* HotFile(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  if (!IsDescription(description) || !description->writes()) return nullptr;
  File& file = *description->file.load();
  struct stat st;
  if (!IsKernels(file.state.load()) || sys::LookUntimed(fd, &st) < 0 || st.st_nlink == 0) {
    return nullptr;
  }
  return engine.attachment.Attach() ? &file : nullptr;
}

bool IsShared(const File& file) {
  return IsInOtherHands(file) || engine.leases.IsUsedElsewhere(file.device, file.inode);
}

// True: it may be cached; the kernel need not say what a quota allows. Else it has an entry, if
// that is of any use. Table lock.
bool BeginThroughUnlessExclusive(int fd) {
  File* file = HotFile(fd);
  if (file == nullptr) return false;
  if (engine.settings.caches() && !IsShared(*file) && engine.file_systems.IsExclusive(fd) &&
      !engine.file_systems.HasQuota(fd, file->device)) {
    return true;
  }
  if (!HasEntry(*file) && !engine.leases.IsHandedOn(file->device, file->inode)) {
    BeginThrough(*file, fd);
  }
  return false;
}

}  // namespace

bool IsHotFromTheStart() { return engine.settings.write_back == settings::WriteBack::kAlways; }

bool CountSync(File& file) {
  if (engine.settings.write_back == settings::WriteBack::kNever) return false;
  // It is write-through for good.
  if (!engine.settings.caches() && HasEntry(file)) return false;
  const uint32_t few = engine.standing.lacks_names() ? kSyncsWithoutNames : kHotSyncs;
  const uint32_t enough = HasEntry(file) ? kSyncsToTryAgain : few;
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (now - file.synced_at.exchange(now, std::memory_order_relaxed) > kHotNs) file.syncs.store(0);
  return (file.syncs.fetch_add(1, std::memory_order_relaxed) + 1) % enough == 0;
}

// Without an entry alone it can be cached.
void WarmUp(int fd) {
  if (!engine.callers.Know()) return;
  {
    TableLock lock;
    if (!BeginThroughUnlessExclusive(fd)) return;
  }
  SettleThrough(fd);
  TableLock lock;
  if (BeginThroughUnlessExclusive(fd)) BeginCaching(*engine.descriptors.Of(fd)->file.load(), fd);
}

}  // namespace nvcache::vfs
