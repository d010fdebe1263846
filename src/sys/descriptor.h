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

// Moves `fd` to a number from three quarters of the limit on, close-on-exec, and returns it. Locks
// by flock go along. Where there is no room, `fd` stays what it is.
//
// The kernel's table of descriptors is as long as the highest number, and each child gets a copy of
// it, one of vfork as well: with 4,096 numbers, that takes a third as long as the vfork itself. So
// not higher than kHighest, whatever the limit. (`eighths`: of the limit; 7 for the last one that
// goes when the process dies, for the kernel closes them in their order.)
inline int MoveHigh(int fd, uint64_t eighths = 6) {
  constexpr uint64_t kLowest = 64;
  constexpr uint64_t kHighest = 512;
  const uint64_t limit = std::clamp(SoftLimit(RLIMIT_NOFILE), kLowest / 6 * 8, kHighest);
  const uint64_t base = std::max(limit * eighths / 8, kLowest);
  const long high = Fcntl(fd, F_DUPFD_CLOEXEC, static_cast<long>(base));
  if (high < 0) return fd;
  Close(fd);
  return static_cast<int>(high);
}

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_DESCRIPTOR_H_
