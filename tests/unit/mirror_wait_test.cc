// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/mirror_wait.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <numeric>
#include <thread>

#include "src/sys/deferral.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

using Step = MirrorWait::Step;
using pool::Lsn;

constexpr uint32_t kAll[] = {pool::kMirrorNone,     pool::kMirrorReal,    pool::kMirrorJoining,
                             pool::kMirrorMirrored, pool::kMirrorLeaving, pool::kMirrorFailing,
                             pool::kMirrorFenced};

class MirrorWaitTest : public testing::Test {
 protected:
  MirrorWaitTest() {
    shared().next = 100;
    words_.SetMirrored(50);
  }
  pool::SharedState& shared() {
    return *reinterpret_cast<pool::SharedState*>(memory_.view().base + pool::kSharedOffset);
  }
  Lsn next() { return shared().next; }

  test::MemoryPool memory_;
  pool::MirrorWords words_{memory_.view()};
};

TEST_F(MirrorWaitTest, WithoutAMirrorItSleeps) {
  for (const uint32_t state : {pool::kMirrorNone, pool::kMirrorLeaving}) {
    words_.SetState(state);
    MirrorWait wait(words_);
    words_.SetMirrored(1000);
    EXPECT_EQ(wait.Next(), Step::kSleep);
    EXPECT_EQ(wait.Next(), Step::kSleep);
  }
  EXPECT_EQ(next(), 100u);
}

// ---------------------------------------------------------------------------------------------
// Commit at output.

TEST_F(MirrorWaitTest, ASyncIsToldAndTheImagesLackIt) {
  EXPECT_FALSE(words_.IsTold());
  EXPECT_TRUE(words_.Tell(1000, 10));
  EXPECT_EQ(next(), 101u) << "it has drawn its LSN";
  EXPECT_EQ(words_.told(), 101u);
  EXPECT_TRUE(words_.IsTold());
  words_.SetMirrored(100);
  EXPECT_TRUE(words_.IsTold()) << "the round may have begun before";
  words_.SetMirrored(101);
  EXPECT_FALSE(words_.IsTold());
  EXPECT_EQ(words_.outputs().told, 1u);
}

TEST_F(MirrorWaitTest, TheOldestThatWasToldSaysHowFarAheadSyncsAre) {
  EXPECT_TRUE(words_.Tell(1000, 500));
  EXPECT_TRUE(words_.Tell(1499, 500));
  EXPECT_EQ(words_.told_since(), 1000u) << "the oldest counts";
  EXPECT_FALSE(words_.Tell(1500, 500));
  EXPECT_EQ(words_.outputs().told, 2u);
  words_.SetMirrored(next());
  EXPECT_TRUE(words_.Tell(9000, 500)) << "nothing is ahead";
  EXPECT_EQ(words_.told_since(), 9000u);
  words_.SetMirrored(words_.told() - 1);
  EXPECT_FALSE(words_.Tell(9500, 500));
  EXPECT_TRUE(words_.Tell(8000, 500)) << "a clock of another thread is behind";
}

TEST_F(MirrorWaitTest, TheCheckpointerIsWokenOnce) {
  words_.SleepUntilTold();
  EXPECT_EQ(shared().bell, 0u);
  EXPECT_TRUE(words_.Tell(1, 10));
  EXPECT_TRUE(words_.Tell(2, 10));
  EXPECT_EQ(shared().bell, 1u);
}

TEST_F(MirrorWaitTest, AnOutputWaitsByTheState) {
  const auto expected = [](uint32_t state) {
    switch (state) {
      case pool::kMirrorMirrored:
      case pool::kMirrorLeaving:
        return Step::kSleep;
      case pool::kMirrorFailing:
      case pool::kMirrorFenced:
        return Step::kFail;
      default:
        return Step::kDone;  // the disk has what was told
    }
  };
  EXPECT_TRUE(words_.Tell(1, 10));
  for (const uint32_t state : kAll) {
    words_.SetState(state);
    EXPECT_EQ(OutputWait(words_).Next(), expected(state)) << state;
  }
}

TEST_F(MirrorWaitTest, AnOutputWaitsForWhatWasToldBeforeIt) {
  words_.SetState(pool::kMirrorMirrored);
  EXPECT_TRUE(words_.Tell(1, 10));
  OutputWait wait(words_);
  EXPECT_EQ(wait.Next(), Step::kSleep);
  const uint32_t bell = words_.bell();
  EXPECT_EQ(wait.Next(), Step::kSleep);
  EXPECT_EQ(words_.bell(), bell) << "it rings once";
  EXPECT_TRUE(words_.Tell(2, 10));
  words_.SetMirrored(101);
  EXPECT_EQ(wait.Next(), Step::kDone);
  EXPECT_TRUE(words_.IsTold());
  OutputWait next(words_);
  EXPECT_EQ(next.Next(), Step::kSleep);
  words_.SetState(pool::kMirrorReal);
  EXPECT_EQ(next.Next(), Step::kDone);
}

// Somebody has found the pool unused: what was told is in the files, and LSNs may go back.
TEST_F(MirrorWaitTest, AnOutputDoesNotWaitForWordsThatWereCleared) {
  words_.SetState(pool::kMirrorMirrored);
  EXPECT_TRUE(words_.Tell(1, 10));
  OutputWait wait(words_);
  shared().told = shared().mirrored = 0;
  EXPECT_EQ(wait.Next(), Step::kDone);
}

TEST_F(MirrorWaitTest, OutputsAreCountedByTheirKind) {
  EXPECT_TRUE(words_.Tell(1000, 1000000));
  words_.CountOutput(pool::Output::kPipe, 8000, 1500);
  words_.CountOutput(pool::Output::kPipe, 7000, 500);
  words_.CountOutput(pool::Output::kExit, 5000, 1);
  const pool::OutputWaits outputs = words_.outputs();
  constexpr auto kPipe = static_cast<uint32_t>(pool::Output::kPipe);
  constexpr auto kExit = static_cast<uint32_t>(pool::Output::kExit);
  EXPECT_EQ(outputs.counts[kPipe], 2u);
  EXPECT_EQ(outputs.waited[kPipe], 3u);
  EXPECT_EQ(outputs.counts[kExit], 1u);
  EXPECT_EQ(outputs.longest, 7u);
  EXPECT_EQ(std::accumulate(std::begin(outputs.counts), std::end(outputs.counts), uint64_t{0}), 3u);
}

TEST_F(MirrorWaitTest, AWaitIsCountedByItsLength) {
  struct {
    uint64_t ns;
    uint32_t bucket;
  } const kCases[] = {{0, 0},
                      {1, 0},
                      {1000, 0},
                      {1001, 1},
                      {2000, 1},
                      {2001, 2},
                      {4000, 2},
                      {4001, 3},
                      {1024'000, 10},
                      {1024'001, 11},
                      {uint64_t{1000} << 28, 28},
                      {(uint64_t{1000} << 28) + 1, 29},
                      {uint64_t{1} << 62, 29}};
  pool::MirrorWaits wanted = {};
  for (const auto& [ns, bucket] : kCases) {
    SCOPED_TRACE(ns);
    words_.CountWait(ns, false);
    ++wanted.counts[bucket];
    wanted.waited += (ns + 999) / 1000;
    const pool::MirrorWaits waits = words_.waits();
    EXPECT_TRUE(std::equal(waits.counts, std::end(waits.counts), wanted.counts));
    EXPECT_EQ(waits.waited, wanted.waited);
    EXPECT_EQ(waits.failed, 0u);
  }
  words_.CountWait(1000, true);
  EXPECT_EQ(words_.waits().failed, 1u);
  EXPECT_EQ(words_.waits().waited, wanted.waited);
}

TEST_F(MirrorWaitTest, EachBucketEndsWhereTheNextBegins) {
  for (uint32_t i = 0; i + 1 < pool::kMirrorBuckets; ++i) {
    EXPECT_EQ(pool::MirrorBucket(pool::MirrorBucketEnd(i)), i);
    EXPECT_EQ(pool::MirrorBucket(pool::MirrorBucketEnd(i) + 1), i + 1);
  }
}

TEST_F(MirrorWaitTest, ItFails) {
  for (const uint32_t state : {pool::kMirrorFailing, pool::kMirrorFenced, 7u, ~0u}) {
    words_.SetState(state);
    EXPECT_EQ(MirrorWait(words_).Next(), Step::kFail);
  }
}

// The position has to be above what was drawn, not at it.
TEST_F(MirrorWaitTest, MirroredIsDoneAboveWhatWasDrawn) {
  words_.SetState(pool::kMirrorMirrored);
  words_.SetMirrored(100);
  const uint32_t bell = words_.bell();
  MirrorWait wait(words_);
  EXPECT_EQ(wait.Next(), Step::kSleep);
  EXPECT_EQ(next(), 101u);
  EXPECT_NE(words_.bell(), bell);
  EXPECT_EQ(wait.Next(), Step::kSleep);
  EXPECT_EQ(next(), 101u) << "once";
  words_.SetMirrored(101);
  EXPECT_EQ(wait.Next(), Step::kDone);
}

// As when everybody has left the pool, and somebody clears what they shared.
TEST_F(MirrorWaitTest, LsnsThatGoBackAreDrawnAgain) {
  words_.SetState(pool::kMirrorMirrored);
  MirrorWait wait(words_);
  EXPECT_EQ(wait.Next(), Step::kSleep);
  shared().next = 60;
  EXPECT_EQ(wait.Next(), Step::kSleep);
  EXPECT_EQ(next(), 61u);
  words_.SetMirrored(61);
  EXPECT_EQ(wait.Next(), Step::kDone);
}

TEST_F(MirrorWaitTest, APositionCountsOnlyWhileTheStateSaysSo) {
  for (const uint32_t state : kAll) {
    words_.SetState(pool::kMirrorMirrored);
    MirrorWait wait(words_);
    EXPECT_EQ(wait.Next(), Step::kSleep);
    words_.SetState(state);
    words_.SetMirrored(next() + 10);
    EXPECT_EQ(wait.Next() == Step::kDone, state == pool::kMirrorMirrored) << state;
    shared().next += 20;
  }
}

TEST_F(MirrorWaitTest, RealIsASyncAndALook) {
  for (const uint32_t state : kAll) {
    words_.SetState(pool::kMirrorReal);
    MirrorWait wait(words_);
    EXPECT_EQ(wait.Next(), Step::kSync);
    EXPECT_EQ(wait.Next(), Step::kSync) << "it was not done";
    words_.SetState(state);
    wait.Synced();
    EXPECT_EQ(wait.Next() == Step::kDone, state == pool::kMirrorReal) << state;
  }
}

// The LSN is drawn when the sync is over, and each of the two is needed.
TEST_F(MirrorWaitTest, JoiningIsBoth) {
  for (const uint32_t last : {pool::kMirrorJoining, pool::kMirrorMirrored}) {
    words_.SetState(pool::kMirrorJoining);
    MirrorWait wait(words_);
    EXPECT_EQ(wait.Next(), Step::kSync);
    words_.SetMirrored(next() + 1);
    const Lsn before = next();
    wait.Synced();
    EXPECT_EQ(next(), before);
    shared().next += 5;
    EXPECT_EQ(wait.Next(), Step::kSleep);
    EXPECT_EQ(next(), before + 6);
    words_.SetState(last);
    EXPECT_EQ(wait.Next(), Step::kSleep);
    words_.SetMirrored(next());
    EXPECT_EQ(wait.Next(), Step::kDone);
  }
}

// What was drawn while the images counted alone is not what a sync is followed by.
TEST_F(MirrorWaitTest, EachStateBeginsAnew) {
  words_.SetState(pool::kMirrorMirrored);
  MirrorWait wait(words_);
  EXPECT_EQ(wait.Next(), Step::kSleep);
  words_.SetState(pool::kMirrorJoining);
  words_.SetMirrored(next());
  EXPECT_EQ(wait.Next(), Step::kSync);
  wait.Synced();
  EXPECT_EQ(wait.Next(), Step::kSleep);
  words_.SetState(pool::kMirrorReal);
  words_.SetMirrored(next());
  EXPECT_EQ(wait.Next(), Step::kSync);
  wait.Synced();
  words_.SetState(pool::kMirrorJoining);
  EXPECT_EQ(wait.Next(), Step::kSync) << "that of the other state";
}

TEST_F(MirrorWaitTest, ASyncThatFailsEndsIt) {
  for (const uint32_t state : {pool::kMirrorReal, pool::kMirrorJoining}) {
    words_.SetState(state);
    EXPECT_EQ(AwaitMirror(
                  words_, [] { return -ENOSPC; }, [] { return true; }),
              -ENOSPC);
  }
  words_.SetState(pool::kMirrorFenced);
  EXPECT_EQ(AwaitMirror(
                words_, [] { return 0; }, [] { return true; }),
            -EIO);
}

TEST_F(MirrorWaitTest, ThePositionNeverGoesDown) {
  words_.SetMirrored(70);
  const uint32_t turn = words_.turn();
  words_.SetMirrored(60);
  words_.SetMirrored(70);
  EXPECT_EQ(words_.mirrored(), 70u);
  EXPECT_EQ(words_.turn(), turn);
  words_.SetMirrored(71);
  EXPECT_NE(words_.turn(), turn);
}

// A mirror in a thread: it follows, and changes its state; calls return only with what the state
// asks for.
TEST_F(MirrorWaitTest, AMirrorThatChangesItsMind) {
  constexpr uint32_t kSteady[] = {pool::kMirrorNone, pool::kMirrorReal, pool::kMirrorJoining,
                                  pool::kMirrorMirrored, pool::kMirrorLeaving};
  constexpr int kCalls = 300;
  std::atomic<int> over{0};
  std::atomic<int> wrong{0};
  const auto call = [&] {
    for (int i = 0; i < kCalls; ++i) {
      const Lsn stored = words_.Draw();
      bool synced = false;
      const long result = AwaitMirror(
          words_,
          [&] {
            synced = true;
            return 0;
          },
          [] { return true; });
      if (result != 0 || (!synced && words_.mirrored() <= stored)) wrong.fetch_add(1);
    }
    over.fetch_add(1);
  };
  std::thread first(call), second(call);
  std::mt19937_64 random(test::Seed());
  while (over < 2) {
    const uint32_t bell = words_.bell();
    if (random() % 4 == 0) words_.SetState(kSteady[random() % 5]);
    // What it read before is in the images now.
    const uint32_t state = words_.state();
    if (state == pool::kMirrorJoining || state == pool::kMirrorMirrored) {
      words_.SetMirrored(std::atomic_ref(shared().next).load());
    }
    words_.AwaitBell(bell, 200'000);
  }
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
}

// A sleeper that nobody wakes but the turn.
TEST_F(MirrorWaitTest, AChangeEndsASleepAtOnce) {
  words_.SetState(pool::kMirrorNone);
  MirrorWait wait(words_);
  ASSERT_EQ(wait.Next(), Step::kSleep);
  words_.SetState(pool::kMirrorFailing);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) wait.Sleep();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

// A position that was reached when the images counted no more: whenever that happens.
TEST_F(MirrorWaitTest, APositionThatComesTooLateIsNone) {
  constexpr int kTimes = 3000;
  std::atomic<int> started{0}, ended{0};
  std::thread mirror([&] {
    for (int i = 1; i <= kTimes; ++i) {
      while (started < i) std::this_thread::yield();
      for (int spin = i % 300; spin > 0; --spin) started.load();
      words_.SetState(pool::kMirrorFailing);
      words_.SetMirrored(std::atomic_ref(shared().next).load() + 1);
      ended = i;
    }
  });
  for (int i = 1; i <= kTimes; ++i) {
    words_.SetState(pool::kMirrorMirrored);
    std::atomic_ref(shared().next).fetch_add(2);
    started = i;
    EXPECT_EQ(AwaitMirror(
                  words_, [] { return 0; }, [] { return true; }),
              -EIO);
    while (ended < i) std::this_thread::yield();
  }
  mirror.join();
}

TEST_F(MirrorWaitTest, NobodySleepsWhileASignalWaits) {
  words_.SetState(pool::kMirrorNone);
  MirrorWait wait(words_);
  ASSERT_EQ(wait.Next(), Step::kSleep);
  sys::deferral.waits = 1;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) wait.Sleep();
  sys::deferral.waits = 0;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

// So does a signal that waits, and the handler runs between two steps.
TEST_F(MirrorWaitTest, ASignalIsLetIn) {
  words_.SetState(pool::kMirrorLeaving);
  std::atomic<int> let_in{0};
  const uint32_t turn = words_.turn();
  sys::deferral.waits = 1;
  const long result = AwaitMirror(
      words_, [] { return 0; },
      [&] {
        sys::deferral.waits = 0;
        if (++let_in == 1) words_.SetState(pool::kMirrorFailing);
        return true;
      });
  EXPECT_EQ(result, -EIO);
  EXPECT_EQ(let_in, 1);
  EXPECT_NE(words_.turn(), turn);
}

}  // namespace
}  // namespace nvcache::vfs
