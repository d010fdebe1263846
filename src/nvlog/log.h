// SPDX-License-Identifier: BSD-3-Clause
//
// The circular log while it is in use: places are taken at the head, groups are committed, the
// cleanup thread frees at the tail. What an entry looks like is in entry.h.
//
// Invariants
//   tail <= head <= tail + log_units; writers leave the reserve, which is the cleanup thread's.
//   [tail, head) holds whole groups, each committed, abandoned, or being written by the thread that
//   took it.
//   The order of positions is the order of all writes (I3).
//   The durable tail (Pool::StoreTail) reaches p before a place below p is taken again (I5).
#ifndef NVCACHE_NVLOG_LOG_H_
#define NVCACHE_NVLOG_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/nvlog/entry.h"
#include "src/pmem/persist.h"
#include "src/pool/pool.h"
#include "src/sys/lock.h"

namespace nvcache::nvlog {

// The payload of one entry: within one page of one file.
struct Piece {
  uint64_t offset;       // bytes, in the file
  const uint8_t* bytes;  // perhaps the program's: not there, or changing. Read once
  uint32_t length;       // 1 to kPageSize
  uint32_t file;         // slot
  uint32_t incarnation;
  Position previous;        // the page's pending entry before this one
  uint8_t* copy = nullptr;  // where the same bytes go besides
};

class Log {
 public:
  // Begins at the tail of a clean pool. `pool` outlives the log.
  void Open(pool::Pool* pool);

  // ---- Writers

  // Takes `units` consecutive units. kNoPosition if they are not free. I3: the caller holds the
  // locks of all pages that it will write there, and commits, abandons or dies.
  Position TryTake(uint64_t units) { return Take(units, writable_units()); }

  // Sleeps until something was freed after `seen`; without page locks. Whoever has no lock at all
  // may sleep beyond the pool's end: AnnounceRoom() comes after it. If `for_signals`, also until a
  // signal waits for the thread to leave the engine.
  uint32_t RoomSeen() const { return room_.Value(); }
  void WaitForRoom(uint32_t seen, bool for_signals = false);

  // The longest group that always finds room sooner or later.
  uint64_t max_group_units() const { return max_group_units_; }

  // ---- Reading entries. Valid while the entry is pending: between tail and head.

  const EntryHeader& At(Position position) const {
    return *reinterpret_cast<const EntryHeader*>(UnitAddress(position));
  }
  bool IsCommitted(Position position) const;
  // If the group at `position` was abandoned, its units; else 0.
  uint64_t AbandonedUnits(Position position) const;
  // Copies [skip, skip + n) of the payload.
  void Payload(Position position, size_t skip, size_t n, uint8_t* out) const;
  // The payload where it lies, if it lies in one piece; else nullptr.
  const uint8_t* PayloadInPlace(Position position) const;

  // ---- The cleanup thread

  // As TryTake, the reserve included, which has room for one group of any size: so it can always
  // append the oldest group once more, and then free the old one.
  Position TakeReserve(uint64_t units) { return Take(units, units_); }
  // What writers can fill.
  uint64_t writable_units() const { return units_ - max_group_units_; }

  Position head() const { return head_.load(std::memory_order_seq_cst); }
  Position tail() const { return tail_.load(std::memory_order_acquire); }

  // Makes [tail, position) free: durably first (I5), then for writers. Between the two nobody can
  // take these places, and `before_reuse` may still look at their entries.
  template <typename Function>
  void Free(Position position, Function before_reuse) {
    pool_->StoreTail(position);
    before_reuse();
    Release(position);
  }

  // Sleeps until a commit has reached `alarm`, somebody called Ring() after BellSeen() returned
  // `seen`, or the time is over.
  uint32_t BellSeen() const { return bell_.Value(); }
  void Sleep(uint32_t seen, Position alarm, uint64_t timeout_ns);
  void Ring() { bell_.Signal(); }
  // A writer sleeps in WaitForRoom.
  bool Hurried() const { return waiters_.load(std::memory_order_seq_cst) > 0; }
  // Wakes the writers to try again: something else than room in the log was freed, or the pool is
  // not there any more.
  void AnnounceRoom() { room_.Signal(); }
  // Maps memory ahead of the head, once, so that writers do not take page faults: the more, the
  // more of the log has been used. One step of it; true if there is more to do.
  bool Prefault();

  pool::Statistics* statistics() const { return pool_->view().statistics(); }
  uint64_t log_units() const { return units_; }
  // The lap in which this use of the pool began.
  uint64_t first_lap() const { return first_ / units_; }

 private:
  friend class GroupWriter;

  Position Take(uint64_t units, uint64_t limit);
  uint8_t* UnitAddress(Position position) const {
    return base_ + position % units_ * pool::kUnitSize;
  }
  bool CopyIn(Position position, const Piece& piece, uint32_t* crc);
  void StoreHeader(const EntryHeader& header, pmem::Step step);
  uint32_t ThreadBack(Position position) const;
  void NoteDurable(Position position);
  void Committed(Position end);
  void Release(Position position);

  pool::Pool* pool_ = nullptr;
  uint8_t* base_ = nullptr;
  uint64_t units_ = 0;
  uint64_t salt_ = 0;
  uint64_t max_group_units_ = 0;
  uint64_t use_ = 0;         // tells this use of the pool from all others of the process
  Position first_ = 0;       // the tail when the log was opened
  Position prefaulted_ = 0;  // the cleanup thread's

  // Apart, because different threads write them.
  alignas(pmem::kLine) std::atomic<Position> head_{0};
  alignas(pmem::kLine) std::atomic<Position> tail_{0};
  std::atomic<Position> alarm_{kNoPosition};
  std::atomic<uint32_t> waiters_{0};
  sys::Event room_;  // something was freed
  sys::Event bell_;  // there is work
};

// Writes one group into a place that was taken for it. Nothing of it counts before Commit(); after
// Commit() all of it is durable (I1, I2, I4).
class GroupWriter {
 public:
  // `place` was taken with the sum of EntryUnits of `count` pieces.
  GroupWriter(Log& log, Position place, uint32_t count)
      : log_(log), first_(place), next_(place), count_(count) {
    pmem::FetchForWriting(log.UnitAddress(place));
  }

  // The pieces in ascending order of offset. Returns the entry's position; kNoPosition if a byte
  // cannot be read: then the group must be abandoned, and `piece.copy` holds anything.
  Position Add(const Piece& piece);
  void Commit();
  // Instead of Commit(), whatever was added: the place of `units` becomes a hole. To recovery it is
  // one that a dead writer left.
  void Abandon(uint64_t units);

 private:
  Log& log_;
  Position first_;
  Position next_;
  uint32_t count_;
  uint32_t index_ = 0;
  EntryHeader first_header_ = {};
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_LOG_H_
