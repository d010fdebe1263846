// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/replay/replay.h"

#include <errno.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/support.h"

namespace nvcache::recovery {
namespace {

using nvlog::Position;
using test::Exists;
using test::Folder;
using test::InChild;
using test::kSkip;
using test::LogBuilder;
using test::Pieces;
using test::ReadFile;
using test::ScopedPool;
using test::WriteFile;

// What an Observer hears.
struct Heard {
  struct Orphan {
    uint32_t slot;
    uint64_t offset;
    std::string bytes;
  };
  std::vector<uint32_t> recreated;
  std::map<uint32_t, int> unresolved;  // slot to errno
  std::vector<Orphan> orphans;
  std::vector<Position> damaged, unfinished;
  uint64_t done = 0, total = 0;
  int die_at = -1;  // SIGKILL at the n-th call of progress

  Observer observer() {
    Observer o;
    o.context = this;
    o.progress = [](void* self, uint64_t now, uint64_t all) {
      auto* heard = static_cast<Heard*>(self);
      EXPECT_GE(now, heard->done);
      EXPECT_LE(now, all);
      heard->done = now;
      heard->total = all;
      if (heard->die_at-- == 0) raise(SIGKILL);
    };
    o.damaged = [](void* self, const nvlog::Group& group) {
      static_cast<Heard*>(self)->damaged.push_back(group.damaged);
    };
    o.unfinished = [](void* self, const nvlog::Group& group) {
      static_cast<Heard*>(self)->unfinished.push_back(group.damaged);
    };
    o.recreated = [](void* self, uint32_t slot, const pool::FileRecord&) {
      static_cast<Heard*>(self)->recreated.push_back(slot);
    };
    o.unresolved = [](void* self, uint32_t slot, const pool::FileRecord&, int error) {
      EXPECT_TRUE(static_cast<Heard*>(self)->unresolved.emplace(slot, error).second) << "twice";
    };
    o.orphan = [](void* self, const nvlog::Reader& reader, const nvlog::EntryHeader& header) {
      auto* heard = static_cast<Heard*>(self);
      std::string bytes(header.length, '\0');
      reader.Payload(header, bytes.data(), bytes.size());
      heard->orphans.push_back({header.file, header.offset, bytes});
      EXPECT_TRUE(heard->unresolved.contains(header.file)) << "told before its file was";
    };
    return o;
  }
};

class ReplayTest : public testing::Test {
 protected:
  explicit ReplayTest(Folder::Where where = Folder::kDisk) : files_(where) {}
  void SetUp() override { Make(pool::kMinPoolSize); }

  void Make(uint64_t size) {
    pool_.Close();
    unlink(pool_path_.c_str());
    test::MakePool(pool_path_, size);
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
    pool_.MarkInUse();
    log_.emplace(pool_.view());
  }
  void Reopen() {
    pool_.Close();
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
  }

  std::string Path(const std::string& name) const { return files_ / name; }

  // Puts an existing file into the pool's table.
  void Record(uint32_t slot, const std::string& path, uint32_t incarnation = 1) {
    pool::FileRecord* record = pool_.view().file(slot);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0) << path;
    ASSERT_EQ(pool::Identify(fd, record), 0);
    close(fd);
    record->incarnation = incarnation;
    record->path_length = static_cast<uint32_t>(path.size());
    std::memcpy(record->path, path.c_str(), path.size() + 1);
    record->name = pool::kNameSettled;
    record->successor = 0;
    record->predecessor = 0;
    record->cut = 0;
    record->crc = pool::FileRecordCrc(*record);
  }
  void MakeFile(uint32_t slot, const std::string& name, const std::string& content = "") {
    WriteFile(Path(name), content);
    Record(slot, Path(name));
  }

  void Cut(uint32_t slot, Position position) { pool::StoreCut(pool_.view().file(slot), position); }

  // An empty file that is not synced yet, as the program has just created it.
  void MakeNew(uint32_t slot, const std::string& name, mode_t mode = 0600) {
    MakeFile(slot, name);
    chmod(Path(name).c_str(), mode);
    Record(slot, Path(name));
    pool_.view().file(slot)->name = pool::kNameNew;
  }
  // ... and is gone after a power failure.
  void MakeLost(uint32_t slot, const std::string& name, mode_t mode = 0600) {
    MakeNew(slot, name, mode);
    unlink(Path(name).c_str());
  }

  bool Run(const Options& options = {}) {
    heard_ = {};
    return Replay(pool_, options, heard_.observer(), &summary_);
  }
  // The pool is clean, its log is empty, and another run has nothing to do.
  void ExpectDone() {
    EXPECT_FALSE(pool_.dirty());
    const nvlog::Reader reader(pool_.view());
    nvlog::GroupWalk walk(reader);
    nvlog::Group group;
    EXPECT_FALSE(walk.Next(&group));
    EXPECT_TRUE(Run());
    EXPECT_FALSE(summary_.was_dirty);
    EXPECT_EQ(summary_.entries, 0u);
  }
  Position Tail() const {
    uint64_t tail = 0;
    int valid = 0;
    EXPECT_TRUE(pool::ReadTail(pool_.view(), &tail, &valid));
    EXPECT_EQ(valid, 2);
    return tail;
  }
  bool IsApplied(Position position) const {
    return log_->Header(position)->commit == nvlog::AppliedWord(position, pool_.view().salt());
  }

  std::mt19937_64 random_{test::Seed()};
  Folder memory_{Folder::kMemory};
  Folder files_;
  const std::string pool_path_ = memory_ / "pool";
  ScopedPool pool_;
  std::optional<LogBuilder> log_;
  Heard heard_;
  Summary summary_;
};

// ---------------------------------------------------------------------------------------------

TEST_F(ReplayTest, ACleanPoolNeedsNothing) {
  MakeFile(0, "a", "content");
  log_->Add({0, 1, 0, "never"});
  pool_.MarkClean();
  const std::string before = ReadFile(pool_path_);
  EXPECT_TRUE(Run());
  EXPECT_FALSE(summary_.was_dirty);
  EXPECT_EQ(heard_.total, 0u);
  EXPECT_TRUE(ReadFile(pool_path_) == before);
  EXPECT_EQ(ReadFile(Path("a")), "content");
}

TEST_F(ReplayTest, ADirtyPoolWithNothingInIt) {
  EXPECT_TRUE(Run());
  EXPECT_TRUE(summary_.was_dirty);
  EXPECT_EQ(summary_.entries, 0u);
  ExpectDone();
}

TEST_F(ReplayTest, AppliesInTheLogsOrder) {
  MakeFile(0, "a", "aaaaaaaaaa");
  MakeFile(5, "b");
  log_->Add({0, 1, 2, "XXXX"});
  log_->Add({5, 1, 10, "tail"});
  log_->Add({0, 1, 4, "YYYY"});
  log_->Add({0, 1, 5, "Z"});
  EXPECT_TRUE(Run());
  EXPECT_EQ(ReadFile(Path("a")), "aaXXYZYYaa");
  EXPECT_EQ(ReadFile(Path("b")), std::string(10, '\0') + "tail");
  EXPECT_TRUE(summary_.was_dirty);
  EXPECT_EQ(summary_.files, 2u);
  EXPECT_EQ(summary_.entries, 4u);
  EXPECT_EQ(summary_.bytes, 13u);
  EXPECT_EQ(summary_.unresolved_files + summary_.failed_files + summary_.damaged_groups, 0u);
  EXPECT_EQ(summary_.error, 0);
  EXPECT_EQ(heard_.done, heard_.total);
  EXPECT_GT(heard_.total, 0u);
  ExpectDone();
}

TEST_F(ReplayTest, GroupsWholeOrNotAtAll) {
  MakeFile(0, "a");
  const std::string whole = test::Bytes(random_, 30000);
  log_->Add(Pieces(0, 100, whole));
  log_->Add(Pieces(0, 0, std::string(20000, 'n')), LogBuilder::kCommitNot);
  log_->Add(Pieces(0, 0, std::string(20000, 'n')), LogBuilder::kFirstHeaderNot);
  log_->Hole(77);
  log_->Add({0, 1, 0, "last"});
  EXPECT_TRUE(Run());
  std::string expected = std::string(100, '\0') + whole;
  expected.replace(0, 4, "last");
  EXPECT_TRUE(ReadFile(Path("a")) == expected);
  EXPECT_EQ(summary_.bytes, 30004u);
  EXPECT_EQ(summary_.damaged_groups, 0u);
  ExpectDone();
}

TEST_F(ReplayTest, WhatWasCutOffDoesNotComeBack) {
  MakeFile(0, "a", "aaaaaaaaaa");
  MakeFile(1, "b", "bbbbbbbbbb");
  MakeFile(2, "c", "cccccccccc");
  MakeFile(3, "d", "dddddddddd");
  log_->Add({0, 1, 12, "before"});
  log_->Add({1, 1, 12, "before"});
  Cut(0, log_->head());
  Cut(1, log_->head());
  log_->Add({0, 1, 2, "after"});
  Cut(2, log_->head());  // and nothing in the log
  Cut(3, Tail() - 1);    // is on disk for long
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(Run());
    EXPECT_EQ(ReadFile(Path("a")), std::string(2, '\0') + "after");
    EXPECT_EQ(ReadFile(Path("b")), "");
    EXPECT_EQ(ReadFile(Path("c")), "");
    EXPECT_EQ(ReadFile(Path("d")), "dddddddddd");
  }
  EXPECT_EQ(summary_.unresolved_files + summary_.failed_files, 0u);
  ExpectDone();
}

TEST_F(ReplayTest, ACutIsForgottenBeforeEntriesAfterItAreMarked) {
  MakeFile(0, "a", "aaaaaaaaaa");
  MakeFile(1, "b");
  unlink(Path("b").c_str());
  log_->Add({0, 1, 12, "before"});
  log_->Add({1, 1, 0, "kept"});
  Cut(0, log_->head());
  log_->Add({0, 1, 0, "after"});
  for (int again = 0; again < 3; ++again) {
    EXPECT_FALSE(Run());
    EXPECT_EQ(summary_.unresolved_entries, 1u);
    EXPECT_EQ(ReadFile(Path("a")), "after");
    EXPECT_EQ(pool_.view().file(0)->cut, 0u);
  }
}

TEST_F(ReplayTest, NoPositionComesBack) {
  MakeFile(0, "a");
  log_->Add({0, 1, 0, "one"});
  const Position before = Tail();
  EXPECT_TRUE(Run());
  const Position after = Tail();
  EXPECT_GE(after, before + pool_.view().log_units());
  // The same place in the log, and nothing of the old is met.
  LogBuilder next(pool_.view());
  EXPECT_GE(next.head(), log_->head());
  pool_.MarkInUse();
  next.Hole(1);
  next.Add({0, 1, 3, "two"});
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.entries, 1u);
  EXPECT_EQ(ReadFile(Path("a")), "onetwo");
}

TEST_F(ReplayTest, RandomWritesAgainstAModel) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  std::vector<std::string> model(8);
  for (uint32_t slot = 0; slot < model.size(); ++slot) {
    model[slot] = test::Bytes(random_, random_() % 9000);
    MakeFile(slot, std::to_string(slot), model[slot]);
  }
  for (int session = 0; session < 30; ++session) {
    const uint64_t room = pool_.view().log_units();
    const Position begin = log_->head();
    while (log_->head() + 700 < begin + room) {
      const auto slot = static_cast<uint32_t>(random_() % model.size());
      const uint64_t offset = random_() % 12000;
      const std::string bytes = test::Bytes(random_, 1 + random_() % 9000);
      const auto pieces = Pieces(slot, offset, bytes);
      if (random_() % 6 == 0) {
        log_->Add(pieces, LogBuilder::kCommitNot);
        continue;
      }
      log_->Add(pieces);
      std::string& content = model[slot];
      if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
      content.replace(offset, bytes.size(), bytes);
    }
    ASSERT_TRUE(Run());
    for (uint32_t slot = 0; slot < model.size(); ++slot) {
      ASSERT_TRUE(ReadFile(Path(std::to_string(slot))) == model[slot]) << session << " " << slot;
    }
    Reopen();
    pool_.MarkInUse();
    log_.emplace(pool_.view());
  }
}

// ---------------------------------------------------------------------------------------------
// What is next to each other in a file is written by one call.

TEST_F(ReplayTest, NeighboursInAnyOrder) {
  MakeFile(0, "a");
  MakeFile(1, "b");
  const std::string bytes = test::Bytes(random_, 40 << 10);
  std::vector<size_t> pages = {3, 0, 9, 1, 2, 8, 4, 7, 6, 5};
  for (const size_t page : pages) {
    log_->Add({0, 1, page * 4096, bytes.substr(page * 4096, 4096)});
    log_->Add({1, 1, page * 4096 + 10, bytes.substr(page * 4096, 100)});  // with gaps
  }
  EXPECT_TRUE(Run());
  EXPECT_TRUE(ReadFile(Path("a")) == bytes);
  std::string expected(9 * 4096 + 110, '\0');
  for (const size_t page : pages) {
    expected.replace(page * 4096 + 10, 100, bytes.substr(page * 4096, 100));
  }
  EXPECT_TRUE(ReadFile(Path("b")) == expected);
  EXPECT_EQ(summary_.entries, 20u);
  ExpectDone();
}

// Of all ways in which two pieces of a page can lie, after each other and before a third.
TEST_F(ReplayTest, OverlapsKeepTheirOrder) {
  constexpr uint64_t kPlaces[][2] = {{10, 20}, {10, 20}, {5, 10},  {20, 30}, {0, 40},
                                     {12, 18}, {15, 25}, {10, 30}, {5, 20},  {30, 40}};
  for (const auto& first : kPlaces) {
    for (const auto& second : kPlaces) {
      for (const auto& third : kPlaces) {
        const auto slot = static_cast<uint32_t>(random_() % 3);
        if (ReadFile(Path(std::to_string(slot))).empty()) MakeFile(slot, std::to_string(slot), ".");
        std::string expected = ReadFile(Path(std::to_string(slot)));
        pool_.MarkInUse();
        log_.emplace(pool_.view());
        char c = 'a';
        for (const auto& place : {first, second, third}) {
          const std::string bytes(place[1] - place[0], c++);
          log_->Add({slot, 1, 4096 + place[0], bytes});
          if (expected.size() < 4096 + place[1]) expected.resize(4096 + place[1]);
          expected.replace(4096 + place[0], bytes.size(), bytes);
        }
        ASSERT_TRUE(Run());
        ASSERT_TRUE(ReadFile(Path(std::to_string(slot))) == expected)
            << first[0] << " " << second[0] << " " << third[0];
      }
    }
  }
}

// Small pieces, most of them over others, anywhere in the log: also around its end.
TEST_F(ReplayTest, PiecesAgainstAModel) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  std::vector<std::string> model(3);
  for (uint32_t slot = 0; slot < model.size(); ++slot) MakeFile(slot, std::to_string(slot));
  const uint64_t room = pool_.view().log_units();
  int around = 0;
  for (int session = 0; session < 60; ++session) {
    pool_.StoreTail(Tail() + 1 + random_() % room);
    log_.emplace(pool_.view());
    const Position begin = log_->head();
    while (log_->head() + 3 * nvlog::kMaxEntryUnits < begin + room) {
      const auto slot = static_cast<uint32_t>(random_() % model.size());
      const uint64_t offset = random_() % 40000;
      const std::string bytes = test::Bytes(random_, 1 + random_() % (random_() % 2 ? 200 : 5000));
      log_->Add(Pieces(slot, offset, bytes));
      std::string& content = model[slot];
      if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
      content.replace(offset, bytes.size(), bytes);
    }
    around += begin / room != log_->head() / room ? 1 : 0;
    ASSERT_TRUE(Run());
    for (uint32_t slot = 0; slot < model.size(); ++slot) {
      ASSERT_TRUE(ReadFile(Path(std::to_string(slot))) == model[slot]) << session << " " << slot;
    }
    Reopen();
    pool_.MarkInUse();
  }
  EXPECT_GT(around, 40);
}

// They are applied in several goes.
TEST_F(ReplayTest, MoreEntriesThanAreHeldAtATime) {
  Make(64 << 20);
  MakeFile(0, "a");
  constexpr uint64_t kEntries = 400000, kSize = 5000;
  std::string expected(kSize, '\0');
  for (uint64_t i = 0; i < kEntries; ++i) {
    const uint64_t at = (kEntries - i) * 7 % kSize;
    expected[at] = static_cast<char>('a' + i % 26);
    log_->Add({0, 1, at, std::string(1, expected[at])});
  }
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.entries, kEntries);
  EXPECT_TRUE(ReadFile(Path("a")) == expected);
  ExpectDone();
}

// ---------------------------------------------------------------------------------------------
// I6: killed and run again.

TEST_F(ReplayTest, KilledAnywhereAndRunAgain) {
  MakeFile(0, "a", "0123456789");
  MakeFile(1, "b");
  for (int i = 0; i < 10; ++i) {
    log_->Add({0, 1, static_cast<uint64_t>(i % 4), std::string(5, static_cast<char>('a' + i))});
    log_->Add(Pieces(1, 4094, std::string(4, static_cast<char>('a' + i))));
  }
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  std::string a, b;
  int killed = 0;
  for (int die_at = 0; die_at < 60; ++die_at) {
    WriteFile(Path("a"), "0123456789");
    WriteFile(Path("b"), "");
    WriteFile(pool_path_, pool_before);
    const int result = InChild([&] {
      ScopedPool pool;
      if (!test::OpenPool(pool, pool_path_)) return 1;
      Heard heard;
      heard.die_at = die_at;
      Summary summary;
      return Replay(pool, {}, heard.observer(), &summary) ? 0 : 2;
    });
    if (result == -SIGKILL) ++killed;
    ASSERT_TRUE(result == -SIGKILL || result == 0) << result;
    Reopen();
    EXPECT_EQ(pool_.dirty(), result != 0);
    EXPECT_TRUE(Run());
    if (die_at == 0) a = ReadFile(Path("a")), b = ReadFile(Path("b"));
    EXPECT_EQ(ReadFile(Path("a")), a) << die_at;
    EXPECT_EQ(ReadFile(Path("b")), b) << die_at;
    pool_.Close();
  }
  EXPECT_EQ(killed, 53);  // 20 groups read, 30 entries applied, 2 files synced, and the end
  EXPECT_EQ(a, "ijjjjjhh89");
  EXPECT_EQ(b, std::string(4094, '\0') + "jjjj");
}

// Killed after the tail was stored, before the state was.
TEST_F(ReplayTest, KilledBetweenTailAndState) {
  MakeFile(0, "a");
  log_->Add({0, 1, 0, "one"});
  EXPECT_TRUE(Run());
  WriteFile(Path("a"), "changed since");
  pool_.MarkInUse();
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.entries, 0u);
  EXPECT_EQ(ReadFile(Path("a")), "changed since");
}

// Killed after any number of groups was marked as applied: they are the oldest.
TEST_F(ReplayTest, KilledWhileMarking) {
  MakeFile(0, "a");
  MakeFile(1, "gone");
  std::vector<Position> positions;
  for (int i = 0; i < 6; ++i) {
    const std::string bytes(8000, static_cast<char>('a' + i));
    positions.push_back(log_->Add(Pieces(0, static_cast<uint64_t>(i) * 1000, bytes))[0]);
  }
  log_->Add({1, 1, 0, "orphan"});
  unlink(Path("gone").c_str());
  EXPECT_FALSE(Run());
  const std::string result = ReadFile(Path("a"));
  for (const Position position : positions) EXPECT_TRUE(IsApplied(position));
  for (size_t marked = 0; marked <= positions.size(); ++marked) {
    for (size_t i = 0; i < positions.size(); ++i) {
      const Position position = positions[i];
      const uint64_t salt = pool_.view().salt();
      log_->Header(position)->commit =
          i < marked ? nvlog::AppliedWord(position, salt) : nvlog::CommitWord(position, salt);
    }
    EXPECT_FALSE(Run());
    EXPECT_EQ(summary_.entries, (positions.size() - marked) * 3 - (marked == 0 ? 1 : 0))
        << marked;  // the first begins at a page
    EXPECT_TRUE(ReadFile(Path("a")) == result) << marked;
    for (const Position position : positions) EXPECT_TRUE(IsApplied(position));
  }
}

TEST_F(ReplayTest, ADryRunWritesNothing) {
  MakeFile(0, "a", "content");
  MakeFile(1, "gone");
  unlink(Path("gone").c_str());
  log_->Add({0, 1, 0, "xxx"});
  log_->Add({1, 1, 0, "yy"});
  const Position damaged = log_->Add({0, 1, 0, "z"});
  *log_->Unit(damaged + 1) ^= 1;
  const Position unfinished = log_->Add({1, 1, 0, "u"});
  *log_->Unit(unfinished + 1) ^= 1;
  const std::string before = ReadFile(pool_path_);
  EXPECT_FALSE(Run({.dry_run = true}));
  EXPECT_TRUE(ReadFile(pool_path_) == before);
  EXPECT_EQ(ReadFile(Path("a")), "content");
  EXPECT_EQ(summary_.files, 1u);
  EXPECT_EQ(summary_.entries, 1u);
  EXPECT_EQ(summary_.bytes, 3u);
  EXPECT_EQ(summary_.unresolved_files, 1u);
  EXPECT_EQ(summary_.unresolved_entries, 1u);
  EXPECT_EQ(summary_.damaged_groups, 1u);
  EXPECT_EQ(summary_.unfinished_groups, 1u);
  EXPECT_FALSE(Run({.dry_run = true, .discard = true}));
  EXPECT_TRUE(ReadFile(pool_path_) == before);
}

// ---------------------------------------------------------------------------------------------
// Damage.

TEST_F(ReplayTest, DamagedGroupsAreToldAndNotApplied) {
  MakeFile(0, "a", std::string(20000, '.'));
  log_->Add({0, 1, 0, "first"});
  const auto group = log_->Add(Pieces(0, 0, std::string(12288, 'D')));
  log_->Add({0, 1, 30, "more"});
  const Position header = log_->Add({0, 1, 0, "DD"});
  log_->Add({0, 1, 10, "last"});
  *log_->Unit(group[1] + 3) ^= 4;
  log_->Header(header)->offset ^= 1;
  EXPECT_TRUE(Run()) << "nothing more can be done about it";
  std::string expected(20000, '.');
  expected.replace(0, 5, "first");
  expected.replace(10, 4, "last");
  expected.replace(30, 4, "more");
  EXPECT_TRUE(ReadFile(Path("a")) == expected);
  EXPECT_EQ(summary_.damaged_groups, 2u);
  EXPECT_EQ(heard_.damaged, (std::vector{group[1], header}));
  EXPECT_EQ(summary_.unfinished_groups, 0u);
  ExpectDone();
}

// What a power failure leaves of the newest write call of each thread: none of it is applied, and
// nothing is damaged.
TEST_F(ReplayTest, UnfinishedGroupsAreToldAndNotApplied) {
  MakeFile(0, "a", std::string(30000, '.'));
  log_->Add({0, 1, 0, "first"});
  const auto group = log_->Add(Pieces(0, 0, std::string(12288, 'U')));
  log_->AnotherThread();
  const auto headless = log_->Add(Pieces(0, 12288, std::string(12288, 'U')));
  log_->AnotherThread();
  const Position alone = log_->Add({0, 1, 0, "UU"});
  log_->AnotherThread();
  log_->Add({0, 1, 10, "last"});
  *log_->Unit(group[1] + 3) ^= 4;
  std::memset(log_->Unit(headless[1]), 0, pool::kUnitSize);
  *log_->Unit(alone + 1) ^= 1;
  EXPECT_TRUE(Run());
  std::string expected(30000, '.');
  expected.replace(0, 5, "first");
  expected.replace(10, 4, "last");
  EXPECT_TRUE(ReadFile(Path("a")) == expected);
  EXPECT_EQ(summary_.damaged_groups, 0u);
  EXPECT_EQ(summary_.unfinished_groups, 3u);
  EXPECT_EQ(heard_.unfinished, (std::vector{group[1], headless[1], alone}));
  ExpectDone();
}

TEST_F(ReplayTest, NoFlippedBitOfAnEntryIsApplied) {
  const std::string content(300, '.');
  MakeFile(0, "a", content);
  const Position position = log_->Add({0, 1, 20, test::Bytes(random_, 130)});
  for (size_t bit = 0; bit < (sizeof(nvlog::EntryHeader) + 130) * 8; bit += 7) {
    const auto flip = [&] {
      uint8_t& byte = log_->Unit(position + bit / 512)[bit / 8 % 64];
      byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
    };
    flip();
    EXPECT_FALSE(Run({.dry_run = true}));
    const bool in_payload = bit >= 512;  // of the last write call of the thread
    ASSERT_EQ(summary_.damaged_groups, in_payload ? 0u : 1u) << bit;
    ASSERT_EQ(summary_.unfinished_groups, in_payload ? 1u : 0u) << bit;
    ASSERT_EQ(summary_.entries, 0u) << bit;
    flip();
  }
  EXPECT_FALSE(Run({.dry_run = true}));
  EXPECT_EQ(summary_.entries, 1u);
}

TEST_F(ReplayTest, ADamagedFileRecordKeepsItsEntries) {
  MakeFile(0, "a");
  MakeFile(1, "b");
  log_->Add({0, 1, 0, "one"});
  log_->Add({1, 1, 0, "two"});
  pool_.view().file(0)->inode ^= 1;
  EXPECT_FALSE(Run());
  EXPECT_TRUE(pool_.dirty());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, EBADMSG}}));
  EXPECT_EQ(ReadFile(Path("a")), "");
  EXPECT_EQ(ReadFile(Path("b")), "two");
  pool_.view().file(0)->inode ^= 1;  // a miracle
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.entries, 1u) << "the other one is marked";
  EXPECT_EQ(ReadFile(Path("a")), "one");
  ExpectDone();
}

TEST_F(ReplayTest, AnUnknownIncarnationIsNotTheFile) {
  MakeFile(0, "a");
  log_->Add({0, 2, 0, "of the slot's next file, whose record is missing"});
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, EBADMSG}}));
  EXPECT_EQ(ReadFile(Path("a")), "");
}

// Behind a damaged tail, entries are met whose slot has another file by now. They are on disk.
TEST_F(ReplayTest, AnOlderIncarnationIsOnDisk) {
  MakeFile(0, "a");
  Record(0, Path("a"), 7);
  const Position old = log_->Add({0, 6, 0, "old"});
  log_->Add({0, 7, 0, "new"});
  MakeFile(1, "gone");
  unlink(Path("gone").c_str());
  log_->Add({1, 1, 0, "kept"});
  EXPECT_FALSE(Run());
  EXPECT_EQ(summary_.entries, 1u);
  EXPECT_EQ(summary_.unresolved_files, 1u);
  EXPECT_EQ(ReadFile(Path("a")), "new");
  EXPECT_TRUE(IsApplied(old));
}

TEST_F(ReplayTest, ADamagedTailRecord) {
  MakeFile(0, "a");
  log_->Add({0, 1, 0, "on disk, "});
  pool_.StoreTail(log_->head());
  log_->Add({0, 1, 9, "pending"});
  pool::TailRecord* const first = pool_.view().tail_record(0);
  pool::TailRecord* const second = pool_.view().tail_record(1);
  (first->sequence > second->sequence ? first : second)->tail ^= 1;
  Reopen();
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.entries, 2u) << "one step back is harmless";
  EXPECT_EQ(ReadFile(Path("a")), "on disk, pending");
  EXPECT_GE(Tail(), log_->head() + pool_.view().log_units());  // and both records are whole
  ExpectDone();
}

// ---------------------------------------------------------------------------------------------
// I6: only the file that the entry was written to.

TEST_F(ReplayTest, AMissingFileKeepsItsEntries) {
  MakeFile(0, "a");
  MakeFile(1, "gone");
  const Position applied = log_->Add({0, 1, 0, "one"});
  const auto kept = log_->Add(Pieces(1, 4000, std::string(200, 'k')));
  log_->Add({0, 1, 3, "two"});
  unlink(Path("gone").c_str());
  for (int run = 0; run < 2; ++run) {
    EXPECT_FALSE(Run());
    EXPECT_TRUE(pool_.dirty());
    EXPECT_EQ(ReadFile(Path("a")), "onetwo");
    EXPECT_FALSE(Exists(Path("gone")));
    EXPECT_EQ(summary_.entries, run == 0 ? 2u : 0u) << "applied only once";
    EXPECT_EQ(summary_.unresolved_files, 1u);
    EXPECT_EQ(summary_.unresolved_entries, 2u);
    EXPECT_EQ(summary_.unresolved_bytes, 200u);
    EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{1, ENOENT}}));
    ASSERT_EQ(heard_.orphans.size(), 2u);
    EXPECT_EQ(heard_.orphans[0].offset, 4000u);
    EXPECT_EQ(heard_.orphans[0].bytes + heard_.orphans[1].bytes, std::string(200, 'k'));
    EXPECT_TRUE(IsApplied(applied));
    EXPECT_FALSE(IsApplied(kept[0]));
    WriteFile(Path("a"), "onetwo");
    Reopen();
  }
}

TEST_F(ReplayTest, DiscardDropsThemAfterTheyWereTold) {
  MakeFile(0, "a");
  MakeFile(1, "gone");
  log_->Add({0, 1, 0, "one"});
  log_->Add({1, 1, 5, "lost"});
  unlink(Path("gone").c_str());
  EXPECT_TRUE(Run({.discard = true}));
  ASSERT_EQ(heard_.orphans.size(), 1u);
  EXPECT_EQ(heard_.orphans[0].bytes, "lost");
  EXPECT_EQ(summary_.unresolved_entries, 1u);
  EXPECT_EQ(ReadFile(Path("a")), "one");
  ExpectDone();
}

TEST_F(ReplayTest, AnotherFileOfTheSameNameIsNotTouched) {
  MakeFile(0, "a", "old");
  log_->Add({0, 1, 0, "XXX"});
  unlink(Path("a").c_str());
  WriteFile(Path("a"), "new");  // perhaps with the same inode
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ESTALE}}));
  EXPECT_EQ(ReadFile(Path("a")), "new");
}

// As programs do that write a new version and rename it over the old one.
TEST_F(ReplayTest, AFileRenamedOverItIsNotTouched) {
  MakeFile(0, "a", "old");
  WriteFile(Path("a.new"), "new");
  log_->Add({0, 1, 0, "XXX"});
  ASSERT_EQ(rename(Path("a.new").c_str(), Path("a").c_str()), 0);
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ESTALE}}));
  EXPECT_EQ(ReadFile(Path("a")), "new");
}

TEST_F(ReplayTest, WhateverElseHasTheNameIsNotTouched) {
  const auto run = [&](auto replace) {
    Make(pool::kMinPoolSize);
    MakeFile(0, "a", "old");
    log_->Add({0, 1, 0, "XXX"});
    unlink(Path("a").c_str());
    replace();
    EXPECT_FALSE(Run());
    std::filesystem::remove_all(Path("a"));
    return heard_.unresolved.contains(0) ? heard_.unresolved[0] : 0;
  };
  WriteFile(Path("victim"), "safe");
  EXPECT_EQ(run([&] { ASSERT_EQ(symlink(Path("victim").c_str(), Path("a").c_str()), 0); }), ESTALE);
  EXPECT_EQ(ReadFile(Path("victim")), "safe");
  EXPECT_EQ(run([&] { ASSERT_EQ(symlink("/nowhere", Path("a").c_str()), 0); }), ESTALE);
  EXPECT_EQ(run([&] { ASSERT_EQ(mkdir(Path("a").c_str(), 0700), 0); }), ESTALE);
  EXPECT_EQ(run([&] { ASSERT_EQ(mkfifo(Path("a").c_str(), 0600), 0); }), ESTALE);
}

TEST_F(ReplayTest, AFolderThatBecameAFile) {
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  MakeFile(0, "folder/a");
  log_->Add({0, 1, 0, "XXX"});
  std::filesystem::remove_all(Path("folder"));
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved[0], ENOENT);
  WriteFile(Path("folder"), "");
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved[0], ENOENT);
}

// An unprivileged user knows a file by its path; root finds it wherever it is.
TEST_F(ReplayTest, ARenamedFileIsFoundByItsHandle) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  MakeFile(0, "a", "old");
  if (pool_.view().file(0)->handle_size == 0) GTEST_SKIP() << "no handles here";
  log_->Add({0, 1, 0, "XXXX"});
  ASSERT_EQ(rename(Path("a").c_str(), Path("b c").c_str()), 0);
  WriteFile(Path("a"), "another");  // has its name
  chmod(files_.path().c_str(), 0777);
  chmod(memory_.path().c_str(), 0777);
  ASSERT_EQ(chown(pool_path_.c_str(), 65534, 65534), 0);
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              if (setuid(65534) != 0) return kSkip;
              ScopedPool pool;
              if (!test::OpenPool(pool, pool_path_)) return 1;
              Summary summary;
              Heard heard;
              if (Replay(pool, {}, heard.observer(), &summary)) return 2;
              return heard.unresolved.contains(0) ? 0 : 3;
            }),
            0);
  ASSERT_EQ(chown(pool_path_.c_str(), 0, 0), 0);
  Reopen();
  EXPECT_TRUE(Run());
  EXPECT_EQ(ReadFile(Path("b c")), "XXXX");
  EXPECT_EQ(ReadFile(Path("a")), "another");
  ExpectDone();
}

TEST_F(ReplayTest, ADeletedFileIsNotFoundByItsHandleWhileSomebodyHasItOpen) {
  MakeFile(0, "a", "old");
  log_->Add({0, 1, 0, "XXXX"});
  const int fd = open(Path("a").c_str(), O_RDONLY | O_CLOEXEC);
  unlink(Path("a").c_str());
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved[0], ENOENT);
  close(fd);
}

// ---------------------------------------------------------------------------------------------
// I9: a file whose creation the file system has lost.

mode_t ModeOf(const std::string& path) {
  struct stat st = {};
  EXPECT_EQ(lstat(path.c_str(), &st), 0) << path;
  return st.st_mode;
}

TEST_F(ReplayTest, ALostFileIsCreatedAgain) {
  MakeLost(0, "a", 0641);
  MakeLost(1, "b", 04777);  // a write would have taken set-user-ID away
  log_->Add({0, 1, 3, "one"});
  log_->Add({1, 1, 0, "b"});
  log_->Add({0, 1, 6, "two"});
  const mode_t mask = umask(0077);
  EXPECT_TRUE(Run());
  umask(mask);
  EXPECT_EQ(ReadFile(Path("a")), std::string(3, '\0') + "onetwo");
  EXPECT_EQ(ReadFile(Path("b")), "b");
  EXPECT_EQ(ModeOf(Path("a")), S_IFREG | 0641u);
  EXPECT_EQ(ModeOf(Path("b")), S_IFREG | 0777u);
  EXPECT_EQ(heard_.recreated, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(summary_.files, 2u);
  EXPECT_EQ(summary_.recreated_files, 2u);
  EXPECT_EQ(summary_.entries, 3u);
  EXPECT_EQ(summary_.unresolved_files, 0u);
  ExpectDone();
}

TEST_F(ReplayTest, ANewFileThatIsThereIsNotCreatedAgain) {
  MakeNew(0, "a");
  log_->Add({0, 1, 0, "one"});
  struct stat before = {}, after = {};
  ASSERT_EQ(stat(Path("a").c_str(), &before), 0);
  EXPECT_TRUE(Run());
  ASSERT_EQ(stat(Path("a").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(ReadFile(Path("a")), "one");
  EXPECT_EQ(summary_.recreated_files, 0u);
  EXPECT_TRUE(heard_.recreated.empty());
}

TEST_F(ReplayTest, OfALostFileADryRunOnlyTells) {
  MakeLost(0, "a");
  MakeLost(1, "b");
  log_->Add({0, 1, 0, "one"});
  log_->Add({1, 1, 0, "two"});
  WriteFile(Path("b"), "another");
  const std::string before = ReadFile(pool_path_);
  EXPECT_FALSE(Run({.dry_run = true}));
  EXPECT_EQ(heard_.recreated, (std::vector<uint32_t>{0}));
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{1, ESTALE}}));
  EXPECT_EQ(summary_.recreated_files, 1u);
  EXPECT_EQ(summary_.entries, 1u);
  EXPECT_FALSE(Exists(Path("a")));
  EXPECT_TRUE(ReadFile(pool_path_) == before);
}

TEST_F(ReplayTest, WhateverHasALostFilesNameIsNotTouched) {
  WriteFile(Path("victim"), "safe");
  const auto run = [&](auto replace) {
    Make(pool::kMinPoolSize);
    MakeLost(0, "a");
    log_->Add({0, 1, 0, "XXX"});
    replace();
    EXPECT_FALSE(Run());
    EXPECT_TRUE(heard_.recreated.empty());
    EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ESTALE}}));
    EXPECT_EQ(summary_.unresolved_entries, 1u);
  };
  run([&] { WriteFile(Path("a"), "another"); });
  EXPECT_EQ(ReadFile(Path("a")), "another");
  unlink(Path("a").c_str());
  run([&] { ASSERT_EQ(symlink(Path("victim").c_str(), Path("a").c_str()), 0); });
  EXPECT_EQ(ReadFile(Path("victim")), "safe");
  unlink(Path("a").c_str());
  run([&] { ASSERT_EQ(symlink(Path("nothing").c_str(), Path("a").c_str()), 0); });
  EXPECT_FALSE(Exists(Path("nothing")));
  unlink(Path("a").c_str());
  run([&] { ASSERT_EQ(mkdir(Path("a").c_str(), 0700), 0); });
}

TEST_F(ReplayTest, WhatTheProgramRemovedGivesItsNameBack) {
  MakeLost(0, "a", 0641);
  MakeFile(1, "a", "removed");
  MakeLost(2, "b");
  MakeFile(3, "b", "somebody else's");
  for (uint32_t slot : {0u, 2u}) {
    pool::FileRecord* record = pool_.view().file(slot);
    record->predecessor = pool::Fingerprint(*pool_.view().file(1));
    record->crc = pool::FileRecordCrc(*record);
  }
  log_->Add({0, 1, 0, "one"});
  log_->Add({2, 1, 0, "two"});
  EXPECT_FALSE(Run({.dry_run = true}));
  EXPECT_EQ(heard_.recreated, std::vector<uint32_t>{0});
  EXPECT_EQ(ReadFile(Path("a")), "removed");
  EXPECT_FALSE(Run());
  EXPECT_EQ(ReadFile(Path("a")), "one");
  EXPECT_EQ(ModeOf(Path("a")), S_IFREG | 0641u);
  EXPECT_EQ(ReadFile(Path("b")), "somebody else's");
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{2, ESTALE}}));
}

TEST_F(ReplayTest, ALostFileWithoutItsFolder) {
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  MakeLost(0, "folder/a");
  log_->Add({0, 1, 0, "one"});
  ASSERT_EQ(rmdir(Path("folder").c_str()), 0);
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ENOTDIR}}));
  WriteFile(Path("folder"), "");
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ENOTDIR}}));
  // Its place may have been taken by a link into a folder that belongs to somebody else.
  unlink(Path("folder").c_str());
  ASSERT_EQ(mkdir(Path("other").c_str(), 0700), 0);
  ASSERT_EQ(symlink(Path("other").c_str(), Path("folder").c_str()), 0);
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ELOOP}}));
  EXPECT_TRUE(std::filesystem::is_empty(Path("other")));
  unlink(Path("folder").c_str());
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  EXPECT_TRUE(Run()) << "the folder is back";
  EXPECT_EQ(ReadFile(Path("folder/a")), "one");
  ExpectDone();
}

// The path of a file system that is not mounted leads to a folder of another one.
TEST_F(ReplayTest, ALostFileOfAnotherFileSystem) {
  MakeLost(0, "a");
  log_->Add({0, 1, 0, "one"});
  pool::FileRecord* record = pool_.view().file(0);
  record->file_system ^= 1;
  record->crc = pool::FileRecordCrc(*record);
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, EXDEV}}));
  EXPECT_FALSE(Exists(Path("a")));
}

// Found by its handle, where the rename that was lost had found it.
TEST_F(ReplayTest, ALostRenameIsNotALostFile) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  MakeNew(0, "new name");
  if (pool_.view().file(0)->handle_size == 0) GTEST_SKIP() << "no handles here";
  log_->Add({0, 1, 0, "XXXX"});
  ASSERT_EQ(rename(Path("new name").c_str(), Path("old name").c_str()), 0);
  EXPECT_TRUE(Run());
  EXPECT_EQ(ReadFile(Path("old name")), "XXXX");
  EXPECT_FALSE(Exists(Path("new name")));
  EXPECT_EQ(summary_.recreated_files, 0u);
}

TEST_F(ReplayTest, TheOwnerOfALostFile) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kUser = 65534;
  for (uint32_t slot : {0u, 1u, 2u}) {
    const std::string path = Path(std::to_string(slot));
    MakeFile(slot, std::to_string(slot));
    ASSERT_EQ(chown(path.c_str(), slot == 0 ? kUser : slot, slot == 0 ? kUser : 7), 0);
    Record(slot, path);
    pool_.view().file(slot)->name = pool::kNameNew;
    unlink(path.c_str());
    log_->Add({slot, 1, 0, "one"});
  }
  WriteFile(Path("2"), "in the way");
  chmod(files_.path().c_str(), 0777);
  chmod(memory_.path().c_str(), 0777);
  ASSERT_EQ(chown(pool_path_.c_str(), 65534, 65534), 0);
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              if (setgroups(0, nullptr) != 0 || setgid(kUser) != 0 || setuid(kUser) != 0) {
                return kSkip;
              }
              ScopedPool pool;
              if (!test::OpenPool(pool, pool_path_)) return 1;
              Summary summary;
              Heard heard;
              if (Replay(pool, {}, heard.observer(), &summary)) return 2;
              if (heard.recreated != std::vector<uint32_t>{0}) return 3;
              return heard.unresolved == std::map<uint32_t, int>{{1, EPERM}, {2, ESTALE}} ? 0 : 4;
            }),
            0);
  EXPECT_FALSE(Exists(Path("1"))) << "not with another owner";
  unlink(Path("2").c_str());
  ASSERT_EQ(chown(pool_path_.c_str(), 0, 0), 0);
  Reopen();
  EXPECT_TRUE(Run());
  EXPECT_EQ(heard_.recreated, (std::vector<uint32_t>{1, 2}));
  struct stat st = {};
  ASSERT_EQ(stat(Path("0").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, kUser);
  ASSERT_EQ(stat(Path("1").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 1u);
  EXPECT_EQ(st.st_gid, 7u);
  ExpectDone();
}

// What is left of it after a run that could not finish is the file, and is not created twice.
TEST_F(ReplayTest, ACreatedFileIsKnownAgain) {
  MakeLost(0, "a");
  log_->Add(Pieces(0, 0, std::string(5000, 'a')));
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              ScopedPool pool;
              if (!test::OpenPool(pool, pool_path_)) return 1;
              const rlimit limit = {4500, 4500};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              Summary summary;
              Heard heard;
              if (Replay(pool, {}, heard.observer(), &summary)) return 3;
              return heard.unresolved == std::map<uint32_t, int>{{0, EFBIG}} ? 0 : 4;
            }),
            0);
  Reopen();
  EXPECT_EQ(ReadFile(Path("a")), "");
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.recreated_files, 0u);
  EXPECT_TRUE(ReadFile(Path("a")) == std::string(5000, 'a'));
  ExpectDone();
}

// Once it was synced, it is a file like any other: who removes it means it.
TEST_F(ReplayTest, ACreatedFileThatIsRemovedStaysSo) {
  MakeLost(0, "a");
  MakeFile(1, "gone");
  log_->Add({0, 1, 0, "one"});
  log_->Add({1, 1, 0, "two"});
  unlink(Path("gone").c_str());
  EXPECT_FALSE(Run());
  EXPECT_EQ(ReadFile(Path("a")), "one");
  EXPECT_EQ(pool_.view().file(0)->name, pool::kNameSettled);
  EXPECT_EQ(pool_.view().file(1)->name, pool::kNameSettled);
  unlink(Path("a").c_str());
  log_->Add({0, 1, 3, "three"});
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ENOENT}, {1, ENOENT}}));
  EXPECT_FALSE(Exists(Path("a")));
}

// Runs `body` in a child, and `act` as the child's n-th system call begins or ends, if there are so
// many. The result is that of InChild, but for a child that cannot be traced: kSkip.
int WithActAt(int n, const std::function<void(pid_t)>& act, const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kSkip);
    raise(SIGSTOP);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  while (WIFSTOPPED(status)) {
    if (n-- == 0) act(pid);
    ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Somebody takes the name while recovery is about to.
TEST_F(ReplayTest, AFileThatAppearsMeanwhileIsNotTouched) {
  MakeLost(0, "a");
  log_->Add({0, 1, 0, "one"});
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  int in_the_way = 0, too_late = 0;
  bool acted = true;
  for (int step = 0; acted; ++step) {
    SCOPED_TRACE(step);
    unlink(Path("a").c_str());
    WriteFile(pool_path_, pool_before);
    acted = false;
    bool taken = false;
    const auto take_name = [&](pid_t) {
      acted = true;
      const int fd = open(Path("a").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      taken = fd >= 0;
      if (taken) close(fd);
    };
    const int status = WithActAt(step, take_name, [&] {
      ScopedPool pool;
      if (!test::OpenPool(pool, pool_path_)) return 1;
      Summary summary;
      Heard heard;
      if (Replay(pool, {}, heard.observer(), &summary)) return 0;
      return heard.unresolved == std::map<uint32_t, int>{{0, ESTALE}} ? 2 : 3;
    });
    if (status == kSkip) GTEST_SKIP() << "cannot trace a child";
    EXPECT_EQ(status, taken ? 2 : 0);
    EXPECT_EQ(ReadFile(Path("a")), taken ? "" : "one");
    ++(taken ? in_the_way : too_late);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(in_the_way, 10);
  EXPECT_GT(too_late, 10);
}

// Files that are lost, one that is there, and one that keeps the pool from becoming clean.
TEST_F(ReplayTest, KilledAtEverySystemCallOfACreation) {
  MakeFile(0, "there", "....");
  MakeLost(1, "a", 0640);
  MakeLost(2, "b");
  MakeFile(3, "gone");
  unlink(Path("gone").c_str());
  log_->Add({0, 1, 0, "12"});
  log_->Add({1, 1, 0, "one"});
  log_->Add(Pieces(2, 4090, std::string(10, 'b')));
  log_->Add({3, 1, 0, "kept"});
  log_->Add({1, 1, 2, "two"});
  log_->Add({0, 1, 1, "34"});
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  int status = -SIGKILL;
  int steps = 0;
  int before_name = 0, half_done = 0;
  for (; status == -SIGKILL; ++steps) {
    SCOPED_TRACE(steps);
    for (const char* name : {"a", "b"}) unlink(Path(name).c_str());
    WriteFile(Path("there"), "....");
    WriteFile(pool_path_, pool_before);
    status = WithActAt(
        steps, [](pid_t pid) { kill(pid, SIGKILL); },
        [&] {
          ScopedPool pool;
          if (!test::OpenPool(pool, pool_path_)) return 1;
          Summary summary;
          return Replay(pool, {}, {}, &summary) ? 2 : 0;
        });
    if (status == kSkip) GTEST_SKIP() << "cannot trace a child";
    ASSERT_TRUE(status == -SIGKILL || status == 0) << status;
    Reopen();
    before_name += Exists(Path("a")) ? 0 : 1;
    half_done += Exists(Path("a")) && !Exists(Path("b")) ? 1 : 0;
    EXPECT_FALSE(Run());
    EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{3, ENOENT}}));
    EXPECT_EQ(ReadFile(Path("there")), "134.");
    EXPECT_EQ(ReadFile(Path("a")), "ontwo");
    EXPECT_EQ(ReadFile(Path("b")), std::string(4090, '\0') + std::string(10, 'b'));
    EXPECT_EQ(ModeOf(Path("a")), S_IFREG | 0640u);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(files_.path()), {}), 3)
        << "nothing else is left behind";
    ASSERT_FALSE(HasFailure());
    pool_.Close();
  }
  EXPECT_GT(before_name, 10);
  EXPECT_GT(half_done, 10);
  EXPECT_LT(before_name + half_done, steps);
}

// ---------------------------------------------------------------------------------------------
// The file system says no.

TEST_F(ReplayTest, ARefusedFileIsKeptTheOthersAreApplied) {
  MakeFile(0, "a");
  MakeFile(1, "b");
  log_->Add({0, 1, 0, "small"});
  log_->Add(Pieces(1, 0, std::string(5000, 'b')));
  log_->Add(Pieces(1, 0, std::string(100, 'c')));
  log_->Add({0, 1, 5, " too"});
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              ScopedPool pool;
              if (!test::OpenPool(pool, pool_path_)) return 1;
              const rlimit limit = {4500, 4500};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              Summary summary;
              Heard heard;
              if (Replay(pool, {.discard = true}, heard.observer(), &summary)) return 3;
              if (summary.failed_files != 1 || summary.error != EFBIG) return 4;
              if (summary.files != 1 || summary.entries != 2) return 5;
              if (summary.failed_entries != 3 || summary.failed_bytes != 5100) return 9;
              if (heard.unresolved != std::map<uint32_t, int>{{1, EFBIG}}) return 6;
              if (!heard.orphans.empty() || !pool.dirty()) return 7;
              return testing::Test::HasFailure() ? 8 : 0;
            }),
            0);
  EXPECT_EQ(ReadFile(Path("a")), "small too");
  Reopen();
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.entries, 3u);
  EXPECT_EQ(ReadFile(Path("b")), std::string(100, 'c') + std::string(4900, 'b'));
  ExpectDone();
}

TEST_F(ReplayTest, AFullDiskKeepsTheEntries) {
  pool_.Close();
  const int result = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", files_.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
      return kSkip;
    }
    Reopen();
    MakeFile(0, "a");
    WriteFile(Path("full"), std::string(60 << 10, 'x'));
    log_->Add(Pieces(0, 0, std::string(40000, 'a')));
    EXPECT_FALSE(Run());
    EXPECT_EQ(summary_.failed_files, 1u);
    EXPECT_EQ(summary_.error, ENOSPC);
    EXPECT_TRUE(pool_.dirty());
    unlink(Path("full").c_str());
    EXPECT_TRUE(Run());
    EXPECT_TRUE(ReadFile(Path("a")) == std::string(40000, 'a'));
    return testing::Test::HasFailure() ? 1 : 0;
  });
  if (result == kSkip) GTEST_SKIP() << "cannot mount a small file system";
  EXPECT_EQ(result, 0);
}

// A part of a merged write is done when the disk is full: all of it is kept. Other files, and what
// comes later, are not concerned.
TEST_F(ReplayTest, AFullDiskWithinAMergedWrite) {
  pool_.Close();
  const int result = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", files_.path().c_str(), "tmpfs", 0, "size=128k") != 0) {
      return kSkip;
    }
    Reopen();
    const std::string bytes = test::Bytes(random_, 200 << 10);
    MakeFile(0, "a");
    MakeFile(1, "b", std::string(8192, '.'));
    log_->Add({1, 1, 0, "first"});
    for (uint64_t at = 0; at < bytes.size(); at += 4096) {
      log_->Add({0, 1, at, bytes.substr(at, 4096)});
      log_->Add({1, 1, 5 + at / 4096, "x"});
    }
    log_->Add({1, 1, 8000, "last"});
    std::string b = "first" + std::string(50, 'x') + std::string(8192 - 55, '.');
    b.replace(8000, 4, "last");
    EXPECT_FALSE(Run());
    EXPECT_EQ(heard_.unresolved, (std::map<uint32_t, int>{{0, ENOSPC}}));
    EXPECT_EQ(summary_.failed_entries, 50u);
    EXPECT_EQ(summary_.entries, 52u);
    EXPECT_EQ(ReadFile(Path("b")), b);
    EXPECT_GT(ReadFile(Path("a")).size(), 4096u) << "a part of it was written";
    if (mount("tmpfs", files_.path().c_str(), "tmpfs", MS_REMOUNT, "size=1m") != 0) return kSkip;
    EXPECT_TRUE(Run());
    EXPECT_EQ(summary_.entries, 50u);
    EXPECT_TRUE(ReadFile(Path("a")) == bytes);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  if (result == kSkip) GTEST_SKIP() << "cannot mount a small file system";
  EXPECT_EQ(result, 0);
}

TEST_F(ReplayTest, AFileThatMayNotBeWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  MakeFile(0, "a", "old");
  log_->Add({0, 1, 0, "new"});
  chmod(Path("a").c_str(), 0444);
  chmod(files_.path().c_str(), 0755);
  chmod(memory_.path().c_str(), 0777);
  ASSERT_EQ(chown(pool_path_.c_str(), 65534, 65534), 0);
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              if (setuid(65534) != 0) return kSkip;
              ScopedPool pool;
              if (!test::OpenPool(pool, pool_path_)) return 1;
              Summary summary;
              Heard heard;
              if (Replay(pool, {}, heard.observer(), &summary)) return 2;
              return heard.unresolved == std::map<uint32_t, int>{{0, EACCES}} ? 0 : 3;
            }),
            0);
  ASSERT_EQ(chown(pool_path_.c_str(), 0, 0), 0);
  Reopen();
  EXPECT_TRUE(Run());
  EXPECT_EQ(ReadFile(Path("a")), "new");
}

// ---------------------------------------------------------------------------------------------
// Many files.

class ManyFilesTest : public ReplayTest {
 protected:
  static constexpr uint32_t kFiles = 400;

  ManyFilesTest() : ReplayTest(Folder::kMemory) {}  // fsync of a thousand files takes its time

  void SetUp() override {
    Make(128 << 20);
    for (uint32_t slot = 0; slot < kFiles; ++slot) MakeFile(slot, std::to_string(slot));
    for (int round = 0; round < 3; ++round) {
      for (uint32_t slot = 0; slot < kFiles; ++slot) {
        log_->Add({slot, 1, static_cast<uint64_t>(round) * 4, std::to_string(1000 + slot)});
      }
    }
  }
  void ExpectContents() {
    for (uint32_t slot = 0; slot < kFiles; ++slot) {
      const std::string once = std::to_string(1000 + slot);
      std::string content;
      for (int round = 0; round < 3; ++round) content += once;
      EXPECT_EQ(ReadFile(Path(std::to_string(slot))), content);
    }
  }
};

TEST_F(ManyFilesTest, AllAreApplied) {
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.files, kFiles);
  EXPECT_EQ(summary_.entries, kFiles * 3);
  ExpectContents();
  ExpectDone();
}

TEST_F(ManyFilesTest, WithFewDescriptors) {
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              const rlimit limit = {20, 20};
              if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return kSkip;
              Reopen();
              EXPECT_TRUE(Run());
              EXPECT_EQ(summary_.files, kFiles);
              EXPECT_EQ(summary_.failed_files + summary_.unresolved_files, 0u);
              const int fd = open("/dev/null", O_RDONLY);
              EXPECT_LT(fd, 10) << "none is left open";
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
  ExpectContents();
}

TEST_F(ManyFilesTest, ADryRunWithFewDescriptors) {
  for (uint32_t slot = 0; slot < kFiles; ++slot) {
    pool_.view().file(slot)->name = pool::kNameNew;
    if (slot % 2 == 0) unlink(Path(std::to_string(slot)).c_str());
  }
  pool_.Close();
  EXPECT_EQ(InChild([&] {
              const rlimit limit = {20, 20};
              if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return kSkip;
              Reopen();
              EXPECT_FALSE(Run({.dry_run = true}));
              EXPECT_EQ(summary_.recreated_files, kFiles / 2);
              EXPECT_EQ(summary_.files, kFiles);
              for (uint32_t slot = 0; slot < kFiles; ++slot) {
                EXPECT_EQ(pool_.view().file(slot)->name, pool::kNameNew);
                EXPECT_EQ(pool_.view().file(slot)->successor, 0u);
              }
              EXPECT_TRUE(Run());
              EXPECT_EQ(summary_.recreated_files, kFiles / 2);
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
  ExpectContents();
}

}  // namespace
}  // namespace nvcache::recovery
