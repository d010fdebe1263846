// SPDX-License-Identifier: BSD-3-Clause
#include <set>

#include "src/dramcache/byte_set.h"
#include "src/dramcache/frames.h"
#include "tests/unit/support.h"

namespace nvcache::dramcache {
namespace {

TEST(ByteSetTest, AgreesWithASetOfBytes) {
  std::mt19937_64 random(test::Seed());
  for (int round = 0; round < 50; ++round) {
    ByteSet set;
    std::set<size_t> model;
    while (!set.full() && model.size() < ByteSet::kSize * 9 / 10) {
      const size_t begin = random() % ByteSet::kSize;
      const size_t end = begin + 1 + random() % std::min<size_t>(ByteSet::kSize - begin, 700);
      size_t covered = begin;
      set.Add(begin, end, [&](size_t from, size_t to) {
        ASSERT_TRUE(covered <= from && from < to && to <= end);
        for (; covered < from; ++covered) EXPECT_TRUE(model.contains(covered));
        for (; covered < to; ++covered) EXPECT_TRUE(model.insert(covered).second);
      });
      for (; covered < end; ++covered) EXPECT_TRUE(model.contains(covered));
    }
    std::set<size_t> runs;
    size_t last_end = ByteSet::kSize + 1;
    set.ForEachRun([&](size_t from, size_t to) {
      EXPECT_NE(from, last_end) << "runs that touch are one";
      for (size_t i = from; i < to; ++i) runs.insert(i);
      last_end = to;
    });
    EXPECT_EQ(runs, model);
  }
}

TEST(ByteSetTest, TheWholePageIsFull) {
  ByteSet set;
  EXPECT_FALSE(set.full());
  set.Add(0, ByteSet::kSize, [](size_t from, size_t to) {
    EXPECT_EQ(from, 0u);
    EXPECT_EQ(to, ByteSet::kSize);
  });
  EXPECT_TRUE(set.full());
  set.Add(5, 9, [](size_t, size_t) { FAIL(); });
}

class FramesTest : public testing::Test {
 protected:
  static constexpr uint32_t kFrames = 8;
  FramesTest() {
    EXPECT_TRUE(pages_.Open(100));
    EXPECT_TRUE(frames_.Open(kFrames, &pages_, &statistics_));
  }
  ~FramesTest() override {
    frames_.Close();
    pages_.Close();
  }
  radix::PageDescriptor& NewPage() { return pages_[pages_.Allocate()]; }
  bool Attach(radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    return frames_.Attach(page);
  }

  radix::PageArena pages_;
  pool::Statistics statistics_ = {};
  Frames frames_;
};

TEST_F(FramesTest, AFullCacheTakesFromAPageNotUsedLately) {
  std::vector<radix::PageDescriptor*> pages;
  for (uint32_t i = 0; i < kFrames; ++i) {
    pages.push_back(&NewPage());
    ASSERT_TRUE(Attach(*pages.back()));
  }
  ASSERT_TRUE(Attach(NewPage()));  // the hand takes all second chances, then the first frame
  EXPECT_FALSE(pages[0]->has_frame());
  frames_.Touch(pages[1]->frame());
  ASSERT_TRUE(Attach(NewPage()));
  EXPECT_TRUE(pages[1]->has_frame()) << "used since the hand passed: spared";
  EXPECT_FALSE(pages[2]->has_frame());
  EXPECT_EQ(statistics_.evictions, 2u);
  EXPECT_EQ(statistics_.dirty_evictions, 0u);
}

TEST_F(FramesTest, ADirtyPageLosesItsFrameLikeAnyOther) {
  for (uint32_t i = 0; i < kFrames; ++i) {
    radix::PageDescriptor& page = NewPage();
    ASSERT_TRUE(Attach(page));
    page.dirty = 1;
  }
  ASSERT_TRUE(Attach(NewPage()));
  EXPECT_EQ(statistics_.dirty_evictions, 1u);
}

TEST_F(FramesTest, LockedPagesKeepTheirFrames) {
  std::vector<radix::PageDescriptor*> pages;
  for (uint32_t i = 0; i < kFrames; ++i) {
    pages.push_back(&NewPage());
    ASSERT_TRUE(Attach(*pages.back()));
    pages.back()->lock.Lock();
  }
  EXPECT_FALSE(Attach(NewPage()));
  pages[5]->lock.Unlock();
  EXPECT_TRUE(Attach(NewPage()));
  EXPECT_FALSE(pages[5]->has_frame());
}

TEST_F(FramesTest, ADetachedFrameIsUsedFirst) {
  radix::PageDescriptor& page = NewPage();
  ASSERT_TRUE(Attach(page));
  const uint32_t frame = page.frame();
  page.lock.Lock();
  frames_.Detach(page);
  page.lock.Unlock();
  radix::PageDescriptor& other = NewPage();
  ASSERT_TRUE(Attach(other));
  EXPECT_EQ(other.frame(), frame);
}

}  // namespace
}  // namespace nvcache::dramcache
