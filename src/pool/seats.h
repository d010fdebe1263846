// SPDX-License-Identifier: BSD-3-Clause
//
// The state that the processes share which use a pool: the counter of LSNs, which process has which
// seat, and which seat has which segment. It lies in the pool and is volatile: recovery does not
// look at it, and a process that finds the pool unused clears it.
//
//   gate    a flock on the pool's file. Seats are taken, given up and handed on by its holder;
//           so is the state. Recovery has it, for as long as it lasts
//   life    each process holds a lock on a byte of the file, through the open file that its mapping
//           keeps: the kernel drops it when the process is gone, however it died
//
// clang-format off
//   from             to          by                who, and when
//   free             taken       Take()            who comes: the life byte first, then the state
//   taken            free        Give()            its owner, with all its segments
//   taken, replayed  replayed    Adopt()           its life byte is free: who had it has died
//   replayed         free        Settle()          the adopter: the files have all of its logs
//   replayed         unresolved  Settle()          the adopter: something could not be brought
//   taken, replayed  left        Give(), Settle()  as to `free`, but for its logs of write-through
//   left             free        FreeLeft()        the checkpoint of write-through has passed these
// clang-format on
//
// A process that is stopped is not dead: it keeps its seat, its logs and their groups.
//
// The checkpointer (src/vfs/checkpointer.h) has a lock on a byte of its own, seat or not.
#ifndef NVCACHE_POOL_SEATS_H_
#define NVCACHE_POOL_SEATS_H_

#include <atomic>
#include <cstdint>

#include "src/pool/byte_locks.h"
#include "src/pool/format.h"
#include "src/pool/segment_owners.h"
#include "src/sys/words.h"

namespace nvcache::pool {

inline constexpr uint32_t kNoSeat = ~uint32_t{0};

class Seats : public SegmentOwners {
 public:
  // The pool is mapped at `base` and has so many seats and segments. `fd`: its file.
  void Open(uint8_t* base, uint32_t seats, uint32_t segments, int fd);

  // ---- The gate. False: somebody else has it for longer than `patience_ns`, or the file is gone.
  bool LockGate(uint64_t patience_ns) const;
  void UnlockGate() const;

  // ---- Any time
  // The fate of a seat that Adopt() has returned: free, with all its segments, or unresolved.
  // `left`: not free yet, for it has segments of write-through.
  void Settle(uint32_t seat, bool resolved, bool left = false);
  // Some process has a seat, and lives.
  bool AnybodyLives() const { return IsLocked(0, kMaxSeats); }
  // A process has the seat, or brings its logs to the files.
  bool Lives(uint32_t seat) const { return IsLocked(seat, 1); }
  // Its process has died, and no other one has read its logs to the end.
  bool IsOrphan(uint32_t seat) const;
  // Besides `own`, whose byte the kernel does not report as locked to its owner.
  bool HasOrphans(uint32_t own) const;
  bool HasUnresolved() const { return Load(shared().has_unresolved) != 0; }
  // The process's life among the leases.
  void NoteLease(uint32_t seat, uint64_t lease) const { Store(At(seat).lease, lease); }
  void NoteRule(uint32_t seat, uint32_t rule) const { Store(ConductOf(seat).rule, rule); }
  uint64_t LeaseOf(uint32_t seat) const { return Load(At(seat).lease); }
  // An orphan is being brought to the files, by another process than that of `own`.
  bool IsReplaying(uint32_t own) const;
  uint32_t State(uint32_t seat) const { return Load(At(seat).state); }
  uint32_t end() const { return Load(shared().seats_end); }
  uint32_t count() const { return seats_; }
  // A process has files in its cache, or had when it died.
  bool AnybodyCaches() const;
  Seat& At(uint32_t seat) const { return reinterpret_cast<Seat*>(base_ + kSeatsOffset)[seat]; }
  Conduct& ConductOf(uint32_t seat) const {
    return reinterpret_cast<Conduct*>(base_ + kConductOffset)[seat];
  }

  // ---- With the gate
  // Nobody lives: all is free. LSNs go on from `next`; the checkpoint of write-through is
  // `through`.
  void Clear(Lsn next, Lsn through);
  // The lowest free one, whose byte is locked from now on; kNoSeat: all are taken.
  uint32_t Take();
  // With all its segments. Its byte is free, too: a process that comes does not take the seat's
  // process for a user.
  void Give(uint32_t seat, bool left = false);
  // An orphan that is not unresolved becomes the caller's to replay. kNoSeat: there is none.
  uint32_t Adopt(uint32_t own);
  // Somebody else has a seat, dead or alive.
  bool OthersHaveSeats(uint32_t own) const;
  // The same, but for the checkpointer, which has no log.
  bool IsShared(uint32_t own) const;

  // ---- LSNs (src/nvlog/log.h)
  std::atomic<Lsn>& next_lsn() const {
    static_assert(sizeof(std::atomic<Lsn>) == sizeof(Lsn));
    return *reinterpret_cast<std::atomic<Lsn>*>(&shared().next);
  }

  // ---- Write-through (docs/write-through.md)
  // Its checkpoint, for all seats; the holder of the lock stores it when it is durable.
  Lsn through() const { return Load(shared().through); }
  void SetThrough(Lsn checkpoint) const;
  uint64_t through_moved() const { return Load(shared().through_moved); }
  // errno of the first sync that has failed; then that checkpoint stays until a recovery. 0: none.
  int ThroughFailed() const { return static_cast<int>(Load(shared().through_failed)); }
  void SetThroughFailed(int error) const;
  uint64_t through_failed_at() const { return Load(shared().through_failed_at); }
  // The one file system whose files may be write-through; the first process to ask sets it. A
  // process that asks has said since when (or kComing), and so has it for as long.
  bool TakeThroughDevice(uint64_t device) const;
  // There may be another one, if no process has that; asked by one that has it no more.
  void ReleaseThroughDevice(uint32_t own) const;
  uint64_t through_device() const { return Load(shared().through_device); }
  // The process moves the checkpoint, with a descriptor of that file system, since this LSN; 0: it
  // has none. Or it will have one; is idle, and has no thread that does so; or is about to end.
  static constexpr Lsn kComing = ~Lsn{0}, kIdle = kComing - 1, kGoing = kIdle - 1;
  void NoteThroughSince(uint32_t seat, Lsn lsn) const { Store(ThroughSince(seat), lsn); }
  // Others than that of `own` have a descriptor of it, or had when they died.
  bool OthersHaveThrough(uint32_t own) const;
  // One of them lives, and moves the checkpoint.
  bool SomebodyStaysThrough(uint32_t own) const;
  // The seats that are left now, and since which LSN (0: not left). One that is left still, and was
  // not taken meanwhile, is free once a checkpoint was stored that was read after that
  // (Pool::StoreThroughCheckpoint).
  struct LeftSeats {
    Lsn since[kMaxSeats];
  };
  void FindLeft(LeftSeats* seats) const;
  uint32_t CountLeft() const;
  // One of them for so long.
  bool IsLeftFor(uint64_t ns) const;
  // A process that has a seat has begun to log after `from`, and up to `to`: real-time ns.
  bool HasThroughBetween(uint64_t from, uint64_t to) const;
  bool IsStillLeft(uint32_t seat, const LeftSeats& seats) const {
    return seats.since[seat] != 0 && State(seat) == kSeatLeft &&
           Load(ThroughSince(seat)) == seats.since[seat];
  }
  void FreeLeft(uint32_t seat) const;
  // Two locks, of the process, not of a thread; the kernel gives them back when it is gone. The
  // process that moves the checkpoint has the first while it syncs, and the second while it stores.
  // False: the second is somebody else's for longer.
  bool TryLockThrough() const { return LockByte(kThroughByte); }
  void UnlockThrough() const { UnlockByte(kThroughByte); }
  bool LockThroughStore(uint64_t patience_ns) const;
  void UnlockThroughStore() const { UnlockByte(kThroughStoreByte); }

  // ---- The checkpointer
  bool HasCheckpointer() const { return IsLocked(kCheckpointerByte, 1); }
  uint32_t checkpointer() const { return Load(shared().checkpointer) - uint32_t{1}; }
  // Its seat from now on, or kNoSeat.
  void SetCheckpointer(uint32_t seat) const;
  // It has died, if it had that seat.
  void ForgetCheckpointer(uint32_t seat) const;
  // If there is one, it has a descriptor of the file system of write-through files, or cannot have
  // one, or `patience_ns` are over.
  void AwaitCheckpointer(uint64_t patience_ns) const;
  // The other side of this.
  uint32_t bell() const { return Load(shared().bell); }
  void AwaitBell(uint32_t seen, uint64_t timeout_ns) const;
  void Answer(uint32_t answer) const;
  uint32_t answer() const { return Load(shared().answer); }
  // Others want it to use the pool not at all, or to bring all to the disk now. It is told by
  // Wake().
  bool MustKeepOff() const { return IsLocked(kKeepOffByte, 1); }
  bool MustHurry() const { return IsLocked(kHurryByte, 1); }
  void WakeCheckpointer() const;

  // Segments: so many as writers of all processes leave (src/nvlog/segments.h).
  uint32_t Reserve(uint32_t own) const;

 private:
  SharedState& shared() const { return *reinterpret_cast<SharedState*>(base_ + kSharedOffset); }
  Lsn& ThroughSince(uint32_t seat) const {
    return reinterpret_cast<Lsn*>(base_ + kThroughSinceOffset)[seat];
  }
  template <typename Integer>
  static Integer Load(const Integer& field) {
    return std::atomic_ref(const_cast<Integer&>(field)).load(std::memory_order_seq_cst);
  }
  template <typename Integer>
  static void Store(Integer& field, Integer value) {
    std::atomic_ref(field).store(value, std::memory_order_seq_cst);
  }
  void NoteLeft(uint32_t seat) const;
  bool IsLocked(uint32_t first, uint32_t count) const { return AreBytesHeld(fd_, first, count); }
  bool LockByte(uint32_t byte) const { return HoldByte(fd_, byte, false); }
  void UnlockByte(uint32_t byte) const { ReleaseByte(fd_, byte); }

  uint8_t* base_ = nullptr;
  uint32_t seats_ = 0;
  int fd_ = -1;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_SEATS_H_
