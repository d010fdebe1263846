// SPDX-License-Identifier: BSD-3-Clause
//
// Calls of a process whose pool is mirrored. The test is the mirror.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>

#include "src/pool/glance.h"
#include "src/pool/mirror_words.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/folder.h"
#include "src/vfs/mirrored.h"
#include "src/vfs/vfs.h"
#include "tests/unit/in_engine.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

class VfsMirrorTest : public EngineTest {
 protected:
  void MakeMirrored(const std::string& name, uint32_t commit = pool::kCommitFsync) const {
    pool::Problem problem;
    ASSERT_TRUE(pool::Pool::Create((memory_ / name).c_str(),
                                   {.size = 16u << 20, .emulate = true, .commit = commit}, nullptr,
                                   &problem))
        << problem.text.c_str();
  }
  // No batch begins by itself.
  void WithEngine(const std::function<void()>& body, uint32_t commit = pool::kCommitFsync) {
    MakeMirrored("pool", commit);
    EXPECT_EQ(RunEngine("pool", {"NVCACHE_BATCH_DELAY=60000", "NVCACHE_WRITE_BACK=always"}, body),
              0);
  }
  // As the mirror has them.
  pool::MirrorWords Words(const std::string& name = "pool") const {
    const int fd = ::open((memory_ / name).c_str(), O_RDWR | O_CLOEXEC);
    void* base = mmap(nullptr, pool::kMinPoolSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(base, MAP_FAILED);
    ::close(fd);
    pool::View view;
    view.base = static_cast<uint8_t*>(base);
    return pool::MirrorWords(view);
  }
  static void Write(int fd, const std::string& bytes, off_t at = 0) {
    ASSERT_EQ(Pwrite(fd, bytes.data(), bytes.size(), at), static_cast<long>(bytes.size()));
  }
  static bool IsPoolMapped(const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(path) != std::string::npos) return true;
    }
    return false;
  }

  // While it lives, they have all that is asked for.
  class Images {
   public:
    explicit Images(const pool::MirrorWords& words)
        : thread_([this, words] {
            while (!ends_) {
              words.SetMirrored(words.next());
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
          }) {}
    ~Images() {
      ends_ = true;
      thread_.join();
    }
    Images(const Images&) = delete;
    Images& operator=(const Images&) = delete;

   private:
    std::atomic<bool> ends_{false};
    std::thread thread_;
  };

  // A call in a thread, that waits, perhaps.
  class Waiter {
   public:
    explicit Waiter(const std::function<long()>& call)
        : thread_([this, call] {
            result_ = call();
            over_ = true;
          }) {}
    ~Waiter() {
      if (thread_.joinable()) thread_.join();
    }
    // Long enough for one that should wait to show that it does not.
    bool Waits() const {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return !over_;
    }
    long Result() {
      thread_.join();
      return result_;
    }

   private:
    std::atomic<bool> over_{false};
    long result_ = 0;
    std::thread thread_;
  };

  // On a slow machine the call has not drawn its LSN yet, and so one position would not do.
  static long ResultWithImages(Waiter* waiter, const pool::MirrorWords& words) {
    const Images images(words);
    return waiter->Result();
  }
};

TEST_F(VfsMirrorTest, ASyncWaitsForTheImages) {
  WithEngine([&] {
    const pool::MirrorWords words = Words();
    words.SetState(pool::kMirrorMirrored);
    const int fd = Open("a", O_CREAT | O_RDWR);
    Write(fd, "bytes");
    EXPECT_EQ(Fsync(fd), 0);
    const pool::Lsn before = words.next();
    words.SetMirrored(before);
    Waiter waiter([&] { return AwaitMirrorOf(fd); });
    EXPECT_TRUE(waiter.Waits());
    EXPECT_EQ(ResultWithImages(&waiter, words), 0);
    EXPECT_GT(words.next(), before);
    EXPECT_EQ(OnDisk("a"), "") << "the images have it";
    EXPECT_EQ(Close(fd), 0);
  });
}

TEST_F(VfsMirrorTest, WaitsAreCounted) {
  WithEngine([&] {
    const pool::MirrorWords words = Words();
    const auto count = [&] {
      const pool::MirrorWaits waits = words.waits();
      return std::accumulate(waits.counts, std::end(waits.counts), uint64_t{0});
    };
    words.SetState(pool::kMirrorMirrored);
    const int fd = Open("a", O_CREAT | O_RDWR);
    EXPECT_EQ(AwaitMirrorOfChange(fd, 0), 0);
    EXPECT_EQ(count(), 0u) << "it promises nothing";
    Waiter waiter([&] { return AwaitMirrorOf(fd); });
    EXPECT_TRUE(waiter.Waits());
    EXPECT_EQ(count(), 0u) << "it is not over";
    EXPECT_EQ(ResultWithImages(&waiter, words), 0);
    EXPECT_EQ(count(), 1u);
    EXPECT_GT(words.waits().waited, 0u);
    const uint32_t bucket = pool::MirrorBucket(words.waits().waited);
    EXPECT_EQ(words.waits().counts[bucket], 1u);
    words.SetState(pool::kMirrorReal);
    EXPECT_EQ(AwaitMirrorOf(fd), 0);
    EXPECT_EQ(count(), 2u) << "a real sync";
    EXPECT_EQ(words.waits().failed, 0u);
    EXPECT_EQ(AwaitMirrorOf(-1), -EBADF);
    words.SetState(pool::kMirrorFenced);
    EXPECT_EQ(AwaitMirrorOf(fd), -EIO);
    EXPECT_EQ(words.waits().failed, 2u);
    EXPECT_EQ(count(), 2u);
    EXPECT_EQ(Close(fd), 0);
  });
}

// The log is no help then.
TEST_F(VfsMirrorTest, BelowTheQuorumASyncIsReal) {
  for (const bool all : {false, true}) {
    SCOPED_TRACE(all);
    const std::string pool = all ? "all" : "one";
    MakeMirrored(pool);
    const auto body = [&] {
      const pool::MirrorWords words = Words(pool);
      words.SetState(pool::kMirrorReal);
      const int fd = Open(pool, O_CREAT | O_RDWR);
      Write(fd, "bytes");
      EXPECT_EQ(Fsync(fd), 0);
      EXPECT_EQ(OnDisk(pool), "");
      EXPECT_EQ(all ? AwaitMirrorOfAll() : AwaitMirrorOf(fd), 0);
      EXPECT_EQ(OnDisk(pool), "bytes");
      EXPECT_EQ(Close(fd), 0);
    };
    EXPECT_EQ(RunEngine(pool, {"NVCACHE_BATCH_DELAY=60000", "NVCACHE_WRITE_BACK=always"}, body), 0);
  }
}

TEST_F(VfsMirrorTest, ASyncThatFailsForRealFails) {
  WithEngine([&] {
    Words().SetState(pool::kMirrorReal);
    EXPECT_EQ(AwaitMirrorOf(-1), -EBADF);
  });
}

// It has no log, and shares its parent's promise.
TEST_F(VfsMirrorTest, AProcessThatHasNoPoolWaits) {
  WithEngine([&] {
    const int fd = Open("a", O_CREAT | O_RDWR);
    Words().SetState(pool::kMirrorFenced);
    EXPECT_EQ(AwaitMirrorOf(fd), -EIO);
    BeforeFork();
    EXPECT_EQ(test::InChild([&] {
                AfterForkInChild();
                return static_cast<int>(-AwaitMirrorOf(fd));
              }),
              EIO)
        << "a child of fork";
    AfterForkInParent();
    EXPECT_EQ(Close(fd), 0);
    Release();
    EXPECT_FALSE(engine.attached());
    EXPECT_EQ(AwaitMirrorOf(fd), -EIO);
    Retire(Hindrance::kTables);
    EXPECT_EQ(AwaitMirrorOf(fd), -EIO);
  });
}

TEST_F(VfsMirrorTest, APoolOfItsOwnIsNotWaitedFor) {
  const auto body = [&] {
    EXPECT_FALSE(IsMirrored());
    const int fd = Open("a", O_CREAT | O_RDWR);
    Write(fd, "bytes");
    EXPECT_EQ(AwaitMirrorOf(fd), 0);
    EXPECT_EQ(AwaitMirrorOfAll(), 0);
    EXPECT_EQ(OnDisk("a"), "");
    EXPECT_EQ(Close(fd), 0);
  };
  EXPECT_EQ(
      RunEngine("pool",
                {"NVCACHE_SIZE=16M", "NVCACHE_BATCH_DELAY=60000", "NVCACHE_WRITE_BACK=always"},
                body),
      0);
}

TEST_F(VfsMirrorTest, WhatPromisesWaits) {
  for (const uint32_t commit : {pool::kCommitFsync, pool::kCommitWrite}) {
    const bool all = commit == pool::kCommitWrite;
    SCOPED_TRACE(all);
    const std::string pool = all ? "write" : "fsync";
    MakeMirrored(pool, commit);
    const auto body = [&] {
      Words(pool).SetState(pool::kMirrorFenced);
      const int plain = Open("plain", O_CREAT | O_RDWR);
      const int durable = Open("durable", O_CREAT | O_RDWR | O_DSYNC);
      int ends[2];
      ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
      const long fails = all ? -EIO : 0;
      EXPECT_EQ(AwaitMirrorOfChange(plain, 0), fails);
      EXPECT_EQ(AwaitMirrorOfNames(), fails);
      EXPECT_EQ(AwaitMirrorOfChange(durable, 0), -EIO);
      EXPECT_EQ(AwaitMirrorOfChange(plain, RWF_DSYNC), -EIO);
      EXPECT_EQ(AwaitMirrorOfChange(ends[1], RWF_DSYNC), 0) << "no file";
      EXPECT_EQ(Close(plain), 0);
      EXPECT_EQ(Close(durable), 0);
    };
    EXPECT_EQ(RunEngine(pool, {"NVCACHE_BATCH_DELAY=60000"}, body), 0);
  }
}

TEST_F(VfsMirrorTest, WithCommitAtOutputASyncIsToldAndOutputsWait) {
  WithEngine(
      [&] {
        const pool::MirrorWords words = Words();
        words.SetState(pool::kMirrorMirrored);
        const int fd = Open("a", O_CREAT | O_RDWR);
        Write(fd, "bytes");
        EXPECT_EQ(HoldOutput(Output::kPipe), 0) << "nothing was told";
        EXPECT_EQ(AwaitMirrorOf(fd), 0) << "it is told";
        EXPECT_TRUE(HoldsOutputs());
        EXPECT_EQ(HoldOutputOf(fd), 0) << "the log has what is written there";
        EXPECT_EQ(HoldClose(fd), 0);
        Waiter waiter([] { return HoldOutput(Output::kPipe); });
        EXPECT_TRUE(waiter.Waits());
        EXPECT_EQ(ResultWithImages(&waiter, words), 0);
        EXPECT_FALSE(HoldsOutputs());
        EXPECT_EQ(words.outputs().counts[static_cast<uint32_t>(Output::kPipe)], 1u);
        EXPECT_EQ(AwaitMirrorOf(fd), 0);
        words.SetState(pool::kMirrorFailing);
        EXPECT_EQ(HoldOutput(Output::kExit), -EIO) << "what was told cannot be kept";
        EXPECT_EQ(AwaitMirrorOf(fd), -EIO) << "nothing is told";
        words.SetState(pool::kMirrorMirrored);
        Waiter kernels([] { return AwaitMirrorOfKernel(); });
        EXPECT_TRUE(kernels.Waits()) << "what the kernel does later is not seen";
        EXPECT_EQ(ResultWithImages(&kernels, words), 0);
        engine.mirror.StopTelling();
        Waiter unseen([fd] { return AwaitMirrorOf(fd); });
        EXPECT_TRUE(unseen.Waits()) << "outputs are not seen";
        EXPECT_EQ(ResultWithImages(&unseen, words), 0);
        EXPECT_EQ(Close(fd), 0);
      },
      pool::kCommitOutput);
}

// The images would have records of a file that the disk has not, if the machine died.
TEST_F(VfsMirrorTest, AFileIsRemovedOnceTheImagesKnow) {
  WithEngine([&] {
    const pool::MirrorWords words = Words();
    words.SetState(pool::kMirrorMirrored);
    const std::string path = Path("a");
    const auto announce = [&] { return Removal().Announce(AT_FDCWD, path.c_str()); };
    const auto is_noted = [&](int fd) {
      Access access;
      EXPECT_EQ(access.Enter(fd, Access::kData), 0);
      pool::FileRecord record;
      EXPECT_TRUE(engine.log.CopyFileRecord(access.file().tag, &record));
      return (record.flags & pool::kFileRemoved) != 0;
    };
    ::close(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_EQ(announce(), 0) << "no log has it";
    const int fd = Open("a");
    Write(fd, "bytes");
    bool was_noted = false;
    Waiter waiter([&] {
      Removal removal;
      const long error = removal.Announce(AT_FDCWD, path.c_str());
      was_noted = is_noted(fd);
      return error;
    });
    EXPECT_TRUE(waiter.Waits());
    // Before the images are waited for.
    while (!is_noted(fd)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ResultWithImages(&waiter, words), 0);
    EXPECT_TRUE(was_noted);
    EXPECT_FALSE(is_noted(fd)) << "it was not removed";
    ASSERT_EQ(Drain(fd), 0);
    words.SetState(pool::kMirrorFenced);
    EXPECT_EQ(announce(), -EIO) << "the images may have what the disk has";
    EXPECT_EQ(::link(path.c_str(), Path("b").c_str()), 0);
    EXPECT_EQ(announce(), 0) << "it is not its last name";
    EXPECT_EQ(Removal().Announce(AT_FDCWD, Path("none").c_str()), 0);
    EXPECT_EQ(Close(fd), 0);
  });
}

// So the log has it soon, and the next one is fast.
TEST_F(VfsMirrorTest, WhereAllChangesWaitEachIsAsIfItWereSynced) {
  MakeMirrored("pool", pool::kCommitWrite);
  const auto body = [&] {
    const pool::MirrorWords words = Words();
    words.SetState(pool::kMirrorMirrored);
    const Images images(words);
    const int fd = Open("a", O_CREAT | O_RDWR);
    const std::string path = Path("a");
    for (int i = 0; i < 2; ++i) {
      Write(fd, "1");
      EXPECT_EQ(AwaitMirrorOfChange(fd, 0), 0);
    }
    Write(fd, "2");
    EXPECT_EQ(Fsync(fd), 0) << "the log has it";
    Folder folder;
    ASSERT_TRUE(folder.Find(AT_FDCWD, path.c_str(), false));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(SyncFolderOf(AT_FDCWD, path.c_str()), 0);
    EXPECT_TRUE(folder.IsKnown());
    EXPECT_EQ(SyncFolderOf(AT_FDCWD, Path("none/none").c_str()), 0);
    EXPECT_EQ(AwaitMirrorOfAttributes(AT_FDCWD, path.c_str()), 0);
    EXPECT_EQ(AwaitMirrorOfAttributes(fd, nullptr), 0);
    const int reference = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    EXPECT_EQ(AwaitMirrorOfAttributes(reference, nullptr), 0);
    ::close(reference);
    const int unsynced = ::open("/proc/self/comm", O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(AwaitMirrorOfChange(unsynced, 0), 0) << "no disk has it";
    ::close(unsynced);
    EXPECT_EQ(Close(fd), 0);
  };
  EXPECT_EQ(RunEngine("pool", {"NVCACHE_BATCH_DELAY=60000", "NVCACHE_NAMES=auto"}, body), 0);
}

// From then on its syncs are real and wait for nobody. So it has to wait before.
TEST_F(VfsMirrorTest, BeforeRightsAreGivenUpAllIsSettled) {
  WithEngine([&] {
    const pool::MirrorWords words = Words();
    words.SetState(pool::kMirrorMirrored);
    const int fd = Open("a", O_CREAT | O_RDWR);
    Write(fd, "bytes");
    ASSERT_TRUE(engine.attached());
    Waiter waiter([&] {
      BeforeRights();
      return 0;
    });
    EXPECT_TRUE(waiter.Waits());
    while (OnDisk("a") != "bytes") std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ResultWithImages(&waiter, words), 0);
    EXPECT_FALSE(IsMirrored());
    words.SetState(pool::kMirrorFenced);
    EXPECT_EQ(AwaitMirrorOf(fd), 0);
    AfterRights();
    EXPECT_EQ(Close(Open("b", O_CREAT | O_RDWR)), 0);
    EXPECT_TRUE(engine.attached());
    EXPECT_EQ(AwaitMirrorOf(fd), -EIO) << "it has the pool again";
    EXPECT_EQ(Close(fd), 0);
  });
}

// The test has one mapping of the pool itself.
TEST_F(VfsMirrorTest, NoWordsAreMappedAfterRightsWereGivenUp) {
  WithEngine([&] {
    EXPECT_TRUE(IsPoolMapped(memory_ / "pool"));
    BeforeRights();
    EXPECT_FALSE(IsPoolMapped(memory_ / "pool"));
    EXPECT_FALSE(IsMirrored());
    AfterRights();
  });
}

TEST_F(VfsMirrorTest, APromiseThatCannotBeSettledIsBroken) {
  WithEngine([&] {
    const pool::MirrorWords words = Words();
    words.SetState(pool::kMirrorMirrored);
    const int fd = Open("a", O_CREAT | O_RDWR);
    Write(fd, "bytes");
    words.SetState(pool::kMirrorFailing);
    BeforeRights();
    words.SetState(pool::kMirrorReal);
    EXPECT_TRUE(IsMirrored());
    EXPECT_EQ(AwaitMirrorOf(fd), -EIO);
    AfterRights();
    EXPECT_EQ(Close(fd), 0);
  });
}

// A thread that waits while its words are taken away syncs for real.
TEST_F(VfsMirrorTest, AWaitOutlivesItsWords) {
  WithEngine([&] {
    Words().SetState(pool::kMirrorLeaving);
    const int fd = Open("a", O_CREAT | O_RDWR);
    Write(fd, "bytes");
    Waiter waiter([&] { return AwaitMirrorOf(fd); });
    EXPECT_TRUE(waiter.Waits());
    {
      TableLock lock;
      engine.mirror.Close(true);
    }
    EXPECT_EQ(waiter.Result(), 0);
    EXPECT_EQ(OnDisk("a"), "bytes");
    EXPECT_EQ(Close(fd), 0);
  });
}

// A wait that begins in the middle of a change is not left with words that nobody writes to.
TEST_F(VfsMirrorTest, WaitsMeetEachMomentOfAChange) {
  WithEngine([&] {
    const pool::MirrorWords words = Words();
    words.SetState(pool::kMirrorMirrored);
    words.SetMirrored(pool::Lsn{1} << 40);
    const std::string path = memory_ / "pool";
    const uint64_t id = pool::GlanceAt(path.c_str()).id;
    std::atomic<bool> over{false};
    std::atomic<uint64_t> waits{0};
    Waiter waiter([&] {
      long error = 0;
      for (; !over && error == 0; ++waits) error = AwaitMirrorOfKernel();
      return error;
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end) {
      TableLock lock;
      engine.mirror.Close(true);
      EXPECT_TRUE(engine.mirror.Follow(path.c_str(), id, pool::kCommitFsync));
    }
    over = true;
    EXPECT_EQ(waiter.Result(), 0);
    EXPECT_GT(waits, 100u);
  });
}

TEST_F(VfsMirrorTest, AnotherPoolIsFollowed) {
  WithEngine([&] {
    Words().SetState(pool::kMirrorLeaving);
    const int fd = Open("a", O_CREAT | O_RDWR);
    Waiter waiter([&] { return AwaitMirrorOf(fd); });
    EXPECT_TRUE(waiter.Waits());
    EXPECT_EQ(Close(fd), 0);
    Release();
    MakeMirrored("other");
    Words("other").SetState(pool::kMirrorFenced);
    ASSERT_EQ(::rename((memory_ / "other").c_str(), (memory_ / "pool").c_str()), 0);
    const int other = Open("b", O_CREAT | O_RDWR);
    ASSERT_TRUE(engine.attached());
    EXPECT_EQ(AwaitMirrorOf(other), -EIO);
    EXPECT_NE(waiter.Result(), 0);
    EXPECT_EQ(Close(other), 0);
  });
}

}  // namespace
}  // namespace nvcache::vfs
