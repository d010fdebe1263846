// SPDX-License-Identifier: BSD-3-Clause
//
// A call that changes the bytes of a file is made in attempts. Each enters the file (access.h), and
// ends with what the call does next, when no lock is held any more: either the call is over, or
// it mends something (mend.h) and makes another attempt.
#ifndef NVCACHE_VFS_ENGINE_ATTEMPT_H_
#define NVCACHE_VFS_ENGINE_ATTEMPT_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "src/nvlog/file_tag.h"
#include "src/sys/check.h"

namespace nvcache::vfs {

// A write as the program has made it.
struct WriteCall {
  int fd;
  const iovec* iov;  // a copy
  int count;
  const off_t* offset;  // null: at the description's
  int flags;            // RWF_*
};

// The call's next step, and how much of the call is done by then ("a part": perhaps).
//
//   next          who says so, and why                          so far    what DoWrite does
//   kDone         every attempt in the end: Attempt::End.       any       answers
//                 Settle and AppendMark: nothing is amiss
//   kPassThrough  TryCached, Settle: the disk has no room,      nothing   the kernel gets the file
//                 or the log must not have the bytes, or                  for good, and the call
//                 it has no room for an unknown time
//   kGrow         TryCached: the file grows                     nothing   takes the grow lock, too
//   kWarmUp       TryWrite: the kernel's file is hot            nothing   WarmUp
//   kSync         MayLog: a record awaits a sync of the file    nothing   SyncBarrier
//   kHandle       AppendGroups: the log is full, and a signal   nothing   lets the handler run
//                 waits
//   kTrim         PageCache: no page descriptor is left         nothing   waits for the cleanup
//                                                                         thread to free some
//   kJoin         WriteThrough: the pool is not attached, or     a part    JoinThrough
//                 the process is idle in it
//   kSettle       WriteThrough: the file is not known, and a     a part    SettleThrough
//                 sync is promised
//   kAwaitRoom    WriteThrough: the log is full. (AppendGroups   a part    AwaitRoom
//                 waits itself, with the file entered)
//   kBypass       WriteThrough: the log cannot have the rest     a part    has the kernel write the
//                                                                         rest, past the log
//
// A step may be in vain. Then kPassThrough is taken in place of kSync and kTrim, and kBypass in
// place of kJoin, kSettle and kAwaitRoom. Ftruncate cuts a write-through file with the same steps:
// kJoin, kAwaitRoom and kBypass.
//
// The loop ends: a step is taken MostTimes() times at most, unless it waits for somebody else each
// time.
// clang-format off
enum class [[nodiscard]] Next : uint8_t {
  kDone, kPassThrough, kGrow, kWarmUp, kSync, kHandle, kTrim, kJoin, kSettle, kAwaitRoom, kBypass,
};
// clang-format on
inline constexpr size_t kSteps = static_cast<size_t>(Next::kBypass) + 1;

// 0: as often as there is something to wait for. Two steps may be undone by another thread: they
// are in vain after so many.
constexpr uint32_t MostTimes(Next next) {
  switch (next) {
    case Next::kHandle:
    case Next::kTrim:
    case Next::kAwaitRoom:
      return 0;
    case Next::kSync:
    case Next::kJoin:
      return 100;
    default:
      return 1;
  }
}

// A part of the call may have been done.
constexpr bool MayComeLater(Next next) {
  return next == Next::kJoin || next == Next::kSettle || next == Next::kAwaitRoom ||
         next == Next::kBypass;
}

// The step after an append: kUndeclared and kBadBuffer are its caller's.
constexpr Next NextOf(nvlog::Outcome outcome) {
  switch (outcome) {
    case nvlog::Outcome::kDone:
      return Next::kDone;
    case nvlog::Outcome::kLogFull:
      return Next::kAwaitRoom;
    case nvlog::Outcome::kNoDescriptors:
      return Next::kTrim;
    case nvlog::Outcome::kUndeclared:
    case nvlog::Outcome::kBadBuffer:
      break;
  }
  NVCACHE_CHECK(false);
}

// A call keeps here what it has come to, over all of its attempts.
struct Attempt {
  uint64_t done = 0;           // bytes that are in the log
  long result = 0;             // the kernel's, of those after them; or a negated errno, kNotOurs
  bool promises_sync = false;  // a write does
  bool unlogged = false;       // a part of what was done is in no log: the file has to be settled
  uint8_t times[kSteps] = {};  // that a step was taken

  Next End(long with) {
    result = with;
    return Next::kDone;
  }
  long Answer() const {
    const auto bytes = static_cast<long>(done);
    return result > 0 ? bytes + result : bytes > 0 ? bytes : result;
  }

  bool Took(Next next) const { return times[static_cast<size_t>(next)] > 0; }
  void Take(Next next) {
    NVCACHE_CHECK(done == 0 || MayComeLater(next));
    const uint32_t most = MostTimes(next);
    if (most == 0) return;
    NVCACHE_CHECK(times[static_cast<size_t>(next)] < most);
    ++times[static_cast<size_t>(next)];
  }
  bool IsUndoneAgainAndAgain(Next next) const {
    const uint32_t most = MostTimes(next);
    return most > 1 && times[static_cast<size_t>(next)] == most;
  }
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_ATTEMPT_H_
