// SPDX-License-Identifier: BSD-3-Clause
//
// What the kernel was asked of numbers that are not tracked.
#include <gtest/gtest.h>

#include "src/vfs/engine/descriptors.h"

namespace nvcache::vfs {
namespace {

TEST(VfsAskedTest, ANumberIsPlainWhenTheKernelHasSaidSo) {
  Descriptors descriptors;
  descriptors.BeginToAsk(33);
  EXPECT_FALSE(descriptors.IsPlain(33)) << "another thread's write would not wait";
  descriptors.NotePlain(33);
  EXPECT_TRUE(descriptors.IsPlain(33));
  EXPECT_FALSE(descriptors.IsPlain(32) || descriptors.IsPlain(34) || descriptors.IsPlain(1));
  descriptors.ForgetPlain(33);
  EXPECT_FALSE(descriptors.IsPlain(33));
}

TEST(VfsAskedTest, AnAnswerIsNothingWhenItWasClosedMeanwhile) {
  Descriptors descriptors;
  descriptors.BeginToAsk(5);
  descriptors.ForgetPlain(5);
  descriptors.NotePlain(5);
  EXPECT_FALSE(descriptors.IsPlain(5));
}

TEST(VfsAskedTest, HighNumbersAreAskedEachTime) {
  Descriptors descriptors;
  for (const int fd : {static_cast<int>(kFewDescriptors), -1}) {
    descriptors.BeginToAsk(fd);
    descriptors.NotePlain(fd);
    EXPECT_FALSE(descriptors.IsPlain(fd));
  }
}

}  // namespace
}  // namespace nvcache::vfs
