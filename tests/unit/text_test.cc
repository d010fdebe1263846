// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/text.h"

#include <gtest/gtest.h>

#include <string>

namespace nvcache::sys {
namespace {

TEST(TextTest, LengthAndEqual) {
  EXPECT_EQ(Length(""), 0u);
  EXPECT_EQ(Length("pool"), 4u);
  EXPECT_TRUE(Equal("", ""));
  EXPECT_TRUE(Equal("pool", "pool"));
  EXPECT_FALSE(Equal("pool", "pools"));
  EXPECT_FALSE(Equal("pools", "pool"));
  EXPECT_FALSE(Equal("pool", "Pool"));
}

TEST(TextTest, Appends) {
  Text<64> text;
  EXPECT_STREQ(text.c_str(), "");
  text.Append("a").AppendNumber(0).Append("-").AppendNumber(~uint64_t{0}).Append("xyz", 2);
  EXPECT_STREQ(text.c_str(), "a0-18446744073709551615xy");
  EXPECT_EQ(text.size(), 25u);
}

TEST(TextTest, CutsWhatDoesNotFit) {
  for (size_t n = 0; n < 12; ++n) {
    const std::string whole(n, 'x');
    Text<8> text;
    text.Append(whole.c_str()).Append("yz");
    EXPECT_EQ(text.c_str(), (whole + "yz").substr(0, 7));
    EXPECT_EQ(text.size(), Length(text.c_str()));
  }
}

}  // namespace
}  // namespace nvcache::sys
