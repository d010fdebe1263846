// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/cleaner.h"

#include <algorithm>

#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;
using dramcache::Name;
using nvlog::EntryHeader;
using nvlog::EntryUnits;
using nvlog::Position;

namespace {

// The log is never left this full for the sake of a larger batch.
constexpr uint64_t kPressureShare = 4;  // 1/4 of it
// After a refusal, before the next try.
constexpr uint64_t kRetryNs = 100 * 1000 * 1000;
// For a writer that has taken the place at the tail and not committed yet.
constexpr uint64_t kCommitNs = 50 * 1000;
// Between two looks for memory to take back, while little is left and nobody waits for it.
constexpr uint64_t kTrimNs = 20 * 1000 * 1000;
// The pool's memory is mapped this far ahead of the head, so that writers do not take page faults.
constexpr uint64_t kPrefaultUnits = (32u << 20) / pool::kUnitSize;

uint64_t PageOf(const EntryHeader& header) { return header.offset / pool::kPageSize; }

}  // namespace

bool Cleaner::Start(const Host& host, const Limits& limits, Check check) {
  limits_ = limits;
  check_ = check;
  host_ = &host;
  units_per_entry_ = nvlog::kMaxEntryUnits;
  using Slot = std::atomic<CachedFile*>;
  by_slot_ = static_cast<Slot*>(sys::Reserve(table_.capacity() * sizeof(Slot)));
  if (by_slot_ == nullptr) return false;
  stopping_.store(false);
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

void Cleaner::LeaveToParent() {
  thread_ = nullptr;
  if (by_slot_ != nullptr) sys::Munmap(by_slot_, table_.capacity() * sizeof(*by_slot_));
  by_slot_ = nullptr;
}

void Cleaner::Add(CachedFile& file) {
  sys::Lock lock(list_lock_);
  file.list_previous = nullptr;
  file.list_next = list_;
  if (list_ != nullptr) list_->list_previous = &file;
  list_ = &file;
}

void Cleaner::Remove(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0);
  sys::Lock lock(list_lock_);
  (file.list_previous != nullptr ? file.list_previous->list_next : list_) = file.list_next;
  if (file.list_next != nullptr) file.list_next->list_previous = file.list_previous;
  DropSlot(file);
}

void Cleaner::DropSlot(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0);
  const uint32_t slot = file.slot.exchange(sys::kNone);
  if (slot != sys::kNone) table_.Free(slot);
}

long Cleaner::EnsureSlot(CachedFile& file) {
  if (file.slot.load(std::memory_order_acquire) != sys::kNone) return 0;
  sys::Lock lock(slot_lock_);
  if (file.slot.load(std::memory_order_relaxed) != sys::kNone) return 0;
  if (long error = CheckDescriptor(file); error < 0) return error;
  if (file.name.load() == Name::kChanged) {
    if (long error = sys::Fsync(file.backing_fd); error < 0) return error;
    file.name.store(Name::kSettled);
  }
  uint32_t slot;
  const bool is_new = file.name.load() == Name::kNew;
  if (long error = table_.Allocate(file.backing_fd, is_new, &slot, &file.incarnation); error < 0) {
    return error;
  }
  by_slot_[slot].store(&file, std::memory_order_release);
  file.slot.store(slot, std::memory_order_release);
  return 0;
}

void Cleaner::AwaitSync(CachedFile& file) {
  DropSlot(file);
  file.name.store(Name::kChanged);
}

void Cleaner::SettleName(CachedFile& file) {
  if (file.name.load() == Name::kSettled) return;
  sys::Lock lock(slot_lock_);
  file.name.store(Name::kSettled);
  if (const uint32_t slot = file.slot.load(); slot != sys::kNone) table_.SettleName(slot);
}

// Waits until done(), or until a whole round that began after the call has left `failing` set.
template <typename Done>
long Cleaner::WaitFor(Done done, const std::atomic<int>& failing) {
  drains_.fetch_add(1);
  const uint64_t rounds = rounds_.load();
  long result = 0;
  for (;;) {
    const uint32_t seen = progress_.Value();
    if (done()) break;
    result = -failing.load();
    if (result != 0 && rounds_.load() >= rounds + 2) break;
    result = 0;
    log_.Ring();
    progress_.Wait(seen);
  }
  drains_.fetch_sub(1);
  return result;
}

long Cleaner::Drain(CachedFile& file) {
  const Position target = log_.head();
  return WaitFor([&] { return file.pending.load() == 0 || log_.tail() >= target; }, file.failing);
}

long Cleaner::DrainAll() {
  const Position target = log_.head();
  return WaitFor([&] { return log_.tail() >= target; }, failing_);
}

void Cleaner::RequestTrim() {
  trim_wanted_.store(true);
  log_.Ring();
}

void Cleaner::Run() {
  while (!stopping_.load()) {
    AwaitWork();
    if (log_.head() != log_.tail() && !RunBatch()) {
      const uint64_t pause = failing_.load() != 0 ? kRetryNs : kCommitNs;
      log_.Sleep(log_.BellSeen(), nvlog::kNoPosition, pause);
    }
    if (trim_wanted_.exchange(false) || TrimDue()) Trim();
  }
}

// Returns when there is enough to do, somebody is in a hurry, or the oldest entry has waited
// enough.
void Cleaner::AwaitWork() {
  for (;;) {
    const uint32_t seen = log_.BellSeen();
    const Position tail = log_.tail();
    const Position head = log_.head();
    pool::Note(log_.statistics()->head, head);
    log_.Prefault(head + kPrefaultUnits);
    if (stopping_.load() || trim_wanted_.load()) return;
    if (head == tail) {
      first_seen_ = 0;
      pool::Note(log_.statistics()->oldest_pending, 0);
      log_.Sleep(seen, tail + 1, sys::kForever);
      continue;
    }
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    if (first_seen_ == 0) {
      first_seen_ = now;
      pool::Note(log_.statistics()->oldest_pending, sys::Now(CLOCK_REALTIME));
    }
    const uint64_t enough =
        std::min(limits_.batch_min * units_per_entry_, log_.log_units() / kPressureShare);
    const uint64_t waited = now - first_seen_;
    if (drains_.load() > 0 || log_.Hurried()) return;
    if (head - tail >= enough || waited >= limits_.delay_ns) return;
    log_.Sleep(seen, tail + enough, limits_.delay_ns - waited);
  }
}

// False if nothing could be freed.
bool Cleaner::RunBatch() {
  const Position begin = log_.tail();
  Batch batch = {begin};
  failing_.store(0);
  WriteBatch(&batch);
  SyncFiles(&batch);
  Unlist(&batch);
  if (batch.end > begin) {
    log_.Free(batch.end, [&] { ForgetEntries(begin, batch.end); });
    first_seen_ = 0;
    pool::Count(log_.statistics()->batches);
  }
  rounds_.fetch_add(1);
  progress_.Signal();
  return batch.end > begin;
}

void Cleaner::WriteBatch(Batch* batch) {
  const Position begin = batch->end;
  const Position head = log_.head();
  while (batch->end < head && batch->entries < limits_.batch_max) {
    if (const uint64_t units = log_.AbandonedUnits(batch->end); units > 0) {
      batch->end += units;
      continue;
    }
    if (!log_.IsCommitted(batch->end)) break;
    Position end;
    if (!WriteGroup(batch->end, batch, &end)) break;
    batch->end = end;
  }
  if (batch->entries > 0) units_per_entry_ = (batch->end - begin) / batch->entries + 1;
}

// False if the file system refused; pages of the group that were written by then stay pending.
bool Cleaner::WriteGroup(Position first, Batch* batch, Position* end) {
  const uint32_t count = log_.At(first).group_count;
  CachedFile& file = FileOf(log_.At(first));
  if (!file.in_batch) {
    if (const long error = CheckDescriptor(file); error < 0) {
      Failed(file, error);
      return false;
    }
    file.in_batch = true;
    file.batch_first = first;
    file.batch_next = batch->files;
    batch->files = &file;
  }
  Position position = first;
  for (uint32_t i = 0; i < count; ++i) {
    const EntryHeader& header = log_.At(position);
    NVCACHE_CHECK(header.position == position && header.group_index == i);
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), PageOf(header));
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    if (const long error = cache_.WriteBack(file, PageOf(header), *page); error < 0) {
      Failed(file, error);
      return false;
    }
    position += EntryUnits(header.length);
  }
  batch->entries += count;
  *end = position;
  return true;
}

void Cleaner::SyncFiles(Batch* batch) {
  for (CachedFile* file = batch->files; file != nullptr; file = file->batch_next) {
    if (file->batch_first >= batch->end) continue;
    pool::Count(log_.statistics()->syncs);
    const long error = sys::Fdatasync(file->backing_fd);
    if (error == 0) {
      file->failing.store(0);
      SettleName(*file);
      continue;
    }
    // The kernel may have dropped any page of the file that was not on disk yet, and calls it
    // clean; the log still has the bytes.
    file->pages.ForEach(cache_.supply(), [&](uint64_t number, radix::PageDescriptor& page) {
      sys::Lock lock(page.lock);
      page.unwritten = page.dirty;
      if (page.dirty > 0) file->pages.Mark(cache_.supply(), number);
    });
    Failed(*file, error);
    batch->end = std::min(batch->end, file->batch_first);
  }
}

// The entries are on disk and their places not yet free.
void Cleaner::ForgetEntries(Position begin, Position end) {
  pool::Statistics* statistics = log_.statistics();
  uint64_t entries = 0, bytes = 0;
  for (Position position = begin; position < end;) {
    if (const uint64_t units = log_.AbandonedUnits(position); units > 0) {
      position += units;
      continue;
    }
    const EntryHeader& header = log_.At(position);
    NVCACHE_CHECK(header.position == position);
    CachedFile& file = FileOf(header);
    NVCACHE_CHECK(file.name.load() == Name::kSettled);
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), PageOf(header));
    NVCACHE_CHECK(page != nullptr);
    {
      sys::Lock lock(page->lock);
      NVCACHE_CHECK(page->dirty > page->unwritten);
      --page->dirty;
    }
    ++entries;
    bytes += header.length;
    position += EntryUnits(header.length);
    // The last touch: with nothing pending, the file may go.
    const uint64_t pending = file.pending.fetch_sub(1);
    NVCACHE_CHECK(pending > 0);
  }
  pool::Count(statistics->entries_cleaned, entries);
  pool::Count(statistics->bytes_cleaned, bytes);
  pool::Note(statistics->wraps, end / log_.log_units() - log_.first_lap());
}

void Cleaner::Unlist(Batch* batch) {
  while (CachedFile* file = batch->files) {
    batch->files = file->batch_next;
    file->in_batch = false;
  }
}

void Cleaner::Failed(CachedFile& file, long error) {
  const int number = static_cast<int>(-error);
  file.failing.store(number);
  file.unreported.store(number);
  failing_.store(number);
  pool::Statistics* statistics = log_.statistics();
  pool::Count(statistics->write_back_errors);
  pool::Note(statistics->last_error, static_cast<uint64_t>(number));
  pool::Note(statistics->last_error_time, sys::Now(CLOCK_REALTIME));
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
      if (file->pending.load() == 0) DropSlot(*file);
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
