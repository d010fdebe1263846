// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <string>
#include <vector>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/reader.h"
#include "tests/unit/found.h"
#include "tests/unit/support.h"
#include "tests/unit/unreadable.h"

namespace nvcache::nvlog {
namespace {

constexpr uint64_t kPage = pool::kPageSize;

// A record as recovery meets it, but no file record.
struct Found {
  Lsn lsn;
  Kind kind;
  uint64_t offset;
  std::string bytes;
  std::string path;  // of its file

  bool operator==(const Found&) const = default;
};

class ThroughTest : public testing::Test {
 protected:
  ThroughTest() {
    pmem::Initialize();
    Make(pool::kMinPoolSize);
  }
  ~ThroughTest() override { Close(); }

  void Make(uint64_t size) {
    Close();
    std::filesystem::remove(path_);
    test::MakePool(path_, size);
    EXPECT_TRUE(test::OpenPool(pool_, path_));
    EXPECT_TRUE(log_.Open(&pool_));
    for (FileTag* file : {&a_, &b_}) file->Undeclare();
    a_.number = 1;
    b_.number = 2;
  }
  void Close() {
    if (!pool_.is_open()) return;
    log_.Close();
    pool_.Close();
  }

  static constexpr uint64_t bypasses_ = 0;

  static pool::FileRecord RecordOf(const FileTag& file) {
    return test::RecordOfNone("/file" + std::to_string(file.number), file.number);
  }
  static bool AddPages(GroupWriter& group, uint64_t offset, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min(kPage - (offset + at) % kPage, bytes.size() - at);
      const auto* page = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
      if (!group.AddPage(page, static_cast<uint32_t>(n))) return false;
      at += n;
    }
    return true;
  }
  static std::string KernelGets(const GroupWriter& group) {
    iovec pieces[2];
    const int n = group.Pieces(pieces);
    std::string bytes;
    for (int i = 0; i < n; ++i) {
      bytes.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
    }
    return bytes;
  }
  // As many of the bytes as one group takes. Its LSN; 0: there is no room.
  Lsn Write(FileTag& file, uint64_t offset, std::string* bytes) {
    pool::FileRecord record = RecordOf(file);
    GroupWriter group(log_, file, bypasses_);
    if (group.BeginData(offset, bytes->size(), &record) != Outcome::kDone) return 0;
    bytes->resize(group.length());
    EXPECT_TRUE(AddPages(group, offset, *bytes));
    EXPECT_EQ(KernelGets(group), *bytes);
    group.Draw();
    return group.Commit();
  }
  Lsn Write(FileTag& file, uint64_t offset, std::string bytes) {
    const size_t all = bytes.size();
    const Lsn lsn = Write(file, offset, &bytes);
    EXPECT_TRUE(lsn == 0 || bytes.size() == all) << "cut";
    return lsn;
  }
  Lsn Settle(FileTag& file, Lsn bound) {
    pool::FileRecord record = RecordOf(file);
    GroupWriter group(log_, file, bypasses_);
    if (group.BeginMark(Kind::kSettled, bound, 0, &record) != Outcome::kDone) return 0;
    group.Draw();
    return group.Commit();
  }
  // Bytes that fill segment after segment, until there is no room.
  std::vector<Lsn> Fill(FileTag& file) {
    std::vector<Lsn> lsns;
    for (Lsn lsn; (lsn = Write(file, 0, std::string(kPage, 'f'))) != 0;) lsns.push_back(lsn);
    return lsns;
  }

  std::vector<Found> Read() const {
    std::vector<Found> all;
    const auto record = [&](const test::FoundRecord& found) {
      const RecordHeader& header = found.header;
      EXPECT_TRUE(pool::IsThroughLog(found.group.log));
      if (header.kind == Kind::kFile) return;
      all.push_back(
          {header.lsn, header.kind, header.offset, found.payload(), found.file_record().path});
    };
    test::ForEachCommitted(pool_.view(), record, test::IsAFailure);
    return all;
  }
  // Segments that it has.
  uint32_t Taken() { return log_.segments().count() - log_.segments().free(); }
  void Checkpoint(Lsn checkpoint) {
    ASSERT_TRUE(pool_.seats().TryLockThrough());
    pool_.StoreThroughCheckpoint(checkpoint);
    pool_.seats().UnlockThrough();
  }

  test::Folder folder_{test::Folder::kMemory};
  const std::string path_ = folder_ / "pool";
  test::ScopedPool pool_;
  Log log_;
  FileTag a_, b_;
};

TEST_F(ThroughTest, WhatWasCommittedIsFound) {
  const std::string across = std::string(100, 'x') + std::string(3 * kPage, 'y') + "z";
  const Lsn one = Write(a_, 10, "hello");
  const Lsn two = Write(b_, kPage - 100, across);
  const Lsn three = Settle(a_, two);
  const Lsn four = Write(a_, 11, "j");
  EXPECT_EQ(Read(), (std::vector<Found>{{one, Kind::kData, 10, "hello", "/file1"},
                                        {two, Kind::kData, kPage - 100, across, "/file2"},
                                        {three, Kind::kSettled, two, "", "/file1"},
                                        {four, Kind::kData, 11, "j", "/file1"}}));
}

// Longer groups than the stage has room for want longer segments.
TEST_F(ThroughTest, TheKernelGetsALongGroupFromTheLog) {
  Make(uint64_t{256} << 20);
  for (const size_t length :
       {kStageBytes - 1, kStageBytes, kStageBytes + 1, kStageBytes + 50'000}) {
    std::string bytes(length, 'b');
    for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(i % 251);
    pool::FileRecord record = RecordOf(a_);
    GroupWriter group(log_, a_, bypasses_);
    ASSERT_EQ(group.BeginData(100, length, &record, true), Outcome::kDone);
    ASSERT_TRUE(AddPages(group, 100, bytes));
    iovec pieces[2];
    EXPECT_EQ(group.Pieces(pieces), length <= kStageBytes ? 1 : 2) << length;
    EXPECT_TRUE(KernelGets(group) == bytes) << length;
    group.Draw();
    group.Commit();
  }
}

// The kernel refuses, the buffer is not there, or the file is not known any more.
TEST_F(ThroughTest, WhatWasNotCommittedIsNothing) {
  const test::Unreadable unreadable;
  const Lsn before = Write(a_, 0, "before");
  const uint32_t free = log_.segments().free();
  for (const size_t length : {size_t{1}, size_t{5000}, size_t{60'000}}) {
    pool::FileRecord record = RecordOf(b_);
    GroupWriter group(log_, b_, bypasses_);
    ASSERT_EQ(group.BeginData(0, length, &record), Outcome::kDone);
    const std::string bytes(group.length(), 'n');
    ASSERT_TRUE(AddPages(group, 0, bytes));
  }
  {
    pool::FileRecord record = RecordOf(b_);
    GroupWriter group(log_, b_, bypasses_);
    ASSERT_EQ(group.BeginData(0, 10, &record), Outcome::kDone);
    EXPECT_FALSE(group.AddPage(unreadable.bytes(), 10));
  }
  EXPECT_EQ(log_.segments().free(), free);
  const Lsn after = Write(a_, 6, "after");
  EXPECT_EQ(Read(), (std::vector<Found>{{before, Kind::kData, 0, "before", "/file1"},
                                        {after, Kind::kData, 6, "after", "/file1"}}));
}

TEST_F(ThroughTest, WithoutARecordTheFileHasToBeDescribed) {
  for (const bool once_more : {false, true}) {
    {
      GroupWriter group(log_, a_, bypasses_);
      EXPECT_EQ(group.BeginData(0, 5, nullptr), once_more ? Outcome::kDone : Outcome::kUndeclared);
    }
    {
      GroupWriter group(log_, a_, bypasses_);
      EXPECT_EQ(group.BeginMark(Kind::kSettled, 1, 0, nullptr),
                once_more ? Outcome::kDone : Outcome::kUndeclared);
    }
    Write(a_, 0, "hello");
  }
  // Another name, say.
  a_.Undeclare();
  GroupWriter group(log_, a_, bypasses_);
  EXPECT_EQ(group.BeginData(0, 5, nullptr), Outcome::kUndeclared);
}

// A long write goes on in the next segment, at a page of the file.
TEST_F(ThroughTest, AGroupIsCutAtTheEndOfASegment) {
  std::string content;
  for (uint64_t at = 100, left = 300'000; left > 0;) {
    std::string bytes(left, static_cast<char>('a' + content.size() % 26));
    ASSERT_NE(Write(a_, at, &bytes), 0u);
    ASSERT_GT(bytes.size(), 0u);
    if (bytes.size() < left) {
      EXPECT_EQ((at + bytes.size()) % kPage, 0u);
    }
    at += bytes.size();
    left -= bytes.size();
    content += bytes;
  }
  std::string read;
  for (const Found& found : Read()) {
    EXPECT_EQ(found.offset, 100 + read.size());
    read += found.bytes;
  }
  EXPECT_TRUE(read == content);
  EXPECT_GT(Taken(), 4u);
}

// I5: nothing is used again before the checkpoint is above it.
TEST_F(ThroughTest, ASegmentIsFreeWhenTheCheckpointIsAboveIt) {
  const std::vector<Lsn> lsns = Fill(a_);
  ASSERT_GT(lsns.size(), 30u);
  const uint32_t free = log_.segments().free();
  log_.FreeThrough(true);
  EXPECT_EQ(log_.segments().free(), free) << "nothing is on the disk";
  EXPECT_TRUE(log_.HasThroughPending());
  Checkpoint(lsns[20]);
  log_.FreeThrough(true);
  EXPECT_EQ(log_.segments().free(), free + 1) << "15 of these go into a segment";
  const std::vector<Found> found = Read();
  ASSERT_EQ(found.size(), lsns.size() - 20);
  EXPECT_EQ(found[0].lsn, lsns[20]);
  EXPECT_NE(Write(a_, 0, "more"), 0u);
  Checkpoint(log_.newest() + 1);
  EXPECT_FALSE(log_.HasThroughPending());
  log_.FreeThrough(false);
  EXPECT_EQ(Taken(), 1u) << "where it goes on";
  log_.FreeThrough(true);
  EXPECT_EQ(Taken(), 0u);
  EXPECT_EQ(Read().size(), 0u);
  EXPECT_NE(Write(a_, 0, "again"), 0u);
  EXPECT_EQ(Read().size(), 1u);
}

TEST_F(ThroughTest, ThereIsRoomToSettleWhenThereIsNoneToWrite) {
  Fill(a_);
  EXPECT_EQ(Write(b_, 0, std::string(kPage, 'b')), 0u);
  const Lsn bound = log_.Draw();
  EXPECT_NE(Settle(b_, bound), 0u);
  EXPECT_EQ(Read().back().kind, Kind::kSettled);
}

// Of write-through, one record counts for all seats, and no other does but the pool's.
TEST_F(ThroughTest, ItsCheckpointIsItsOwn) {
  const Lsn first = Write(a_, 0, "first");
  const Lsn second = Write(a_, 0, "second");
  pool_.StoreSeatCheckpoint(second + 1);
  EXPECT_EQ(Read().size(), 2u);
  Checkpoint(second);
  ASSERT_EQ(Read().size(), 1u);
  EXPECT_EQ(Read()[0].lsn, second);
  EXPECT_EQ(pool_.through_checkpoint(), second);
  EXPECT_LT(first, second);
  Reader reader;
  ASSERT_TRUE(reader.Open(pool_.view()));
  EXPECT_EQ(reader.checkpoint(3 * pool::kLogsOfSeat + pool::kThroughLog), second);
  EXPECT_NE(reader.checkpoint(0), second);
}

// Either record may be lost; the header of a segment that was taken since says it once more.
TEST_F(ThroughTest, ADamagedCheckpointBringsNothingBack) {
  Fill(a_);
  const Lsn checkpoint = log_.newest() + 1;
  Checkpoint(checkpoint);
  log_.FreeThrough(false);
  const Lsn last = Write(a_, 0, std::string(30'000, 'l'));
  for (uint64_t i = 0; i < 2; ++i) {
    pool::CheckpointRecord* record = pool_.view().through_checkpoint_record(i);
    const pool::CheckpointRecord before = *record;
    record->checkpoint ^= 4;
    ASSERT_EQ(Read().size(), 1u);
    EXPECT_EQ(Read()[0].lsn, last);
    *record = before;
  }
}

// One process at a time, and the kernel takes the lock back from the dead.
TEST_F(ThroughTest, OneProcessMovesTheCheckpoint) {
  test::ScopedPool other;
  pool_.Close();
  pool::Problem problem;
  ASSERT_TRUE(pool_.Open(path_.c_str(), pool::Mode::kShared, true, nullptr, &problem));
  ASSERT_TRUE(pool_.Join(&problem));
  ASSERT_TRUE(other.Open(path_.c_str(), pool::Mode::kShared, true, nullptr, &problem));
  ASSERT_TRUE(other.Join(&problem));
  ASSERT_TRUE(pool_.seats().TryLockThrough());
  EXPECT_FALSE(other.seats().TryLockThrough());
  pool_.Close();
  EXPECT_TRUE(other.seats().TryLockThrough());
  EXPECT_FALSE(other.seats().Lives(0)) << "it is no life byte";
}

// Not of each group: its line is not this process's alone.
TEST_F(ThroughTest, TheSeatIsToldWhatWasWritten) {
  Make(4 << 20);
  const pool::Conduct& conduct = pool_.seats().ConductOf(pool_.seat());
  const auto told = [&] { return conduct.through_written * pool::kUnitSize; };
  EXPECT_NE(Write(a_, 0, std::string(100, 'a')), 0u);
  EXPECT_NE(Settle(a_, 1), 0u);
  EXPECT_EQ(told(), 0u);
  log_.FreeThrough(false);
  EXPECT_EQ(told(), 64u);
  for (int i = 0; i < 63; ++i) EXPECT_NE(Write(a_, 0, std::string(1024, 'a')), 0u);
  EXPECT_EQ(told(), 64u);
  EXPECT_NE(Write(a_, 0, std::string(1024, 'a')), 0u);
  EXPECT_EQ(told(), 64u + (64 << 10)) << "and 36 bytes are left";
  EXPECT_NE(Write(a_, 0, std::string(28, 'a')), 0u);
  log_.FreeThrough(false);
  EXPECT_EQ(told(), 128u + (64 << 10));
}

}  // namespace
}  // namespace nvcache::nvlog
