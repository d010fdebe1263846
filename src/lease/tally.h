// SPDX-License-Identifier: BSD-3-Clause
//
// Files that several processes write to, by way of the kernel and of a log (docs/write-through.md).
// Each has a tally in the file of leases, where all processes of the user find it, and a lock there
// that orders their writes. The lock is taken away from a process that has died, or that does not
// move: so it is looked at once more before a write is committed.
//
// LSNs are plain numbers here: those of the pool that the tally names.
#ifndef NVCACHE_LEASE_TALLY_H_
#define NVCACHE_LEASE_TALLY_H_

#include <atomic>
#include <cstdint>

#include "src/sys/lock.h"

namespace nvcache::lease {

class Leases;

// How long the owner of a tally's lock may not move, in ns: then it is taken for stopped.
inline constexpr uint64_t kLockPatience = 50 * 1000 * 1000;

// One file's, or nobody's. All zero is nobody's. Apart from `lock` and `waiters` it changes only
// under the lock, but any process may look at any time.
struct alignas(64) Tally {
  std::atomic<uint64_t> tag;   // the file: TagOf(); 0: none
  std::atomic<uint64_t> lock;  // who has it: a process, and how often it was taken
  std::atomic<uint64_t> pool;  // whose LSNs these are
  std::atomic<uint64_t> lsn;   // no group of the file has a higher one, or will have one of a process
                               // that has lost the lock
  std::atomic<uint64_t> settled;  // groups below it count no more
  std::atomic<uint32_t> exits;    // counts what may have gone past the log
  std::atomic<uint32_t> known;    // 1: every byte of the file is on the disk or in a log
  sys::Word waiters;              // that sleep until the lock is free
};
static_assert(sizeof(Tally) == 64);

// Of a file; never 0. Files with the same tag are taken for one.
uint64_t TagOf(uint64_t device, uint64_t inode);

// A process says that it is at a call that changes a file and is in no log: from before it looks
// for the file's tally, until the call is over. 16 bits for each of some classes of files.
inline constexpr uint32_t kPassingClasses = 32;
struct alignas(64) PassingCounts {
  std::atomic<uint16_t> count[kPassingClasses];
};
static_assert(sizeof(PassingCounts) == 64);

class Tallies {
 public:
  // Of a process that has a slot.
  explicit constexpr Tallies(Leases& leases) : leases_(leases) {}

  // ---- Any time
  void BeginPassing(uint64_t tag) const;
  void EndPassing(uint64_t tag) const;
  // Some process that lives is passing, besides `own` calls of this one.
  bool AnybodyPasses(uint64_t tag, uint32_t own) const;

  // The file's tally; null: it has none. It may be another's by the time that it is locked.
  Tally* Find(uint64_t tag) const;
  // The same, and takes one for it if there is none: nobody's, or one of a file of which nothing is
  // pending in `pool`, whose checkpoint of write-through is `checkpoint`. Null: all are in use.
  Tally* FindOrTake(uint64_t tag, uint64_t pool, uint64_t checkpoint) const;

  // ---- The lock
  // What was locked: for Unlock() and IsOwn(). If the lock had to be taken away, the file is not
  // known any more.
  uint64_t Lock(Tally& tally) const;
  bool IsOwn(const Tally& tally, uint64_t lock) const { return tally.lock.load() == lock; }
  // False: the lock was taken away meanwhile. Then the caller counts as passing, by the one who has
  // taken it, until EndPassing().
  bool Unlock(Tally& tally, uint64_t lock) const;

  // ---- With the lock
  // Something may have gone past the log, or may be about to.
  static void Forget(Tally& tally) {
    tally.known.store(0);
    tally.exits.fetch_add(1);
  }
  static void Raise(std::atomic<uint64_t>& field, uint64_t lsn) {
    if (field.load() < lsn) field.store(lsn);
  }
  // Without the lock as well: a group may count in recovery, or come.
  static bool IsPending(const Tally& tally, uint64_t checkpoint) {
    const uint64_t lsn = tally.lsn.load();
    return lsn >= checkpoint && lsn >= tally.settled.load();
  }

 private:
  uint64_t Own(uint64_t seen) const;
  bool IsStale(uint64_t lock) const;
  bool TryLock(Tally& tally, uint64_t* lock) const;
  bool TakeAway(Tally& tally, uint64_t seen, uint64_t* lock) const;
  std::atomic<uint16_t>& Count(uint32_t slot, uint64_t tag) const;

  Leases& leases_;
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_TALLY_H_
