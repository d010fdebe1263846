// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/log.h"

#include <thread>

#include "src/nvlog/reader.h"
#include "src/pmem/persist.h"
#include "tests/unit/support.h"

namespace nvcache::nvlog {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() {
    pmem::Initialize(nullptr);
    pool::Problem problem;
    const pool::CreateOptions options = {pool::kMinPoolSize, true};
    EXPECT_TRUE(pool::Pool::Create(path_.c_str(), options, nullptr, &problem));
    EXPECT_TRUE(pool_.Open(path_.c_str(), pool::Access::kExclusive, true, nullptr, &problem))
        << problem.text.c_str();
    log_.Open(&pool_);
  }
  ~LogTest() override { pool_.Close(); }

  // One entry, committed unless told otherwise.
  Position Append(const std::string& bytes, uint64_t offset, bool commit = true) {
    const Position place = log_.TryTake(EntryUnits(bytes.size()));
    if (place == kNoPosition) return place;
    GroupWriter group(log_, place, 1);
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    group.Add({offset, data, static_cast<uint32_t>(bytes.size()), 0, 1, kNoPosition});
    if (commit) group.Commit();
    return place;
  }
  std::string Payload(Position position) {
    std::string bytes(log_.At(position).length, '\0');
    log_.Payload(position, 0, bytes.size(), reinterpret_cast<uint8_t*>(bytes.data()));
    return bytes;
  }

  test::Folder folder_{test::Folder::kMemory};
  std::string path_ = folder_ / "pool";
  pool::Pool pool_;
  Log log_;
};

TEST_F(LogTest, CommitIsTheLastThingSeen) {
  const Position open = Append("not yet", 0, false);
  EXPECT_FALSE(log_.IsCommitted(open));
  const Position done = Append("done", 4096);
  EXPECT_TRUE(log_.IsCommitted(done));
  EXPECT_EQ(Payload(done), "done");
  EXPECT_EQ(done, open + 2);
}

TEST_F(LogTest, TheMediumHoldsWhatWasCommitted) {
  const Position hole = Append(std::string(100, 'h'), 0, false);
  const Position entry = Append(std::string(4096, 'e'), 8192);
  Reader reader(pool_.view());
  EntryHeader header;
  EXPECT_EQ(reader.Examine(hole, &header), Verdict::kNothing);
  EXPECT_EQ(reader.Examine(entry, &header), Verdict::kCommitted);
  EXPECT_EQ(header.offset, 8192u);
  EXPECT_EQ(header.length, 4096u);
}

TEST_F(LogTest, AnAbandonedGroupIsAHole) {
  const Position before = Append("before", 0);
  const std::string page(4096, 'x');
  const auto* bytes = reinterpret_cast<const uint8_t*>(page.data());
  const uint64_t units = 3 * EntryUnits(4096);
  const Position place = log_.TryTake(units);
  GroupWriter group(log_, place, 3);
  group.Add({4096, bytes, 4096, 0, 1, kNoPosition});
  group.Add({8192, bytes, 4096, 0, 1, kNoPosition});
  EXPECT_EQ(log_.AbandonedUnits(place), 0u);
  group.Abandon(units);
  const Position after = Append("after", 0);
  EXPECT_FALSE(log_.IsCommitted(place));
  EXPECT_EQ(log_.AbandonedUnits(place), units);
  EXPECT_EQ(log_.AbandonedUnits(before), 0u);
  EXPECT_EQ(log_.AbandonedUnits(after), 0u);
  EXPECT_EQ(after, place + units);

  Reader reader(pool_.view());
  GroupWalk walk(reader);
  std::vector<Position> committed;
  for (Group found; walk.Next(&found);) {
    EXPECT_EQ(found.damaged, kNoPosition);
    if (found.verdict == Verdict::kCommitted) committed.push_back(found.position);
  }
  EXPECT_EQ(committed, (std::vector{before, after}));
}

// Each group names the one before it of its own thread and of this use of the log, and no other.
TEST_F(LogTest, AGroupNamesTheThreadsLast) {
  const auto back = [&](Position position) { return log_.At(position).thread_back; };
  const Position first = Append("first", 0);
  EXPECT_EQ(back(first), 0u);
  const Position second = Append(std::string(500, 's'), 0);
  EXPECT_EQ(back(second), second - first);
  std::thread([&] {
    const Position others = Append("other", 0);
    EXPECT_EQ(back(others), 0u);
    EXPECT_EQ(back(Append("other", 0)), 2u);
  }).join();
  Append("not committed", 0, false);
  const Position third = Append("third", 0);
  EXPECT_EQ(back(third), third - second);
  // Members name nothing.
  const std::string page(4096, 'x');
  const auto* bytes = reinterpret_cast<const uint8_t*>(page.data());
  GroupWriter group(log_, log_.TryTake(2 * EntryUnits(4096)), 2);
  const Position begin = group.Add({4096, bytes, 4096, 0, 1, kNoPosition});
  const Position member = group.Add({8192, bytes, 4096, 0, 1, kNoPosition});
  group.Commit();
  EXPECT_EQ(back(begin), begin - third);
  EXPECT_EQ(back(member), 0u);
}

// What a thread committed in another use of this pool, or in another pool, is no sign here.
TEST_F(LogTest, NothingOfAnotherUseIsNamed) {
  Append("of the first use", 0);
  const Position head = log_.head();
  pool_.StoreTail(head);
  log_.Open(&pool_);
  const Position first = Append("of the second", 0);
  EXPECT_EQ(log_.At(first).thread_back, 0u);
  EXPECT_EQ(log_.At(Append("more", 0)).thread_back, 2u);
  // A child of fork leaves its parent's log and opens one of its own, where it has committed
  // nothing.
  EXPECT_EQ(test::InChild([&] {
              Log own;
              own.Open(&pool_);
              const Position place = own.TryTake(2);
              GroupWriter group(own, place, 1);
              const uint8_t byte = 1;
              group.Add({0, &byte, 1, 0, 1, kNoPosition});
              group.Commit();
              return static_cast<int>(own.At(place).thread_back);
            }),
            0);
}

TEST_F(LogTest, AFullLogGivesNoPlaceUntilTheTailMoves) {
  const std::string page(4096, 'x');
  Position second = kNoPosition;
  int entries = 0;
  for (Position p; (p = Append(page, 0)) != kNoPosition;) {
    if (++entries == 2) second = p;
  }
  EXPECT_EQ(static_cast<uint64_t>(entries), log_.writable_units() / EntryUnits(4096));
  log_.Free(second, [] {});
  EXPECT_NE(Append(page, 0), kNoPosition);
  uint64_t tail = 0;
  int valid = 0;
  ASSERT_TRUE(pool::ReadTail(pool_.view(), &tail, &valid));
  EXPECT_EQ(tail, second) << "I5: the tail is durable before its places are used again";
}

TEST_F(LogTest, TheCleanupThreadHasRoomForOneGroupMore) {
  const std::string page(4096, 'x');
  while (Append(page, 0) != kNoPosition) {
  }
  EXPECT_NE(log_.TakeReserve(log_.max_group_units()), kNoPosition);
  EXPECT_EQ(log_.TakeReserve(EntryUnits(4096)), kNoPosition);
  EXPECT_LE(log_.head() - log_.tail(), log_.log_units());
}

TEST_F(LogTest, EntriesWrapAroundTheEnd) {
  std::mt19937_64 random(test::Seed());
  Position oldest = log_.tail();
  const Position begin = log_.head();
  int wrapped = 0;
  while (log_.head() < begin + 20 * log_.log_units()) {
    const std::string bytes(1 + random() % 4096, static_cast<char>('a' + random() % 26));
    Position p;
    while ((p = Append(bytes, 0)) == kNoPosition) {
      oldest += EntryUnits(log_.At(oldest).length);
      log_.Free(oldest, [] {});
    }
    ASSERT_EQ(Payload(p), bytes);
    const uint8_t* in_place = log_.PayloadInPlace(p);
    if (in_place == nullptr) {
      ++wrapped;
    } else {
      ASSERT_EQ(std::memcmp(in_place, bytes.data(), bytes.size()), 0);
    }
    EntryHeader header;
    ASSERT_EQ(Reader(pool_.view()).Examine(p, &header), Verdict::kCommitted);
  }
  EXPECT_GT(wrapped, 5);
}

TEST_F(LogTest, AWriterSleepsUntilThereIsRoom) {
  const std::string page(4096, 'x');
  const Position first = log_.head();
  while (Append(page, 0) != kNoPosition) {
  }
  std::atomic<bool> placed{false};
  std::thread writer([&] {
    for (;;) {
      const uint32_t room = log_.RoomSeen();
      if (Append(page, 0) != kNoPosition) break;
      log_.WaitForRoom(room);
    }
    placed = true;
  });
  while (!log_.Hurried()) std::this_thread::yield();
  EXPECT_FALSE(placed);
  log_.Free(first + EntryUnits(4096), [] {});
  writer.join();
  EXPECT_TRUE(placed);
}

TEST_F(LogTest, TheAlarmEndsASleep) {
  const uint32_t seen = log_.BellSeen();
  std::thread sleeper([&] { log_.Sleep(seen, log_.tail() + 1, sys::kForever); });
  Append("wake up", 0);
  sleeper.join();
}

}  // namespace
}  // namespace nvcache::nvlog
