// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_SIZE_LIMIT_H_
#define NVCACHE_SYS_SIZE_LIMIT_H_

#include <sys/resource.h>

#include <cstdint>

#include "src/sys/kernel.h"

namespace nvcache::sys {

// A soft RLIMIT_FSIZE as the kernel takes it at a write: one beyond 2^63 is negative there, so that
// nothing may be written.
constexpr uint64_t FileSizeLimit(uint64_t soft) {
  return soft > INT64_MAX && soft != RLIM_INFINITY ? 0 : soft;
}
inline uint64_t FileSizeLimit() { return FileSizeLimit(SoftLimit(RLIMIT_FSIZE)); }

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_SIZE_LIMIT_H_
