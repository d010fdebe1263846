// SPDX-License-Identifier: BSD-3-Clause
//
// Files that are the kernel's, hot, and used by several processes: write-through
// (docs/write-through.md). Each has a tally among the leases (src/lease/tally.h), where all
// processes find it. What a call does that changes a file of the kernel's:
//
//   Passing            the process says so, before it looks for the tally
//   no tally           the kernel's call, and that is all
//   a tally            WriteShared: the kernel's call, and a record of it, under the tally's lock
//                      PastLog, and the kernel's call: where the log cannot have it
//
//   unknown --- SettleShared: a sync, a record of it, and nothing went past the log ---> known
//   known   --- a call past the log, or a lock that was taken away -------------------> unknown
//
// While a file is known, its fsync is nothing. A write to one that is not settles it first.
#ifndef NVCACHE_VFS_THROUGH_H_
#define NVCACHE_VFS_THROUGH_H_

#include "src/lease/tally.h"
#include "src/vfs/access.h"
#include "src/vfs/settle.h"
#include "src/vfs/write_call.h"

namespace nvcache::vfs {

// Beside those of settle.h. The file has to be settled first (SettleShared), without a lock.
inline constexpr long kUnknown = LONG_MIN + 10;
// The pool has to be attached first, which takes the table lock.
inline constexpr long kNeedsPool = LONG_MIN + 11;
// The log cannot have the call: it goes past it.
inline constexpr long kGoesPast = LONG_MIN + 12;

// Of a file with this tag, the process is at a call that is in no log. For as long as it lives.
class Passing {
 public:
  Passing() = default;
  ~Passing() { End(); }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

  // The file's tally, looked for afterwards; null: it has none.
  lease::Tally* Begin(const File& file);
  void End();
  uint64_t tag() const { return tag_; }

 private:
  uint64_t tag_ = 0;  // 0: it is not
};

// The tally of the descriptor's file; null: it has none, or is not the kernel's. No lock.
lease::Tally* TallyOf(int fd, uint64_t* tag);

// A hot file that the process cannot have for itself: it has a tally from now on. Table lock; the
// descriptor's file is the kernel's.
void BeginShared(File& file, int fd);
// The descriptor's file has a tally: attaches the pool, to use it. False: there is none. No lock.
bool JoinShared(int fd);
// The file is this process's alone, and about to be cached: it has no tally any more. False:
// something of it is pending. File lock, exclusive.
bool EndShared(const File& file);

// One attempt at a write of which `attempt->done` bytes are written; adds to these. The file's
// lock, shared; `passing` began with `tally`. 0: all of it is written; else what keeps the rest: one
// of the above, kLogFull, or an errno.
long WriteShared(Access& access, const WriteCall& call, uint64_t total, lease::Tally& tally,
                 Passing* passing, Attempt* attempt);

// A call that the kernel makes on a file of its own, and that is in no log. Until it is over, nobody
// begins to cache the file; and no process takes it for known.
class PastLog {
 public:
  // Leaves the file. `passing` began with it. Syncs the file if something is pending: or recovery
  // would undo the call.
  PastLog(int fd, Access& access, const Passing* passing);
  ~PastLog();
  PastLog(const PastLog&) = delete;
  PastLog& operator=(const PastLog&) = delete;

 private:
  const KernelCall at_work_;
  const uint64_t tag_;
};

// Syncs the descriptor's file, by that descriptor; what was pending is not, and the file is known if
// nothing goes past the log meanwhile. 0, or what the kernel says. kNotOurs: it has no tally. No
// lock.
long SettleShared(int fd);

// fsync of a file with a tally: 0, at once if it is known; or as SettleShared.
long SyncShared(int fd);

// Syncs the file system of all write-through files, and moves their checkpoint. False: it could not,
// or another process is at it. The cleanup thread, or whoever has ended that.
bool MoveThroughCheckpoint();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_THROUGH_H_
