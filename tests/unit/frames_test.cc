// SPDX-License-Identifier: BSD-3-Clause
//
// Page frames in the pool: a log beside them, and what a reader makes of them.
#include "src/dramcache/frames.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "src/nvlog/log.h"
#include "src/nvlog/walk.h"
#include "src/pmem/persist.h"
#include "src/replay/replay.h"
#include "src/sys/kernel.h"
#include "tests/unit/support.h"

namespace nvcache::dramcache {
namespace {

constexpr uint64_t kSize = 4u << 20;  // 63 segments of 64 KiB
constexpr uint32_t kSegments = pool::GeometryOf(kSize).segment_count;
constexpr uint32_t kSegmentPages = pool::kMinSegmentSize / pool::kPageSize;
constexpr uint32_t kFrameSegments = 5;
constexpr uint32_t kFrames = kFrameSegments * (kSegmentPages - 2);

class FramesInPoolTest : public testing::Test {
 protected:
  FramesInPoolTest() {
    pmem::Initialize();
    test::MakePool(path_, kSize);
    OpenPool();
    EXPECT_TRUE(pages_.Open(2 * kFrames));
  }
  ~FramesInPoolTest() override {
    frames_.Close();
    log_.Close();
    pages_.Close();
  }
  void OpenPool() { EXPECT_TRUE(test::OpenPool(pool_, path_)); }
  void Open(uint32_t frame_segments) {
    EXPECT_TRUE(log_.Open(&pool_, frame_segments));
    EXPECT_TRUE(frames_.OpenInPool(pool_.view(), frame_segments, &pages_));
  }
  bool Attach(radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    return frames_.Attach(page);
  }
  // Attaches as many pages as there are frames: the frames.
  std::vector<uint8_t*> TakeAll() {
    std::vector<uint8_t*> all;
    for (uint32_t i = 0; i < kFrames; ++i) {
      radix::PageDescriptor& page = pages_[pages_.Allocate()];
      EXPECT_TRUE(Attach(page));
      all.push_back(frames_.Bytes(page.frame()));
    }
    return all;
  }
  // Takes segments until there are none: their numbers.
  std::set<uint32_t> TakeSegments() {
    std::set<uint32_t> numbers;
    for (;;) {
      nvlog::Lsn generation = 0;
      const nvlog::Segments::Claim claim = {0, pool::SegmentKind::kLog, nvlog::kNoSegment, 0, 0};
      const uint32_t number = log_.segments().Take(claim, &generation, true);
      if (number == nvlog::kNoSegment) return numbers;
      EXPECT_TRUE(numbers.insert(number).second) << number;
    }
  }
  pool::SegmentKind KindOf(uint32_t number, bool copy) const {
    const pool::View& view = pool_.view();
    pool::SegmentHeader header = {};
    const auto& place = copy ? *view.segment_copy(number) : *view.segment(number);
    EXPECT_TRUE(pool::CopySegmentHeader(view, place, number, &header)) << number;
    return header.kind;
  }

  test::Folder memory_{test::Folder::kMemory};
  const std::string path_ = memory_ / "pool";
  test::ScopedPool pool_;
  radix::PageArena pages_;
  nvlog::Log log_;
  Frames frames_;
};

TEST_F(FramesInPoolTest, AllPagesOfTheLastSegmentsButThoseOfHeaders) {
  Open(kFrameSegments);
  const std::vector<uint8_t*> all = TakeAll();
  EXPECT_EQ(std::set<uint8_t*>(all.begin(), all.end()).size(), kFrames);
  const pool::View& view = pool_.view();
  for (uint8_t* bytes : all) {
    const auto page = static_cast<uint64_t>(bytes - view.unit(0)) / pool::kPageSize;
    EXPECT_EQ(static_cast<uint64_t>(bytes - view.unit(0)) % pool::kPageSize, 0u);
    EXPECT_GE(page / kSegmentPages, kSegments - kFrameSegments);
    EXPECT_LT(page / kSegmentPages, kSegments);
    EXPECT_NE(page % kSegmentPages, 0u);
    EXPECT_NE(page % kSegmentPages, kSegmentPages - 1);
    std::memset(bytes, 0xff, pool::kPageSize);
  }
  for (uint32_t number = kSegments - kFrameSegments; number < kSegments; ++number) {
    for (const bool copy : {false, true}) {
      EXPECT_EQ(KindOf(number, copy), pool::SegmentKind::kFrames);
    }
  }
  for (uint32_t i = 0; i < kSegments; ++i) {
    EXPECT_EQ(pool_.seats().Owns(i, 0), i >= kSegments - kFrameSegments) << i;
  }
  // Another page gets the frame of one of them.
  EXPECT_TRUE(Attach(pages_[pages_.Allocate()]));
  EXPECT_EQ(view.statistics()->evictions, 1u);
}

TEST_F(FramesInPoolTest, TheLogHasTheOtherSegments) {
  Open(kFrameSegments);
  EXPECT_EQ(log_.segments().count(), kSegments - kFrameSegments);
  EXPECT_EQ(log_.segments().free(), kSegments - kFrameSegments);
  // A lane for each eight of them; one is left for each lane, and one more.
  constexpr uint32_t kLanes = (kSegments - kFrameSegments) / 8;
  EXPECT_EQ(log_.writable_units(),
            (kSegments - kFrameSegments - kLanes - 1) * log_.segments().record_units());
  EXPECT_FALSE(log_.Short()) << "nothing is taken";
  while (log_.segments().Prefault()) continue;
  const std::set<uint32_t> taken = TakeSegments();
  EXPECT_EQ(taken.size(), kSegments - kFrameSegments);
  EXPECT_EQ(*taken.rbegin(), kSegments - kFrameSegments - 1);
  EXPECT_EQ(KindOf(kSegments - kFrameSegments, false), pool::SegmentKind::kFrames);
}

// The next use of the pool keeps its frames elsewhere.
TEST_F(FramesInPoolTest, WithoutFramesTheSegmentsAreFreeAgain) {
  Open(kFrameSegments);
  for (uint8_t* bytes : TakeAll()) std::memset(bytes, 0xff, pool::kPageSize);
  frames_.Close();
  EXPECT_EQ(KindOf(kSegments - 1, false), pool::SegmentKind::kFrames) << "the pool is still there";
  log_.Close();
  pool_.Close();
  OpenPool();
  EXPECT_TRUE(log_.Open(&pool_));
  EXPECT_EQ(log_.segments().count(), kSegments);
  EXPECT_EQ(TakeSegments().size(), kSegments);
  EXPECT_EQ(KindOf(kSegments - 1, false), pool::SegmentKind::kLog);
}

// What a log said of a segment is said no more before a byte of a frame is stored there.
TEST_F(FramesInPoolTest, FormerHeadersAreGone) {
  EXPECT_TRUE(log_.Open(&pool_));
  EXPECT_EQ(TakeSegments().size(), kSegments);
  pool_.StoreCheckpoint(log_.newest() + 1);
  log_.FreeAll();
  log_.Close();
  EXPECT_TRUE(log_.Open(&pool_, kFrameSegments));
  for (uint32_t number = 0; number < kSegments; ++number) {
    const bool frames = number >= kSegments - kFrameSegments;
    const auto kind = frames ? pool::SegmentKind::kFrames : pool::SegmentKind::kLog;
    for (const bool copy : {false, true}) EXPECT_EQ(KindOf(number, copy), kind) << number;
  }
}

TEST_F(FramesInPoolTest, TheLogKeepsAsMuchAsTheSmallestPoolHas) {
  const pool::View& view = pool_.view();
  const uint64_t each = (kSegmentPages - 2) * pool::kPageSize;
  const uint64_t most = (kSegments - pool::GeometryOf(pool::kMinPoolSize).segment_count) * each;
  EXPECT_EQ(nvlog::FrameSegments(view, 1), 1u);
  EXPECT_EQ(nvlog::FrameSegments(view, each), 1u);
  EXPECT_EQ(nvlog::FrameSegments(view, each + 1), 2u);
  pool::Problem problem;
  EXPECT_TRUE(nvlog::HasRoomForFrames(pool_, most, &problem));
  EXPECT_EQ(problem.text.size(), 0u);
  EXPECT_FALSE(nvlog::HasRoomForFrames(pool_, most + 1, &problem));
  const std::string text = problem.text.c_str();
  EXPECT_NE(text.find(path_), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(most / 1024) + "k"), std::string::npos) << text;
  EXPECT_NE(text.find("NVCACHE_FRAMES"), std::string::npos) << text;
  // The least log that this leaves works.
  Open(static_cast<uint32_t>(nvlog::FrameSegments(view, most)));
  EXPECT_GT(log_.max_group_pages(), 0u);
  EXPECT_GT(log_.segments().count(), log_.segments().reserve());
}

TEST_F(FramesInPoolTest, AnAccessTakesAsLongAsItIsToldTo) {
  Open(kFrameSegments);
  radix::PageDescriptor& page = pages_[pages_.Allocate()];
  ASSERT_TRUE(Attach(page));
  constexpr uint64_t kDelayNs = 100000, kTimes = 20;
  const auto time = [&] {
    const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
    for (uint64_t i = 0; i < kTimes; ++i) frames_.Access(page.frame());
    return sys::Now(CLOCK_MONOTONIC) - begin;
  };
  frames_.SetDelay(kDelayNs);
  EXPECT_GT(time(), kTimes * kDelayNs * 3 / 4);  // the counter was measured for a millisecond
  uint64_t least = ~uint64_t{0};                 // the processor may be somebody else's for a while
  frames_.SetDelay(0);
  for (int i = 0; i < 10; ++i) least = std::min(least, time());
  EXPECT_LT(least, kTimes * kDelayNs / 4);
}

// ---------------------------------------------------------------------------------------------
// A process has died whose frames were there.

// Frames that hold what is a log in every respect: records of the segment in which they lie, of the
// generation that is in its header, committed and from the checkpoint on.
class DeadFramesTest : public testing::Test {
 protected:
  DeadFramesTest() {
    builder_.Name(1, test::RecordOfNone("/one", 11));
    builder_.Take(0, kFirst);
    while (builder_.segment() < kFirst + 3) {
      lies_.push_back(builder_.Add(test::Data(1, 0, std::string(3000, 'l'))));
      if (builder_.units_left() < 64) builder_.Take(0, builder_.segment() + 1);
    }
    for (uint32_t number = kFirst; number < kFirst + 3; ++number) {
      pool::SegmentHeader* header = view_.segment(number);
      header->kind = pool::SegmentKind::kFrames;
      builder_.SealSegment(number);
    }
    builder_.Take(1, 0);
    builder_.Take(0, 1);  // it names the last of those
    truth_ = builder_.Add(test::Data(1, 5, "true"), test::LogBuilder::kCommit, 1);
  }

  struct Told {
    std::vector<nvlog::Lsn> committed;
    uint64_t others = 0;
  };
  Told Walk(bool all = false) const {
    Told told;
    nvlog::Reader reader;
    EXPECT_TRUE(reader.Open(view_, -1, all));
    nvlog::GroupWalk walk(reader);
    EXPECT_TRUE(walk.Open());
    for (nvlog::Group group; walk.Next(&group);) {
      if (group.verdict == nvlog::Verdict::kCommitted) {
        told.committed.push_back(group.lsn);
      } else {
        ++told.others;
      }
    }
    return told;
  }

  static constexpr uint32_t kFirst = 5;
  test::MemoryPool memory_;
  pool::View view_ = memory_.view();
  test::LogBuilder builder_{view_};
  std::vector<test::Added> lies_;
  test::Added truth_;
};

TEST_F(DeadFramesTest, WhatLooksLikeALogIsNone) {
  ASSERT_GT(lies_.size(), 30u);
  for (const bool all : {false, true}) {
    const Told told = Walk(all);
    EXPECT_EQ(told.committed, std::vector<nvlog::Lsn>{truth_.lsn}) << all;
    EXPECT_EQ(told.others, 0u) << all;
  }
}

TEST_F(DeadFramesTest, OneOfTheHeadersIsEnough) {
  for (const bool copy : {false, true}) {
    auto* const header = reinterpret_cast<uint8_t*>(copy ? view_.segment_copy(kFirst + 1)
                                                         : view_.segment(kFirst + 1));
    for (const int with : {0x00, 0xff, 0x5a}) {
      const std::string old(reinterpret_cast<char*>(header), pool::kUnitSize);
      std::memset(header, with, pool::kUnitSize);
      const Told told = Walk();
      EXPECT_EQ(told.committed, std::vector<nvlog::Lsn>{truth_.lsn});
      EXPECT_EQ(told.others, 0u) << copy << " " << with;
      std::memcpy(header, old.data(), old.size());
    }
  }
}

// Then nobody can know that they were frames. But they are told of, and not applied.
TEST_F(DeadFramesTest, WithoutHeadersTheyAreDamaged) {
  std::memset(static_cast<void*>(view_.segment(kFirst)), 0, pool::kUnitSize);
  std::memset(static_cast<void*>(view_.segment_copy(kFirst)), 0, pool::kUnitSize);
  const Told told = Walk();
  EXPECT_EQ(told.committed, std::vector<nvlog::Lsn>{truth_.lsn});
  EXPECT_EQ(told.others, 1u);
}

// Recovery, and a use of the pool after it.
TEST_F(FramesInPoolTest, ADirtyPoolWithFramesIsRecovered) {
  const test::Folder disk;
  const std::string file = disk / "a";
  test::WriteFile(file, std::string(100, 'o'));
  pool_.MarkInUse();
  Open(kFrameSegments);
  test::LogBuilder builder(pool_.view());
  builder.Name(1, file);
  builder.Add(test::Data(1, 10, "logged"));
  const std::string record(reinterpret_cast<const char*>(pool_.view().segment(builder.segment())),
                           pool::kMinSegmentSize);
  // A frame has what the log has; another one, what somebody read of a copy of the pool.
  const std::vector<uint8_t*> all = TakeAll();
  for (uint32_t i = 0; i < kFrames; ++i) {
    std::memcpy(all[i], record.data() + i % kSegmentPages * pool::kPageSize, pool::kPageSize);
  }
  frames_.Close();
  log_.Close();
  pool_.Close();  // dirty, as a process leaves it that is killed
  OpenPool();
  ASSERT_TRUE(pool_.dirty());
  replay::Summary summary = {};
  EXPECT_TRUE(replay::Replay(pool_, {}, {}, &summary));
  EXPECT_EQ(summary.damaged_groups, 0u);
  EXPECT_EQ(summary.records, 1u);
  EXPECT_EQ(test::ReadFile(file), std::string(10, 'o') + "logged" + std::string(84, 'o'));
  EXPECT_FALSE(pool_.dirty());
  EXPECT_TRUE(log_.Open(&pool_));
  EXPECT_EQ(TakeSegments().size(), kSegments);
}

}  // namespace
}  // namespace nvcache::dramcache
