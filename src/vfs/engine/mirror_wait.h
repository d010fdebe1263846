// SPDX-License-Identifier: BSD-3-Clause
//
// How a call waits for the pool's mirror before it returns (docs/mirror.md: M1, and the table of
// states there). mirror.h has the pool's words.
#ifndef NVCACHE_VFS_ENGINE_MIRROR_WAIT_H_
#define NVCACHE_VFS_ENGINE_MIRROR_WAIT_H_

#include <errno.h>

#include <cstdint>

#include "src/pool/mirror_words.h"

namespace nvcache::vfs {

// One call's wait. All that the call has stored in the pool was stored before. It holds nothing
// between two steps, so a signal may be let in there, and the handler may never return.
class MirrorWait {
 public:
  explicit MirrorWait(const pool::MirrorWords& words) : words_(words) {}

  enum class Step {
    kDone,  // the call may say that it has succeeded
    kSync,  // bring to the disk what the call promises, without the help of the log; then Synced(),
            // or the call fails
    kSleep,  // Sleep(), and ask again
    kFail,   // the call fails: EIO
  };
  Step Next();
  void Synced() { synced_in_ = advised_in_; }
  // Until something has changed since Next(), or a signal waits for the thread to leave the engine.
  void Sleep() const;

 private:
  Step AwaitImages(uint32_t state);

  const pool::MirrorWords& words_;
  uint32_t seen_ = 0;  // the turn, before Next() has looked
  // States in which a sync was asked for, and was done; none: kMirrorNone.
  uint32_t advised_in_ = pool::kMirrorNone;
  uint32_t synced_in_ = pool::kMirrorNone;
  pool::Lsn drawn_ = 0;  // the images have to be above it; 0: not known
};

// One output's wait (docs/output.md), of the same kind: until the images have what
// was told before it began, or the disk has, and the images count no more.
class OutputWait {
 public:
  using Step = MirrorWait::Step;

  explicit OutputWait(const pool::MirrorWords& words) : words_(words), told_(words.told()) {}

  Step Next();
  void Synced() {}
  void Sleep() const;

 private:
  const pool::MirrorWords& words_;
  const pool::Lsn told_;
  uint32_t seen_ = 0;
  bool rung_ = false;
};

// `sync()` is what kSync asks for: 0, or a negative errno. `goes_on()` is asked after each sleep;
// signals may be let in there. Returns 0, where the call may succeed or `goes_on()` has said no; or
// a negative errno: what sync() has returned, or EIO.
// `lead()`: where the images are a journal on this machine's disk (docs/disk.md), it brings one
// forward, and a sleep is not needed; false: somebody else does.
template <typename Wait = MirrorWait, typename Sync, typename GoesOn, typename Lead>
long AwaitMirror(const pool::MirrorWords& words, Sync sync, GoesOn goes_on, Lead lead) {
  Wait wait(words);
  for (;;) {
    switch (wait.Next()) {
      case MirrorWait::Step::kDone:
        return 0;
      case MirrorWait::Step::kSync:
        if (const long error = sync(); error < 0) return error;
        wait.Synced();
        break;
      case MirrorWait::Step::kSleep:
        if (!lead()) wait.Sleep();
        if (!goes_on()) return 0;
        break;
      case MirrorWait::Step::kFail:
        return -EIO;
    }
  }
}

template <typename Sync, typename GoesOn>
long AwaitMirror(const pool::MirrorWords& words, Sync sync, GoesOn goes_on) {
  return AwaitMirror(words, sync, goes_on, [] { return false; });
}

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_MIRROR_WAIT_H_
