// SPDX-License-Identifier: BSD-3-Clause
//
// Brings what the kernel has of files to the disk, and hears of what it has lost.
#ifndef NVCACHE_CLEANUP_SYNCER_H_
#define NVCACHE_CLEANUP_SYNCER_H_

#include <errno.h>
#include <fcntl.h>

#include <cstdint>
#include <utility>

#include "src/dramcache/page_cache.h"
#include "src/sys/kernel.h"

namespace nvcache::cleanup {

class Syncer {
 public:
  constexpr Syncer(nvlog::Log& log, dramcache::PageCache& cache) : log_(log), cache_(cache) {}

  // 0, or a negated errno: then the kernel is to be forgotten.
  long SyncFile(dramcache::CachedFile& file);
  // Syncs the batch's files that do not fail and lie on the newest one's file system: by one call
  // for all of it, if they are `least` or more. Calls tell(file, result) for each that is synced by
  // that. A file left unsynced is synced alone, and says why: nothing here can tell whose an error
  // of the whole is.
  template <typename Tell>
  void SyncTogether(dramcache::CachedFile* files, uint32_t least, Tell tell);
  // The kernel may have dropped any page of the file that was not on disk yet, and calls it clean;
  // the log still has the bytes. Nobody writes the file back meanwhile.
  void ForgetKernel(dramcache::CachedFile& file);

 private:
  // Calls sync(), and adds to what it says an error that somebody else has heard in its place.
  template <typename Sync>
  long Ask(dramcache::CachedFile& file, Sync sync);

  nvlog::Log& log_;
  dramcache::PageCache& cache_;
};

template <typename Sync>
long Syncer::Ask(dramcache::CachedFile& file, Sync sync) {
  sys::Lock lock(file.sync_lock);
  const long result = sync();
  const bool refused = std::exchange(file.sync_refused, false);
  return result < 0 || !refused ? result : -EIO;
}

template <typename Tell>
void Syncer::SyncTogether(dramcache::CachedFile* files, uint32_t least, Tell tell) {
  const uint64_t device = files != nullptr ? files->sync_device : 0;
  if (device == 0) return;
  const auto for_each = [&](auto function) {
    for (dramcache::CachedFile* file = files; file != nullptr; file = file->batch_next) {
      if (file->sync_device == device && file->failing.load() == 0) function(*file);
    }
  };
  uint32_t count = 0;
  dramcache::CachedFile* last = nullptr;
  for_each([&](dramcache::CachedFile& file) {
    ++count;
    last = &file;
  });
  if (count < least) return;
  pool::Count(log_.statistics()->syncs);
  if (sys::Syncfs(last->backing_fd) < 0) return;
  // A file system may have had no reason to flush the device's own cache; this is one. Its error is
  // of this file, and said once.
  if (const long error = SyncFile(*last); error < 0) {
    tell(*last, error);
    last->batch_synced = true;
    return;
  }
  for_each([&](dramcache::CachedFile& file) {
    // Nothing is written any more; this asks what has become of it since our descriptor was asked
    // last.
    const long error = Ask(file, [&file] {
      return sys::SyncFileRange(file.backing_fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE);
    });
    tell(file, error);
    file.batch_synced = true;
  });
}

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_SYNCER_H_
