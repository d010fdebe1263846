// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/mirror_wait.h"

#include "src/sys/deferral.h"

namespace nvcache::vfs {

namespace {

// A signal ends a sleep, unless it comes just before: then this does.
constexpr uint64_t kLookNs = 50 * 1000 * 1000;

}  // namespace

// The turn first: what changes after it was read ends the sleep.
MirrorWait::Step MirrorWait::Next() {
  seen_ = words_.turn();
  const uint32_t state = words_.state();
  switch (state) {
    case pool::kMirrorNone:
    case pool::kMirrorLeaving:
      return Step::kSleep;
    case pool::kMirrorReal:
      if (synced_in_ == pool::kMirrorReal) return Step::kDone;
      advised_in_ = state;
      return Step::kSync;
    case pool::kMirrorJoining:
      if (synced_in_ != pool::kMirrorJoining) {
        // An LSN that was drawn before is below those that the disk is about to get.
        drawn_ = 0;
        advised_in_ = state;
        return Step::kSync;
      }
      return AwaitImages(state);
    case pool::kMirrorMirrored:
      return AwaitImages(state);
    default:
      return Step::kFail;
  }
}

// LSNs go back when everybody has left the pool, and somebody finds it unused: what was drawn
// before may be reached very late, and a new one is as good.
//
// The state is looked at once more after the position: this one may have been reached when the
// images counted no more.
MirrorWait::Step MirrorWait::AwaitImages(uint32_t state) {
  if (drawn_ == 0 || words_.next() <= drawn_) {
    drawn_ = words_.Draw();
    words_.RingBell();
  }
  if (words_.mirrored() <= drawn_) return Step::kSleep;
  const uint32_t now = words_.state();
  const bool counts =
      now == state || (state == pool::kMirrorJoining && now == pool::kMirrorMirrored);
  return counts ? Step::kDone : Step::kSleep;
}

void MirrorWait::Sleep() const {
  if (!sys::SignalWaits()) words_.AwaitTurn(seen_, kLookNs);
}

// In the state `real` the disk has what was told before: that is when the state is reached.
// `joining` comes behind it. Words that were cleared meanwhile are those of a pool whose files have
// all of it.
OutputWait::Step OutputWait::Next() {
  seen_ = words_.turn();
  switch (words_.state()) {
    case pool::kMirrorNone:
    case pool::kMirrorReal:
    case pool::kMirrorJoining:
      return Step::kDone;
    case pool::kMirrorMirrored:
      if (words_.mirrored() >= told_ || words_.told() < told_) return Step::kDone;
      if (!rung_) words_.RingBell();
      rung_ = true;
      return Step::kSleep;
    case pool::kMirrorLeaving:
      return Step::kSleep;
    default:
      return Step::kFail;
  }
}

void OutputWait::Sleep() const {
  if (!sys::SignalWaits()) words_.AwaitTurn(seen_, kLookNs);
}

}  // namespace nvcache::vfs
