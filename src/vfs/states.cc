// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of a file: cached, or left to the kernel.
#include <errno.h>
#include <linux/magic.h>

#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine.h"

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

Storage KindOf(int fd) {
  struct statfs fs;
  // What has no blocks stores nothing: /proc, /sys and their like.
  if (sys::Fstatfs(fd, &fs) < 0 || fs.f_blocks == 0) return Storage::kNone;
  for (long type : kDiskFileSystems) {
    if (fs.f_type == type) return Storage::kDisk;
  }
  return Storage::kOther;
}

// Another descriptor of the same inode, ours alone. The program's own will not do: it may lack a
// direction, append (pwrite would ignore the offset), or be closed while we write.
long OpenBacking(int fd) {
  sys::Text<32> path;
  path.Append("/proc/self/fd/").AppendNumber(static_cast<uint64_t>(fd));
  const long backing = sys::Openat(AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC);
  return backing < 0 ? backing : sys::MoveHigh(static_cast<int>(backing));
}

}  // namespace

Storage Engine::StorageOf(int fd, uint64_t device) {
  for (FileSystem& fs : file_systems_) {
    if (!fs.known) fs = {device, KindOf(fd), true};
    if (fs.device == device) return fs.storage;
  }
  return KindOf(fd);
}

bool Engine::Trackable(int fd, const struct stat& st) {
  if (!S_ISREG(st.st_mode) || IsPool(st)) return false;
  const Storage storage = StorageOf(fd, st.st_dev);
  return storage == Storage::kDisk || (storage == Storage::kOther && settings.include.size() > 0);
}

bool Engine::Cacheable(int fd, const struct stat& st) {
  if (st.st_nlink == 0) return false;
  const bool includes = settings.include.size() > 0;
  const bool excludes = settings.exclude.size() > 0;
  if (!includes && !excludes) return true;
  sys::Text<32> link;
  link.Append("/proc/self/fd/").AppendNumber(static_cast<uint64_t>(fd));
  char path[4096];
  const long n = sys::Readlinkat(AT_FDCWD, link.c_str(), path, sizeof(path) - 1);
  if (n < 0) return false;
  path[n] = '\0';
  if (excludes && settings::AnyGlobMatches(settings.exclude.c_str(), path)) return false;
  return !includes || settings::AnyGlobMatches(settings.include.c_str(), path);
}

bool Engine::BeginCaching(File& file, int fd, const struct stat& st) {
  NVCACHE_CHECK(table_lock.IsLocked() && file.state.load() == State::kKernel);
  const long backing = OpenBacking(fd);
  if (backing < 0) {
    PassThrough(file);
    return false;
  }
  SetSlot(static_cast<int>(backing), Internal());
  file.lock.Lock();
  file.backing_fd = static_cast<int>(backing);
  file.size.store(static_cast<uint64_t>(st.st_size));
  file.fsync_owed.store(true);
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    const long offset = sys::Lseek(DescriptorOf(*d), 0, SEEK_CUR);
    d->offset = offset < 0 ? 0 : static_cast<uint64_t>(offset);
  }
  cleaner.Add(file);
  file.state.store(State::kCached);
  file.lock.Unlock();
  return true;
}

long Engine::PassThrough(File& file) {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (file.state.load() == State::kPassThrough) return 0;
  file.lock.Lock();
  if (file.state.load() == State::kCached) {
    if (long error = DrainExclusively(file); error < 0) {
      file.lock.Unlock();
      return error;
    }
    PublishOffsets(file);
    Resync(file);
    file.pages.Trim(supply);
    cleaner.Remove(file);
    // Not those that only go their way: closed, or open at the program's end.
    if (file.descriptions != nullptr && !hopeless_) {
      pool::Count(statistics()->pass_through_files);
    }
  }
  file.state.store(State::kPassThrough);
  file.lock.Unlock();
  return 0;
}

long Engine::DrainExclusively(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive());
  while (file.pending.load() > 0) {
    if (long error = cleaner.Drain(file); error < 0) return error;
  }
  return 0;
}

void Engine::Resync(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() == 0);
  file.pages.ForEach(supply, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    if (page.has_frame()) frames.Detach(page);
  });
  struct stat st;
  if (sys::Fstat(file.backing_fd, &st) == 0) file.size.store(static_cast<uint64_t>(st.st_size));
}

long Engine::Publish(File& file) {
  long result = 0;
  if (file.pending.load() == 0) return 0;
  file.pages.ForEach(supply, [&](uint64_t number, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    if (long error = cache.WriteBack(file, number, page); error < 0) result = error;
  });
  return result;
}

void Engine::PublishOffsets(File& file) {
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    const int fd = DescriptorOf(*d);
    if (fd >= 0) sys::Lseek(fd, static_cast<off_t>(d->offset), SEEK_SET);
  }
}

// The program holds no descriptor of the inode now, so closing ours cannot drop its fcntl locks
// (I11).
void Engine::Destroy(File& file) {
  NVCACHE_CHECK(file.descriptions == nullptr && file.pending.load() == 0);
  PassThrough(file);
  if (file.backing_fd >= 0) {
    SetSlot(file.backing_fd, kUntracked);
    sys::Close(file.backing_fd);
    file.backing_fd = -1;
  }
  RemoveFromBucket(file);
  files_.Free(files_.IndexOf(&file));
}

}  // namespace nvcache::vfs
