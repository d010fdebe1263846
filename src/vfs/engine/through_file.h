// SPDX-License-Identifier: BSD-3-Clause
//
// Parts that writing and settling a write-through file (through.h) have in common.
#ifndef NVCACHE_VFS_ENGINE_THROUGH_FILE_H_
#define NVCACHE_VFS_ENGINE_THROUGH_FILE_H_

#include <cstdint>

#include "src/lease/file_table.h"
#include "src/pool/format.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

inline uint64_t TagOf(const File& file) { return file.entry_tag.load(std::memory_order_relaxed); }

// With a pin.
inline bool IsOwnTable() { return engine.file_table.IsOf(engine.pool_id()); }

class EntryLock {
 public:
  explicit EntryLock(lease::FileEntry& entry)
      : entry_(entry), lock_(engine.file_table.Lock(entry)) {}
  ~EntryLock() { engine.file_table.Unlock(entry_, lock_); }
  EntryLock(const EntryLock&) = delete;
  EntryLock& operator=(const EntryLock&) = delete;
  bool IsOwn() const { return lease::FileTable::IsOwn(entry_, lock_); }

 private:
  lease::FileEntry& entry_;
  const uint64_t lock_;
};

// Describes the file by the program's descriptor. File lock. False: recovery would not find it.
bool DescribeThrough(int fd, File& file, pool::FileRecord* record);
// The file may have another name since the log was told of it last.
void NoteBypasses(File& file, uint64_t bypasses);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_THROUGH_FILE_H_
