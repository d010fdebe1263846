// SPDX-License-Identifier: BSD-3-Clause
//
// The life of a file. The engine's own answers depend on the file's state alone, and
// only SetState changes that, which knows every arrow that there is (MayBecome):
//
//               BeginCaching
//   kKernel ----------------------------> kCached ------------------------------> kForeign
//     |   ^                               |  |  |      the child of a fork          |  |
//     |   |            GiveBack           |  |  |                                   |  |
//     |   +-------------------------------+--|--|-----------------------------------+  |
//     | Lend                                 |  | Lose                                 |
//     v                Lend                  |  +--------> kLost                       |
//   kLent <----------------------------------+                                         |
//     |                                      |                                         |
//     +---- PassThrough of any of these -----+-----------------------------------------+
//     v
//   kPassThrough, as every file is that is not open
//
//   kKernel       the kernel has every byte, and fsync is real; we only watch whether it becomes
//                 hot (heat.h). No page, no record of a cached file, no exclusive lease. If it has
//                 an entry, it is write-through: its calls are in the log, too, and its fsync is
//                 nothing while it is known (through.h)
//   kLent         the same, and somebody looks at the bytes where we cannot see: it stays so for as
//                 long as it is open
//   kCached       writes go to the log, reads are served from the DRAM cache (I7). The file is in
//                 no other cache (an exclusive lease, I11), has a descriptor of ours, and is in the
//                 cleanup thread's list
//   kPassThrough  every call goes to the kernel, and fsync is real. Never left while it is open
//   kForeign      in a child of fork: the parent may have it in its cache. The first call that
//                 needs it has the parent let go (TakeOver). The child has no lease of it
//   kLost         a pool that is not ours any more has bytes that the kernel lacks: every call
//                 fails with EIO. Never left
//
// Each transition holds the table lock, and the file's, exclusive; so a call that has entered the
// file (access.h) keeps its state.
//
// In each state, the fields of a file may be as follows. "-": zero, false, or none. "any" fields
// are explained in file.h. CheckFields compares: SetState in every build, and with
// NVCACHE_CHECK_LOCKS each call that enters the file.
//
// clang-format off
//
//   field                           kKernel, kLent,       kCached             kForeign  kLost
//                                   kPassThrough
//   pages, erasures                 -                     any                 -         -
//   pending                         -                     any                 -         any
//   failing                         -                     if pending          -         any
//   backing_fd                      prepared, or kept     ours; -1 while      -         any
//                                   for a lock            Check opens it
//   removed                         -                     any                 -         -
//   may_hand_over, close_stamp       -                     any                 -         -
//   written_stamp, written_outside   -                     any                 -         -
//   forever                         any                   -                   any       true
//   exclusive lease                 no                    yes                 no        no
//   its entry (through.h)           kPassThrough: another file's, or unknown.
//                                   kKernel, kLent: that, or known, and then each write is in the log.
//                                   Else another file's: the process has nothing to say of it
//
// clang-format on
#ifndef NVCACHE_VFS_ENGINE_STATES_H_
#define NVCACHE_VFS_ENGINE_STATES_H_

#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

constexpr bool MayBecome(State from, State to) {
  switch (to) {
    case State::kKernel:
      return from == State::kCached || from == State::kForeign;
    case State::kLent:
      return from == State::kKernel || from == State::kCached || from == State::kForeign;
    case State::kCached:
      return from == State::kKernel;
    case State::kPassThrough:
      return from != State::kLost && from != State::kPassThrough;
    case State::kForeign:
    case State::kLost:
      return from == State::kCached;
  }
  return false;
}

static_assert(!MayBecome(State::kLost, State::kKernel) &&
              !MayBecome(State::kLost, State::kPassThrough));
static_assert(!MayBecome(State::kPassThrough, State::kCached) &&
              !MayBecome(State::kLent, State::kCached));
static_assert(!MayBecome(State::kLent, State::kLent) &&
              !MayBecome(State::kPassThrough, State::kPassThrough));

// In a cache: here, or in that of the process that has forked us.
constexpr bool IsInCache(State state) {
  return state == State::kCached || state == State::kForeign;
}

// ---- Transitions; table lock.

// kKernel -> kCached. False: another process uses it, say, and nothing has changed.
bool BeginCaching(File& file, int fd);
// -> kPassThrough. 0; the write-back error that keeps the file cached; or -EIO, if it is lost. A
// foreign file is claimed by the caller.
long PassThrough(File& file);
// kCached or kForeign -> kKernel: another process has claimed it, say, or the process ends. Its
// pending bytes need not be on the disk if it may, and can, be handed over.
long GiveBack(File& file, bool may_hand_over = true);
// GiveBack, and -> kLent. `forever`: File::forever as well.
long Lend(File& file, bool forever);
// kCached -> kForeign, in a child of fork.
void LeaveToParent(File& file);
// A file that was the parent's is ours to use, as other processes are told. Table lock.
void ShareInherited(File& file);
// kCached -> kLost. Its bytes in the hands of the cleanup thread are gone; file lock, exclusive.
void Lose(File& file);
// -> kPassThrough, of a file that is closed, without the wait for a claim.
void Close(File& file);

// The table above: a field that is not as it says ends the process. File lock, shared or exclusive.
void CheckFields(const File& file);

// ---- True of a file in its state.

// The engine sees the use of the file no more where it is handed on to a program that is started
// (Leases::HandOn). True: the file has an entry, of which something may be pending. Table
// lock.
bool HandOn(const File& file);
// The log's paths of files that are the kernel's are old. Table lock.
void DescribeAnew();
// The file's entry is not believed any more, and other processes hear that it may be written
// unseen. Table lock.
void ForgetEntry(const File& file);
// Until nothing of the file is pending. File lock, exclusive. 0, or the write-back error.
long DrainExclusively(File& file);
// Size, and whether there are holes, from the kernel. File lock, exclusive, or nobody else yet.
void TakeSize(File& file, const struct stat& st);
// The file's kernel size, after a call that may have changed it; frames are dropped. File lock,
// exclusive, nothing pending.
void Resync(File& file);
// Writes back what the kernel does not have. File lock, shared or exclusive. The error; or the
// pages looked at, 0: there was nothing.
long Publish(File& file);
// Hands the kernel the offsets of the file's descriptions. File lock, exclusive. `news`: of those
// that no child has; else the kernel's moves with ours already.
void PublishOffsets(File& file, bool news = false);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_STATES_H_
