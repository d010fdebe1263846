// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/standing.h"

#include "src/sys/kernel.h"

namespace nvcache::vfs {

void Standing::Begin() { pid_ = sys::Getpid(); }

bool Standing::IsOurs() const { return sys::Getpid() == pid_; }

[[gnu::hot]] void Standing::BecomeChild() {
  pid_ = sys::Getpid();
  rights_changing_.store(0);  // the calls of other threads
  replacing_ = 0;             // threads of the parent
  children_.store(0);
  asleep_.store(true);
}

// One that shares our memory and descriptors as a thread does must start no threads, which would be
// its own; and one that has given up rights must not have a pool that is recovered with them.
bool Standing::MayMapPool() {
  return IsOurs() && freezes_ == 0 && rights_changing_.load() == 0 && HasItsRights();
}

}  // namespace nvcache::vfs
