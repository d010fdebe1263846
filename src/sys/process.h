// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_PROCESS_H_
#define NVCACHE_SYS_PROCESS_H_

#include <cstdint>

namespace nvcache::sys {

// Whether a process of this number is at work. Not one that has died and is not waited for yet.
bool Runs(uint32_t pid);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_PROCESS_H_
