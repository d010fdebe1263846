// SPDX-License-Identifier: BSD-3-Clause
//
// A pool: opening, creating and checking it; its state and its checkpoint. Holds what recovery
// needs and no more.
#ifndef NVCACHE_POOL_POOL_H_
#define NVCACHE_POOL_POOL_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "src/pmem/persist.h"
#include "src/pmem/region.h"
#include "src/pool/checkpoint.h"
#include "src/pool/format.h"
#include "src/pool/journal.h"
#include "src/pool/problem.h"
#include "src/pool/seats.h"
#include "src/pool/view.h"
#include "src/sys/text.h"

namespace nvcache::pool {

struct CreateOptions {
  uint64_t size = 0;     // bytes; rounded down to a whole page
  bool emulate = false;  // accept memory that is not persistent, as for a mirrored pool
  uint32_t commit = kCommitOwn;
};

enum class Mode {
  kShared,     // for use, by processes of the pool's owner: Join()
  kExclusive,  // nobody else uses the pool; for use and for recovery. Only for the pool's owner
  kRecovery,   // the same, but root may have another user's pool: with that user's rights
  kInspect,    // read-only and not locked: contents may change while they are read
  kSalvage,    // like kInspect; state and checkpoint may be damaged
};

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Makes a pool at `path`, mode 0600, all blocks allocated. Never overwrites: an existing file is
  // an error (a devdax device is initialised, all of it, unless it holds a pool, damaged or not).
  static bool Create(const char* path, const CreateOptions& options, const pmem::Libpmem* libpmem,
                     Problem* problem);

  // `size`; or half of what the process's control groups, or /dev/shm, have left of memory, if that
  // is less and a pool at `path` would take it from there: all of it, when its memory is made.
  static uint64_t SizeWithin(const char* path, uint64_t size, bool emulate);

  // The first bytes of its uuid, while it is open.
  uint64_t id() const;

  // Opens and checks. Fails, unless the pool is only looked at, when another user owns it or may
  // write to it, and, unless `emulate` or mirrored, when the mapping is not persistent memory.
  // kExclusive fails when another process uses the pool, kShared when another one has it
  // kExclusive.
  bool Open(const char* path, Mode mode, bool emulate, const pmem::Libpmem* libpmem,
            Problem* problem);
  // Unlocks and unmaps, if it is open. The state on the medium stays as it is, and so does the
  // seat: unless it was given up, it is an orphan.
  void Close();

  // ---- Seats (seats.h). Open() has left the gate locked.
  // No other process uses the pool: it may be recovered, as if it were open kExclusive. Until
  // Join().
  bool alone() const { return alone_; }
  // kShared: takes a seat and unlocks the gate. False: there is none (EUSERS), a dead process has
  // left what could not be brought to the files (EUCLEAN), or the gate is somebody else's by now,
  // or all have died meanwhile (EBUSY: open it again). If alone, the pool is clean.
  bool Join(Problem* problem);
  // Before this process hands a file over (nvlog::Kind::kHandedOver): recovery has to look for
  // that. Durable when it returns. One thread at a time.
  void MarkHandsOver();
  bool MayHaveHandedOver() const;

  // kExclusive: the first one. MarkInUse() does it, too.
  void TakeFirstSeat();
  // Gives up the seat, of whose logs nothing is pending. If nobody else has one, the pool is clean.
  // `left`: but for groups of write-through, and what was handed over, of which the kernel has all;
  // then the pool is not clean yet. Else the header is durable when it returns.
  void Leave(bool left = false);
  // kShared, with a seat or without: the logs of a dead process, to be replayed by the caller, for
  // which Settle() comes next; kNoSeat: there are none, or they are somebody else's to replay.
  // Unlocks the gate.
  uint32_t Adopt();
  void Settle(uint32_t seat, bool resolved);
  uint32_t seat() const { return seat_; }
  const Seats& seats() const { return seats_; }

  bool is_open() const { return view_.base != nullptr; }
  const View& view() const { return view_; }
  const char* path() const { return path_.c_str(); }
  pmem::Durability durability() const { return region_.durability; }
  // The file's that is mapped.
  uint64_t device() const { return device_; }
  uint64_t inode() const { return inode_; }
  // The pool's own files, which are never cached: that one, and its journal.
  bool IsFile(const struct stat& st) const {
    return (st.st_dev == device_ && st.st_ino == inode_) || HasName(st);
  }
  // The one that path() names.
  bool HasName(const struct stat& st) const {
    return st.st_dev == named_device_ && st.st_ino == named_inode_;
  }
  // It is memory with a journal on a disk (docs/disk.md).
  bool has_journal() const { return has_journal_; }
  JournalControl& journal() const { return JournalMemory(view_.base, size()).control(); }
  Journal& own_journal() { return journal_; }
  uint32_t owner() const { return owner_; }  // the pool's own file's
  uint64_t size() const { return superblock_.pool_size; }
  bool is_device() const { return is_device_; }
  bool others_may_write() const { return (mode_ & (S_IWGRP | S_IWOTH)) != 0; }
  int fd() const { return fd_; }
  // The program wants the descriptor's number: it gets another.
  void Renumber();

  // Pending records may be there: the last user did not close it.
  bool dirty() const;
  // One of the two superblocks is.
  bool superblock_damaged() const;

  // The pool was made from its journal: no group from there on is to be believed, and after
  // BelieveAll() there is none. 0: all are.
  Lsn cut() const { return has_journal_ ? Peek(journal().cut) : 0; }
  void BelieveAll();

  // kExclusive, or alone.
  void MarkInUse();  // takes the first seat; durable before any commit is
  void MarkClean();  // durable when it returns, with all that was stored to the header before
  // Superblocks and checkpoint records, from those that are whole. MarkInUse does it, too.
  void Repair();
  // I5: both records, one after the other. Called before a segment below it is used again. Never
  // goes back. Durable before anything is that is stored to the pool later.
  void StoreCheckpoint(Lsn checkpoint, pmem::Step step = pmem::Step::kCheckpoint,
                       pmem::Step durable = pmem::Step::kCheckpointDurable);
  // Stores the own seat's, for the threads that append to its logs: as StoreCheckpoint.
  void StoreSeatCheckpoint(Lsn checkpoint) { StoreSeatCheckpoint(seat_, checkpoint); }
  void AwaitHeader() const;  // it is durable: before anybody is told that something is on the disk
  // Stores that of write-through, for all seats; durable when it returns. One process at a time
  // does it: Seats::LockThroughStore(). And the seats in `left`, which were left before the
  // checkpoint was read, and still are, are free: nothing in their logs counts any more, whichever
  // of their segments is used again first.
  void StoreThroughCheckpoint(Lsn checkpoint, const Seats::LeftSeats& left = {});
  // The records that count for such logs have it. It moves at any time.
  Lsn through_checkpoint() const { return seats_.through(); }
  // The kernel that runs now is the one that ran when the pool came into use: so it has what
  // processes have written, unless a sync has failed since.
  bool IsSameBoot() const;
  // The records that count for the own logs have it.
  Lsn checkpoint() const { return checkpoint_.load(std::memory_order_relaxed); }

 private:
  bool OpenFile(Mode mode, Problem* problem);
  bool OpenJournaled(Mode mode, Problem* problem);
  bool MapFile(Mode mode, bool emulate, const pmem::Libpmem* libpmem, Problem* problem);
  bool CheckOwner(Mode mode, Problem* problem) const;
  void ChooseSuperblock(const SuperblockBytes& bytes, const Superblock& copy);
  bool CheckSuperblock(uint64_t size, Problem* problem) const;
  bool CheckContents(Problem* problem);
  bool LockForUse(Mode mode, Problem* problem);
  bool InUse(Problem* problem) const;
  uint32_t AnyUser() const;
  void SecureSeen();
  bool TakeSeat();
  void StoreBoth(uint32_t whose, Lsn checkpoint, pmem::Step step = pmem::Step::kCheckpoint,
                 pmem::Step durable = pmem::Step::kCheckpointDurable);
  void StoreSeatCheckpoint(uint32_t seat, Lsn checkpoint);
  bool HasThrough(uint32_t seat) const;

  View view_;
  pmem::Region region_;
  const pmem::Libpmem* libpmem_ = nullptr;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t named_device_ = 0;
  uint64_t named_inode_ = 0;
  uint32_t owner_ = 0;
  uint32_t mode_ = 0;
  int fd_ = -1;
  void* lock_page_ = nullptr;  // mapped
  Seats seats_;
  uint32_t seat_ = kNoSeat;
  bool alone_ = false;
  bool publishes_ = false;  // this process has said so, with this seat
  bool is_device_ = false;
  bool has_journal_ = false;
  Journal journal_;
  std::atomic<Lsn> checkpoint_{0};
  Superblock superblock_ = {};  // checked copy: a later flip in the mapping cannot move our bounds
  sys::Text<512> path_;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_POOL_H_
