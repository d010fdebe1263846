// SPDX-License-Identifier: BSD-3-Clause
//
// How far the process has got with its pool:
//
// clang-format off
//
//   from        by                                         to
//   kOff        Start                                      kDetached
//   kDetached   Attach: a file or folder needs the log     kIdle
//               the pool cannot be had                     kWithout
//   kIdle       StartThreads: a file is cached, or it logs on    kBusy
//               BecomeFinal                                kIdleLast
//               Detach: all of it on the disk, or left     kDetached
//   kBusy       BecomeFinal                                kBusyLast
//               Detach                                     kDetached
//   kIdleLast   StartThreads                                     kBusyLast
//               Detach                                     kWithout
//   kBusyLast   Detach                                     kWithout
//   any         Leave                                      kOff
//
// clang-format on
//
//   kOff       nothing is tracked, and each call is the kernel's: before Start, and after Leave
//   kDetached  no pool is mapped; the first file that needs one attaches it
//   kIdle      a seat and a log: enough for write-through, as long as a checkpointer moves the
//              checkpoint. Most processes end like that
//   kBusy      frames, a cleanup thread and a responder as well
//   k...Last   the program ends, or goes where it cannot be followed: nothing attaches again
//   kWithout   no pool for the rest of the process's life
//
// A child of fork has its parent's stage, and sleeps until it uses a file (process.h).
#ifndef NVCACHE_VFS_ENGINE_STAGE_H_
#define NVCACHE_VFS_ENGINE_STAGE_H_

#include <cstdint>

namespace nvcache::vfs {

enum class Stage : uint8_t { kOff, kDetached, kIdle, kBusy, kIdleLast, kBusyLast, kWithout };

constexpr bool IsIdle(Stage stage) { return stage == Stage::kIdle || stage == Stage::kIdleLast; }
constexpr bool IsBusy(Stage stage) { return stage == Stage::kBusy || stage == Stage::kBusyLast; }
constexpr bool IsAttached(Stage stage) { return IsIdle(stage) || IsBusy(stage); }

// Nothing attaches any more.
constexpr bool IsFinal(Stage stage) { return stage >= Stage::kIdleLast; }

// With frames and threads.
constexpr Stage Employed(Stage idle) {
  return idle == Stage::kIdle ? Stage::kBusy : Stage::kBusyLast;
}

// The stage, for the last time.
constexpr Stage Last(Stage stage) {
  switch (stage) {
    case Stage::kDetached:
      return Stage::kWithout;
    case Stage::kIdle:
      return Stage::kIdleLast;
    case Stage::kBusy:
      return Stage::kBusyLast;
    default:
      return stage;
  }
}

// Without a pool.
constexpr Stage Detached(Stage attached) {
  return IsFinal(attached) ? Stage::kWithout : Stage::kDetached;
}

// A child that shares its parent's descriptors leaves any stage for kOff (Process::LeaveInChild).
constexpr bool MayFollow(Stage from, Stage to) {
  return to == Stage::kOff || (from == Stage::kOff && to == Stage::kDetached) ||
         (from == Stage::kDetached && to == Stage::kIdle) ||
         (IsIdle(from) && to == Employed(from)) ||
         (from != Stage::kOff && !IsFinal(from) && to == Last(from)) ||
         (IsAttached(from) && to == Detached(from));
}

static_assert(!MayFollow(Stage::kWithout, Stage::kIdle) &&
              !MayFollow(Stage::kIdleLast, Stage::kDetached) &&
              !MayFollow(Stage::kBusy, Stage::kIdle) && !MayFollow(Stage::kOff, Stage::kWithout));

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_STAGE_H_
