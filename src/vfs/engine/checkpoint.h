// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpoint of write-through (docs/write-through.md): whoever needs it moves it, one process
// at a time. One file system per pool has write-through files; a sync of it covers all that was
// logged before.
#ifndef NVCACHE_VFS_ENGINE_CHECKPOINT_H_
#define NVCACHE_VFS_ENGINE_CHECKPOINT_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/sys/lock.h"

namespace nvcache::vfs {

// A thread looks once more after so long at what another thread or process does.
inline constexpr uint64_t kPollNs = 1000 * 1000;

class Checkpoint {
 public:
  constexpr Checkpoint() = default;

  // Files of this device may be write-through here; of some device. Any thread.
  bool IsOfFileSystem(uint64_t device) const { return device_.load() == device; }
  bool is_open() const { return device_.load() != 0; }
  // Has the descriptor's file be one of these, and the entries be the pool's. Table lock, attached.
  bool UseFileSystem(int fd, const struct stat& st);
  // The descriptor is open to the file system of that device. Table lock, attached.
  void Begin(int fd, uint64_t device);
  // The process ends, and moves it beyond all that is there, unless somebody stays who does so.
  // False: something is left. Table lock.
  bool End();
  // Another process moves it: the checkpointer, or one that is busy. With the pool attached.
  bool SomebodyStays() const;
  // This process does so, for it has become busy. Table lock.
  void Stay();
  // Table lock.
  void Close();
  // The program wants the number of its descriptor, if it is that: 0, or a negated errno; 1: it is
  // another's. Table lock.
  long MoveDescriptor(int fd);

  // A group was appended: its checkpoint moves, sooner or later. With a pin, or attached.
  void NotePending() {
    if (since_.load(std::memory_order_relaxed) == 0) Await();
  }
  // Syncs the file system of all write-through files, and moves their checkpoint. False: it could
  // not, or another one is at it. With a pin, or where the pool stays attached; else no lock.
  // `passes`: one that is at it has been for long, and is taken for stopped.
  bool Move(bool passes = false);
  // The cleanup thread moves it now, unless it is above that. Any thread; attached.
  void MoveSoonAbove(nvlog::Lsn lsn);
  // Syncs that file system, for all that this process has handed over. 0, or a negated errno: from
  // then on. The cleanup thread, or where it has ended.
  long Sync();
  // The cleanup thread calls it. In how many ns to ask again.
  uint64_t Tick(bool hurried);
  // All changes of names made so far, by any process of the pool, are in the log or on the disk.
  // False: the disk refuses. No lock.
  bool EndUnloggedNames();
  // Syncs that file system, if it is the device's. False: it is not, or the disk refuses. No lock.
  bool SyncDevice(uint64_t device);
  // Moves it beyond all that is there by now, by whom ever. No lock.
  void EndPending();
  // The same, if something of this process's is pending.
  void EndOwnPending();
  // If those who move it have died: their pool is recovered, or their seats are adopted. True:
  // nobody moves it, for nobody uses the pool. No lock.
  bool LookForOwners();
  // The highest LSN that this process has handed over; 0: none.
  nvlog::Lsn handed_over() const;

  // No sync by the descriptor is under way while it is held.
  bool TryLock() { return lock_.TryLock(); }
  void Unlock() { lock_.Unlock(); }
  // In a child of fork.
  void ResetLock() { lock_.Reset(); }

 private:
  void Await();
  nvlog::Lsn NextBetweenNames() const;
  bool Store();
  bool HasPending();
  bool MoveToEnd();

  sys::Mutex<sys::Rank::kSync> lock_;  // a thread moves it
  int fd_ = -1;                        // open on the file system of all such files
  std::atomic<uint64_t> device_{0};    // st_dev; 0: fd_ is not open
  std::atomic<uint64_t> since_{0};     // monotonic ns; 0: nothing is pending
  long error_ = 0;                     // that fd_ was told of, under lock_
  nvlog::Lsn seen_ = 0;                // the checkpoint; the cleanup thread's
  std::atomic<nvlog::Lsn> wanted_{0};  // MoveSoonAbove
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_CHECKPOINT_H_
