// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's own descriptors, of which the program knows nothing: one for each file that is
// cached or may soon be (its backing), and those of the pool, the leases and the checkpoint. The
// program may take their numbers, and may close what it finds there.
#ifndef NVCACHE_VFS_ENGINE_OWN_DESCRIPTORS_H_
#define NVCACHE_VFS_ENGINE_OWN_DESCRIPTORS_H_

#include <cstdint>

#include "src/sys/lock.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Whether anybody holds an fcntl lock on the descriptor's file: perhaps this process. Also if that
// cannot be told.
bool IsLocked(int fd);
// Whether this process does, and would lose it by a close. A lock of its that lies behind one of
// another process's is not seen.
bool HoldsLock(int fd);

// Table lock, where nothing else is said.
class OwnDescriptors {
 public:
  constexpr OwnDescriptors() = default;

  // Closes a descriptor that the engine has opened of a file or folder of the program's; unless
  // that would drop fcntl locks: then it stays, and is none to the program. Any thread.
  static void Return(int fd);
  // A number is that of one of ours from now on, or is not any more. Any thread.
  static void Track(int fd, bool ours);
  // Opens the descriptor that the file will have if it becomes cached. The program has asked for no
  // fcntl lock on the file yet.
  void Prepare(File& file, int fd);
  // The one that was prepared, or one that can be closed again without harm. A negated errno.
  long ToBegin(const File& file, int fd);
  // Looks whether the file's descriptor is still its own, and opens it anew if not. 0, or -EBADF:
  // then nothing can be read or written. Any thread; no page locks.
  long Check(File& file);
  // After a sync that is under way.
  void Close(File& file);
  // The kernel has given the number of one of ours to the program.
  void Lost(int fd);
  // Takes one of ours elsewhere: the program wants the number. 0, or a negated errno.
  long Move(int fd);
  // Gives ours up until there are fewer than `before`. False: those that are left are needed.
  bool MakeRoom(uint32_t before);
  // In a child of fork.
  void ResetLock() { lock_.Reset(); }

 private:
  long Reopen(File& file);
  void Disown(File& file);
  bool MoveLeases();

  sys::Mutex<sys::Rank::kBacking> lock_;  // Check
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_OWN_DESCRIPTORS_H_
