// SPDX-License-Identifier: BSD-3-Clause
//
// Which process uses which file: so that a file is cached by at most one (I11).
//
// The processes of one user that run under NVCache share one small file in memory. Each has a slot
// in it, and in its slot a cell for each file that it uses, by a hash of (device, inode): whether
// it has the file for itself. Only the owner writes its cells; the others read them. So an open
// costs one store and a look at each process that lives.
//
//   every file that is used      Share ... Drop
//   before it may be cached      TryExclude; true: nobody else uses it, and who comes later, sees
//   it it is in another's cache     HeldElsewhere, after Share; then AwaitRelease, and pass through
//   its bytes alone are needed   AwaitPublish: the other writes them to the kernel and stays holder
//
// The holder has a thread, the keeper, that serves those who ask: WaitForRequest, Answered.
//
// A program that is started may know nothing of us, and have got a descriptor for writing: HandOn.
// It leaves no trace by which its end could be seen. So whoever uses the file just then remembers
// it, until it does not use the file any more.
//
// Who shares and then looks for a holder, and who excludes and then looks for users, cannot miss
// each other: each puts its mark before it looks. Two that exclude at once both fail, or one does.
// Files whose hashes collide are taken for one: they pass through where they need not, no more. So
// do files for which a process finds no room.
//
// A process may die at any instruction. That a slot is alive is a record lock on one byte of the
// file, which the kernel drops with the process, and at exec. The lock is looked at only when the
// slot's marks stand in the way, and a dead slot is freed by whoever meets it. Being slow is not
// being dead: a process that is stopped keeps its marks.
//
// Not seen are other users, other mount namespaces, and who runs without NVCache.
//
// Threads: TryExclude, Downgrade and Drop exclude each other by a lock of the caller, and Share
// them but for a child of vfork, which takes no locks: it may call Share and HandOn, and ask. The
// other calls may come at any time between Open and Close. AwaitRelease and AwaitPublish sleep: not
// with a lock that a keeper, even of another process, might need to get on.
#ifndef NVCACHE_LEASE_LEASES_H_
#define NVCACHE_LEASE_LEASES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/sys/lock.h"

namespace nvcache::lease {

inline constexpr const char* kFolder = "/dev/shm";
inline constexpr uint32_t kMaxProcesses = 4096;  // of one user, at a time

// For how long an asker takes a holder's silence for work: then it looks whether the holder lives.
inline constexpr uint64_t kAliveCheckInterval = 50000000;  // ns

struct Shared;  // the file
struct Slot;
struct Bucket;
struct FirstPage;

// What others ask of a holder.
struct Request {
  bool stop = false;     // StopWaiting was called; nothing else is said
  bool release = false;  // let go of each file held exclusively that is Wanted()
  bool asked = true;     // false: Nudge was called; nothing else is said
  // Write to the kernel what it does not have of each file held exclusively for which this is true.
  bool Publish(uint64_t device, uint64_t inode) const;

  // For Answered.
  uint32_t release_ticket = 0;
  uint32_t publish_ticket = 0;
  uint32_t publish_file = 0;
};

class Leases {
 public:
  constexpr Leases() = default;
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // Opens the user's file in `folder`, made when missing (election.h), and takes a slot. False, and
  // why in a few words: then nothing may be cached. Closing any descriptor of the file gives a
  // process's record locks up; see Relock.
  bool Open(const char* folder, const char** why);
  // Gives the slot back, with all that is marked in it. No keeper waits any more.
  void Close();
  // In a child of fork, which has the parent's mapping but neither its slot nor its keeper: takes a
  // slot, in which nothing is marked. False as for Open; then it is closed.
  bool AfterForkInChild(const char** why);
  // The same child, for as long as it asks and marks nothing: it has no slot.
  void LeaveSlotToParent() {
    reaping_.Reset();  // a thread of the parent may have had it
    slot_ = kMaxProcesses;
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
  // Somebody took this process for dead. Nothing that it holds is protected any more: all files
  // have to pass through. The calls below do no harm; TryExclude fails.
  bool lost() const;

  // ---- A file, from its first open to its last close
  void Share(uint64_t device, uint64_t inode);
  // Of a shared file: for this process alone. False: another process uses it, or might.
  bool TryExclude(uint64_t device, uint64_t inode);
  void Downgrade(uint64_t device, uint64_t inode);  // exclusive -> shared
  void Drop(uint64_t device, uint64_t inode, bool was_exclusive);

  // Another process has the file for itself.
  bool HeldElsewhere(uint64_t device, uint64_t inode);
  // Another process uses the file.
  bool Wanted(uint64_t device, uint64_t inode);

  // ---- Programs that are started
  // Before one may get a descriptor of the file that can write. Also in a child that has no slot.
  void HandOn(uint64_t device, uint64_t inode);
  // It happened while a process used the file that still does; while this one did; of some file.
  bool IsHandedOn(uint64_t device, uint64_t inode);
  bool RemembersHandOn(uint64_t device, uint64_t inode) const;
  bool RemembersHandOns() const;
  // Of a file that this process uses: as if it had been there. Or it writes itself where no log has
  // that, for as long as it uses the file.
  void MarkHandedOn(uint64_t device, uint64_t inode);
  // How often it happened. A child of fork has the descriptors from the fork on, and marks later:
  // it keeps the number of that time, first of all, and asks when its marks are there.
  uint32_t hand_ons() const;
  bool HandedOnSince(uint32_t hand_ons) const;

  // ---- Asking. False: the time is over, or the holder cannot let go.
  // The file is shared by the caller, so that nobody can take it afterwards.
  bool AwaitRelease(uint64_t device, uint64_t inode, uint64_t timeout_ns);
  bool AwaitPublish(uint64_t device, uint64_t inode, uint64_t timeout_ns);

  // ---- Answering
  // For the keeper alone: sleeps until something is asked, also if that was before.
  Request WaitForRequest();
  // The keeper is to look after its own process's affairs. Any thread.
  void Nudge();
  // The same of every process.
  void NudgeAll();
  // All of the request was seen to, if something was asked. Who asked for what is held still is
  // refused; those who asked for publication wait, unless all of it was `published`, until somebody
  // asks again.
  void Answered(const Request& request, bool published = true);
  // The keeper's wait ends, now and for good: until StartWaiting, for another keeper.
  void StopWaiting();
  void StartWaiting() { stopping_.store(false); }

  // How many processes were found dead that held something, ever. What they held, stood in a log
  // only: when the number has changed since the log's state was last looked at, look again, before
  // what HeldElsewhere or AwaitRelease gave free is read from the kernel.
  uint32_t deaths() const;
  // One has died, and is not counted yet.
  bool HasDeadOwner() const;

 private:
  friend class Tallies;

  bool OpenFile(const char* folder, const char** why);
  bool Claim(const char** why);
  bool Back(size_t offset, size_t bytes) const;
  bool BackLine(uint32_t slot);
  bool GivePages(Slot& slot, uint32_t level, uint32_t limit);
  void Take(uint32_t slot);
  void Clear(Slot& slot);
  void Forget();

  // F_RDLCK, F_WRLCK or F_UNLCK, of a byte of the file. Not waited for.
  bool SetLock(off_t byte, short type) const;
  // Another process has a lock there, for reading or writing.
  bool IsLockedElsewhere(off_t byte) const;
  // The byte of the tallies' table (Tallies::Join).
  bool LockTable(short type);
  bool Lock(uint32_t slot) const;
  void Unlock(uint32_t slot) const;
  bool Sound() const;
  bool IsFile(int fd) const;

  FirstPage& FirstPageOf(const Slot& slot) const;
  Bucket& BucketOf(const Slot& slot, uint32_t level, uint64_t tag) const;
  bool HasMark(const Slot& slot, uint64_t tag, uint32_t mask) const;
  static void Mark(Slot& slot, std::atomic<uint32_t>& cell, uint64_t tag);
  void MarkIn(Slot& slot, uint64_t tag) const;
  uint32_t Marked(uint32_t slot, uint64_t tag, uint32_t mask);
  bool Uses(uint32_t slot, uint64_t tag);
  bool MarkedElsewhere(uint64_t tag, uint32_t mask);
  bool Reap(uint32_t slot);
  bool BuryLocked(uint32_t slot);
  void Bury(Slot& slot);
  void Sweep();
  void RaiseMark();
  void LowerMark();
  uint32_t mark() const;
  bool InUse(uint32_t slot) const;
  // Its process has died; whoever meets it next may free it.
  bool IsDead(uint32_t slot) const;
  // Of the caller's cells.
  std::atomic<uint32_t>* FindCell(uint64_t tag, bool (*is_right)(uint32_t cell)) const;
  bool CountUser(uint64_t tag);
  bool AddCell(uint64_t tag);
  bool AddLevel();
  bool IsCrowded(uint64_t tag) const;

  Shared* shared_ = nullptr;
  int fd_ = -1;
  uint32_t slot_ = kMaxProcesses;
  uint32_t life_ = 0;  // of the slot, since it is ours
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  // Record locks do not tell the threads of a process apart.
  sys::Mutex<sys::Rank::kReaping> reaping_;
  bool has_table_ = false;  // its byte is locked
  // The keeper's.
  std::atomic<bool> stopping_{false};
  uint32_t release_served_ = 0;
  uint32_t publish_served_ = 0;
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_LEASES_H_
