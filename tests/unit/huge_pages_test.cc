// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/huge_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "src/sys/memory.h"
#include "tests/unit/host.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

using sys::kHugePage;

constexpr uint64_t kMib = 1u << 20;
constexpr uint64_t kAll = ~uint64_t{0};
constexpr int kPatienceMs = 30 * 1000;

// What the kernel says of a mapping, all of which is met first.
uint64_t HugeBytes(const pool::Pool& pool) {
  const uint8_t* const base = pool.view().base;
  const uint64_t size = pool.view().superblock->pool_size;
  for (uint64_t at = 0; at < size; at += 4096) pool::Peek(base[at]);
  std::ifstream maps("/proc/self/smaps");
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(base) << "-";
  std::string line;
  while (std::getline(maps, line) && line.rfind(begin.str(), 0) != 0) continue;
  while (std::getline(maps, line) && line.rfind("ShmemPmdMapped:", 0) != 0) continue;
  return line.empty() ? 0 : std::stoull(line.substr(line.find(':') + 1)) * 1024;
}

// Tried with memory of its own: what the pool has is the checkpointer's work.
bool MakesHuge() {
  const int fd = memfd_create("test", MFD_CLOEXEC);
  EXPECT_EQ(fallocate(fd, 0, 0, kHugePage), 0);  // as a pool: the kernel moves what is there
  void* const place = sys::HugePlace(kHugePage);
  const long at = sys::MapUnlocked(kHugePage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, place);
  const bool made = sys::MakeHuge(reinterpret_cast<void*>(at)) == 0;
  sys::UnmapUnlocked(place, kHugePage);
  close(fd);
  return made;
}

// A pool in memory, as its checkpointer sees it, and as one that uses it does.
class HugePagesTest : public testing::Test {
 protected:
  // False: the kernel puts nothing into huge pages.
  bool Open(uint64_t size) {
    test::MakePool(path_, size);
    pool::Problem problem;
    EXPECT_TRUE(user_.Open(path_.c_str(), pool::Mode::kShared, true, nullptr, &problem) &&
                user_.Join(&problem))
        << problem.text.c_str();
    EXPECT_TRUE(watched_.Open(path_.c_str(), pool::Mode::kInspect, true, nullptr, &problem));
    return MakesHuge();
  }
  ~HugePagesTest() override {
    huge_pages_.End();
    watched_.Close();
    if (user_.is_open()) user_.Leave();
    user_.Close();
  }
  void Begin(uint64_t most) { huge_pages_.Begin(test::UsualHost(), watched_, most); }
  void Take(uint32_t count) {
    for (const uint32_t end = taken_ + count; taken_ < end; ++taken_) {
      ASSERT_TRUE(user_.seats().TakeSegment(taken_, user_.seat()));
      user_.seats().NoteTaken(taken_);
    }
    huge_pages_.Look();
  }
  void Await(uint64_t bytes) const {
    for (int ms = 0; ms < kPatienceMs && HugeBytes(watched_) < bytes; ++ms) usleep(1000);
    EXPECT_EQ(HugeBytes(watched_), bytes);
  }
  void FreeAll() { user_.seats().FreeAllOf(user_.seat()); }

  const test::Folder folder_{test::Folder::kMemory};
  const std::string path_ = folder_ / "pool";
  pool::Pool user_, watched_;
  HugePages huge_pages_;
  uint32_t taken_ = 0;
};

#define NVCACHE_OPEN_OR_SKIP(size) \
  if (!Open(size)) GTEST_SKIP() << "this kernel has no MADV_COLLAPSE"

TEST_F(HugePagesTest, TheBeginningIsHugeAtOnceAndThenWhatIsUsedAndEightTimesAsMuch) {
  NVCACHE_OPEN_OR_SKIP(64 * kMib);
  ASSERT_EQ(HugeBytes(watched_), 0u);
  Begin(kAll);
  Await(kHugePage);
  Take(16);  // 1 MiB
  Await(10 * kMib);
  EXPECT_EQ(HugeBytes(user_), 10 * kMib) << "for all who have it mapped";
  FreeAll();
  Take(1);
  EXPECT_EQ(HugeBytes(watched_), 10 * kMib) << "it stays";
}

TEST_F(HugePagesTest, NoMoreThanTheBound) {
  NVCACHE_OPEN_OR_SKIP(32 * kMib);
  Take(100);
  Begin(5 * kMib);
  Await(4 * kMib);
  Take(100);
  huge_pages_.End();
  EXPECT_EQ(HugeBytes(watched_), 4 * kMib);
}

TEST_F(HugePagesTest, AllButWhatIsLessThanOne) {
  NVCACHE_OPEN_OR_SKIP(7 * kMib);
  Take(50);
  Begin(kAll);
  Await(6 * kMib);
}

TEST_F(HugePagesTest, NoneOfAPoolThatIsSmaller) {
  Open(kMib);
  Begin(kAll);
  Take(4);
  huge_pages_.End();
  EXPECT_EQ(HugeBytes(watched_), 0u);
}

TEST_F(HugePagesTest, NoneWhereThatIsSaid) {
  test::MakePool(path_, 16 * kMib);
  pool::Problem problem;
  ASSERT_TRUE(watched_.Open(path_.c_str(), pool::Mode::kInspect, true, nullptr, &problem));
  Begin(0);
  huge_pages_.Look();
  EXPECT_EQ(HugeBytes(watched_), 0u);
}

// The kernel moves no page that a pipe has; later it does.
TEST_F(HugePagesTest, WhatIsRefusedOnceIsTriedAgain) {
  NVCACHE_OPEN_OR_SKIP(8 * kMib);
  Take(100);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  off64_t offset = 5 * kMib;
  user_.view().base[offset] = 1;  // else there is no page yet
  ASSERT_EQ(splice(watched_.fd(), &offset, ends[1], nullptr, 4096, 0), 4096);
  Begin(kAll);
  while (HugeBytes(watched_) < 4 * kMib) usleep(1000);
  usleep(100 * 1000);
  EXPECT_EQ(HugeBytes(watched_), 4 * kMib);
  close(ends[0]);
  close(ends[1]);
  Await(8 * kMib);
}

// They move to other memory while somebody writes.
TEST_F(HugePagesTest, NoStoreIsLost) {
  NVCACHE_OPEN_OR_SKIP(16 * kMib);
  Take(100);
  constexpr uint64_t kWords = 8 * kMib / sizeof(uint64_t), kStep = 509;
  auto* const words = reinterpret_cast<uint64_t*>(user_.view().unit(0));
  std::atomic<bool> moved{false};
  uint64_t rounds = 0;
  std::thread writer([&] {
    do {
      ++rounds;
      for (uint64_t i = 0; i < kWords; i += kStep) std::atomic_ref(words[i]).fetch_add(1);
    } while (!moved.load());
  });
  Begin(kAll);
  Await(16 * kMib);
  moved.store(true);
  writer.join();
  for (uint64_t i = 0; i < kWords; i += kStep) ASSERT_EQ(words[i], rounds) << i;
}

}  // namespace
}  // namespace nvcache::vfs
