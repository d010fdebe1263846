// SPDX-License-Identifier: BSD-3-Clause
//
// Brings data records to the kernel, in the order of the log, whichever file they are of (I16). Who
// looks without us sees what the kernel has: so that is always a beginning of what was written.
//
// One thread at a time does so, and goes on where the last one has ended: the cleanup thread for
// its batches; and before that any thread, if the kernel must have the bytes of a file now. The
// batch meets the same records again, and syncs their files.
//
// How far it is lies in the pool (View::written_back), for who replays the logs of this process
// while others look. While a file fails nobody can say that, and what is written again has no
// order.
#ifndef NVCACHE_CLEANUP_KERNEL_WRITER_H_
#define NVCACHE_CLEANUP_KERNEL_WRITER_H_

#include <cstdint>

#include "src/cleanup/failing_files.h"
#include "src/cleanup/limits.h"
#include "src/cleanup/record_list.h"
#include "src/dramcache/page_cache.h"
#include "src/sys/lock.h"

namespace nvcache::cleanup {

class KernelWriter {
 public:
  constexpr KernelWriter(nvlog::Log& log, dramcache::PageCache& cache, const Calls& calls,
                         FailingFiles& failing)
      : log_(log), cache_(cache), calls_(calls), failing_(failing) {}

  void Begin() { written_back_ = 0; }

  // Held by a thread that brings records to the kernel, or reads on in the log, or says that a file
  // fails or does so no more; and while one is handed over.
  sys::Mutex<sys::Rank::kWriteBack>& lock() { return lock_; }

  // The kernel gets all that the log has up to the file's newest record. 1; 0 if it had that; or a
  // negated errno: some file was refused, or this one fails. Any thread, without page locks.
  long WriteBack(dramcache::CachedFile& file);
  // WriteBack() of all that the log has, for the kernel is about to change the file. File lock,
  // exclusive.
  long WriteBackBefore(dramcache::CachedFile& file);

  // ---- The cleanup thread, with the lock
  // A data record that comes next. Before a group, there must be room for it.
  bool HasRoomForGroup() const { return records_.HasRoomForGroup(); }
  void Add(dramcache::CachedFile& file, nvlog::Place record);
  // All that was added. A file that is refused fails, and what is left of it stays unwritten.
  void Write();
  // The kernel has, or gets by the next call, or will never need, all records up to this LSN.
  void NoteWritten(nvlog::Lsn lsn);
  // `error`: negated errno.
  void Fail(dramcache::CachedFile& file, long error);
  // All that was read is on the disk, of a file that has failed.
  void Recover(dramcache::CachedFile& file);

  // Whether bytes can be brought to the file: its descriptor is its own, and the kernel has made
  // its erasures. 0, or a negated errno.
  long Check(dramcache::CachedFile& file) const;
  // What the kernel gets must not come before that which lets the log go on (docs/disk.md).
  void Hold() const {
    if (calls_.hold != nullptr) calls_.hold();
  }
  long CheckDescriptor(dramcache::CachedFile& file) const {
    return calls_.check != nullptr ? calls_.check(file) : 0;
  }

 private:
  long WriteUpTo(dramcache::CachedFile& file, nvlog::Lsn end);
  long WriteUpTo(nvlog::Lsn end);
  long Take(nvlog::Place place);
  long WriteRun(dramcache::CachedFile& file, const nvlog::Place* records, uint32_t count);

  nvlog::Log& log_;
  dramcache::PageCache& cache_;
  const Calls& calls_;
  FailingFiles& failing_;

  sys::Mutex<sys::Rank::kWriteBack> lock_;
  RecordList records_;
  nvlog::Lsn written_back_ = 0;  // the LSN that was noted, since no file fails
  uint64_t passes_ = 0;          // WriteUpTo's
};

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_KERNEL_WRITER_H_
