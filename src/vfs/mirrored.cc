// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/mirrored.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "src/sys/kernel.h"
#include "src/vfs/data.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/sizes.h"

namespace nvcache::vfs {

namespace {

// By the program's own descriptor, which has to hear of each error.
long SyncForReal(int fd) {
  const long drained = Drain(fd);
  return drained < 0 && drained != kNotOurs ? drained : sys::Fsync(fd);
}

long SyncAllForReal(int /*fd*/) {
  DrainAll();
  return sys::Call(SYS_sync);
}

long SyncNothing(int /*fd*/) { return 0; }

// Nothing else is ever in a log.
bool IsRegular(int fd) {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

}  // namespace

bool PromisesDurability(int fd, int rwf_flags) {
  if ((rwf_flags & (RWF_SYNC | RWF_DSYNC)) != 0) return true;
  const Description* description = engine.descriptors.Of(fd);
  const long flags =
      IsDescription(description) ? description->flags.load() : sys::Fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DSYNC) != 0;
}

long AwaitMirrorOf(int fd) { return IsMirrored() ? engine.mirror.Await(SyncForReal, fd) : 0; }

long AwaitMirrorOfAll() { return IsMirrored() ? engine.mirror.Await(SyncAllForReal, -1) : 0; }

long AwaitMirrorOfChange(int fd, int rwf_flags) {
  if (!IsMirrored()) return 0;
  const bool waits = (ChangesAwaitMirror() || PromisesDurability(fd, rwf_flags)) && IsRegular(fd);
  return waits ? engine.mirror.Await(SyncForReal, fd) : 0;
}

long AwaitMirrorOfNames() { return ChangesAwaitMirror() ? AwaitMirrorOfAll() : 0; }

long AwaitMirrorOfKernel() { return IsMirrored() ? engine.mirror.Await(SyncNothing, -1) : 0; }

// A process that has never had the pool has left nothing there.
void SettleMirror(bool for_good) {
  if (!IsMirrored()) return;
  const bool had_pool = engine.pool_id() != 0;
  const bool settled = !had_pool || AwaitMirrorOfKernel() == 0;
  if (settled && !for_good) return;
  TableLock lock;
  engine.mirror.Close(settled);
}

}  // namespace nvcache::vfs
