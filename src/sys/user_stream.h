// SPDX-License-Identifier: BSD-3-Clause
//
// The copy that a write is made of: the program's bytes are read once, go around the cache to the
// log and, by ordinary stores, to a second place, and their CRC-32C is computed on the way. For
// processors with AVX, PCLMULQDQ and BMI2 (since 2013), and faster where there are AVX-512 and
// VPCLMULQDQ. A fault in the program's memory is dealt with as in user_copy.h. The bytes read here
// may be ours as well, but never lie on a stack: so a byte that faults is the program's.
#ifndef NVCACHE_SYS_USER_STREAM_H_
#define NVCACHE_SYS_USER_STREAM_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::sys {

inline constexpr size_t kStreamLine = 64;  // bytes that are stored at once

// Whether this processor and the system have the instructions of StreamUser.
bool CanStreamUser();

// Copies `n` bytes to `lines`, which is a multiple of kStreamLine, in whole lines: zeros fill the
// last one up. The same bytes, and no more, go to `copy`, unless it is null. `*crc` is the CRC-32C
// of the bytes before (0 at the start) and then of these, too. False: a byte of `from` cannot be
// read, and the stored bytes are anything. The stores to `lines` are weakly ordered: a fence comes
// after them. A fault in `lines` or `copy` is the caller's own.
bool StreamUser(void* lines, const void* from, size_t n, void* copy, uint32_t* crc);

// This is UserFaultLanding() for StreamUser.
uintptr_t StreamFaultLanding(uintptr_t pc);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_USER_STREAM_H_
