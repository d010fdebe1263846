// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/cleaner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <utility>

#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;
using dramcache::Erasure;
using nvlog::Kind;
using nvlog::kNoPlace;
using nvlog::Lsn;
using nvlog::Place;
using nvlog::RecordHeader;
using nvlog::RecordUnits;

namespace {

// After a refusal, before the next try; and at least so many times what the last one took.
constexpr uint64_t kRetryNs = 100 * 1000 * 1000;
constexpr uint64_t kRetryShare = 4;
// For a writer that has drawn an LSN and not committed yet.
constexpr uint64_t kCommitNs = 50 * 1000;
// While other processes have all room: between two looks, between two times that it is told, and
// until writers wait no longer.
constexpr uint64_t kStarvedPauseNs = 1000 * 1000;
constexpr uint64_t kTellStarvedNs = 100 * 1000 * 1000;
constexpr uint64_t kStarvedNs = 500 * 1000 * 1000;
// Between two looks for memory to take back, while little is left and nobody waits for it.
constexpr uint64_t kTrimNs = 20 * 1000 * 1000;

// Between two looks, within a batch, whether more of the pool's memory should be mapped.
constexpr uint64_t kPrefaultPages = 64;

// Nobody holds the lock, and what was done under it is to be seen.
bool Passable(sys::Mutex<sys::Rank::kErase>& lock) {
  if (!lock.TryLock()) return false;
  lock.Unlock();
  return true;
}

}  // namespace

bool Cleaner::Start(const Host& host, const Limits& limits, uint32_t files, const Calls& calls) {
  limits_ = limits;
  calls_ = calls;
  starved_.store(false);
  starved_since_ = 0;
  host_ = &host;
  files_ = files;
  pages_per_group_ = 1;
  using Slot = std::atomic<CachedFile*>;
  by_number_ = static_cast<Slot*>(sys::Reserve(files * sizeof(Slot)));
  published_ = static_cast<std::atomic<Lsn>*>(sys::Reserve(files * sizeof(std::atomic<Lsn>)));
  items_ = static_cast<Item*>(sys::Reserve(kMaxItems * sizeof(Item)));
  if (by_number_ == nullptr || published_ == nullptr || items_ == nullptr) return false;
  uncovered_.store(0);
  cover_failed_ = false;
  stopping_.store(false);
  read_ = log_.newest() + 1;
  cleaned_.store(read_);
  failing_files_ = nullptr;
  written_ = 0;
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
  cleaned_.store(~Lsn{0});
  progress_.Signal();
  log_.AnnounceRoom();
}

void Cleaner::LeaveToParent() {
  thread_ = nullptr;
  if (by_number_ != nullptr) sys::UnmapUnlocked(by_number_, files_ * sizeof(*by_number_));
  by_number_ = nullptr;
  if (published_ != nullptr) sys::UnmapUnlocked(published_, files_ * sizeof(*published_));
  published_ = nullptr;
  if (items_ != nullptr) sys::UnmapUnlocked(items_, kMaxItems * sizeof(Item));
  items_ = nullptr;
}

void Cleaner::Add(CachedFile& file) {
  NVCACHE_CHECK(file.tag.number < files_);
  by_number_[file.tag.number].store(&file, std::memory_order_release);
  sys::Lock lock(list_lock_);
  file.list_previous = nullptr;
  file.list_next = list_;
  if (list_ != nullptr) list_->list_previous = &file;
  list_ = &file;
  CountFiles(1);
}

void Cleaner::Remove(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0 && file.failing.load() == 0);
  sys::Lock lock(list_lock_);
  (file.list_previous != nullptr ? file.list_previous->list_next : list_) = file.list_next;
  if (file.list_next != nullptr) file.list_next->list_previous = file.list_previous;
  CountFiles(~uint32_t{0});
}

// For `nvcache status`, like NoteWritten(). One less is 2^32 - 1 more.
void Cleaner::CountFiles(uint32_t change) {
  pool::Seat& seat = log_.pool().seats().At(log_.pool().seat());
  std::atomic_ref(seat.files).fetch_add(change, std::memory_order_relaxed);
}

void Cleaner::NoteWritten() const {
  pool::Seat& seat = log_.pool().seats().At(log_.pool().seat());
  const auto units = static_cast<uint32_t>(written_ / pool::kUnitSize);
  std::atomic_ref(seat.written).store(units, std::memory_order_relaxed);
}

// Waits until done(), or until `*failing` is set after a retry that began after the call. An error
// alone says little: the kernel may have kept it for our descriptor since long ago.
template <typename Done>
long Cleaner::WaitFor(Done done, const std::atomic<int>* failing) {
  sys::CheckWait();
  drains_.fetch_add(1);
  const uint64_t retries = retries_begun_.load();
  long result = 0;
  for (;;) {
    const uint32_t seen = progress_.Value();
    if (done()) break;
    result = failing != nullptr ? -failing->load() : 0;
    if (result != 0 && retries_done_.load() > retries) break;
    if (result != 0) retry_wanted_.store(true);
    result = 0;
    log_.Ring();
    progress_.Wait(seen);
  }
  drains_.fetch_sub(1);
  return result;
}

long Cleaner::Drain(CachedFile& file) {
  return WaitFor([&] { return file.pending.load() == 0; }, &file.failing);
}

void Cleaner::DrainAll() {
  const Lsn newest = log_.newest();
  WaitFor([&] { return cleaned() > newest; }, nullptr);
}

void Cleaner::RequestTrim() {
  trim_wanted_.store(true);
  log_.Ring();
}

void Cleaner::Run() {
  while (!stopping_.load()) {
    AwaitWork();
    if (RunBatch()) {
      starved_since_ = 0;
      starved_.store(false);
    } else {
      log_.Sleep(log_.BellSeen(), ~Lsn{0}, AfterNothing());
    }
    if (std::exchange(drained_some_, false) && calls_.drained != nullptr) calls_.drained();
    if (trim_wanted_.exchange(false) || TrimDue()) Trim();
  }
}

// How long to wait after a round that came no further.
uint64_t Cleaner::AfterNothing() {
  if (failing_files_ != nullptr) return kRetryNs;
  if (!log_.Hurried() || log_.newest_own() >= read_ || !log_.IsShared()) {
    starved_since_ = 0;
    starved_.store(false);
    return kCommitNs;
  }
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (starved_since_ == 0) starved_since_ = now;
  if (now - starved_since_ >= kStarvedNs) {
    starved_.store(true);
    log_.AnnounceRoom();
  }
  if (calls_.starved != nullptr && now - starved_told_ >= kTellStarvedNs) {
    starved_told_ = now;
    calls_.starved();
  }
  return kStarvedPauseNs;
}

// Returns when there is enough to do, somebody is in a hurry, or the oldest record has waited
// enough.
void Cleaner::AwaitWork() {
  pool::Seat& seat = log_.pool().seats().At(log_.pool().seat());
  for (;;) {
    const uint32_t seen = log_.BellSeen();
    const Lsn newest = log_.newest_own();
    pool::Note(log_.statistics()->newest, newest);
    if (stopping_.load() || trim_wanted_.load()) return;
    const uint64_t besides =
        calls_.besides != nullptr ? calls_.besides(log_.Hurried()) : sys::kForever;
    if (published() != 0 && IsCovered()) return;
    // Nobody waits for the memory: between two steps there may be work.
    const bool maps = log_.segments().Prefault();
    if (drains_.load() > 0 || log_.Hurried()) return;
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    uint64_t sleep = besides;
    if (failing_files_ != nullptr) {
      if (now >= retry_at_) return;
      sleep = retry_at_ - now;
    }
    Lsn alarm = read_;
    if (newest < read_) {
      first_seen_ = 0;
      if (failing_files_ == nullptr) pool::Note(seat.oldest_pending, 0);
    } else {
      if (pool::Peek(seat.oldest_pending) == 0) {
        pool::Note(seat.oldest_pending, sys::Now(CLOCK_REALTIME));
      }
      if (first_seen_ == 0) first_seen_ = now;
      const uint64_t enough = std::max<uint64_t>(limits_.batch_min / pages_per_group_, 1);
      const uint64_t waited = now - first_seen_;
      if (newest - read_ + 1 >= enough || waited >= limits_.delay_ns || log_.Short()) return;
      alarm = read_ + enough - 1;
      sleep = std::min(sleep, limits_.delay_ns - waited);
    }
    if (!maps) log_.Sleep(seen, alarm, sleep);
  }
}

// False if it came no further.
bool Cleaner::RunBatch() {
  sys::Lock lock(batch_lock_);
  const Lsn cleaned = cleaned_.load(), read = read_;
  RetryFailing();
  Batch batch;
  log_.Look(&batch.ends);
  ReadBatch(&batch);
  SyncFiles(&batch);
  Unlist(&batch);
  read_ = batch.end;
  if (read_ > read) first_seen_ = 0;
  Advance(batch);
  if (log_.Hurried() || (log_.Empty(batch.ends) && log_.IsShared())) log_.GiveBack();
  WeighFailing();
  log_.AnnounceRoom();
  progress_.Signal();
  return read_ > read || cleaned_.load() > cleaned;
}

// ---------------------------------------------------------------------------------------------
// Writing back.

// Before the disk is waited for, while writers go on; not while somebody waits for the batch.
void Cleaner::MapAhead() {
  while (!stopping_.load() && drains_.load() == 0 && log_.segments().Prefault()) continue;
}

void Cleaner::ReadBatch(Batch* batch) {
  uint64_t prefault_at = 0;
  Lsn last = 0;
  for (;;) {
    const Place place = log_.NextRecord(batch->ends);
    if (place == kNoPlace) {
      batch->end = batch->ends.bound;
      break;
    }
    const RecordHeader& header = log_.At(place);
    NVCACHE_CHECK(header.lsn >= last && header.lsn >= read_);
    // Above the bound there may be others that are not seen.
    batch->end = std::min(header.lsn, batch->ends.bound);
    if (header.lsn != last) {
      if (header.lsn >= batch->ends.bound || batch->pages >= limits_.batch_max) break;
      ++batch->groups;
    }
    if (!AddRecord(header, batch)) break;
    last = header.lsn;
    log_.Pass(place);
    if (batch->pages >= prefault_at) {
      MapAhead();
      prefault_at = batch->pages + kPrefaultPages;
    }
  }
  WriteItems();
  if (batch->groups > 0) pages_per_group_ = batch->pages / batch->groups + 1;
}

// What a file that fails has is left to RetryFailing. False: it is too early for the record.
bool Cleaner::AddRecord(const RecordHeader& header, Batch* batch) {
  if (header.kind == Kind::kFile || IsPublished(header)) return true;
  CachedFile& file = FileOf(header);
  // An erasure is in the log, and the kernel's own is still to come.
  if (header.kind != Kind::kData && !Passable(file.erase_lock)) return false;
  if (file.failing.load() != 0 || !AddFile(file, batch)) return true;
  if (header.kind != Kind::kData) return true;
  const uint64_t pages = nvlog::PagesOf(header.offset, header.length);
  if (item_count_ + pages > kMaxItems) WriteItems();
  ForEachPage(header, [&](uint64_t page) { items_[item_count_++] = {&file, page}; });
  batch->pages += pages;
  return true;
}

// False: its descriptor is of no use.
bool Cleaner::AddFile(CachedFile& file, Batch* batch) {
  if (file.in_batch) return true;
  file.in_batch = true;
  file.batch_synced = false;
  file.batch_next = batch->files;
  batch->files = &file;
  long error = CheckDescriptor(file);
  if (error == 0) error = -file.erase_error.load();
  if (error < 0) Failed(file, error);
  return error == 0;
}

template <typename Function>
void Cleaner::ForEachPage(const RecordHeader& header, Function function) {
  const uint64_t first = header.offset / pool::kPageSize;
  const uint64_t count = nvlog::PagesOf(header.offset, header.length);
  for (uint64_t page = first; page < first + count; ++page) function(page);
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
  if (error < 0) Failed(file, error);
}

// Calls sync(), and adds to what it says an error that somebody else has heard in its place.
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
    Synced(file, error);
    file.batch_synced = true;
  });
}

long Cleaner::SyncFile(CachedFile& file) {
  pool::Count(log_.statistics()->syncs);
  const bool erased = file.erased.exchange(false);
  const long error = Ask(
      file, [&] { return erased ? sys::Fsync(file.backing_fd) : sys::Fdatasync(file.backing_fd); });
  if (error < 0) ForgetKernel(file);
  if (error < 0 && erased) file.erased.store(true);
  return error;
}

// The kernel may have dropped any page of the file that was not on disk yet, and calls it clean;
// the log still has the bytes.
void Cleaner::ForgetKernel(CachedFile& file) {
  file.pages.ForEach(cache_.supply(), [&](uint64_t number, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    page.LostByKernel();
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

// What was read is on disk, or its file fails: that is kept, and the checkpoint passes all of it.
void Cleaner::Advance(const Batch& batch) {
  Lsn end = batch.end;
  if (failing_files_ != nullptr) {
    CompactKept();
    end = std::min(end, KeepFailing(batch));
  }
  if (published() != 0 && !CoverPublished(&end)) return;
  cache_.kept().Settle();
  if (end <= cleaned_.load()) return;
  if (!log_.Empty(batch.ends)) {
    log_.pool().StoreSeatCheckpoint(end);
    log_.Forget(end, batch.ends, [this](Place place) { ForgetRecord(place); });
    pool::Note(log_.pool().seats().At(log_.pool().seat()).oldest_pending, 0);
    pool::Count(log_.statistics()->batches);
    NoteWritten();
  }
  cleaned_.store(end, std::memory_order_release);
}

// It is below the checkpoint, and its place is not yet free.
void Cleaner::ForgetRecord(Place place) {
  const RecordHeader& header = log_.At(place);
  if (IsPublished(header)) return;
  CachedFile& file = FileOf(header);
  const bool fails = file.failing.load() != 0;
  switch (header.kind) {
    case Kind::kData:
      ForgetPages(file, place);
      if (fails) break;
      pool::Count(log_.statistics()->entries_cleaned);
      pool::Count(log_.statistics()->bytes_cleaned, header.length);
      written_ += header.length;
      break;
    case Kind::kFile:
      break;
    default:
      if (!fails) file.erasures.Forget(header.lsn);
  }
  // The last touch: with nothing pending, the file may go.
  const uint64_t units = RecordUnits(header);
  if (fails && file.pending.load() == units) StopFailing(file);
  const uint64_t pending = file.pending.fetch_sub(units);
  NVCACHE_CHECK(pending >= units);
  drained_some_ |= pending == units;
}

void Cleaner::ForgetPages(CachedFile& file, Place place) {
  ForEachPage(log_.At(place), [&](uint64_t number) {
    if (cache_.Moved(place, number)) return;
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), number);
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    page->Cleaned();
  });
}

// ---------------------------------------------------------------------------------------------
// Files that fail.

void Cleaner::Failed(CachedFile& file, long error) {
  NVCACHE_CHECK(file.pending.load() > 0);
  const int number = static_cast<int>(-error);
  const bool begins = file.failing.exchange(number) == 0;
  if (begins) {
    file.failing_next = failing_files_;
    failing_files_ = &file;
    retry_at_ = std::max(retry_at_, sys::Now(CLOCK_MONOTONIC) + kRetryNs);
  }
  // The program may have closed our descriptor a moment ago, unseen: the next try opens it anew.
  if (!begins || number != EBADF) file.errors.Set(number);
  failing_.store(number);
  pool::Statistics* statistics = log_.statistics();
  pool::Count(statistics->write_back_errors);
  pool::Note(statistics->last_error, static_cast<uint64_t>(number));
  pool::Note(statistics->last_error_time, sys::Now(CLOCK_REALTIME));
  NoteFailure(file, number);
}

// For `nvcache status`.
void Cleaner::NoteFailure(const CachedFile& file, int error) {
  pool::Statistics* statistics = log_.statistics();
  const uint64_t key = uint64_t{log_.pool().seat()} << 32 | (uint64_t{file.tag.number} + 1);
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
  std::atomic_ref shown(statistics->failing_file[place]);
  uint64_t none = 0;
  // Another process may have taken the place: then it is shown next time.
  const bool is_new = shown.load() != key;
  if (is_new && (error == 0 || !shown.compare_exchange_strong(none, key))) return;
  if (is_new) pool::Note(statistics->failing_since[place], sys::Now(CLOCK_REALTIME));
  pool::Note(statistics->failing_error[place], static_cast<uint64_t>(error));
  if (error == 0) pool::Note(statistics->failing_file[place], 0);
}

// Everything is on disk that the file has in the log, as far as it was read.
void Cleaner::Recovered(CachedFile& file) {
  NoteFailure(file, 0);
  file.failing.store(0);
  cache_.kept().ForEachOf(file.tag.number, [&](Place place) {
    if (!IsPublished(log_.At(place))) VoidRecord(file, place);
  });
  cache_.kept().Settle();
}

void Cleaner::VoidRecord(CachedFile& file, Place place) {
  const RecordHeader& header = log_.At(place);
  if (header.kind != Kind::kData) {
    file.erasures.Forget(header.lsn);
    cache_.VoidRecord(file, place);
  } else {
    const uint64_t number = header.offset / pool::kPageSize;
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), number);
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    cache_.Void(file, number, *page, place);
  }
  drained_some_ |= file.pending.load() == 0;
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
  if (error == 0 && file.erase_error.load() != 0) error = EraseAgain(file);
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

// The kernel did not make all of the erasures that are in the log: it makes all of them now, and
// loses newer bytes by that, which are written again, as are those that somebody writes meanwhile.
long Cleaner::EraseAgain(CachedFile& file) {
  if (!file.erase_lock.TryLock()) return -file.erase_error.load();
  long error = 0;
  const uint64_t size = file.size.load();
  file.erasures.ForEach([&](const Erasure& erasure) {
    if (error < 0 || erasure.end == Erasure::kToTheEnd) return;
    error = sys::Fallocate(file.backing_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(erasure.begin),
                           static_cast<off_t>(erasure.end - erasure.begin));
  });
  uint64_t least = size;
  file.erasures.ForEach([&](const Erasure& erasure) {
    if (erasure.end == Erasure::kToTheEnd) least = std::min(least, erasure.begin);
  });
  if (error == 0) error = sys::Ftruncate(file.backing_fd, static_cast<off_t>(least));
  if (error == 0) error = sys::Ftruncate(file.backing_fd, static_cast<off_t>(size));
  ForgetKernel(file);
  if (error == 0) {
    file.erased.store(true);
    file.erase_error.store(0);
  }
  file.erase_lock.Unlock();
  return error;
}

// ---------------------------------------------------------------------------------------------
// Keeping.

// Copies to kept segments what files that fail have in the log, as far as it was read. Returns up
// to where that is done: segments may be missing.
Lsn Cleaner::KeepFailing(const Batch& batch) {
  Lsn end = batch.end;
  log_.ForEachRead([&](Place place) {
    const RecordHeader& header = log_.At(place);
    if (header.lsn >= end) return false;
    if (header.kind == Kind::kFile || IsPublished(header)) return true;
    CachedFile& file = FileOf(header);
    if (file.failing.load() == 0) return true;
    if (KeepRecord(file, place)) return true;
    end = header.lsn;
    return false;
  });
  return end;
}

bool Cleaner::KeepRecord(CachedFile& file, Place place) {
  const RecordHeader& header = log_.At(place);
  const Place file_record = FileRecordBefore(place);
  if (header.kind != Kind::kData) return cache_.KeepMark(file, place, file_record);
  bool done = true;
  ForEachPage(header, [&](uint64_t number) {
    if (!done || (!cache_.kept().Holds(place) && cache_.Moved(place, number))) return;
    radix::PageDescriptor* page = file.pages.Find(cache_.supply(), number);
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    done = cache_.Keep(file, number, *page, place, file_record);
  });
  return done;
}

// Kept segments of which little is left would fill the pool.
void Cleaner::CompactKept() {
  const auto copy = [&](Place place) {
    if (IsPublished(log_.At(place))) {
      if (KeepPublishedRecord(place)) cache_.kept().Void(place);
      return;
    }
    CachedFile& file = FileOf(log_.At(place));
    if (KeepRecord(file, place)) cache_.VoidRecord(file, place);
  };
  nvlog::Kept& kept = cache_.kept();
  for (uint32_t before = ~0u; kept.segments() < before;) {
    before = kept.segments();
    if (!kept.Compact(copy)) break;
    kept.Settle();
  }
}

// Before the checkpoint passes what was published. In no hurry: another process may be about to
// sync. False: it has to wait.
bool Cleaner::CoverPublished(Lsn* end) {
  const bool urgent = drains_.load() > 0 || log_.Hurried() || log_.Short() || cover_failed_;
  if (!IsCovered() && !urgent) return false;
  if (!IsCovered() && !cover_failed_) {
    pool::Count(log_.statistics()->syncs);
    cover_failed_ = calls_.cover() < 0;
  }
  if (IsCovered() || !cover_failed_) {
    uncovered_.store(0);
    return true;
  }
  *end = std::min(*end, KeepPublished(*end));
  return true;
}

// The disk has lost something: what was published stays for recovery, and nobody else waits for it.
// As KeepFailing.
Lsn Cleaner::KeepPublished(Lsn end) {
  log_.ForEachRead([&](Place place) {
    const RecordHeader& header = log_.At(place);
    if (header.lsn >= end) return false;
    if (header.kind == Kind::kFile || !IsPublished(header) || KeepPublishedRecord(place)) {
      return true;
    }
    end = header.lsn;
    return false;
  });
  return end;
}

// Page by page. Killed in between, the record itself counts as well, and says the same.
bool Cleaner::KeepPublishedRecord(Place place) {
  const RecordHeader header = log_.At(place);
  const Place file_record = FileRecordBefore(place);
  Lsn declared = 0;
  const auto append = [&](uint64_t offset, uint64_t length, const uint8_t* bytes) {
    const nvlog::Kept::Copy copy = {header.kind, header.lsn, header.file, offset,
                                    length,      bytes,      kNoPlace};
    return cache_.kept().Append(copy, &declared, file_record, 0) != kNoPlace;
  };
  if (header.kind != Kind::kData) return append(header.offset, header.length, nullptr);
  bool done = true;
  ForEachPage(header, [&](uint64_t page) {
    const nvlog::Log::Piece piece = log_.PieceAt(place, page);
    const uint64_t offset = page * pool::kPageSize + piece.begin;
    done = done && append(offset, piece.length, piece.bytes);
  });
  return done;
}

// The newest file record of the same number in the segment.
Place Cleaner::FileRecordBefore(Place place) const {
  const uint64_t units = log_.segments().units();
  Place found = kNoPlace;
  for (Place at = place / units * units + nvlog::kFirstUnit; at < place;) {
    const RecordHeader& header = log_.At(at);
    if (header.kind == Kind::kFile && header.file == log_.At(place).file) found = at;
    at += RecordUnits(header);
  }
  NVCACHE_CHECK(found != kNoPlace);
  return found;
}

// Whoever waits for room is told.
void Cleaner::WeighFailing() {
  const uint64_t units = cache_.kept().units(), limit = FailingLimit();
  if (units <= limit - limit / 4) {
    overloaded_.store(false);
  } else if (units > limit) {
    overloaded_.store(true);
  }
}

bool Cleaner::TrimDue() {
  return cache_.supply().Low() && sys::Now(CLOCK_MONOTONIC) - last_trim_ >= kTrimNs;
}

// Takes back what files hold without need. A file whose lock is held just now is left for later.
void Cleaner::Trim() {
  last_trim_ = sys::Now(CLOCK_MONOTONIC);
  {
    sys::Lock lock(list_lock_);
    for (CachedFile* file = list_; file != nullptr; file = file->list_next) {
      if (!file->lock.TryLock()) continue;
      file->pages.Trim(cache_.supply());
      file->lock.Unlock();
    }
  }
  log_.AnnounceRoom();
}

CachedFile& Cleaner::FileOf(const RecordHeader& header) {
  NVCACHE_CHECK(header.file < files_);
  CachedFile* file = by_number_[header.file].load(std::memory_order_acquire);
  NVCACHE_CHECK(file != nullptr && file->tag.number == header.file);
  return *file;
}

}  // namespace nvcache::cleanup
