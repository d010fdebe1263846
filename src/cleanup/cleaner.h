// SPDX-License-Identifier: BSD-3-Clause
//
// The cleanup thread: moves the log, in batches, to the file system (thesis, section 3.2.3).
//
//   take a run of committed groups from the tail
//   write each of their pages back to the kernel, under its page lock (I8), neighbours together
//   fdatasync each file once, or, of many files, their file system
//   make the new tail durable, then let writers use the room (I5)
//
// A file system that refuses loses nothing (I10). The file fails from then on: its pages count as
// unwritten again, and all of them are tried once more from time to time, until it has them. Others
// go on behind it:
//
//   every group in [tail, handled_) is on disk, or its file fails
//
// so the tail stops before the first group of a file that fails. When somebody needs the room
// behind, or waits for the tail, the entries of such files are appended once more, with the newest
// bytes, and the old ones freed (I5: free only what is on disk, or in the log once more). What
// files that fail have in the log is bounded: beyond half of it, writes to them are refused with
// the file system's error, and a write to another file that finds the log full makes its file
// pass-through.
//
// It takes no file lock (it only tries, to take memory back), no lock of the vfs layer, and makes
// no call that a signal or a cancellation could end.
#ifndef NVCACHE_CLEANUP_CLEANER_H_
#define NVCACHE_CLEANUP_CLEANER_H_

#include <errno.h>

#include <atomic>
#include <compare>
#include <cstdint>

#include "src/dramcache/page_cache.h"
#include "src/pool/file_table.h"
#include "src/sys/host.h"

namespace nvcache::cleanup {

struct Limits {
  uint64_t batch_min;  // entries, about: so many start a batch
  uint64_t batch_max;  // entries: a batch ends with the group that reaches it
  uint64_t delay_ns;   // after this time fewer start one, too
  // Files of a batch that are synced with all of their file system, where there are so many: one
  // commit of its journal, not one for each. It brings other programs' files along.
  uint32_t together = 64;
};

class Cleaner {
 public:
  constexpr Cleaner(nvlog::Log& log, dramcache::PageCache& cache, pool::FileTable& table)
      : log_(log), cache_(cache), table_(table) {}

  // `check` says whether the file's descriptor is its own, and may open it anew: 0, or a negated
  // errno. It is called once for each batch that the file is in. Null: it always is.
  using Check = long (*)(dramcache::CachedFile&);
  // `drained` is called, without locks, when some file has nothing pending any more, or no cut to
  // settle.
  using Drained = void (*)();
  bool Start(const Host& host, const Limits& limits, Check check = nullptr,
             Drained drained = nullptr);
  // Ends the thread after the batch it is at. What is pending stays pending.
  void Stop();
  // The same, and whoever waits for it is refused, now and later. What is pending is nobody's; the
  // files' locks are held.
  void Abandon();
  // In a child of fork, which has no such thread.
  void LeaveToParent();

  // Makes the file known: its entries can be found by slot once SetSlot was called, its memory can
  // be taken back. Remove() wants nothing pending.
  void Add(dramcache::CachedFile& file);
  void Remove(dramcache::CachedFile& file);

  // What an entry of the file needs before it: the sync that is awaited, and a slot in the file
  // table. File lock, shared; nothing else that other files need is held while the disk is waited
  // for. 0; kNotSynced; or the error of Allocate, -ENFILE: wait for room, slots are freed when
  // little is left.
  long EnsureSlot(dramcache::CachedFile& file);
  // The file system has refused the sync, so the log must not take what is written now.
  static constexpr long kNotSynced = -ESTRPIPE;

  // The next entry waits for a sync, because the file system may still undo what was done to the
  // file. File lock, exclusive, and nothing pending.
  void AwaitSync(dramcache::CachedFile& file);
  // A sync of the file has succeeded that began before any of its entries is freed. File lock,
  // shared; or entries pending.
  void SettleName(dramcache::CachedFile& file);

  // The file loses all of its bytes, and what it has in the log is nothing from now on; durable
  // when it returns, without a sync: recovery does the same. The caller sets the size. File lock,
  // exclusive, and a descriptor that was checked. 0, or a negated errno: nothing has happened, or
  // the file system is in trouble.
  long Cut(dramcache::CachedFile& file);
  // Syncs the file if it was cut and not synced since; its record says nothing of a cut any more.
  // File lock, exclusive, and nothing pending.
  long SettleCut(dramcache::CachedFile& file);

  // Takes the slot away again: its path will not be right any more. File lock, exclusive,
  // nothing pending, and no cut to settle.
  void DropSlot(dramcache::CachedFile& file);

  // Waits until every entry that `file` has now is on disk, or the file system has refused them
  // once more after the call began: then a negated errno. Any thread, with or without the file's
  // lock, but without page locks.
  long Drain(dramcache::CachedFile& file);
  long DrainAll();

  // Asks for memory or slots back; the waiter is told as by freed room in the log.
  void RequestTrim();

  // Some file fails.
  bool failing() const { return failing_.load(std::memory_order_relaxed) != 0; }
  // Files that fail have as much in the log as they may. Whoever waits for room looks again when
  // this becomes so.
  bool overloaded() const { return overloaded_.load(std::memory_order_relaxed); }
  // The file is one of them, or about to be: then the next round tells.
  bool Crowds(const dramcache::CachedFile& file) const {
    return file.failing.load(std::memory_order_relaxed) != 0 &&
           file.pending.load() > FailingLimit();
  }
  // 0; or, if they have and the file is one of them, the error with which it fails, negated.
  long Refusal(const dramcache::CachedFile& file) const {
    const int error = file.failing.load(std::memory_order_relaxed);
    return error != 0 && overloaded() ? -error : 0;
  }

 private:
  struct Batch {
    nvlog::Position end;
    uint64_t entries = 0;
    dramcache::CachedFile* files = nullptr;
  };
  // A page of a batch that has to be written. A batch is written in parts of so many, each in the
  // order of files and pages, so that neighbours go by one call.
  struct Item {
    dramcache::CachedFile* file;
    uint64_t page;
    auto operator<=>(const Item&) const = default;
  };
  static constexpr uint32_t kMaxItems = 1024;  // 16 KiB
  static_assert(kMaxItems >= nvlog::kMaxGroupEntries);

  static void Main(void* self) { static_cast<Cleaner*>(self)->Run(); }
  void Run();
  void AwaitWork();
  bool RunBatch();
  void MapAhead();
  void WriteBatch(Batch* batch);
  void AddGroup(nvlog::Position first, Batch* batch);
  void WriteItems();
  long WriteRun(dramcache::CachedFile& file, uint64_t first, uint32_t count);
  void SyncFiles(Batch* batch);
  void SyncTogether(Batch* batch);
  void Synced(dramcache::CachedFile& file, long error);
  void ForgetKernel(dramcache::CachedFile& file);
  void Unlist(Batch* batch);
  void FreeHandled();
  void FreeTo(nvlog::Position end);
  void ForgetEntries(nvlog::Position begin, nvlog::Position end);
  void ForgetEntry(const nvlog::EntryHeader& header);
  void RetryFailing();
  long WriteAgain(dramcache::CachedFile& file);
  template <typename Sync>
  long Ask(dramcache::CachedFile& file, Sync sync);
  long SyncFile(dramcache::CachedFile& file);
  long SyncBeforeEntry(dramcache::CachedFile& file);
  bool CanRecord(const dramcache::CachedFile& file) const;
  long MakeRecord(dramcache::CachedFile& file);
  void NoteCut(dramcache::CachedFile& file);
  void ForgetCut(dramcache::CachedFile& file);
  void CarryCuts(nvlog::Position end);
  void DropCuts(nvlog::Position end);
  void SettleCuts();
  void Failed(dramcache::CachedFile& file, long error);
  void Recovered(dramcache::CachedFile& file);
  void StopFailing(dramcache::CachedFile& file);
  void NoteFailure(const dramcache::CachedFile& file, int error);
  uint64_t FailingLimit() const { return log_.writable_units() / 2; }
  bool RoomIsShort() const;
  bool Compacts() const { return log_.tail() < compact_to_; }
  bool MustMove();
  void MoveFailing();
  nvlog::Position MoveSome(nvlog::Position target);
  bool MoveGroup(dramcache::CachedFile& file, nvlog::Position first);
  void WeighFailing();
  nvlog::Position EndOfGroup(nvlog::Position first) const;
  long CheckDescriptor(dramcache::CachedFile& file) { return check_ != nullptr ? check_(file) : 0; }
  bool TrimDue();
  void Trim();
  dramcache::CachedFile& FileOf(const nvlog::EntryHeader& header);
  template <typename Done>
  long WaitFor(Done done, const std::atomic<int>& failing);
  template <typename Gone>
  long DrainUnless(Gone gone, const std::atomic<int>& failing, const std::atomic<uint64_t>& moves);

  nvlog::Log& log_;
  dramcache::PageCache& cache_;
  pool::FileTable& table_;
  Limits limits_ = {};
  Check check_ = nullptr;
  Drained drained_ = nullptr;
  const Host* host_ = nullptr;
  void* thread_ = nullptr;

  std::atomic<dramcache::CachedFile*>* by_slot_ = nullptr;
  sys::Mutex slot_lock_;                               // EnsureSlot, SettleName, cuts_
  std::atomic<dramcache::CachedFile*> cuts_{nullptr};  // cut, and perhaps not synced since
  sys::Mutex list_lock_;                               // list_; a leaf
  dramcache::CachedFile* list_ = nullptr;

  std::atomic<bool> stopping_{false};
  std::atomic<bool> trim_wanted_{false};
  std::atomic<uint32_t> drains_{0};  // callers in Drain or DrainAll
  std::atomic<uint64_t> rounds_{0};  // batches tried
  std::atomic<uint64_t> retries_begun_{0};
  std::atomic<uint64_t> retries_done_{0};  // the number of the last one
  std::atomic<int> failing_{0};            // errno of some file that fails; 0: there is none
  std::atomic<uint64_t> moves_{0};         // CachedFile::moves of all files
  std::atomic<bool> retry_wanted_{false};  // somebody waits for a file that fails
  std::atomic<bool> tail_wanted_{false};   // somebody waits for it who could go on
  std::atomic<bool> overloaded_{false};
  sys::Event progress_;  // a round is over

  Item* items_ = nullptr;  // kMaxItems
  uint32_t item_count_ = 0;
  nvlog::Position handled_ = 0;
  // Not 0: files that fail have too much in the log, or had until it has got here.
  nvlog::Position compact_to_ = 0;
  dramcache::CachedFile* failing_files_ = nullptr;
  uint64_t retry_at_ = 0;         // monotonic ns
  uint64_t units_per_entry_ = 0;  // of the last batch, to guess when batch_min is reached
  uint64_t last_trim_ = 0;        // monotonic ns
  uint64_t first_seen_ = 0;       // monotonic ns, when the entry at handled_ was first seen
  bool drained_some_ = false;     // since drained_ was called last
};

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_CLEANER_H_
