// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/mirrored.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "src/sys/born_stat.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/folder.h"
#include "src/vfs/sync.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

namespace {

// A file of /proc and its like has nothing to sync.
long SyncFile(int fd) {
  const long error = sys::Fsync(fd);
  return error == -EINVAL ? 0 : error;
}

// It syncs by the program's own descriptor, which has to hear of each error.
long SyncForReal(int fd) {
  const long drained = Drain(fd);
  return drained < 0 && drained != kNotOurs ? drained : SyncFile(fd);
}

long SyncAllForReal(int /*fd*/) {
  DrainAll();
  return sys::Call(SYS_sync);
}

long SyncNothing(int /*fd*/) { return 0; }

// It counts as the program's fsync: so a file or folder that is changed twice is in the log.
long SyncNow(int fd) {
  const long synced = Fsync(fd);
  return synced == kNotOurs ? SyncFile(fd) : synced;
}

// `sync(fd)` of the folder that the path leads into. One that cannot be opened is synced with all.
template <typename Sync>
long WithFolderOf(int dirfd, const char* path, Sync sync) {
  sys::InEngine inside;
  Folder folder;
  const bool found = SeesPaths() && folder.Find(dirfd, path, true) && folder.Open();
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const long fd = found ? sys::Openat(folder.fd(), ".", kFlags) : -ENOENT;
  if (fd < 0) return sys::Call(SYS_sync);
  const long error = sync(static_cast<int>(fd));
  OwnDescriptors::Return(static_cast<int>(fd));
  return error;
}

// To be opened, it would have to be closed, and the program's record locks would go with that.
long SyncAttributes(int dirfd, const char* path) {
  if (path != nullptr) return WithFolderOf(dirfd, path, [](int fd) { return sys::Syncfs(fd); });
  const long error = SyncNow(dirfd);
  return error == -EBADF ? sys::Call(SYS_sync) : error;  // with O_PATH, perhaps
}

// Nothing else is ever in a log.
bool IsRegular(int fd) {
  struct stat st;
  return sys::LookUntimed(fd, &st) == 0 && S_ISREG(st.st_mode);
}

}  // namespace

bool PromisesDurability(int fd, int rwf_flags) {
  if ((rwf_flags & (RWF_SYNC | RWF_DSYNC)) != 0) return true;
  const Description* description = engine.descriptors.Of(fd);
  if (IsDescription(description)) return (description->flags.load() & O_DSYNC) != 0;
  if (engine.descriptors.IsPlain(fd)) return false;
  engine.descriptors.BeginToAsk(fd);
  const long flags = sys::Fcntl(fd, F_GETFL);
  const bool promises = flags >= 0 && (flags & O_DSYNC) != 0;
  if (flags >= 0 && !promises) {
    engine.descriptors.NotePlain(fd);
  } else {
    engine.descriptors.ForgetPlain(fd);
  }
  return promises;
}

long AwaitMirrorOf(int fd) { return IsMirrored() ? engine.mirror.Promise(SyncForReal, fd) : 0; }

long AwaitMirrorOfAll() { return IsMirrored() ? engine.mirror.Promise(SyncAllForReal, -1) : 0; }

long AwaitMirrorOfChange(int fd, int rwf_flags) {
  if (!IsMirrored()) return 0;
  const bool all = ChangesAwaitMirror(), waits = all || PromisesDurability(fd, rwf_flags);
  if (!waits || !IsRegular(fd)) return 0;
  const long error = all ? SyncNow(fd) : 0;
  return error < 0 ? error : engine.mirror.Promise(SyncForReal, fd);
}

long AwaitMirrorOfOpen(int fd) { return ChangesAwaitMirror() ? AwaitMirrorOfChange(fd, 0) : 0; }

long SyncFolderOf(int dirfd, const char* path) {
  return ChangesAwaitMirror() ? WithFolderOf(dirfd, path, SyncNow) : 0;
}

long AwaitMirrorOfNames() { return ChangesAwaitMirror() ? AwaitMirrorOfAll() : 0; }

long AwaitMirrorOfAttributes(int dirfd, const char* path) {
  if (!ChangesAwaitMirror()) return 0;
  const long error = SyncAttributes(dirfd, path);
  return error < 0 ? error : AwaitMirrorOfAll();
}

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
