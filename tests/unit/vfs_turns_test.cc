// SPDX-License-Identifier: BSD-3-Clause
//
// Programs without NVCache that use the same files, with locks and without.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "src/vfs/attribute_call.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/outside.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/vfs.h"
#include "tests/unit/in_engine.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

using lease::FileEntry;
using lease::FileTable;

class VfsTurnsTest : public EngineTest {
 protected:
  // No batch begins by itself.
  void WithEngine(const std::function<void()>& body, Settings settings) {
    settings.insert(settings.end(),
                    {"NVCACHE_SIZE=16M", "NVCACHE_BATCH_DELAY=60000", "NVCACHE_NOTICE=0"});
    EXPECT_EQ(RunEngine("pool", settings, body), 0);
  }
  static State StateOf(int fd) { return engine.descriptors.Of(fd)->file.load()->state.load(); }
  static uint64_t TagOf(int fd) { return lease::TagOf(BornStatOf(fd)); }
  static bool IsKnown(int fd) {
    const FileEntry* entry = engine.file_table.Find(TagOf(fd));
    return entry != nullptr && FileTable::CoverageOf(*entry).known;
  }
  static bool IsHandedOn(int fd) {
    const struct stat st = StatOf(fd);
    return engine.leases.RemembersHandOn(st.st_dev, st.st_ino);
  }
  static void Take(int fd) { BeforeLock(fd, LockStep::kTake); }
  static void Release(int fd) { BeforeLock(fd, LockStep::kRelease); }
  // As a front end does it.
  static long Sync(int fd) {
    const long result = Fsync(fd);
    return result == kNotOurs ? ::fsync(fd) : result;
  }
  // The process takes turns by it, and the file is known.
  static void BeginTurns(int fd) {
    for (int i = 0; i < 2; ++i) {
      Take(fd);
      Release(fd);
    }
    for (int i = 0; i < 4; ++i) EXPECT_EQ(Sync(fd), 0);
    EXPECT_EQ(StateOf(fd), State::kKernel);
    EXPECT_TRUE(IsKnown(fd));
  }
  static void Turn(int fd, const std::string& bytes) {
    Take(fd);
    EXPECT_EQ(Pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<long>(bytes.size()));
    EXPECT_EQ(Sync(fd), 0);
    Release(fd);
  }
  void WriteOutside(const std::string& name, const std::string& bytes) const {
    const int fd = ::open(Path(name).c_str(), O_WRONLY);
    EXPECT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
};

TEST_IN_ENGINE(VfsTurnsTest, AFileThatIsAsItWasLeftStaysKnown) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  BeginTurns(fd);
  for (int i = 0; i < 10; ++i) {
    Turn(fd, std::string(4, static_cast<char>('a' + i)));
    EXPECT_TRUE(IsKnown(fd));
  }
  EXPECT_EQ(OnDisk("a"), "jjjj");
}

TEST_IN_ENGINE(VfsTurnsTest, AFileThatWasWrittenOutsideBetweenTurnsIsUnknownForGood) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  BeginTurns(fd);
  Turn(fd, "ours");
  Turn(fd, "ours");
  WriteOutside("a", "theirs");
  Take(fd);
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_FALSE(engine.file_table.IsPending(*engine.file_table.Find(TagOf(fd))));
  EXPECT_TRUE(IsHandedOn(fd));
  EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
  EXPECT_EQ(Sync(fd), 0);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_EQ(OnDisk("a"), "Oheirs");
}

// It writes them by the same turns: the journal of a database, which is opened anew each time.
TEST_IN_ENGINE(VfsTurnsTest, NoFileIsLoggedWhoseProcessHasSeenAWriterOutside) {
  const Closing fd(Open("a", O_RDWR | O_CREAT)), beside(Open("b", O_RDWR | O_CREAT));
  BeginTurns(fd);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Sync(beside), 0);
  EXPECT_EQ(Pwrite(beside, "ours", 4, 0), 4);
  Turn(fd, "ours");
  EXPECT_TRUE(IsKnown(beside));
  EXPECT_TRUE(engine.file_table.IsPending(*engine.file_table.Find(TagOf(beside))));
  WriteOutside("a", "theirs");
  Take(fd);
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  EXPECT_EQ(Pwrite(beside, "O", 1, 0), 1);
  const Closing later(Open("c", O_RDWR | O_CREAT));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Pwrite(later, "later", 5, 0), 5);
    EXPECT_EQ(Sync(later), 0);
  }
  for (const int file : {static_cast<int>(beside), static_cast<int>(later)}) {
    EXPECT_FALSE(IsKnown(file));
  }
  EXPECT_FALSE(engine.file_table.IsPending(*engine.file_table.Find(TagOf(beside))));
}

// As the journal of a database; or the database, by a program that opens it for each transaction.
TEST_IN_ENGINE(VfsTurnsTest, AWriterOutsideIsSeenWhenAFileIsOpenedAgain) {
  const Closing lock(Open("lock", O_RDWR | O_CREAT));
  BeginTurns(lock);
  const auto turn = [this] {
    const Closing fd(Open("a", O_RDWR | O_CREAT));
    Turn(fd, "ours");
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Sync(fd), 0);
    return IsKnown(fd);
  };
  EXPECT_TRUE(turn());
  ASSERT_EQ(::chmod(Path("a").c_str(), 0640), 0);
  EXPECT_TRUE(turn());
  EXPECT_FALSE(engine.turns.with_outsider());
  WriteOutside("a", "them");
  EXPECT_FALSE(turn());
  EXPECT_TRUE(engine.turns.with_outsider());
  EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
}

// The first turn's files are in no list: they are kept as well when it ends.
TEST_IN_ENGINE(VfsTurnsTest, AFileThatWasWrittenOutsideAfterTheFirstTurnIsUnknown) {
  const Closing lock(Open("lock", O_RDWR | O_CREAT)), fd(Open("a", O_RDWR | O_CREAT));
  Take(lock);
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_EQ(Pwrite(fd, "ours", 4, 0), 4);
  Release(lock);
  EXPECT_TRUE(IsKnown(fd));
  WriteOutside("a", "theirs");
  Take(lock);
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_TRUE(IsHandedOn(fd));
  EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
}

// Nobody outside has done that; but a name or a mode may not be on the disk.
TEST_IN_ENGINE(VfsTurnsTest, AFileWhoseModeWasSetOutsideIsSyncedOnce) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  BeginTurns(fd);
  Turn(fd, "ours");
  Turn(fd, "ours");
  EXPECT_EQ(::chmod(Path("a").c_str(), 0640), 0);
  Take(fd);
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_FALSE(IsHandedOn(fd));
  EXPECT_EQ(Sync(fd), 0);
  EXPECT_TRUE(IsKnown(fd));
}

// Nobody outside uses them, so a lock says nothing of them.
TEST_IN_ENGINE(VfsTurnsTest, ExclusiveFilesStayCachedWhateverLocksEnd, kAllExclusive) {
  const Closing lock(Open("lock", O_RDWR | O_CREAT)), fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 4; ++i) {
    Take(lock);
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    EXPECT_EQ(Sync(fd), 0);
    Release(lock);
  }
  EXPECT_EQ(StateOf(fd), State::kCached);
  EXPECT_EQ(Pwrite(fd, "later", 5, 0), 5);
  EXPECT_NE(OnDisk("a"), "later");
}

// A turn ends by a close as well.
TEST_IN_ENGINE(VfsTurnsTest, AClosedDescriptorEndsALockAsWell) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const int lock = Open("lock", O_RDWR | O_CREAT);
  Take(lock);
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_EQ(Pwrite(fd, "ours", 4, 0), 4);
  EXPECT_EQ(Close(lock), 0);
  WriteOutside("a", "theirs");
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
}

TEST_IN_ENGINE(VfsTurnsTest, AWriterOutsideOfACachedFileIsSeenAndTheFileGivenBack, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_EQ(Pwrite(fd, "ours", 4, 0), 4);
  engine.cleaner.DrainAll();
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  engine.cleaner.DrainAll();
  EXPECT_FALSE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
  WriteOutside("a", "...... theirs");
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  engine.cleaner.DrainAll();
  EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
  while (StateOf(fd) == State::kCached) ::usleep(1000);
  EXPECT_EQ(StateOf(fd), State::kKernel);
  EXPECT_EQ(OnDisk("a"), "O..... theirs");
  for (uint32_t i = 0; i < kSyncsToTryAgain; ++i) Fsync(fd);
  EXPECT_EQ(StateOf(fd), State::kKernel);
}

// The disk refuses what is pending, so the file cannot be given back yet.
TEST_IN_ENGINE(VfsTurnsTest, AWriterOutsideOfAFileThatFailsIsNotForgotten, kAllExclusive) {
  ::signal(SIGXFSZ, SIG_IGN);
  const int fd = Open("a", O_RDWR | O_CREAT);
  for (int i = 0; i < 2; ++i) Fsync(fd);
  const std::string bytes(9000, 'x');
  EXPECT_EQ(Pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<long>(bytes.size()));
  engine.cleaner.DrainAll();
  WriteOutside("a", "theirs");
  EXPECT_EQ(Pwrite(fd, "late", 4, 8000), 4);
  rlimit limit = {4096, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  engine.cleaner.DrainAll();
  EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
  {
    const TableLock lock;
    GiveBackWrittenOutside();
  }
  EXPECT_EQ(StateOf(fd), State::kCached);

  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  // By itself.
  for (int ms = 0; ms < 10000 && StateOf(fd) == State::kCached; ++ms) ::usleep(1000);
  EXPECT_EQ(StateOf(fd), State::kKernel);
  EXPECT_EQ(OnDisk("a").substr(0, 8), "theirsxx");
  EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
  EXPECT_EQ(Sync(fd), 0);
  EXPECT_EQ(OnDisk("a").substr(0, 8), "Oheirsxx");
  EXPECT_EQ(Close(fd), -EFBIG);
}

// What the program itself does to a cached file in the kernel.
TEST_IN_ENGINE(VfsTurnsTest, NobodyOutsideHasCutOrTouchedIt, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 2; ++i) Fsync(fd);
  const timespec times[2] = {{1000, 0}, {2000, 0}};
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Pwrite(fd, "some bytes", 10, 0), 10);
    if (i % 2 == 0) engine.cleaner.DrainAll();
    if (i % 4 == 0) {
      EXPECT_EQ(Ftruncate(fd, i), 0);
    }
    if (i % 4 == 1) {
      EXPECT_EQ(Fallocate(fd, 0, 0, 5000 * i), 0);
    }
    if (i % 4 == 2) {
      AttributeCall call(fd);
      EXPECT_EQ(call.Begin(pool::kSetTimes), 0);
      EXPECT_EQ(::futimens(fd, times), 0);
      call.End(true);
      EXPECT_EQ(Sync(fd), 0);
    }
    if (i % 4 == 3) Publish(fd);
    engine.cleaner.DrainAll();
    EXPECT_EQ(StateOf(fd), State::kCached) << i;
  }
  EXPECT_FALSE(engine.leases.HasSaid(lease::Hindrance::kOutsideWriter));
}

}  // namespace
}  // namespace nvcache::vfs
