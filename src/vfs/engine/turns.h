// SPDX-License-Identifier: BSD-3-Clause
//
// Turns: what locks tell of programs without NVCache (docs/write-through.md). No lease shows such a
// program. But one that uses the same files as this process, and wants them whole, takes a lock
// first, and a process that lets go of a lock says: now somebody else may look, and write.
//
//   at the end of a turn         each file that was written in it: its entry keeps how it is
//   at the first write or sync   a file that is not as it was left was changed meanwhile. Nothing
//   of the next turn             of it is known, and if nobody of us has done it, then a program
//                                without NVCache has. From then on the process logs nothing, of
//                                no file: for that program makes, writes and removes the journal of
//                                a database by the same turns
//
// A lock that is held for a life ends no turn. Files in a process that never lets go of one cost a
// comparison of two numbers at each write. Cached files have no turns: nobody outside uses them.
#ifndef NVCACHE_VFS_ENGINE_TURNS_H_
#define NVCACHE_VFS_ENGINE_TURNS_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "src/lease/file_table.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

class Turns {
 public:
  constexpr Turns() = default;

  // A program without NVCache was seen to take turns with it: it logs nothing any more, neither
  // writes nor names.
  bool with_outsider() const { return with_outsider_.load(std::memory_order_relaxed); }
  // A lock is about to be let go of. Table lock.
  void End();

  // The file was neither written nor synced in this turn.
  bool IsNews(const File& file) const {
    return file.turn.load(std::memory_order_relaxed) != turn_.load(std::memory_order_relaxed);
  }
  // So it is looked at, before that happens by the descriptor. `in_flight`: so many calls of the
  // caller's are in flight for it. File lock, shared.
  void Look(File& file, int fd, lease::FileEntry& entry, uint32_t in_flight);
  // The file is opened, none of us has it open, and it is not as it was left. Table lock.
  void LookAtOpened(const lease::FileEntry& entry, const struct stat& st);

 private:
  static bool WasWrittenOutside(const File& file, int fd, const lease::FileEntry& entry,
                                uint32_t in_flight, bool* changed);
  void NoteOutsider();
  void Keep(File& file);
  void List(File& file);

  std::atomic<uint64_t> turn_{0};
  std::atomic<bool> with_outsider_{false};  // for the rest of the process's life
  std::atomic<File*> listed_{nullptr};      // written or synced in this turn
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_TURNS_H_
