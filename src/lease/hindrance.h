// SPDX-License-Identifier: BSD-3-Clause
//
// Hindrances keep a process from having its files, or some of them, in the log. A process says so.
#ifndef NVCACHE_LEASE_HINDRANCE_H_
#define NVCACHE_LEASE_HINDRANCE_H_

#include <cstdint>

#include "src/sys/lock.h"

namespace nvcache::lease {

// A bit in Hindrances::said. New ones come last: the numbers are those of other versions, too.
enum class Hindrance : uint32_t {
  kChroot,       // paths mean something else outside of its root: its names are not in the log
  kRawCalls,     // it can make system calls that do not reach us: its files stay the kernel's
  kStreams,      // this libc's streams are not caught: files of streams stay the kernel's
  kRing,         // it has made an io_uring: its files stay the kernel's
  kSeccomp,      // it confines itself: it is a program without NVCache from then on
  kTables,       // a thread of it has descriptors of its own, or another process has its: the same
  kFanotify,     // it answers for others' opens: the same
  kRights,       // it has changed its user, group or capabilities since it attached the pool
  kDescriptors,  // its limit of open files leaves no number for a descriptor of our own
  kThreads,      // it may have no memory or no threads more: nothing of it is cached
  kOutsideWriter,  // a program without NVCache has written to a file of it
  kMemory,         // a control group has little memory left: it has fewer page frames
  kInterposer,     // a library behind ours has functions for paths: its names are not in the log
  kCount
};
inline constexpr auto kHindrances = static_cast<uint32_t>(Hindrance::kCount);
static_assert(kHindrances <= 32);

// A slot (format.h) has one. It is the slot's present owner's only if `life` is the slot's.
struct alignas(64) Hindrances {
  sys::Word life;
  sys::Word said;  // a bit for each; 0: nothing is
  uint32_t pid;
  uint32_t reserved;
  uint64_t pool;    // NumberTagOf its file; 0: there was none
  char detail[40];  // for example the name of a file: of the first that had one; cut; ends with 0
};
static_assert(sizeof(Hindrances) == 64);

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_HINDRANCE_H_
