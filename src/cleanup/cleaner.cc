// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/cleaner.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/root.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;
using dramcache::Name;
using nvlog::EntryHeader;
using nvlog::EntryUnits;
using nvlog::Position;

namespace {

// The log is never left this full for the sake of a larger batch.
constexpr uint64_t kPressureShare = 4;  // 1/4 of it
// After a refusal, before the next try; and at least so many times what the last one took.
constexpr uint64_t kRetryNs = 100 * 1000 * 1000;
constexpr uint64_t kRetryShare = 4;
// So much is moved in one round, 1/16 of the log.
constexpr uint64_t kMoveShare = 16;
// For a writer that has taken the place at the tail and not committed yet.
constexpr uint64_t kCommitNs = 50 * 1000;
// Between two looks for memory to take back, while little is left and nobody waits for it.
constexpr uint64_t kTrimNs = 20 * 1000 * 1000;
// Between two looks, within a batch, whether more of the pool's memory should be mapped.
constexpr uint64_t kPrefaultEntries = 64;

uint64_t PageOf(const EntryHeader& header) { return header.offset / pool::kPageSize; }

// It was cut, and the file system may undo that.
bool OwesCut(const CachedFile& file) { return file.cuts_synced.load() != file.cuts.load(); }

// The next entry waits.
bool AwaitsSync(const CachedFile& file) {
  return file.awaited_synced.load() != file.awaited.load();
}

// The entry at `position` is nothing: the file was cut since.
bool IsCut(const CachedFile& file, Position position) { return position < file.cut.load(); }

}  // namespace

bool Cleaner::Start(const Host& host, const Limits& limits, Check check, Drained drained) {
  limits_ = limits;
  check_ = check;
  drained_ = drained;
  host_ = &host;
  units_per_entry_ = nvlog::kMaxEntryUnits;
  using Slot = std::atomic<CachedFile*>;
  by_slot_ = static_cast<Slot*>(sys::Reserve(table_.capacity() * sizeof(Slot)));
  items_ = static_cast<Item*>(sys::Reserve(kMaxItems * sizeof(Item)));
  if (by_slot_ == nullptr || items_ == nullptr) return false;
  stopping_.store(false);
  handled_ = log_.tail();
  compact_to_ = 0;
  failing_files_ = nullptr;
  thread_ = host.start_thread(&Main, this);
  return thread_ != nullptr;
}

void Cleaner::Stop() {
  if (thread_ != nullptr) {
    stopping_.store(true);
    log_.Ring();
    host_->join_thread(thread_);
  }
  LeaveToParent();
}

void Cleaner::Abandon() {
  Stop();
  failing_.store(EIO);
  overloaded_.store(true);
  retries_done_.store(~uint64_t{0});
  progress_.Signal();
  log_.AnnounceRoom();
}

void Cleaner::LeaveToParent() {
  thread_ = nullptr;
  if (by_slot_ != nullptr) sys::UnmapUnlocked(by_slot_, table_.capacity() * sizeof(*by_slot_));
  by_slot_ = nullptr;
  if (items_ != nullptr) sys::UnmapUnlocked(items_, kMaxItems * sizeof(Item));
  items_ = nullptr;
}

void Cleaner::Add(CachedFile& file) {
  sys::Lock lock(list_lock_);
  file.list_previous = nullptr;
  file.list_next = list_;
  if (list_ != nullptr) list_->list_previous = &file;
  list_ = &file;
}

void Cleaner::Remove(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0 && file.failing.load() == 0);
  sys::Lock lock(list_lock_);
  (file.list_previous != nullptr ? file.list_previous->list_next : list_) = file.list_next;
  if (file.list_next != nullptr) file.list_next->list_previous = file.list_previous;
  DropSlot(file);
}

void Cleaner::DropSlot(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0 && file.cuts.load() == 0 && !file.in_cuts);
  const uint32_t slot = file.slot.exchange(sys::kNone);
  if (slot != sys::kNone) table_.Free(slot);
}

long Cleaner::EnsureSlot(CachedFile& file) {
  for (;;) {
    if (AwaitsSync(file)) {
      if (const long error = SyncBeforeEntry(file); error < 0) return error;
    }
    if (file.slot.load(std::memory_order_acquire) != sys::kNone) return 0;
    sys::Lock lock(slot_lock_);
    if (file.slot.load(std::memory_order_relaxed) != sys::kNone) return 0;
    if (CanRecord(file)) return MakeRecord(file);
    file.opened_cut = false;
    file.awaited.fetch_add(1);
  }
}

// Several threads may do so at once: each has what it needs when its own sync is over.
long Cleaner::SyncBeforeEntry(CachedFile& file) {
  if (const long error = CheckDescriptor(file); error < 0) return error;
  const uint32_t awaited = file.awaited.load();
  {
    sys::Lock lock(file.sync_lock);
    if (sys::Fsync(file.backing_fd) < 0) {
      file.sync_refused = file.pending.load() > 0;
      return kNotSynced;
    }
  }
  SettleName(file);
  file.awaited_synced.store(awaited);
  return 0;
}

// Whether a record can say what recovery needs to know of a file that was not synced.
bool Cleaner::CanRecord(const CachedFile& file) const {
  // A position that no record can hold: after 8 PiB.
  if (file.opened_cut && log_.head() >> (pool::kCutBits - 1) != 0) return false;
  // A path that leads elsewhere when recovery follows it.
  return file.name.load() != Name::kNew || sys::AtMachineRoot();
}

// Slot lock held.
long Cleaner::MakeRecord(CachedFile& file) {
  if (const long error = CheckDescriptor(file); error < 0) return error;
  uint32_t slot;
  const bool is_new = file.name.load() == Name::kNew;
  if (file.opened_cut) NoteCut(file);
  const Position cut = file.opened_cut ? log_.head() : 0;
  if (long error =
          table_.Allocate(file.backing_fd, is_new, file.predecessor, cut, &slot, &file.incarnation);
      error < 0) {
    ForgetCut(file);
    return error;
  }
  file.cut_recorded = cut;
  file.cut.store(cut);
  file.cuts.store(file.opened_cut ? 1 : 0);
  file.cuts_made.store(file.cuts.load());
  file.cuts_synced.store(0);
  file.opened_cut = false;
  by_slot_[slot].store(&file, std::memory_order_release);
  file.slot.store(slot, std::memory_order_release);
  return 0;
}

void Cleaner::AwaitSync(CachedFile& file) {
  file.opened_cut = false;
  DropSlot(file);
  file.name.store(Name::kSettled);
  file.awaited.fetch_add(1);
}

// The record first: what the log has may reach the disk no more when the kernel has lost its bytes,
// and would then be a part of them. A write-back that is under way ends before the page is
// forgotten, so before the kernel cuts.
long Cleaner::Cut(CachedFile& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive());
  if (const int error = file.failing.load(); error != 0) return -error;
  if (log_.head() >> (pool::kCutBits - 1) != 0) return -EOVERFLOW;
  if (long error = EnsureSlot(file); error < 0) return error;
  // Whether it may be cut at all; nothing can be taken back later.
  struct stat st;
  if (long error = sys::Fstat(file.backing_fd, &st); error < 0) return error;
  if (long error = sys::Ftruncate(file.backing_fd, st.st_size); error < 0) return error;
  {
    sys::Lock lock(slot_lock_);
    NoteCut(file);
    const Position position = log_.head();
    table_.StoreCut(file.slot, position);
    file.cut_recorded = position;
    file.cut.store(position);
    file.cuts.fetch_add(1);
  }
  if (log_.head() == log_.tail()) log_.Ring();  // nothing else would wake the thread
  file.pages.ForEach(cache_.supply(), [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    cache_.ForgetBytes(page);
  });
  const long result = sys::Ftruncate(file.backing_fd, 0);
  if (result == 0) file.cuts_made.store(file.cuts.load());
  return result;
}

long Cleaner::SettleCut(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0);
  if (file.cuts.load() == 0) return 0;
  if (OwesCut(file)) {
    if (long error = CheckDescriptor(file); error < 0) return error;
    if (file.cuts_made.load() != file.cuts.load()) return -EIO;
    if (long error = sys::Fsync(file.backing_fd); error < 0) return error;
    file.cuts_synced.store(file.cuts_made.load());
  }
  sys::Lock lock(slot_lock_);
  table_.StoreCut(file.slot, 0);
  ForgetCut(file);
  file.cuts.store(0);
  file.cuts_made.store(0);
  file.cuts_synced.store(0);
  return 0;
}

// Slot lock held. The position of the cut is read afterwards: where the tail goes meanwhile,
// without a look at the list, is not beyond it.
void Cleaner::NoteCut(CachedFile& file) {
  if (file.in_cuts) return;
  file.in_cuts = true;
  file.cut_next = cuts_.load();
  cuts_.store(&file);
}

// Slot lock held.
void Cleaner::ForgetCut(CachedFile& file) {
  if (!file.in_cuts) return;
  file.in_cuts = false;
  if (cuts_.load() == &file) {
    cuts_.store(file.cut_next);
    return;
  }
  CachedFile* before = cuts_.load();
  while (before->cut_next != &file) before = before->cut_next;
  before->cut_next = file.cut_next;
}

// Before the tail passes a cut that may not be on disk, its record puts it off: no entry before
// `end` counts for recovery that is not on disk, or after it once more. What is counted here are
// the entries that were really cut.
void Cleaner::CarryCuts(Position end) {
  if (cuts_.load() == nullptr) return;
  sys::Lock lock(slot_lock_);
  for (CachedFile* file = cuts_.load(); file != nullptr; file = file->cut_next) {
    if (!OwesCut(*file) || file->cut_recorded >= end) continue;
    table_.StoreCut(file->slot, end);
    file->cut_recorded = end;
  }
}

// The tail is at `end`: no entry is left before these cuts. Those that are on disk are done; one at
// the tail itself would still count, and others may write to the file when it is closed.
void Cleaner::DropCuts(Position end) {
  if (cuts_.load() == nullptr) return;
  sys::Lock lock(slot_lock_);
  for (CachedFile* file = cuts_.load(); file != nullptr;) {
    CachedFile* next = file->cut_next;
    if (!OwesCut(*file) && file->cut_recorded <= end) {
      if (file->cut_recorded == end) table_.StoreCut(file->slot, 0);
      ForgetCut(*file);
    }
    file = next;
  }
}

// Of files that have nothing in the log: nothing else brings these cuts to the disk. A file whose
// lock is held just now is left for later. The lock of the list keeps them here.
void Cleaner::SettleCuts() {
  if (cuts_.load() == nullptr) return;
  sys::Lock lock(list_lock_);
  for (CachedFile* file = list_; file != nullptr; file = file->list_next) {
    if (!OwesCut(*file) || file->pending.load() > 0 || !file->lock.TryLock()) continue;
    if (file->pending.load() == 0) drained_some_ |= SettleCut(*file) == 0;
    file->lock.Unlock();
  }
}

void Cleaner::SettleName(CachedFile& file) {
  if (file.name.load() == Name::kSettled) return;
  sys::Lock lock(slot_lock_);
  file.name.store(Name::kSettled);
  if (const uint32_t slot = file.slot.load(); slot != sys::kNone) table_.SettleName(slot);
}

// Waits until done(), or until `failing` is set after a retry that began after the call. An error
// alone says little: the kernel may have kept it for our descriptor since long ago.
template <typename Done>
long Cleaner::WaitFor(Done done, const std::atomic<int>& failing) {
  drains_.fetch_add(1);
  const uint64_t rounds = rounds_.load();
  const uint64_t retries = retries_begun_.load();
  long result = 0;
  for (;;) {
    const uint32_t seen = progress_.Value();
    if (done()) break;
    result = -failing.load();
    if (result != 0 && retries_done_.load() > retries) break;
    if (result != 0) {
      retry_wanted_.store(true);
    } else if (rounds_.load() > rounds) {
      // Not at once: a round may show that the file fails, or free all of it.
      tail_wanted_.store(true);
    }
    result = 0;
    log_.Ring();
    progress_.Wait(seen);
  }
  drains_.fetch_sub(1);
  return result;
}

// Until gone(), or the tail has passed what is in the log now, and nothing of it went to the head
// meanwhile.
template <typename Gone>
long Cleaner::DrainUnless(Gone gone, const std::atomic<int>& failing,
                          const std::atomic<uint64_t>& moves) {
  uint64_t moves_seen = moves.load();
  Position target = log_.head();
  const auto done = [&] {
    const Position tail = log_.tail();  // first: it passes entries after `moves` has counted them
    if (gone()) return true;
    if (const uint64_t now = moves.load(); now != moves_seen) {
      moves_seen = now;
      target = log_.head();
    }
    return tail >= target;
  };
  return WaitFor(done, failing);
}

long Cleaner::Drain(CachedFile& file) {
  return DrainUnless([&] { return file.pending.load() == 0; }, file.failing, file.moves);
}

long Cleaner::DrainAll() {
  return DrainUnless([] { return false; }, failing_, moves_);
}

void Cleaner::RequestTrim() {
  trim_wanted_.store(true);
  log_.Ring();
}

void Cleaner::Run() {
  while (!stopping_.load()) {
    AwaitWork();
    if (log_.head() != log_.tail() && !RunBatch()) {
      const uint64_t pause = handled_ == log_.head() ? kRetryNs : kCommitNs;
      log_.Sleep(log_.BellSeen(), nvlog::kNoPosition, pause);
    }
    SettleCuts();
    if (std::exchange(drained_some_, false) && drained_ != nullptr) drained_();
    if (trim_wanted_.exchange(false) || TrimDue()) Trim();
  }
}

// Returns when there is enough to do, somebody is in a hurry, or the oldest entry has waited
// enough.
void Cleaner::AwaitWork() {
  for (;;) {
    const uint32_t seen = log_.BellSeen();
    const Position head = log_.head();
    pool::Note(log_.statistics()->head, head);
    if (stopping_.load() || trim_wanted_.load()) return;
    // Nobody waits for the memory: between two steps there may be work.
    const bool maps = log_.Prefault();
    const bool idle = head == log_.tail();
    if (idle || head == handled_) first_seen_ = 0;
    if (idle) {
      pool::Note(log_.statistics()->oldest_pending, 0);
      if (maps) continue;
      const bool cuts = cuts_.load() != nullptr;
      log_.Sleep(seen, head + 1, cuts ? limits_.delay_ns : sys::kForever);
      if (cuts && log_.head() == head) return;  // to settle them; else as with any batch
      continue;
    }
    if (pool::Peek(log_.statistics()->oldest_pending) == 0) {
      pool::Note(log_.statistics()->oldest_pending, sys::Now(CLOCK_REALTIME));
    }
    if (drains_.load() > 0 || log_.Hurried() || Compacts()) return;
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    uint64_t sleep = sys::kForever;
    if (failing_files_ != nullptr) {
      if (now >= retry_at_) return;
      sleep = retry_at_ - now;
    }
    Position alarm = handled_ + 1;
    if (head > handled_) {
      if (first_seen_ == 0) first_seen_ = now;
      const uint64_t enough =
          std::min(limits_.batch_min * units_per_entry_, log_.log_units() / kPressureShare);
      const uint64_t waited = now - first_seen_;
      if (head - handled_ >= enough || waited >= limits_.delay_ns) return;
      alarm = handled_ + enough;
      sleep = std::min(sleep, limits_.delay_ns - waited);
    }
    if (!maps) log_.Sleep(seen, alarm, sleep);
  }
}

// False if it came no further.
bool Cleaner::RunBatch() {
  const Position tail = log_.tail(), begin = handled_;
  RetryFailing();
  Batch batch = {begin};
  WriteBatch(&batch);
  SyncFiles(&batch);
  Unlist(&batch);
  handled_ = batch.end;
  if (handled_ > begin) first_seen_ = 0;
  FreeHandled();
  if (MustMove()) MoveFailing();
  WeighFailing();
  rounds_.fetch_add(1);
  progress_.Signal();
  return handled_ > begin || log_.tail() > tail;
}

// ---------------------------------------------------------------------------------------------
// Writing back.

// Before the disk is waited for, while writers go on.
void Cleaner::MapAhead() {
  while (!stopping_.load() && log_.Prefault()) continue;
}

void Cleaner::WriteBatch(Batch* batch) {
  const Position begin = batch->end;
  const Position head = log_.head();
  uint64_t prefault_at = 0;
  while (batch->end < head && batch->entries < limits_.batch_max) {
    if (const uint64_t units = log_.AbandonedUnits(batch->end); units > 0) {
      batch->end += units;
      continue;
    }
    if (!log_.IsCommitted(batch->end)) break;
    if (batch->entries >= prefault_at) {
      MapAhead();
      prefault_at = batch->entries + kPrefaultEntries;
    }
    AddGroup(batch->end, batch);
    batch->entries += log_.At(batch->end).group_count;
    batch->end = EndOfGroup(batch->end);
  }
  WriteItems();
  if (batch->entries > 0) units_per_entry_ = (batch->end - begin) / batch->entries + 1;
}

// What a file that fails has is left to RetryFailing.
void Cleaner::AddGroup(Position first, Batch* batch) {
  const uint32_t count = log_.At(first).group_count;
  if (item_count_ + count > kMaxItems) WriteItems();
  CachedFile& file = FileOf(log_.At(first));
  if (file.failing.load() != 0 || (IsCut(file, first) && !OwesCut(file))) return;
  if (!file.in_batch) {
    file.in_batch = true;
    file.batch_synced = false;
    file.batch_next = batch->files;
    batch->files = &file;
    if (const long error = CheckDescriptor(file); error < 0) return Failed(file, error);
  }
  Position position = first;
  for (uint32_t i = 0; i < count && !IsCut(file, first); ++i) {
    const EntryHeader& header = log_.At(position);
    NVCACHE_CHECK(header.position == position && header.group_index == i);
    items_[item_count_++] = {&file, PageOf(header)};
    position += EntryUnits(header.length);
  }
}

void Cleaner::WriteItems() {
  std::sort(items_, items_ + item_count_);
  const Item* const end = std::unique(items_, items_ + item_count_);
  for (const Item* item = items_; item < end;) {
    CachedFile& file = *item->file;
    uint32_t count = 1;
    while (count < dramcache::PageCache::kMaxRun && item + count < end &&
           item[count] == Item{&file, item->page + count}) {
      ++count;
    }
    if (file.failing.load() == 0) {
      if (const long error = WriteRun(file, item->page, count); error < 0) Failed(file, error);
    }
    item += count;
  }
  item_count_ = 0;
}

long Cleaner::WriteRun(CachedFile& file, uint64_t first, uint32_t count) {
  radix::PageDescriptor* pages[dramcache::PageCache::kMaxRun] = {};
  for (uint32_t i = 0; i < count; ++i) {
    pages[i] = file.pages.Find(cache_.supply(), first + i);
    NVCACHE_CHECK(pages[i] != nullptr);
    pages[i]->lock.Lock();
  }
  const long error = cache_.WriteBack(file, first, pages, count);
  for (uint32_t i = count; i > 0; --i) pages[i - 1]->lock.Unlock();
  return error;
}

void Cleaner::SyncFiles(Batch* batch) {
  SyncTogether(batch);
  for (CachedFile* file = batch->files; file != nullptr; file = file->batch_next) {
    if (file->failing.load() != 0 || file->batch_synced) continue;
    MapAhead();
    Synced(*file, SyncFile(*file));
  }
}

void Cleaner::Synced(CachedFile& file, long error) {
  if (error < 0) {
    Failed(file, error);
  } else {
    SettleName(file);
  }
}

// Calls sync(), and adds to what it says an error that SyncBeforeEntry has heard in its place.
template <typename Sync>
long Cleaner::Ask(CachedFile& file, Sync sync) {
  sys::Lock lock(file.sync_lock);
  const long result = sync();
  const bool refused = std::exchange(file.sync_refused, false);
  return result < 0 || !refused ? result : -EIO;
}

// With one call for all files that lie where the batch's newest does. What is left unsynced is
// synced alone, and says why: nothing here can tell whose an error of the whole is.
void Cleaner::SyncTogether(Batch* batch) {
  const uint64_t device = batch->files != nullptr ? batch->files->sync_device : 0;
  if (device == 0) return;
  const auto for_each = [&](auto function) {
    for (CachedFile* file = batch->files; file != nullptr; file = file->batch_next) {
      if (file->sync_device == device && file->failing.load() == 0) function(*file);
    }
  };
  uint32_t count = 0;
  CachedFile* last = nullptr;
  for_each([&](CachedFile& file) {
    ++count;
    last = &file;
    file.batch_cuts = file.cuts_made.load();
  });
  if (count < limits_.together) return;
  pool::Count(log_.statistics()->syncs);
  if (sys::Syncfs(last->backing_fd) < 0) return;
  // A file system may have had no reason to flush the device's own cache; this is one. What it says
  // is of this file, and said once.
  if (const long error = SyncFile(*last); error < 0) {
    Synced(*last, error);
    last->batch_synced = true;
    return;
  }
  for_each([&](CachedFile& file) {
    // Nothing is written any more; this asks what has become of it since our descriptor was asked
    // last.
    const long error = Ask(file, [&file] {
      return sys::SyncFileRange(file.backing_fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE);
    });
    if (error < 0) ForgetKernel(file);
    if (error == 0) file.cuts_synced.store(file.batch_cuts);
    Synced(file, error);
    file.batch_synced = true;
  });
}

long Cleaner::SyncFile(CachedFile& file) {
  pool::Count(log_.statistics()->syncs);
  const uint32_t cuts = file.cuts_made.load();
  const bool was_cut = cuts != file.cuts_synced.load();
  const long error = Ask(file, [&] {
    return was_cut ? sys::Fsync(file.backing_fd) : sys::Fdatasync(file.backing_fd);
  });
  if (error < 0) {
    ForgetKernel(file);
  } else if (was_cut) {
    file.cuts_synced.store(cuts);
  }
  return error;
}

// The kernel may have dropped any page of the file that was not on disk yet, and calls it clean;
// the log still has the bytes.
void Cleaner::ForgetKernel(CachedFile& file) {
  file.pages.ForEach(cache_.supply(), [&](uint64_t number, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    cache_.ForgetKernel(file, page);
    if (page.unwritten > 0) file.pages.Mark(cache_.supply(), number);
  });
}

void Cleaner::Unlist(Batch* batch) {
  while (CachedFile* file = batch->files) {
    batch->files = file->batch_next;
    file->in_batch = false;
  }
}

// ---------------------------------------------------------------------------------------------
// Freeing.

// Up to the first group of a file that fails.
void Cleaner::FreeHandled() {
  Position end = failing_files_ == nullptr ? handled_ : log_.tail();
  while (end < handled_) {
    const uint64_t abandoned = log_.AbandonedUnits(end);
    if (abandoned == 0 && FileOf(log_.At(end)).failing.load() != 0) break;
    end = abandoned > 0 ? end + abandoned : EndOfGroup(end);
  }
  FreeTo(end);
}

void Cleaner::FreeTo(Position end) {
  const Position begin = log_.tail();
  if (end == begin) return;
  CarryCuts(end);
  log_.Free(end, [&] {
    DropCuts(end);
    ForgetEntries(begin, end);
  });
  pool::Note(log_.statistics()->oldest_pending, 0);
  pool::Note(log_.statistics()->wraps, end / log_.log_units() - log_.first_lap());
  pool::Count(log_.statistics()->batches);
}

// The entries are on disk, or once more in the log, and their places not yet free.
void Cleaner::ForgetEntries(Position begin, Position end) {
  for (Position position = begin; position < end;) {
    if (const uint64_t units = log_.AbandonedUnits(position); units > 0) {
      position += units;
      continue;
    }
    const EntryHeader& header = log_.At(position);
    NVCACHE_CHECK(header.position == position);
    position += EntryUnits(header.length);
    ForgetEntry(header);
  }
}

void Cleaner::ForgetEntry(const EntryHeader& header) {
  CachedFile& file = FileOf(header);
  pool::Statistics* statistics = log_.statistics();
  const bool cut = IsCut(file, header.position);
  const bool on_disk = file.failing.load() == 0;
  radix::PageDescriptor* page = file.pages.Find(cache_.supply(), PageOf(header));
  NVCACHE_CHECK(page != nullptr);
  {
    sys::Lock lock(page->lock);
    NVCACHE_CHECK(page->dirty > (on_disk || cut ? page->unwritten : 1));
    --page->dirty;
    page->unwritten = std::min(page->unwritten, page->dirty);
  }
  const uint64_t units = EntryUnits(header.length);
  if (cut) {
    if (!on_disk && file.pending.load() == units) StopFailing(file);
  } else if (on_disk) {
    NVCACHE_CHECK(file.name.load() == Name::kSettled);
    pool::Count(statistics->entries_cleaned);
    pool::Count(statistics->bytes_cleaned, header.length);
  } else {
    file.moves.fetch_add(1);
    moves_.fetch_add(1);
    pool::Count(statistics->entries_moved);
  }
  // The last touch: with nothing pending, the file may go.
  const uint64_t pending = file.pending.fetch_sub(units);
  drained_some_ |= pending == units;
  NVCACHE_CHECK(pending >= units && (on_disk || cut || pending > units));
}

// ---------------------------------------------------------------------------------------------
// Files that fail.

void Cleaner::Failed(CachedFile& file, long error) {
  NVCACHE_CHECK(file.pending.load() > 0);
  const int number = static_cast<int>(-error);
  if (file.failing.exchange(number) == 0) {
    file.failing_next = failing_files_;
    failing_files_ = &file;
    retry_at_ = std::max(retry_at_, sys::Now(CLOCK_MONOTONIC) + kRetryNs);
  }
  file.errors.Set(number);
  failing_.store(number);
  pool::Statistics* statistics = log_.statistics();
  pool::Count(statistics->write_back_errors);
  pool::Note(statistics->last_error, static_cast<uint64_t>(number));
  pool::Note(statistics->last_error_time, sys::Now(CLOCK_REALTIME));
  NoteFailure(file, number);
}

// For `nvcache status`; the file keeps its slot while it fails.
void Cleaner::NoteFailure(const CachedFile& file, int error) {
  pool::Statistics* statistics = log_.statistics();
  const uint64_t key = uint64_t{file.slot.load()} << 32 | file.incarnation;
  uint32_t place = pool::kMaxFailingShown;
  for (uint32_t i = 0; i < pool::kMaxFailingShown; ++i) {
    const uint64_t shown = pool::Peek(statistics->failing_file[i]);
    if (shown == key) {
      place = i;
      break;
    }
    if (shown == 0 && place == pool::kMaxFailingShown) place = i;
  }
  if (place == pool::kMaxFailingShown) return;
  if (pool::Peek(statistics->failing_file[place]) != key) {
    pool::Note(statistics->failing_since[place], sys::Now(CLOCK_REALTIME));
  }
  pool::Note(statistics->failing_error[place], static_cast<uint64_t>(error));
  pool::Note(statistics->failing_file[place], error != 0 ? key : 0);
}

// Everything is on disk that the file had in the log when its pages were written again, so all of
// it below handled_.
void Cleaner::Recovered(CachedFile& file) {
  SettleName(file);
  NoteFailure(file, 0);
  file.failing.store(0);
}

// Nothing is left that the disk could refuse.
void Cleaner::StopFailing(CachedFile& file) {
  CachedFile** link = &failing_files_;
  while (*link != &file) link = &(*link)->failing_next;
  *link = file.failing_next;
  NoteFailure(file, 0);
  file.failing.store(0);
  failing_.store(failing_files_ != nullptr ? failing_files_->failing.load() : 0);
}

// Not so often that it takes more than a share of the time: the disk may be slow to refuse.
void Cleaner::RetryFailing() {
  if (failing_files_ == nullptr) return;
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  if (!retry_wanted_.exchange(false) && begin < retry_at_) return;
  const uint64_t retry = retries_begun_.fetch_add(1) + 1;
  for (CachedFile** link = &failing_files_; *link != nullptr;) {
    CachedFile& file = **link;
    if (const long error = WriteAgain(file); error < 0) {
      Failed(file, error);
      link = &file.failing_next;
    } else {
      *link = file.failing_next;
      Recovered(file);
    }
  }
  failing_.store(failing_files_ != nullptr ? failing_files_->failing.load() : 0);
  retries_done_.store(retry);
  const uint64_t end = sys::Now(CLOCK_MONOTONIC);
  retry_at_ = end + std::max(kRetryNs, kRetryShare * (end - begin));
}

// One page is tried first, and only then the rest. The tree stays as it is: something is pending,
// and only this thread takes descriptors back.
long Cleaner::WriteAgain(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() > 0);
  long error = CheckDescriptor(file);
  bool tried = false;
  file.pages.ForEach(cache_.supply(), [&](uint64_t number, radix::PageDescriptor& page) {
    if (error < 0) return;
    {
      sys::Lock lock(page.lock);
      if (page.unwritten == 0) return;
      error = cache_.WriteBack(file, number, page);
    }
    if (error == 0 && !tried) error = SyncFile(file);
    tried = true;
  });
  return error < 0 ? error : SyncFile(file);
}

// ---------------------------------------------------------------------------------------------
// Passing them.

// The largest group may not find room soon, or does not now.
bool Cleaner::RoomIsShort() const {
  const uint64_t writable = log_.writable_units();
  const uint64_t spare = std::max(writable / kPressureShare, log_.max_group_units());
  return log_.head() - log_.tail() > writable - spare;
}

bool Cleaner::MustMove() {
  const bool wanted = tail_wanted_.exchange(false);
  if (log_.tail() == handled_) return false;
  return wanted || Compacts() || (RoomIsShort() && !overloaded_.load());
}

// The tail passes what files that fail have in the log, by and by: what they have goes to the head.
void Cleaner::MoveFailing() {
  const Position limit = log_.tail() + log_.log_units() / kMoveShare;
  const Position target = std::min(handled_, limit);
  while (log_.tail() < target) {
    const Position end = MoveSome(target);
    NVCACHE_CHECK(end > log_.tail());  // the reserve has room for one group
    FreeTo(end);
  }
}

// Returns how far the tail may go now.
Position Cleaner::MoveSome(Position target) {
  Position position = log_.tail();
  while (position < target) {
    if (const uint64_t units = log_.AbandonedUnits(position); units > 0) {
      position += units;
      continue;
    }
    CachedFile& file = FileOf(log_.At(position));
    if (file.failing.load() != 0 && !MoveGroup(file, position)) break;
    position = EndOfGroup(position);
  }
  return position;
}

// False: no room for all of it. What was appended stays good.
bool Cleaner::MoveGroup(CachedFile& file, Position first) {
  const uint32_t count = log_.At(first).group_count;
  Position position = first;
  for (uint32_t i = 0; i < count; ++i) {
    const EntryHeader& header = log_.At(position);
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), PageOf(header));
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    if (!cache_.Move(file, PageOf(header), *page, position)) return false;
    position += EntryUnits(header.length);
  }
  return true;
}

// Files that fail may write over their own bytes again and again, so they are only overloaded if
// they still have too much when all of it has been to the head. Whoever waits for room is told.
void Cleaner::WeighFailing() {
  uint64_t units = 0;
  for (CachedFile* file = failing_files_; file != nullptr; file = file->failing_next) {
    units += file->pending.load();
  }
  const uint64_t limit = FailingLimit();
  if (units <= limit - limit / 4) {
    compact_to_ = 0;
  } else if (units > limit && compact_to_ == 0) {
    compact_to_ = log_.head();
  }
  overloaded_.store(compact_to_ != 0 && !Compacts());
  if (overloaded_.load() && log_.Hurried()) log_.AnnounceRoom();
}

Position Cleaner::EndOfGroup(Position first) const {
  const uint32_t count = log_.At(first).group_count;
  Position position = first;
  for (uint32_t i = 0; i < count; ++i) position += EntryUnits(log_.At(position).length);
  return position;
}

bool Cleaner::TrimDue() {
  return (cache_.supply().Low() || table_.Low()) &&
         sys::Now(CLOCK_MONOTONIC) - last_trim_ >= kTrimNs;
}

// Takes back what files hold without need. A file whose lock is held just now is left for later.
void Cleaner::Trim() {
  last_trim_ = sys::Now(CLOCK_MONOTONIC);
  {
    sys::Lock lock(list_lock_);
    for (CachedFile* file = list_; file != nullptr; file = file->list_next) {
      if (!file->lock.TryLock()) continue;
      file->pages.Trim(cache_.supply());
      if (file->pending.load() == 0 && SettleCut(*file) == 0) DropSlot(*file);
      file->lock.Unlock();
    }
  }
  log_.AnnounceRoom();
}

CachedFile& Cleaner::FileOf(const EntryHeader& header) {
  CachedFile* file = by_slot_[header.file].load(std::memory_order_acquire);
  NVCACHE_CHECK(file != nullptr && file->incarnation == header.incarnation);
  return *file;
}

}  // namespace nvcache::cleanup
