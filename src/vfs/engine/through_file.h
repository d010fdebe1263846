// SPDX-License-Identifier: BSD-3-Clause
//
// Parts that writing and settling a write-through file (through.h) have in common.
#ifndef NVCACHE_VFS_ENGINE_THROUGH_FILE_H_
#define NVCACHE_VFS_ENGINE_THROUGH_FILE_H_

#include <cstdint>

#include "src/lease/tally.h"
#include "src/pool/format.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

inline uint64_t TagOf(const File& file) {
  return lease::TagOf(file.device, file.inode, file.birth, S_IFREG);
}

// With a pin.
inline bool IsOwnTable() { return engine.tallies.IsOf(engine.pool_id()); }

class TallyLock {
 public:
  explicit TallyLock(lease::Tally& tally) : tally_(tally), lock_(engine.tallies.Lock(tally)) {}
  ~TallyLock() { engine.tallies.Unlock(tally_, lock_); }
  TallyLock(const TallyLock&) = delete;
  TallyLock& operator=(const TallyLock&) = delete;
  bool IsOwn() const { return lease::Tallies::IsOwn(tally_, lock_); }

 private:
  lease::Tally& tally_;
  const uint64_t lock_;
};

// Describes the file by the program's descriptor. File lock. False: recovery would not find it.
bool DescribeThrough(int fd, File& file, pool::FileRecord* record);
// The file may have another name since the log was told of it last.
void NoteBypasses(File& file, uint64_t bypasses);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_THROUGH_FILE_H_
