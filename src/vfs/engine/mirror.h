// SPDX-License-Identifier: BSD-3-Clause
//
// The words between the process and its pool's mirror (docs/mirror.md), if the pool is mirrored.
// They are mapped for themselves: a process that has not attached the pool, has given it back, or
// is a child of fork waits as well.
//
//            Follow, of a mirrored pool          Close(true), or Follow of one that is not
//   kOwn ------------------------------> words ---------------------------------------> kOwn
//                                          |  Close(false)
//                                          +-------------> lost: every wait fails with EIO
//
// A pool with a journal on a disk (docs/disk.md) is mirrored by that alone: who waits and finds
// nobody at it writes it, by descriptors and a mapping of this object's own.
//
// The words lie at one address for the process's whole life. In place of words that are closed
// there is memory that nobody writes to. So a thread that waits needs no lock and no pin: it looks
// whether the words are still those that it began with, as with a sequence lock, and does not rely
// on them otherwise.
#ifndef NVCACHE_VFS_ENGINE_MIRROR_H_
#define NVCACHE_VFS_ENGINE_MIRROR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/pool/journal.h"
#include "src/pool/mirror_words.h"
#include "src/pool/superblock.h"
#include "src/pool/view.h"
#include "src/sys/lock.h"
#include "src/sys/text.h"

namespace nvcache::vfs {

class Mirror {
 public:
  // It tells `track` which numbers of descriptors it has, and has no more.
  using Track = void (*)(int fd, bool ours);
  // It calls `wake` when a call is told, if the thread that keeps it ahead no longer than it may
  // sleeps.
  using Wake = void (*)();
  constexpr Mirror(Track track, Wake wake) : track_(track), wake_(wake) {}

  // The calls that wait: pool::kCommit*. Any thread.
  uint32_t commit() const { return commit_.load(std::memory_order_relaxed); }

  // The process uses the pool at `path` from now on, which has this id and commit. False: it is
  // mirrored, and its words cannot be had. Table lock.
  bool Follow(const char* path, uint64_t id, uint32_t commit);
  // Nothing of a pool is mapped here when it returns. `kept`: all that calls have promised is kept
  // without waiting. Table lock.
  void Close(bool kept);

  // Waits until a call whose own work is done may return. `sync(argument)`: what kSync asks for
  // (mirror_wait.h); 0 or a negated errno. 0; what sync() has returned; or -EIO: the mirror has
  // failed, or the words are lost. No lock; a handler of the program's may run, and never return.
  long Await(long (*sync)(int), int argument);

  // The end of a call that promises durability. With commit at output it is told that it has
  // succeeded, if that may be (docs/output.md); else as Await().
  long Promise(long (*sync)(int), int argument);
  // Some call was told so, of whatever process, and the images lack what it covers. One load and a
  // branch where the pool's commit is another one.
  bool IsTold() const {
    if (commit() != pool::kCommitOutput) [[likely]]
      return false;
    pool::View view;
    view.base = place_.load(std::memory_order_relaxed);
    return pool::MirrorWords(view).IsTold();
  }
  // Before something leaves the program that somebody could take for a sign that such a call has
  // returned. 0, or -EIO: the call must fail. As Await().
  long AwaitOutput(pool::Output output);
  // The same for a file that the engine is about to write, with its locks held: only while the
  // images count.
  void AwaitTold() {
    if (IsTold()) [[unlikely]]
      AwaitToldNow();
  }
  // To be called again after so many ns: it brings what was told to the images when that has been
  // ahead of them for as long as it may. kForever: `wake` comes before that; `everywhere`: or the
  // bell of the checkpointer, for the calls of all processes.
  uint64_t KeepAhead(bool everywhere);
  // From now on outputs of the process are not seen: no call is told any more.
  void StopTelling() { tells_.store(false); }
  bool tells() const { return tells_.load() && commit() == pool::kCommitOutput; }
  void SetAhead(uint64_t ns) { ahead_ns_ = ns; }

  // The journal's descriptor, if there is one; and what gives it another number, for the program
  // wants this one. Table lock.
  int journal_fd() const { return journal_.fd(); }
  void RenumberJournal();
  // In a child of fork, which is one more process that writes the journal. Table lock.
  void BecomeChild();
  // A child that shared our memory has ended, and may have been killed while it wrote the journal.
  void EndSharing();

 private:
  // Devdax maps pieces of this size. A pool may be shorter; the words are in it.
  static constexpr size_t kMapped = 2u << 20;

  static long MapWords(int named, bool has_journal);
  long AwaitBy(long (*sync)(int), int argument, bool is_output);
  bool Tell();
  void AwaitToldNow();
  bool Open(const char* path, uint64_t id);
  bool OpenJournal(const char* path, int named);
  void CloseJournal();
  bool ReopenJournal(const char* path);
  pool::JournalLeader::Outcome LeadHere();
  pool::JournalLeader::Outcome Lead(uint32_t generation);
  void GiveUp(uint32_t generation);
  void SayWaiting(uint64_t since);

  std::atomic<uint32_t> commit_{pool::kCommitOwn};
  std::atomic<uint32_t> generation_{0};  // counts when a change of the following begins and ends
  std::atomic<uint8_t*> place_{nullptr};
  std::atomic<uint64_t> id_{0};  // the pool's whose words lie there; 0: none do
  std::atomic<bool> said_{false};
  std::atomic<bool> tells_{true};
  uint64_t ahead_ns_ = 0;
  std::atomic<pool::Lsn> kept_{0};  // told, when KeepAhead() looked
  std::atomic<bool> keeper_sleeps_{false};

  // Of who leads, and of who opens and closes it.
  sys::MutexWord lead_lock_;
  const Track track_;
  const Wake wake_;
  sys::Text<512> path_;
  pool::Journal journal_;
  bool inherited_ = false;                 // its locks are the parent's
  std::atomic<bool> led_by_child_{false};  // that shares our memory
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_MIRROR_H_
