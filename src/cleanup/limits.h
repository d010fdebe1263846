// SPDX-License-Identifier: BSD-3-Clause
//
// The limits of a cleanup thread, and the calls that it makes to its process.
#ifndef NVCACHE_CLEANUP_LIMITS_H_
#define NVCACHE_CLEANUP_LIMITS_H_

#include <cstdint>

#include "src/dramcache/cached_file.h"

namespace nvcache::cleanup {

struct Limits {
  uint64_t batch_min;  // pages, about: so many start a batch
  uint64_t batch_max;  // pages: a batch ends with the group that reaches it
  uint64_t delay_ns;   // after this time fewer start one, too
  // Files of a batch that are synced with all of their file system, where there are so many: one
  // commit of its journal, not one for each. It brings other programs' files along.
  uint32_t together = 64;
};

// The thread calls these functions of its process. It does so without locks, but for `file_of`,
// `check`, `hold` and `cover`. Any but the first may be null, `cover` if no file is handed over.
struct Calls {
  // The file with a number that some file had when it was added. Its memory is a file's for ever.
  dramcache::CachedFile& (*file_of)(uint32_t number) = nullptr;
  // Whether the file's descriptor is its own; may open it anew. 0, or a negated errno. Called once
  // for each batch that the file is in, and before records are written back ahead of one. Null: it
  // always is.
  long (*check)(dramcache::CachedFile&) = nullptr;
  // The kernel is about to get bytes of a file, or a cut. With locks.
  void (*hold)() = nullptr;
  // The batch has written the file's pages, and is about to sync it. Not if they were refused.
  void (*written)(dramcache::CachedFile&) = nullptr;
  // Some file has nothing pending any more.
  void (*drained)() = nullptr;
  // Writers wait for room that only other processes have. Not too often.
  void (*starved)() = nullptr;
  // Before each wait for work: what else the thread has to do. Is told whether writers wait for
  // room, and says in how many ns to call it again at the latest.
  uint64_t (*besides)(bool hurried) = nullptr;
  // Syncs the file systems of all files that were handed over. 0, or a negated errno: of any error
  // since the files were cached.
  long (*cover)() = nullptr;
};

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_LIMITS_H_
