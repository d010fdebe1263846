// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpoint of write-through (docs/write-through.md): who moves it, and when.
#include <algorithm>
#include <atomic>

#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/access.h"
#include "src/vfs/engine.h"

namespace nvcache::vfs {

namespace {

// What write-through files have in the log is on the disk so long after it was appended, about.
constexpr uint64_t kDelayNs = 5ull * 1000 * 1000 * 1000;
// The same where segments are short, and nobody waits for one yet.
constexpr uint64_t kShortDelayNs = 100 * 1000 * 1000;
// Another process was at it.
constexpr uint64_t kAgainNs = 50 * 1000 * 1000;
// For that one, where it cannot be left to it; it syncs a file system.
constexpr uint64_t kPatienceNs = 20ull * 1000 * 1000 * 1000;
constexpr uint64_t kPollNs = 1000 * 1000;
// When this part of the seats is left, the checkpoint is asked for.
constexpr uint32_t kLeftSeats = 4;
// Whoever should move it, and has not for so long, is taken for stopped.
constexpr uint64_t kLateNs = 10ull * 1000 * 1000 * 1000;
// For one that has it in hand to be stored.
constexpr uint64_t kStorePatienceNs = 100 * 1000 * 1000;
// For the checkpointer, to have a descriptor.
constexpr uint64_t kAnswerNs = 5 * 1000 * 1000;

void Pause(uint64_t ns) {
  sys::Word word{0};
  sys::FutexWait(&word, 0, ns);
}

// The directory of the file that the descriptor is open to, or that one itself: it keeps nobody
// from executing or removing the file. A negated errno.
long OpenFolderOf(int fd) {
  sys::Text<32> link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* path = scratch.get();
  long n = sys::Readlinkat(AT_FDCWD, link.c_str(), path, pool::kMaxPath - 1);
  if (n <= 0 || path[0] != '/') return n < 0 ? n : -ENOENT;
  struct stat st;
  const bool is_folder = sys::Fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
  while (!is_folder && path[n - 1] != '/') --n;
  path[n] = '\0';
  const long folder = sys::Openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return folder < 0 ? folder : sys::MoveLow(static_cast<int>(folder), sys::kThroughNumber);
}

}  // namespace

bool Engine::OpenThrough(int fd, const struct stat& st) {
  NVCACHE_CHECK(table_lock.IsLocked() && attached());
  const pool::Seats& seats = pool_.seats();
  if (SharesDevice(st.st_dev)) {
    if (IsToBeBusy()) Employ();
    return true;
  }
  if (SharesDevices() || !FileSystemOf(fd, st.st_dev).syncs_whole || seats.ThroughFailed() != 0 ||
      !tallies.Join(pool_id_)) {
    return false;
  }
  seats.NoteThroughSince(pool_.seat(), pool::Seats::kComing);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see Checkpointer::CloseFileSystem
  const long folder = seats.ClaimThroughDevice(st.st_dev) ? OpenFolderOf(fd) : -EBUSY;
  struct stat of_folder;
  if (folder < 0 || sys::Fstat(static_cast<int>(folder), &of_folder) < 0 ||
      of_folder.st_dev != st.st_dev) {
    if (folder >= 0) sys::Close(static_cast<int>(folder));
    seats.NoteThroughSince(pool_.seat(), 0);
    return false;
  }
  // So that this process may leave what it has to the checkpointer, as long as it is idle, and when
  // it ends.
  seats.AwaitCheckpointer(kAnswerNs);
  BeginThrough(static_cast<int>(folder), st.st_dev);
  if (seats.answer() != pool::kHasDescriptor) Employ();
  return true;
}

// The descriptor is open to the file system of that device.
void Engine::BeginThrough(int fd, uint64_t device) {
  through_fd_ = fd;
  SetSlot(through_fd_, Internal());
  tallies.RaiseCheckpoint(pool_.through_checkpoint());
  through_error_ = 0;
  trusted_from_ = log.Draw();
  pool_.seats().NoteThroughSince(pool_.seat(), trusted_from_);
  through_device_.store(device);
}

void Engine::CloseThrough() {
  if (!SharesDevices()) return;
  through_device_.store(0);
  if (SlotOf(through_fd_) == Internal()) {
    SetSlot(through_fd_, kUntracked);
    sys::Close(through_fd_);
  }
  through_fd_ = -1;
  through_since_.store(0);
}

bool Engine::Pin() {
  pins_.fetch_add(1);
  if (pinnable_.load()) return true;
  pins_.fetch_sub(1);
  return false;
}

// Nobody has a pin from here on. Whoever has one waits for no lock of ours that is held here.
void Engine::AwaitPins() {
  pinnable_.store(false);
  while (pins_.load() != 0) Pause(kPollNs);
}

void Engine::AwaitThrough() {
  uint64_t none = 0;
  if (through_since_.load(std::memory_order_relaxed) != none) return;
  if (!through_since_.compare_exchange_strong(none, sys::Now(CLOCK_MONOTONIC))) return;
  pool::Note(pool_.seats().ConductOf(pool_.seat()).through_since, sys::Now(CLOCK_REALTIME));
  log.Ring();
}

// By the keeper: somebody waits for the checkpoint, perhaps.
void Engine::HurryThrough() {
  if (!attached() || !SharesDevices() || !tallies.IsCheckpointWanted()) return;
  through_wanted_.store(true);
  log.Ring();
}

// Of the cleanup thread: in how many ns to ask again.
uint64_t Engine::CareForThrough(bool hurried) {
  const bool wanted = through_wanted_.exchange(false);
  const pool::Seats& seats = pool_.seats();
  if (!SharesDevices() || seats.ThroughFailed() != 0) return sys::kForever;
  // Another one is at it, who may have begun before that was wanted.
  const bool again =
      wanted && MayMoveThrough() && !MoveThroughCheckpoint() && tallies.IsCheckpointWanted();
  if (again) through_wanted_.store(true);
  const auto within = [again](uint64_t ns) { return again ? std::min(ns, kAgainNs) : ns; };
  if (seats.CountLeft() > 0) ThroughIsPending();  // of others that have ended
  uint64_t since = through_since_.load();
  if (since == 0) return within(kDelayNs);
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  // Somebody has moved it: what is pending came later. One sync does for all.
  if (const nvlog::Lsn checkpoint = pool_.through_checkpoint(); checkpoint != through_seen_) {
    through_seen_ = checkpoint;
    through_since_.store(since = now);
    through.Free(log.IsShared() || log.Short());
  }
  const uint64_t waited = now - since;
  const uint64_t delay = log.Short() ? kShortDelayNs : kDelayNs;
  if (!hurried && waited < delay) return within(delay - waited);
  through_since_.store(0);
  through.Free(log.IsShared() || log.Short());
  const bool pending = HasPendingThrough() || seats.CountLeft() > 0;
  if (!pending || MoveThroughCheckpoint(waited >= kDelayNs + kLateNs)) return within(kDelayNs);
  // It may be for one that has died to move it.
  if (seats.HasOrphans(pool_.seat())) {
    starving_.store(true);
    leases.Nudge();
  }
  AskForThrough();
  uint64_t none = 0;
  through_since_.compare_exchange_strong(none, since);
  return kAgainNs;
}

// Of an error from before our descriptor, another one may have been told.
bool Engine::MayMoveThrough() const {
  return pool_.through_checkpoint() > trusted_from_ || pool_.seats().IsFirstThrough(pool_.seat());
}

// Whoever may move it knows nothing of what is pending here.
void Engine::AskForThrough() {
  if (!MayMoveThrough() && tallies.IsOf(pool_id_) && !tallies.IsCheckpointWanted()) {
    tallies.WantCheckpointAbove(log.newest());
  }
}

bool Engine::MoveThroughCheckpoint(bool late) {
  if (!through_lock_.TryLock()) return false;
  const pool::Seats& seats = pool_.seats();
  bool moved = false;
  if (late || MayMoveThrough()) {
    const bool locked = seats.TryLockThrough();
    moved = (locked || late) && StoreThrough();
    if (locked) seats.UnlockThrough();
  }
  through_lock_.Unlock();
  if (moved) {
    through.Free(log.IsShared() || log.Short());
    log.AnnounceRoom();
  }
  return moved;
}

// No call is between its announcement and its outcome then.
nvlog::Lsn Engine::NextBetweenNames() const {
  const auto& next = pool_.seats().next_lsn();
  if (!tallies.IsOf(pool_id_) || !tallies.HasFolders()) return next.load();
  const uint64_t lock = tallies.LockNames();
  const nvlog::Lsn lsn = next.load();
  tallies.UnlockNames(lock);
  return lsn;
}

// A process may be stopped in the sync, and another one move the checkpoint meanwhile.
bool Engine::StoreThrough() {
  const pool::Seats& seats = pool_.seats();
  if (!SharesDevices() || seats.ThroughFailed() != 0) return false;
  sys::Scratch<pool::Seats::LeftSeats> left;
  seats.FindLeft(left.get());
  const bool own_table = tallies.IsOf(pool_id_);
  const nvlog::Lsn next = NextBetweenNames();
  const uint64_t unlogged = tallies.Unlogged();
  const long error = sys::Syncfs(through_fd_);
  if (error < 0) seats.SetThroughFailed(static_cast<int>(-(through_error_ = error)));
  if (error < 0 || !seats.LockThroughStore(kStorePatienceNs)) return false;
  const bool stores = seats.ThroughFailed() == 0;
  if (stores && next >= pool_.through_checkpoint()) pool_.StoreThroughCheckpoint(next, *left);
  seats.UnlockThroughStore();
  if (stores && own_table) {
    tallies.RaiseCheckpoint(next);
    tallies.RaiseUnloggedSynced(unlogged);
  }
  return stores;
}

void Engine::EndPendingThrough() {
  const uint64_t end = sys::Now(CLOCK_MONOTONIC) + kPatienceNs;
  nvlog::Lsn last = 0;
  for (;;) {
    const PoolPin pin;
    if (!pin.ok() || !SharesDevices() || pool_.seats().ThroughFailed() != 0) return;
    if (last == 0) last = log.newest();
    if (pool_.through_checkpoint() > last || MoveThroughCheckpoint()) return;
    AskForThrough();
    if (sys::Now(CLOCK_MONOTONIC) >= end) return;
    Pause(kPollNs);
  }
}

long Engine::SyncThrough() {
  sys::Lock lock(through_lock_);
  if (through_error_ == 0) through_error_ = sys::Syncfs(through_fd_);
  if (through_error_ < 0) pool_.seats().SetThroughFailed(static_cast<int>(-through_error_));
  return through_error_;
}

bool Engine::EndUnloggedNames() {
  if (!leases.is_open() || !tallies.HasUnlogged() || sys::IsSharing()) return true;
  const PoolPin pin;
  if (!pin.ok() || !SharesDevices() || !tallies.IsOf(pool_id_)) return true;
  const uint64_t unlogged = tallies.Unlogged();
  if (unlogged > 1) tallies.NoteUnloggedAwaited();  // the first stands for what was before
  if (SyncThrough() < 0) return false;
  tallies.RaiseUnloggedSynced(unlogged);
  return true;
}

bool Engine::HasPendingThrough() {
  return through.HasPending() || (published() != 0 && published() >= pool_.through_checkpoint());
}

// What is left to another process, that one has a descriptor for which covers it. False: something
// is.
bool Engine::EndThrough() {
  const pool::Seats& seats = pool_.seats();
  // One that has died may be the first.
  if (seats.HasOrphans(pool_.seat())) {
    OnOwnStack([this] { return recovery::ReplayOrphans(pool_, &recovered_); });
  }
  const bool late = seats.IsLeftFor(kLateNs);
  const bool moves = late || seats.IsFirstThrough(pool_.seat());
  if (moves && (HasPendingThrough() || seats.CountLeft() > 0)) {
    OnOwnStack([=, this] { return MoveThroughToEnd(late); });
  }
  const bool ended = !HasPendingThrough();
  // Others will want seats.
  if (!ended && seats.CountLeft() > seats.count() / kLeftSeats) {
    tallies.WantCheckpointAbove(log.newest());
  }
  // Else it stays until the seat is left: the checkpointer has its own descriptor for as long.
  if (ended) seats.NoteThroughSince(pool_.seat(), 0);
  CloseThrough();
  return ended;
}

// Until nothing is pending, unless another one is at it for long.
bool Engine::MoveThroughToEnd(bool late) {
  const pool::Seats& seats = pool_.seats();
  const uint64_t end = sys::Now(CLOCK_MONOTONIC) + kPatienceNs;
  while ((HasPendingThrough() || seats.CountLeft() > 0) && !MoveThroughCheckpoint(late) &&
         seats.ThroughFailed() == 0 && sys::Now(CLOCK_MONOTONIC) < end) {
    Pause(kPollNs);
  }
  return !HasPendingThrough();
}

}  // namespace nvcache::vfs
