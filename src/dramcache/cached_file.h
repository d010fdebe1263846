// SPDX-License-Identifier: BSD-3-Clause
//
// A file as the cache knows it. The vfs layer derives its File from it.
#ifndef NVCACHE_DRAMCACHE_CACHED_FILE_H_
#define NVCACHE_DRAMCACHE_CACHED_FILE_H_

#include <atomic>
#include <cstdint>

#include "src/dramcache/erasures.h"
#include "src/dramcache/error_sequence.h"
#include "src/nvlog/log.h"
#include "src/radix/tree.h"
#include "src/sys/lock.h"

namespace nvcache::dramcache {

struct CachedFile {
  // Shared: reading and writing data. Exclusive: truncation, a change of state, taking descriptors
  // back. The cleanup thread works without it (it relies on page locks and pending records), and
  // only ever tries it.
  sys::RwLock<sys::Rank::kFile> lock;

  radix::Tree pages;

  // Our own descriptor: read and write, without O_APPEND, on this inode. -1: none. The program may
  // close it by a system call that nobody sees, and have the number for another file: a thread that
  // is about to write looks first, or knows that somebody has just done so.
  std::atomic<int> backing_fd{-1};

  // The newest size in bytes; the kernel's may lag behind. Grows under `lock` shared and the locks
  // of the pages written, so that a thread that holds a page lock sees a size that covers the
  // page's committed bytes. Shrinks under `lock` exclusive.
  std::atomic<uint64_t> size{0};

  // The file as the log knows it. Its number is nobody else's while something is pending.
  nvlog::FileTag tag;

  // Times that something was found in the file system, or done to it, that it may still undo and
  // that a later record must not meet undone: bytes, a cut, a name, a mode. And up to which of
  // these a sync has covered. While they differ, the next record waits for one.
  std::atomic<uint32_t> barriers{0};
  std::atomic<uint32_t> barriers_synced{0};
  // It has no name any more, and the log says so. Changes under `lock` exclusive.
  std::atomic<bool> removed{false};

  // Bytes that were cut off or made zero, and are so in the log.
  Erasures erasures;
  // Held from before an erasure's record until the kernel has made its own: until then the file
  // system does not have it. The cleanup thread only tries it.
  sys::Mutex<sys::Rank::kErase> erase_lock;
  // errno with which the kernel has refused one; 0: none. It is made up for when the file is
  // written again.
  std::atomic<int> erase_error{0};
  // One of them was made, and not synced since.
  std::atomic<bool> erased{false};

  // The LSN of its newest data record. And up to which of these the kernel has all: of each page,
  // the unwritten records are those above it. That changes under the cleaner's lock of write-back,
  // and while the file fails, by the cleanup thread.
  std::atomic<nvlog::Lsn> newest{0};
  std::atomic<nvlog::Lsn> written_back{0};

  // Records of its number up to this LSN are nobody's: they were published, or are of a file that
  // had the number before.
  std::atomic<nvlog::Lsn> handed_over{0};
  bool IsHandedOver(nvlog::Lsn lsn) const {
    return lsn <= handed_over.load(std::memory_order_relaxed);
  }

  // Units of the file's records in the log. 0 means: no page descriptor is dirty, and the cleanup
  // thread has no business here.
  std::atomic<uint64_t> pending{0};

  // Write-back (I10): errno of the last attempt, 0 when it went well. Set by the cleanup thread,
  // only while something is pending; then none of it counts as on disk. And what fsync and close
  // have to report.
  std::atomic<int> failing{0};
  ErrorSequence errors;

  // Calls of ours that change what the kernel has of the file, or its time: at the beginning and at
  // the end of each (KernelChange).
  std::atomic<uint32_t> kernel_changes{0};

  // Held over each sync by our own descriptor, for the kernel tells that of an error once: a thread
  // that hears of one that the cleanup thread must know says so here. Nobody closes or moves the
  // descriptor meanwhile.
  sys::Mutex<sys::Rank::kSync> sync_lock;
  bool sync_refused = false;  // under sync_lock

  // The file system, if a sync of the whole brings every file of it to the disk; else 0.
  uint64_t sync_device = 0;

  // The cleanup thread's own: during a batch, and while the file fails.
  CachedFile* batch_next = nullptr;
  bool in_batch = false;
  bool batch_synced = false;  // counts while in_batch
  CachedFile* failing_next = nullptr;
  uint64_t checked = 0;          // the last pass of write-back ahead that has; under its lock
  nvlog::Lsn kept_declared = 0;  // the kept segment's that has a file record of it
};

// Such a call, for as long as it lives.
class KernelChange {
 public:
  explicit KernelChange(CachedFile& file) : file_(file) { file_.kernel_changes.fetch_add(1); }
  ~KernelChange() { file_.kernel_changes.fetch_add(1); }
  KernelChange(const KernelChange&) = delete;
  KernelChange& operator=(const KernelChange&) = delete;

 private:
  CachedFile& file_;
};

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_CACHED_FILE_H_
