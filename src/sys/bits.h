// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_BITS_H_
#define NVCACHE_SYS_BITS_H_

#include <cstdint>

namespace nvcache::sys {

// How many bits are set. std::popcount would want a function of the compiler's library, which the
// modified musl does not have. (H. Warren, "Hacker's Delight", 5-1.)
constexpr uint64_t CountBits(uint64_t word) {
  word -= word >> 1 & 0x5555555555555555;
  word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return word * 0x0101010101010101 >> 56;
}
static_assert(CountBits(0) == 0 && CountBits(~uint64_t{0}) == 64);
static_assert(CountBits(0x8000000000000001) == 2 && CountBits(0x00ff0f0000000010) == 13);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_BITS_H_
