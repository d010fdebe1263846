// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_ENGINE_IN_FLIGHT_H_
#define NVCACHE_VFS_ENGINE_IN_FLIGHT_H_

#include "src/lease/file_table.h"

namespace nvcache::vfs {

struct File;

// The process is at a call that changes a file whose bytes are the kernel's, or may (through.h).
// For as long as it lives.
class InFlight {
 public:
  InFlight() = default;
  ~InFlight() { End(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // The file's entry, looked for afterwards; null: it has none.
  lease::FileEntry* Begin(uint64_t tag);
  lease::FileEntry* Begin(const File& file);
  void End();
  lease::FileEntry* entry() const { return entry_; }
  uint64_t tag() const { return tag_; }

  // Before a call past the log: the file's pending groups are settled, by the descriptor (-1: by
  // the checkpoint), or recovery would undo the call. Until the end nothing else will be. No lock.
  // -EIO: the disk refuses, so the call must fail.
  long Bypass(int fd) const;

 private:
  uint64_t tag_ = 0;  // 0: it is not
  std::atomic<uint16_t>* count_ = nullptr;
  lease::FileEntry* entry_ = nullptr;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_IN_FLIGHT_H_
