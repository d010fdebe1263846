// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/cpu.h"

#include <gtest/gtest.h>

#include "libc-shim/preload/cpu.h"

namespace nvcache::sys {
namespace {

TEST(CpuTest, LibcSaysWhatTheProcessorSays) {
  uint32_t features = 0;
  if (!preload::CpuOfLibc(&features)) GTEST_SKIP() << "this libc does not say";
  for (const CpuFeature feature : {kCrc32, kAvx, kAvx512Crc, kClflushopt, kClwb, kAvxCrc}) {
    EXPECT_EQ((features & feature) != 0, CpuHas(feature)) << feature;
  }
}

}  // namespace
}  // namespace nvcache::sys
