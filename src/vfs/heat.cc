// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/heat.h"

#include "src/sys/kernel.h"
#include "src/vfs/access.h"
#include "src/vfs/through.h"

namespace nvcache::vfs {

namespace {

// What a child has as well may be used by a program that does not know of us, and that we do not
// see. Table lock.
bool IsInherited(const File& file) {
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (engine.IsForked(*d) || engine.IsGiven(*d)) return true;
  }
  return false;
}

bool HasTally(const File& file) {
  return engine.leases.is_open() &&
         engine.tallies.Find(lease::TagOf(file.device, file.inode)) != nullptr;
}

bool Writes(const Description& description) {
  return (description.flags.load() & O_ACCMODE) != O_RDONLY;
}

}  // namespace

bool IsHotFromTheStart() { return engine.settings.write_back == settings::WriteBack::kAlways; }

bool CountSync(File& file) {
  if (engine.settings.write_back != settings::WriteBack::kAuto) return false;
  const uint32_t enough = HasTally(file) ? kSyncsToTryAgain : kHotSyncs;
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (now - file.synced_at.exchange(now, std::memory_order_relaxed) > kHotNs) file.syncs.store(0);
  return (file.syncs.fetch_add(1, std::memory_order_relaxed) + 1) % enough == 0;
}

void WarmUp(int fd) {
  SettleShared(fd);  // if it has a tally: only without that it can be cached
  TableLock lock;
  const Description* description = engine.SlotOf(fd);
  if (!IsDescription(description) || !Writes(*description)) return;
  File& file = *description->file.load();
  struct stat st;
  if (file.state.load() != State::kKernel || IsInherited(file) || sys::Fstat(fd, &st) < 0 ||
      st.st_nlink == 0) {
    return;
  }
  if (engine.full() || engine.replacing() || !engine.Attach()) return;
  if (!engine.leases.Wanted(file.device, file.inode)) {
    engine.BeginCaching(file, fd, Engine::Origin::kHot, {});
  } else if (!HasTally(file)) {
    BeginShared(file, fd);
  }
}

}  // namespace nvcache::vfs
