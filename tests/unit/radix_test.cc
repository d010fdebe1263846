// SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <thread>

#include "src/radix/tree.h"
#include "tests/unit/support.h"

namespace nvcache::radix {
namespace {

class TreeTest : public testing::Test {
 protected:
  TreeTest() { EXPECT_TRUE(supply_.Open(20000)); }
  ~TreeTest() override { supply_.Close(); }

  Supply supply_;
  Tree tree_;
};

TEST_F(TreeTest, FindsWhatWasMadeAndNothingElse) {
  std::mt19937_64 random(test::Seed());
  std::map<uint64_t, PageDescriptor*> made;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t page = random() >> (13 + random() % 51);
    PageDescriptor* descriptor = tree_.FindOrMake(supply_, page);
    ASSERT_NE(descriptor, nullptr);
    const auto [it, fresh] = made.emplace(page, descriptor);
    EXPECT_EQ(it->second, descriptor);
  }
  for (const auto& [page, descriptor] : made) EXPECT_EQ(tree_.Find(supply_, page), descriptor);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t page = random() >> (13 + random() % 51);
    if (!made.contains(page)) {
      EXPECT_EQ(tree_.Find(supply_, page), nullptr) << page;
    }
  }
  auto expected = made.begin();
  tree_.ForEach(supply_, [&](uint64_t page, PageDescriptor& descriptor) {
    ASSERT_NE(expected, made.end());
    EXPECT_EQ(page, expected->first);
    EXPECT_EQ(&descriptor, expected->second);
    ++expected;
  });
  EXPECT_EQ(expected, made.end());
}

TEST_F(TreeTest, TheLastPageOfTheLargestFile) {
  const uint64_t last = (uint64_t{1} << kPageNumberBits) - 1;
  PageDescriptor* descriptor = tree_.FindOrMake(supply_, last);
  ASSERT_NE(descriptor, nullptr);
  EXPECT_EQ(tree_.Find(supply_, last), descriptor);
  EXPECT_EQ(tree_.Find(supply_, 0), nullptr);
}

TEST_F(TreeTest, TrimGivesBackTheIdleAndKeepsTheRest) {
  const uint32_t before = supply_.pages.Available();
  const uint32_t nodes_before = supply_.nodes.Available();
  for (uint64_t page = 0; page < 1000; ++page) tree_.FindOrMake(supply_, page * 37);
  PageDescriptor* dirty = tree_.Find(supply_, 37 * 500);
  dirty->dirty = 1;
  PageDescriptor* framed = tree_.Find(supply_, 37 * 7);
  framed->frame_plus_one = 1;
  tree_.Trim(supply_);
  EXPECT_EQ(tree_.Find(supply_, 37 * 500), dirty);
  EXPECT_EQ(tree_.Find(supply_, 37 * 7), framed);
  EXPECT_EQ(tree_.Find(supply_, 37 * 8), nullptr);
  EXPECT_EQ(supply_.pages.Available(), before - 2);
  dirty->dirty = 0;
  framed->frame_plus_one = 0;
  tree_.Trim(supply_);
  EXPECT_TRUE(tree_.empty());
  EXPECT_EQ(supply_.pages.Available(), before);
  EXPECT_EQ(supply_.nodes.Available(), nodes_before);
}

TEST_F(TreeTest, AnEmptySupplySaysSo) {
  uint64_t page = 0;
  while (tree_.FindOrMake(supply_, page) != nullptr) ++page;
  EXPECT_GT(page, 10000u);
  EXPECT_EQ(tree_.Find(supply_, page), nullptr);
  EXPECT_NE(tree_.Find(supply_, page - 1), nullptr);
  EXPECT_TRUE(supply_.Low());
}

TEST_F(TreeTest, ThreadsAgreeOnEachPage) {
  constexpr int kThreads = 4;
  constexpr uint64_t kPages = 3000;
  std::vector<std::vector<PageDescriptor*>> found(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kPages; ++i) {
        found[t].push_back(tree_.FindOrMake(supply_, i * i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 1; t < kThreads; ++t) EXPECT_EQ(found[t], found[0]);
  EXPECT_EQ(supply_.pages.Available(), supply_.pages.capacity() - kPages);
}

// unwritten counts the newest of the dirty ones, whichever of these goes.
TEST(PageDescriptorTest, CountsWhatIsPending) {
  PageDescriptor page = {};
  sys::Lock lock(page.lock);
  EXPECT_TRUE(page.idle());
  for (uint64_t place = 10; place < 15; ++place) page.Appended(place);
  EXPECT_EQ(page.last, 14u);
  page.WrittenBack(2);
  EXPECT_EQ(page.unwritten, 2u);
  page.WrittenBack();
  page.Appended(15);
  page.Appended(16);
  EXPECT_EQ(page.dirty, 7u);
  EXPECT_EQ(page.unwritten, 2u);
  page.Cleaned();
  page.Unchained(2);
  EXPECT_EQ(page.dirty, 5u);
  EXPECT_EQ(page.unwritten, 2u) << "the kernel has it";
  page.Unchained(1);
  EXPECT_EQ(page.dirty, 4u);
  EXPECT_EQ(page.unwritten, 1u);
  page.LostByKernel();
  EXPECT_EQ(page.unwritten, 4u);
  page.Unchained(3);
  EXPECT_EQ(page.unwritten, 3u);
  page.WrittenBack();
  for (int i = 0; i < 3; ++i) page.Cleaned();
  EXPECT_TRUE(page.idle());
}

}  // namespace
}  // namespace nvcache::radix
