// SPDX-License-Identifier: BSD-3-Clause
//
// The leases say which process uses which file: so that a file is cached by at most one (I11).
//
// The processes of one user that run under NVCache share one small file in memory. Each has a slot
// in it, and in its slot a cell for each file that it uses, by a hash of (device, inode): whether
// it has the file for itself. Only the owner writes its cells; the others read them. So an open
// costs one store and a look at each process that lives.
//
//   every file that is used      AddUser ... RemoveUser
//   before it may be cached      TryExclusive; true: nobody else uses it, and later ones see it
//   it is in another's cache     IsExclusiveElsewhere, after AddUser; then AwaitRelease, and pass
//   through its bytes alone are needed   AwaitPublish: the other writes them to the kernel and
//   stays holder
//
// The holder has a thread, the responder, that serves those who ask: WaitForRequest, Answered.
//
// A program that is started may know nothing of us, and have got a descriptor for writing: HandOn.
// It leaves no trace by which its end could be seen. So a process that uses the file just then
// remembers it, until it does not use the file any more.
//
// A process that shares and then looks for a holder, and one that excludes and then looks for
// users, cannot miss each other: each puts its mark before it looks. Two that exclude at once both
// fail, or one does. Files whose hashes collide are taken for one: they pass through where they
// need not, no more. So do files for which a process finds no room.
//
// A process may die at any instruction. That a slot is alive is a record lock on one byte of the
// file, which the kernel drops with the process, and at exec. The lock is looked at only when the
// slot's marks stand in the way, and the next process that meets a dead slot frees it. Being slow
// is not being dead: a process that is stopped keeps its marks.
//
// Not seen are other users, other mount namespaces, and processes without NVCache.
//
// Threads: TryExclusive, Downgrade and RemoveUser exclude each other by a lock of the caller, and
// AddUser them but for a child of vfork, which takes no locks: it may call AddUser and HandOn, and
// ask. The other calls may come at any time between Open and Close. AwaitRelease and AwaitPublish
// sleep: not with a lock that a responder, even of another process, might need to get on.
#ifndef NVCACHE_LEASE_LEASES_H_
#define NVCACHE_LEASE_LEASES_H_

#include <atomic>
#include <cstdint>

#include "src/lease/slots.h"

namespace nvcache::lease {

// For how long an asker takes a holder's silence for work: then it looks whether the holder lives.
inline constexpr uint64_t kAliveCheckInterval = 50000000;  // ns

// Requests of others to a holder.
struct Request {
  bool stop = false;     // StopWaiting was called; nothing else is said
  bool release = false;  // let go of each file held exclusively that IsUsedElsewhere()
  bool asked = true;     // false: Nudge was called; nothing else is said
  // Write to the kernel what it does not have of each file held exclusively for which this is true.
  bool Publish(uint64_t device, uint64_t inode) const;

  // For Answered.
  uint32_t release_ticket = 0;
  uint32_t publish_ticket = 0;
  uint32_t publish_file = 0;
};

class Leases : public Slots {
 public:
  constexpr Leases() = default;
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // They call Slots::Open() and Slots::AfterForkInChild().
  bool Open(const char* folder, const char** why);
  bool AfterForkInChild(const char** why);

  // ---- A file, from its first open to its last close
  void AddUser(uint64_t device, uint64_t inode);
  // Takes a shared file for this process alone. False: another process uses it, or might.
  bool TryExclusive(uint64_t device, uint64_t inode);
  void Downgrade(uint64_t device, uint64_t inode);  // exclusive -> shared
  void RemoveUser(uint64_t device, uint64_t inode, bool was_exclusive);

  // Another process has the file for itself.
  bool IsExclusiveElsewhere(uint64_t device, uint64_t inode);
  // Another process uses the file.
  bool IsUsedElsewhere(uint64_t device, uint64_t inode);

  // ---- Programs that are started
  // Before one may get a descriptor of the file that can write. Also in a child that has no slot.
  void HandOn(uint64_t device, uint64_t inode);
  // It happened while a process used the file that still does; while this one did; of some file.
  bool IsHandedOn(uint64_t device, uint64_t inode);
  bool RemembersHandOn(uint64_t device, uint64_t inode) const;
  bool RemembersHandOns() const;
  // Marks a file that this process uses as if it had used it when the file was handed on. Or this
  // process writes to the file where no log has that, for as long as it uses the file.
  void MarkHandedOn(uint64_t device, uint64_t inode);
  // How often it happened. A child of fork has the descriptors from the fork on, and marks later:
  // it keeps the number of that time, first of all, and asks when its marks are there.
  uint32_t hand_ons() const;
  bool HandedOnSince(uint32_t hand_ons) const;

  // ---- Objects (src/rawcall/verdicts.h): kVerdicts words, at first zero. While it is open.
  std::atomic<uint64_t>* verdicts() const;

  // ---- Asking. False: the time is over, or the holder cannot let go.
  // The file is shared by the caller, so that nobody can take it afterwards.
  bool AwaitRelease(uint64_t device, uint64_t inode, uint64_t timeout_ns);
  bool AwaitPublish(uint64_t device, uint64_t inode, uint64_t timeout_ns);

  // ---- Answering
  // For the responder alone: sleeps until something is asked, also if that was before.
  Request WaitForRequest();
  // The responder is to look after its own process's affairs. Any thread.
  void Nudge();
  // Every process's responder is to look after its affairs.
  void NudgeAll();
  // All of the request was seen to, if something was asked. Those who asked for a file that is held
  // still are refused; those who asked for publication wait, unless all of it was `published`,
  // until somebody asks again.
  void Answered(const Request& request, bool published = true);
  // The responder's wait ends, now and for good: until StartWaiting, for another responder.
  void StopWaiting();
  void StartWaiting() { stopping_.store(false); }

 private:
  friend class FileTable;

  void BeginKeeping();
  Bucket& BucketOf(const Slot& slot, uint32_t level, uint64_t tag) const;
  bool HasMark(const Slot& slot, uint64_t tag, uint32_t mask) const;
  static void Mark(Slot& slot, std::atomic<uint32_t>& cell, uint64_t tag);
  void MarkIn(Slot& slot, uint64_t tag) const;
  uint32_t Marked(uint32_t slot, uint64_t tag, uint32_t mask);
  bool Uses(uint32_t slot, uint64_t tag);
  bool MarkedElsewhere(uint64_t tag, uint32_t mask);
  // It is one of the caller's cells.
  std::atomic<uint32_t>* FindCell(uint64_t tag, bool (*is_right)(uint32_t cell)) const;
  bool CountUser(uint64_t tag);
  bool AddCell(uint64_t tag);
  bool AddLevel();
  bool IsCrowded(uint64_t tag) const;

  // The responder's.
  std::atomic<bool> stopping_{false};
  uint32_t publish_served_ = 0;
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_LEASES_H_
