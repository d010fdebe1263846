// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_STATUS_H_
#define NVCACHE_SYS_STATUS_H_

#include <cstdint>

namespace nvcache::sys {

// The number at this place, from 0 on, in a line of /proc/thread-self/status, such as "Uid:";
// proc(5). It takes some 20 µs. False: there is none.
bool ReadStatus(const char* line, int place, uint64_t* number);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_STATUS_H_
