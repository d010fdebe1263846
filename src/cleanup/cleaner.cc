// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/cleaner.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <utility>

#include "src/nvlog/log_reading.h"
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

// For a writer that has drawn an LSN and not committed yet.
constexpr uint64_t kCommitNs = 50 * 1000;
// While other processes have all room: between two looks, between two times that it is told, and
// until writers wait no longer.
constexpr uint64_t kStarvedPauseNs = 1000 * 1000;
constexpr uint64_t kTellStarvedNs = 100 * 1000 * 1000;
constexpr uint64_t kStarvedNs = 500 * 1000 * 1000;
// Between two looks for memory to take back, while little is left and nobody waits for it.
constexpr uint64_t kTrimNs = 20 * 1000 * 1000;

// Pages, about, that a batch brings to the kernel at a time. Then others may write back, and more
// of the pool's memory is mapped.
constexpr uint64_t kPartPages = 64;

// Nobody holds the lock, and all that was done under it is to be seen.
bool Passable(sys::Mutex<sys::Rank::kErase>& lock) {
  if (!lock.TryLock()) return false;
  lock.Unlock();
  return true;
}

}  // namespace

struct Cleaner::Batch {
  nvlog::Log::Ends ends;
  nvlog::Lsn end = 0;   // every record below it was read
  nvlog::Lsn last = 0;  // the newest that was read
  uint64_t pages = 0;
  uint64_t groups = 0;
  dramcache::CachedFile* files = nullptr;
};

bool Cleaner::Start(const Host& host, const Limits& limits, const Calls& calls) {
  limits_ = limits;
  calls_ = calls;
  starved_.store(false);
  starved_since_ = 0;
  host_ = &host;
  pages_per_group_ = 1;
  numbers_.store(0);
  uncovered_.store(0);
  cover_failed_ = false;
  stopping_.store(false);
  read_ = log_.newest() + 1;
  cleaned_.store(read_);
  writer_.Begin();
  failing_.Clear();
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
  failing_.Abandon();
  overloaded_.store(true);
  cleaned_.store(~Lsn{0});
  progress_.Signal();
  log_.AnnounceRoom();
}

void Cleaner::Add(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0);
  file.newest.store(0);
  file.written_back.store(0);
  // It may have been handed over by way of another pool, which had higher LSNs than this one.
  file.handed_over.store(log_.newest());
  const uint32_t number = file.tag.number;
  if (number >= numbers_.load()) numbers_.store(number + 1, std::memory_order_release);
  CountFiles(1);
}

void Cleaner::Remove(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() == 0 && file.failing.load() == 0);
  CountFiles(~uint32_t{0});
}

// One less is 2^32 - 1 more. The checkpointer looks more often while there are any.
void Cleaner::CountFiles(uint32_t change) {
  const pool::Seats& seats = log_.pool().seats();
  const uint32_t before = std::atomic_ref(seats.At(log_.pool().seat()).files).fetch_add(change);
  if (before == 0) seats.WakeCheckpointer();
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
  const uint64_t retries = failing_.retries_begun();
  long result = 0;
  for (;;) {
    const uint32_t seen = progress_.Value();
    if (done()) break;
    result = failing != nullptr ? -failing->load() : 0;
    if (result != 0 && failing_.retries_done() > retries) break;
    if (result != 0) failing_.WantRetry();
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
  if (failing_.any()) return FailingFiles::kRetryNs;
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
    if (handed_over() != 0 && IsCovered()) return;
    // Nobody waits for the memory: between two steps there may be work.
    const bool maps = log_.segments().Prefault();
    if (drains_.load() > 0 || log_.Hurried()) return;
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    uint64_t sleep = besides;
    if (failing_.any()) {
      if (now >= failing_.retry_at()) return;
      sleep = failing_.retry_at() - now;
    }
    Lsn alarm = read_;
    if (newest < read_) {
      first_seen_ = 0;
      if (!failing_.any()) pool::Note(seat.oldest_pending, 0);
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
  log_.Look(&batch->ends);
  while (ReadPart(batch)) MapAhead();
  if (batch->groups > 0) pages_per_group_ = batch->pages / batch->groups + 1;
}

// False: that was the last part.
bool Cleaner::ReadPart(Batch* batch) {
  sys::Lock lock(writer_.lock());
  const uint64_t enough = batch->pages + kPartPages;
  bool more = false;
  for (;;) {
    const Place place = log_.NextRecord(batch->ends);
    if (place == kNoPlace) {
      batch->end = batch->ends.bound;
      break;
    }
    const RecordHeader& header = log_.At(place);
    NVCACHE_CHECK(header.lsn >= batch->last && header.lsn >= read_);
    // Above the bound there may be others that are not seen.
    batch->end = std::min(header.lsn, batch->ends.bound);
    if (header.lsn != batch->last) {
      if (header.lsn >= batch->ends.bound || batch->pages >= limits_.batch_max) break;
      more = batch->pages >= enough || !writer_.HasRoomForGroup();
      if (more) break;
      ++batch->groups;
    }
    if (!AddRecord(place, batch)) break;
    batch->last = header.lsn;
    log_.Pass(place);
  }
  writer_.Write();
  return more;
}

// Records of a file that fails are left to RetryFailing. False: it is too early for the record.
bool Cleaner::AddRecord(Place place, Batch* batch) {
  const RecordHeader& header = log_.At(place);
  CachedFile& file = calls_.file_of(header.file);
  if (header.kind == Kind::kFile || file.IsHandedOver(header.lsn)) return true;
  // An erasure is in the log, and the kernel's own is still to come.
  if (header.kind != Kind::kData && !Passable(file.erase_lock)) return false;
  if (file.failing.load() != 0 || !AddFile(file, batch)) return true;
  if (header.kind != Kind::kData) {
    writer_.Write();
    writer_.NoteWritten(header.lsn);
    return true;
  }
  batch->pages += nvlog::PagesOf(header.offset, header.length);
  writer_.Add(file, place);
  return true;
}

// False: its descriptor is of no use.
bool Cleaner::AddFile(CachedFile& file, Batch* batch) {
  if (file.in_batch) return true;
  file.in_batch = true;
  file.batch_synced = false;
  file.batch_next = batch->files;
  batch->files = &file;
  const long error = writer_.Check(file);
  if (error < 0) writer_.Fail(file, error);
  return error == 0;
}

void Cleaner::SyncFiles(Batch* batch) {
  for (CachedFile* file = batch->files; file != nullptr; file = file->batch_next) {
    sys::Lock lock(writer_.lock());
    if (calls_.written != nullptr && file->failing.load() == 0) calls_.written(*file);
  }
  const auto tell = [this](CachedFile& file, long error) {
    if (error >= 0) return;
    sys::Lock lock(writer_.lock());
    syncer_.ForgetKernel(file);
    writer_.Fail(file, error);
  };
  syncer_.SyncTogether(batch->files, limits_.together, tell);
  for (CachedFile* file = batch->files; file != nullptr; file = file->batch_next) {
    if (file->failing.load() != 0 || file->batch_synced) continue;
    MapAhead();
    tell(*file, syncer_.SyncFile(*file));
  }
}

void Cleaner::Unlist(Batch* batch) {
  while (CachedFile* file = batch->files) {
    batch->files = file->batch_next;
    file->in_batch = false;
  }
}

// ---------------------------------------------------------------------------------------------
// Freeing.

// Each record read is on disk, or its file fails: that is kept, and the checkpoint passes all.
void Cleaner::Advance(const Batch& batch) {
  Lsn end = batch.end;
  if (failing_.any()) {
    kept_writer_.Compact();
    end = std::min(end, kept_writer_.KeepFailing(end));
  }
  if (handed_over() != 0 && !CoverHandedOver(&end)) return;
  cache_.kept().Settle();
  if (end <= cleaned_.load()) return;
  if (!log_.Empty(batch.ends)) {
    log_.pool().StoreSeatCheckpoint(end);
    log_.pool().AwaitHeader();
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
  CachedFile& file = calls_.file_of(header.file);
  if (file.IsHandedOver(header.lsn)) return;
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
  if (fails && file.pending.load() == units) failing_.Remove(file);
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

// Everything is on disk that the file has in the log, as far as it was read.
void Cleaner::Recovered(CachedFile& file) {
  {
    sys::Lock lock(writer_.lock());
    writer_.Recover(file);
  }
  cache_.kept().ForEachOf(file.tag.number, [&](Place place) {
    if (!file.IsHandedOver(log_.At(place).lsn)) VoidRecord(file, place);
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

// Some files are tried again, and some of them may be through.
void Cleaner::RetryFailing() {
  failing_.Retry([this](CachedFile& file) { return WriteAgain(file); },
                 [this](CachedFile& file) { Recovered(file); });
}

// One page is tried first, and only then the rest. The tree stays as it is: something is pending,
// and only this thread takes descriptors back. What the kernel has is not known, so there is no
// order; what is written meanwhile comes later, in its own.
long Cleaner::WriteAgain(CachedFile& file) {
  NVCACHE_CHECK(file.pending.load() > 0);
  long error = writer_.CheckDescriptor(file);
  if (error == 0 && file.erase_error.load() != 0) error = EraseAgain(file);
  const Lsn end = log_.newest();
  bool tried = false;
  file.pages.ForEach(cache_.supply(), [&](uint64_t number, radix::PageDescriptor& page) {
    if (error < 0) return;
    {
      sys::Lock lock(page.lock);
      if (page.unwritten == 0) return;
      error = cache_.WriteBackPage(file, number, page, end);
    }
    if (error == 0 && !tried) error = SyncAgain(file);
    tried = true;
  });
  if (error == 0) error = SyncAgain(file);
  if (error == 0) file.written_back.store(end);
  return error;
}

long Cleaner::SyncAgain(CachedFile& file) {
  const long error = syncer_.SyncFile(file);
  if (error < 0) syncer_.ForgetKernel(file);
  return error;
}

// The kernel did not make all of the erasures that are in the log: it makes all of them now, and
// loses newer bytes by that, which are written again, as are those that somebody writes meanwhile.
long Cleaner::EraseAgain(CachedFile& file) {
  if (!file.erase_lock.TryLock()) return -file.erase_error.load();
  const dramcache::KernelChange change(file);
  long error = 0;
  const uint64_t size = file.size.load();
  file.erasures.ForEach([&](const Erasure& erasure) {
    if (error < 0 || erasure.end == Erasure::kToTheEnd) return;
    error = sys::Fallocate(file.backing_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(erasure.begin),
                           static_cast<off_t>(erasure.end - erasure.begin));
  });
  writer_.Hold();
  uint64_t least = size;
  file.erasures.ForEach([&](const Erasure& erasure) {
    if (erasure.end == Erasure::kToTheEnd) least = std::min(least, erasure.begin);
  });
  if (error == 0) error = sys::Ftruncate(file.backing_fd, static_cast<off_t>(least));
  if (error == 0) error = sys::Ftruncate(file.backing_fd, static_cast<off_t>(size));
  syncer_.ForgetKernel(file);
  if (error == 0) {
    file.erased.store(true);
    file.erase_error.store(0);
  }
  file.erase_lock.Unlock();
  return error;
}

// Before the checkpoint passes what was handed over. In no hurry: another process may be about to
// sync. False: it has to wait.
bool Cleaner::CoverHandedOver(Lsn* end) {
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
  *end = std::min(*end, kept_writer_.KeepHandedOver(*end));
  return true;
}

// Threads that wait for room are told.
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

void Cleaner::Trim() {
  last_trim_ = sys::Now(CLOCK_MONOTONIC);
  for (uint32_t number = 0; number < numbers_.load(std::memory_order_acquire); ++number) {
    CachedFile& file = calls_.file_of(number);
    // A file whose lock is held just now is left for later.
    if (file.pages.empty() || !file.lock.TryLock()) continue;
    file.pages.Trim(cache_.supply());
    file.lock.Unlock();
  }
  log_.AnnounceRoom();
}

}  // namespace nvcache::cleanup
