// SPDX-License-Identifier: BSD-3-Clause
//
// A pool with something pending, damaged everywhere, one place at a time: it is opened and
// recovered or refused, and no file holds anything but what it held before or what was written to
// it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "src/pool/pool.h"
#include "src/replay/replay.h"
#include "tests/unit/support.h"

namespace nvcache::replay {
namespace {

using pool::Mode;
using test::Folder;
using test::LogBuilder;
using test::ReadFile;
using test::ScopedPool;
using test::WriteFile;

const std::string kOld(300, 'o');
const std::string kNew(200, 'n');
const std::string kBoth = kNew + kOld.substr(kNew.size());

class DamageTest : public testing::Test {
 protected:
  // What became of a damaged pool.
  struct Outcomes {
    int refused = 0, clean = 0, kept = 0, applied = 0;
  };

  // Each file's records lie in a log of its own.
  void SetUp() override {
    test::MakePool(pool_path_);
    ScopedPool pool;
    ASSERT_TRUE(test::OpenPool(pool, pool_path_));
    pool.MarkInUse();
    LogBuilder builder(pool.view());
    for (const uint32_t file : {0u, 1u}) {
      WriteFile(Path(file), kOld);
      builder.Name(file, Path(file));
      builder.Add(test::Data(file, 0, kNew), LogBuilder::kCommit, file);
      end_[file] = BytesUpTo(builder.next_place(file));
    }
    WriteFile(wrong_, kOld);
    segment_size_ = pool.view().superblock->segment_size;
    pool.Close();
    good_ = ReadFile(pool_path_);
  }

  static uint64_t BytesUpTo(nvlog::Place place) {
    return pool::kSegmentsOffset + place * pool::kUnitSize;
  }
  std::string Path(uint32_t file) const { return files_ / std::to_string(file); }

  // Recovers a pool of these bytes. `where` is for messages.
  void Try(const std::string& bytes, const std::string& where) {
    const int fd = open(pool_path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(bytes.size())), 0);
    ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    close(fd);
    ScopedPool pool;
    pool::Problem problem;
    if (!pool.Open(pool_path_.c_str(), Mode::kRecovery, true, nullptr, &problem)) {
      EXPECT_NE(problem.text.size(), 0u) << where;
      ++outcomes_.refused;
    } else {
      Summary summary;
      ++(Replay(pool, {}, {}, &summary) ? outcomes_.clean : outcomes_.kept);
      if (summary.records == 2) ++outcomes_.applied;
      lost_ = summary.damaged_groups + summary.unfinished_groups + summary.unresolved_records;
    }
    pool.Close();
    ASSERT_EQ(ReadFile(wrong_), kOld) << where;
    for (const uint32_t file : {0u, 1u}) {
      const std::string content = ReadFile(Path(file));
      ASSERT_TRUE(content == kOld || content == kBoth) << where << ", file " << file;
      got_[file] = content == kBoth;
      if (content != kOld) WriteFile(Path(file), kOld);
    }
  }

  Folder files_{Folder::kMemory};  // syncs cost nothing there
  Folder memory_{Folder::kMemory};
  const std::string pool_path_ = memory_ / "pool";
  const std::string wrong_ = files_ / "wrong";
  std::string good_;
  uint64_t segment_size_ = 0;
  uint64_t end_[2] = {};  // of the records of each file, in the pool
  bool got_[2] = {};      // each file has what was written to it
  uint64_t lost_ = 0;     // that recovery has reported
  Outcomes outcomes_;
};

TEST_F(DamageTest, None) {
  Try(good_, "nowhere");
  EXPECT_EQ(outcomes_.applied, 1);
  EXPECT_EQ(outcomes_.clean, 1);
}

// Any one byte before the segments may be wrong: everything is recovered.
TEST_F(DamageTest, EveryByteOfTheHeader) {
  // Under a sanitizer, which takes its time, only some. From the seats' checkpoints on, hundreds of
  // seats have the same each, or recovery does not look at it: some of it will do.
  const bool slow = test::kAddressSanitizer || test::kThreadSanitizer;
  const int step = slow ? 13 : 1, sparse = slow ? 101 : 17;
  constexpr int kSeats = static_cast<int>(pool::kSeatCheckpointsOffset);
  int bytes = 0;
  for (int at = 0; at < static_cast<int>(pool::kSegmentsOffset); ++bytes) {
    std::string damaged = good_;
    damaged[static_cast<size_t>(at)] = static_cast<char>(~damaged[static_cast<size_t>(at)]);
    Try(damaged, "byte " + std::to_string(at));
    at += at < kSeats ? step : sparse;
  }
  // In the state, some bytes make no state of it, and it counts as in use. None makes it clean.
  EXPECT_EQ(outcomes_.applied, bytes);
  EXPECT_EQ(outcomes_.clean, bytes);
}

// Of a segment's header, or of the copy, nothing is missed.
TEST_F(DamageTest, EveryByteOfASegmentsHeaders) {
  for (const uint64_t segment : {0u, 1u}) {
    const uint64_t begin = pool::kSegmentsOffset + segment * segment_size_;
    for (const uint64_t place : {begin, begin + segment_size_ - pool::kUnitSize}) {
      for (uint64_t at = place; at < place + pool::kUnitSize; ++at) {
        std::string damaged = good_;
        damaged[at] = static_cast<char>(~damaged[at]);
        Try(damaged, "byte " + std::to_string(at));
        EXPECT_TRUE(got_[0] && got_[1]) << at;
      }
    }
  }
  EXPECT_EQ(outcomes_.applied, 4 * 64);
  EXPECT_EQ(outcomes_.clean, 4 * 64);
}

// Of both headers of a segment: the other one's records are applied, and the loss is told.
TEST_F(DamageTest, EveryByteOfBothHeadersOfASegment) {
  for (uint64_t at = 0; at < pool::kUnitSize; ++at) {
    std::string damaged = good_;
    for (const uint64_t place : {pool::kSegmentsOffset + at,
                                 pool::kSegmentsOffset + segment_size_ - pool::kUnitSize + at}) {
      damaged[place] = static_cast<char>(~damaged[place]);
    }
    Try(damaged, "byte " + std::to_string(at));
    EXPECT_TRUE(!got_[0] && got_[1]) << at;
    EXPECT_EQ(lost_, 1u) << at;
  }
  EXPECT_EQ(outcomes_.refused, 0);
}

// Of file records and data: the other file has what was written to it, and a loss is told.
TEST_F(DamageTest, EveryByteOfTheRecords) {
  for (const uint32_t file : {0u, 1u}) {
    const uint64_t begin = pool::kSegmentsOffset + file * segment_size_ + pool::kUnitSize;
    for (uint64_t at = begin; at < end_[file]; ++at) {
      std::string damaged = good_;
      damaged[at] = static_cast<char>(~damaged[at]);
      Try(damaged, "byte " + std::to_string(at));
      EXPECT_TRUE(got_[1 - file]) << at;
      EXPECT_TRUE(got_[file] || lost_ > 0) << at;
    }
  }
  EXPECT_EQ(outcomes_.refused, 0);
  EXPECT_GT(outcomes_.clean, 500);
}

TEST_F(DamageTest, EveryPageZeroedOrFilled) {
  for (const char filler : {'\0', '\xff'}) {
    for (size_t page = 0; page < good_.size(); page += 4096) {
      std::string damaged = good_;
      damaged.replace(page, 4096, 4096, filler);
      Try(damaged, "page " + std::to_string(page));
      // The first page of a segment holds its header and all that was written.
      const bool first = page == pool::kSegmentsOffset;
      const bool second = page == pool::kSegmentsOffset + segment_size_;
      EXPECT_EQ(got_[0], !first) << page;
      EXPECT_EQ(got_[1], !second) << page;
    }
  }
  EXPECT_EQ(outcomes_.refused, 0);
}

TEST_F(DamageTest, TruncatedEverywhere) {
  for (size_t size = 0; size < good_.size(); size += 4096) {
    Try(good_.substr(0, size), "size " + std::to_string(size));
  }
  EXPECT_EQ(outcomes_.refused, static_cast<int>(good_.size() / 4096));
}

}  // namespace
}  // namespace nvcache::replay
