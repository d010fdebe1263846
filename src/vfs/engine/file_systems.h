// SPDX-License-Identifier: BSD-3-Clause
//
// The file systems that files are on, and what these, and the settings, let the engine do with
// them.
#ifndef NVCACHE_VFS_ENGINE_FILE_SYSTEMS_H_
#define NVCACHE_VFS_ENGINE_FILE_SYSTEMS_H_

#include <sys/stat.h>

#include <cstdint>

namespace nvcache::vfs {

inline constexpr uint32_t kMaxFileSystems = 64;  // devices whose kind is remembered

// The storage under a file system, as far as caching goes: never, always, or when asked to.
enum class Storage : uint8_t { kNone, kDisk, kOther };

struct FileSystem {
  uint64_t device;
  Storage storage;
  bool syncs_whole;  // CachedFile::sync_device
  bool known;
  bool has_quota;  // as of the first file there that was to be cached
  bool asked_of_quota;
};

// Table lock.
class FileSystems {
 public:
  constexpr FileSystems() = default;

  // The file system of the device that the descriptor's file is on. A device that is unmounted
  // gives its number to the next one: a caller that must not be wrong asks anew (Ask), while the
  // file keeps the device mounted.
  FileSystem Of(int fd, uint64_t device);
  static FileSystem Ask(int fd, uint64_t device);  // needs no lock
  // Whether a file is worth to be known: it has bytes on some device.
  bool Trackable(int fd, const struct stat& st);
  // Whether it may be cached: kind of file system, settings. Never the pool.
  bool Cacheable(int fd, const struct stat& st);
  // Whether the kernel alone can say what it will take (quota.h): asked once.
  bool HasQuota(int fd, uint64_t device);
  // Whether it may be cached from its kHotSyncs-th sync: by the settings, no program without
  // NVCache looks at it. The name is the one that the kernel has of the descriptor's file.
  bool IsExclusive(int fd) const;
  // Whether it is exclusive, and one that the programs that have it make anew after a crash,
  // whatever is left of it. No lock.
  bool IsRebuilt(int fd) const;
  // Unless it is known that no file there can have an entry.
  bool MayBeShared(uint64_t device) const;

 private:
  FileSystem known_[kMaxFileSystems] = {};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_FILE_SYSTEMS_H_
