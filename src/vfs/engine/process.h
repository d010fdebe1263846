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

#include <cstdint>

#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Table lock, where nothing else is said.
class Process {
 public:
  constexpr Process() = default;

  // Around fork, the second in the child alone.
  void PrepareFork();
  void BecomeChild();
  void Wake();
  // In a child that shares its parent's descriptors. No lock.
  static void LeaveInChild();

  // Before a child of vfork lives, until Standing::EndSharing. It says no if a file is cached.
  bool BeginSharing();
  // Around exec.
  static void BeginReplacing();
  static void EndReplacing();

  // Before a call that may take rights from the process, until Standing::RightsChanged. In between
  // no pool is mapped, whatever the disk says, and none is attached; afterwards only by a thread
  // with the rights that the process began with.
  void PrepareRights();
  // Everything is given back, and no file becomes cached before as many freezes have ended. 0, or
  // the error of a file that stays cached, and the pool with it.
  long BeginFreeze();
  // No filter of system calls is in the way of the cache's; else one line says so. Before all that
  // libc would not do, too.
  static bool MayCallKernel();
  // Its names may not be in the log (Standing::MayLogNames): it says so, once.
  static void LackNames();

 private:
  void LeaveToParent();
  void ShareAgain();
  void NoteHandOns();

  bool any_foreign_ = false;  // a file is kForeign, or was
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_PROCESS_H_
