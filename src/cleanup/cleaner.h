// SPDX-License-Identifier: BSD-3-Clause
//
// The cleanup thread: moves the log, in batches, to the file system (thesis, section 3.2.3).
//
//   read the lanes' records, in the order of their LSNs
//   bring them to the kernel in that order (kernel_writer.h)
//   fdatasync each file once, or, of many files, their file system
//   make the new checkpoint durable, then let writers use the segments below it (I5)
//
// A file system that refuses loses nothing (I10). The file fails from then on: its pages count as
// unwritten again, and all of them are tried once more from time to time, until it has them. What
// the file has in the log goes to kept segments, which count whatever the checkpoint says, so that
// the checkpoint passes it and others go on:
//
//   every record below the checkpoint is on disk, or void, or kept
//
// When the disk takes it after all, the copies become void, before the checkpoint passes a later
// record of the file. They take half of the pool at most: beyond that, writes to files that fail
// are refused with the file system's error, and a write to another file that finds the log full
// makes its file pass-through.
//
// A file may also be *handed over*: the kernel gets all of its bytes, a record says so, and others
// may have the file at once. Its groups are nobody's then. The checkpoint passes them when the
// kernel has synced the file system (`cover`), or another process has.
//
// It takes no file lock (it only tries), no lock of the vfs layer, and makes no call that a signal
// or a cancellation could end.
#ifndef NVCACHE_CLEANUP_CLEANER_H_
#define NVCACHE_CLEANUP_CLEANER_H_

#include <atomic>
#include <cstdint>

#include "src/cleanup/failing_files.h"
#include "src/cleanup/kept_writer.h"
#include "src/cleanup/kernel_writer.h"
#include "src/cleanup/limits.h"
#include "src/cleanup/syncer.h"
#include "src/dramcache/page_cache.h"
#include "src/sys/host.h"

namespace nvcache::cleanup {

class Cleaner {
 public:
  constexpr Cleaner(nvlog::Log& log, dramcache::PageCache& cache)
      : log_(log),
        cache_(cache),
        failing_(log),
        syncer_(log, cache),
        kept_writer_(log, cache, calls_),
        writer_(log, cache, calls_, failing_) {}

  bool Start(const Host& host, const Limits& limits, const Calls& calls);
  // Ends the thread after the batch it is at. Pending records stay pending.
  void Stop();
  // The same, and every thread that waits for it is refused, now and later. Pending records are
  // nobody's; the files' locks are held.
  void Abandon();
  // In a child of fork, which has no such thread.
  void LeaveToParent() { thread_ = nullptr; }

  // After Add(), the thread writes back what the log gets of the file. After Remove(), the file's
  // memory can be taken back. One call at a time. Both want nothing pending.
  void Add(dramcache::CachedFile& file);
  void Remove(dramcache::CachedFile& file);

  // Those of KernelWriter.
  long WriteBack(dramcache::CachedFile& file) { return writer_.WriteBack(file); }
  long WriteBackBefore(dramcache::CachedFile& file) { return writer_.WriteBackBefore(file); }

  // The kernel has all of the file's bytes, and nothing of it fails. `commit()` appends a record of
  // Kind::kHandedOver and returns its LSN; 0: it could not, and nothing has happened. Else nothing
  // of the file is pending here any more. Waits for the batch that is under way. File lock,
  // exclusive.
  template <typename Commit>
  bool HandOver(dramcache::CachedFile& file, Commit commit);
  // No group of a handed over file has a higher LSN; 0: they are below the checkpoint of the seat.
  nvlog::Lsn handed_over() const { return uncovered_.load(); }

  // Waits until every record that `file` has now is on disk, or the file system has refused them
  // once more after the call began: then a negated errno. Any thread, without page locks.
  long Drain(dramcache::CachedFile& file);
  // Waits until every record that is in the log now is on disk, or kept.
  void DrainAll();
  // Every record below is on disk, or kept.
  nvlog::Lsn cleaned() const { return cleaned_.load(std::memory_order_acquire); }

  // Asks for memory back; the waiter is told as by freed room in the log.
  void RequestTrim();

  // Some file fails.
  bool failing() const { return failing_.error() != 0; }
  // Files that fail have as much in the pool as they may, or other processes have all of it and
  // give nothing back. A thread that waits for room looks again when this becomes so.
  bool overloaded() const {
    return overloaded_.load(std::memory_order_relaxed) || starved_.load(std::memory_order_relaxed);
  }
  // The file is one of them, or about to be: then the next round tells.
  bool Crowds(const dramcache::CachedFile& file) const {
    return file.failing.load(std::memory_order_relaxed) != 0 &&
           file.pending.load() > FailingLimit();
  }
  // 0; or, if they have and the file is one of them, the error with which it fails, negated.
  long Refusal(const dramcache::CachedFile& file) const {
    const int error = file.failing.load(std::memory_order_relaxed);
    return error != 0 && overloaded_.load(std::memory_order_relaxed) ? -error : 0;
  }

 private:
  struct Batch;

  static void Main(void* self) { static_cast<Cleaner*>(self)->Run(); }
  void Run();
  void AwaitWork();
  bool RunBatch();
  uint64_t AfterNothing();
  void MapAhead();
  void ReadBatch(Batch* batch);
  bool ReadPart(Batch* batch);
  bool AddRecord(nvlog::Place place, Batch* batch);
  bool AddFile(dramcache::CachedFile& file, Batch* batch);
  void SyncFiles(Batch* batch);
  void Unlist(Batch* batch);
  void Advance(const Batch& batch);
  void ForgetRecord(nvlog::Place place);
  void ForgetPages(dramcache::CachedFile& file, nvlog::Place place);
  void RetryFailing();
  long WriteAgain(dramcache::CachedFile& file);
  long SyncAgain(dramcache::CachedFile& file);
  long EraseAgain(dramcache::CachedFile& file);
  void Recovered(dramcache::CachedFile& file);
  uint64_t FailingLimit() const { return log_.writable_units() / 2; }
  void VoidRecord(dramcache::CachedFile& file, nvlog::Place place);
  bool IsCovered() const { return log_.pool().through_checkpoint() > uncovered_.load(); }
  bool CoverHandedOver(nvlog::Lsn* end);
  void WeighFailing();
  void CountFiles(uint32_t change);
  void NoteWritten() const;
  bool TrimDue();
  void Trim();
  template <typename Done>
  long WaitFor(Done done, const std::atomic<int>* failing);

  nvlog::Log& log_;
  dramcache::PageCache& cache_;
  Limits limits_ = {};
  Calls calls_;
  const Host* host_ = nullptr;
  void* thread_ = nullptr;

  FailingFiles failing_;
  Syncer syncer_;
  KeptWriter kept_writer_;
  KernelWriter writer_;

  sys::Mutex<sys::Rank::kBatch> batch_lock_;
  std::atomic<nvlog::Lsn> uncovered_{0};  // handed_over(); under batch_lock_
  bool cover_failed_ = false;             // handed over groups are kept

  std::atomic<bool> stopping_{false};
  std::atomic<bool> trim_wanted_{false};
  std::atomic<uint32_t> numbers_{0};  // files that were added have numbers below it
  std::atomic<uint32_t> drains_{0};   // callers in Drain or DrainAll
  std::atomic<nvlog::Lsn> cleaned_{0};
  std::atomic<bool> overloaded_{false};
  std::atomic<bool> starved_{false};
  sys::Event progress_;  // a round is over

  nvlog::Lsn read_ = 0;           // every record below it was read
  uint64_t pages_per_group_ = 0;  // the last batch's, to guess when batch_min is reached
  uint64_t last_trim_ = 0;        // monotonic ns
  uint64_t first_seen_ = 0;       // monotonic ns, when the record at read_ was first seen
  uint64_t starved_since_ = 0;    // monotonic ns; 0: writers do not wait for other processes
  uint64_t starved_told_ = 0;     // monotonic ns
  uint64_t written_ = 0;          // bytes of records that reached the disk, since Start()
  bool drained_some_ = false;     // since drained_ was called last
};

template <typename Commit>
bool Cleaner::HandOver(dramcache::CachedFile& file, Commit commit) {
  sys::Lock lock(batch_lock_);
  sys::Lock writer_lock(writer_.lock());
  // A batch may just have found this out.
  if (file.failing.load() != 0) return false;
  const nvlog::Lsn lsn = commit();
  if (lsn == 0) return false;
  NVCACHE_CHECK(!file.in_batch && lsn > uncovered_.load());
  file.handed_over.store(lsn);
  uncovered_.store(lsn);
  cache_.Relinquish(file);
  return true;
}

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_CLEANER_H_
