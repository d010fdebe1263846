// SPDX-License-Identifier: BSD-3-Clause
//
// These need a build that checks the order of locks (NVCACHE_CHECK_LOCKS), as those with a
// sanitizer do, which CI makes and runs. In any other they are skipped: there is nothing to test.
#include "src/sys/lock_rank.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>

#include "src/sys/kernel.h"
#include "src/sys/lock.h"

namespace nvcache::sys {
namespace {

class LockRankTest : public testing::Test {
 protected:
  void SetUp() override {
#ifndef NVCACHE_CHECK_LOCKS
    GTEST_SKIP() << "this build does not check the order of locks";
#endif
  }

  // body() breaks a rule: the process stops, and says what was waited for and what was held.
  template <typename Body>
  static void Dies(Body body, const char* wanted, const char* held) {
    const std::string text =
        std::string(wanted) + " is waited for, " + std::string(held) + " is held";
    EXPECT_EXIT(body(), testing::KilledBySignal(SIGKILL), text);
  }
  // No such descriptor: a sync that may be made fails at once.
  static constexpr int kNone = -1;

  Mutex<Rank::kTable> table_;
  RwLock<Rank::kFile> file_, other_file_;
  Mutex<Rank::kBatch> batch_;
  Mutex<Rank::kSync> sync_;
  Mutex<Rank::kPage> page_, other_page_;
  Mutex<Rank::kLane> lane_, other_lane_;
  Mutex<Rank::kArena> arena_;
};

TEST_F(LockRankTest, OutermostFirstAndInAnyOrderBack) {
  table_.Lock();
  file_.LockShared();
  page_.Lock();
  lane_.Lock();
  arena_.Lock();
  table_.Unlock();
  page_.Unlock();
  arena_.Unlock();
  file_.UnlockShared();
  lane_.Unlock();
  file_.Lock();
  file_.Unlock();
  table_.Lock();  // nothing is held any more
  table_.Unlock();
}

TEST_F(LockRankTest, AnEarlierRankIsNotWaitedFor) {
  page_.Lock();
  Dies([&] { table_.Lock(); }, "table", "page");
  Dies([&] { file_.Lock(); }, "file", "page");
  Dies([&] { file_.LockShared(); }, "file", "page");
  page_.Unlock();
  file_.LockShared();
  Dies([&] { table_.Lock(); }, "table", "file");
  file_.UnlockShared();
}

TEST_F(LockRankTest, NorIsASecondLockOfARank) {
  lane_.Lock();
  Dies([&] { other_lane_.Lock(); }, "lane", "lane");
  lane_.Unlock();
  file_.LockShared();
  Dies([&] { other_file_.Lock(); }, "file", "file");
  file_.UnlockShared();
}

TEST_F(LockRankTest, ButSeveralPagesAreAndSeveralFilesUnderTheTableLock) {
  page_.Lock();
  other_page_.Lock();
  other_page_.Unlock();
  page_.Unlock();
  table_.Lock();
  file_.Lock();
  other_file_.Lock();
  file_.Unlock();
  other_file_.Unlock();
  table_.Unlock();
}

TEST_F(LockRankTest, TryLockComesInAnyOrderAndCounts) {
  arena_.Lock();
  EXPECT_TRUE(lane_.TryLock());
  EXPECT_TRUE(file_.TryLock());
  EXPECT_TRUE(other_file_.TryLockShared());
  arena_.Unlock();
  Dies([&] { other_lane_.Lock(); }, "lane", "lane");
  EXPECT_FALSE(file_.TryLock());
  file_.Unlock();
  other_file_.UnlockShared();
  lane_.Unlock();
  other_lane_.Lock();  // what was not locked does not count
  other_lane_.Unlock();
}

TEST_F(LockRankTest, OneThreadsLocksAreNotAnothers) {
  page_.Lock();
  std::thread([&] {
    table_.Lock();
    table_.Unlock();
    EXPECT_EXIT(page_.Unlock(), testing::KilledBySignal(SIGKILL), "Held");
  }).join();
  page_.Unlock();
}

TEST_F(LockRankTest, OnlyItsOwnLockIsHeldOverASync) {
  batch_.Lock();
  EXPECT_EQ(Syncfs(kNone), -EBADF) << "by the cleanup thread";
  sync_.Lock();
  EXPECT_EQ(Fsync(kNone), -EBADF);
  EXPECT_EQ(Fdatasync(kNone), -EBADF);
  sync_.Unlock();
  batch_.Unlock();
  table_.Lock();
  Dies([] { Fsync(kNone); }, "a sync", "table");
  {
    const SyncsUnderLocks allowed;
    EXPECT_EQ(Fsync(kNone), -EBADF);
  }
  Dies([] { Syncfs(kNone); }, "a sync", "table");
  table_.Unlock();
  file_.LockShared();
  Dies([] { Fdatasync(kNone); }, "a sync", "file");
  Dies([] { SyncFileRange(kNone, 0, 0, 0); }, "a sync", "file");
  file_.UnlockShared();
}

TEST_F(LockRankTest, TheCleanupThreadIsNotWaitedForWithALockThatItNeeds) {
  table_.Lock();
  file_.Lock();
  CheckWait();
  file_.Unlock();
  table_.Unlock();
  page_.Lock();
  Dies([] { CheckWait(); }, "the cleanup thread", "page");
  page_.Unlock();
  sync_.Lock();
  Dies([] { CheckWait(); }, "the cleanup thread", "sync");
  sync_.Unlock();
}

// What a thread of the parent held, nobody unlocks in a child of fork.
TEST_F(LockRankTest, AResetLockIsFree) {
  std::thread([&] { file_.LockShared(); }).join();
  std::thread([&] { page_.Lock(); }).join();
  file_.Reset();
  page_.Reset();
  EXPECT_TRUE(file_.TryLock());
  EXPECT_TRUE(page_.TryLock());
  page_.Unlock();
  file_.Unlock();
}

}  // namespace
}  // namespace nvcache::sys
