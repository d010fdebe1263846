// SPDX-License-Identifier: BSD-3-Clause
//
// Control groups that bound a process's memory. Whoever takes more than they have left is killed,
// and no call says so before.
#ifndef NVCACHE_SYS_MEMORY_GROUP_H_
#define NVCACHE_SYS_MEMORY_GROUP_H_

#include <cstdint>

namespace nvcache::sys {

inline constexpr uint64_t kNoLimit = ~uint64_t{0};

// Bytes that the tightest of the process's groups has left, of version 1 or 2, from its own up to
// the highest that can be seen; what the kernel can drop at once, files' pages, counts as left.
// kNoLimit: none has a limit, or nobody tells. Some 100 µs. `proc` is the process's folder.
uint64_t FreeInGroups(const char* proc = "/proc/thread-self");

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_MEMORY_GROUP_H_
