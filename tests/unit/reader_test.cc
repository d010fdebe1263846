// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/reader.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/nvlog/walk.h"
#include "tests/unit/found.h"
#include "tests/unit/support.h"

namespace nvcache::nvlog {

void PrintTo(const Verdict& verdict, std::ostream* out) {
  static constexpr const char* kNames[] = {"kCommitted", "kOnDisk", "kVoid", "kUnfinished",
                                           "kDamaged"};
  *out << kNames[static_cast<int>(verdict)];
}

namespace {

using test::Added;
using test::Data;
using test::Erase;
using test::LogBuilder;
using test::Record;
using test::RecordOfNone;
using test::Truncate;

// A group as a walk told it.
struct Found {
  Group group;
  std::vector<Record> records;     // without file records
  std::vector<std::string> paths;  // of their files; empty: kNoFile
  std::vector<Place> places;       // of all records
};

class ReaderTest : public testing::Test {
 protected:
  explicit ReaderTest(uint64_t size = pool::kMinPoolSize) : memory_(size) {
    builder_.Name(1, RecordOfNone("/one", 11));
    builder_.Name(2, RecordOfNone("/two", 12));
  }

  Found Details(const Reader& reader, const GroupWalk& walk, const Group& group) const {
    Found found = {group, {}, {}, {}};
    if (group.verdict == Verdict::kUnfinished || group.verdict == Verdict::kDamaged) return found;
    walk.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
      found.places.push_back(place);
      if (header.kind == Kind::kFile) return;
      found.records.push_back({header.kind, header.file, header.offset, header.length,
                               test::PayloadOf(reader, header, place)});
      const uint32_t file = walk.FileOf(header, place);
      pool::FileRecord record = {};
      const bool known = file != kNoFile && walk.CopyRecord(file, &record);
      found.paths.push_back(known ? record.path : "");
    });
    return found;
  }
  std::vector<Found> Walk(bool all = false, Lsn* newest = nullptr) const {
    std::vector<Found> result;
    Reader reader;
    EXPECT_TRUE(reader.Open(view_, -1, all));
    GroupWalk walk(reader);
    EXPECT_TRUE(walk.Open());
    Lsn last = 0;
    for (Group group; walk.Next(&group);) {
      result.push_back(Details(reader, walk, group));
      if (group.verdict == Verdict::kDamaged || group.lsn == 0) continue;
      EXPECT_GE(group.lsn, last) << "not in the order of LSNs";
      last = group.lsn;
      EXPECT_LE(walk.done(), walk.total());
    }
    EXPECT_EQ(walk.done(), walk.total());
    if (newest != nullptr) *newest = reader.newest();
    return result;
  }
  std::vector<Found> Walk(Verdict verdict) const {
    std::vector<Found> result;
    for (const Found& found : Walk()) {
      if (found.group.verdict == verdict) result.push_back(found);
    }
    return result;
  }
  std::vector<Lsn> Lsns(Verdict verdict) const {
    std::vector<Lsn> result;
    for (const Found& found : Walk(verdict)) result.push_back(found.group.lsn);
    return result;
  }
  // It is there, with these records.
  static void Expect(const Found& found, const Added& added, Verdict verdict) {
    EXPECT_EQ(found.group.verdict, verdict);
    EXPECT_EQ(found.group.lsn, added.lsn);
    EXPECT_EQ(found.group.place, added.first());
    EXPECT_EQ(found.group.records, added.records.size());
    EXPECT_EQ(found.places, added.places);
    size_t i = 0;
    for (const Record& record : added.records) {
      if (record.kind == Kind::kFile) continue;
      ASSERT_LT(i, found.records.size());
      EXPECT_EQ(found.records[i].kind, record.kind);
      EXPECT_EQ(found.records[i].offset, record.offset);
      EXPECT_EQ(found.records[i].length, record.length);
      EXPECT_EQ(found.records[i].bytes, record.bytes);
      EXPECT_EQ(found.paths[i], record.file == 1 ? "/one" : "/two");
      ++i;
    }
    EXPECT_EQ(i, found.records.size());
  }
  // These groups, and no other.
  void ExpectCommitted(const std::vector<Added>& groups,
                       const test::Caller& /*caller*/ = test::Caller()) const {
    const std::vector<Found> found = Walk();
    ASSERT_EQ(found.size(), groups.size());
    for (size_t i = 0; i < found.size(); ++i) Expect(found[i], groups[i], Verdict::kCommitted);
  }
  void Flip(Place place, size_t bit) const {
    uint8_t& byte = builder_.Unit(place)[bit / 8];
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
  }
  std::string Text(size_t n) { return test::Bytes(random_, n); }

  std::mt19937_64 random_{test::Seed()};
  test::MemoryPool memory_;
  pool::View view_ = memory_.view();
  LogBuilder builder_{view_};
};

class LargeReaderTest : public ReaderTest {
 protected:
  LargeReaderTest() : ReaderTest(16u << 20) {}
};

TEST_F(ReaderTest, AnEmptyPool) {
  EXPECT_TRUE(Walk().empty());
  EXPECT_TRUE(Walk(true).empty());
}

TEST_F(ReaderTest, ReadsWhatWasWritten) {
  std::vector<Added> written;
  for (const size_t length : {1u, 63u, 64u, 65u, 128u, 1000u, 4095u, 4096u, 4097u, 20000u}) {
    written.push_back(builder_.Add(Data(1, 4096 - length % 4096, Text(length))));
    written.push_back(builder_.Add(Data(2, length, Text(length))));
  }
  written.push_back(builder_.Add(Truncate(1, 17)));
  written.push_back(builder_.Add(Erase(2, 5, uint64_t{1} << 40)));
  Lsn newest = 0;
  const std::vector<Found> found = Walk(false, &newest);
  ASSERT_EQ(found.size(), written.size());
  for (size_t i = 0; i < found.size(); ++i) Expect(found[i], written[i], Verdict::kCommitted);
  EXPECT_EQ(newest, written.back().lsn);
}

TEST_F(ReaderTest, AGroupOfSeveralRecords) {
  const Added added = builder_.Add({Data(1, 0, Text(5000)), Truncate(2, 4), Data(1, 9000, "x")});
  ASSERT_EQ(added.places.size(), 5u);
  ExpectCommitted({added});
}

TEST_F(LargeReaderTest, TheLargestGroup) {
  builder_.Add(Data(1, 0, Text(50000)));
  const Added added = builder_.Add(Data(1, 1, Text(kMaxGroupBytes)));
  const Added after = builder_.Add(Data(1, 1, "x"));
  EXPECT_GT(added.places.size(), 64u);
  const std::vector<Found> found = Walk();
  ASSERT_EQ(found.size(), 3u);
  Expect(found[1], added, Verdict::kCommitted);
  Expect(found[2], after, Verdict::kCommitted);
}

TEST_F(LargeReaderTest, LogsAreMergedByLsn) {
  std::vector<Added> written;
  for (int i = 0; i < 1000; ++i) {
    written.push_back(
        builder_.Add(Data(1 + random_() % 2, random_() % 10000, Text(1 + random_() % 20000)),
                     LogBuilder::kCommit, static_cast<uint32_t>(random_() % 16)));
  }
  ExpectCommitted(written);
}

// What is below the checkpoint is not told, and names files all the same.
TEST_F(ReaderTest, TheCheckpoint) {
  std::vector<Added> written;
  for (int i = 0; i < 40; ++i) written.push_back(builder_.Add(Data(1, 0, Text(9000))));
  for (size_t i = 0; i <= written.size(); ++i) {
    test::SetCheckpoint(view_, i < written.size() ? written[i].lsn : builder_.next_lsn());
    const std::vector<Found> found = Walk();
    ASSERT_EQ(found.size(), written.size() - i);
    for (size_t k = 0; k < found.size(); ++k) Expect(found[k], written[i + k], Verdict::kCommitted);
    const std::vector<Found> all = Walk(true);
    ASSERT_EQ(all.size(), written.size());
    for (size_t k = 0; k < all.size(); ++k) {
      Expect(all[k], written[k], k < i ? Verdict::kOnDisk : Verdict::kCommitted);
    }
  }
}

TEST_F(ReaderTest, TheHighestCheckpointCounts) {
  const Added first = builder_.Add(Data(1, 0, "first"));
  test::SetCheckpoint(view_, builder_.next_lsn());
  builder_.Take(0);  // says it in its header
  const Added second = builder_.Add(Data(1, 0, "second"));
  test::SetCheckpoint(view_, 1);
  EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{second.lsn});
  view_.checkpoint_record(0)->crc ^= 1;
  EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{second.lsn});
  view_.checkpoint_record(1)->crc ^= 1;
  Reader reader;
  ASSERT_TRUE(reader.Open(view_, -1, true));
  EXPECT_EQ(reader.checkpoint(0), 0u);
  EXPECT_EQ(Walk(true).size(), 2u);
}

TEST_F(ReaderTest, KeptSegmentsCountWhateverTheCheckpointSays) {
  const Added a = builder_.Add(Data(1, 0, "a"));
  const Added b = builder_.Add(Data(2, 0, "b"));
  const Added kept_a = builder_.Keep({Data(1, 0, "a")}, a.lsn);
  const Added kept_b = builder_.Keep({Data(2, 0, "b")}, b.lsn);
  test::SetCheckpoint(view_, builder_.next_lsn());
  const Added c = builder_.Add(Data(2, 0, "c"));
  std::vector<Found> found = Walk();
  ASSERT_EQ(found.size(), 3u);
  Expect(found[0], kept_a, Verdict::kCommitted);
  EXPECT_TRUE(found[0].group.kept);
  Expect(found[1], kept_b, Verdict::kCommitted);
  Expect(found[2], c, Verdict::kCommitted);
  EXPECT_FALSE(found[2].group.kept);
  builder_.Void(kept_a);
  found = Walk();
  ASSERT_EQ(found.size(), 3u);
  Expect(found[0], kept_a, Verdict::kVoid);
}

// What lies behind the kept records was there before.
TEST_F(ReaderTest, AFormerLifeOfAKeptSegment) {
  for (int i = 0; i < 30; ++i) builder_.Add(Data(1, 0, Text(700)));
  test::SetCheckpoint(view_, builder_.next_lsn());
  const Added pending = builder_.Add(Data(1, 0, Text(700)), LogBuilder::kCommit, 5);
  builder_.Free(0);
  builder_.TakeKept(0);
  const Added kept = builder_.Keep({Data(1, 0, Text(700))}, pending.lsn);
  const std::vector<Found> found = Walk();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].group.lsn, pending.lsn);
  EXPECT_EQ(found[1].group.lsn, pending.lsn);
}

// Nor do LSNs say whose life a record is of: here what was there before has higher ones than the
// segment's generation.
TEST_F(ReaderTest, AFormerLifeIsKnownByItsRecords) {
  builder_.Take(0);
  builder_.SkipLsns(10);
  for (int i = 0; i < 30; ++i) builder_.Add(Data(1, 0, Text(700)));
  builder_.Free(0);
  builder_.Take(4, 0);
  const Added fresh = builder_.Add(Data(1, 0, Text(700)), LogBuilder::kCommit, 4);
  pool::SegmentHeader* header = view_.segment(0);
  header->generation = header->checkpoint + 1;
  builder_.SealSegment(0);
  for (const Place place : fresh.places) {
    builder_.Header(place)->lsn = header->generation + 1;
    builder_.Seal(place);
  }
  EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{header->generation + 1});
  EXPECT_EQ(Walk().size(), 1u);
}

TEST_F(ReaderTest, VoidGroupsAreKnown) {
  const Added added = builder_.Add(Data(1, 0, Text(9000)));
  const Added other = builder_.Add(Data(1, 0, "y"));
  builder_.Void(added);
  Expect(Walk()[0], added, Verdict::kVoid);
  Expect(Walk()[1], other, Verdict::kCommitted);
  Flip(added.place() + 9, 3);  // damage done later is no loss
  Expect(Walk()[1], other, Verdict::kCommitted);
  EXPECT_EQ(Walk()[0].group.verdict, Verdict::kVoid);
  EXPECT_EQ(Walk()[0].group.damaged, kNoPlace);
}

// ---------------------------------------------------------------------------------------------
// Files.

TEST_F(ReaderTest, ANumberNamesWhatItsNewestRecordNames) {
  const auto paths = [&] {
    std::vector<std::string> all;
    for (const Found& found : Walk()) all.push_back(found.paths[0]);
    return all;
  };
  builder_.Name(7, RecordOfNone("/first", 100));
  builder_.Add(Data(7, 0, "a"));
  builder_.Name(7, RecordOfNone("/second", 101));
  builder_.Add(Data(7, 0, "b"));
  builder_.Add(Data(7, 0, "c"), LogBuilder::kCommit, 3);
  builder_.Add(Data(9, 0, "d"));  // never named
  builder_.Name(9, RecordOfNone("/first", 100));
  builder_.Add(Data(9, 0, "e"), LogBuilder::kCommit, 3);
  EXPECT_EQ(paths(), (std::vector<std::string>{"/first", "/second", "/second", "", "/first"}));
}

TEST_F(ReaderTest, FilesAreNumberedOnce) {
  for (uint32_t i = 0; i < 3000; ++i) {  // more than there is room for at first
    pool::FileRecord record = RecordOfNone("/f" + std::to_string(i % 1500), 1000 + i % 1500);
    record.device = i;  // says nothing
    builder_.Add({test::File(5, record)}, LogBuilder::kCommit, i % 2);
    if (i == 1499) test::SetCheckpoint(view_, builder_.next_lsn());
    if (builder_.segment(i % 2) >= view_.segment_count() - 2) break;
  }
  pool::FileRecord elsewhere = RecordOfNone("/f0", 1000);
  elsewhere.file_system = 1;
  const Added last = builder_.Add({test::File(6, elsewhere)});
  Reader reader;
  ASSERT_TRUE(reader.Open(view_));
  GroupWalk walk(reader);
  ASSERT_TRUE(walk.Open());
  std::map<uint32_t, std::string> seen;
  for (Group group; walk.Next(&group);) {
    walk.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
      const uint32_t file = walk.FileOf(header, place);
      ASSERT_LT(file, walk.files());
      pool::FileRecord record;
      ASSERT_TRUE(walk.CopyRecord(file, &record));
      const std::string name = record.path + std::to_string(record.file_system);
      EXPECT_TRUE(seen.emplace(file, name).second || seen[file] == name);
      EXPECT_EQ(walk.RecordOf(file), place) << "the newest";
    });
  }
  EXPECT_EQ(walk.RecordOf(walk.FileOf(*builder_.Header(last.first()), last.first())), last.first());
  std::set<std::string> names;
  for (const auto& [file, name] : seen) EXPECT_TRUE(names.insert(name).second) << name;
}

TEST_F(ReaderTest, ADamagedFileRecordNamesNothing) {
  builder_.Add(Data(1, 0, "before"));
  builder_.Name(1, RecordOfNone("/other", 55));
  const Added added = builder_.Add(Data(1, 0, "damaged"));
  const Added after = builder_.Add(Data(1, 0, "after"));
  for (const Place place : {added.first(), added.first() + 1}) {
    for (size_t bit = 0; bit < 512; bit += 7) {
      if (place == added.first() && bit / 64 == 1) continue;  // the link
      Flip(place, bit);
      const std::vector<Found> found = Walk(Verdict::kCommitted);
      ASSERT_EQ(found.size(), 2u);
      EXPECT_EQ(found[0].paths[0], "/one");
      EXPECT_EQ(found[1].group.lsn, after.lsn);
      // Never the file that the number named before.
      EXPECT_TRUE(found[1].paths[0].empty() || found[1].paths[0] == "/other") << bit;
      Flip(place, bit);
    }
  }
}

// ---------------------------------------------------------------------------------------------
// What was never committed, and what was there before.

TEST_F(ReaderTest, WhatWasNotCommittedIsNoGroup) {
  const Added first = builder_.Add(Data(1, 0, "a"));
  const Added not_there = builder_.Add(Data(1, 0, Text(9000)), LogBuilder::kFirstHeaderNot);
  EXPECT_EQ(Walk().size(), 1u);
  Lsn newest = 0;
  const Added torn = builder_.Add({Data(1, 0, "b"), Data(1, 0, "c")}, LogBuilder::kCommitNot);
  std::vector<Found> found = Walk(false, &newest);
  EXPECT_EQ(newest, torn.lsn);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].group.verdict, Verdict::kUnfinished);
  EXPECT_EQ(found[1].group.lsn, torn.lsn);
  const Added second = builder_.Add(Data(1, 0, "d"));
  EXPECT_LT(not_there.lsn, second.lsn);
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{first.lsn, second.lsn}));
  EXPECT_EQ(Walk().size(), 2u) << "what lies behind the second is older";
}

TEST_F(ReaderTest, AFormerLifeOfASegmentIsNothing) {
  for (int i = 0; i < 50; ++i) builder_.Add(Data(1, 0, Text(700)));
  builder_.Free(0);
  for (const uint32_t log : {0u, 4u}) {
    builder_.Take(log, 0);
    EXPECT_EQ(Walk(Verdict::kCommitted).size(), 0u);
    EXPECT_TRUE(Walk(Verdict::kDamaged).empty());
    const Added fresh = builder_.Add(Data(1, 0, Text(100)), LogBuilder::kCommit, log);
    EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{fresh.lsn});
    EXPECT_EQ(Walk().size(), 1u);
  }
}

// A payload that looks like a record of this very pool: its place is not where it lies.
TEST_F(ReaderTest, APayloadIsNoRecord) {
  const Added first = builder_.Add(Data(1, 0, "first"));
  std::string copy;
  for (int i = 0; i < 64; ++i) {
    copy.append(reinterpret_cast<const char*>(builder_.Unit(first.place())), pool::kUnitSize);
  }
  builder_.Add(Data(1, 0, copy), LogBuilder::kFirstHeaderNot);
  EXPECT_EQ(Walk().size(), 1u);
  const Added second = builder_.Add(Data(1, 0, copy));
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{first.lsn, second.lsn}));
}

// With a group behind it, or as the last one.
TEST_F(ReaderTest, AnLsnThatRunsBackwardIsDamage) {
  builder_.SkipLsns(10);
  const Added first = builder_.Add(Data(1, 0, "first"));
  const Added second = builder_.Add(Data(1, 0, "second"));
  for (const Lsn lsn : {first.lsn, first.lsn - 1}) {
    builder_.Header(second.first())->lsn = lsn;
    builder_.Seal(second.first());
    EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{first.lsn});
    EXPECT_EQ(Lsns(Verdict::kDamaged), std::vector<Lsn>{lsn});
  }
  const Added third = builder_.Add(Data(1, 0, "third"));
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{first.lsn, third.lsn}));
  EXPECT_EQ(Walk(Verdict::kDamaged).size(), 1u);
  test::SetCheckpoint(view_, third.lsn);
  EXPECT_EQ(Walk().size(), 1u) << "it is below the checkpoint, and so are those around it";
}

// The same from one segment of the log to the next.
TEST_F(ReaderTest, ASegmentWhoseLsnsRunBackward) {
  builder_.Add(Data(1, 0, "one"));
  builder_.SkipLsns(20);
  const Added last = builder_.Add(Data(1, 0, "last"));
  builder_.Take(0);
  const Added back = builder_.Add(Data(1, 0, "back"));
  const Added behind = builder_.Add(Data(1, 0, "behind"));
  pool::SegmentHeader* header = view_.segment(1);
  header->generation = last.lsn - 10;
  header->previous_generation = header->previous_last = header->previous_number = 0;
  builder_.SealSegment(1);
  for (const Place place : back.places) {
    builder_.Header(place)->lsn = last.lsn - 5;
    builder_.Seal(place);
  }
  for (const Place place : behind.places) builder_.Seal(place);
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{last.lsn - 21, last.lsn, behind.lsn}));
  EXPECT_EQ(Walk(Verdict::kDamaged).size(), 1u);
  // Nothing lies behind it.
  builder_.Header(behind.first())->commit = 0;
  builder_.Header(behind.first())->header_crc ^= 1;
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{last.lsn - 21, last.lsn}));
  EXPECT_EQ(Lsns(Verdict::kDamaged), std::vector<Lsn>{last.lsn - 5});
}

// ---------------------------------------------------------------------------------------------
// Damage.

class ReaderDamageTest : public ReaderTest, public testing::WithParamInterface<bool> {};

// With a group behind it, or as the last one.
TEST_P(ReaderDamageTest, EveryFlippedBitOfAHeader) {
  const Added before = builder_.Add(Data(1, 0, "before"));
  const Added added = builder_.Add(Data(1, 8192, Text(500)));
  std::vector<Lsn> rest = {before.lsn};
  if (GetParam()) rest.push_back(builder_.Add(Data(1, 0, "next")).lsn);
  const Place place = added.first();
  for (size_t bit = 0; bit < sizeof(RecordHeader) * 8; ++bit) {
    Flip(place, bit);
    if (bit / 64 == 1) {  // the link says nothing
      EXPECT_EQ(Walk(Verdict::kCommitted).size(), rest.size() + 1);
    } else {
      ASSERT_EQ(Lsns(Verdict::kCommitted), rest) << bit;
      const std::vector<Found> damaged = Walk(Verdict::kDamaged);
      ASSERT_EQ(damaged.size(), 1u) << bit;
      EXPECT_EQ(damaged[0].group.place, place);
      EXPECT_EQ(damaged[0].group.damaged, place);
      EXPECT_TRUE(Walk(Verdict::kUnfinished).empty());
    }
    Flip(place, bit);
  }
  EXPECT_EQ(Walk(Verdict::kCommitted).size(), rest.size() + 1);
}

TEST_P(ReaderDamageTest, EveryFlippedBitOfAPayload) {
  const Added before = builder_.Add(Data(1, 0, "before"));
  const Added added = builder_.Add(Data(1, 4000, Text(5000)));
  std::vector<Lsn> rest = {before.lsn};
  if (GetParam()) rest.push_back(builder_.Add(Data(1, 0, "next")).lsn);
  const Place links = added.first() + 1;
  Flip(links, 77);  // the running process's own affair
  EXPECT_EQ(Walk(Verdict::kCommitted).size(), rest.size() + 1);
  const Place payload = links + LinkUnits(3);
  for (size_t bit = 0; bit < 5000 * 8; bit += 3) {
    // 96 bytes of the first page lie in two units of their own.
    const Place unit = payload + (bit / 8 < 96 ? bit / 512 : 2 + (bit / 8 - 96) / 64);
    const size_t in_unit = (bit / 8 < 96 ? bit / 8 % 64 : (bit / 8 - 96) % 64) * 8 + bit % 8;
    Flip(unit, in_unit);
    ASSERT_EQ(Lsns(Verdict::kCommitted), rest) << bit;
    if (bit % 100 == 0) {
      const std::vector<Found> lost = Walk(GetParam() ? Verdict::kDamaged : Verdict::kUnfinished);
      ASSERT_EQ(lost.size(), 1u) << bit;
      EXPECT_EQ(lost[0].group.lsn, added.lsn);
      EXPECT_EQ(lost[0].group.damaged, added.first());
      EXPECT_EQ(Walk().size(), rest.size() + 1);
    }
    Flip(unit, in_unit);
  }
  Flip(payload + 1, 33 * 8);  // behind the first page's bytes
  EXPECT_EQ(Walk(Verdict::kCommitted).size(), rest.size() + 1);
}

// A kept group, over what a former life of its segment has left there.
TEST_P(ReaderDamageTest, EveryFlippedBitOfAKeptHeader) {
  const Added first = builder_.Add(Data(1, 0, Text(700)), LogBuilder::kCommit, 5);
  const Added second = builder_.Add(Data(1, 0, Text(700)), LogBuilder::kCommit, 5);
  for (int i = 0; i < 30; ++i) builder_.Add(Data(1, 0, Text(700)));
  const uint32_t number = builder_.segment();
  test::SetCheckpoint(view_, builder_.next_lsn());
  builder_.Free(number);
  builder_.TakeKept(number);
  const Added kept = builder_.Keep({Data(1, 0, Text(700))}, first.lsn);
  if (GetParam()) builder_.Keep({Data(1, 0, Text(700))}, second.lsn);
  for (size_t bit = 0; bit < sizeof(RecordHeader) * 8; ++bit) {
    if (bit / 64 == 1) continue;  // the link says nothing
    Flip(kept.first(), bit);
    const std::vector<Found> damaged = Walk(Verdict::kDamaged);
    ASSERT_EQ(damaged.size(), 1u) << bit;
    EXPECT_EQ(damaged[0].group.damaged, kept.first());
    EXPECT_EQ(Walk(Verdict::kCommitted).size(), GetParam() ? 1u : 0u) << bit;
    Flip(kept.first(), bit);
  }
  EXPECT_TRUE(Walk(Verdict::kDamaged).empty());
}

INSTANTIATE_TEST_SUITE_P(Next, ReaderDamageTest, testing::Bool());

// I2: a group with a damaged member is not there at all, and what follows is found.
TEST_F(ReaderTest, OneDamagedMemberTakesTheGroup) {
  const Added before = builder_.Add(Data(1, 0, "before"));
  const Added added = builder_.Add({Data(1, 0, Text(300)), Truncate(1, 4), Data(1, 0, Text(300))});
  const Added next = builder_.Add(Data(1, 0, "next"));
  for (const Place member : added.places) {
    for (size_t bit = 0; bit < 512; bit += 5) {
      const bool is_first = member == added.first();
      if (bit / 64 == 1 || (bit / 64 == 0 && !is_first)) continue;  // link, a member's word
      Flip(member, bit);
      ASSERT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{before.lsn, next.lsn})) << bit;
      const std::vector<Found> damaged = Walk(Verdict::kDamaged);
      ASSERT_EQ(damaged.size(), 1u) << bit;
      EXPECT_EQ(damaged[0].group.damaged, member);
      EXPECT_EQ(damaged[0].group.place, added.first());
      EXPECT_EQ(Walk().size(), 3u);
      Flip(member, bit);
    }
  }
}

TEST_F(ReaderTest, AForeignMemberDamagesTheGroup) {
  const auto change = [&](auto edit) {
    const Added added = builder_.Add({Data(1, 0, "a"), Data(1, 0, "b"), Data(1, 0, "c")});
    const Added next = builder_.Add(Data(1, 0, "next"));
    edit(builder_.Header(added.places[1]));
    builder_.Seal(added.places[1], LogBuilder::kCommitNot);
    std::set<Lsn> committed;
    for (const Lsn lsn : Lsns(Verdict::kCommitted)) committed.insert(lsn);
    EXPECT_FALSE(committed.contains(added.lsn));
    EXPECT_TRUE(committed.contains(next.lsn));
  };
  change([](RecordHeader* header) { header->lsn -= 1; });
  change([](RecordHeader* header) { header->index = 2; });
  change([](RecordHeader* header) { header->count = 4; });
}

TEST_F(ReaderTest, NonsenseWithAChecksumIsDamage) {
  const auto change = [&](auto edit) {
    const Added added = builder_.Add(Data(1, 100, "abc"));
    edit(builder_.Header(added.place()));
    builder_.Seal(added.place());
    const Added next = builder_.Add(Data(1, 0, "next"));
    std::set<Lsn> committed;
    for (const Lsn lsn : Lsns(Verdict::kCommitted)) committed.insert(lsn);
    EXPECT_TRUE(committed.contains(next.lsn));
    return committed.contains(added.lsn) ? Verdict::kCommitted : Verdict::kDamaged;
  };
  builder_.Add(Data(1, 0, "names the file"));
  EXPECT_EQ(change([](RecordHeader*) {}), Verdict::kCommitted);
  EXPECT_EQ(change([](RecordHeader* h) { h->length = 0; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->length = kMaxGroupBytes + 1; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->length = 1u << 20; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->length = ~0ull; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->offset = ~0ull << 12; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->kind = Kind{0}; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->kind = Kind{5}; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->count = 0; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->index = 1; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->count = kMaxGroupRecords + 1; }), Verdict::kDamaged);
  EXPECT_EQ(change([](RecordHeader* h) { h->lsn |= 1ull << 62; }), Verdict::kDamaged);
}

// Whatever a pool holds, the reader comes to an end and calls nothing committed.
TEST_F(ReaderTest, Noise) {
  for (int round = 0; round < 10; ++round) {
    for (uint32_t number = 0; number < view_.segment_count(); ++number) {
      auto* words = reinterpret_cast<uint64_t*>(view_.segment(number));
      for (uint64_t i = 0; i < view_.segment_units() * 8; ++i) words[i] = random_();
      pool::SegmentHeader* header = view_.segment(number);
      *header = {0,
                 1 + random_() % 1000,
                 0,
                 0,
                 0,
                 0,
                 number,
                 static_cast<uint32_t>(random_() % 3),
                 random_() % 4 == 0 ? pool::SegmentKind::kKept : pool::SegmentKind::kLog,
                 0,
                 0};
      builder_.SealSegment(number);
      for (uint64_t unit = 1; unit < view_.segment_units() - 1; ++unit) {
        const Place place = number * view_.segment_units() + unit;
        const Lsn lsn = random_() % 2000;
        builder_.Header(place)->lsn = lsn;
        builder_.Header(place)->commit =
            random_() % 2 == 0 ? CommitWord(lsn, view_.salt()) : VoidWord(lsn, view_.salt());
      }
    }
    for (const bool all : {false, true}) {
      for (const Found& found : Walk(all)) ASSERT_EQ(found.group.verdict, Verdict::kDamaged);
    }
  }
}

// ---------------------------------------------------------------------------------------------
// Unfinished, or damaged.

// Every way in which one unit of a log's newest group may not be there.
TEST_F(ReaderTest, ATornGroupIsUnfinished) {
  const Added before = builder_.Add(Data(1, 0, "before"));
  for (const bool with_other_log : {false, true}) {
    const Added added = builder_.Add({Data(1, 0, Text(300)), Data(1, 0, Text(9000))});
    const Place end = builder_.next_place();
    if (with_other_log) builder_.Add(Data(1, 0, "other"), LogBuilder::kCommit, 1);
    const Place links = added.places[1] + 1;
    for (Place unit = added.first() + 1; unit < end; ++unit) {
      const std::string old(reinterpret_cast<char*>(builder_.Unit(unit)), pool::kUnitSize);
      if (unit == links) continue;
      std::memset(builder_.Unit(unit), 0, pool::kUnitSize);
      const std::vector<Found> unfinished = Walk(Verdict::kUnfinished);
      ASSERT_EQ(unfinished.size(), 1u) << unit - added.first();
      EXPECT_EQ(unfinished[0].group.place, added.first());
      EXPECT_EQ(unfinished[0].group.damaged, added.places[unit < added.places[1] ? 0 : 1]);
      EXPECT_TRUE(Walk(Verdict::kDamaged).empty());
      std::memcpy(builder_.Unit(unit), old.data(), old.size());
    }
    EXPECT_EQ(Lsns(Verdict::kCommitted)[0], before.lsn);
    EXPECT_TRUE(Walk(Verdict::kUnfinished).empty());
  }
}

// The next segment of the log says what had been committed by then.
TEST_F(ReaderTest, WhatTheNextSegmentSpeaksOfIsDamaged) {
  builder_.Add(Data(1, 0, Text(30000)));
  const Added added = builder_.Add(Data(1, 0, Text(3000)));
  builder_.Take(0);
  const auto verdict = [&] {
    const std::vector<Found> found = Walk();
    EXPECT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].group.verdict, Verdict::kCommitted);
    EXPECT_EQ(found[1].group.place, added.first());
    return found[1].group.verdict;
  };
  EXPECT_EQ(verdict(), Verdict::kCommitted);
  Flip(added.place() + 3, 5);
  EXPECT_EQ(verdict(), Verdict::kDamaged);
  std::memset(builder_.Unit(added.first()), 0, pool::kUnitSize);
  EXPECT_EQ(verdict(), Verdict::kDamaged) << "nothing is left of its header";
  test::SetCheckpoint(view_, added.lsn + 1);
  EXPECT_TRUE(Walk().empty()) << "nor does it matter";
}

// A group over the end of a segment: each of its parts may be lost.
TEST_F(ReaderTest, AGroupOverTwoSegments) {
  builder_.Add(Data(1, 0, Text(50000)));
  const Added added = builder_.Add(Data(1, 0, Text(40000)));
  ASSERT_EQ(added.places.size(), 3u);  // data, file record, data
  ASSERT_EQ(added.places[1], builder_.segment() * view_.segment_units() + 1);
  std::vector<Found> found = Walk();
  ASSERT_EQ(found.size(), 2u);
  Expect(found[1], added, Verdict::kCommitted);
  for (const bool more : {false, true}) {
    if (more) builder_.Add(Data(1, 0, "more"));
    for (const Place member : added.places) {
      for (const size_t lost : {size_t{64}, size_t{1}}) {
        const std::string old(reinterpret_cast<char*>(builder_.Unit(member)), pool::kUnitSize);
        std::memset(builder_.Unit(member) + 20, 0xa5, lost == 1 ? 1 : 0);
        if (lost == 64) std::memset(builder_.Unit(member), 0, lost);
        found = Walk();
        EXPECT_EQ(Walk(Verdict::kCommitted).size(), more ? 2u : 1u);
        const size_t damaged = Walk(Verdict::kDamaged).size();
        const bool gone = member == added.first() && lost == 64;  // nothing says that it was there
        if (member == added.first() && lost == 1) {
          EXPECT_GE(damaged, 1u);
        } else {
          EXPECT_EQ(damaged, more ? 1u : 0u);
          EXPECT_EQ(Walk(Verdict::kUnfinished).size(), more || gone ? 0u : 1u);
        }
        std::memcpy(builder_.Unit(member), old.data(), old.size());
      }
    }
  }
}

// The first part of the group lies in a segment that is free by now.
TEST_F(ReaderTest, TheRestOfAGroupBelowTheCheckpoint) {
  builder_.Add(Data(1, 0, Text(50000)));
  builder_.Add(Data(1, 0, Text(40000)));
  const uint32_t second = builder_.segment();
  test::SetCheckpoint(view_, builder_.next_lsn());
  const Added pending = builder_.Add(Data(1, 0, "pending"));
  ExpectCommitted({pending});
  ASSERT_EQ(builder_.segment(), second);
  builder_.Free(0);
  builder_.Take(9, 0);
  ExpectCommitted({pending});
}

// The segment that was taken for a group that came to nothing says that it is the log's next one.
// The log goes on in the one before, and then in another.
TEST_F(ReaderTest, ASegmentThatWasGivenBack) {
  const Added first = builder_.Add(Data(1, 0, Text(50000)));
  pool::SegmentHeader given_back = *view_.segment(0);
  given_back.previous_generation = given_back.generation;
  given_back.previous_last = first.lsn;
  given_back.previous_number = 0;
  given_back.number = 5;
  given_back.generation = builder_.next_lsn();
  builder_.SkipLsns(2);
  *view_.segment(5) = given_back;
  builder_.SealSegment(5);
  // A member of the group lies there.
  const Place place = 5 * view_.segment_units() + 1;
  *builder_.Header(place) = {};
  builder_.Header(place)->lsn = given_back.generation + 1;
  builder_.Header(place)->offset = 7;
  builder_.Header(place)->kind = Kind::kTruncate;
  builder_.Header(place)->index = 1;
  builder_.Header(place)->count = 2;
  builder_.Seal(place);
  const Added second = builder_.Add(Data(1, 0, Text(2000)));
  test::SetCheckpoint(view_, second.lsn);
  EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{second.lsn});
  EXPECT_EQ(Walk().size(), 1u);
  const Added third = builder_.Add(Data(1, 0, Text(40000)));  // in two segments
  ASSERT_EQ(third.places.size(), 3u);
  ExpectCommitted({second, third});
}

// Copies of one group have its LSN, all of them.
TEST_F(ReaderTest, SeveralKeptCopiesOfAGroup) {
  const Added a = builder_.Add(Data(1, 0, Text(9000)));
  std::vector<Added> kept;
  for (uint64_t page = 0; page < 3; ++page) {
    kept.push_back(builder_.Keep({Data(1, page * 4096, Text(800))}, a.lsn));
  }
  test::SetCheckpoint(view_, builder_.next_lsn());
  std::vector<Found> found = Walk();
  ASSERT_EQ(found.size(), 3u);
  for (size_t i = 0; i < 3; ++i) Expect(found[i], kept[i], Verdict::kCommitted);
  Flip(kept[1].place() + 3, 3);
  found = Walk();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].group.verdict, Verdict::kDamaged);
  Expect(found[2], kept[2], Verdict::kCommitted);
}

// Older groups than those that lie behind them in the segment's former life.
TEST_F(ReaderTest, KeptGroupsOverNewerOnes) {
  const Added old = builder_.Add(Data(2, 0, Text(700)), LogBuilder::kCommit, 7);
  for (int i = 0; i < 30; ++i) builder_.Add(Data(1, 0, Text(700)));
  const uint32_t number = builder_.segment();
  test::SetCheckpoint(view_, builder_.next_lsn());
  builder_.Free(number);
  builder_.TakeKept(number);
  const Added kept = builder_.Keep({Data(1, 0, Text(700))}, old.lsn);
  ExpectCommitted({kept});
}

// More groups are not whole than a power failure leaves: the walk ends all the same.
TEST_F(LargeReaderTest, ALogOfNothingButTornGroups) {
  std::vector<Place> places;
  while (places.size() < 20000) {
    places.push_back(builder_.Add(Data(1, 0, "torn")).place());
  }
  for (const Place place : places) *builder_.Unit(place + 1) ^= 1;
  const std::vector<Found> found = Walk();
  EXPECT_EQ(found.size(), places.size());
  EXPECT_EQ(Walk(Verdict::kUnfinished).size(), 1u) << "the last";
  EXPECT_TRUE(Walk(Verdict::kCommitted).empty());
}

// ---------------------------------------------------------------------------------------------
// Headers of segments.

TEST_F(ReaderTest, EveryFlippedBitOfASegmentsHeader) {
  const Added a = builder_.Add(Data(1, 0, "a"));
  builder_.Take(0);
  const Added b = builder_.Add(Data(1, 0, "b"));
  for (const uint32_t number : {0u, 1u}) {
    for (size_t bit = 0; bit < 512; ++bit) {
      const uint64_t begin = number * view_.segment_units();
      Flip(begin, bit);
      EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{a.lsn, b.lsn})) << "the copy counts";
      Flip(begin + view_.segment_units() - 1, 511 - bit);
      const std::vector<Found> damaged = Walk(Verdict::kDamaged);
      ASSERT_EQ(damaged.size(), 1u) << bit;
      EXPECT_EQ(damaged[0].group.place, begin);
      EXPECT_EQ(damaged[0].group.records, 0u);
      EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{number == 0 ? b.lsn : a.lsn});
      Flip(begin, bit);
      Flip(begin + view_.segment_units() - 1, 511 - bit);
    }
  }
  EXPECT_EQ(Walk().size(), 2u);
}

TEST_F(ReaderTest, BothHeadersAreWipedOut) {
  const Added a = builder_.Add(Data(1, 0, "a"));
  builder_.Take(0);
  const Added b = builder_.Add(Data(1, 0, "b"));
  for (const uint32_t number : {0u, 1u}) {
    const pool::SegmentHeader header = *view_.segment(number);
    for (const int byte : {0, 0xff}) {
      std::memset(static_cast<void*>(view_.segment(number)), byte, sizeof(header));
      std::memset(static_cast<void*>(view_.segment_copy(number)), byte, sizeof(header));
      EXPECT_EQ(Walk(Verdict::kDamaged).size(), 1u);
      EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{number == 0 ? b.lsn : a.lsn});
    }
    *view_.segment(number) = *view_.segment_copy(number) = header;
  }
  // Without anything pending in it, nothing is lost.
  test::SetCheckpoint(view_, builder_.next_lsn());
  std::memset(static_cast<void*>(view_.segment(0)), 0, pool::kUnitSize);
  std::memset(static_cast<void*>(view_.segment_copy(0)), 0, pool::kUnitSize);
  EXPECT_TRUE(Walk().empty());
}

TEST_F(ReaderTest, ASegmentThatIsBeingTakenIsFree) {
  builder_.Add(Data(1, 0, "old"));
  test::SetCheckpoint(view_, builder_.next_lsn());
  builder_.Free(0);
  builder_.Take(3, 0);
  view_.segment(0)->word = 0;
  EXPECT_TRUE(Walk().empty());
  view_.segment_copy(0)->word = 0;
  EXPECT_TRUE(Walk().empty());
}

// A group came to nothing for which a log had taken two segments, the second one after the first.
// The first is taken again.
TEST_F(ReaderTest, ASegmentThatIsNamedAndBeingTakenIsFree) {
  const Added pending = builder_.Add(Data(1, 0, "pending"));
  const uint32_t first = builder_.Take(0);
  const uint32_t second = builder_.Take(0);
  EXPECT_EQ(view_.segment(second)->previous_number, first);
  for (pool::SegmentHeader* header : {view_.segment(first), view_.segment_copy(first)}) {
    header->word = 0;
  }
  ExpectCommitted({pending});
  std::memset(static_cast<void*>(view_.segment(first)), 0, sizeof(pool::SegmentHeader));
  EXPECT_EQ(Walk(Verdict::kDamaged).size(), 1u) << "nobody who takes a segment leaves that";
}

TEST_F(ReaderTest, ASegmentThatClaimsAnothersPlace) {
  const Added a = builder_.Add(Data(1, 0, "a"));
  const uint64_t bytes = view_.segment_units() * pool::kUnitSize;
  std::memcpy(static_cast<void*>(view_.segment(3)), view_.segment(0), bytes);
  EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{a.lsn});
}

// It says its own number, and all else as another one does: log, generation, the one before.
TEST_F(ReaderTest, TwoSegmentsOfOneGeneration) {
  const Added before = builder_.Add(Data(1, 0, "before"));
  builder_.Take(0, 3);
  const Added group = builder_.Add(Data(1, 0, "group"));
  const uint64_t units = view_.segment_units();
  for (const uint32_t number : {1u, 5u}) {  // in front of the other one, and behind it
    auto* claims = static_cast<void*>(view_.segment(number));
    std::memcpy(claims, view_.segment(3), units * pool::kUnitSize);
    view_.segment(number)->number = number;
    builder_.SealSegment(number);
    EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{before.lsn, group.lsn}))
        << "its records are those of another place";
    for (const Place place : group.places) builder_.Seal(number * units + place % units);
    EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{before.lsn, group.lsn})) << "once";
    EXPECT_EQ(Lsns(Verdict::kDamaged), std::vector<Lsn>{group.lsn});
    std::memset(claims, 0, units * pool::kUnitSize);
  }
  EXPECT_EQ(Walk().size(), 2u);
}

// A group goes on in the log's next segment, and another one claims to be that.
TEST_F(ReaderTest, ASegmentThatClaimsTheRestOfAGroup) {
  builder_.Add(Data(1, 0, Text(60000)));
  const Added group = builder_.Add(Data(1, 0, Text(20000)));
  const Added behind = builder_.Add(Data(2, 0, "behind"));
  ASSERT_NE(group.places.front() / view_.segment_units(),
            group.places.back() / view_.segment_units());
  EXPECT_EQ(Walk().size(), 3u);
  *view_.segment(5) = *view_.segment(1);
  view_.segment(5)->number = 5;
  builder_.SealSegment(5);
  const std::vector<Found> found = Walk();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].group.lsn, group.lsn);
  EXPECT_TRUE(found[1].group.verdict == Verdict::kDamaged ||
              found[1].group.verdict == Verdict::kUnfinished);
  Expect(found[2], behind, Verdict::kCommitted);
}

// What a device held before, and what another pool left on it.
TEST_F(ReaderTest, ForeignSegmentsAreNothing) {
  const Added a = builder_.Add(Data(1, 0, "a"));
  const test::MemoryPool other;
  auto* superblock = const_cast<pool::Superblock*>(other.view().superblock);
  superblock->salt ^= 0x1234567;
  test::SetCheckpoint(other.view(), 1);
  LogBuilder foreign(other.view());
  for (int i = 0; i < 20; ++i) foreign.Add(Data(1, 0, Text(3000)));
  const uint64_t bytes = view_.segment_units() * pool::kUnitSize;
  std::memcpy(static_cast<void*>(view_.segment(1)), other.view().segment(1), bytes);
  for (uint64_t i = 0; i < bytes; ++i) {
    reinterpret_cast<uint8_t*>(view_.segment(2))[i] = static_cast<uint8_t>(random_());
  }
  ExpectCommitted({a});
}

// ---------------------------------------------------------------------------------------------
// Against a model.

TEST_F(LargeReaderTest, ManyRoundsOfRandomGroups) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  LogBuilder* builder = &builder_;
  for (int session = 0; session < 40; ++session) {
    std::map<Lsn, Added> expected;
    std::set<Lsn> voided;
    const Lsn begin = builder->next_lsn();
    std::set<uint32_t> used;
    while (used.size() < view_.segment_count() / 3) {
      const size_t length = 1 + random_() % (random_() % 4 == 0 ? 200000 : 300);
      const auto log = static_cast<uint32_t>(random_() % 5);
      std::vector<Record> records;
      records.push_back(Data(1 + random_() % 2, random_() % 100000, Text(length)));
      if (random_() % 5 == 0) records.push_back(Truncate(1, random_() % 1000));
      const bool commit = random_() % 8 != 0;
      const Added added =
          builder->Add(records, commit ? LogBuilder::kCommit : LogBuilder::kFirstHeaderNot, log);
      for (const Place place : added.places) {
        used.insert(static_cast<uint32_t>(place / view_.segment_units()));
      }
      if (commit) expected[added.lsn] = added;
      if (commit && random_() % 8 == 0) {
        builder->Void(added);
        voided.insert(added.lsn);
      }
    }
    const std::vector<Found> groups = Walk();
    ASSERT_EQ(groups.size(), expected.size());
    auto next = expected.begin();
    for (const Found& found : groups) {
      const bool is_void = voided.contains(next->first);
      Expect(found, next->second, is_void ? Verdict::kVoid : Verdict::kCommitted);
      ++next;
    }
    ASSERT_GT(builder->next_lsn(), begin);
    // All of it is cleaned; the next session takes the same segments.
    test::SetCheckpoint(view_, builder->next_lsn());
    EXPECT_TRUE(Walk().empty());
    for (const uint32_t number : used) builder->Free(number);
    for (uint32_t log = 0; log < 5; ++log) builder->Take(log);
    for (uint32_t log = 0; log < 5; ++log) used.insert(builder->segment(log));
  }
}

// ---------------------------------------------------------------------------------------------
// A pool in use.

TEST_F(ReaderTest, WhatWasFreedMeanwhileIsNotDamage) {
  const Added a = builder_.Add(Data(1, 0, Text(4096)));
  const Added b = builder_.Add(Data(1, 0, "b"));
  Reader reader;
  ASSERT_TRUE(reader.Open(view_));
  GroupWalk walk(reader);
  ASSERT_TRUE(walk.Open());
  test::SetCheckpoint(view_, b.lsn);
  Flip(a.place() + 5, 1);
  Group group;
  ASSERT_TRUE(walk.Next(&group));
  EXPECT_EQ(group.lsn, b.lsn);
  EXPECT_EQ(group.verdict, Verdict::kCommitted);
  EXPECT_FALSE(walk.Next(&group));
  EXPECT_LT(reader.checkpoint(0), b.lsn) << "stays as it was";
}

TEST_F(ReaderTest, ASegmentThatWasTakenMeanwhileIsNotDamage) {
  builder_.Add(Data(1, 0, Text(4096)));
  const Added b = builder_.Add(Data(1, 0, Text(4096)));
  builder_.Add(Data(1, 0, "c"));
  const Added other = builder_.Add(Data(1, 0, "other"), LogBuilder::kCommit, 1);
  Reader reader;
  ASSERT_TRUE(reader.Open(view_));
  GroupWalk walk(reader);
  ASSERT_TRUE(walk.Open());
  Group group;
  ASSERT_TRUE(walk.Next(&group));
  builder_.Free(0);
  builder_.Take(2, 0);
  Flip(b.place() + 5, 1);
  ASSERT_TRUE(walk.Next(&group));
  EXPECT_EQ(group.lsn, other.lsn);
  EXPECT_FALSE(walk.Next(&group));
}

// ---------------------------------------------------------------------------------------------
// Logs of several seats.

class SeatsReaderTest : public ReaderTest {
 protected:
  SeatsReaderTest() { seats_.Open(view_.base, view_.seat_count(), view_.segment_count(), -1); }

  static constexpr uint32_t kLog = pool::kLogsOfSeat;  // the first one of seat 1
  Added AddTo(uint32_t log, const std::string& bytes) {
    return builder_.Add(Data(log < kLog ? 1 : 2, 0, bytes), LogBuilder::kCommit, log);
  }
  void SetSeatCheckpoint(uint32_t seat, Lsn checkpoint) const {
    for (uint64_t i = 0; i < 2; ++i) {
      pool::CheckpointRecord record = {};
      record.checkpoint = checkpoint;
      record.crc = sys::Crc32c(&record, offsetof(pool::CheckpointRecord, crc),
                               static_cast<uint32_t>(view_.salt()));
      std::memcpy(static_cast<void*>(view_.seat_checkpoint_record(seat, i)), &record,
                  sizeof(record));
    }
  }
  void Own(uint32_t segment, uint32_t seat) { EXPECT_TRUE(seats_.TakeSegment(segment, seat)); }
  // What whoever adopts the seat meets.
  std::vector<Found> WalkSeat(uint32_t seat) const {
    std::vector<Found> result;
    Reader reader;
    EXPECT_TRUE(reader.OpenSeat(view_, seats_, seat));
    GroupWalk walk(reader);
    EXPECT_TRUE(walk.Open());
    for (Group group; walk.Next(&group);) result.push_back(Details(reader, walk, group));
    return result;
  }
  static std::vector<Lsn> LsnsOf(const std::vector<Found>& all, Verdict verdict) {
    std::vector<Lsn> result;
    for (const Found& found : all) {
      if (found.group.verdict == verdict) result.push_back(found.group.lsn);
    }
    return result;
  }
  void Wipe(uint32_t segment, int byte) const {
    for (pool::SegmentHeader* header : {view_.segment(segment), view_.segment_copy(segment)}) {
      std::memset(static_cast<void*>(header), byte, sizeof(*header));
    }
  }

  pool::Seats seats_;
};

TEST_F(SeatsReaderTest, EachGroupCountsBySeat) {
  const Added old_0 = AddTo(0, "older, of seat 0");
  const Added done = AddTo(kLog, "below its own checkpoint");
  const Added new_0 = AddTo(3, "of seat 0");
  const Added new_1 = AddTo(kLog + 1, "above it");
  SetSeatCheckpoint(1, new_1.lsn);
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{old_0.lsn, new_0.lsn, new_1.lsn}));
  const std::vector<Found> all = Walk(true);
  EXPECT_EQ(LsnsOf(all, Verdict::kOnDisk), std::vector<Lsn>{done.lsn});
  EXPECT_EQ(LsnsOf(all, Verdict::kCommitted), (std::vector<Lsn>{old_0.lsn, new_0.lsn, new_1.lsn}));
  for (const Found& found : all) {
    EXPECT_EQ(found.group.log / kLog, found.paths.at(0) == "/one" ? 0u : 1u);
  }
  Reader reader;
  ASSERT_TRUE(reader.Open(view_));
  EXPECT_EQ(reader.checkpoint(0), 1u);
  EXPECT_EQ(reader.checkpoint(kLog - 1), 1u);
  EXPECT_EQ(reader.checkpoint(kLog), new_1.lsn);
  EXPECT_EQ(reader.checkpoint(kLog + pool::kThroughLog - 1), new_1.lsn);
  EXPECT_EQ(reader.checkpoint(2 * kLog), 1u);
  // As it is later.
  SetSeatCheckpoint(0, 20);
  EXPECT_EQ(reader.CheckpointNow(0), 20u);
  EXPECT_EQ(reader.CheckpointNow(kLog), new_1.lsn);
  test::SetCheckpoint(view_, 1000);
  EXPECT_EQ(reader.CheckpointNow(0), 1000u);
  EXPECT_EQ(reader.CheckpointNow(kLog), 1000u);
}

// The pool's checkpoint is for all, whatever a seat says that was last used before.
TEST_F(SeatsReaderTest, ThePoolsCheckpointCountsForAllSeats) {
  const Added of_0 = AddTo(0, "a"), of_1 = AddTo(kLog, "b");
  SetSeatCheckpoint(0, 2);
  test::SetCheckpoint(view_, of_1.lsn);
  EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{of_1.lsn});
  EXPECT_LT(of_0.lsn, of_1.lsn);
  Lsn newest = 0;
  SetSeatCheckpoint(5, 12345);
  Walk(false, &newest);
  EXPECT_EQ(newest, 12345u) << "drawn, by whatever seat";
}

TEST_F(SeatsReaderTest, AHeaderCountsForItsOwnSeat) {
  const Added of_0 = AddTo(0, "a"), of_1 = AddTo(kLog, "b"), too = AddTo(kLog + 5, "c");
  const uint32_t number = builder_.Take(kLog + 9);
  view_.segment(number)->checkpoint = too.lsn;
  builder_.SealSegment(number);
  Reader reader;
  ASSERT_TRUE(reader.Open(view_));
  EXPECT_EQ(reader.checkpoint(0), 1u);
  EXPECT_EQ(reader.checkpoint(kLog), too.lsn);
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{of_0.lsn, too.lsn}));
  EXPECT_LT(of_1.lsn, too.lsn);
}

// Kept groups of a seat count whatever any checkpoint says, and come in the order of all.
TEST_F(SeatsReaderTest, KeptGroupsOfASeat) {
  const Added of_0 = AddTo(0, "a"), of_1 = AddTo(kLog, "b"), last = AddTo(1, "c");
  const uint32_t number = builder_.TakeKept();
  view_.segment(number)->log = kLog + 16;
  builder_.SealSegment(number);
  const Added kept = builder_.Keep({Data(2, 0, "b")}, of_1.lsn);
  SetSeatCheckpoint(1, builder_.next_lsn());
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{of_0.lsn, of_1.lsn, last.lsn}));
  EXPECT_EQ(Walk()[1].group.place, kept.first());
}

// A seat keeps what is older than what another seat has left in that segment.
TEST_F(SeatsReaderTest, AKeptSegmentWasAnotherSeats) {
  const Added pending = AddTo(0, Text(700));
  for (int i = 0; i < 30; ++i) AddTo(kLog, Text(700));
  const uint32_t number = builder_.segment(kLog);
  SetSeatCheckpoint(1, builder_.next_lsn());
  builder_.Free(number);
  builder_.TakeKept(number);
  const Added kept = builder_.Keep({Data(2, 0, Text(700))}, pending.lsn);
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{pending.lsn, kept.lsn}));
  EXPECT_EQ(Walk().size(), 2u);
  // A process is killed when it is the owner and has not written the header yet.
  builder_.Void(kept);
  Own(number, 3);
  EXPECT_EQ(WalkSeat(3).size(), 1u);
  EXPECT_EQ(LsnsOf(WalkSeat(3), Verdict::kVoid), std::vector<Lsn>{kept.lsn});
}

TEST_F(SeatsReaderTest, OfASeatOnlyWhatItOwnsIsMet) {
  const Added mine = AddTo(kLog, "1");       // segment 0
  const Added other = AddTo(0, "2");         // segment 1
  const Added again = AddTo(kLog + 3, "3");  // segment 2
  const Added freed = AddTo(kLog + 4, "4");  // segment 3
  const Added third = AddTo(2 * kLog, "5");  // segment 4
  Own(0, 1);
  Own(1, 0);
  Own(2, 1);
  Own(4, 2);
  std::vector<Found> found = WalkSeat(1);
  ASSERT_EQ(found.size(), 2u);
  Expect(found[0], mine, Verdict::kCommitted);
  Expect(found[1], again, Verdict::kCommitted);
  EXPECT_EQ(LsnsOf(WalkSeat(0), Verdict::kCommitted), std::vector<Lsn>{other.lsn});
  EXPECT_EQ(LsnsOf(WalkSeat(2), Verdict::kCommitted), std::vector<Lsn>{third.lsn});
  EXPECT_TRUE(WalkSeat(3).empty());
  EXPECT_EQ(Walk().size(), 5u) << "recovery of all does not look at owners";
  // The seat's checkpoint, and what the headers of its own segments say.
  SetSeatCheckpoint(1, again.lsn);
  SetSeatCheckpoint(0, freed.lsn);
  EXPECT_EQ(LsnsOf(WalkSeat(1), Verdict::kCommitted), std::vector<Lsn>{again.lsn});
}

// What others append and free meanwhile, or have damaged, is not its business.
TEST_F(SeatsReaderTest, OfASeatOnlyItsOwnDamageIsTold) {
  AddTo(kLog, "1");
  AddTo(0, "2");
  const Added whole = AddTo(kLog + 1, "3");
  Own(0, 1);
  Own(1, 0);
  Own(2, 1);
  for (const int byte : {0, 0xff}) {
    const pool::SegmentHeader of_1 = *view_.segment(0), of_0 = *view_.segment(1);
    Wipe(1, byte);
    EXPECT_EQ(LsnsOf(WalkSeat(1), Verdict::kDamaged), std::vector<Lsn>{});
    Wipe(0, byte);
    std::vector<Found> found = WalkSeat(1);
    ASSERT_EQ(found.size(), 2u) << byte;
    EXPECT_EQ(found[0].group.verdict, Verdict::kDamaged);
    EXPECT_EQ(found[0].group.place, 0u);
    Expect(found[1], whole, Verdict::kCommitted);
    EXPECT_EQ(LsnsOf(Walk(), Verdict::kDamaged).size(), 2u) << "recovery of all sees both";
    *view_.segment(0) = *view_.segment_copy(0) = of_1;
    *view_.segment(1) = *view_.segment_copy(1) = of_0;
  }
}

// A header that is lost does not say of which seat it was: another seat that has come further must
// not hide it.
TEST_F(SeatsReaderTest, ADamagedHeaderBesideASeatThatHasComeFurther) {
  AddTo(0, "a");
  AddTo(kLog, "lost");
  const Added newest = AddTo(1, "b");
  SetSeatCheckpoint(0, newest.lsn);
  for (size_t bit = 0; bit < 512; bit += 7) {
    Flip(view_.segment_units(), bit);
    Flip(2 * view_.segment_units() - 1, 511 - bit);
    EXPECT_EQ(Lsns(Verdict::kDamaged).size(), 1u) << bit;
    EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{newest.lsn});
    Flip(view_.segment_units(), bit);
    Flip(2 * view_.segment_units() - 1, 511 - bit);
  }
  EXPECT_EQ(Walk(Verdict::kDamaged).size(), 0u);
}

// Nothing of the headers is left, and the segment was the only one of its seat. But the seat has a
// checkpoint since it was taken for the first time.
TEST_F(SeatsReaderTest, ALostHeaderBesideASeatThatHasComeFurther) {
  AddTo(0, "a");
  AddTo(kLog, "lost");
  const Added newest = AddTo(1, "b");
  SetSeatCheckpoint(0, newest.lsn);
  SetSeatCheckpoint(1, 1);
  for (const int byte : {0, 0xff}) {
    Wipe(1, byte);
    EXPECT_EQ(Lsns(Verdict::kDamaged).size(), 1u) << byte;
    EXPECT_EQ(Lsns(Verdict::kCommitted), std::vector<Lsn>{newest.lsn});
  }
}

// The log's next segment names it, by the checkpoint of its own seat.
TEST_F(SeatsReaderTest, ALostHeaderThatTheNextSegmentNames) {
  AddTo(kLog, "lost");                        // segment 0
  const uint32_t next = builder_.Take(kLog);  // segment 1
  const Added behind = AddTo(kLog, "behind it");
  const Added of_0 = AddTo(0, "a");
  const uint64_t bytes = view_.segment_units() * pool::kUnitSize;
  std::memset(static_cast<void*>(view_.segment(0)), 0, bytes);
  EXPECT_EQ(next, 1u);
  EXPECT_EQ(Lsns(Verdict::kDamaged).size(), 1u);
  SetSeatCheckpoint(0, of_0.lsn);
  EXPECT_EQ(Lsns(Verdict::kDamaged).size(), 1u) << "not by that of another seat";
  SetSeatCheckpoint(1, behind.lsn);
  EXPECT_EQ(Lsns(Verdict::kDamaged).size(), 0u);
  EXPECT_EQ(Lsns(Verdict::kCommitted), (std::vector<Lsn>{behind.lsn, of_0.lsn}));
}

// A damaged group is no loss if its own seat's checkpoint has passed it, and is one otherwise.
TEST_F(SeatsReaderTest, ADamagedGroupMattersBySeat) {
  const Added damaged = AddTo(kLog, Text(100));
  const Added behind = AddTo(kLog, "b");
  const Added of_0 = AddTo(0, "c");
  Flip(damaged.place() + 1, 3);
  SetSeatCheckpoint(0, of_0.lsn);
  EXPECT_EQ(Lsns(Verdict::kDamaged), std::vector<Lsn>{damaged.lsn});
  SetSeatCheckpoint(1, behind.lsn);
  EXPECT_TRUE(Lsns(Verdict::kDamaged).empty());
}

// What was never written is not looked at page by page, and what is behind it is found.
TEST(ReaderOfMemoryTest, WhatWasNeverUsedIsSteppedOver) {
  const test::Folder memory(test::Folder::kMemory);
  test::MakePool(memory / "pool", 16 << 20);
  test::ScopedPool pool;
  ASSERT_TRUE(test::OpenPool(pool, memory / "pool"));
  std::mt19937_64 random(test::Seed());
  LogBuilder builder(pool.view());
  std::vector<Lsn> expected;
  for (uint32_t i = 0; i < 10; ++i) {
    builder.Take(i % 3, i * 20 + static_cast<uint32_t>(random() % 20));
    expected.push_back(
        builder.Add(Data(1, 0, test::Bytes(random, 3000)), LogBuilder::kCommit, i % 3).lsn);
  }
  const auto data = [&] {  // bytes of the segments that are there
    uint64_t bytes = 0;
    for (off_t at = pool::kSegmentsOffset, end; (at = lseek(pool.fd(), at, SEEK_DATA)) >= 0;
         at = end) {
      end = lseek(pool.fd(), at, SEEK_HOLE);
      bytes += static_cast<uint64_t>(end - at);
    }
    return bytes;
  };
  const uint64_t before = data();
  Reader reader;
  ASSERT_TRUE(reader.Open(pool.view(), pool.fd()));
  GroupWalk walk(reader);
  ASSERT_TRUE(walk.Open());
  std::vector<Lsn> found;
  for (Group group; walk.Next(&group);) found.push_back(group.lsn);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(data(), before) << "no page came to be by a look";
}

TEST(ReaderOfMemoryTest, ALookerSeesTheSame) {
  const test::Folder memory(test::Folder::kMemory);
  test::MakePool(memory / "pool");
  test::ScopedPool pool, looker;
  ASSERT_TRUE(test::OpenPool(pool, memory / "pool"));
  LogBuilder builder(pool.view());
  const Added added = builder.Add(Data(2, 0, std::string(90000, 'x')));
  ASSERT_TRUE(test::OpenPool(looker, memory / "pool", pool::Mode::kInspect));
  Reader reader;
  ASSERT_TRUE(reader.Open(looker.view(), looker.fd()));
  GroupWalk walk(reader);
  ASSERT_TRUE(walk.Open());
  Group group;
  ASSERT_TRUE(walk.Next(&group));
  EXPECT_EQ(group.lsn, added.lsn);
  EXPECT_EQ(group.records, added.places.size());
  EXPECT_EQ(group.verdict, Verdict::kCommitted);
  EXPECT_FALSE(walk.Next(&group));
}

}  // namespace
}  // namespace nvcache::nvlog
