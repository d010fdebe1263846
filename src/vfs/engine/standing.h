// SPDX-License-Identifier: BSD-3-Clause
//
// How the process stands, as all parts of the engine may ask: whose engine it is, whether it sleeps
// as a child of fork, who shares its memory, and whether it has the rights that it began with. What
// becomes of the engine when that changes is in process.h.
#ifndef NVCACHE_VFS_ENGINE_STANDING_H_
#define NVCACHE_VFS_ENGINE_STANDING_H_

#include <atomic>
#include <cstdint>

#include "src/sys/credentials.h"
#include "src/sys/root.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Table lock, where nothing else is said.
class Standing {
 public:
  constexpr Standing() = default;

  void Begin();
  // Not a child that shares our memory, nor one that was forked where we could not see.
  bool IsOurs() const;

  // A child of fork begins as a process of its own, and sleeps.
  void BecomeChild();
  bool asleep() const { return asleep_.load(std::memory_order_relaxed); }
  void WakeUp() { asleep_.store(false); }
  // A description that was there at a fork is the child's as well. Forks are counted, so that
  // nothing is done for each description. Any thread.
  uint32_t forks() const { return forks_.load(std::memory_order_relaxed); }
  bool IsForked(const Description& description) const {
    return description.forks.load(std::memory_order_relaxed) != forks();
  }
  void NoteFork() { forks_.fetch_add(1); }
  // Leases::hand_ons() at the fork that made files kForeign, or the last one. A page written after
  // a fork costs a fault.
  uint32_t hand_ons() const { return hand_ons_; }
  void NoteHandOns(uint32_t hand_ons) {
    if (hand_ons_ != hand_ons) hand_ons_ = hand_ons;
  }

  // The program has made a thread that libc knows nothing of (Host::is_single).
  void NoteThread() { has_clones_.store(true, std::memory_order_relaxed); }
  bool has_clones() const { return has_clones_.load(std::memory_order_relaxed); }

  // Around the life of a child of vfork: no file becomes cached.
  void BeginSharing() { children_.fetch_add(1); }
  void EndSharing() { children_.fetch_sub(1); }  // no lock
  // Around exec, which ends what other threads of ours have begun: nothing becomes cached between.
  void BeginReplacing() {
    if (IsOurs()) ++replacing_;
  }
  void EndReplacing() {
    if (IsOurs()) --replacing_;
  }
  // Exec is under way.
  bool IsReplaced() const { return replacing_ > 0; }
  // No file may become cached just now.
  bool replacing() const { return IsReplaced() || children_.load() > 0; }

  // Around a call that may take rights from the process; no lock in the second.
  void BeginRights() {
    rights_.Take();
    rights_changing_.fetch_add(1);
  }
  void RightsChanged() { rights_changing_.fetch_sub(1); }
  bool HasItsRights() { return rights_.AreCurrent(); }
  void NoteFreeze() { ++freezes_; }
  void EndFreeze() {
    if (freezes_ > 0) --freezes_;
  }
  // No freeze, no change of rights, and the thread has those that the process began with.
  bool MayMapPool();

  // Recovery, which runs at the machine's root, finds the folders that this process names: by their
  // paths, or, for a root in a chroot, by their handles. Any thread, in all three.
  bool MayLogNames() const {
    return !lacks_names() && (sys::AtMachineRoot() || sys::IsWholeRoot());
  }
  // It may not: its files are hot later.
  void NoteLackOfNames() { lacks_names_.store(true, std::memory_order_relaxed); }
  bool lacks_names() const { return lacks_names_.load(std::memory_order_relaxed); }

 private:
  long pid_ = 0;  // the process's whose engine it is
  std::atomic<uint32_t> forks_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> lacks_names_{false};
  std::atomic<bool> has_clones_{false};
  uint32_t hand_ons_ = 0;
  uint32_t replacing_ = 0;                    // threads in exec
  std::atomic<uint32_t> children_{0};         // that share our memory
  std::atomic<uint32_t> rights_changing_{0};  // calls that may take some are under way
  uint32_t freezes_ = 0;                      // file systems that this program keeps frozen
  sys::Credentials rights_;                   // at the first change
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_STANDING_H_
