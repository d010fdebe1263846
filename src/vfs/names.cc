// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/names.h"

//
// Names and attributes.
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/lend.h"
#include "src/vfs/life.h"
#include "src/vfs/mirrored.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

namespace {

// Table lock held.
void PublishCached(File& file) {
  if (file.state.load() != State::kCached) return;
  file.lock.LockShared();
  Publish(file);
  file.lock.UnlockShared();
}

// A cached file that was written, with its lock shared, so that it stays; or nullptr.
File* EnterWritten(dev_t dev, ino_t ino) {
  TableLock lock;
  File* file = engine.files.Find(dev, ino);
  if (file == nullptr || file->state.load() != State::kCached || file->newest.load() == 0) {
    return nullptr;
  }
  file->lock.LockShared();
  return file;
}

// A cached file with its lock, so that it stays; or nullptr.
File* LockCached(dev_t dev, ino_t ino) {
  TableLock lock;
  File* file = engine.files.Find(dev, ino);
  if (file == nullptr || file->state.load() != State::kCached) return nullptr;
  file->lock.Lock();
  return file;
}

// Whether the file can lose its name with what it has in the log. File lock, exclusive.
bool StaysInLog(File& file) {
  return file.pending.load() != 0 && file.failing.load() == 0 && LogRemoval(file);
}

// The file system may take its time: not under the table lock.
bool PublishOwn(dev_t dev, ino_t ino) {
  if (!engine.attached()) return false;
  sys::InEngine inside;
  File* file = EnterWritten(dev, ino);
  if (file == nullptr) return false;
  Publish(*file);
  file->lock.UnlockShared();
  return true;
}

// Its name or its size may have changed. File lock, exclusive; nothing pending.
void Reexamine(File& file) {
  RaiseBarrier(file);
  Resync(file);
  file.changes.fetch_add(1);
}

bool Unlinked(const File& file) {
  struct stat st;
  return sys::Fstat(file.backing_fd, &st) == 0 && st.st_nlink == 0;
}

bool IsLastName(const struct stat& st) { return S_ISREG(st.st_mode) && st.st_nlink == 1; }

bool IsLastName(const File& file, const struct stat& st) {
  return IsLastName(st) && st.st_dev == file.device && st.st_ino == file.inode;
}

}  // namespace

// The images may still have records of a file that was brought to the disk already.
long Removal::Announce(int dirfd, const char* path) {
  NVCACHE_CHECK(inode_ == 0);
  if (!IsMirrored() || !engine.active() || !engine.attached() || path == nullptr) return 0;
  if (!SeesPaths()) {
    Release();
    return AwaitMirrorOfKernel();
  }
  struct stat st;
  if (sys::Fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !IsLastName(st)) return 0;
  {
    sys::InEngine inside;
    File* file = LockCached(st.st_dev, st.st_ino);
    if (file == nullptr) return 0;
    if (StaysInLog(*file)) {
      dirfd_ = dirfd;
      path_ = path;
      device_ = st.st_dev;
      inode_ = st.st_ino;
    }
    file->lock.Unlock();
  }
  return AwaitMirrorOfKernel();
}

Removal::~Removal() {
  struct stat st;
  if (inode_ == 0 || !engine.attached() ||
      sys::Fstatat(dirfd_, path_, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != device_ ||
      st.st_ino != inode_) {
    return;
  }
  sys::InEngine inside;
  File* file = LockCached(device_, inode_);
  if (file == nullptr) return;
  LogReturn(*file);
  file->lock.Unlock();
}

long NameGuard::Claim(int dirfd, const char* path, bool follow, bool logged,
                      const sys::BornStat* seen) {
  NVCACHE_CHECK(!locked_ && claimed_ < 2);
  vfs::Claim& claim = claims_[claimed_++];
  if (!SeesPaths()) return 0;
  const long error = seen != nullptr ? claim.TakeSeen(*seen) : claim.TakePath(dirfd, path, follow);
  return error < 0 || logged ? error : claim.ToChange();
}

long NameGuard::Add(int dirfd, const char* path, bool follow, Fate fate, bool logged) {
  if (!engine.active() || !SeesPaths()) return 0;
  if (!locked_) {
    sys::EnterEngine();
    engine.LockTable();
  }
  locked_ = true;
  // Nobody begins to cache one while we have the lock.
  const bool is_no_folder = logged || (added_ < claimed_ && claims_[added_].is_no_folder());
  ++added_;
  if (is_no_folder && !engine.files.AnyInCaches()) return 0;
  struct stat st;
  const bool found = sys::Fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (found && S_ISDIR(st.st_mode)) {
    // Recovery finds files by the paths they had; those below a directory change with its name.
    LetGo();
    if (engine.files.AnyInCaches()) engine.attachment.ReleaseAll();
    DescribeAnew();
    return 0;
  }
  const bool is_link = found && S_ISLNK(st.st_mode);
  File* file = follow && is_link              ? engine.files.FindByPath(dirfd, path, true)
               : found && S_ISREG(st.st_mode) ? engine.files.Find(st.st_dev, st.st_ino)
                                              : nullptr;
  if (file == nullptr || file->state.load() != State::kCached || file == held_[0].file) return 0;
  file->lock.Lock();
  Held& held = held_[held_[0].file == nullptr ? 0 : 1];
  if (fate == Fate::kIsRemoved && found && IsLastName(*file, st) && StaysInLog(*file)) {
    held = {file, true};  // it is not worth a drain
    return 0;
  }
  if (long error = DrainExclusively(*file); error < 0) {
    file->lock.Unlock();
    return error;
  }
  held.file = file;
  return 0;
}

void NameGuard::LetGo() {
  for (Held& held : held_) {
    if (held.file == nullptr) continue;
    File& file = *held.file;
    const bool unlinked = Unlinked(file);
    if (held.removes && unlinked) {
      file.removed.store(true);
      file.lock.Unlock();
    } else {
      if (held.removes) LogReturn(file);
      if (DrainExclusively(file) == 0) Reexamine(file);
      file.lock.Unlock();
      // A file without a name cannot be recovered, and need not be.
      if (unlinked) PassThrough(file);
    }
    held = {};
  }
}

NameGuard::~NameGuard() {
  if (!locked_) return;
  LetGo();
  engine.files.Reap();
  engine.table_lock.Unlock();
  sys::LeaveEngine();
}

bool PublishInode(dev_t dev, ino_t ino) {
  if (sys::IsSharing()) return AwaitPublication(dev, ino);
  if (!engine.active()) return false;
  const bool elsewhere = AwaitPublication(dev, ino);
  return PublishOwn(dev, ino) || elsewhere;
}

void NewestSize(dev_t dev, ino_t ino, off_t* size) {
  if (!engine.active()) return;
  TableLock lock;
  const File* file = engine.files.Find(dev, ino);
  if (file != nullptr && file->state.load() == State::kCached) {
    *size = static_cast<off_t>(file->size.load(std::memory_order_acquire));
  }
}

// A process that has a descriptor of a file has claimed it, but for a child of fork.
bool PublishBytes(int fd) {
  if (IsForeign(fd)) {
    struct stat st;
    if (sys::Fstat(fd, &st) == 0) AwaitPublication(st.st_dev, st.st_ino);
    return true;
  }
  Access access;
  if (access.Enter(fd, Access::kData) != 0 || !access.cached()) return true;
  return Publish(access.file()) >= 0;
}

void NewestSizeOf(int fd, off_t* size) {
  Access access;
  if (access.Enter(fd, Access::kData) != 0 || !access.cached()) return;
  *size = static_cast<off_t>(access.file().size.load(std::memory_order_acquire));
}

void PublishPath(int dirfd, const char* path, bool follow) {
  if (!engine.active() || path == nullptr) return;
  if (!SeesPaths()) return PublishAll();
  struct stat st;
  if (sys::Fstatat(dirfd, path, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0) return;
  if (S_ISREG(st.st_mode)) PublishInode(st.st_dev, st.st_ino);
}

void PublishAll() {
  if (!engine.attached()) return;
  TableLock lock;
  engine.files.ForEach(PublishCached);
}

}  // namespace nvcache::vfs
