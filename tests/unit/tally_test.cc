// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/tally.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "src/lease/format.h"
#include "src/lease/leases.h"
#include "src/sys/kernel.h"
#include "tests/unit/member.h"
#include "tests/unit/support.h"

namespace nvcache::lease {
namespace {

using test::Member;
using test::Other;

constexpr uint64_t kPool = 77, kOtherPool = 78;
constexpr uint64_t kTag = 0x123456789abcdef0;
constexpr uint64_t kOtherTag = 0x923456789abcdef0;  // they have one tally
static_assert(kTag % kTallies == kOtherTag % kTallies);
constexpr uint64_t kDevice = 0x801, kInode = 12345, kBirth = 1700000000123456789;

uint64_t TagOfFile(uint64_t inode) { return TagOf(kDevice, inode, kBirth, S_IFREG); }

class TallyTest : public testing::Test {
 protected:
  TallyTest() { EXPECT_TRUE(own_.Open(folder_.path())); }

  // Of this process, which has the table.
  Tally& Tagged() {
    EXPECT_TRUE(tallies_.Join(kPool));
    Tally& tally = tallies_.At(kTag);
    EXPECT_TRUE(tallies_.SetTag(tally, kTag));
    return tally;
  }
  static void MakeKnown(Tally& tally) {
    const Standing now = Tallies::StandingOf(tally);
    EXPECT_TRUE(Tallies::Change(tally, now, {now.tag, now.bypasses, true}));
  }

  const test::Folder folder_{test::Folder::kMemory};
  Member own_;
  Tallies& tallies_ = own_.tallies;
};

TEST(TagTest, IsNeverNobodys) {
  std::set<uint64_t> tags;
  for (uint64_t device = 0; device < 100; ++device) {
    for (uint64_t inode = 0; inode < 100; ++inode) {
      tags.insert(TagOf(device, inode, kBirth, S_IFREG));
    }
  }
  EXPECT_EQ(tags.size(), 10000u);
  EXPECT_EQ(tags.count(0), 0u);
}

TEST(TagTest, IsNotThatOfAFileBeforeWithTheNumber) {
  std::set<uint64_t> tags;
  for (uint64_t later = 0; later < 100; ++later) {
    tags.insert(TagOf(kDevice, kInode, kBirth + later, S_IFREG));
    tags.insert(TagOf(kDevice, kInode + later, kBirth, S_IFREG));
    tags.insert(TagOf(kDevice, kInode, kBirth + later, S_IFDIR));
  }
  EXPECT_EQ(tags.size(), 299u);
}

TEST_F(TallyTest, AFileWhoseBirthIsNotKnownHasNoTally) {
  const uint64_t tag = TagOf(kDevice, kInode, 0, S_IFREG);
  EXPECT_EQ(tag, 0u);
  EXPECT_EQ(tallies_.Find(tag), nullptr);
  EXPECT_FALSE(tallies_.SetTag(tallies_.At(tag), tag));
  EXPECT_EQ(tallies_.Find(tag), nullptr);
}

// Names of the folders of a device are waited for from the first one on that the log knows there.
TEST_F(TallyTest, FoldersAreOnOneDeviceAfterTheOther) {
  for (const uint64_t device : {kDevice, kDevice + 1}) {
    tallies_.NoteFolder(device);
    EXPECT_TRUE(tallies_.HasUnlogged());
    tallies_.RaiseUnloggedSynced(tallies_.Unlogged());
    tallies_.NoteUnlogged(device + 1);
    EXPECT_FALSE(tallies_.HasUnlogged());
    tallies_.NoteUnlogged(device);
    EXPECT_TRUE(tallies_.HasUnlogged());
  }
}

TEST_F(TallyTest, AFileHasOneAfterItsTagIsSet) {
  EXPECT_TRUE(tallies_.Join(kPool));
  EXPECT_EQ(tallies_.Find(kTag), nullptr);
  Tally& tally = Tagged();
  EXPECT_EQ(tallies_.Find(kTag), &tally);
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{kTag, 0, false}));
  EXPECT_TRUE(tallies_.SetTag(tally, kTag)) << "by another process, say";
  EXPECT_FALSE(tallies_.SetTag(tally, kOtherTag)) << "one file at a time";
  EXPECT_EQ(tallies_.Find(kOtherTag), nullptr);
  EXPECT_TRUE(tallies_.RemoveTag(tally));
  EXPECT_TRUE(tallies_.SetTag(tally, kOtherTag));
  EXPECT_EQ(tallies_.Find(kOtherTag), &tally);
  EXPECT_EQ(tallies_.Find(kTag), nullptr);
}

TEST_F(TallyTest, AStandingChangesInOneStep) {
  Tally& tally = Tagged();
  const Standing then = Tallies::StandingOf(tally);
  MakeKnown(tally);
  EXPECT_FALSE(Tallies::Change(tally, then, {kTag, then.bypasses, true}))
      << "it is not so any more";
  Tallies::Forget(tally);
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{kTag, then.bypasses + 1, false}));
  EXPECT_FALSE(Tallies::Change(tally, then, {kTag, then.bypasses, true}))
      << "it was forgotten since";
}

TEST_F(TallyTest, WhatIsRefusedStaysUnknown) {
  Tally& tally = Tagged();
  MakeKnown(tally);
  Tallies::Refuse(tally, kTag + 1);
  EXPECT_TRUE(Tallies::StandingOf(tally).known) << "that was another file's";
  Tallies::Refuse(tally, kTag);
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{kTag, 1, false, true}));
  Tallies::Forget(tally);
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{kTag, 2, false, true}));
  EXPECT_FALSE(Tallies::Change(tally, {kTag, 2, false}, {kTag, 2, true}));
  EXPECT_TRUE(tallies_.RemoveTag(tally));
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{0, 3, false, false}));
}

// One word would not do: a new tag with the old bypasses, or the other way round.
TEST_F(TallyTest, NothingIsKnownOnceAllIsForgotten) {
  EXPECT_FALSE(tallies_.ForgetAll());
  MakeKnown(Tagged());
  std::vector<Tally*> others;
  for (uint64_t inode = 1; inode < 20; ++inode) {
    const uint64_t tag = TagOfFile(inode);
    others.push_back(&tallies_.At(tag));
    ASSERT_TRUE(tallies_.SetTag(*others.back(), tag));
    MakeKnown(*others.back());
  }
  const uint64_t bypasses = Tallies::StandingOf(tallies_.At(kTag)).bypasses;
  EXPECT_FALSE(tallies_.ForgetAll());
  EXPECT_EQ(Tallies::StandingOf(tallies_.At(kTag)), (Standing{kTag, bypasses + 1, false}));
  for (const Tally* tally : others) EXPECT_FALSE(Tallies::StandingOf(*tally).known);
  Tallies::Raise(others[7]->lsn, 5);
  EXPECT_TRUE(tallies_.ForgetAll());
  tallies_.RaiseCheckpoint(6);
  EXPECT_FALSE(tallies_.ForgetAll());
}

TEST_F(TallyTest, AStandingIsReadInOneStep) {
  Tally& tally = Tagged();
  const uint64_t tags[] = {kOtherTag, kOtherTag + kTallies};
  std::atomic<bool> stop{false};
  std::thread changes([&] {
    for (uint64_t i = 0; !stop.load(); ++i) {
      ASSERT_TRUE(tallies_.RemoveTag(tally));
      ASSERT_TRUE(tallies_.SetTag(tally, tags[i % 2]));
      MakeKnown(tally);
    }
  });
  // The first tag is set with one bypass more than none, the second one with two.
  uint64_t wrong = 0;
  for (int i = 0; i < 300000; ++i) {
    const Standing now = Tallies::StandingOf(tally);
    if (now.tag != kTag && now.tag != 0) wrong += now.tag != tags[(now.bypasses + 1) % 2] ? 1 : 0;
    if (now.tag == 0 && now.known) ++wrong;
  }
  stop.store(true);
  changes.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(TallyTest, TheTagOfWhatIsPendingStays) {
  Tally& tally = Tagged();
  Tallies::Raise(tally.lsn, 100);
  EXPECT_TRUE(tallies_.IsPending(tally));
  EXPECT_FALSE(tallies_.RemoveTag(tally));
  Tallies::Raise(tally.settled, 100);
  EXPECT_TRUE(tallies_.IsPending(tally)) << "only groups below are void";
  Tallies::Raise(tally.settled, 101);
  EXPECT_FALSE(tallies_.IsPending(tally));
  Tallies::Raise(tally.lsn, 200);
  EXPECT_FALSE(tallies_.RemoveTag(tally));
  tallies_.RaiseCheckpoint(200);
  EXPECT_FALSE(tallies_.RemoveTag(tally));
  tallies_.RaiseCheckpoint(201);
  Tallies::Raise(tally.lsn, 150);
  Tallies::Raise(tally.settled, 50);
  const Standing before = Tallies::StandingOf(tally);
  EXPECT_TRUE(tallies_.RemoveTag(tally)) << "what comes late changes nothing";
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{0, before.bypasses + 1, false}));
}

TEST_F(TallyTest, TheTableIsOfOnePool) {
  EXPECT_TRUE(tallies_.Join(kPool));
  Tallies::Raise(Tagged().lsn, 100);
  const Other other(folder_.path(), [](Tallies& tallies) {
    if (tallies.Join(kOtherPool)) _exit(1);
    if (!tallies.Join(kPool) || !tallies.IsOf(kPool)) _exit(2);
  });
  EXPECT_TRUE(tallies_.IsOf(kPool));
  EXPECT_NE(tallies_.Find(kTag), nullptr);
}

// By a process that starts after one that has looked at the pool.
TEST_F(TallyTest, ALookCountsUntilAnOwnerDies) {
  Other other(folder_.path(), [](Member& member) {
    if (!member.tallies.Join(kPool)) _exit(1);
    member.leases.AddUser(kDevice, kInode);
    if (!member.leases.TryExclusive(kDevice, kInode)) _exit(1);
  });
  const auto is_good = [this](uint64_t pool, bool emulate) {
    return tallies_.WasLookedAt(pool, emulate);
  };
  EXPECT_FALSE(is_good(kPool, true)) << "nobody has looked";
  tallies_.NoteLook(own_.leases.deaths(), true);
  EXPECT_TRUE(is_good(kPool, true));
  EXPECT_FALSE(is_good(kPool, false)) << "the pool is emulated";
  EXPECT_FALSE(is_good(kOtherPool, true));
  tallies_.NoteLook(own_.leases.deaths(), false);
  EXPECT_TRUE(is_good(kPool, true));
  EXPECT_TRUE(is_good(kPool, false));
  tallies_.ForgetLook();
  EXPECT_FALSE(is_good(kPool, true));

  tallies_.NoteLook(own_.leases.deaths(), false);
  const Other second(folder_.path(), [](Tallies& tallies) { tallies.Join(kPool); });
  EXPECT_TRUE(is_good(kPool, true));
  other.Kill();
  EXPECT_TRUE(own_.leases.HasDeadOwner());
  EXPECT_FALSE(is_good(kPool, true)) << "it had a file for itself";
  const Other third(folder_.path(), [](Tallies&) {});  // has buried it
  EXPECT_FALSE(own_.leases.HasDeadOwner());
  EXPECT_FALSE(is_good(kPool, true));
  tallies_.NoteLook(own_.leases.deaths(), false);
  EXPECT_TRUE(is_good(kPool, true));
}

TEST_F(TallyTest, ALookCountsWhileSomebodyHasTheTable) {
  {
    const Other other(folder_.path(), [](Tallies& tallies) { tallies.Join(kPool); });
    tallies_.NoteLook(own_.leases.deaths(), false);
    EXPECT_TRUE(tallies_.WasLookedAt(kPool, false));
  }
  EXPECT_FALSE(tallies_.WasLookedAt(kPool, false));
}

TEST_F(TallyTest, AnotherPoolHasTheTableWhenAllHaveGone) {
  {
    Other first(folder_.path(), [](Tallies& tallies) {
      if (!tallies.Join(kPool)) _exit(1);
      tallies.SetTag(tallies.At(kTag), kTag);
      Tallies::Raise(tallies.At(kTag).lsn, 100);
    });
    EXPECT_FALSE(tallies_.Join(kOtherPool));
    first.Kill();
  }
  const uint64_t bypasses = Tallies::StandingOf(tallies_.At(kTag)).bypasses;
  EXPECT_NE(tallies_.Find(kTag), nullptr) << "the same pool may come back";
  EXPECT_TRUE(tallies_.Join(kOtherPool));
  EXPECT_EQ(tallies_.Find(kTag), nullptr);
  EXPECT_FALSE(tallies_.IsPending(tallies_.At(kTag)));
  EXPECT_GT(Tallies::StandingOf(tallies_.At(kTag)).bypasses, bypasses);
}

TEST_F(TallyTest, ATableThatNobodyHasIsAbandoned) {
  {
    const Other other(folder_.path(), [](Tallies& tallies) { tallies.Join(kPool); });
    EXPECT_FALSE(tallies_.LeaveIfUnused());
  }
  EXPECT_TRUE(tallies_.LeaveIfUnused());
  EXPECT_TRUE(tallies_.Join(kPool));
  EXPECT_EQ(test::InChild([&] { return 0; }), 0) << "a child has no part of it";
  const Other other(folder_.path(), [](Tallies& tallies) {
    if (tallies.LeaveIfUnused()) _exit(1);
  });
}

TEST_F(TallyTest, AProgramThatClosesTheFileOfLeasesHasTheTableAgain) {
  EXPECT_TRUE(tallies_.Join(kPool));
  const std::string file = folder_ / ("nvcache-leases-" + std::to_string(geteuid()));
  const auto is_locked = [&] {
    return test::InChild([&] {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      lock.l_start = kTableByte;
      lock.l_len = 1;
      const int fd = ::open(file.c_str(), O_RDWR);
      return ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 1 : 0;
    });
  };
  EXPECT_EQ(is_locked(), 1);
  ::close(::open(file.c_str(), O_RDONLY));
  EXPECT_EQ(is_locked(), 0);
  EXPECT_TRUE(own_.leases.Relock());
  EXPECT_EQ(is_locked(), 1);
}

TEST_F(TallyTest, WhoSaysThatAFileIsOpenIsHeard) {
  const auto say = [](const Tallies& tallies) { tallies.SayOpen(kTag); };
  const auto is_open = [&] { return tallies_.IsOpenElsewhere(kTag); };
  tallies_.SayOpen(kTag);
  EXPECT_FALSE(is_open()) << "by others";
  Other other(folder_.path(), say);
  EXPECT_TRUE(is_open());
  for (const uint64_t tag : {kTag + 4, kTag ^ uint64_t{1} << 63}) {
    EXPECT_FALSE(tallies_.IsOpenElsewhere(tag)) << "another file";
  }
  other.Signal(SIGSTOP);
  EXPECT_TRUE(is_open()) << "it lives";
  other.Kill();
  EXPECT_FALSE(is_open()) << "the dead do not";
  const Other many(folder_.path(), say), twice(folder_.path(), [](const Tallies&tallies) {
    tallies.SayOpen(kTag);
    tallies.SayClosed(kTag);
  });
  EXPECT_TRUE(is_open());
}

TEST_F(TallyTest, AChildHasToSayItself) {
  tallies_.SayOpen(kTag);
  {
    const Other child(folder_.path(), [](const Tallies& tallies) {
      if (!tallies.IsOpenElsewhere(kTag)) _exit(1);
    });
  }
  tallies_.SayClosed(kTag);
  const Other other(folder_.path(), [](const Tallies& tallies) {
    if (tallies.IsOpenElsewhere(kTag)) _exit(1);
  });
}

// Of a file that the program has put in the place of ours, nothing is said.
TEST_F(TallyTest, WhatIsAnotherFilesIsNotTakenForOpen) {
  const Other other(folder_.path(), [](const Tallies& tallies) { tallies.SayOpen(kTag); });
  EXPECT_TRUE(tallies_.IsOpenElsewhere(kTag));
  const int kept = ::dup(own_.leases.fd()), file = ::memfd_create("other", 0);
  EXPECT_EQ(::dup2(file, own_.leases.fd()), own_.leases.fd());
  EXPECT_FALSE(tallies_.IsOpenElsewhere(kTag));
  tallies_.SayOpen(kTag);
  struct flock any = {};
  any.l_type = F_WRLCK;
  EXPECT_EQ(test::InChild([&] { return ::fcntl(file, F_SETLK, &any) == 0 ? 1 : 0; }), 1);
  EXPECT_EQ(::dup2(kept, own_.leases.fd()), own_.leases.fd());
  ::close(file);
  ::close(kept);
}

TEST_F(TallyTest, WhoPassesIsSeen) {
  const uint64_t tag = TagOfFile(kInode);
  const auto anybody = [&] { return tallies_.AnybodyInFlight(tag, kDevice, kInode); };
  const auto share_and_pass = [](Member& member) {
    member.leases.AddUser(kDevice, kInode);
    member.tallies.BeginInFlight(TagOfFile(kInode));
  };
  EXPECT_FALSE(anybody());
  share_and_pass(own_);
  tallies_.BeginInFlight(tag);
  EXPECT_TRUE(anybody());
  tallies_.EndInFlight(tag);
  EXPECT_TRUE(anybody());
  tallies_.EndInFlight(tag);
  EXPECT_FALSE(anybody());
  Other other(folder_.path(), share_and_pass);
  EXPECT_TRUE(anybody());
  other.Signal(SIGSTOP);
  EXPECT_TRUE(anybody()) << "it may come back";
  other.Kill();
  EXPECT_FALSE(anybody()) << "the dead do not";
  const Other next(folder_.path(), [](Member&) {});
  EXPECT_FALSE(anybody()) << "nor does who has its slot";
}

TEST_F(TallyTest, WhoPassesAnotherFileOfTheClassIsNotInTheWay) {
  const auto class_of = [](uint64_t inode) { return (TagOfFile(inode) >> 32) % kInFlightClasses; };
  uint64_t twin = kInode + 1;
  while (class_of(twin) != class_of(kInode)) ++twin;
  const Other other(folder_.path(), [=](Member& member) {
    member.leases.AddUser(kDevice, twin);
    member.tallies.BeginInFlight(TagOfFile(twin));
  });
  own_.leases.AddUser(kDevice, twin);
  tallies_.BeginInFlight(TagOfFile(twin));
  EXPECT_TRUE(tallies_.AnybodyInFlight(TagOfFile(twin), kDevice, twin));
  EXPECT_FALSE(tallies_.AnybodyInFlight(TagOfFile(kInode), kDevice, kInode));
  tallies_.EndInFlight(TagOfFile(twin));
  EXPECT_TRUE(tallies_.AnybodyInFlight(TagOfFile(twin), kDevice, twin));
}

TEST_F(TallyTest, WhoHasNoPageSaysNotOfWhat) {
  const uint64_t tag = TagOfFile(kInode);
  const auto start = [&](void (*function)(Member & member)) {
    rlimit limit = {0, RLIM_INFINITY};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    auto other = std::make_unique<Other>(folder_.path(), function);
    limit.rlim_cur = RLIM_INFINITY;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return other;
  };
  const auto other = start([](Member& member) {
    for (const uint64_t inode : {kInode, kInode + 1}) member.leases.AddUser(kDevice, inode);
    member.tallies.BeginInFlight(TagOfFile(kInode));
  });
  const auto idle = start([](Member& member) {
    member.leases.AddUser(kDevice, kInode);
    member.tallies.BeginInFlight(TagOfFile(kInode));
    member.tallies.EndInFlight(TagOfFile(kInode));
  });
  EXPECT_TRUE(tallies_.AnybodyInFlight(tag, kDevice, kInode));
  EXPECT_TRUE(tallies_.AnybodyInFlight(TagOfFile(kInode + 1), kDevice, kInode + 1));
  other->Kill();
  EXPECT_FALSE(tallies_.AnybodyInFlight(tag, kDevice, kInode));
  const auto next = start([](Member&) {});
  EXPECT_FALSE(tallies_.AnybodyInFlight(tag, kDevice, kInode)) << "nor does who has its slot";
}

TEST_F(TallyTest, TheLockIsForOne) {
  Tally& tally = Tagged();
  MakeKnown(tally);
  constexpr int kThreads = 4, kTimes = 5000;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < kTimes; ++k) {
        const uint64_t lock = tallies_.Lock(tally);
        __atomic_store_n(&count, __atomic_load_n(&count, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
        EXPECT_TRUE(Tallies::IsOwn(tally, lock));
        tallies_.Unlock(tally, lock);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A machine that is busy may keep an owner from moving, so that it is taken away.
  if (Tallies::StandingOf(tally).known) {
    EXPECT_EQ(count, kThreads * kTimes);
  }
}

TEST_F(TallyTest, TheDeadLoseIt) {
  Tally& tally = Tagged();
  MakeKnown(tally);
  Other other(folder_.path(), [](Tallies& tallies) { tallies.Lock(*tallies.Find(kTag)); });
  other.Kill();
  const uint64_t lock = tallies_.Lock(tally);
  EXPECT_EQ(Tallies::StandingOf(tally), (Standing{kTag, 1, false}));
  EXPECT_TRUE(Tallies::IsOwn(tally, lock));
  tallies_.Unlock(tally, lock);
}

TEST_F(TallyTest, WhoIsStoppedLosesIt) {
  Tally& tally = Tagged();
  MakeKnown(tally);
  const uint64_t late = tallies_.Lock(tally);
  Other other(folder_.path(), [](Tallies& tallies) {
    const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
    const uint64_t lock = tallies.Lock(*tallies.Find(kTag));
    if (sys::Now(CLOCK_MONOTONIC) - begin < kLockPatience) _exit(1);
    if (tallies.StandingOf(*tallies.Find(kTag)).known) _exit(2);
    tallies.Unlock(*tallies.Find(kTag), lock);
  });
  EXPECT_FALSE(Tallies::IsOwn(tally, late));
  const uint64_t lock = tallies_.Lock(tally);
  tallies_.Unlock(tally, late);
  EXPECT_TRUE(Tallies::IsOwn(tally, lock)) << "of what was lost, nothing is let go";
  tallies_.Unlock(tally, lock);
}

}  // namespace
}  // namespace nvcache::lease
