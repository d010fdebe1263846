// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/arena.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <thread>
#include <vector>

namespace nvcache::sys {
namespace {

struct Thing {
  uint64_t owner;
};

TEST(ArenaTest, HandsOutEachObjectOnce) {
  Arena<Thing> arena;
  ASSERT_TRUE(arena.Open(100));
  std::set<uint32_t> seen;
  for (int i = 0; i < 100; ++i) {
    const uint32_t index = arena.Allocate();
    ASSERT_LT(index, 100u);
    EXPECT_EQ(arena[index].owner, 0u);
    EXPECT_EQ(arena.IndexOf(&arena[index]), index);
    EXPECT_TRUE(seen.insert(index).second);
  }
  EXPECT_EQ(arena.Allocate(), kNone);
  EXPECT_EQ(arena.Available(), 0u);
  arena.Free(42);
  arena.Free(7);
  EXPECT_EQ(arena.Available(), 2u);
  EXPECT_EQ((std::set{arena.Allocate(), arena.Allocate()}), (std::set{7u, 42u}));
  EXPECT_EQ(arena.Allocate(), kNone);
  arena.Close();
}

TEST(ArenaTest, AnObjectKeepsItsPlaceAndContent) {
  Arena<Thing> arena;
  ASSERT_TRUE(arena.Open(4));
  const uint32_t index = arena.Allocate();
  arena[index].owner = 9;
  arena.Free(index);
  EXPECT_EQ(arena.Allocate(), index);
  EXPECT_EQ(arena[index].owner, 9u);
  arena.Close();
}

// Reserved address space is not memory: far more than there is can be set aside.
TEST(ArenaTest, ALargeCapacityCostsNothing) {
  Arena<Thing> arena;
  ASSERT_TRUE(arena.Open(1u << 31));
  EXPECT_EQ(arena.Allocate(), 0u);
  arena.Close();
  EXPECT_TRUE(arena.Open(1));
  arena.Close();
}

TEST(ArenaTest, FreeOfWhatWasNeverHandedOutStops) {
  Arena<Thing> arena;
  ASSERT_TRUE(arena.Open(4));
  arena.Allocate();
  EXPECT_EXIT(arena.Free(1), testing::KilledBySignal(SIGKILL), "invariant broken");
  arena.Close();
}

TEST(ArenaTest, ThreadsNeverShareAnObject) {
  constexpr uint32_t kThreads = 4;
  Arena<Thing> arena;
  ASSERT_TRUE(arena.Open(2 * kThreads));
  std::vector<std::thread> threads;
  for (uint64_t me = 1; me <= kThreads; ++me) {
    threads.emplace_back([&arena, me] {
      for (int round = 0; round < 20000; ++round) {
        const uint32_t a = arena.Allocate();
        const uint32_t b = arena.Allocate();
        arena[a].owner = me;
        arena[b].owner = me;
        ASSERT_EQ(arena[a].owner, me);
        ASSERT_EQ(arena[b].owner, me);
        arena.Free(a);
        arena.Free(b);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.Available(), 2 * kThreads);
  arena.Close();
}

}  // namespace
}  // namespace nvcache::sys
