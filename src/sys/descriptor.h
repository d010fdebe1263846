// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors that the engine opens for itself. The program expects the lowest free numbers for
// its own (I12), so ours go where it rarely comes.
#ifndef NVCACHE_SYS_DESCRIPTOR_H_
#define NVCACHE_SYS_DESCRIPTOR_H_

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

#include "src/sys/kernel.h"

namespace nvcache::sys {

// Moves `fd` to the lowest free number from `from` on, close-on-exec, and returns it. Locks by
// flock go along. Where there is no room, `fd` stays what it is.
inline int MoveTo(int fd, long from) {
  const long moved = Fcntl(fd, F_DUPFD_CLOEXEC, from);
  if (moved < 0) return fd;
  Close(fd);
  return static_cast<int>(moved);
}

// The kernel's table of descriptors is as long as the highest number, and each child gets a copy of
// it, one of vfork as well: with 4,096 numbers, that takes a third as long as the vfork itself. It
// begins with 64.
inline constexpr int kFirstTable = 64;
inline constexpr uint64_t kHighest = 512;

// To three quarters of the limit, but not higher than kHighest.
inline uint64_t HighFrom(uint64_t limit) { return std::min(limit, kHighest) * 3 / 4; }
inline int MoveHigh(int fd) {
  return MoveTo(fd, static_cast<long>(HighFrom(SoftLimit(RLIMIT_NOFILE))));
}

// A descriptor that all processes have, or many, lies in the first table, if there is room: a
// process with threads, ours included, waits 10 ms and more for the kernel (synchronize_rcu) when
// its table grows. The pool lies below the leases' file: when a process dies, the kernel closes
// them in the order of their numbers. (bash takes those from 63 downwards.)
inline constexpr int kPoolNumber = 48, kThroughNumber = 52, kLeasesNumber = 56;
inline int MoveLow(int fd, int from) {
  const int low = MoveTo(fd, from);
  return low < kFirstTable ? low : MoveHigh(low);
}

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_DESCRIPTOR_H_
