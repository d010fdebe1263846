// SPDX-License-Identifier: BSD-3-Clause
//
// The file that the processes of a user share (format.h), and which of them has which slot in it.
// A lock on one byte of the file tells that the slot's owner lives (leases.h).
#ifndef NVCACHE_LEASE_SLOTS_H_
#define NVCACHE_LEASE_SLOTS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/lease/format.h"
#include "src/sys/lock.h"

namespace nvcache::lease {

inline constexpr const char* kFolder = "/dev/shm";

// What a process uses of its own slot all the time. One that has none, or no page in it, has lost
// one that nobody has.
struct OwnSlot {
  static constexpr sys::Word kNobodys{0};

  InFlightCounts* counts = nullptr;
  const sys::Word* life_now = &kNobodys;
  uint32_t life = 1;

  bool IsLost() const { return life_now->load(std::memory_order_relaxed) != life; }
};

class Slots {
 public:
  constexpr Slots() = default;
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  // Opens the user's file in `folder`, made when missing (shared_file.h), and takes a slot. False,
  // and why in a few words: then nothing may be cached. Closing any descriptor of the file gives a
  // process's record locks up; see Relock.
  bool Open(const char* folder, const char** why);
  // Gives the slot back, with all that is marked in it. No responder waits any more.
  void Close();
  // In a child of fork, which has the parent's mapping but neither its slot nor its responder:
  // takes a slot, in which nothing is marked. False as for Open; then it is closed.
  bool AfterForkInChild(const char** why);
  // A child of fork has no slot, for as long as it asks and marks nothing.
  void LeaveSlotToParent() {
    reaping_.Reset();  // a thread of the parent may have had them
    saying_.Reset();
    slot_ = kMaxProcesses;
    own_ = {};
    said_.store(0);
  }

  bool is_open() const { return shared_ != nullptr; }
  // Names this process's life among all that ever had a slot of the file; never 0.
  uint64_t life() const { return uint64_t{slot_} << 32 | life_; }
  // The process with that life has given its slot back, or somebody has found it dead.
  bool IsOver(uint64_t life) const;
  int fd() const { return fd_; }
  // The program may have opened the file, too. After it has closed such a descriptor: Relock.
  // False: the slot is lost, or our own descriptor is.
  bool IsOwnFile(uint64_t device, uint64_t inode) const {
    return is_open() && device == device_ && inode == inode_;
  }
  bool Relock();
  // Our descriptor gets another number, from `from` on, if there is one. The old one stays open: it
  // is the program's, or to be closed. Then Relock.
  void Renumber(int from);
  // For `nvcache status`: what hinders this process in its use of a pool, whose file has the tag
  // `pool`. `detail` may be empty. True the first time. Any thread, with any lock.
  bool Say(Hindrance hindrance, uint64_t pool, const char* detail);
  bool HasSaid(Hindrance hindrance) const {
    return (said_.load(std::memory_order_relaxed) >> static_cast<uint32_t>(hindrance) & 1) != 0;
  }

  // Somebody took this process for dead. Nothing that it holds is protected any more: all files
  // have to pass through. The calls below do no harm; TryExclusive fails.
  bool lost() const { return shared_->slots[slot_].life.load() != life_; }

  const OwnSlot& own() const { return own_; }
  // FileTable::Find() looks there first.
  const std::atomic<uint8_t>& TaggedAt(uint64_t tag) const {
    return shared_->tagged[tag % kFileEntries];
  }

  // How many processes were found dead that held something, ever. The files that they held stood in
  // a log only: when the number has changed since the log's state was last looked at, look again,
  // before a file that IsExclusiveElsewhere or AwaitRelease gave free is read from the kernel.
  uint32_t deaths() const;
  // One has died, and is not counted yet.
  bool HasDeadOwner() const;

 protected:
  // F_RDLCK, F_WRLCK or F_UNLCK, of a byte of the file. Not waited for.
  bool SetLock(off_t byte, short type) const;
  // Another process has a lock there, for reading or writing.
  bool IsLockedElsewhere(off_t byte) const;
  // The byte of the entries' table (FileTable::Join).
  bool LockTable(short type);
  bool Sound() const;

  FirstPage& FirstPageOf(const Slot& slot) const;
  bool GivePages(Slot& slot, uint32_t level, uint32_t limit);
  static void ClearLines(void* at, size_t bytes);
  bool Reap(uint32_t slot);
  uint32_t mark() const;
  bool InUse(uint32_t slot) const;
  // Its process has died; the next process that meets it may free it.
  bool IsDead(uint32_t slot) const;

  Shared* shared_ = nullptr;
  uint32_t slot_ = kMaxProcesses;
  uint32_t life_ = 0;  // the slot's, since it is ours

 private:
  OwnSlot own_;

  bool OpenFile(const char* folder, const char** why);
  bool Claim(const char** why);
  bool Back(size_t offset, size_t bytes) const;
  bool BackLine(uint32_t slot);
  void Take(uint32_t slot);
  void Clear(Slot& slot);
  void Forget();
  bool Lock(uint32_t slot) const;
  void Unlock(uint32_t slot) const;
  bool IsFile(int fd) const;
  bool BuryLocked(uint32_t slot);
  void Bury(Slot& slot);
  uint32_t Sweep();
  void RaiseMark();
  void LowerMark();

  int fd_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  // Record locks do not tell the threads of a process apart.
  sys::Mutex<sys::Rank::kReaping> reaping_;
  sys::Mutex<sys::Rank::kSaying> saying_;
  std::atomic<uint32_t> said_{0};  // our Hindrances have the same
  bool has_table_ = false;         // its byte is locked
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_SLOTS_H_
