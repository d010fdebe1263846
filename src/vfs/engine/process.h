// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's fate when the process becomes two, another program, or one with fewer
// rights.
//
// A child of fork has a copy of its parent's engine, and sleeps until it uses a file: most never
// do. LockTable() wakes it, and so does Access. Then the files in the parent's cache are kForeign,
// and its pool, log and threads are the parent's alone.
#ifndef NVCACHE_VFS_ENGINE_PROCESS_H_
#define NVCACHE_VFS_ENGINE_PROCESS_H_

#include <atomic>
#include <cstdint>

#include "src/sys/credentials.h"
#include "src/sys/root.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Table lock, where nothing else is said.
class Process {
 public:
  constexpr Process() = default;

  void Begin();
  // Not a child that shares our memory, nor one that was forked where we could not see.
  bool IsOurs() const;

  // Around fork, the second in the child alone.
  void PrepareFork();
  void BecomeChild();
  bool asleep() const { return asleep_.load(std::memory_order_relaxed); }
  void Wake();
  // A description that was there at a fork is the child's as well. Forks are counted, so that
  // nothing is done for each description. Any thread.
  uint32_t forks() const { return forks_.load(std::memory_order_relaxed); }
  bool IsForked(const Description& description) const {
    return description.forks.load(std::memory_order_relaxed) != forks();
  }
  void NoteFork() { forks_.fetch_add(1); }
  // A file that was the parent's is ours to use, as other processes are told.
  void ShareInherited(File& file);
  // In a child that shares its parent's descriptors. No lock.
  static void LeaveInChild();

  // Around the life of a child of vfork: no file becomes cached. The first says no if one is.
  bool BeginSharing();
  void EndSharing() { children_.fetch_sub(1); }  // no lock
  // Around exec, which ends what other threads of ours have begun: nothing becomes cached between.
  void BeginReplacing();
  void EndReplacing();
  // Exec is under way.
  bool IsReplaced() const { return replacing_ > 0; }
  // No file may become cached just now.
  bool replacing() const { return IsReplaced() || children_.load() > 0; }

  // Around a call that may take rights from the process; no lock in the second. In between no pool
  // is mapped, whatever the disk says, and none is attached; afterwards only by a thread with the
  // rights that the process began with.
  void PrepareRights();
  void RightsChanged() { rights_changing_.fetch_sub(1); }
  // Everything is given back, and no file becomes cached before as many freezes have ended. 0, or
  // the error of a file that stays cached, and the pool with it.
  long BeginFreeze();
  void EndFreeze() {
    if (freezes_ > 0) --freezes_;
  }
  // No freeze, no change of rights, and the thread has those that the process began with.
  bool MayMapPool();
  // No filter of system calls is in the way of the cache's; else one line says so. Before all that
  // libc would not do, too.
  static bool MayCallKernel();
  bool HasItsRights() { return rights_.AreCurrent(); }
  // Recovery, which runs at the machine's root, finds the folders that this process names: by their
  // paths, or, for a root in a chroot, by their handles. Any thread, in all three.
  bool MayLogNames() const {
    return !lacks_names() && (sys::AtMachineRoot() || sys::IsWholeRoot());
  }
  // It may not: it says so, once, and its files are hot later.
  void LackNames();
  bool lacks_names() const { return lacks_names_.load(std::memory_order_relaxed); }

 private:
  void LeaveToParent();
  void ShareAgain();
  void NoteHandOns();

  long pid_ = 0;  // the process's whose engine it is
  std::atomic<uint32_t> forks_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> lacks_names_{false};
  bool any_foreign_ = false;                  // a file is kForeign, or was
  uint32_t hand_ons_ = 0;                     // Leases::hand_ons() at the fork that made it so, or
                                              // the last one
  uint32_t replacing_ = 0;                    // threads in exec
  std::atomic<uint32_t> children_{0};         // that share our memory
  std::atomic<uint32_t> rights_changing_{0};  // calls that may take some are under way
  uint32_t freezes_ = 0;                      // file systems that this program keeps frozen
  sys::Credentials rights_;                   // at the first change
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_PROCESS_H_
