// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace nvcache::sys {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32cTest, KnownAnswers) {
  std::vector<uint8_t> bytes(32, 0x00);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x62a8ab43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x46dd794eu);
  std::iota(bytes.rbegin(), bytes.rend(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x113fdb5cu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c("", 0), 0u);
}

TEST(Crc32cTest, InstructionAndTableAgreeOnEveryLengthAndAlignment) {
  std::mt19937_64 random(1);
  std::vector<uint8_t> bytes(9000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t n = 0; n + 8 < bytes.size(); n += n < 600 ? 1 : 61) {
    const size_t skip = n % 8;
    const auto seed = static_cast<uint32_t>(random());
    ASSERT_EQ(Crc32c(bytes.data() + skip, n, seed), Crc32cPortable(bytes.data() + skip, n, seed))
        << n;
  }
  ASSERT_EQ(Crc32c(bytes.data(), 4096), Crc32cPortable(bytes.data(), 4096));
}

TEST(Crc32cTest, TheSeedContinues) {
  const std::string text = "the order of all writes is the order of positions";
  const uint32_t whole = Crc32c(text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = Crc32c(text.data(), cut);
    EXPECT_EQ(Crc32c(text.data() + cut, text.size() - cut, first), whole);
  }
}

TEST(Crc32cTest, EveryBitCounts) {
  std::vector<uint8_t> bytes(4096, 0x5a);
  const uint32_t before = Crc32c(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
    ASSERT_NE(Crc32c(bytes.data(), bytes.size()), before) << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
  }
}

}  // namespace
}  // namespace nvcache::sys
