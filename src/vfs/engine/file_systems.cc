// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/file_systems.h"

#include <linux/magic.h>

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/quota.h"
#include "src/vfs/engine/stack.h"

namespace nvcache::vfs {

namespace {

// File systems that keep data on a disk, by statfs f_type. Any other is cached only when a pattern
// of NVCACHE_INCLUDE names the file.
constexpr long kDiskFileSystems[] = {
    EXT4_SUPER_MAGIC,  // ext2, ext3, ext4
    XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, NILFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC,
    0x2fc12fc1,  // ZFS
    0xca451a4e,  // bcachefs
    0x3153464a,  // JFS
};

Storage KindOf(const struct statfs& fs) {
  // A file system without blocks stores nothing: /proc, /sys and their like.
  if (fs.f_blocks == 0) return Storage::kNone;
  for (long type : kDiskFileSystems) {
    if (fs.f_type == type) return Storage::kDisk;
  }
  return Storage::kOther;
}

// A file system whose syncfs is known to write all files back and to commit their names. Others
// have been known to do nothing (FUSE), or are made of several file systems.
bool SyncsWhole(const struct statfs& fs) {
  return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
         fs.f_type == BTRFS_SUPER_MAGIC;
}

// Whether the globs have the kernel's name of the descriptor's file.
bool Match(const char* globs, int fd) {
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* path = scratch.get();
  const long n = sys::ReadLinkTo(fd, path, pool::kMaxPath - 1);
  if (n < 0) return false;
  path[n] = '\0';
  return settings::AnyGlobMatches(globs, path);
}

}  // namespace

FileSystem FileSystems::Ask(int fd, uint64_t device) {
  FileSystem fs = {device, Storage::kNone, false, true, false, false};
  struct statfs kind;
  if (sys::Fstatfs(fd, &kind) == 0) {
    fs.storage = KindOf(kind);
    fs.syncs_whole = SyncsWhole(kind);
  }
  return fs;
}

FileSystem FileSystems::Of(int fd, uint64_t device) {
  FileSystem* place = nullptr;
  for (FileSystem& fs : known_) {
    if (fs.known && fs.device == device) return fs;
    if (!fs.known) {
      place = &fs;
      break;
    }
  }
  const FileSystem fs = Ask(fd, device);
  if (place != nullptr) *place = fs;
  return fs;
}

bool FileSystems::Trackable(int fd, const struct stat& st) {
  return S_ISREG(st.st_mode) && Of(fd, st.st_dev).storage != Storage::kNone;
}

bool FileSystems::Cacheable(int fd, const struct stat& st) {
  if (st.st_nlink == 0 || engine.attachment.IsPool(st)) return false;
  const Storage storage = Of(fd, st.st_dev).storage;
  const settings::Settings& settings = engine.settings;
  if (settings.exclude.size() > 0 && Match(settings.exclude.c_str(), fd)) return false;
  return settings.include.size() > 0 ? Match(settings.include.c_str(), fd)
                                     : storage == Storage::kDisk;
}

bool FileSystems::IsExclusive(int fd) const {
  if (engine.settings.write_back == settings::WriteBack::kAlways) return true;
  return engine.settings.exclusive.size() > 0 && Match(engine.settings.exclusive.c_str(), fd);
}

// SQLite's index of a write-ahead log: whoever is the first to open it cuts it to nothing
// (unixLockSharedMemory in os_unix.c; "WAL-mode File Format", 1.3, has its name).
bool FileSystems::IsRebuilt(int fd) const { return Match("*-shm", fd) && IsExclusive(fd); }

bool FileSystems::HasQuota(int fd, uint64_t device) {
  const auto ask = [=] { return OnScratchStack([=] { return vfs::HasQuota(fd, device); }); };
  Of(fd, device);
  for (FileSystem& fs : known_) {
    if (!fs.known || fs.device != device) continue;
    if (!fs.asked_of_quota) fs.has_quota = ask();
    fs.asked_of_quota = true;
    return fs.has_quota;
  }
  return ask();
}

// Unless it is known that no file there can have an entry.
bool FileSystems::MayBeShared(uint64_t device) const {
  for (const FileSystem& fs : known_) {
    if (fs.known && fs.device == device) return fs.syncs_whole;
  }
  return true;
}

}  // namespace nvcache::vfs
