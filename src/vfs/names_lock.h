// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_NAMES_LOCK_H_
#define NVCACHE_VFS_NAMES_LOCK_H_

#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

// The lock of names of all processes of the user, with the pool pinned. Its owner makes a call of
// the kernel's, and waits for nothing else.
class NamesLock {
 public:
  NamesLock() : lock_(engine.file_table.LockNames()) {
    can_log_ = pin_.ok() && engine.file_table.IsOf(engine.pool_id()) &&
               engine.checkpoint.is_open() && engine.pool().seats().ThroughFailed() == 0;
  }
  ~NamesLock() { engine.file_table.UnlockNames(lock_); }
  NamesLock(const NamesLock&) = delete;
  NamesLock& operator=(const NamesLock&) = delete;
  // The log can take what happens: the pool is there, and no sync has failed.
  bool can_log() const { return can_log_; }
  bool IsOwn() const { return engine.file_table.IsOwnNames(lock_); }

 private:
  const PoolPin pin_;
  const uint64_t lock_;
  bool can_log_;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAMES_LOCK_H_
