// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace nvcache::sys {
namespace {

using std::chrono::milliseconds;

void Together(int threads, const std::function<void(int)>& body) {
  std::vector<std::thread> running;
  running.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) running.emplace_back(body, i);
  for (std::thread& thread : running) thread.join();
}

TEST(MutexTest, OneAtATime) {
  Mutex<Rank::kTable> mutex;
  int64_t counter = 0;  // not atomic: the mutex has to do it
  Together(4, [&](int) {
    for (int i = 0; i < 50000; ++i) {
      Lock lock(mutex);
      ++counter;
    }
  });
  EXPECT_EQ(counter, 200000);
  EXPECT_FALSE(mutex.IsLocked());
}

TEST(MutexTest, TryLock) {
  Mutex<Rank::kTable> mutex;
  ASSERT_TRUE(mutex.TryLock());
  EXPECT_TRUE(mutex.IsLocked());
  EXPECT_FALSE(mutex.TryLock());
  mutex.Unlock();
  EXPECT_TRUE(mutex.TryLock());
  mutex.Unlock();
}

TEST(MutexTest, ASleeperWakes) {
  Mutex<Rank::kTable> mutex;
  mutex.Lock();
  std::thread sleeper([&] {
    mutex.Lock();
    mutex.Unlock();
  });
  std::this_thread::sleep_for(milliseconds(50));
  mutex.Unlock();
  sleeper.join();
}

TEST(RwLockTest, ReadersTogetherWritersAlone) {
  RwLock<Rank::kFile> lock;
  ASSERT_TRUE(lock.TryLockShared());
  ASSERT_TRUE(lock.TryLockShared());
  EXPECT_FALSE(lock.TryLock());
  EXPECT_FALSE(lock.IsLockedExclusive());
  lock.UnlockShared();
  lock.UnlockShared();
  ASSERT_TRUE(lock.TryLock());
  EXPECT_TRUE(lock.IsLockedExclusive());
  EXPECT_FALSE(lock.TryLockShared());
  EXPECT_FALSE(lock.TryLock());
  lock.Unlock();
  EXPECT_TRUE(lock.TryLockShared());
  lock.UnlockShared();
}

TEST(RwLockTest, NoReaderSeesHalfAWrite) {
  RwLock<Rank::kFile> lock;
  int64_t a = 0, b = 0;
  Together(4, [&](int me) {
    for (int i = 0; i < 20000; ++i) {
      if (me < 2) {
        lock.Lock();
        ++a;
        ++b;
        lock.Unlock();
      } else {
        lock.LockShared();
        ASSERT_EQ(a, b);
        lock.UnlockShared();
      }
    }
  });
  EXPECT_EQ(a, 40000);
}

TEST(RwLockTest, AWaitingWriterIsNotPassedByReaders) {
  RwLock<Rank::kFile> lock;
  lock.LockShared();
  std::thread writer([&] {
    lock.Lock();
    lock.Unlock();
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool kept_out = false;
  while (!kept_out && std::chrono::steady_clock::now() < end) {
    kept_out = !lock.TryLockShared();
    if (!kept_out) lock.UnlockShared();
  }
  EXPECT_TRUE(kept_out);
  lock.UnlockShared();
  writer.join();
  EXPECT_TRUE(lock.TryLockShared());
  lock.UnlockShared();
}

TEST(EventTest, WakesTheWaiter) {
  Event event;
  std::atomic<bool> done{false};
  const uint32_t seen = event.Value();
  std::thread waiter([&] {
    while (!done.load()) event.Wait(seen);
  });
  std::this_thread::sleep_for(milliseconds(20));
  done.store(true);
  event.Signal();
  waiter.join();
  EXPECT_NE(event.Value(), seen);
}

TEST(EventTest, ASignalBeforeTheWaitIsNotLost) {
  Event event;
  const uint32_t seen = event.Value();
  event.Signal();
  event.Wait(seen);  // returns at once
}

TEST(EventTest, TimesOut) {
  Event event;
  const auto begin = std::chrono::steady_clock::now();
  event.Wait(event.Value(), 20000000);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(15));
}

TEST(EventTest, PingPong) {
  Event there, back;
  std::atomic<int> ball{0};
  std::thread other([&] {
    for (int i = 0; i < 2000; ++i) {
      for (uint32_t seen = there.Value(); ball.load() != 2 * i + 1; seen = there.Value()) {
        there.Wait(seen, 1000000000);
      }
      ball.store(2 * i + 2);
      back.Signal();
    }
  });
  for (int i = 0; i < 2000; ++i) {
    ball.store(2 * i + 1);
    there.Signal();
    for (uint32_t seen = back.Value(); ball.load() != 2 * i + 2; seen = back.Value()) {
      back.Wait(seen, 1000000000);
    }
  }
  other.join();
  EXPECT_EQ(ball.load(), 4000);
}

}  // namespace
}  // namespace nvcache::sys
