// SPDX-License-Identifier: BSD-3-Clause
#include <set>

#include "src/dramcache/frames.h"
#include "src/dramcache/page_cache.h"
#include "src/nvlog/byte_set.h"
#include "src/nvlog/reader.h"
#include "src/pmem/persist.h"
#include "tests/unit/support.h"
#include "tests/unit/unreadable.h"

namespace nvcache::dramcache {
namespace {

TEST(ByteSetTest, AgreesWithASetOfBytes) {
  std::mt19937_64 random(test::Seed());
  for (int round = 0; round < 50; ++round) {
    nvlog::ByteSet set;
    std::set<size_t> model;
    while (!set.full() && model.size() < nvlog::ByteSet::kSize * 9 / 10) {
      const size_t begin = random() % nvlog::ByteSet::kSize;
      const size_t end =
          begin + 1 + random() % std::min<size_t>(nvlog::ByteSet::kSize - begin, 700);
      size_t covered = begin;
      set.Add(begin, end, [&](size_t from, size_t to) {
        ASSERT_TRUE(covered <= from && from < to && to <= end);
        for (; covered < from; ++covered) EXPECT_TRUE(model.contains(covered));
        for (; covered < to; ++covered) EXPECT_TRUE(model.insert(covered).second);
      });
      for (; covered < end; ++covered) EXPECT_TRUE(model.contains(covered));
    }
    std::set<size_t> runs;
    size_t last_end = nvlog::ByteSet::kSize + 1;
    set.ForEachRun([&](size_t from, size_t to) {
      EXPECT_NE(from, last_end) << "runs that touch are one";
      for (size_t i = from; i < to; ++i) runs.insert(i);
      last_end = to;
    });
    EXPECT_EQ(runs, model);
  }
}

TEST(ByteSetTest, TheWholePageIsFull) {
  nvlog::ByteSet set;
  EXPECT_FALSE(set.full());
  set.Add(0, nvlog::ByteSet::kSize, [](size_t from, size_t to) {
    EXPECT_EQ(from, 0u);
    EXPECT_EQ(to, nvlog::ByteSet::kSize);
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

// ---------------------------------------------------------------------------------------------

TEST(ErasuresTest, OneThatLiesWithinANewerOneIsForgotten) {
  Erasures erasures;
  const auto all = [&] {
    std::vector<nvlog::Lsn> lsns;
    erasures.ForEach([&](const Erasure& erasure) { lsns.push_back(erasure.lsn); });
    return lsns;
  };
  EXPECT_TRUE(erasures.empty());
  erasures.Add({1, 100, 200});
  erasures.Add({2, 300, Erasure::kToTheEnd});
  erasures.Add({3, 150, 250});
  EXPECT_EQ(all(), (std::vector<nvlog::Lsn>{3, 2, 1})) << "the newest first";
  erasures.Add({4, 100, 250});
  EXPECT_EQ(all(), (std::vector<nvlog::Lsn>{4, 2}));
  erasures.Forget(3);
  EXPECT_EQ(all(), (std::vector<nvlog::Lsn>{4, 2})) << "it was forgotten before";
  erasures.Forget(2);
  EXPECT_EQ(all(), std::vector<nvlog::Lsn>{4});
  for (nvlog::Lsn lsn = 5; erasures.HasRoom(); ++lsn) erasures.Add({lsn, lsn * 1000, lsn * 1001});
  EXPECT_EQ(all().size(), Erasures::kMost);
  erasures.Forget(4);
  EXPECT_TRUE(erasures.HasRoom());
  erasures.Add({1000, 0, Erasure::kToTheEnd});
  EXPECT_EQ(all(), std::vector<nvlog::Lsn>{1000});
  erasures.Clear();
  EXPECT_TRUE(erasures.empty());
}

// One file, its pages, and a log that nobody cleans up.
class PageCacheTest : public testing::Test {
 protected:
  PageCacheTest() {
    pmem::Initialize();
    test::MakePool(memory_ / "pool");
    EXPECT_TRUE(test::OpenPool(pool_, memory_ / "pool"));
    EXPECT_TRUE(log_.Open(&pool_));
    kept_.Open();
    EXPECT_TRUE(supply_.Open(10000));
    EXPECT_TRUE(frames_.Open(16, &supply_.pages, log_.statistics()));
    file_.tag.number = 1;
    file_.backing_fd = ::open((disk_ / "a").c_str(), O_RDWR | O_CREAT, 0600);
  }
  ~PageCacheTest() override {
    ::close(file_.backing_fd);
    frames_.Close();
    supply_.Close();
    log_.Close();
    pool_.Close();
  }

  nvlog::Outcome Append(uint64_t offset, const iovec* iov, int count, uint64_t length) {
    Cursor cursor(iov, count);
    pool::FileRecord record = test::RecordOfNone("/a", 1);
    return cache_.Append(file_, offset, length, &cursor, &record);
  }
  // The record of the first page.
  nvlog::Place Write(uint64_t offset, const std::string& bytes) {
    const iovec iov = {const_cast<char*>(bytes.data()), bytes.size()};
    EXPECT_EQ(Append(offset, &iov, 1, bytes.size()), nvlog::Outcome::kDone);
    return Page(offset / 4096).last;
  }
  radix::PageDescriptor& Page(uint64_t number) { return *file_.pages.FindOrMake(supply_, number); }
  std::string Read(uint64_t offset, size_t n) {
    radix::PageDescriptor& page = Page(offset / 4096);
    sys::Lock lock(page.lock);
    std::string bytes(n, '!');
    const long got = cache_.Read(file_, offset / 4096, page, offset % 4096, n,
                                 reinterpret_cast<uint8_t*>(bytes.data()));
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  long WriteBack(uint64_t number) {
    radix::PageDescriptor& page = Page(number);
    sys::Lock lock(page.lock);
    return cache_.WriteBackPage(file_, number, page, log_.newest());
  }
  bool Keep(uint64_t number, nvlog::Place place) {
    radix::PageDescriptor& page = Page(number);
    sys::Lock lock(page.lock);
    return cache_.Keep(file_, number, page, place, file_.tag.record.load());
  }
  // The page's pending records, the newest first.
  std::vector<nvlog::Place> Chain(uint64_t number) {
    std::vector<nvlog::Place> chain;
    nvlog::Place place = Page(number).last;
    for (uint32_t i = 0; i < Page(number).dirty; ++i) {
      chain.push_back(place);
      place = *log_.PieceAt(place, number).link;
    }
    return chain;
  }
  void ForgetFrame(uint64_t number) {
    radix::PageDescriptor& page = Page(number);
    sys::Lock lock(page.lock);
    if (page.has_frame()) frames_.Detach(page);
  }
  nvlog::Lsn LsnOf(nvlog::Place place) const { return log_.At(place).lsn; }

  test::Folder memory_{test::Folder::kMemory};
  test::Folder disk_;
  pool::Pool pool_;
  nvlog::Log log_;
  nvlog::Kept kept_{log_};
  radix::Supply supply_;
  Frames frames_;
  PageCache cache_{log_, kept_, supply_, frames_};
  CachedFile file_;
};

TEST_F(PageCacheTest, TheNewestBytesAreReadWithAndWithoutAFrame) {
  Write(0, std::string(10000, 'a'));
  Write(4000, std::string(200, 'b'));
  const std::string expected =
      std::string(4000, 'a') + std::string(200, 'b') + std::string(5800, 'a');
  for (int round = 0; round < 2; ++round) {
    for (uint64_t page = 0; page < 2; ++page) {
      EXPECT_TRUE(Read(page * 4096, 4096) == expected.substr(page * 4096, 4096));
    }
    EXPECT_TRUE(Page(0).has_frame());
    ForgetFrame(0);
  }
  EXPECT_EQ(file_.size.load(), 10000u);
  for (uint64_t page = 0; page < 3; ++page) EXPECT_EQ(WriteBack(page), 0);
  EXPECT_TRUE(test::ReadFile(disk_ / "a") == expected);
  EXPECT_EQ(Page(0).dirty, 2u);
  EXPECT_EQ(Page(0).unwritten, 0u);
}

// A buffer that ends in the middle of a group: not a byte of it is there, and frames tell no lies.
TEST_F(PageCacheTest, ABadBufferChangesNothing) {
  Write(0, std::string(3 * 4096, 'a'));
  for (uint64_t page = 0; page < 3; ++page) Read(page * 4096, 1);
  const uint64_t pending = file_.pending.load();
  const test::Unreadable bad;
  std::string good(6000, 'b');
  const iovec iov[] = {{good.data(), good.size()}, {bad.bytes(), 3000}};
  EXPECT_EQ(Append(100, iov, 2, 9000), nvlog::Outcome::kBadBuffer);
  EXPECT_EQ(file_.pending.load(), pending);
  EXPECT_EQ(file_.size.load(), 3 * 4096u);
  for (uint64_t page = 0; page < 3; ++page) {
    EXPECT_TRUE(Read(page * 4096, 4096) == std::string(4096, 'a')) << page;
    EXPECT_EQ(Page(page).dirty, 1u);
    EXPECT_FALSE(Page(page).lock.IsLocked());
  }
  Write(5000, "c");
  EXPECT_EQ(Read(4999, 3), "aca");
}

// A page's part of a record goes elsewhere; the chain keeps its order, and the bytes stay.
TEST_F(PageCacheTest, AKeptRecordTakesTheOldOnesPlace) {
  const nvlog::Place first = Write(0, "aaaaaa"), second = Write(2, "bb"), third = Write(5, "cc");
  const std::string expected = "aabbacc";
  EXPECT_EQ(Chain(0), (std::vector{third, second, first}));
  EXPECT_FALSE(cache_.Moved(second, 0));
  ASSERT_TRUE(Keep(0, second));
  EXPECT_TRUE(cache_.Moved(second, 0));
  EXPECT_FALSE(cache_.Moved(first, 0));
  std::vector<nvlog::Place> chain = Chain(0);
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[0], third);
  EXPECT_TRUE(kept_.Holds(chain[1]));
  EXPECT_EQ(LsnOf(chain[1]), LsnOf(second));
  EXPECT_EQ(chain[2], first);
  EXPECT_EQ(Read(0, 7), expected);
  ASSERT_TRUE(Keep(0, first));
  ASSERT_TRUE(Keep(0, third));
  chain = Chain(0);
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(LsnOf(chain[0]), LsnOf(third));
  EXPECT_EQ(LsnOf(chain[1]), LsnOf(second));
  EXPECT_EQ(LsnOf(chain[2]), LsnOf(first));
  ForgetFrame(0);
  EXPECT_EQ(Read(0, 7), expected);
  EXPECT_EQ(Page(0).dirty, 3u);
  EXPECT_EQ(Page(0).unwritten, 3u);
  // And back: the oldest first, as the disk takes them.
  EXPECT_EQ(WriteBack(0), 0);
  for (size_t left = 3; left-- > 0;) {
    sys::Lock lock(Page(0).lock);
    cache_.Void(file_, 0, Page(0), chain[left]);
    EXPECT_EQ(Page(0).dirty, left);
  }
  EXPECT_EQ(kept_.units(), 0u);
  EXPECT_EQ(Read(0, 7), expected);
}

// Of a record that newer ones hide, nothing is copied; kept ones that they hide are void.
TEST_F(PageCacheTest, WhatIsHiddenIsNotKept) {
  const nvlog::Place first = Write(10, "aaaa"), second = Write(12, "bbbb"),
                     third = Write(8, "cccc");
  ASSERT_TRUE(Keep(0, first)) << "the others hold all of it: 8 to 16";
  EXPECT_EQ(kept_.units(), 0u);
  EXPECT_EQ(Chain(0), (std::vector{third, second}));
  EXPECT_TRUE(cache_.Moved(first, 0));
  ASSERT_TRUE(Keep(0, second));
  const uint64_t units = kept_.units();
  const uint64_t pending = file_.pending.load();
  EXPECT_GT(units, 0u);
  EXPECT_EQ(Read(8, 8), "ccccbbbb");
  const nvlog::Place fourth = Write(12, "dddd");
  ASSERT_TRUE(Keep(0, fourth));
  std::vector<nvlog::Place> chain = Chain(0);
  ASSERT_EQ(chain.size(), 2u) << "the kept one is hidden now";
  EXPECT_EQ(LsnOf(chain[0]), LsnOf(fourth));
  EXPECT_EQ(chain[1], third);
  EXPECT_LT(kept_.units(), 2 * units);
  EXPECT_LT(file_.pending.load(), pending + 2 * units);
  ForgetFrame(0);
  EXPECT_EQ(Read(8, 8), "ccccdddd");
}

// A cut hides what it has cut off; a hole does not, for the size is the record's.
TEST_F(PageCacheTest, ACutHidesAndAHoleDoesNot) {
  const nvlog::Place first = Write(4096, std::string(4096, 'a'));
  file_.erasures.Add({log_.Draw(), 4096, 8192});
  ASSERT_TRUE(Keep(1, first));
  EXPECT_GT(kept_.units(), 0u);
  const nvlog::Place second = Write(8192, "b");
  file_.erasures.Add({log_.Draw(), 8192, Erasure::kToTheEnd});
  const uint64_t units = kept_.units();
  ASSERT_TRUE(Keep(2, second));
  EXPECT_EQ(kept_.units(), units);
  EXPECT_EQ(Page(2).dirty, 0u);
  const nvlog::Place third = Write(8192, "c");
  ASSERT_TRUE(Keep(2, third)) << "newer than the cut";
  EXPECT_GT(kept_.units(), units);
  EXPECT_TRUE(Read(4096, 4096) == std::string(4096, '\0'));
  EXPECT_EQ(Read(8192, 2), std::string("c\0", 2));
}

// After a sync that failed the kernel may have lost everything, but what was erased stays so.
TEST_F(PageCacheTest, WhatWasErasedIsNotWrittenAgain) {
  Write(0, std::string(2 * 4096, 'a'));
  EXPECT_EQ(WriteBack(0), 0);
  file_.erasures.Add({log_.Draw(), 0, 4096});
  Write(10, "b");
  for (uint64_t page = 0; page < 2; ++page) {
    sys::Lock lock(Page(page).lock);
    Page(page).LostByKernel();
  }
  std::string expected = std::string(4096, '\0') + std::string(4096, 'a');
  expected[10] = 'b';
  EXPECT_TRUE(Read(0, 4096) == expected.substr(0, 4096));
  ForgetFrame(0);
  EXPECT_EQ(WriteBack(0), 0);
  EXPECT_EQ(WriteBack(1), 0);
  EXPECT_TRUE(test::ReadFile(disk_ / "a") == expected);
  // And alone: a whole page of which nothing is left.
  file_.erasures.Add({log_.Draw(), 4096, 8192});
  {
    sys::Lock lock(Page(1).lock);
    Page(1).LostByKernel();
  }
  EXPECT_EQ(WriteBack(1), 0);
  EXPECT_TRUE(test::ReadFile(disk_ / "a").substr(4096) == std::string(4096, '\0'));
}

}  // namespace
}  // namespace nvcache::dramcache
