// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/checkpoint.h"

#include <errno.h>

#include <algorithm>
#include <atomic>

#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/stack.h"

namespace nvcache::vfs {

namespace {

// Groups of write-through files are on the disk about so long after they were appended.
constexpr uint64_t kDelayNs = 5ull * 1000 * 1000 * 1000;
// The delay where segments are short, and nobody waits for one yet.
constexpr uint64_t kShortDelayNs = 100 * 1000 * 1000;
// Another process was at it.
constexpr uint64_t kAgainNs = 50 * 1000 * 1000;
// For that one; it syncs a file system.
constexpr uint64_t kPatienceNs = 20ull * 1000 * 1000 * 1000;
// When this part of the seats is left, a process that ends does not leave its own as well.
constexpr uint32_t kLeftSeats = 4;
// One that is at it, or to whom a seat was left, for so long, is taken for stopped.
constexpr uint64_t kLateNs = 10ull * 1000 * 1000 * 1000;
static_assert(kLateNs < kPatienceNs);
// For one that has it in hand to be stored.
constexpr uint64_t kStorePatienceNs = 100 * 1000 * 1000;
// For the checkpointer, to have a descriptor.
constexpr uint64_t kAnswerNs = 5 * 1000 * 1000;

// The directory of the file that the descriptor is open to, or that one itself: it keeps nobody
// from executing or removing the file. A negated errno.
long OpenFolderOf(int fd) {
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* path = scratch.get();
  long n = sys::ReadLinkTo(fd, path, pool::kMaxPath - 1);
  if (n <= 0 || path[0] != '/') return n < 0 ? n : -ENOENT;
  struct stat st;
  const bool is_folder = sys::Fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
  while (!is_folder && path[n - 1] != '/') --n;
  path[n] = '\0';
  const long folder = sys::Openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 || HoldsLock(static_cast<int>(folder))) return folder;
  return sys::MoveLow(static_cast<int>(folder), sys::kThroughNumber);
}

}  // namespace

bool Checkpoint::UseFileSystem(int fd, const struct stat& st) {
  NVCACHE_CHECK(engine.table_lock.IsLocked() && engine.attached());
  const pool::Seats& seats = engine.pool().seats();
  if (IsOfFileSystem(st.st_dev)) {
    if (engine.attachment.NeedsThreads()) engine.attachment.StartThreads();
    return true;
  }
  if (is_open() || !FileSystems::Ask(fd, st.st_dev).syncs_whole || seats.ThroughFailed() != 0 ||
      !engine.file_table.Join(engine.pool_id())) {
    return false;
  }
  seats.NoteThroughSince(engine.pool().seat(), pool::Seats::kComing);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see Checkpointer::CloseFileSystem
  const long folder = seats.TakeThroughDevice(st.st_dev) ? OpenFolderOf(fd) : -EBUSY;
  struct stat of_folder;
  if (folder < 0 || sys::Fstat(static_cast<int>(folder), &of_folder) < 0 ||
      of_folder.st_dev != st.st_dev) {
    if (folder >= 0) OwnDescriptors::Return(static_cast<int>(folder));
    seats.NoteThroughSince(engine.pool().seat(), 0);
    return false;
  }
  // So that this process may leave what it has to the checkpointer, as long as it is idle, and when
  // it ends.
  seats.AwaitCheckpointer(kAnswerNs);
  Begin(static_cast<int>(folder), st.st_dev);
  if (seats.answer() != pool::kHasDescriptor) engine.attachment.StartThreads();
  return true;
}

// The descriptor is open to the file system of that device.
void Checkpoint::Begin(int fd, uint64_t device) {
  fd_ = fd;
  engine.descriptors.Set(fd_, Internal());
  engine.file_table.RaiseCheckpoint(engine.pool().through_checkpoint());
  error_ = 0;
  wanted_.store(0);
  engine.pool().seats().NoteThroughSince(engine.pool().seat(), pool::Seats::kIdle);
  device_.store(device);
  if (engine.busy()) Stay();
}

void Checkpoint::Stay() {
  if (is_open()) engine.pool().seats().NoteThroughSince(engine.pool().seat(), engine.log.Draw());
}

void Checkpoint::Close() {
  if (!is_open()) return;
  device_.store(0);
  engine.kept_folders.Close();
  if (engine.descriptors.Of(fd_) == Internal()) OwnDescriptors::Return(fd_);
  fd_ = -1;
  since_.store(0);
}

long Checkpoint::MoveDescriptor(int fd) {
  if (fd != fd_) return 1;
  if (HoldsLock(fd)) return -EBUSY;
  sys::Lock lock(lock_);
  fd_ = sys::MoveHigh(fd);
  engine.descriptors.Set(fd, kUntracked);
  engine.descriptors.Set(fd_, Internal());
  return fd_ == fd ? -EMFILE : 0;
}

void Checkpoint::Await() {
  uint64_t none = 0;
  if (since_.load(std::memory_order_relaxed) != none) return;
  if (!since_.compare_exchange_strong(none, sys::Now(CLOCK_MONOTONIC))) return;
  pool::Note(engine.pool().seats().ConductOf(engine.pool().seat()).through_since,
             sys::Now(CLOCK_REALTIME));
  engine.log.Ring();
}

void Checkpoint::MoveSoonAbove(nvlog::Lsn lsn) {
  nvlog::Lsn wanted = wanted_.load();
  if (!is_open() || lsn < engine.pool().through_checkpoint()) return;
  while (wanted < lsn && !wanted_.compare_exchange_weak(wanted, lsn)) {
  }
  engine.log.Ring();
}

// The cleanup thread calls it. In how many ns to ask again.
uint64_t Checkpoint::Tick(bool hurried) {
  const nvlog::Lsn wanted = wanted_.load();
  const pool::Seats& seats = engine.pool().seats();
  if (!is_open() || seats.ThroughFailed() != 0) return sys::kForever;
  // Another one is at it, who may have begun before that was wanted.
  const bool again = wanted != 0 && wanted >= engine.pool().through_checkpoint() && !Move();
  const auto within = [again](uint64_t ns) { return again ? std::min(ns, kAgainNs) : ns; };
  if (seats.CountLeft() > 0) NotePending();  // others have ended and left them
  uint64_t since = since_.load();
  if (since == 0) return within(kDelayNs);
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  // Somebody has moved it: the pending groups came later. One sync does for all.
  if (const nvlog::Lsn checkpoint = engine.pool().through_checkpoint(); checkpoint != seen_) {
    seen_ = checkpoint;
    since_.store(since = now);
    engine.log.FreeThrough(engine.log.IsShared() || engine.log.Short());
  }
  const uint64_t waited = now - since;
  const uint64_t delay = engine.log.Short() ? kShortDelayNs : kDelayNs;
  if (!hurried && waited < delay) return within(delay - waited);
  since_.store(0);
  engine.log.FreeThrough(engine.log.IsShared() || engine.log.Short());
  const bool pending = HasPending() || seats.CountLeft() > 0;
  // The dead have segments, too.
  if (seats.HasOrphans(engine.pool().seat())) engine.responder.LookForRoomSoon();
  if (!pending || Move(waited >= kDelayNs + kLateNs)) return within(kDelayNs);
  uint64_t none = 0;
  since_.compare_exchange_strong(none, since);
  return kAgainNs;
}

bool Checkpoint::Move(bool passes) {
  if (!lock_.TryLock()) return false;
  const pool::Seats& seats = engine.pool().seats();
  const bool locked = seats.TryLockThrough();
  const bool moved = (locked || passes) && Store();
  if (locked) seats.UnlockThrough();
  lock_.Unlock();
  if (moved) {
    engine.log.FreeThrough(engine.log.IsShared() || engine.log.Short());
    engine.log.AnnounceRoom();
  }
  return moved;
}

// No call is between its announcement and its outcome then.
nvlog::Lsn Checkpoint::NextBetweenNames() const {
  const auto& next = engine.pool().seats().next_lsn();
  if (!engine.file_table.IsOf(engine.pool_id()) || !engine.file_table.HasFolders())
    return next.load();
  const uint64_t lock = engine.file_table.LockNames();
  const nvlog::Lsn lsn = next.load();
  engine.file_table.UnlockNames(lock);
  return lsn;
}

// A process may be stopped in the sync, and another one move the checkpoint meanwhile.
bool Checkpoint::Store() {
  const pool::Seats& seats = engine.pool().seats();
  if (!is_open() || seats.ThroughFailed() != 0) return false;
  sys::Scratch<pool::Seats::LeftSeats> left;
  seats.FindLeft(left.get());
  const bool own_table = engine.file_table.IsOf(engine.pool_id());
  const nvlog::Lsn next = NextBetweenNames();
  const uint64_t unlogged = engine.file_table.Unlogged();
  const long error = sys::Syncfs(fd_);
  if (error < 0) seats.SetThroughFailed(static_cast<int>(-(error_ = error)));
  if (error < 0 || !seats.LockThroughStore(kStorePatienceNs)) return false;
  const bool stores = seats.ThroughFailed() == 0;
  if (stores && next >= engine.pool().through_checkpoint())
    engine.pool().StoreThroughCheckpoint(next, *left);
  seats.UnlockThroughStore();
  if (stores && own_table) {
    engine.file_table.RaiseCheckpoint(next);
    engine.file_table.RaiseUnloggedSynced(unlogged);
  }
  return stores;
}

void Checkpoint::EndPending() {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  nvlog::Lsn last = 0;
  for (;;) {
    const PoolPin pin;
    if (!pin.ok() || !is_open() || engine.pool().seats().ThroughFailed() != 0) return;
    if (last == 0) last = engine.log.newest();
    const uint64_t waited = sys::Now(CLOCK_MONOTONIC) - begin;
    if (engine.pool().through_checkpoint() > last || Move(waited >= kLateNs)) return;
    if (waited >= kPatienceNs) return;
    sys::Pause(kPollNs);
  }
}

void Checkpoint::EndOwnPending() {
  {
    const PoolPin pin;
    if (!pin.ok() || !is_open() || !HasPending()) return;
  }
  EndPending();
}

long Checkpoint::Sync() {
  sys::Lock lock(lock_);
  if (error_ == 0) error_ = sys::Syncfs(fd_);
  if (error_ < 0) engine.pool().seats().SetThroughFailed(static_cast<int>(-error_));
  return error_;
}

bool Checkpoint::SyncDevice(uint64_t device) {
  const PoolPin pin;
  return pin.ok() && IsOfFileSystem(device) && Sync() == 0;
}

bool Checkpoint::EndUnloggedNames() {
  if (!engine.leases.is_open() || !engine.file_table.HasUnlogged() || sys::IsSharing()) return true;
  const PoolPin pin;
  if (!pin.ok() || !is_open() || !engine.file_table.IsOf(engine.pool_id())) return true;
  const uint64_t unlogged = engine.file_table.Unlogged();
  if (unlogged > 1) engine.file_table.NoteUnloggedAwaited();  // the first stands for those before
  if (Sync() < 0) return false;
  engine.file_table.RaiseUnloggedSynced(unlogged);
  return true;
}

nvlog::Lsn Checkpoint::handed_over() const {
  return engine.busy() ? engine.cleaner.handed_over() : 0;
}

bool Checkpoint::HasPending() {
  return engine.log.HasThroughPending() ||
         (handed_over() != 0 && handed_over() >= engine.pool().through_checkpoint());
}

bool Checkpoint::SomebodyStays() const {
  const pool::Seats& seats = engine.pool().seats();
  return (seats.answer() == pool::kHasDescriptor && seats.HasCheckpointer()) ||
         seats.SomebodyStaysThrough(engine.pool().seat());
}

// Two that end at once do not leave their groups to each other: each says that it goes before it
// looks who stays.
bool Checkpoint::End() {
  const pool::Seats& seats = engine.pool().seats();
  engine.recovery.AdoptDead(0);
  seats.NoteThroughSince(engine.pool().seat(), pool::Seats::kGoing);
  const bool leaves = SomebodyStays() && !seats.IsLeftFor(kLateNs) &&
                      seats.CountLeft() <= seats.count() / kLeftSeats;
  if (!leaves && (HasPending() || seats.CountLeft() > 0)) {
    OnOwnStack([this] { return MoveToEnd(); });
  }
  const bool ended = !HasPending();
  // Else it stays until the seat is left: the checkpointer has its own descriptor for as long.
  if (ended) seats.NoteThroughSince(engine.pool().seat(), 0);
  Close();
  return ended;
}

// Until nothing is pending, unless another one is at it for long.
bool Checkpoint::MoveToEnd() {
  const pool::Seats& seats = engine.pool().seats();
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (uint64_t waited = 0; HasPending() || seats.CountLeft() > 0; sys::Pause(kPollNs)) {
    if (Move(waited >= kLateNs) || seats.ThroughFailed() != 0 || waited >= kPatienceNs) break;
    waited = sys::Now(CLOCK_MONOTONIC) - begin;
  }
  return !HasPending();
}

bool Checkpoint::LookForOwners() {
  if (!engine.active()) return false;
  TableLock lock;
  if (!engine.active()) return false;
  engine.recovery.LookAfterDeaths();
  if (!engine.leases.is_open() || is_open()) return false;
  return !(engine.attached() && engine.file_table.IsOf(engine.pool_id())) &&
         engine.file_table.LeaveIfUnused();
}

}  // namespace nvcache::vfs
