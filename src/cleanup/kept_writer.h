// SPDX-License-Identifier: BSD-3-Clause
//
// Copies to kept segments (nvlog/kept.h) what the disk does not take, so that the checkpoint passes
// it.
#ifndef NVCACHE_CLEANUP_KEPT_WRITER_H_
#define NVCACHE_CLEANUP_KEPT_WRITER_H_

#include "src/cleanup/limits.h"
#include "src/dramcache/page_cache.h"

namespace nvcache::cleanup {

class KeptWriter {
 public:
  constexpr KeptWriter(nvlog::Log& log, dramcache::PageCache& cache, const Calls& calls)
      : log_(log), cache_(cache), calls_(calls) {}

  // Keeps what files that fail have in the log below `end`, as far as it was read. Returns up to
  // where that is done: segments may be missing.
  nvlog::Lsn KeepFailing(nvlog::Lsn end);
  // Keeps what was handed over, when the disk has lost some of it: it stays for recovery, and
  // nobody else waits for it.
  nvlog::Lsn KeepHandedOver(nvlog::Lsn end);
  // Kept segments of which little is left would fill the pool.
  void Compact();

 private:
  bool KeepRecord(dramcache::CachedFile& file, nvlog::Place place);
  bool KeepHandedOverRecord(nvlog::Place place);
  nvlog::Place FileRecordBefore(nvlog::Place place) const;

  nvlog::Log& log_;
  dramcache::PageCache& cache_;
  const Calls& calls_;
};

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_KEPT_WRITER_H_
