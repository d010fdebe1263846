// SPDX-License-Identifier: BSD-3-Clause
//
//   watching   the pool is clean; the bell, or that it is not clean any more, leads to
//   attached   a seat, and a descriptor of the file system of write-through files while somebody
//              wants it; that nobody has a seat, and nothing is left, leads back
//
// The engine's own threads do the work: the cleanup thread moves the checkpoint, and the responder
// hears of those who want room.
#include "src/vfs/checkpointer.h"

#include <algorithm>
#include <atomic>

#include "src/pool/mirror_words.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/life.h"

namespace nvcache::vfs {

namespace {

constexpr uint64_t kSecond = 1000ull * 1000 * 1000;
// Between two looks at the pool while nobody rings.
constexpr uint64_t kLookNs = kSecond;
// Between two looks while something is left, or somebody waits for the disk.
constexpr uint64_t kShortLookNs = 100 * 1000 * 1000;
// While others have files in their caches: should they die, the files lack bytes until the next
// one.
constexpr uint64_t kCachedLookNs = 50 * 1000 * 1000;
// The seat is given up when nobody has used the pool for so long; the descriptor, so long after it
// was asked for.
constexpr uint64_t kUnusedNs = kSecond;
// Groups that were left for so long are brought to the disk; when nobody is at work there, after
// kUnusedNs.
constexpr uint64_t kLeftNs = 5 * kSecond;
// An idle process has logged what it ever will so long after it began (kBusyAfterNs).
constexpr uint64_t kLogsForNs = kSecond;
static_assert(kLogsForNs > kBusyAfterNs && kLogsForNs < kLeftNs);
// The process ends when it has watched a clean pool for so long.
constexpr uint64_t kIdleNs = 5 * kSecond;

// Another process has a seat, dead or alive.
bool IsUsed(const pool::Seats& seats, uint32_t own) {
  for (uint32_t seat = 0; seat < seats.end(); ++seat) {
    const uint32_t state = seats.State(seat);
    if (seat != own && (state == pool::kSeatTaken || state == pool::kSeatReplayed)) return true;
  }
  return false;
}

}  // namespace

bool Checkpointer::Run(const Host& threads, char** environment, int post) {
  if (!Start(threads, environment) || !Watches(post)) return false;
  const pool::Seats& seats = watched_.seats();
  used_ = sys::Now(CLOCK_MONOTONIC);
  deaths_.Begin(threads, seats);  // where it cannot, looks alone find the dead
  huge_pages_.Begin(threads, watched_, engine.settings.huge);
  while (!host_.stopped() && IsNamed()) {
    const uint32_t bell = seats.bell();
    deaths_.Watch();
    huge_pages_.Look();
    const bool used = Serve();
    if (IsFinal(engine.stage())) break;
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    if (used) used_ = now;
    if (!engine.attached() && !host_.stays && now - used_ >= kIdleNs) break;
    const bool soon =
        seats.MustHurry() || MustLeaveJournal() || (engine.attached() && seats.CountLeft() > 0);
    const uint64_t look = seats.AnybodyCaches() ? kCachedLookNs : soon ? kShortLookNs : kLookNs;
    seats.AwaitBell(bell, engine.attached() ? std::min(look, engine.mirror.KeepAhead(true)) : look);
  }
  End();
  return !IsFinal(engine.stage());
}

// The pool that the lock is of.
bool Checkpointer::Watches(int post) {
  sys::Scratch<pool::Problem> problem;
  struct stat st;
  const bool open = watched_.Open(engine.settings.pool.c_str(), pool::Mode::kInspect, true, nullptr,
                                  problem.get());
  if (!open) engine.notice.RefusePool(*problem);
  return open && sys::Fstat(post, &st) == 0 && st.st_ino == watched_.inode() &&
         st.st_dev == watched_.device();
}

// Somebody may have removed the pool, and made another one.
bool Checkpointer::IsNamed() const {
  struct stat st;
  return sys::Fstatat(AT_FDCWD, watched_.path(), &st, 0) == 0 && watched_.HasName(st);
}

// True: others use the pool, or the groups that they have left can be brought to the disk. (If not
// so, by a recovery of the whole pool, when nobody has a seat.)
bool Checkpointer::Serve() {
  TableLock lock;
  if (watched_.seats().MustKeepOff()) {
    Detach();
    return true;
  }
  if (!engine.attached() && !watched_.dirty()) return false;
  if (!Attach()) return true;
  engine.recovery.AdoptDead();
  ServeDescriptor();
  MoveCheckpoint();
  LeaveJournal();
  const pool::Seats& seats = engine.pool().seats();
  const bool moves = engine.checkpoint.is_open() && seats.ThroughFailed() == 0;
  const bool used = IsUsed(seats, engine.pool().seat()) || (moves && seats.CountLeft() > 0);
  if (!used && sys::Now(CLOCK_MONOTONIC) - used_ >= kUnusedNs) Detach();
  return used;
}

// It recovers what the dead have left.
bool Checkpointer::Attach() {
  if (engine.attached()) return true;
  if (!engine.attachment.Attach()) return false;
  if (!engine.attachment.StartThreads()) {
    engine.BecomeFinal();
    engine.attachment.Detach();
    return false;
  }
  engine.pool().seats().SetCheckpointer(engine.pool().seat());
  return true;
}

void Checkpointer::Detach() {
  if (!engine.attached()) return;
  engine.pool().seats().SetCheckpointer(pool::kNoSeat);
  engine.attachment.Detach();
  engine.file_table.Leave();
}

// The file system cannot be unmounted while the descriptor is open.
void Checkpointer::ServeDescriptor() {
  const pool::Seats& seats = engine.pool().seats();
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  const bool others = seats.OthersHaveThrough(engine.pool().seat());
  const bool left = seats.CountLeft() > 0;
  const uint32_t bell = seats.bell();
  // Groups left while others had one may be nobody's to bring to the disk by now.
  const bool falls_to_us = left && !others && seats.answer() == pool::kNoAnswer;
  if (bell != rung_ || falls_to_us) {
    rung_ = bell;
    asked_ = now;
    const bool open = engine.checkpoint.is_open() || OpenFileSystem(seats.through_device());
    seats.Answer(open ? pool::kHasDescriptor : pool::kHasNone);
  } else if (!left && !others && now - asked_ >= kUnusedNs) {
    CloseFileSystem();
  }
}

bool Checkpointer::OpenFileSystem(uint64_t device) {
  const int fd = device != 0 ? host_.open_file_system(device) : -1;
  if (fd < 0) return false;
  if (!FileSystems::Ask(fd, device).syncs_whole || !engine.file_table.Join(engine.pool_id())) {
    sys::Close(fd);
    return false;
  }
  engine.checkpoint.Begin(sys::MoveLow(fd, sys::kThroughNumber), device);
  return true;
}

// The cleanup thread may be at a sync by it.
void Checkpointer::CloseFileSystem() {
  if (!engine.checkpoint.is_open() || !engine.checkpoint.TryLock()) return;
  const pool::Seats& seats = engine.pool().seats();
  seats.Answer(pool::kNoAnswer);
  // A process that has just found the old answer has said before that it comes
  // (Checkpoint::UseFileSystem).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (seats.OthersHaveThrough(engine.pool().seat())) {
    seats.Answer(pool::kHasDescriptor);
    engine.checkpoint.Unlock();
    return;
  }
  seats.NoteThroughSince(engine.pool().seat(), 0);
  seats.ReleaseThroughDevice(engine.pool().seat());
  engine.checkpoint.Close();
  engine.file_table.Leave();
  engine.checkpoint.Unlock();
}

// While others are at work, one sync does for all that several leave and idle ones have logged.
void Checkpointer::MoveCheckpoint() {
  const pool::Seats& seats = engine.pool().seats();
  const bool alone = !seats.OthersHaveThrough(engine.pool().seat());
  const bool hurries = watched_.seats().MustHurry() || engine.log.ShortNow();
  const uint64_t due = hurries ? 0 : alone ? kUnusedNs : kLeftNs;
  const nvlog::Lsn next = seats.next_lsn().load();
  if (wanted_ != 0 && engine.pool().through_checkpoint() >= wanted_) {
    cared_to_ = wanted_at_;
    wanted_ = 0;
  }
  const uint64_t now = sys::Now(CLOCK_REALTIME);
  if (!seats.IsLeftFor(due) && !seats.HasThroughBetween(cared_to_, now - kLeftNs)) return;
  if (wanted_ == 0) {
    wanted_ = next;
    wanted_at_ = now - kLogsForNs;
  }
  engine.checkpoint.MoveSoonAbove(next - 1);
}

bool Checkpointer::MustLeaveJournal() const {
  return watched_.has_journal() && pool::Peek(watched_.journal().failed) != 0 &&
         pool::MirrorWords(watched_.view()).state() != pool::kMirrorReal;
}

// Nothing is acknowledged between the failed write and the state `real`. Before that, the files
// have all that was, and the journal is void: else a later recovery would lay it over what real
// syncs have brought there. Each turn is a sign of life to those who wait (mirror.h).
void Checkpointer::LeaveJournal() {
  const uint64_t now = sys::Now(CLOCK_MONOTONIC);
  if (!MustLeaveJournal() || (refused_ != 0 && now - refused_ < kSecond)) return;
  using Disk = CheckpointerHost::Disk;
  const pool::MirrorWords words(engine.pool().view());
  const Disk disk = host_.bring_to_disk(engine.pool().path());
  if (disk == Disk::kLacksSome) return words.TakeTurn();
  const bool left = disk == Disk::kHasAll && engine.pool().own_journal().MakeVoid() == 0;
  refused_ = left ? 0 : now;
  words.SetState(left ? pool::kMirrorReal : pool::kMirrorFailing);
}

// Groups left while the seat was given up are brought to the files as by any process that comes.
void Checkpointer::End() {
  const bool off = watched_.seats().MustKeepOff();
  const bool named = IsNamed();
  deaths_.End();
  huge_pages_.End();
  watched_.Close();
  TableLock lock;
  Detach();
  if (!off && named && !IsFinal(engine.stage())) engine.recovery.BeforeUse();
}

}  // namespace nvcache::vfs
