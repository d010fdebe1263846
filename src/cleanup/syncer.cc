// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/syncer.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;

long Syncer::SyncFile(CachedFile& file) {
  pool::Count(log_.statistics()->syncs);
  const bool erased = file.erased.exchange(false);
  const long error = Ask(
      file, [&] { return erased ? sys::Fsync(file.backing_fd) : sys::Fdatasync(file.backing_fd); });
  if (error < 0 && erased) file.erased.store(true);
  return error;
}

void Syncer::ForgetKernel(CachedFile& file) {
  file.pages.ForEach(cache_.supply(), [](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    page.LostByKernel();
  });
}

}  // namespace nvcache::cleanup
