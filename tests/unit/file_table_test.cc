// SPDX-License-Identifier: BSD-3-Clause
#include "src/lease/file_table.h"

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
constexpr uint64_t kOtherTag = 0x923456789abcdef0;  // they have one entry
static_assert(kTag % kFileEntries == kOtherTag % kFileEntries);
constexpr uint64_t kDevice = 0x801, kInode = 12345, kBirth = 1700000000123456789;

uint64_t TagOfFile(uint64_t inode) { return TagOf(kDevice, inode, kBirth, S_IFREG); }

class FileTableTest : public testing::Test {
 protected:
  FileTableTest() { EXPECT_TRUE(own_.Open(folder_.path())); }

  // Of this process, which has the table.
  FileEntry& Tagged() {
    EXPECT_TRUE(file_table_.Join(kPool));
    FileEntry& entry = file_table_.At(kTag);
    EXPECT_TRUE(file_table_.SetTag(entry, kTag));
    return entry;
  }
  static void MakeKnown(FileEntry& entry) {
    const Coverage now = FileTable::CoverageOf(entry);
    EXPECT_TRUE(FileTable::Change(entry, now, {now.tag, now.bypasses, true}));
  }

  const test::Folder folder_{test::Folder::kMemory};
  Member own_;
  FileTable& file_table_ = own_.file_table;
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

TEST_F(FileTableTest, AFileWhoseBirthIsNotKnownHasNoEntry) {
  const uint64_t tag = TagOf(kDevice, kInode, 0, S_IFREG);
  EXPECT_EQ(tag, 0u);
  EXPECT_EQ(file_table_.Find(tag), nullptr);
  EXPECT_FALSE(file_table_.SetTag(file_table_.At(tag), tag));
  EXPECT_EQ(file_table_.Find(tag), nullptr);
}

// Names of the folders of a device are waited for from the first one on that the log knows there.
TEST_F(FileTableTest, FoldersAreOnOneDeviceAfterTheOther) {
  for (const uint64_t device : {kDevice, kDevice + 1}) {
    file_table_.NoteFolder(device);
    EXPECT_TRUE(file_table_.HasUnlogged());
    file_table_.RaiseUnloggedSynced(file_table_.Unlogged());
    file_table_.NoteUnlogged(device + 1);
    EXPECT_FALSE(file_table_.HasUnlogged());
    file_table_.NoteUnlogged(device);
    EXPECT_TRUE(file_table_.HasUnlogged());
  }
}

TEST_F(FileTableTest, AFileHasOneAfterItsTagIsSet) {
  EXPECT_TRUE(file_table_.Join(kPool));
  EXPECT_EQ(file_table_.Find(kTag), nullptr);
  FileEntry& entry = Tagged();
  EXPECT_EQ(file_table_.Find(kTag), &entry);
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{kTag, 0, false}));
  EXPECT_TRUE(file_table_.SetTag(entry, kTag)) << "by another process, say";
  EXPECT_FALSE(file_table_.SetTag(entry, kOtherTag)) << "one file at a time";
  EXPECT_EQ(file_table_.Find(kOtherTag), nullptr);
  EXPECT_TRUE(file_table_.RemoveTag(entry));
  EXPECT_TRUE(file_table_.SetTag(entry, kOtherTag));
  EXPECT_EQ(file_table_.Find(kOtherTag), &entry);
  EXPECT_EQ(file_table_.Find(kTag), nullptr);
}

TEST_F(FileTableTest, CoverageChangesInOneStep) {
  FileEntry& entry = Tagged();
  const Coverage then = FileTable::CoverageOf(entry);
  MakeKnown(entry);
  EXPECT_FALSE(FileTable::Change(entry, then, {kTag, then.bypasses, true}))
      << "it is not so any more";
  FileTable::Forget(entry);
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{kTag, then.bypasses + 1, false}));
  EXPECT_FALSE(FileTable::Change(entry, then, {kTag, then.bypasses, true}))
      << "it was forgotten since";
}

TEST_F(FileTableTest, WhatIsRefusedStaysUnknown) {
  FileEntry& entry = Tagged();
  MakeKnown(entry);
  FileTable::Refuse(entry, kTag + 1);
  EXPECT_TRUE(FileTable::CoverageOf(entry).known) << "that was another file's";
  FileTable::Refuse(entry, kTag);
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{kTag, 1, false, true}));
  FileTable::Forget(entry);
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{kTag, 2, false, true}));
  EXPECT_FALSE(FileTable::Change(entry, {kTag, 2, false}, {kTag, 2, true}));
  EXPECT_TRUE(file_table_.RemoveTag(entry));
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{0, 3, false, false}));
}

// One word would not do: a new tag with the old bypasses, or the other way round.
TEST_F(FileTableTest, NothingIsKnownOnceAllIsForgotten) {
  EXPECT_FALSE(file_table_.ForgetAll());
  MakeKnown(Tagged());
  std::vector<FileEntry*> others;
  for (uint64_t inode = 1; inode < 20; ++inode) {
    const uint64_t tag = TagOfFile(inode);
    others.push_back(&file_table_.At(tag));
    ASSERT_TRUE(file_table_.SetTag(*others.back(), tag));
    MakeKnown(*others.back());
  }
  const uint64_t bypasses = FileTable::CoverageOf(file_table_.At(kTag)).bypasses;
  EXPECT_FALSE(file_table_.ForgetAll());
  EXPECT_EQ(FileTable::CoverageOf(file_table_.At(kTag)), (Coverage{kTag, bypasses + 1, false}));
  for (const FileEntry* entry : others) EXPECT_FALSE(FileTable::CoverageOf(*entry).known);
  FileTable::Raise(others[7]->lsn, 5);
  EXPECT_TRUE(file_table_.ForgetAll());
  file_table_.RaiseCheckpoint(6);
  EXPECT_FALSE(file_table_.ForgetAll());
}

TEST_F(FileTableTest, CoverageIsReadInOneStep) {
  FileEntry& entry = Tagged();
  const uint64_t tags[] = {kOtherTag, kOtherTag + kFileEntries};
  std::atomic<bool> stop{false};
  std::thread changes([&] {
    for (uint64_t i = 0; !stop.load(); ++i) {
      ASSERT_TRUE(file_table_.RemoveTag(entry));
      ASSERT_TRUE(file_table_.SetTag(entry, tags[i % 2]));
      MakeKnown(entry);
    }
  });
  // The first tag is set with one bypass more than none, the second one with two.
  uint64_t wrong = 0;
  for (int i = 0; i < 300000; ++i) {
    const Coverage now = FileTable::CoverageOf(entry);
    if (now.tag != kTag && now.tag != 0) wrong += now.tag != tags[(now.bypasses + 1) % 2] ? 1 : 0;
    if (now.tag == 0 && now.known) ++wrong;
  }
  stop.store(true);
  changes.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(FileTableTest, TheTagOfWhatIsPendingStays) {
  FileEntry& entry = Tagged();
  FileTable::Raise(entry.lsn, 100);
  EXPECT_TRUE(file_table_.IsPending(entry));
  EXPECT_FALSE(file_table_.RemoveTag(entry));
  FileTable::Raise(entry.settled, 100);
  EXPECT_TRUE(file_table_.IsPending(entry)) << "only groups below are void";
  FileTable::Raise(entry.settled, 101);
  EXPECT_FALSE(file_table_.IsPending(entry));
  FileTable::Raise(entry.lsn, 200);
  EXPECT_FALSE(file_table_.RemoveTag(entry));
  file_table_.RaiseCheckpoint(200);
  EXPECT_FALSE(file_table_.RemoveTag(entry));
  file_table_.RaiseCheckpoint(201);
  FileTable::Raise(entry.lsn, 150);
  FileTable::Raise(entry.settled, 50);
  const Coverage before = FileTable::CoverageOf(entry);
  EXPECT_TRUE(file_table_.RemoveTag(entry)) << "what comes late changes nothing";
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{0, before.bypasses + 1, false}));
}

TEST_F(FileTableTest, TheTableIsOfOnePool) {
  EXPECT_TRUE(file_table_.Join(kPool));
  FileTable::Raise(Tagged().lsn, 100);
  const Other other(folder_.path(), [](FileTable& file_table) {
    if (file_table.Join(kOtherPool)) _exit(1);
    if (!file_table.Join(kPool) || !file_table.IsOf(kPool)) _exit(2);
  });
  EXPECT_TRUE(file_table_.IsOf(kPool));
  EXPECT_NE(file_table_.Find(kTag), nullptr);
}

// By a process that starts after one that has looked at the pool.
TEST_F(FileTableTest, ALookCountsUntilAnOwnerDies) {
  Other other(folder_.path(), [](Member& member) {
    if (!member.file_table.Join(kPool)) _exit(1);
    member.leases.AddUser(kDevice, kInode);
    if (!member.leases.TryExclusive(kDevice, kInode)) _exit(1);
  });
  const auto is_good = [this](uint64_t pool, bool emulate) {
    return file_table_.WasLookedAt(pool, emulate);
  };
  EXPECT_FALSE(is_good(kPool, true)) << "nobody has looked";
  file_table_.NoteLook(own_.leases.deaths(), true);
  EXPECT_TRUE(is_good(kPool, true));
  EXPECT_FALSE(is_good(kPool, false)) << "the pool is emulated";
  EXPECT_FALSE(is_good(kOtherPool, true));
  file_table_.NoteLook(own_.leases.deaths(), false);
  EXPECT_TRUE(is_good(kPool, true));
  EXPECT_TRUE(is_good(kPool, false));
  file_table_.ForgetLook();
  EXPECT_FALSE(is_good(kPool, true));

  file_table_.NoteLook(own_.leases.deaths(), false);
  const Other second(folder_.path(), [](FileTable& file_table) { file_table.Join(kPool); });
  EXPECT_TRUE(is_good(kPool, true));
  other.Kill();
  EXPECT_TRUE(own_.leases.HasDeadOwner());
  EXPECT_FALSE(is_good(kPool, true)) << "it had a file for itself";
  const Other third(folder_.path(), [](FileTable&) {});  // has buried it
  EXPECT_FALSE(own_.leases.HasDeadOwner());
  EXPECT_FALSE(is_good(kPool, true));
  file_table_.NoteLook(own_.leases.deaths(), false);
  EXPECT_TRUE(is_good(kPool, true));
}

TEST_F(FileTableTest, ALookCountsWhileSomebodyHasTheTable) {
  {
    const Other other(folder_.path(), [](FileTable& file_table) { file_table.Join(kPool); });
    file_table_.NoteLook(own_.leases.deaths(), false);
    EXPECT_TRUE(file_table_.WasLookedAt(kPool, false));
  }
  EXPECT_FALSE(file_table_.WasLookedAt(kPool, false));
}

TEST_F(FileTableTest, AnotherPoolHasTheTableWhenAllHaveGone) {
  {
    Other first(folder_.path(), [](FileTable& file_table) {
      if (!file_table.Join(kPool)) _exit(1);
      file_table.SetTag(file_table.At(kTag), kTag);
      FileTable::Raise(file_table.At(kTag).lsn, 100);
    });
    EXPECT_FALSE(file_table_.Join(kOtherPool));
    first.Kill();
  }
  const uint64_t bypasses = FileTable::CoverageOf(file_table_.At(kTag)).bypasses;
  EXPECT_NE(file_table_.Find(kTag), nullptr) << "the same pool may come back";
  EXPECT_TRUE(file_table_.Join(kOtherPool));
  EXPECT_EQ(file_table_.Find(kTag), nullptr);
  EXPECT_FALSE(file_table_.IsPending(file_table_.At(kTag)));
  EXPECT_GT(FileTable::CoverageOf(file_table_.At(kTag)).bypasses, bypasses);
}

TEST_F(FileTableTest, ATableThatNobodyHasIsAbandoned) {
  {
    const Other other(folder_.path(), [](FileTable& file_table) { file_table.Join(kPool); });
    EXPECT_FALSE(file_table_.LeaveIfUnused());
  }
  EXPECT_TRUE(file_table_.LeaveIfUnused());
  EXPECT_TRUE(file_table_.Join(kPool));
  EXPECT_EQ(test::InChild([&] { return 0; }), 0) << "a child has no part of it";
  const Other other(folder_.path(), [](FileTable& file_table) {
    if (file_table.LeaveIfUnused()) _exit(1);
  });
}

TEST_F(FileTableTest, AProgramThatClosesTheFileOfLeasesHasTheTableAgain) {
  EXPECT_TRUE(file_table_.Join(kPool));
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

TEST_F(FileTableTest, WhoSaysThatAFileIsOpenIsHeard) {
  const auto say = [](const FileTable& file_table) { file_table.SayOpen(kTag); };
  const auto is_open = [&] { return file_table_.IsOpenElsewhere(kTag); };
  file_table_.SayOpen(kTag);
  EXPECT_FALSE(is_open()) << "by others";
  Other other(folder_.path(), say);
  EXPECT_TRUE(is_open());
  for (const uint64_t tag : {kTag + 4, kTag ^ uint64_t{1} << 63}) {
    EXPECT_FALSE(file_table_.IsOpenElsewhere(tag)) << "another file";
  }
  other.Signal(SIGSTOP);
  EXPECT_TRUE(is_open()) << "it lives";
  other.Kill();
  EXPECT_FALSE(is_open()) << "the dead do not";
  const Other many(folder_.path(), say), twice(folder_.path(), [](const FileTable&file_table) {
    file_table.SayOpen(kTag);
    file_table.SayClosed(kTag);
  });
  EXPECT_TRUE(is_open());
}

TEST_F(FileTableTest, AChildHasToSayItself) {
  file_table_.SayOpen(kTag);
  {
    const Other child(folder_.path(), [](const FileTable& file_table) {
      if (!file_table.IsOpenElsewhere(kTag)) _exit(1);
    });
  }
  file_table_.SayClosed(kTag);
  const Other other(folder_.path(), [](const FileTable& file_table) {
    if (file_table.IsOpenElsewhere(kTag)) _exit(1);
  });
}

// Of a file that the program has put in the place of ours, nothing is said.
TEST_F(FileTableTest, WhatIsAnotherFilesIsNotTakenForOpen) {
  const Other other(folder_.path(), [](const FileTable& file_table) { file_table.SayOpen(kTag); });
  EXPECT_TRUE(file_table_.IsOpenElsewhere(kTag));
  const int kept = ::dup(own_.leases.fd()), file = ::memfd_create("other", 0);
  EXPECT_EQ(::dup2(file, own_.leases.fd()), own_.leases.fd());
  EXPECT_FALSE(file_table_.IsOpenElsewhere(kTag));
  file_table_.SayOpen(kTag);
  struct flock any = {};
  any.l_type = F_WRLCK;
  EXPECT_EQ(test::InChild([&] { return ::fcntl(file, F_SETLK, &any) == 0 ? 1 : 0; }), 1);
  EXPECT_EQ(::dup2(kept, own_.leases.fd()), own_.leases.fd());
  ::close(file);
  ::close(kept);
}

TEST_F(FileTableTest, WhoPassesIsSeen) {
  const uint64_t tag = TagOfFile(kInode);
  const auto anybody = [&] { return file_table_.AnybodyInFlight(tag, kDevice, kInode); };
  const auto share_and_pass = [](Member& member) {
    member.leases.AddUser(kDevice, kInode);
    member.file_table.BeginInFlight(TagOfFile(kInode));
  };
  EXPECT_FALSE(anybody());
  share_and_pass(own_);
  file_table_.BeginInFlight(tag);
  EXPECT_TRUE(anybody());
  file_table_.EndInFlight(tag);
  EXPECT_TRUE(anybody());
  file_table_.EndInFlight(tag);
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

TEST_F(FileTableTest, WhoPassesAnotherFileOfTheClassIsNotInTheWay) {
  const auto class_of = [](uint64_t inode) { return (TagOfFile(inode) >> 32) % kInFlightClasses; };
  uint64_t twin = kInode + 1;
  while (class_of(twin) != class_of(kInode)) ++twin;
  const Other other(folder_.path(), [=](Member& member) {
    member.leases.AddUser(kDevice, twin);
    member.file_table.BeginInFlight(TagOfFile(twin));
  });
  own_.leases.AddUser(kDevice, twin);
  file_table_.BeginInFlight(TagOfFile(twin));
  EXPECT_TRUE(file_table_.AnybodyInFlight(TagOfFile(twin), kDevice, twin));
  EXPECT_FALSE(file_table_.AnybodyInFlight(TagOfFile(kInode), kDevice, kInode));
  file_table_.EndInFlight(TagOfFile(twin));
  EXPECT_TRUE(file_table_.AnybodyInFlight(TagOfFile(twin), kDevice, twin));
}

TEST_F(FileTableTest, WhoHasNoPageSaysNotOfWhat) {
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
    member.file_table.BeginInFlight(TagOfFile(kInode));
  });
  const auto idle = start([](Member& member) {
    member.leases.AddUser(kDevice, kInode);
    member.file_table.BeginInFlight(TagOfFile(kInode));
    member.file_table.EndInFlight(TagOfFile(kInode));
  });
  EXPECT_TRUE(file_table_.AnybodyInFlight(tag, kDevice, kInode));
  EXPECT_TRUE(file_table_.AnybodyInFlight(TagOfFile(kInode + 1), kDevice, kInode + 1));
  other->Kill();
  EXPECT_FALSE(file_table_.AnybodyInFlight(tag, kDevice, kInode));
  const auto next = start([](Member&) {});
  EXPECT_FALSE(file_table_.AnybodyInFlight(tag, kDevice, kInode)) << "nor does who has its slot";
}

TEST_F(FileTableTest, TheLockIsForOne) {
  FileEntry& entry = Tagged();
  MakeKnown(entry);
  constexpr int kThreads = 4, kTimes = 5000;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < kTimes; ++k) {
        const uint64_t lock = file_table_.Lock(entry);
        __atomic_store_n(&count, __atomic_load_n(&count, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
        EXPECT_TRUE(FileTable::IsOwn(entry, lock));
        file_table_.Unlock(entry, lock);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A machine that is busy may keep an owner from moving, so that it is taken away.
  if (FileTable::CoverageOf(entry).known) {
    EXPECT_EQ(count, kThreads * kTimes);
  }
}

TEST_F(FileTableTest, TheDeadLoseIt) {
  FileEntry& entry = Tagged();
  MakeKnown(entry);
  Other other(folder_.path(),
              [](FileTable& file_table) { file_table.Lock(*file_table.Find(kTag)); });
  other.Kill();
  const uint64_t lock = file_table_.Lock(entry);
  EXPECT_EQ(FileTable::CoverageOf(entry), (Coverage{kTag, 1, false}));
  EXPECT_TRUE(FileTable::IsOwn(entry, lock));
  file_table_.Unlock(entry, lock);
}

TEST_F(FileTableTest, WhoIsStoppedLosesIt) {
  FileEntry& entry = Tagged();
  MakeKnown(entry);
  const uint64_t late = file_table_.Lock(entry);
  Other other(folder_.path(), [](FileTable& file_table) {
    const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
    const uint64_t lock = file_table.Lock(*file_table.Find(kTag));
    if (sys::Now(CLOCK_MONOTONIC) - begin < kLockPatience) _exit(1);
    if (file_table.CoverageOf(*file_table.Find(kTag)).known) _exit(2);
    file_table.Unlock(*file_table.Find(kTag), lock);
  });
  EXPECT_FALSE(FileTable::IsOwn(entry, late));
  const uint64_t lock = file_table_.Lock(entry);
  file_table_.Unlock(entry, late);
  EXPECT_TRUE(FileTable::IsOwn(entry, lock)) << "of what was lost, nothing is let go";
  file_table_.Unlock(entry, lock);
}

}  // namespace
}  // namespace nvcache::lease
