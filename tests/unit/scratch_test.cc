// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/scratch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/support.h"

namespace nvcache::sys {
namespace {

constexpr size_t kMore = 1000;  // than are reserved

TEST(Scratch, MoreThanThereAreDifferAndAreWritable) {
  std::set<void*> blocks;
  for (size_t i = 0; i < kMore; ++i) {
    void* block = TakeScratch();
    ASSERT_TRUE(blocks.insert(block).second);
    std::memset(block, static_cast<int>(i), kScratchSize);
  }
  for (void* block : blocks) GiveScratch(block);
}

TEST(Scratch, TheLowestIsUsedAgain) {
  void* first = TakeScratch();
  void* second = TakeScratch();
  GiveScratch(first);
  EXPECT_EQ(TakeScratch(), first);
  GiveScratch(first);
  GiveScratch(second);
}

TEST(Scratch, NothingIsTakenBeforeItIsUsed) {
  void* next = TakeScratch();
  GiveScratch(next);
  {
    Scratch<uint64_t> unused;
    EXPECT_EQ(TakeScratch(), next);
    GiveScratch(next);
  }
  Scratch<uint64_t[3]> used;
  EXPECT_EQ(used.get(), next);
  EXPECT_EQ(used.get(), next);
}

TEST(Scratch, ThreadsNeverShareABlock) {
  constexpr int kThreads = 8, kTurns = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kTurns; ++i) {
        Scratch<int[2]> block;
        volatile int* numbers = block.get();
        numbers[0] = t;
        numbers[1] = i;
        ASSERT_EQ(numbers[0], t);
        ASSERT_EQ(numbers[1], i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What threads of the parent had is nobody's in a child.
TEST(Scratch, AChildHasAllBlocks) {
  void* lowest = TakeScratch();
  const pid_t child = fork();
  if (child == 0) {
    ForgetScratch();
    _exit(TakeScratch() == lowest ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  GiveScratch(lowest);
}

}  // namespace
}  // namespace nvcache::sys
