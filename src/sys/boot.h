// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_BOOT_H_
#define NVCACHE_SYS_BOOT_H_

#include <cstdint>

namespace nvcache::sys {

// The number of this run of the kernel: another one after each start of the machine. All zero: it
// cannot be told.
void ReadBootId(uint8_t (&id)[16]);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_BOOT_H_
