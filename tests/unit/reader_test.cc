// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/reader.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/support.h"

namespace nvcache::nvlog {

void PrintTo(const Verdict& verdict, std::ostream* out) {
  static constexpr const char* kNames[] = {"kNothing",       "kInFlight",   "kCommitted",
                                           "kApplied",       "kUnfinished", "kDamagedHeader",
                                           "kDamagedPayload"};
  *out << kNames[static_cast<int>(verdict)];
}

namespace {

using test::LogBuilder;
using test::Piece;
using test::Pieces;

class ReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    test::MakePool(folder_ / "pool");
    ASSERT_TRUE(test::OpenPool(pool_, folder_ / "pool"));
    view_ = pool_.view();
    units_ = view_.log_units();
    builder_.emplace(view_);
  }

  // The log begins `units` further on, as if that much had been written and cleaned.
  void MoveTail(uint64_t units) {
    pool_.StoreTail(builder_->head() + units);
    pool_.StoreTail(builder_->head() + units);
    builder_.emplace(view_);
  }
  void DamageNewestTail() {
    pool::TailRecord* const first = view_.tail_record(0);
    pool::TailRecord* const second = view_.tail_record(1);
    (first->sequence > second->sequence ? first : second)->crc ^= 1;
  }

  Verdict Examine(Position position) const {
    EntryHeader header;
    return Reader(view_).Examine(position, &header);
  }
  std::vector<Group> Walk() const {
    const Reader reader(view_);
    GroupWalk walk(reader);
    std::vector<Group> groups;
    uint64_t done = 0;
    for (Group group; walk.Next(&group);) {
      groups.push_back(group);
      EXPECT_GT(walk.done(), done) << "the walk stands still";
      done = walk.done();
      EXPECT_LE(done, walk.total() + kMaxGroupEntries * kMaxEntryUnits);
    }
    return groups;
  }
  std::vector<Group> Walk(Verdict verdict) const {
    std::vector<Group> groups;
    for (const Group& group : Walk()) {
      if (group.verdict == verdict) groups.push_back(group);
    }
    return groups;
  }
  std::string Payload(Position position) const {
    const Reader reader(view_);
    EntryHeader header;
    EXPECT_EQ(reader.Examine(position, &header), Verdict::kCommitted);
    std::string bytes(header.length, '\0');
    reader.Payload(header, bytes.data(), bytes.size());
    return bytes;
  }

  std::mt19937_64 random_{test::Seed()};
  test::Folder folder_{test::Folder::kMemory};
  test::ScopedPool pool_;
  pool::View view_;
  uint64_t units_ = 0;
  std::optional<LogBuilder> builder_;
};

TEST_F(ReaderTest, AnEmptyLog) {
  const Reader reader(view_);
  EXPECT_EQ(reader.begin(), units_);
  EXPECT_EQ(reader.end(), 2 * units_);
  for (Position position = 0; position < 3 * units_; ++position) {
    ASSERT_EQ(Examine(position), Verdict::kNothing) << position;
  }
  EXPECT_TRUE(Walk().empty());
}

TEST_F(ReaderTest, ReadsWhatWasWritten) {
  std::map<Position, Piece> written;
  for (uint32_t length : {1u, 63u, 64u, 65u, 128u, 1000u, 4095u, 4096u}) {
    const Piece piece = {length % 7, length + 1, 4096 - length, test::Bytes(random_, length)};
    written[builder_->Add(piece)] = piece;
  }
  const Reader reader(view_);
  for (const auto& [position, piece] : written) {
    EntryHeader header;
    ASSERT_EQ(reader.Examine(position, &header), Verdict::kCommitted);
    EXPECT_EQ(header.position, position);
    EXPECT_EQ(header.file, piece.file);
    EXPECT_EQ(header.incarnation, piece.incarnation);
    EXPECT_EQ(header.offset, piece.offset);
    EXPECT_EQ(header.length, piece.bytes.size());
    EXPECT_EQ(Payload(position), piece.bytes);
    const size_t skip = piece.bytes.size() / 3;
    std::string part(piece.bytes.size() - skip, '\0');
    reader.Payload(header, part.data(), part.size(), skip);
    EXPECT_EQ(part, piece.bytes.substr(skip));
    EXPECT_EQ(Examine(position + units_), Verdict::kNothing) << "another lap";
    EXPECT_EQ(Examine(position - units_), Verdict::kNothing) << "another lap";
  }
  const std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), written.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(groups[i].verdict, Verdict::kCommitted);
    EXPECT_EQ(groups[i].entries, 1u);
    EXPECT_EQ(groups[i].damaged, kNoPosition);
  }
}

TEST_F(ReaderTest, EveryWayToWrap) {
  MoveTail(units_ - kMaxEntryUnits - 1);
  for (uint64_t i = 0; i < kMaxEntryUnits + 2; ++i) {
    const std::string bytes = test::Bytes(random_, 4096);
    const Position position = builder_->Add({0, 1, 0, bytes});
    EXPECT_EQ(Payload(position), bytes);
    const Reader reader(view_);
    EntryHeader header;
    reader.Examine(position, &header);
    for (const size_t skip : {0u, 1u, 63u, 64u, 2048u, 4095u}) {
      std::string part(4096 - skip, '\0');
      reader.Payload(header, part.data(), part.size(), skip);
      ASSERT_EQ(part, bytes.substr(skip));
    }
    EXPECT_EQ(Walk().size(), 1u);
    pool_.StoreTail(position + 1);  // one unit further in the next round
    pool_.StoreTail(position + 1);
    builder_.emplace(view_);
    std::memset(view_.log(), 0, units_ * pool::kUnitSize);
  }
}

TEST_F(ReaderTest, AGroupIsOne) {
  const std::string bytes = test::Bytes(random_, 20000);
  const auto positions = builder_->Add(Pieces(3, 4000, bytes));
  ASSERT_EQ(positions.size(), 6u);
  const Position after = builder_->Add({3, 1, 0, "x"});
  const std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].position, positions[0]);
  EXPECT_EQ(groups[0].entries, 6u);
  EXPECT_EQ(groups[0].units, after - positions[0]);
  EXPECT_EQ(groups[0].verdict, Verdict::kCommitted);
  EXPECT_EQ(groups[1].position, after);
  std::string all;
  for (const Position position : positions) all += Payload(position);
  EXPECT_EQ(all, bytes);
}

TEST_F(ReaderTest, TheLargestGroup) {
  test::MakePool(folder_ / "large", 32 << 20);
  test::ScopedPool large;
  ASSERT_TRUE(test::OpenPool(large, folder_ / "large"));
  LogBuilder builder(large.view());
  builder.Add(Pieces(0, 1, std::string(kMaxGroupBytes, 'x')));
  const Reader reader(large.view());
  GroupWalk walk(reader);
  Group group;
  ASSERT_TRUE(walk.Next(&group));
  EXPECT_EQ(group.verdict, Verdict::kCommitted);
  EXPECT_EQ(group.entries, kMaxGroupEntries);
  EXPECT_FALSE(walk.Next(&group));
}

TEST_F(ReaderTest, HolesAreSteppedOver) {
  builder_->Hole(1);
  builder_->Add({0, 1, 0, "a"});
  builder_->Hole(65);
  builder_->Add({0, 1, 1, "b"});
  builder_->Hole(1000);
  builder_->Add(Pieces(0, 0, std::string(9000, 'x')), LogBuilder::kFirstHeaderNot);
  builder_->Add({0, 1, 2, "c"});
  EXPECT_EQ(Walk(Verdict::kCommitted).size(), 3u);
  EXPECT_EQ(Walk(Verdict::kInFlight).size(), 2u);  // members whose first is not there
}

// What was never written is not looked at page by page, and what is behind it is found.
TEST(ReaderOfMemoryTest, WhatWasNeverUsedIsSteppedOver) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  std::mt19937_64 random(test::Seed());
  for (int round = 0; round < 10; ++round) {
    const test::Folder memory(test::Folder::kMemory);
    test::MakePool(memory / "pool", 16 << 20);
    test::ScopedPool pool;
    ASSERT_TRUE(test::OpenPool(pool, memory / "pool"));
    const uint64_t units = pool.view().log_units();
    if (round > 0) pool.StoreTail(LogBuilder(pool.view()).head() + random() % units);
    LogBuilder builder(pool.view());
    const Position begin = builder.head();
    std::vector<Position> expected;
    for (;;) {
      builder.Hole(random() % 3 != 0 ? random() % 100 : random() % (units / 2));
      if (builder.head() + kMaxEntryUnits >= begin + units) break;
      expected.push_back(builder.Add({0, 1, 0, test::Bytes(random, 1 + random() % 4096)}));
    }
    const auto data = [&] {  // bytes of the log that are there
      uint64_t bytes = 0;
      const auto log = static_cast<off_t>(pool.view().superblock->log_offset);
      for (off_t at = log, end; (at = lseek(pool.fd(), at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(pool.fd(), at, SEEK_HOLE);
        bytes += static_cast<uint64_t>(end - at);
      }
      return bytes;
    };
    const uint64_t before = data();
    const Reader reader(pool.view(), pool.fd());
    GroupWalk walk(reader);
    std::vector<Position> found;
    for (Group group; walk.Next(&group);) found.push_back(group.position);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(walk.done(), walk.total());
    EXPECT_LE(data(), before + (expected.size() + 1) * (1u << 20)) << "up to 1 MiB behind each";
  }
}

TEST_F(ReaderTest, WhatWasNotCommittedIsInFlight) {
  const Position alone = builder_->Add({0, 1, 0, "a"}, LogBuilder::kCommitNot);
  const auto group = builder_->Add(Pieces(0, 0, std::string(9000, 'x')), LogBuilder::kCommitNot);
  const Position committed = builder_->Add({0, 1, 2, "c"});
  EXPECT_EQ(Examine(alone), Verdict::kInFlight);
  EXPECT_EQ(Examine(group[0]), Verdict::kInFlight);
  const std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(groups[i].verdict, Verdict::kInFlight);
    EXPECT_EQ(groups[i].entries, 1u);
    EXPECT_EQ(groups[i].damaged, kNoPosition);
  }
  EXPECT_EQ(groups[4].position, committed);
  EXPECT_EQ(groups[4].verdict, Verdict::kCommitted);
}

// I5: what is left of earlier laps never counts.
TEST_F(ReaderTest, EarlierLapsAreNothing) {
  const Position first = builder_->head();
  for (int i = 0; i < 50; ++i) builder_->Add({0, 1, 0, test::Bytes(random_, 700)});
  MoveTail(0);
  EXPECT_TRUE(Walk().empty());
  MoveTail(units_ - (builder_->head() - first));  // one lap after the first
  EXPECT_EQ(builder_->head(), first + units_);
  EXPECT_TRUE(Walk().empty());
  builder_->Hole(EntryUnits(700) * 3);  // over three of them, and it was never filled
  const Position fresh = builder_->Add({0, 1, 0, "new"});
  const std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].position, fresh);
}

// A payload that looks like an entry of this very pool: its position is not where it lies.
TEST_F(ReaderTest, APayloadIsNoEntry) {
  const Position first = builder_->Add({0, 1, 0, "first"});
  std::string copy;
  for (int i = 0; i < 64; ++i) {
    copy.append(reinterpret_cast<const char*>(builder_->Unit(first)), pool::kUnitSize);
  }
  builder_->Add({0, 1, 0, copy}, LogBuilder::kFirstHeaderNot);
  builder_->Add({0, 1, 0, "last"});
  EXPECT_EQ(Walk().size(), 2u);
}

TEST_F(ReaderTest, AppliedEntriesAreKnown) {
  const auto positions = builder_->Add(Pieces(0, 0, std::string(9000, 'x')));
  const Position other = builder_->Add({0, 1, 0, "y"});
  builder_->Header(positions[0])->commit = AppliedWord(positions[0], view_.salt());
  EXPECT_EQ(Examine(positions[0]), Verdict::kApplied);
  std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].verdict, Verdict::kApplied);
  EXPECT_EQ(groups[0].entries, 3u);
  EXPECT_EQ(groups[1].position, other);
  // Damage done later is no loss.
  *builder_->Unit(positions[1] + 1) ^= 1;
  *builder_->Unit(positions[0] + 1) ^= 1;
  groups = Walk();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].verdict, Verdict::kApplied);
  EXPECT_EQ(groups[0].damaged, kNoPosition);
}

// ---------------------------------------------------------------------------------------------
// Damage.

TEST_F(ReaderTest, EveryFlippedBitOfAHeaderIsFound) {
  const Position position = builder_->Add({1, 2, 8192, test::Bytes(random_, 500)});
  const Position next = builder_->Add({1, 2, 8192, "next"});
  for (size_t bit = 0; bit < sizeof(EntryHeader) * 8; ++bit) {
    uint8_t& byte = builder_->Unit(position)[bit / 8];
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
    ASSERT_EQ(Examine(position), Verdict::kDamagedHeader) << bit;
    const std::vector<Group> groups = Walk();
    ASSERT_EQ(groups.size(), 2u) << bit;
    EXPECT_EQ(groups[0].verdict, Verdict::kDamagedHeader);
    EXPECT_EQ(groups[0].position, position);
    EXPECT_EQ(groups[0].damaged, position);
    EXPECT_EQ(groups[0].entries, 0u);
    EXPECT_EQ(groups[0].units, 1u);
    EXPECT_EQ(groups[1].position, next);
    EXPECT_EQ(groups[1].verdict, Verdict::kCommitted);
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
  }
  EXPECT_EQ(Examine(position), Verdict::kCommitted);
}

TEST_F(ReaderTest, EveryFlippedBitOfAPayloadIsFound) {
  MoveTail(units_ - 30);  // it wraps
  const std::string bytes = test::Bytes(random_, 4000);
  const Position position = builder_->Add({1, 2, 64, bytes});
  const Position next = builder_->Add({1, 2, 0, "next"});
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 3) {
    uint8_t& byte = builder_->Unit(position + 1 + bit / 512)[bit / 8 % 64];
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
    ASSERT_EQ(Examine(position), Verdict::kDamagedPayload) << bit;
    if (bit % 100 == 0) {
      const std::vector<Group> groups = Walk();
      ASSERT_EQ(groups.size(), 2u);
      EXPECT_EQ(groups[0].verdict, Verdict::kDamagedPayload);
      EXPECT_EQ(groups[0].damaged, position);
      EXPECT_EQ(groups[0].units, next - position);
      EXPECT_EQ(groups[1].position, next);
    }
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
  }
  builder_->Unit(position + EntryUnits(4000) - 1)[4000 % 64] ^= 1;  // behind the payload
  EXPECT_EQ(Examine(position), Verdict::kCommitted);
}

// I2: a group with a damaged member is not there at all, and what follows is found.
TEST_F(ReaderTest, OneDamagedMemberTakesTheGroup) {
  builder_->Add({1, 1, 0, "before"});
  const auto positions = builder_->Add(Pieces(1, 0, test::Bytes(random_, 3 * 4096)));
  const Position next = builder_->Add({1, 1, 0, "next"});
  for (const Position member : positions) {
    for (uint64_t unit = 0; unit < EntryUnits(4096); unit += 16) {
      for (size_t bit = 0; bit < 512; bit += 5) {
        uint8_t& byte = builder_->Unit(member + unit)[bit / 8];
        byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
        const std::vector<Group> committed = Walk(Verdict::kCommitted);
        ASSERT_EQ(committed.size(), 2u) << member << " " << unit << " " << bit;
        EXPECT_EQ(committed[1].position, next);
        size_t damaged = 0;
        for (const Group& group : Walk()) {
          if (group.damaged == kNoPosition) continue;
          ++damaged;
          EXPECT_EQ(group.damaged, member);
          EXPECT_EQ(group.verdict, unit == 0 ? Verdict::kDamagedHeader : Verdict::kDamagedPayload);
        }
        EXPECT_EQ(damaged, 1u);
        byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
      }
    }
  }
}

TEST_F(ReaderTest, AForeignMemberDamagesTheGroup) {
  const auto change = [&](auto edit) {
    const auto positions = builder_->Add(Pieces(1, 0, std::string(3 * 4096, 'x')));
    const Position next = builder_->Add({1, 1, 0, "next"});
    EntryHeader* header = builder_->Header(positions[1]);
    edit(header);
    builder_->Finish(header);
    const Reader reader(view_);
    bool found_next = false;
    Group group;
    for (GroupWalk walk(reader); walk.Next(&group);) {
      EXPECT_FALSE(group.position == positions[0] && group.verdict == Verdict::kCommitted);
      found_next = found_next || group.position == next;
    }
    EXPECT_TRUE(found_next);
  };
  change([](EntryHeader* header) { header->file = 2; });
  change([](EntryHeader* header) { header->incarnation = 2; });
  change([](EntryHeader* header) { header->group_index = 2; });
  change([](EntryHeader* header) { header->group_count = 4; });
  change([](EntryHeader* header) { header->position += 1; });
}

// A member that is the first of another group: that one is whole.
TEST_F(ReaderTest, AGroupThatEndsTooSoon) {
  const auto positions = builder_->Add(Pieces(1, 0, std::string(2 * 4096, 'x')));
  LogBuilder again(view_, positions[1]);
  again.Add({1, 1, 0, "another"});
  const std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].verdict, Verdict::kDamagedHeader);
  EXPECT_EQ(groups[0].damaged, positions[1]);
  EXPECT_EQ(groups[1].position, positions[1]);
  EXPECT_EQ(groups[1].verdict, Verdict::kCommitted);
}

TEST_F(ReaderTest, NonsenseWithAChecksumIsDamage) {
  const auto verdict = [&](auto edit) {
    const Position position = builder_->Add({1, 1, 100, "abc"});
    EntryHeader* header = builder_->Header(position);
    edit(header);
    builder_->Finish(header);
    return Examine(position);
  };
  EXPECT_EQ(verdict([](EntryHeader*) {}), Verdict::kCommitted);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->length = 0; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->length = 4097; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->length = ~0u; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->offset = 4094; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->offset = ~0ull << 12; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->file = 16; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->file = ~0u; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->group_count = 0; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->group_index = 1; }), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict([](EntryHeader* h) { h->group_count = kMaxGroupEntries + 1; }),
            Verdict::kDamagedHeader);
}

// Whatever the log holds, the reader comes to an end and calls nothing committed.
TEST_F(ReaderTest, Noise) {
  for (int round = 0; round < 10; ++round) {
    auto* words = reinterpret_cast<uint64_t*>(view_.log());
    for (uint64_t i = 0; i < units_ * 8; ++i) words[i] = random_();
    for (Position position = units_; position < 2 * units_; ++position) {
      if (random_() % 4 == 0) {
        builder_->Header(position)->commit = random_() % 2 == 0
                                                 ? CommitWord(position, view_.salt())
                                                 : AppliedWord(position, view_.salt());
      }
    }
    for (const Group& group : Walk()) ASSERT_EQ(group.verdict, Verdict::kDamagedHeader);
  }
}

// ---------------------------------------------------------------------------------------------
// What is not whole (I4): unfinished, or damaged if something says that it had been durable.

// Every way in which one unit of the newest group of a thread may not be there.
TEST_F(ReaderTest, ATornGroupIsUnfinished) {
  builder_->Add({1, 1, 0, "before"});
  for (const size_t length : {size_t{300}, size_t{3 * 4096}}) {
    builder_->AnotherThread();
    const auto positions = builder_->Add(Pieces(1, 0, test::Bytes(random_, length)));
    const Position end = builder_->head();
    builder_->AnotherThread();
    const Position next = builder_->Add({1, 1, 0, "next"});
    const size_t whole = Walk(Verdict::kCommitted).size();
    for (Position unit = positions[0] + 1; unit < end; ++unit) {
      std::string old(reinterpret_cast<char*>(builder_->Unit(unit)), pool::kUnitSize);
      // The word stays as it was before, or is kNotCommitted.
      const size_t header = std::count(positions.begin(), positions.end(), unit) != 0 ? 8 : 64;
      for (const size_t lost : {size_t{64}, header}) {
        std::memset(builder_->Unit(unit), 0, lost);
        EXPECT_EQ(Walk(Verdict::kCommitted).size(), whole - 1);
        const std::vector<Group> unfinished = Walk(Verdict::kUnfinished);
        ASSERT_EQ(unfinished.size(), 1u) << unit;
        EXPECT_EQ(unfinished[0].position, positions[0]);
        EXPECT_EQ(unfinished[0].damaged,
                  *std::prev(std::upper_bound(positions.begin(), positions.end(), unit)));
        EXPECT_EQ(Walk().back().position, next);
        EXPECT_TRUE(Walk(Verdict::kDamagedHeader).empty());
        EXPECT_TRUE(Walk(Verdict::kDamagedPayload).empty());
        std::memcpy(builder_->Unit(unit), old.data(), old.size());
      }
    }
  }
}

// The next group of the thread says that it had been durable, wherever that lies, and even if it is
// not whole itself.
TEST_F(ReaderTest, WhatTheThreadsNextGroupNamesIsDamaged) {
  const auto positions = builder_->Add(Pieces(1, 0, test::Bytes(random_, 3 * 4096)));
  LogBuilder other(view_, builder_->head());
  for (int i = 0; i < 10; ++i) {
    other.AnotherThread();
    other.Add({1, 1, 0, test::Bytes(random_, 500)});
  }
  const auto damage = [&](Position unit, auto check) {
    *builder_->Unit(unit) ^= 1;
    check();
    *builder_->Unit(unit) ^= 1;
  };
  damage(positions[1] + 9, [&] { EXPECT_EQ(Walk()[0].verdict, Verdict::kUnfinished); });
  builder_->Hole(other.head() - builder_->head());
  const Position next = builder_->Add({1, 1, 0, "next"});
  damage(positions[1] + 9, [&] {
    EXPECT_EQ(Walk()[0].verdict, Verdict::kDamagedPayload);
    EXPECT_EQ(Walk()[0].damaged, positions[1]);
    *builder_->Unit(next + 1) ^= 1;
    EXPECT_EQ(Walk()[0].verdict, Verdict::kDamagedPayload);
    EXPECT_EQ(Walk().back().verdict, Verdict::kUnfinished);
    *builder_->Unit(next + 1) ^= 1;
    EXPECT_EQ(Walk().size(), 12u);
  });
  const std::string header(reinterpret_cast<char*>(builder_->Unit(positions[2])), 64);
  std::memset(builder_->Unit(positions[2]), 0, 64);
  EXPECT_EQ(Walk()[0].verdict, Verdict::kDamagedHeader);
  EXPECT_EQ(Walk()[0].damaged, positions[2]);
  std::memcpy(builder_->Unit(positions[2]), header.data(), 64);
  // A header that is not whole says nothing.
  builder_->Header(next)->thread_back ^= 1;
  damage(positions[1] + 9, [&] { EXPECT_EQ(Walk()[0].verdict, Verdict::kUnfinished); });
  EXPECT_EQ(Walk()[0].verdict, Verdict::kCommitted);
}

// So does a later entry of one of its pages, and no other.
TEST_F(ReaderTest, WhatALaterEntryOfThePageNamesIsDamaged) {
  const Position before = builder_->Add({1, 1, 0, "before"});
  builder_->AnotherThread();
  const auto positions = builder_->Add(Pieces(1, 0, test::Bytes(random_, 3 * 4096)));
  builder_->AnotherThread();
  const Position later = builder_->Add({1, 1, 0, "later"});
  const auto verdict = [&](Position previous) {
    builder_->Header(later)->previous = previous;
    builder_->Finish(builder_->Header(later));
    return Walk()[1].verdict;
  };
  *builder_->Unit(positions[1] + 9) ^= 1;
  for (const Position position : positions) {
    EXPECT_EQ(verdict(position), Verdict::kDamagedPayload);
  }
  for (const Position position : {before, later, kNoPosition, Position{0}}) {
    EXPECT_EQ(verdict(position), Verdict::kUnfinished);
  }
  // Of what follows an entry that is not there, nothing is known.
  std::memset(builder_->Unit(positions[1]), 0, pool::kUnitSize);
  EXPECT_EQ(verdict(positions[0]), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict(positions[1]), Verdict::kDamagedHeader);
  EXPECT_EQ(verdict(positions[2]), Verdict::kUnfinished);
}

// Another header in the place of a member is no power failure's work.
TEST_F(ReaderTest, AFlippedMemberNeedsNoOtherSign) {
  const auto positions = builder_->Add(Pieces(1, 0, std::string(2 * 4096, 'x')));
  builder_->Header(positions[1])->offset ^= 1;
  EXPECT_EQ(Walk()[0].verdict, Verdict::kDamagedHeader);
}

// There are more groups that are not whole than a power failure leaves: it ends all the same.
TEST_F(ReaderTest, ALogOfNothingButTornGroups) {
  std::vector<Position> positions;
  while (builder_->head() + 3 <= 2 * units_) {
    builder_->AnotherThread();
    positions.push_back(builder_->Add({1, 1, 0, "torn"}));
    *builder_->Unit(positions.back() + 1) ^= 1;
  }
  EXPECT_TRUE(Walk(Verdict::kCommitted).empty());
  EXPECT_EQ(Walk().size(), positions.size());
  EXPECT_EQ(Walk()[0].verdict, Verdict::kUnfinished);
}

// ---------------------------------------------------------------------------------------------
// Against a model: what was added is what a walk finds.

TEST_F(ReaderTest, ManyLapsOfRandomGroups) {
  RecordProperty("seed", std::to_string(test::Seed()));
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  for (int session = 0; session < 60; ++session) {
    struct Expected {
      Verdict verdict;
      uint32_t entries;
    };
    std::map<Position, Expected> expected;
    const Position begin = builder_->head();
    for (;;) {
      const size_t length = 1 + random_() % (random_() % 4 == 0 ? 20000 : 300);
      const auto pieces = Pieces(static_cast<uint32_t>(random_() % 16), random_() % 100000,
                                 test::Bytes(random_, length));
      uint64_t needed = 0;
      for (const Piece& piece : pieces) needed += EntryUnits(piece.bytes.size());
      if (builder_->head() + needed - begin > units_) break;
      switch (random_() % 8) {
        case 0:
          builder_->Hole(needed);
          break;
        case 1:
          for (const Position position : builder_->Add(pieces, LogBuilder::kCommitNot)) {
            expected[position] = {Verdict::kInFlight, 1};
          }
          break;
        case 2: {
          const auto positions = builder_->Add(pieces, LogBuilder::kFirstHeaderNot);
          for (size_t i = 1; i < positions.size(); ++i) {
            expected[positions[i]] = {Verdict::kInFlight, 1};
          }
          break;
        }
        default: {
          const auto positions = builder_->Add(pieces);
          const bool applied = random_() % 8 == 0;
          if (applied) {
            builder_->Header(positions[0])->commit = AppliedWord(positions[0], view_.salt());
          }
          expected[positions[0]] = {applied ? Verdict::kApplied : Verdict::kCommitted,
                                    static_cast<uint32_t>(positions.size())};
        }
      }
    }
    const std::vector<Group> groups = Walk();
    ASSERT_EQ(groups.size(), expected.size());
    auto next = expected.begin();
    for (const Group& group : groups) {
      ASSERT_EQ(group.position, next->first);
      ASSERT_EQ(group.verdict, next->second.verdict);
      ASSERT_EQ(group.entries, next->second.entries);
      ++next;
    }
    // Some of it is cleaned; the next session begins where this one's positions end.
    pool_.StoreTail(builder_->head());
    pool_.StoreTail(builder_->head());
  }
}

// ---------------------------------------------------------------------------------------------
// A damaged tail record.

TEST_F(ReaderTest, OneTailRecordMeansTwoLaps) {
  const Position old_entry = builder_->Add({0, 1, 0, "cleaned"});
  const Position pending = builder_->Add({0, 1, 1, "pending"});
  pool_.StoreTail(pending);
  DamageNewestTail();
  const Reader reader(view_);
  EXPECT_EQ(reader.begin(), units_);
  EXPECT_EQ(reader.end(), 3 * units_);
  const std::vector<Group> groups = Walk();  // one step back: harmless
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].position, old_entry);
}

// X is cleaned, then Y over the same bytes, and the tail is past both. A new place covers X's
// header but is not filled yet; the one after it overwrites Y. Then the newest tail record is lost:
// X is still there, Y is not, and X must not come back.
TEST_F(ReaderTest, AnOldEntryWhoseSuccessorIsGoneStaysDead) {
  const Position x = builder_->Add({0, 1, 0, std::string(64, 'x')});
  builder_->Add({0, 1, 0, std::string(64, 'y')});
  const Position z = builder_->Add({0, 1, 4096, std::string(64, 'z')});
  pool_.StoreTail(builder_->head());
  builder_->Hole(units_ - (builder_->head() - x));
  ASSERT_EQ(builder_->head(), x + units_);
  builder_->Hole(2);
  const Position fresh = builder_->Add({0, 1, 8192, std::string(64, 'n')});
  ASSERT_EQ(Examine(x), Verdict::kCommitted);
  DamageNewestTail();
  const std::vector<Group> groups = Walk();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].position, z);
  EXPECT_EQ(groups[1].position, fresh);
}

// ---------------------------------------------------------------------------------------------
// A pool in use.

TEST_F(ReaderTest, WhatWasFreedMeanwhileIsNotDamage) {
  const Position a = builder_->Add({0, 1, 0, test::Bytes(random_, 4096)});
  const Position b = builder_->Add({0, 1, 0, "b"});
  const Reader reader(view_);
  GroupWalk walk(reader);
  pool_.StoreTail(b);
  *builder_->Unit(a + 5) ^= 1;
  EXPECT_TRUE(reader.Passed(a));
  EXPECT_FALSE(reader.Passed(b));
  Group group;
  ASSERT_TRUE(walk.Next(&group));
  EXPECT_EQ(group.position, b);
  EXPECT_EQ(group.verdict, Verdict::kCommitted);
  EXPECT_FALSE(walk.Next(&group));
  EXPECT_EQ(reader.begin(), a) << "stays as it was";
}

TEST_F(ReaderTest, ALookerSeesTheSame) {
  const auto positions = builder_->Add(Pieces(2, 0, test::Bytes(random_, 30000)));
  test::ScopedPool looker;
  ASSERT_TRUE(test::OpenPool(looker, folder_ / "pool", pool::Access::kInspect));
  const Reader reader(looker.view());
  GroupWalk walk(reader);
  Group group;
  ASSERT_TRUE(walk.Next(&group));
  EXPECT_EQ(group.entries, positions.size());
  EXPECT_EQ(group.verdict, Verdict::kCommitted);
  EXPECT_FALSE(walk.Next(&group));
}

}  // namespace
}  // namespace nvcache::nvlog
