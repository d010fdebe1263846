// SPDX-License-Identifier: BSD-3-Clause
//
// Threads of two users append to a small pool as fast as they can, and cleaners free segments, so
// that these are taken again all the time, while a cursor reads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mirror/pool/faults.h"
#include "mirror/pool/source.h"
#include "tests/kit/random.h"
#include "tests/mirror/pool/image.h"
#include "tests/unit/log_user.h"

namespace nvcache::mirror {
namespace {

using nvlog::Lsn;

constexpr uint64_t kPage = pool::kPageSize;
constexpr int kThreads = 3;
// For a mutant to be found: most often that takes ten seconds, and longer beside other work.
constexpr std::chrono::seconds kPatience{240};

// The group `n` of thread `t`, which has drawn number `turn` of all threads if it is not 0. The
// numbers are drawn under a lock that is held until the group is committed.
struct Label {
  uint64_t t, n, turn, check;
  static Label Of(uint64_t t, uint64_t n, uint64_t turn) {
    return {t, n, turn, kit::Mix(t ^ n << 8 ^ turn << 40)};
  }
};

struct Turn {
  Lsn lsn;
  uint32_t log;  // the first one of its seat
};

class ThreadsTest : public testing::Test {
 protected:
  ThreadsTest() {
    pmem::Initialize();
    test::MakePool(path_);
    for (test::LogUser& user : users_) {
      test::Use(user.pool, path_);
      EXPECT_TRUE(user.log.Open(&user.pool));
    }
    test::OpenPool(looked_at_, path_, pool::Mode::kInspect);
    for (auto& thread : lsns_) thread.reserve(size_t{1} << 22);
    turns_.reserve(size_t{1} << 22);
  }
  ~ThreadsTest() override {
    g_faults = {};
    for (test::LogUser& user : users_) user.log.Close();
  }

  // False: there was no room.
  bool Append(int t, nvlog::FileTag& tag, kit::Random& random) {
    test::LogUser& user = users_[t % 2];
    pool::FileRecord record =
        test::RecordOfNone("/t" + std::to_string(t), static_cast<uint64_t>(t) + 1);
    std::unique_lock<std::mutex> turns(turn_lock_, std::defer_lock);
    if (random.OneIn(4)) turns.lock();
    const uint64_t turn = turns.owns_lock() ? turn_ + 1 : 0;
    const uint64_t n = count_[t].load(std::memory_order_relaxed) + 1;
    const uint64_t pages = random.OneIn(20) ? user.log.max_group_pages() : 1;
    const uint64_t length = pages > 1 ? pages * kPage : random.OneIn(2) ? kPage : sizeof(Label);
    std::string bytes(length, '\0');
    const Label label = Label::Of(static_cast<uint64_t>(t), n, turn);
    for (size_t at = 0; at < length; at += sizeof(label))
      std::memcpy(&bytes[at], &label, sizeof(label));
    nvlog::GroupWriter group(user.log, tag);
    if (group.BeginData(0, length, &record) != nvlog::Outcome::kDone) return false;
    for (uint64_t at = 0; at < length; at += kPage) {
      group.AddPage(reinterpret_cast<const uint8_t*>(&bytes[at]),
                    static_cast<uint32_t>(std::min(kPage, length - at)), nullptr, nvlog::kNoPlace);
    }
    const Lsn lsn = group.Commit();
    lsns_[t].push_back(lsn);
    count_[t].store(n, std::memory_order_release);
    if (turn == 0) return true;
    turn_ = turn;
    turns_.push_back({lsn, user.pool.seat() * pool::kLogsOfSeat});
    turn_count_.store(turn, std::memory_order_release);
    return true;
  }
  void Writer(int t) {
    kit::Random random(test::Seed() * 100 + static_cast<uint64_t>(t));
    nvlog::FileTag tag;
    tag.number = static_cast<uint32_t>(t) + 1;
    while (!stop_) {
      if (!Append(t, tag, random)) std::this_thread::yield();
      if (random.OneIn(50)) std::this_thread::yield();
    }
  }
  void CleanerOf(test::LogUser& user) {
    while (!stop_) {
      user.Clean();
      user.log.GiveBack();
      std::this_thread::yield();
    }
  }

  // `before`: how many groups of each thread were committed before the round. If it is null, the
  // batch is in the middle of one.
  std::string Check(Image* image, const uint64_t* before) {
    std::string problem;
    std::vector<Lsn> checkpoints;
    const std::vector<Seen> seen = Walk(image->view(), &problem, &checkpoints);
    if (!problem.empty()) return problem;
    std::map<uint64_t, bool> there[kThreads], turns;
    for (const Seen& group : seen) {
      if (group.parts.empty()) continue;
      Label label = {};
      for (const Seen::Part& part : group.parts) {
        for (size_t at = 0; at < part.bytes.size(); at += sizeof(label)) {
          Label next;
          std::memcpy(&next, &part.bytes[at], sizeof(next));
          if (at == 0 && label.check == 0) label = next;
          if (std::memcmp(&label, &next, sizeof(next)) != 0) return "a torn group";
        }
      }
      if (label.t >= kThreads || label.check != Label::Of(label.t, label.n, label.turn).check) {
        return "a group that nobody has written";
      }
      there[label.t][label.n] = true;
      if (label.turn != 0) turns[label.turn] = true;
    }
    for (int t = 0; t < kThreads; ++t) {
      const uint64_t last = std::max(there[t].empty() ? 0 : there[t].rbegin()->first,
                                     before != nullptr ? before[t] : 0);
      const Lsn checkpoint = checkpoints[users_[t % 2].pool.seat() * pool::kLogsOfSeat];
      while (count_[t].load(std::memory_order_acquire) < last) std::this_thread::yield();
      for (uint64_t n = last; n > 0 && last - n < 3000; --n) {
        const bool below = lsns_[t][n - 1] < checkpoint;
        if (below) break;
        if (!there[t].contains(n)) {
          return "thread " + std::to_string(t) + " lacks " + std::to_string(n) + " of " +
                 std::to_string(last);
        }
      }
    }
    // Each turn after the one before, whichever thread had that.
    const uint64_t known = turn_count_.load(std::memory_order_acquire);
    const uint64_t newest = turns.empty() ? 0 : std::min(turns.rbegin()->first, known);
    for (uint64_t n = newest; n > 0 && newest - n < 3000; --n) {
      const Turn& turn = turns_[n - 1];
      if (!turns.contains(n) && turn.lsn >= checkpoints[turn.log]) {
        return "turn " + std::to_string(n) + " is missing, and " + std::to_string(newest) +
               " is there";
      }
    }
    return "";
  }
  std::string Run(std::chrono::milliseconds time) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([this, t] { Writer(t); });
    for (test::LogUser& user : users_) threads.emplace_back([&] { CleanerOf(user); });
    kit::Random random(test::Seed());
    g_faults.at = [&](Point) {
      if (random.OneIn(200)) std::this_thread::yield();
    };
    const PoolSource source(looked_at_);
    std::unique_ptr<Cursor> cursor = source.NewCursor();
    auto image = std::make_unique<Image>(source.pool_size());
    std::string problem;
    const auto end = std::chrono::steady_clock::now() + time;
    uint64_t before[kThreads];
    for (bool whole = true; problem.empty() && std::chrono::steady_clock::now() < end;) {
      if (whole && random.OneIn(200)) {
        cursor = source.NewCursor();
        image = std::make_unique<Image>(source.pool_size());
      }
      if (whole) {
        for (int t = 0; t < kThreads; ++t) before[t] = count_[t].load(std::memory_order_acquire);
      }
      Batch batch;
      if (!cursor->Read(&batch)) continue;
      ++batches_;
      problem = image->Apply(batch);
      whole = batch.whole;
      if (problem.empty()) problem = Check(image.get(), whole ? before : nullptr);
    }
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    return problem;
  }

  test::Folder folder_{test::Folder::kMemory};
  const std::string path_ = folder_ / "pool";
  test::LogUser users_[2];
  test::ScopedPool looked_at_;
  std::atomic<bool> stop_{false};
  std::mutex turn_lock_;
  uint64_t turn_ = 0;
  std::vector<Turn> turns_;  // of all: under the lock; what is there does not move
  std::atomic<uint64_t> turn_count_{0};
  // Of each thread: its groups. What lies below count_ is there, and does not move.
  std::vector<Lsn> lsns_[kThreads];
  std::atomic<uint64_t> count_[kThreads] = {};
  uint64_t batches_ = 0;
};

TEST_F(ThreadsTest, ImagesAreClosed) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  EXPECT_EQ(Run(std::chrono::seconds(3)), "");
  std::cout << batches_ << " batches, " << lsns_[0].size() << " groups of one thread\n";
}

TEST_F(ThreadsTest, SoTheyAreInTheMiddleOfARound) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  g_faults.soft_bytes = 16 << 10;
  EXPECT_EQ(Run(std::chrono::seconds(3)), "");
}

TEST_F(ThreadsTest, ALateBoundIsFound) {
  g_faults.mutant = Mutant::kNextLast;
  EXPECT_NE(Run(kPatience), "");
}

TEST_F(ThreadsTest, BatchesOutOfOrderAreFound) {
  g_faults.mutant = Mutant::kAnyOrder;
  g_faults.soft_bytes = 16 << 10;
  EXPECT_NE(Run(kPatience), "");
}

}  // namespace
}  // namespace nvcache::mirror
