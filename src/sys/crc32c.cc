// SPDX-License-Identifier: BSD-3-Clause
//
// The crc32 instruction has a latency of three cycles and a throughput of one, so three streams
// run side by side and are joined by multiplying with x^(8n) mod P, done by table. The idea is
// from V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction"
// (Intel, 2011).
#include "src/sys/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

#include "src/sys/cpu.h"

namespace nvcache::sys {

namespace {

constexpr std::array<uint32_t, 256> MakeByteTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCrc32cPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kByteTable = MakeByteTable();

// Advances a CRC register over n zero bytes; linear, so four tables of 256 words do it.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr uint32_t ShiftSlow(uint32_t crc, size_t n) {
  while (n-- > 0) crc = (crc >> 8) ^ kByteTable[crc & 0xff];
  return crc;
}

constexpr ShiftTable MakeShiftTable(size_t n) {
  ShiftTable table = {};
  for (size_t byte = 0; byte < 4; ++byte) {
    std::array<uint32_t, 8> basis = {};
    for (size_t bit = 0; bit < 8; ++bit) basis[bit] = ShiftSlow(1u << (8 * byte + bit), n);
    for (uint32_t value = 0; value < 256; ++value) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((value >> bit & 1) != 0) table[byte][value] ^= basis[bit];
      }
    }
  }
  return table;
}

inline uint32_t Shift(const ShiftTable& table, uint32_t crc) {
  return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
         table[3][crc >> 24];
}

// Three streams of kLong cover a 4 KiB page but for 16 bytes; kShort the rest of smaller pieces.
constexpr size_t kLong = 1360;
constexpr size_t kShort = 128;
constexpr ShiftTable kLongTable = MakeShiftTable(kLong);
constexpr ShiftTable kShortTable = MakeShiftTable(kShort);

template <typename Integer>
Integer Load(const uint8_t* p) {
  Integer value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

template <size_t kStream>
__attribute__((target("sse4.2"))) inline uint32_t ThreeStreams(const ShiftTable& table,
                                                               const uint8_t* p, uint32_t seed) {
  static_assert(kStream % 8 == 0);
  uint64_t a = seed, b = 0, c = 0;
  for (size_t i = 0; i < kStream; i += 8) {
    a = _mm_crc32_u64(a, Load<uint64_t>(p + i));
    b = _mm_crc32_u64(b, Load<uint64_t>(p + kStream + i));
    c = _mm_crc32_u64(c, Load<uint64_t>(p + 2 * kStream + i));
  }
  uint32_t joined = Shift(table, static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
  return Shift(table, joined) ^ static_cast<uint32_t>(c);
}

__attribute__((target("sse4.2"))) uint32_t Crc32cHardware(const uint8_t* p, size_t n,
                                                          uint32_t seed) {
  uint32_t crc = ~seed;
  for (; n >= 3 * kLong; p += 3 * kLong, n -= 3 * kLong) {
    crc = ThreeStreams<kLong>(kLongTable, p, crc);
  }
  for (; n >= 3 * kShort; p += 3 * kShort, n -= 3 * kShort) {
    crc = ThreeStreams<kShort>(kShortTable, p, crc);
  }
  for (; n >= 8; p += 8, n -= 8) crc = static_cast<uint32_t>(_mm_crc32_u64(crc, Load<uint64_t>(p)));
  if (n >= 4) {
    crc = _mm_crc32_u32(crc, Load<uint32_t>(p));
    p += 4;
    n -= 4;
  }
  for (; n > 0; ++p, --n) crc = _mm_crc32_u8(crc, *p);
  return ~crc;
}

}  // namespace

uint32_t Crc32cPortable(const void* data, size_t n, uint32_t seed) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint32_t crc = ~seed;
  while (n-- > 0) crc = (crc >> 8) ^ kByteTable[(crc ^ *p++) & 0xff];
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t n, uint32_t seed) {
  return CpuHas(kCrc32) ? Crc32cHardware(static_cast<const uint8_t*>(data), n, seed)
                        : Crc32cPortable(data, n, seed);
}

}  // namespace nvcache::sys
