// SPDX-License-Identifier: BSD-3-Clause
#include "src/pmem/marks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

namespace nvcache::pmem {
namespace {

class MarksTest : public testing::Test {
 protected:
  static constexpr uint64_t kLines = 300000;  // more than one word of the highest level

  // All that is marked, which it is no more afterwards.
  std::set<uint64_t> Take() {
    std::set<uint64_t> lines;
    marks_.TakeWords([&](uint64_t index, uint64_t words) {
      for (uint64_t bit = 0; bit < Marks::kWordBits; ++bit) {
        if ((words >> bit & 1) == 0) continue;
        const uint64_t word = index * Marks::kWordBits + bit, bits = marks_.LinesOf(word);
        marks_.ClearLines(word, bits);
        for (uint64_t i = 0; i < Marks::kWordBits; ++i) {
          if ((bits >> i & 1) != 0) lines.insert(word * Marks::kWordBits + i);
        }
      }
    });
    return lines;
  }

  std::vector<uint64_t> lines_ = std::vector<uint64_t>(Marks::LineWords(kLines));
  std::vector<uint64_t> words_ = std::vector<uint64_t>(Marks::WordWords(kLines));
  std::vector<uint64_t> groups_ = std::vector<uint64_t>(Marks::GroupWords(kLines));
  Marks marks_{lines_.data(), words_.data(), groups_.data(), kLines};
};

TEST_F(MarksTest, TakesWhatWasSetOnce) {
  EXPECT_TRUE(marks_.IsEmpty());
  marks_.Set(0, 1);
  marks_.Set(62, 4);
  marks_.Set(4096 * 64 - 1, 2);
  marks_.Set(kLines - 1, 5);  // no further than the end
  EXPECT_FALSE(marks_.IsEmpty());
  const std::set<uint64_t> expected = {0, 62, 63, 64, 65, 262143, 262144, kLines - 1};
  EXPECT_EQ(Take(), expected);
  EXPECT_EQ(Take(), std::set<uint64_t>());
  EXPECT_TRUE(marks_.IsEmpty());
}

TEST_F(MarksTest, AllOfARange) {
  marks_.Set(100, 10000);
  const std::set<uint64_t> taken = Take();
  EXPECT_EQ(taken.size(), 10000u);
  EXPECT_EQ(*taken.begin(), 100u);
  EXPECT_EQ(*taken.rbegin(), 10099u);
}

// Somebody has set a line's bit, and is stopped before he sets those above: another one who marks a
// line of the same word must not rely on him.
TEST_F(MarksTest, NobodyReliesOnOneWhoIsStopped) {
  lines_[5] = 1;
  marks_.Set(5 * 64 + 1, 1);
  const std::set<uint64_t> expected = {5 * 64, 5 * 64 + 1};
  EXPECT_EQ(Take(), expected);
  lines_[70] = 1;
  words_[1] = uint64_t{1} << 6;  // and this one before the highest level
  marks_.Set(70 * 64 + 3, 1);
  const std::set<uint64_t> next = {70 * 64, 70 * 64 + 3};
  EXPECT_EQ(Take(), next);
}

TEST_F(MarksTest, FindsAllAfterOneWhoTookHasDied) {
  marks_.Set(7, 1);
  marks_.Set(kLines - 1, 1);
  marks_.TakeWords([](uint64_t, uint64_t) {});
  EXPECT_EQ(Take(), std::set<uint64_t>());
  marks_.SetAllAbove();
  const std::set<uint64_t> expected = {7, kLines - 1};
  EXPECT_EQ(Take(), expected);
}

// What a thread has marked before it looks at `round` is taken in one of the rounds after that one.
TEST_F(MarksTest, NoMarkIsLostBetweenThreads) {
  constexpr uint64_t kThreads = 4, kMarks = 20000;
  std::vector<std::atomic<uint64_t>> stored(kLines), taken(kLines);
  std::atomic<uint64_t> running{kThreads};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Threads meet in the same words, and each in lines of its own.
      for (uint64_t i = 0; i < kMarks; ++i) {
        const uint64_t line = (i * 7919 % (kLines / 64)) * 64 + (t * 16 + i % 16);
        if (line >= kLines) continue;
        stored[line].store(i + 1);
        marks_.Set(line, 1);
      }
      running.fetch_sub(1);
    });
  }
  const auto take = [&] {
    for (const uint64_t line : Take()) taken[line].store(stored[line].load());
  };
  while (running.load() != 0) take();
  for (std::thread& thread : threads) thread.join();
  take();
  for (uint64_t line = 0; line < kLines; ++line) {
    ASSERT_EQ(taken[line].load(), stored[line].load()) << "line " << line;
  }
}

}  // namespace
}  // namespace nvcache::pmem
