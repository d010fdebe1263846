// SPDX-License-Identifier: BSD-3-Clause
//
// How far the process has got with its pool:
//
//                  Start              Attach                Detach, all of it on the disk or left
//          kOff ----------> kDetached --------> kAttached ----------------------------------+
//           ^                ^  |                |   |                                      |
//           |                +--|----------------|---|--------------------------------------+
//           |                   |                |   | the program ends, or goes where it cannot
//           |                   | it cannot be   |   | be followed
//           |                   | had            |   v
//           +------------- kWithout <------------|- kEnding
//              Leave                    Detach   |
//
//   kOff       nothing is tracked, and each call is the kernel's: before Start, and after Leave
//   kDetached  no pool is mapped; the first file that needs one attaches it
//   kAttached  a seat and a log: enough for write-through, as long as a checkpointer moves the
//              checkpoint. Most processes end like that. Frames and threads: Attachment::busy()
//   kEnding    kAttached, and nothing attaches again: it is the last time
//   kWithout   no pool for the rest of the process's life
//
// A child of fork has its parent's stage, and sleeps until it uses a file (process.h).
#ifndef NVCACHE_VFS_ENGINE_STAGE_H_
#define NVCACHE_VFS_ENGINE_STAGE_H_

#include <cstdint>

namespace nvcache::vfs {

enum class Stage : uint8_t { kOff, kDetached, kAttached, kEnding, kWithout };

constexpr bool IsAttached(Stage stage) {
  return stage == Stage::kAttached || stage == Stage::kEnding;
}

// Nothing attaches any more.
constexpr bool IsFinal(Stage stage) { return stage == Stage::kEnding || stage == Stage::kWithout; }

// A child that shares its parent's descriptors leaves any stage for kOff (Process::LeaveInChild).
constexpr bool MayFollow(Stage from, Stage to) {
  switch (to) {
    case Stage::kOff:
      return true;
    case Stage::kDetached:
      return from == Stage::kOff || from == Stage::kAttached;
    case Stage::kAttached:
      return from == Stage::kDetached;
    case Stage::kEnding:
      return from == Stage::kAttached;
    case Stage::kWithout:
      return from == Stage::kDetached || from == Stage::kEnding;
  }
  return false;
}

static_assert(!MayFollow(Stage::kWithout, Stage::kAttached) &&
              !MayFollow(Stage::kEnding, Stage::kDetached));

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_STAGE_H_
