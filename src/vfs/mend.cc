// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/mend.h"

#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/through.h"

namespace nvcache::vfs {

namespace {

// The cleanup thread takes back only what nobody uses, so the file must not be entered. The pool
// may be given back meanwhile, and then the file is the kernel's.
bool Trim(uint32_t room) {
  if (engine.cleaner.failing()) return false;
  engine.cleaner.RequestTrim();
  engine.log.WaitForRoom(room);
  return true;
}

// False: it was in vain.
bool TakeStep(Next next, int fd, uint32_t room) {
  switch (next) {
    case Next::kWarmUp:
      WarmUp(fd);
      return true;
    case Next::kSync:
      return SyncBarrier(fd);
    case Next::kTrim:
      return Trim(room);
    case Next::kJoin:
      return JoinThrough(fd);
    case Next::kSettle:
      return SettleThrough(fd) == 0;
    case Next::kAwaitRoom:
      return AwaitRoom(room);
    // The handler has run by now, and the write is as if it had begun after it. The kernel does not
    // let a handler end a write to a file, so nobody expects EINTR.
    case Next::kHandle:
    // The next attempt does these: it sees that they were taken.
    case Next::kGrow:
    case Next::kBypass:
    // The caller does these.
    case Next::kPassThrough:
    case Next::kDone:
      return true;
  }
  NVCACHE_CHECK(false);
}

Next InPlaceOf(Next next) {
  switch (next) {
    case Next::kSync:
    case Next::kTrim:
      return Next::kPassThrough;
    case Next::kJoin:
    case Next::kSettle:
    case Next::kAwaitRoom:
      return Next::kBypass;
    default:
      NVCACHE_CHECK(false);
  }
}

}  // namespace

Next Mend(Next next, int fd, uint32_t room, Attempt* attempt) {
  NVCACHE_CHECK(next != Next::kDone);
  if (attempt->IsUndoneAgainAndAgain(next) || !TakeStep(next, fd, room)) next = InPlaceOf(next);
  attempt->Take(next);
  return next;
}

}  // namespace nvcache::vfs
