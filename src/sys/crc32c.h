// SPDX-License-Identifier: BSD-3-Clause
//
// CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of the log and of the pool.
#ifndef NVCACHE_SYS_CRC32C_H_
#define NVCACHE_SYS_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::sys {

inline constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;  // reflected

// The checksum of `n` bytes. `seed` is the checksum of the bytes before (0 at the start), so that
// Crc32c(b, m, Crc32c(a, n)) is that of a followed by b.
uint32_t Crc32c(const void* data, size_t n, uint32_t seed = 0);

// Computes it by a table, for machines without the instruction; also the reference in tests.
uint32_t Crc32cPortable(const void* data, size_t n, uint32_t seed = 0);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_CRC32C_H_
