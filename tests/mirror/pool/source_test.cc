// SPDX-License-Identifier: BSD-3-Clause
//
// A cursor over a pool that nobody writes to meanwhile: the image holds the same groups.
#include "mirror/pool/source.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/kept.h"
#include "tests/mirror/pool/image.h"
#include "tests/unit/log_user.h"

namespace nvcache::mirror {
namespace {

using nvlog::Kind;
using nvlog::Lsn;
using nvlog::Outcome;
using nvlog::Place;

constexpr uint64_t kPage = pool::kPageSize;

class SourceTest : public testing::Test {
 protected:
  explicit SourceTest(uint64_t size = 2 * pool::kMinPoolSize) {
    pmem::Initialize();
    test::MakePool(path_, size);
    test::Use(pool_, path_);
    EXPECT_TRUE(log_.Open(&pool_));
    kept_.Open();
    a_.number = 1;
    b_.number = 2;
    test::OpenPool(looked_at_, path_, pool::Mode::kInspect);
    cursor_ = source_.NewCursor();
    image_ = std::make_unique<Image>(source_.pool_size());
  }
  ~SourceTest() override {
    log_.Close();
    pool_.Close();
  }

  static pool::FileRecord RecordOf(const nvlog::FileTag& file) {
    return test::RecordOfNone("/file" + std::to_string(file.number), file.number);
  }
  Place Write(nvlog::FileTag& file, uint64_t offset, const std::string& bytes) {
    pool::FileRecord record = RecordOf(file);
    nvlog::GroupWriter group(log_, file);
    EXPECT_EQ(group.BeginData(offset, bytes.size(), &record), Outcome::kDone);
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min(kPage - (offset + at) % kPage, bytes.size() - at);
      EXPECT_TRUE(group.AddPage(reinterpret_cast<const uint8_t*>(&bytes[at]),
                                static_cast<uint32_t>(n), nullptr, nvlog::kNoPlace));
      at += n;
    }
    group.Commit();
    Place first = nvlog::kNoPlace;
    group.ForEachPart([&](Place place, uint64_t, uint64_t) {
      if (first == nvlog::kNoPlace) first = place;
    });
    return first;
  }
  void Mark(nvlog::FileTag& file, Kind kind, uint64_t offset, uint64_t length) {
    pool::FileRecord record = RecordOf(file);
    nvlog::GroupWriter group(log_, file);
    ASSERT_EQ(group.BeginMark(kind, offset, length, &record), Outcome::kDone);
    group.Commit();
  }
  void WriteThrough(nvlog::FileTag& file, const std::string& bytes) {
    pool::FileRecord record = RecordOf(file);
    nvlog::GroupWriter group(log_, file, 0);
    ASSERT_EQ(group.BeginData(0, bytes.size(), &record, true), Outcome::kDone);
    ASSERT_TRUE(group.AddPage(reinterpret_cast<const uint8_t*>(bytes.data()),
                              static_cast<uint32_t>(bytes.size())));
    group.Draw();
    group.Commit();
  }
  void Settle(nvlog::FileTag& file) {
    pool::FileRecord record = RecordOf(file);
    nvlog::GroupWriter group(log_, file, 0);
    ASSERT_EQ(group.BeginMark(Kind::kSettled, log_.newest(), 0, &record), Outcome::kDone);
    group.Draw();
    group.Commit();
  }
  void Name() {
    pool::NameRecord record = {};
    record.deed = pool::Deed::kCreated;
    record.mode = S_IFREG | 0600;
    record.file.inode = 77;
    record.folder.inode = 7;
    record.name_length = 4;
    record.folder_path_length = 7;
    std::memcpy(record.text, "name\0\0\0/folder\0", 16);  // a zero behind each of five
    ASSERT_TRUE(pool::IsNameRecord(record, pool::NameRecordSize(record)));
    nvlog::GroupWriter group(log_);
    ASSERT_EQ(group.BeginName(record), Outcome::kDone);
    group.Draw();
    group.Commit();
  }
  Place Keep(Place place, nvlog::FileTag& file, Lsn* declared) {
    const nvlog::RecordHeader& header = log_.At(place);
    const nvlog::Log::Piece piece = log_.PieceAt(place, header.offset / kPage);
    return kept_.Append({Kind::kData, header.lsn, file.number, header.offset, header.length,
                         piece.bytes, nvlog::kNoPlace},
                        declared, file.record.load(), 0);
  }
  void Clean() {
    nvlog::Log::Ends ends;
    log_.Look(&ends);
    Place place;
    while ((place = log_.NextRecord(ends)) != nvlog::kNoPlace) log_.Pass(place);
    pool_.StoreSeatCheckpoint(ends.bound);
    log_.Forget(ends.bound, ends, [](Place) {});
  }
  // All that is new. How many batches it was.
  int Read() {
    int batches = 0;
    bool whole = true;
    for (Batch batch; cursor_->Read(&batch); ++batches) {
      EXPECT_EQ(image_->Apply(batch), "");
      whole = batch.whole;
    }
    EXPECT_TRUE(whole);
    return batches;
  }
  void ExpectSame(const test::Caller& /*caller*/ = test::Caller()) {
    std::string damaged, own;
    const std::vector<Seen> image = Walk(image_->view(), &damaged);
    EXPECT_EQ(damaged, "");
    EXPECT_EQ(image, Walk(pool_.view(), &own));
    EXPECT_EQ(own, "");
    EXPECT_EQ(image_->position(), log_.newest() + 1);
  }

  test::Folder folder_{test::Folder::kMemory};
  const std::string path_ = folder_ / "pool";
  test::ScopedPool pool_, looked_at_;
  nvlog::Log log_;
  nvlog::Kept kept_{log_};
  nvlog::FileTag a_, b_;
  PoolSource source_{looked_at_};
  std::unique_ptr<Cursor> cursor_;
  std::unique_ptr<Image> image_;
};

// A scan of the segments takes some time: it may pass a segment of a group that is still being
// taken, and come to the next one of the same group when that has been.
TEST_F(SourceTest, ASegmentIsMetAfterTheOneThatNamesIt) {
  Write(a_, 0, "before");
  Read();
  const std::string bytes(log_.max_group_pages() * kPage, 'x');
  pool::FileRecord record = RecordOf(b_);
  nvlog::GroupWriter group(log_, b_);
  ASSERT_EQ(group.BeginData(0, bytes.size(), &record), Outcome::kDone);
  const pool::View& view = pool_.view();
  const auto names = [&](uint32_t number, uint32_t other) {
    const pool::SegmentHeader& next = *view.segment(number);
    const pool::SegmentHeader& header = *view.segment(other);
    return next.word != 0 && header.word != 0 && next.previous_number == other &&
           next.previous_generation == header.generation;
  };
  uint32_t late = 0;  // newly taken, and named by another that is
  const auto is_late = [&](uint32_t number) {
    for (uint32_t next = 0; next < view.segment_count(); ++next) {
      if (names(next, number) && view.segment(number)->previous_generation != 0) return true;
    }
    return false;
  };
  while (late < view.segment_count() && !is_late(late)) ++late;
  ASSERT_LT(late, view.segment_count());
  const uint64_t word = std::exchange(view.segment(late)->word, 0);
  Read();
  view.segment(late)->word = word;
  pool_.seats().CountTaken();
  for (size_t at = 0; at < bytes.size(); at += kPage) {
    ASSERT_TRUE(group.AddPage(reinterpret_cast<const uint8_t*>(&bytes[at]), kPage, nullptr,
                              nvlog::kNoPlace));
  }
  group.Commit();
  Read();
  ExpectSame();
}

TEST_F(SourceTest, ANewPoolIsAnEmptyOne) {
  EXPECT_EQ(Read(), 1);
  ExpectSame();
  EXPECT_EQ(image_->view().state()->state, pool::kStateInUse);
  EXPECT_EQ(image_->view().state()->handed_over, 1u);
  EXPECT_EQ(std::memcmp(image_->base() + pool::kSuperblockCopyOffset, image_->base(),
                        sizeof(pool::Superblock)),
            0);
  const Id lineage = source_.lineage();
  EXPECT_EQ(std::memcmp(image_->view().superblock->uuid, lineage.bytes.data(), 16), 0);
  for (uint64_t at = pool::kStatisticsOffset; at < pool::kLastWordsOffset; ++at) {
    ASSERT_EQ(image_->base()[at], 0);
  }
  EXPECT_EQ(Read(), 0);
}

TEST_F(SourceTest, GroupsOfAllKinds) {
  for (const bool from_the_start : {true, false}) {
    SCOPED_TRACE(from_the_start);
    Write(a_, 5, "hello");
    Write(b_, kPage - 2, "over two pages");
    Mark(a_, Kind::kTruncate, 3, 0);
    Mark(b_, Kind::kErase, 100, 5000);
    WriteThrough(a_, "in the kernel");
    Settle(a_);
    Name();
    pool_.MarkHandsOver();
    Mark(b_, Kind::kHandedOver, 0, 0);
    Write(a_, 7 * kPage, std::string(log_.max_group_pages() * kPage, 'l'));
    {
      pool::FileRecord record = RecordOf(a_);
      nvlog::GroupWriter group(log_, a_);
      ASSERT_EQ(group.BeginFile(&record), Outcome::kDone);
      group.Commit();
    }
    if (from_the_start) {
      EXPECT_GE(Read(), 1);
    } else {
      for (int i = 0; i < 9; ++i) EXPECT_GE(Read(), i == 0 ? 1 : 0);
    }
    ExpectSame();
    Clean();
    EXPECT_EQ(Read(), 1) << "the checkpoint alone";
    ExpectSame();
    EXPECT_EQ(Read(), 0);
  }
}

TEST_F(SourceTest, KeptGroups) {
  Lsn declared = 0;
  Place kept[3];
  for (int i = 0; i < 3; ++i) {
    const Place place = Write(a_, static_cast<uint64_t>(i) * kPage, "kept " + std::to_string(i));
    kept[i] = Keep(place, a_, &declared);
    ASSERT_NE(kept[i], nvlog::kNoPlace);
    if (i == 1) Read();
  }
  Clean();
  Read();
  ExpectSame();
  kept_.Void(kept[0]);
  log_.Draw();
  Read();
  ExpectSame();
  kept_.Void(kept[1]);
  kept_.Void(kept[2]);
  kept_.Settle();
  Write(b_, 0, "later");
  Clean();
  Read();
  ExpectSame();
  std::string problem;
  EXPECT_TRUE(Walk(image_->view(), &problem).empty());
}

// A segment that was kept, and is page frames now, or is being taken by a process that has died.
TEST_F(SourceTest, AKeptSegmentThatIsGone) {
  Lsn declared = 0;
  const Place kept = Keep(Write(a_, 0, "kept"), a_, &declared);
  Clean();
  Read();
  ExpectSame();
  kept_.Void(kept);
  kept_.Settle();
  auto* header = pool_.view().segment(static_cast<uint32_t>(kept / pool_.view().segment_units()));
  header->word = 0;
  log_.Draw();
  Read();
  std::string problem;
  EXPECT_TRUE(Walk(image_->view(), &problem).empty());
  EXPECT_EQ(problem, "");
}

// Words of groups of a dead process whose seat stays unresolved.
TEST_F(SourceTest, AnUnresolvedSeat) {
  auto dead = std::make_unique<test::LogUser>();
  test::Use(dead->pool, path_);
  ASSERT_TRUE(dead->log.Open(&dead->pool));
  const Lsn first = dead->Append(b_, RecordOf(b_), 0, "on the disk");
  const Place place = dead->last;
  dead->Append(b_, RecordOf(b_), 50, "refused");
  Write(a_, 0, "of the living");
  Read();
  ExpectSame();
  dead->log.Close();
  dead->pool.Close();
  const uint32_t seat = pool_.Adopt();
  ASSERT_NE(seat, pool::kNoSeat);
  const uint64_t units = pool_.view().segment_units();
  const Place mark = place / units * units + nvlog::kFirstUnit;
  auto* header = reinterpret_cast<nvlog::RecordHeader*>(pool_.view().unit(mark));
  ASSERT_EQ(header->lsn, first);
  header->commit = nvlog::VoidWord(first, pool_.view().salt());
  pool_.Settle(seat, false);
  Write(a_, 50, "later");
  Read();
  ExpectSame();
  // And one that begins now.
  cursor_ = source_.NewCursor();
  image_ = std::make_unique<Image>(source_.pool_size());
  Read();
  ExpectSame();
}

TEST_F(SourceTest, AnLsnAloneMovesThePosition) {
  Write(a_, 0, "a");
  Read();
  for (int i = 0; i < 3; ++i) {
    const Lsn lsn = log_.Draw();
    Batch batch;
    ASSERT_TRUE(cursor_->Read(&batch));
    EXPECT_GT(batch.position, lsn);
    EXPECT_TRUE(batch.whole);
    EXPECT_TRUE(batch.ranges.empty());
    EXPECT_FALSE(cursor_->Read(&batch));
  }
}

// A group whose LSN others have passed when it is committed.
TEST_F(SourceTest, AGroupThatIsCommittedLate) {
  Write(a_, 0, "a");
  {
    pool::FileRecord record = RecordOf(b_);
    nvlog::GroupWriter late(log_, b_);
    ASSERT_EQ(late.BeginData(0, 4, &record), Outcome::kDone);
    ASSERT_TRUE(late.AddPage(reinterpret_cast<const uint8_t*>("late"), 4, nullptr, 0));
    WriteThrough(a_, "passes");
    Read();
    late.Commit();
  }
  EXPECT_EQ(Read(), 1);
  ExpectSame();
}

class LargeSourceTest : public SourceTest {
 protected:
  LargeSourceTest() : SourceTest(uint64_t{64} << 20) {}
};

TEST_F(LargeSourceTest, TheLongestGroupsAndManyBatches) {
  const uint64_t longest = log_.max_group_pages() * kPage;
  for (uint64_t i = 0; i < 6; ++i) {
    Write(a_, i, std::string(longest - kPage, static_cast<char>('a' + i)));
    for (uint64_t j = 0; j < 100; ++j) Write(b_, j * 50, "small");
  }
  EXPECT_GE(Read(), 6);
  ExpectSame();
}

// A mirror looks all the time.
TEST_F(LargeSourceTest, ALookThatFindsNothingIsCheap) {
  Write(a_, 0, "a");
  WriteThrough(b_, "b");
  Read();
  constexpr int kLooks = 20000;
  const auto begin = std::chrono::steady_clock::now();
  Batch batch;
  for (int i = 0; i < kLooks; ++i) ASSERT_FALSE(cursor_->Read(&batch));
  const auto took = std::chrono::steady_clock::now() - begin;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count() / kLooks;
  RecordProperty("ns", static_cast<int>(ns));
  EXPECT_LT(ns, 100'000);
  std::cout << ns << " ns\n";
}

}  // namespace
}  // namespace nvcache::mirror
