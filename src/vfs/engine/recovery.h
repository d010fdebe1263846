// SPDX-License-Identifier: BSD-3-Clause
//
// Groups that dead processes left in the pool go to the files before anybody looks at them:
// before the first file call, before the pool is attached, and whenever another process is found to
// have died. There is one way to do that, AdoptDead; the callers differ in what they hold.
#ifndef NVCACHE_VFS_ENGINE_RECOVERY_H_
#define NVCACHE_VFS_ENGINE_RECOVERY_H_

#include <atomic>
#include <cstdint>

#include "src/pool/pool.h"
#include "src/replay/replay.h"
#include "src/sys/lock.h"

namespace nvcache::vfs {

class Recovery {
 public:
  constexpr Recovery() = default;

  // The pool can be looked at without being taken: a mistake in the settings shows at once, and a
  // pool that a dead process left is recovered. If another process does so just now, that is waited
  // for. Table lock, and nothing attached. False: the pool cannot be used; a line says why.
  bool BeforeUse();
  // A thread with a stack of its own does it.
  bool BeforeUseOnOwnStack();
  // The pool is open, and may be attached: brings what the dead have left in it to the files, and
  // waits for the kernel, and for other processes that do so, for so long, and at most for what is
  // long enough. True: all was applied that is whole. Groups that stay are for `nvcache recover`.
  // Table lock.
  bool AdoptDead(uint64_t patience_ns = sys::kForever);
  // The text that says why some stay.
  const char* WhyLeft() const;

  // When a process has died: the pool may have what the files lack. No lock.
  void NoticeDeaths();
  // Table lock.
  void LookAfterDeaths();
  // A child that shares our memory calls it.
  bool LookAfterDeathsInCopy();
  // Somebody has died that had files in its cache, and the pool was not looked at since.
  bool KnowsOfDeaths() const;
  // From here on.
  void BeginToNoticeDeaths();

 private:
  enum class Outcome { kDone, kFailed, kByAnother, kLater };
  enum class Found { kNothing, kToRecover, kRecovering, kDying, kNoPool };
  Outcome RecoverOnce();
  Found Inspect();
  Found FoundIn(const pool::Pool& pool) const;
  Outcome RecoverWhole();
  bool Replay(bool (*replay)(pool::Pool& pool, replay::Summary* summary));
  bool SomebodyDies(const pool::Seats& seats) const;
  void TellOfDead(bool resolved);
  void RefuseUnresolved(bool clean);

  replay::Summary recovered_ = {};
  bool has_table_ = true;                 // the last replay had one of its own
  std::atomic<uint32_t> deaths_seen_{0};  // other processes'; the pool was looked at since
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_RECOVERY_H_
