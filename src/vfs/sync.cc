// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/sync.h"

#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/folder.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

namespace {

// Syncs a cached file, which was entered by the descriptor. Leaves it.
long SyncCached(int fd, Access& access) {
  File& file = access.file();
  const Description& description = access.description();
  const int error = file.errors.Take(&access.description().errors_heard);
  const uint32_t changes = file.changes.load();
  const uint32_t barriers = file.barriers.load();
  const uint32_t drops = description.drops.load();
  const bool owes = error != 0 || file.changes_synced.load() != changes;
  access.Leave();
  if (!owes && engine.checkpoint.EndUnloggedNames()) return 0;
  WarmFolderOf(fd);
  // The program's own descriptor is synced: each hears once of an error, after which the kernel may
  // have dropped bytes, and an error that ours has to hear is for the cleanup thread (I10). If
  // there was one, the program's has it, too, and should not tell it a second time.
  const long result = sys::Fsync(fd);
  if (error != 0) return -error;
  if (result < 0) return result;
  // Unless the number was another file's meanwhile.
  if (access.Enter(fd, Access::kData) != 0 || &access.description() != &description ||
      description.drops.load() != drops || !access.cached()) {
    return 0;
  }
  // After it: another thread's fsync that finds all of them covered returns at once. Attributes may
  // have been set meanwhile.
  file.changes_synced.store(changes);
  file.barriers_synced.store(barriers);
  return 0;
}

}  // namespace

long Fsync(int fd) {
  SettleUnseen(fd);
  if (engine.descriptors.Of(fd) == kUntracked) return SyncFolder(fd);
  bool hot = false;
  {
    Access access;
    if (const long r = access.Enter(fd, Access::kData); r != 0) {
      return r == kNotOurs ? SyncFolder(fd) : r;
    }
    if (access.cached()) return SyncCached(fd, access);
    hot = CountSync(access.file());
  }
  if (hot) WarmUp(fd);
  if (const long r = SyncThrough(fd); r != kNotOurs) return r;
  Access access;
  if (const long r = access.Enter(fd, Access::kData); r != 0) return r;
  if (access.cached()) return SyncCached(fd, access);
  access.Leave();
  WarmFolderOf(fd);
  return kNotOurs;
}

long SyncRange(int fd) {
  {
    Access access;
    if (const long r = access.Enter(fd, Access::kData); r != 0) return r;
    if (access.cached()) return SyncCached(fd, access);
  }
  return BytesAreInLog(fd) ? 0 : kNotOurs;
}

// The bytes that the kernel syncs may be newer than the log's, and not yet in the log: so the log's
// must not come back.
void DrainAll() {
  if (!engine.active()) return;
  {
    TableLock lock;
    if (engine.attached() && engine.busy()) engine.cleaner.DrainAll();
  }
  engine.checkpoint.EndPending();
}

long Drain(int fd) {
  Access access;
  if (long r = access.Enter(fd, Access::kData); r != 0) return r;
  return access.cached() ? engine.cleaner.Drain(access.file()) : kNotOurs;
}

}  // namespace nvcache::vfs
