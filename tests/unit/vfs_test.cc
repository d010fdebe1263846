// SPDX-License-Identifier: BSD-3-Clause
//
// POSIX semantics through the engine's front door, in one thread. A process has one engine, so
// each test runs in a child of its own.
#include "src/vfs/vfs.h"

#include <errno.h>
#include <link.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "src/sys/deferral.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/recent_records.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/mend.h"
#include "tests/unit/attributes.h"
#include "tests/unit/found.h"
#include "tests/unit/in_engine.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

constexpr auto kIsRemoved = NameGuard::Fate::kIsRemoved;
// The cleanup thread, unless somebody waits for it.
constexpr const char* kHeldBack = "NVCACHE_BATCH_MIN=1000";
constexpr const char* kHeldBackLong = "NVCACHE_BATCH_DELAY=60000";
constexpr const char* kRoomyPool = "NVCACHE_SIZE=4M";
constexpr const char* kLargeBatch = "NVCACHE_BATCH_MAX=10000";

class VfsTest : public EngineTest {
 protected:
  void WithEngine(const std::function<void()>& body, Settings settings = {}) {
    settings.insert(settings.begin(), {"NVCACHE_WRITE_BACK=always", "NVCACHE_SIZE=1M"});
    EXPECT_EQ(RunEngine("pool", settings, body), 0);
  }

  // A file that the engine caches, with `content`.
  int Cached(const std::string& name, const std::string& content, int flags = 0) {
    const int fd = Open(name, O_RDWR | O_CREAT | flags);
    EXPECT_EQ(Pwrite(fd, content.data(), content.size(), 0), static_cast<long>(content.size()));
    return fd;
  }
  static std::string ReadSome(int fd, size_t n, off_t at) {
    std::string bytes(n, '\0');
    const long got = Pread(fd, bytes.data(), n, at);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  // While the file's own descriptor is one that cannot be synced.
  static void WithoutSync(int fd, const std::function<void()>& body) {
    rlimit limit = {};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct stat st, other;
    ASSERT_EQ(::fstat(fd, &st), 0);
    int backing = static_cast<int>(limit.rlim_cur) - 1;
    while (backing >= 0 && !(IsInternal(backing) && ::fstat(backing, &other) == 0 &&
                             other.st_ino == st.st_ino && other.st_dev == st.st_dev)) {
      --backing;
    }
    ASSERT_GE(backing, 0);
    const int spare = ::dup(backing);
    const int null = ::open("/dev/null", O_RDWR);
    ASSERT_EQ(::dup2(null, backing), backing);
    // Nor can another one be opened.
    const rlimit none = {0, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    body();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_EQ(::dup2(spare, backing), backing);
    ::close(spare);
    ::close(null);
  }
  // Calls function(record, header) for what recovery would find of the file now; `record` is the
  // newest that describes it.
  template <typename Function>
  void ForEachRecordOf(const std::string& name, Function function) {
    test::ForEachCommitted(memory_ / "pool", [&](const test::FoundRecord& found) {
      const pool::FileRecord record = found.file_record();
      if (Path(name) == record.path) function(record, found.header);
    });
  }
  // The newest record that describes the file, if there is one.
  std::optional<pool::FileRecord> RecordOf(const std::string& name) {
    std::optional<pool::FileRecord> newest;
    ForEachRecordOf(name, [&](const auto& record, const auto&) { newest = record; });
    return newest;
  }
  // The size that the newest truncation in the log says.
  std::optional<uint64_t> SizeInLog(const std::string& name) {
    std::optional<uint64_t> size;
    ForEachRecordOf(name, [&](const auto&, const nvlog::RecordHeader& header) {
      if (header.kind == nvlog::Kind::kTruncate) size = header.offset;
    });
    return size;
  }
  static File& FileOf(int fd) { return *engine.descriptors.Of(fd)->file.load(); }
  // The next record waits for no sync.
  static bool IsSettled(int fd) { return IsSynced(FileOf(fd)); }
};

// The pool stays attached: a log needs none.
TEST_F(VfsTest, WithoutThreadsNothingIsCached) {
  constexpr Host kNoThreads = {[](void (*)(void*), void*) -> void* { return nullptr; },
                               [](void*) {}};
  host_ = &kNoThreads;
  WithEngine([&] {
    const int fd = Open("f", O_RDWR | O_CREAT);
    EXPECT_TRUE(engine.attached() && !engine.busy());
    EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
    ::close(fd);
  });
}

TEST_F(VfsTest, WithoutAPoolNothingIsOurs) {
  const int status = test::InChild([&] {
    char* none[] = {nullptr};
    Start(test::UsualHost(), none);
    const int fd = Open("a", O_RDWR | O_CREAT);
    EXPECT_EQ(Write(fd, "x", 1), kNotOurs);
    EXPECT_EQ(Close(fd), kNotOurs);
    Stop();
    return HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_IN_ENGINE(VfsTest, WritesAreSeenByReadsAtOnceAndByTheDiskInTheEnd) {
  const int fd = Cached("a", "hello world");
  EXPECT_EQ(ReadSome(fd, 100, 0), "hello world");
  EXPECT_EQ(ReadSome(fd, 3, 6), "wor");
  EXPECT_EQ(ReadSome(fd, 3, 11), "");
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(OnDisk("a"), "hello world") << "after the last close everybody sees it";
}

TEST_IN_ENGINE(VfsTest, HolesReadAsZeros) {
  const Closing fd(Cached("a", "x"));
  EXPECT_EQ(Pwrite(fd, "y", 1, 100000), 1);
  EXPECT_EQ(ReadSome(fd, 100, 5000), std::string(100, '\0'));
  EXPECT_EQ(ReadSome(fd, 200000, 0).size(), 100001u);
  EXPECT_EQ(Lseek(fd, 0, SEEK_END), 100001);
}

TEST_IN_ENGINE(VfsTest, DuplicatesShareOneOffset) {
  const int fd = Cached("a", "0123456789");
  const int copy = static_cast<int>(Dup(fd));
  char c;
  EXPECT_EQ(Read(fd, &c, 1), 1);
  EXPECT_EQ(Read(copy, &c, 1), 1);
  EXPECT_EQ(c, '1');
  EXPECT_EQ(Lseek(copy, 0, SEEK_CUR), 2);
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(Read(copy, &c, 1), 1);
  EXPECT_EQ(c, '2');
  const int other = Open("a", O_RDONLY);
  EXPECT_EQ(Read(other, &c, 1), 1);
  EXPECT_EQ(c, '0') << "another description, another offset";
}

TEST_IN_ENGINE(VfsTest, Dup2ClosesWhatWasThere) {
  const int a = Cached("a", "aaaa");
  const int b = Cached("b", "bbbb");
  EXPECT_EQ(Dup2(a, b), b);
  EXPECT_EQ(ReadSome(b, 4, 0), "aaaa");
  EXPECT_EQ(OnDisk("b"), "bbbb");
  EXPECT_EQ(Dup2(9999, a), -EBADF);
  EXPECT_EQ(ReadSome(a, 4, 0), "aaaa") << "a failed dup2 closes nothing";
}

TEST_IN_ENGINE(VfsTest, ADescriptorOpenedBeforeSeesWhatIsWrittenAfter) {
  test::WriteFile(disk_ / "a", "old content");
  const int reader = Open("a", O_RDONLY);
  char bytes[4] = {};
  EXPECT_EQ(Read(reader, bytes, 4), 4);  // by the kernel: nobody writes yet
  const int writer = Open("a", O_WRONLY);
  EXPECT_EQ(Pwrite(writer, "NEW", 3, 4), 3);
  EXPECT_EQ(Read(reader, bytes, 3), 3);
  EXPECT_EQ(std::string(bytes, 3), "NEW") << "and its offset went along";
  EXPECT_EQ(ReadSome(reader, 100, 0), "old NEWtent");
  EXPECT_EQ(Write(reader, "x", 1), -EBADF);
  EXPECT_EQ(Read(writer, bytes, 1), -EBADF);
}

TEST_IN_ENGINE(VfsTest, AppendGoesToTheEndWhateverTheOffset) {
  const int fd = Cached("a", "start");
  const int log = Open("a", O_WRONLY | O_APPEND);
  EXPECT_EQ(Write(log, "+1", 2), 2);
  EXPECT_EQ(Pwrite(fd, "more", 4, 7), 4);
  EXPECT_EQ(Pwrite(log, "+2", 2, 0), 2) << "Linux ignores the offset";
  EXPECT_EQ(ReadSome(fd, 100, 0), "start+1more+2");
  EXPECT_EQ(Fcntl(log, F_SETFL, 0), 0);
  EXPECT_EQ(Pwrite(log, "S", 1, 0), 1);
  EXPECT_EQ(ReadSome(fd, 5, 0), "Start");
  EXPECT_EQ(Fcntl(fd, F_SETFL, O_APPEND), 0);
  EXPECT_EQ(Write(fd, "!", 1), 1);
  EXPECT_EQ(ReadSome(fd, 100, 0), "Start+1more+2!");
  EXPECT_EQ(Close(fd) + Close(log), 0);
  EXPECT_EQ(OnDisk("a"), "Start+1more+2!");
}

TEST_IN_ENGINE(VfsTest, TruncationIsFinal) {
  const int fd = Cached("a", std::string(10000, 'x'));
  EXPECT_EQ(Ftruncate(fd, 5), 0);
  EXPECT_EQ(ReadSome(fd, 100, 0), "xxxxx");
  EXPECT_EQ(Pwrite(fd, "y", 1, 8), 1);
  EXPECT_EQ(ReadSome(fd, 100, 0), std::string("xxxxx\0\0\0y", 9));
  const int again = Open("a", O_WRONLY | O_TRUNC);
  EXPECT_EQ(ReadSome(fd, 100, 0), "");
  EXPECT_EQ(Pwrite(again, "z", 1, 2), 1);
  EXPECT_EQ(Close(fd) + Close(again), 0);
  EXPECT_EQ(OnDisk("a"), std::string("\0\0z", 3));
}

// As SQLite does with its journal: what is pending need not reach the disk first, nor is a sync
// waited for; the record says that the file is empty.
TEST_IN_ENGINE(VfsTest, AFileIsEmptiedWithoutWaitingForTheDisk, kHeldBack, kHeldBackLong) {
  const Closing fd(Cached("a", std::string(10000, 'a')));
  EXPECT_EQ(Fsync(fd), 0);  // it was new
  File& file = *engine.descriptors.Of(fd)->file.load();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Pwrite(fd, "old", 3, 5000), 3);
    const uint64_t pending = file.pending.load();
    EXPECT_GT(pending, 0u);
    EXPECT_EQ(Ftruncate(fd, 0), 0);
    EXPECT_EQ(OnDisk("a"), "");
    EXPECT_EQ(Fsync(fd), 0);
    EXPECT_GT(file.pending.load(), pending) << "nothing was drained";
    EXPECT_EQ(SizeInLog("a"), 0u);
    EXPECT_EQ(ReadSome(fd, 9, 0), "");
  }
  EXPECT_EQ(Pwrite(fd, "new", 3, 4999), 3);
  EXPECT_EQ(ReadSome(fd, 9000, 0), std::string(4999, '\0') + "new");
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_EQ(OnDisk("a"), std::string(4999, '\0') + "new");
  EXPECT_EQ(ReadSome(fd, 9000, 0), std::string(4999, '\0') + "new");
  EXPECT_EQ(Ftruncate(fd, 0), 0);
  EXPECT_EQ(Ftruncate(fd, 6), 0);
  EXPECT_EQ(SizeInLog("a"), 6u);
  EXPECT_EQ(OnDisk("a"), std::string(6, '\0'));
}

// As SQLite does with its database at each checkpoint.
TEST_IN_ENGINE(VfsTest, ASizeThatStaysIsSetWithoutWaitingForTheDisk, kHeldBack, kHeldBackLong) {
  const Closing fd(Cached("a", "first"));
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(Pwrite(fd, "second", 6, 5000), 6);
  File& file = *engine.descriptors.Of(fd)->file.load();
  const uint64_t pending = file.pending.load();
  EXPECT_EQ(Ftruncate(fd, 5006), 0);
  EXPECT_EQ(file.pending.load(), pending) << "nothing was drained";
  EXPECT_EQ(OnDisk("a").size(), 5006u);
  EXPECT_EQ(ReadSome(fd, 100, 4999), std::string(1, '\0') + "second");
  EXPECT_EQ(Ftruncate(fd, 5005), 0);
  EXPECT_GT(file.pending.load(), pending) << "nor is a byte less a matter";
  EXPECT_EQ(SizeInLog("a"), 5005u);
  EXPECT_EQ(OnDisk("a").size(), 5005u);
  EXPECT_EQ(ReadSome(fd, 100, 4999), std::string(1, '\0') + "secon");
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_EQ(OnDisk("a"), "first" + std::string(4995, '\0') + "secon");
}

// Who looks without us sees no size and no hole before what was written first, to another file,
// too.
TEST_IN_ENGINE(VfsTest, WhatWasWrittenIsSeenBeforeASize, kHeldBack) {
  const int data = Cached("data", "aaaa"), other = Cached("other", std::string(10000, 'x'));
  struct stat st;
  ASSERT_EQ(::fstat(other, &st), 0);
  EXPECT_TRUE(PublishInode(st.st_dev, st.st_ino));
  EXPECT_EQ(Pwrite(data, "b", 1, 0), 1);
  EXPECT_EQ(OnDisk("data"), "aaaa") << "nobody has brought it";
  EXPECT_EQ(Ftruncate(other, 5000), 0);
  EXPECT_EQ(OnDisk("data"), "baaa");
  EXPECT_EQ(Pwrite(data, "c", 1, 1), 1);
  EXPECT_EQ(Fallocate(other, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_EQ(OnDisk("data"), "bcaa");
  EXPECT_EQ(Pwrite(data, "d", 1, 2), 1);
  EXPECT_EQ(Ftruncate(other, 9000), 0);
  EXPECT_EQ(OnDisk("data"), "bcda");
  EXPECT_EQ(Pwrite(data, "e", 1, 3), 1);
  EXPECT_EQ(Fallocate(other, 0, 0, 12000), 0);
  EXPECT_EQ(OnDisk("data"), "bcde");
}

// A cut is synced like data, and soon: others may write to the file when it is closed.
TEST_IN_ENGINE(VfsTest, ACutIsSoonOnDisk) {
  const int fd = Cached("a", "some bytes");
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_EQ(Ftruncate(fd, 0), 0);
  EXPECT_EQ(Close(fd), 0);
  for (int i = 0; i < 1000 && RecordOf("a").has_value(); ++i) usleep(10000);
  EXPECT_FALSE(RecordOf("a").has_value());
}

TEST_IN_ENGINE(VfsTest, StatSeesTheNewestSize) {
  const int fd = Cached("a", std::string(5000, 'x'));
  struct stat st;
  ASSERT_EQ(::fstat(fd, &st), 0);
  off_t size = st.st_size;
  NewestSize(st.st_dev, st.st_ino, &size);
  EXPECT_EQ(size, 5000);
  size = 42;
  NewestSize(st.st_dev, st.st_ino + 1, &size);
  EXPECT_EQ(size, 42);
}

// Size, blocks and times are the kernel's, once it has the bytes. It may have got them since it was
// asked, by the cleanup thread, so it is asked again, whoever has brought them.
TEST_IN_ENGINE(VfsTest, AttributesAreThoseOfTheBytesWritten) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  const std::string data(10000, 'x');
  for (int round = 0; round < 3; ++round) {
    struct stat before, after;
    ASSERT_EQ(::fstat(fd, &before), 0);
    ASSERT_EQ(Pwrite(fd, data.data(), data.size(), round * 100000), 10000);
    EXPECT_TRUE(PublishInode(before.st_dev, before.st_ino));
    ASSERT_EQ(::fstat(fd, &after), 0);
    EXPECT_EQ(after.st_size, round * 100000 + 10000);
    EXPECT_GT(after.st_blocks, before.st_blocks);
    EXPECT_TRUE(before.st_mtim.tv_sec != after.st_mtim.tv_sec ||
                before.st_mtim.tv_nsec != after.st_mtim.tv_nsec);
    EXPECT_TRUE(PublishInode(before.st_dev, before.st_ino));
    EXPECT_FALSE(PublishInode(before.st_dev, before.st_ino + 1));
    ASSERT_EQ(Pwrite(fd, data.data(), data.size(), round * 100000 + 10000), 10000);
    EXPECT_EQ(Drain(fd), 0);
    EXPECT_TRUE(PublishInode(before.st_dev, before.st_ino));
  }
}

TEST_IN_ENGINE(VfsTest, SeekDataAndHole) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Pwrite(fd, "x", 1, 1 << 20), 1);
  EXPECT_EQ(Lseek(fd, 0, SEEK_DATA), 1 << 20);
  EXPECT_EQ(Lseek(fd, 0, SEEK_HOLE), 0);
  EXPECT_EQ(Lseek(fd, -1, SEEK_SET), -EINVAL);
  EXPECT_EQ(Lseek(fd, 0, 99), -EINVAL);
}

TEST_IN_ENGINE(VfsTest, PassThroughHandsOverBytesAndOffset) {
  const int fd = Cached("a", "0123456789");
  EXPECT_EQ(Lseek(fd, 4, SEEK_SET), 4);
  EXPECT_EQ(PassThrough(fd), 0);
  EXPECT_EQ(OnDisk("a"), "0123456789");
  char c;
  EXPECT_EQ(Read(fd, &c, 1), kNotOurs);
  EXPECT_EQ(::read(fd, &c, 1), 1);
  EXPECT_EQ(c, '4');
  const int other = Open("a", O_RDWR);
  EXPECT_EQ(Pwrite(other, "x", 1, 0), kNotOurs) << "as long as it is open";
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(Close(other), 0);
  const int fresh = Open("a", O_RDWR);
  EXPECT_EQ(Pwrite(fresh, "y", 1, 0), 1) << "a fresh start after the last close";
}

TEST_IN_ENGINE(VfsTest, ANumberThatWasClosedUnseenIsNotBelieved) {
  const int fd = Cached("a", "aaaa");
  ::close(fd);  // not through us
  const int reused = Open("b", O_RDWR | O_CREAT);
  ASSERT_EQ(reused, fd);
  EXPECT_EQ(Pwrite(reused, "bb", 2, 0), 2);
  EXPECT_EQ(Close(reused), 0);
  EXPECT_EQ(OnDisk("a"), "aaaa");
  EXPECT_EQ(OnDisk("b"), "bb");
}

TEST_IN_ENGINE(VfsTest, RenameAndUnlinkFindNothingPending) {
  const int fd = Cached("a", "content");
  {
    NameGuard guard;
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "a").c_str()), 0);
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "b").c_str()), 0);
    EXPECT_EQ(OnDisk("a"), "content");
    EXPECT_EQ(::rename((disk_ / "a").c_str(), (disk_ / "b").c_str()), 0);
  }
  EXPECT_EQ(Pwrite(fd, "CON", 3, 0), 3) << "still cached";
  {
    NameGuard guard;
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "b").c_str()), 0);
    EXPECT_EQ(::unlink((disk_ / "b").c_str()), 0);
  }
  EXPECT_EQ(Pwrite(fd, "x", 1, 0), kNotOurs) << "without a name it cannot be recovered";
}

// What it has in the log is no reason to wait for the disk: the log says that it is gone.
TEST_F(VfsTest, AFileThatLosesItsLastNameIsNotDrained) {
  const auto is_removed = [&](const char* name) {
    const std::optional<pool::FileRecord> record = RecordOf(name);
    return record.has_value() && (record->flags & pool::kFileRemoved) != 0;
  };
  std::ofstream(disk_ / "old") << "old";
  WithEngine(
      [&] {
        for (const char* name : {"new", "old"}) {
          const int fd = Cached(name, "content");
          {
            NameGuard guard;
            EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / name).c_str(), false, kIsRemoved), 0);
            EXPECT_EQ(OnDisk(name), std::string(name) == "new" ? "" : "old");
            EXPECT_TRUE(is_removed(name));
            EXPECT_EQ(::unlink((disk_ / name).c_str()), 0);
          }
          EXPECT_TRUE(is_removed(name));
          EXPECT_EQ(ReadSome(fd, 10, 0), "content");
          EXPECT_EQ(Pwrite(fd, "x", 1, 0), kNotOurs) << "nothing of it goes to the log any more";
          char bytes[7] = {};
          EXPECT_EQ(::pread(fd, bytes, 7, 0), 7);
          EXPECT_EQ(std::string(bytes, 7), "content");
          EXPECT_EQ(Close(fd), 0);
        }
      },
      {kHeldBack, kHeldBackLong});
}

// A writer that fills segments describes its file in each of them, by what it has said before.
// Nothing is written back, for the log is never short of room.
TEST_IN_ENGINE(VfsTest, AFileThatHasChangedIsDescribedAnew, kHeldBack, kHeldBackLong, kRoomyPool) {
  std::ofstream(disk_ / "file") << "old";
  const Closing fd(Cached("file", "content"));
  const std::string bytes(96 << 10, 'x');  // more than a segment
  const auto described = [&] {
    EXPECT_EQ(Pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<long>(bytes.size()));
    const std::optional<pool::FileRecord> record = RecordOf("file");
    EXPECT_TRUE(record.has_value());
    return record.has_value() ? record->mode & 07777 : 0;
  };
  EXPECT_EQ(::fchmod(fd, 0640), 0);
  test::Sets(fd, pool::kSetMode);
  EXPECT_EQ(described(), 0640u);
  EXPECT_EQ(::fchmod(fd, 0604), 0);
  test::Sets(fd, pool::kSetMode);
  EXPECT_EQ(described(), 0604u);
  EXPECT_EQ(::fchmod(fd, 0600), 0) << "by somebody else: this is seen later";
  ::usleep(kLatelyNs / 1000 * 3 / 2);
  EXPECT_EQ(described(), 0600u);
}

// The same of one that another file is renamed over.
TEST_F(VfsTest, AFileThatIsReplacedIsNotDrained) {
  for (const char* name : {"old", "new"}) std::ofstream(disk_ / name) << name;
  WithEngine(
      [&] {
        const int old = Cached("old", "content");
        {
          NameGuard guard;
          EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "new").c_str()), 0);
          EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "old").c_str(), false, kIsRemoved), 0);
          EXPECT_EQ(OnDisk("old"), "old");
          EXPECT_EQ(::rename((disk_ / "new").c_str(), (disk_ / "old").c_str()), 0);
        }
        EXPECT_EQ(ReadSome(old, 10, 0), "content");
        EXPECT_EQ(Pwrite(old, "x", 1, 0), kNotOurs);
        EXPECT_EQ(Close(old), 0);
      },
      {kHeldBack, kHeldBackLong});
  EXPECT_EQ(OnDisk("old"), "new");
}

TEST_F(VfsTest, AFileThatKeepsItsNameIsNotRemoved) {
  for (const bool other_name : {false, true}) {
    std::ofstream(disk_ / "old") << "old";
    WithEngine(
        [&] {
          const int fd = Cached("old", "content");
          {
            NameGuard guard;
            EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "old").c_str(), false, kIsRemoved), 0);
            EXPECT_EQ(OnDisk("old"), "old");
            if (other_name) {  // that somebody gives it just now
              EXPECT_EQ(::link((disk_ / "old").c_str(), (disk_ / "new").c_str()), 0);
              EXPECT_EQ(::unlink((disk_ / "old").c_str()), 0);
            }
          }
          EXPECT_EQ(OnDisk(other_name ? "new" : "old"), "content");
          if (other_name) {
            EXPECT_EQ(Pwrite(fd, "x", 1, 0), kNotOurs) << "recovery would not find it";
          } else {
            EXPECT_EQ(Pwrite(fd, "x", 1, 0), 1) << "still cached";
            const std::optional<pool::FileRecord> record = RecordOf("old");
            ASSERT_TRUE(record.has_value());
            EXPECT_EQ(record->flags & pool::kFileRemoved, 0u);
          }
          EXPECT_EQ(Close(fd), 0);
        },
        {kHeldBack, kHeldBackLong});
    ::unlink((disk_ / "old").c_str());
  }
}

TEST_IN_ENGINE(VfsTest, OpeningAFifoHoldsNobodyUp) {
  const std::string fifo = disk_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  OpenGuard guard(AT_FDCWD, fifo.c_str(), O_WRONLY | O_TRUNC, 0);
  EXPECT_FALSE(guard.holds_locks());
  guard.Opened(-1);
}

TEST_IN_ENGINE(VfsTest, AFileWhoseNameIsGoneIsTheKernelsEvenIfItHasAnother) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  ASSERT_EQ(::link((disk_ / "a").c_str(), (disk_ / "b").c_str()), 0);
  ASSERT_EQ(::unlink((disk_ / "a").c_str()), 0);  // unseen
  EXPECT_EQ(Pwrite(fd, "x", 1, 0), kNotOurs) << "recovery would not find it";
  const int other = Open("b", O_RDWR);
  EXPECT_EQ(Close(fd) + Close(other), 0);
  const int again = Open("b", O_RDWR);
  EXPECT_EQ(Pwrite(again, "x", 1, 0), 1);
}

TEST_IN_ENGINE(VfsTest, RenamingADirectoryReleasesWhatIsBelow) {
  ASSERT_EQ(::mkdir((disk_ / "d").c_str(), 0700), 0);
  const int fd = Cached("d/a", "content");
  const int target = Cached("t", "t");
  {
    NameGuard guard;
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "t").c_str()), 0);
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / "d").c_str()), 0);
    EXPECT_EQ(::rename((disk_ / "d").c_str(), (disk_ / "e").c_str()), 0);
  }
  EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
  EXPECT_EQ(FileOf(target).state.load(), State::kKernel);
  EXPECT_EQ(OnDisk("e/a"), "content");
}

TEST_IN_ENGINE(VfsTest, OursAreOutOfReach) {
  const int fd = Cached("a", "content");
  int ours = -1;
  for (int i = 0; i < 4000; ++i) {
    if (IsInternal(i)) ours = i;
  }
  ASSERT_GE(ours, 64) << "our descriptors keep out of the program's way";
  EXPECT_EQ(Close(ours), -EBADF);
  EXPECT_EQ(Dup2(ours, fd), -EBADF);
  EXPECT_EQ(Dup2(fd, ours), ours) << "who wants the number gets it";
  EXPECT_FALSE(IsInternal(ours));
  EXPECT_EQ(Pwrite(ours, "C", 1, 0), 1);
  EXPECT_EQ(Drain(ours), 0) << "the file has another descriptor of ours";
  EXPECT_EQ(OnDisk("a"), "Content");
  EXPECT_EQ(Close(ours), 0);
  const int other = Cached("b", "b");
  EXPECT_EQ(CloseRange(static_cast<unsigned>(other), ~0u, 0), 0);
  EXPECT_EQ(Pwrite(other, "x", 1, 0), kNotOurs);
  EXPECT_EQ(Pwrite(fd, "C", 1, 0), fd > other ? kNotOurs : 1);
  EXPECT_EQ(OnDisk("b"), "b");
}

TEST_IN_ENGINE(VfsTest, MoreFilesThanTheTableHoldsPassThrough) {
  const int before = Cached("before", "before");
  FillTheTable();
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Write(fd, "a", 1), kNotOurs);
  EXPECT_EQ(Pwrite(before, "B", 1, 0), 1) << "what is cached stays so";
  const int again = Open("before", O_RDWR);
  EXPECT_EQ(ReadSome(again, 100, 0), "Before") << "its file has a place";
  EXPECT_EQ(engine.statistics()->table_full, 1u);
  EXPECT_EQ(Close(before), 0);
  EXPECT_EQ(Close(again), 0);
  const int later = Open("later", O_RDWR | O_CREAT);
  EXPECT_EQ(Write(later, "a", 1), kNotOurs) << "nobody knows whether the one without a place "
                                               "is still open";
}

TEST_IN_ENGINE(VfsTest, ManyBuffersAreOneWrite) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  std::string one(5000, '1'), two(1, '2'), three(9000, '3');
  const iovec parts[] = {{one.data(), one.size()},
                         {nullptr, 0},
                         {two.data(), two.size()},
                         {three.data(), three.size()}};
  EXPECT_EQ(Writev(fd, parts, 4), 14001);
  std::string back_one(4096, '\0'), back_two(20000, '\0');
  const iovec into[] = {{back_one.data(), back_one.size()}, {back_two.data(), back_two.size()}};
  EXPECT_EQ(Preadv(fd, into, 2, 0, 0), 14001);
  EXPECT_EQ(back_one + back_two.substr(0, 14001 - 4096), one + two + three);
  EXPECT_EQ(Writev(fd, parts, -1), -EINVAL);
  EXPECT_EQ(Writev(fd, parts, 0), 0);
}

TEST_IN_ENGINE(VfsTest, AWriteLargerThanTheLogIsSplitInOrder) {
  std::string big(5 << 20, '\0');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7 >> 3);
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Write(fd, big.data(), big.size()), static_cast<long>(big.size()));
  EXPECT_EQ(ReadSome(fd, big.size(), 0), big);
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(OnDisk("a"), big);
}

TEST_F(VfsTest, WhatIsCachedIsAMatterOfPolicy) {
  test::Folder tmpfs(test::Folder::kMemory);
  auto open_tmpfs = [&] {
    const std::string path = tmpfs / "t";
    OpenGuard guard(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT, 0600);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    guard.Opened(fd);
    return fd;
  };
  WithEngine(
      [&] {
        EXPECT_EQ(Write(open_tmpfs(), "x", 1), kNotOurs);
        EXPECT_EQ(Write(Open("kept-out.tmp", O_RDWR | O_CREAT), "x", 1), kNotOurs);
        EXPECT_EQ(Write(Open("kept-in", O_RDWR | O_CREAT), "x", 1), 1);
      },
      {"NVCACHE_EXCLUDE=*.tmp"});
  WithEngine(
      [&] {
        EXPECT_EQ(Write(open_tmpfs(), "x", 1), 1);
        EXPECT_EQ(Write(Open("kept-in", O_RDWR | O_CREAT), "x", 1), kNotOurs);
      },
      {"NVCACHE_INCLUDE=" + tmpfs.path() + "/*"});
}

TEST_IN_ENGINE(VfsTest, WhatStoresNothingIsNeverCached, "NVCACHE_INCLUDE=*") {
  const int fd = ::open("/proc/self/oom_score_adj", O_RDWR, 0);
  ASSERT_GE(fd, 0);
  OpenGuard guard(AT_FDCWD, "/proc/self/oom_score_adj", O_RDWR, 0);
  guard.Opened(fd);
  EXPECT_EQ(Write(fd, "0", 1), kNotOurs);
}

// Every other thread of this process sleeps.
bool OthersSleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) continue;
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    if (!stat.empty() && stat.substr(stat.rfind(')') + 2, 1) != "S") return false;
  }
  return true;
}

// fork as a front end does it. The address sanitizer's allocator has locks that its child inherits
// as they are, so no other thread may be starting or allocating then.
pid_t Fork() {
  BeforeFork();
  while (test::kAddressSanitizer && !OthersSleep()) ::usleep(100);
  const pid_t pid = ::fork();
  pid == 0 ? AfterForkInChild() : AfterForkInParent();
  return pid;
}

// Runs `child` in a child of fork, and wants true from it.
template <typename Function>
void Forked(Function child) {
  const pid_t pid = Fork();
  if (pid == 0) {
    const bool good = child();
    Stop();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

// The parent keeps its seat, and the child takes one of its own when it wants to cache a file.
TEST_IN_ENGINE(VfsTest, AForkLeavesTheParentItsPoolThoughNoFileIsOpen) {
  const int fd = Cached("a", "parent");
  EXPECT_EQ(Close(fd), 0);
  Forked([&] {
    if (engine.attached()) return false;
    const int mine = Open("child", O_RDWR | O_CREAT);
    // A child under the thread sanitizer can have no thread.
    return Write(mine, "child", 5) == 5 && engine.busy() == !test::kThreadSanitizer;
  });
  EXPECT_TRUE(engine.attached());
  EXPECT_EQ(OnDisk("child"), "child");
  EXPECT_EQ(OnDisk("a"), "parent");
  EXPECT_EQ(Pwrite(Open("b", O_RDWR | O_CREAT), "b", 1, 0), 1);
}

TEST_IN_ENGINE(VfsTest, ASpawnLeavesTheProgramItsPoolThoughNoFileIsOpen) {
  EXPECT_EQ(Close(Cached("a", "text")), 0);
  BeforeSpawn();
  EXPECT_TRUE(engine.attached());
  EXPECT_EQ(OnDisk("a"), "text") << "the new program may not know of us";
}

// A daemon that forks again and again, each time with a cached file open, and goes on in the child:
// what the parent had, threads and all, is not the child's, and there is no end of it.
TEST_F(VfsTest, EachChildThatGoesOnHasACacheOfItsOwn) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "it wants no thread after such a fork";
  constexpr int kGenerations = 12;
  WithEngine([&] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    for (int n = 0; n < kGenerations; ++n) {
      const pid_t parent = ::getpid();
      const pid_t pid = Fork();
      if (pid != 0) {
        if (n == 0) break;
        Stop();
        ::_exit(0);
      }
      while (n > 0 && ::getppid() == parent) ::usleep(100);
      const int fd = Open(std::to_string(n), O_RDWR | O_CREAT);
      const bool cached = Pwrite(fd, "x", 1, 0) == 1;
      if (!cached || n == kGenerations - 1) {
        Stop();
        ::_exit(::write(ends[1], cached ? "y" : "n", 1) == 1 ? 0 : 1);
      }
    }
    char last = '?';
    EXPECT_EQ(::read(ends[0], &last, 1), 1);
    EXPECT_EQ(last, 'y');
    for (int n = 0; n < kGenerations; ++n) EXPECT_EQ(OnDisk(std::to_string(n)), "x") << n;
    while (::wait(nullptr) > 0) {
    }
  });
}

TEST_IN_ENGINE(VfsTest, AForkLeavesTheParentItsCache) {
  const int fd = Cached("a", "parent");
  Forked([&] {
    const int mine = Open("child", O_RDWR | O_CREAT);
    return Write(mine, "child", 5) == 5 && Close(mine) + Close(fd) == 0;
  });
  EXPECT_EQ(OnDisk("child"), "child");
  EXPECT_EQ(Pwrite(fd, "P", 1, 0), 1);
  EXPECT_EQ(ReadSome(fd, 10, 0), "Parent");
}

// The child looks at what it has inherited: newest bytes, one offset, and the parent's is the
// kernel's from then on.
TEST_IN_ENGINE(VfsTest, AChildThatUsesAFileHasTheParentLetGo) {
  const int fd = Cached("a", "parent");
  const int unused = Cached("b", "other");
  EXPECT_EQ(Lseek(fd, 6, SEEK_SET), 6);
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t pid = Fork();
  if (pid == 0) {
    char byte;
    bool good = ::read(go[0], &byte, 1) == 1;  // what the parent writes after the fork counts
    good = good && Lseek(fd, 0, SEEK_CUR) == 11;
    good = good && Write(fd, " child", 6) == 6;
    Stop();
    ::_exit(good ? 0 : 1);
  }
  EXPECT_EQ(Write(fd, " more", 5), 5);
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 17);
  EXPECT_EQ(OnDisk("a"), "parent more child");
  EXPECT_EQ(Pwrite(unused, "O", 1, 0), 1) << "the other one is cached still";
}

// The offset is the description's, so it outlives the parent's descriptor.
TEST_IN_ENGINE(VfsTest, AChildFindsTheOffsetOfAParentThatHasClosed) {
  const int fd = Cached("a", "0123456789");
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t pid = Fork();
  if (pid == 0) {
    char bytes[2];
    bool good = ::read(go[0], bytes, 1) == 1;
    good = good && Read(fd, bytes, 2) == 2;
    good = good && bytes[0] == '4' && bytes[1] == '5';
    Stop();
    ::_exit(good ? 0 : 1);
  }
  char bytes[4];
  EXPECT_EQ(Read(fd, bytes, 4), 4);
  EXPECT_EQ(Close(fd), 0);
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

// The disk refuses what is pending: the parent cannot let go, and the child is told so.
TEST_IN_ENGINE(VfsTest, WhatTheParentCannotLetGoTheChildCannotUse) {
  ::signal(SIGXFSZ, SIG_IGN);
  const int fd = Cached("a", std::string(100000, 'x'));
  rlimit limit = {4096, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  Forked([&] { return Pwrite(fd, "y", 1, 0) == -EIO && Close(fd) == 0; });
  EXPECT_EQ(ReadSome(fd, 1000, 99000), std::string(1000, 'x'));
  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_EQ(OnDisk("a"), std::string(100000, 'x'));
}

TEST_IN_ENGINE(VfsTest, TheFileSizeLimitIsTheKernelsToEnforce) {
  const rlimit limit = {2 << 20, RLIM_INFINITY};  // the pool is smaller
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const int fd = Cached("a", std::string(90000, 'x'));
  EXPECT_EQ(Pwrite(fd, "y", 1, 2 << 20), kNotOurs) << "which sends SIGXFSZ, too";
  EXPECT_EQ(OnDisk("a").size(), 90000u);
}

// The cleanup thread has nothing to do for a while.

TEST_IN_ENGINE(VfsTest, TheLogHasTheSizeOfAFileThatWasGrown, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  test::WriteFile(disk_ / "empty", "");
  for (const std::string name : {"empty", "new"}) {
    const int fd = Open(name, O_RDWR | O_CREAT);
    EXPECT_EQ(Ftruncate(fd, 0), 0);
    EXPECT_EQ(Ftruncate(fd, 10000), 0);
    EXPECT_TRUE(IsSettled(fd));
    EXPECT_EQ(Pwrite(fd, "x", 1, 5000), 1);
    std::vector<uint64_t> sizes;
    ForEachRecordOf(name, [&](const auto&, const nvlog::RecordHeader& header) {
      if (header.kind == nvlog::Kind::kTruncate) sizes.push_back(header.offset);
    });
    EXPECT_EQ(sizes, std::vector<uint64_t>{10000}) << "a cut to the size that it has is none";
  }
}

// Every fsync of this thread, and of those that it starts, waits for an answer from now on.
class HeldFsyncs {
 public:
  HeldFsyncs() {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(code), code};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
    calls_ = static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                        SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  }

  bool work() const { return calls_ >= 0; }
  uint64_t Receive() const {
    seccomp_notif call = {};
    EXPECT_EQ(::ioctl(calls_, SECCOMP_IOCTL_NOTIF_RECV, &call), 0);
    return call.id;
  }
  // An error, or else the call itself.
  void Answer(uint64_t id, int error) const {
    const uint32_t flags = error != 0 ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    seccomp_notif_resp response = {id, 0, error, flags};
    EXPECT_EQ(::ioctl(calls_, SECCOMP_IOCTL_NOTIF_SEND, &response), 0);
  }
  // Until a call waits, or `done`. False: done.
  bool Wait(const std::atomic<bool>& done) const {
    pollfd event = {calls_, POLLIN, 0};
    while (::poll(&event, 1, 1) == 0) {
      if (done.load()) return false;
    }
    return true;
  }

 private:
  int calls_ = -1;
};

// One thread's fsync has begun, and another one's must not claim what is not done yet.
TEST_IN_ENGINE(VfsTest, AnFsyncDoesNotReturnBeforeOneThatBeganEarlier) {
  const int fd = Cached("a", "one");
  test::Sets(fd, pool::kSetTimes);
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  std::thread first([&] { EXPECT_EQ(Fsync(fd), -EIO); });
  const uint64_t first_call = held.Receive();
  std::atomic<bool> returned{false};
  std::thread second([&] {
    EXPECT_EQ(Fsync(fd), 0);
    returned.store(true);
  });
  const bool waits = held.Wait(returned);
  EXPECT_TRUE(waits);
  held.Answer(first_call, -EIO);
  if (waits) held.Answer(held.Receive(), 0);
  first.join();
  second.join();
  if (HasFailure()) return;
  EXPECT_EQ(Fsync(fd), 0) << "nothing is owed";
}

// How often the thread enters the engine in this call.
int EntriesOf(const std::function<void()>& call) {
  static int entries;
  entries = 0;
  sys::deferral.let_cancel = [](bool may) { entries += may ? 0 : 1; };
  call();
  sys::deferral.let_cancel = nullptr;
  return entries;
}

TEST_IN_ENGINE(VfsTest, ASyncThatOwesNothingEntersTheFileOnce, kHeldBack, kHeldBackLong) {
  const Closing fd(Cached("a", "some bytes"));
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(Pwrite(fd, "S", 1, 0), 1);
  EXPECT_EQ(EntriesOf([&] { EXPECT_EQ(Fsync(fd), 0); }), 1);
  EXPECT_EQ(EntriesOf([&] { EXPECT_EQ(SyncRange(fd), 0); }), 1);
  EXPECT_GT(FileOf(fd).pending.load(), 0u) << "neither was real";
}

// I1, I9: what was done to the file may be undone by a power failure: a cut, new bytes, its birth.
// So the disk has that before the log has a byte of it. And then an fsync has nothing to do.
TEST_F(VfsTest, AFileIsSyncedBeforeItsFirstRecord) {
  test::WriteFile(disk_ / "bytes", "from before");
  test::WriteFile(disk_ / "empty", "");
  const std::pair<std::string, int> kFiles[] = {
      {"bytes", 0}, {"empty", 0}, {"new", O_CREAT}, {"born", O_CREAT | O_EXCL}};
  WithEngine(
      [&] {
        Cached("attaches the pool", "x");
        const HeldFsyncs held;
        ASSERT_TRUE(held.work());
        for (const auto& [name, flags] : kFiles) {
          SCOPED_TRACE(name);
          const int fd = Open(name, O_RDWR | flags);
          std::atomic<bool> written{false};
          std::thread writer([&] {
            EXPECT_EQ(Pwrite(fd, "F", 1, 0), 1);
            written.store(true);
          });
          const bool waits = held.Wait(written);
          EXPECT_TRUE(waits);
          EXPECT_EQ(RecordOf(name).has_value(), !waits);
          if (waits) held.Answer(held.Receive(), 0);
          writer.join();
          EXPECT_TRUE(RecordOf(name).has_value());
          std::atomic<bool> synced{false};
          std::thread syncer([&] {
            EXPECT_EQ(Fsync(fd), 0);
            synced.store(true);
          });
          const bool owes = held.Wait(synced);
          EXPECT_FALSE(owes);
          if (owes) held.Answer(held.Receive(), 0);
          syncer.join();
        }
      },
      {kHeldBack, kLargeBatch, kHeldBackLong});
}

// A file that cannot be synced then is the kernel's, and the log has nothing of it.
TEST_IN_ENGINE(VfsTest, ANewFileThatCannotBeSyncedIsTheKernels) {
  const int fd = Open("a", O_RDWR | O_CREAT | O_EXCL);
  WithoutSync(fd, [&] { EXPECT_EQ(Pwrite(fd, "a", 1, 0), kNotOurs); });
  EXPECT_FALSE(RecordOf("a").has_value());
}

// The disk may take its time, but other files have no part in that.
TEST_IN_ENGINE(VfsTest, OtherFilesDoNotWaitForAFirstSync) {
  test::WriteFile(disk_ / "a", "from before");
  const int fd = Open("a", O_RDWR), other_fd = Cached("b", "other");
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  std::atomic<bool> written{false};
  std::thread writer([&] {
    EXPECT_EQ(Pwrite(fd, "F", 1, 0), 1);
    written.store(true);
  });
  const bool waits = held.Wait(written);
  EXPECT_TRUE(waits);
  std::atomic<bool> others{false};
  std::thread other([&] {
    EXPECT_EQ(Pwrite(other_fd, "O", 1, 0), 1);
    EXPECT_EQ(Drain(other_fd), 0) << "by the cleanup thread, whose calls are not held";
    others.store(true);
  });
  if (waits) {
    const uint64_t call = held.Receive();
    for (int i = 0; i < 1000 && !others.load(); ++i) ::usleep(10000);
    EXPECT_TRUE(others.load()) << "another file has to wait for it";
    EXPECT_FALSE(written.load());
    held.Answer(call, 0);
  }
  writer.join();
  other.join();
  EXPECT_EQ(Pwrite(fd, "R", 1, 1), 1) << "once is enough";
}

// The disk may take its time: what a thread that waits for it has locked, nobody else needs.
TEST_IN_ENGINE(VfsTest, NobodyWaitsForAnothersSync) {
  test::WriteFile(disk_ / "a", "from before");
  const int fd = Open("a", O_RDWR);
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  // Meanwhile, others use the file, and open it.
  const auto while_it_syncs = [&](const std::function<void()>& syncs,
                                  const std::function<void()>& others) {
    std::atomic<bool> returned{false}, done{false};
    std::thread syncer([&] {
      syncs();
      returned.store(true);
    });
    const bool waits = held.Wait(returned);
    EXPECT_TRUE(waits);
    std::thread other([&] {
      EXPECT_EQ(ReadSome(fd, 4, 1), "rom ");
      const int again = Open("a", O_RDWR);
      EXPECT_EQ(ReadSome(again, 4, 1), "rom ");
      others();
      EXPECT_EQ(Close(again), 0);
      done.store(true);
    });
    for (int i = 0; i < 1000 && !done.load(); ++i) ::usleep(10000);
    EXPECT_TRUE(done.load());
    EXPECT_FALSE(waits && returned.load());
    if (waits) held.Answer(held.Receive(), 0);
    syncer.join();
    other.join();
  };
  while_it_syncs([&] { EXPECT_EQ(Pwrite(fd, "F", 1, 0), 1); }, [] {});
  test::Sets(fd, pool::kSetTimes);
  while_it_syncs([&] { EXPECT_EQ(Fsync(fd), 0); }, [&] { EXPECT_EQ(Pwrite(fd, "B", 1, 5), 1); });
  EXPECT_EQ(Fsync(fd), 0) << "nothing is owed";
  EXPECT_EQ(ReadSome(fd, 6, 0), "From B");
}

// A number that meant another file for a while says nothing of what was synced.
TEST_IN_ENGINE(VfsTest, AnFsyncOfANumberThatChangedSettlesNothing, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  const int fd = Cached("a", "one"), spare = static_cast<int>(Dup(fd));
  test::Sets(fd, pool::kSetMode);
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  std::thread syncer([&] { EXPECT_EQ(Fsync(fd), 0); });
  const uint64_t call = held.Receive();
  const int other = Open("b", O_RDWR | O_CREAT);
  EXPECT_EQ(Dup3(other, fd, 0), fd);
  EXPECT_EQ(Dup3(spare, fd, 0), fd);
  held.Answer(call, 0);
  syncer.join();
  EXPECT_FALSE(IsSettled(fd));
}

// Who may not read the file may not read what was written since, after a power failure either.
TEST_IN_ENGINE(VfsTest, AModeIsSyncedBeforeTheNextRecord, kHeldBack, kLargeBatch, kHeldBackLong) {
  const int fd = Cached("a", "for all");
  ASSERT_EQ(::fchmod(fd, 0600), 0);
  test::Sets(fd, pool::kSetMode);
  WithoutSync(fd, [&] { EXPECT_EQ(Pwrite(fd, "secret", 6, 0), -EBADF); });
  EXPECT_EQ(Pwrite(fd, "secret", 6, 0), 6);
  EXPECT_TRUE(IsSettled(fd));
  test::SetsByPath(disk_ / "a", pool::kSetOwner);
  WithoutSync(fd, [&] { EXPECT_EQ(Pwrite(fd, "secret", 6, 0), -EBADF); });
  EXPECT_EQ(Pwrite(fd, "secret", 6, 0), 6);
  test::Sets(fd, pool::kSetTimes);
  test::SetsByPath(disk_ / "a", pool::kSetTimes);
  WithoutSync(fd, [&] { EXPECT_EQ(Pwrite(fd, "secret", 6, 0), 6); });
}

// Another thread may set the file's mode again and again, each time before it is known to be
// synced.
TEST_IN_ENGINE(VfsTest, AWriteEndsThoughEachSyncIsUndone, kHeldBack, kLargeBatch, kHeldBackLong) {
  const int fd = Cached("a", "some bytes");
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  test::Sets(fd, pool::kSetMode);
  std::atomic<bool> written{false};
  std::thread writer([&] {
    EXPECT_EQ(Pwrite(fd, "S", 1, 0), kNotOurs);
    written.store(true);
  });
  constexpr uint32_t kMost = MostTimes(Next::kSync);
  uint32_t syncs = 0;
  while (held.Wait(written)) {
    const uint64_t call = held.Receive();
    if (++syncs <= 2 * kMost) test::Sets(fd, pool::kSetMode);
    held.Answer(call, 0);
  }
  writer.join();
  EXPECT_EQ(syncs, kMost);
}

// Each step is taken, in whatever order, as often as attempts may end with it. `fd` is the
// kernel's.
uint32_t RoundsOf(int fd, std::mt19937_64& random) {
  Attempt attempt;
  for (uint32_t rounds = 0;; ++rounds) {
    std::vector<Next> steps;
    for (size_t i = 0; i < kSteps; ++i) {
      const auto next = static_cast<Next>(i);
      // WriteThrough's. It is not asked any more when the rest goes past the log.
      const bool shared = next == Next::kJoin || next == Next::kSettle || next == Next::kBypass;
      const bool again = MostTimes(next) > 1 || !attempt.Took(next);
      const bool possible = again && !(shared && attempt.Took(Next::kBypass));
      if (MostTimes(next) > 0 && next != Next::kDone && next != Next::kPassThrough && possible) {
        steps.push_back(next);
      }
    }
    if (Mend(steps[random() % steps.size()], fd, 0, &attempt) == Next::kPassThrough) return rounds;
  }
}

TEST_IN_ENGINE(VfsTest, TheLoopOfAWriteEnds, "NVCACHE_WRITE_BACK=auto") {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  uint32_t most = 0;
  for (size_t i = 0; i < kSteps; ++i) most += MostTimes(static_cast<Next>(i));
  std::mt19937_64 random(test::Seed());
  for (int i = 0; i < 100; ++i) EXPECT_LT(RoundsOf(fd, random), most) << test::Seed();
}

TEST_F(VfsTest, AnAttemptThatAsksTwiceForTheSameStopsTheProgram) {
  for (const Next next : {Next::kGrow, Next::kBypass, Next::kPassThrough}) {
    Attempt attempt;
    attempt.Take(next);
    EXPECT_EXIT(attempt.Take(next), testing::KilledBySignal(SIGKILL), "invariant broken");
  }
  Attempt attempt;
  attempt.done = 1;
  EXPECT_EXIT(attempt.Take(Next::kGrow), testing::KilledBySignal(SIGKILL), "invariant broken");
}

// A sync that fails is no reason to refuse a write that the kernel would take.
TEST_IN_ENGINE(VfsTest, AFileThatCannotBeSyncedIsTheKernels) {
  test::WriteFile(disk_ / "a", "from before");
  const int fd = Open("a", O_RDWR);
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  std::thread writer([&] { EXPECT_EQ(Pwrite(fd, "F", 1, 0), kNotOurs); });
  held.Answer(held.Receive(), -EIO);
  writer.join();
  EXPECT_EQ(Fsync(fd), kNotOurs) << "it is real, and tells";
}

// I10: the kernel tells each descriptor of an error once, and may have dropped what the cleanup
// thread had written.
TEST_IN_ENGINE(VfsTest, WhatWasWrittenBeforeASyncThatFailsIsWrittenAgain, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  test::WriteFile(disk_ / "a", "from before");
  const int fd = Open("a", O_RDWR);
  ASSERT_EQ(Pwrite(fd, "P", 1, 0), 1);
  Publish(fd);
  ASSERT_EQ(test::ReadFile(disk_ / "a"), "Prom before");
  test::WriteFile(disk_ / "a", "from before");  // dropped
  test::Sets(fd, pool::kSetMode);
  const HeldFsyncs held;
  ASSERT_TRUE(held.work());
  std::thread writer([&] { EXPECT_EQ(Pwrite(fd, "B", 1, 5), kNotOurs); });
  held.Answer(held.Receive(), -EIO);
  writer.join();
  EXPECT_EQ(test::ReadFile(disk_ / "a"), "Prom before");
}

// What is written after a rename cannot be found under the old name only.
TEST_IN_ENGINE(VfsTest, ARenamedFileIsSyncedBeforeItsNextRecord, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    const int fd = Open(from, O_RDWR | O_CREAT);
    NameGuard guard;
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / from).c_str()), 0);
    EXPECT_EQ(guard.Add(AT_FDCWD, (disk_ / to).c_str()), 0);
    EXPECT_EQ(::rename((disk_ / from).c_str(), (disk_ / to).c_str()), 0);
    return fd;
  };
  const int refused = rename("c", "d");
  WithoutSync(refused, [&] {
    EXPECT_EQ(Pwrite(refused, "d", 1, 0), kNotOurs) << "the log must not have it";
  });
  EXPECT_FALSE(RecordOf("d").has_value());
  const int fd = rename("a", "b");
  EXPECT_EQ(Pwrite(fd, "b", 1, 0), 1);
  EXPECT_EQ(FileOf(fd).barriers_synced.load(), FileOf(fd).barriers.load());
  EXPECT_FALSE(RecordOf("a").has_value());
}

// I10: what would not fit the disk is refused at the write, and what was accepted gets there.
TEST_F(VfsTest, AFullDiskIsNoticedAtTheWrite) {
  const std::string mount_point = disk_ / "small";
  ASSERT_EQ(::mkdir(mount_point.c_str(), 0700), 0);
  if (::mount("none", mount_point.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "mounting a small file system: " << std::strerror(errno);
  }
  size_t accepted = 0;
  WithEngine(
      [&] {
        const int fd = Open("small/a", O_RDWR | O_CREAT);
        const std::string block(10000, 'x');
        long result;
        while ((result = Write(fd, block.data(), block.size())) > 0) {
          accepted += static_cast<size_t>(result);
          ASSERT_LE(accepted, 2u << 20);
        }
        EXPECT_EQ(result, kNotOurs) << "the kernel says how much of it fits";
        EXPECT_GT(accepted, (2u << 20) - 3 * block.size());
        EXPECT_EQ(OnDisk("small/a"), std::string(accepted, 'x'));
        EXPECT_EQ(Close(fd), 0);
      },
      {"NVCACHE_INCLUDE=" + mount_point + "/*"});
  EXPECT_EQ(::umount(mount_point.c_str()), 0);
}

// What a front end's handler does, on top of a program's that does not return.
sigjmp_buf jump_target;

void DeferOrJump(int, siginfo_t* info, void* context) {
  sigset_t& blocked = static_cast<ucontext_t*>(context)->uc_sigmask;
  uint64_t mask;
  std::memcpy(&mask, &blocked, sizeof(mask));
  if (!sys::DeferSignal(*info, &mask)) siglongjmp(jump_target, 1);
  std::memcpy(&blocked, &mask, sizeof(mask));
}

// The cleanup thread waits for a page of a cached file, as for a disk that does not answer. Another
// thread has the page's lock, so that this one may take what comes before it.
class StuckPage {
 public:
  explicit StuckPage(int fd) {
    struct stat st;
    EXPECT_EQ(::fstat(fd, &st), 0);
    const std::string block(4096, 's');
    constexpr uint64_t kPage = 1000;
    EXPECT_EQ(Pwrite(fd, block.data(), block.size(), kPage * 4096), 4096);
    page_ = engine.files.Find(st.st_dev, st.st_ino)->pages.Find(engine.supply, kPage);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    holder_ = std::thread([this] {
      sys::Lock lock(page_->lock);
      held_.store(true);
      held_.notify_one();
      freed_.wait(false);
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    held_.wait(false);
  }
  void Free() {
    freed_.store(true);
    freed_.notify_one();
    holder_.join();
  }

 private:
  radix::PageDescriptor* page_;
  std::atomic<bool> held_{false};
  std::atomic<bool> freed_{false};
  std::thread holder_;
};

// A disk that does not answer: a writer waits for ever, but not its signals.
TEST_IN_ENGINE(VfsTest, AHandlerRunsWhileTheLogStaysFull, kHeldBack, kLargeBatch, kHeldBackLong) {
  struct sigaction action = {};
  action.sa_sigaction = DeferOrJump;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
  const int fd = Open("a", O_RDWR | O_CREAT);
  ASSERT_EQ(Ftruncate(fd, 1 << 30), 0);
  const std::string block(4096, 'x');
  const StuckPage stuck(fd);
  static int round;  // a jump would spoil a register
  static long written;
  for (round = 0; round < 3; ++round) {
    written = 0;
    if (sigsetjmp(jump_target, 1) == 0) {
      ::alarm(1);
      for (;;) {
        EXPECT_EQ(Pwrite(fd, block.data(), block.size(), written), 4096);
        written += 4096;
        ASSERT_LT(written, 1 << 30);
      }
    }
    EXPECT_EQ(sys::deferral.depth, 0u);
    EXPECT_EQ(ReadSome(fd, 4096, 0), block) << "nothing stayed locked";
  }
  ::_exit(HasFailure() ? 1 : 0);  // as by kill: the log can never be drained
}

// ---------------------------------------------------------------------------------------------
// Which files are cached

constexpr const char* kHotFilesOnly = "NVCACHE_WRITE_BACK=auto";

// Whoever looks from outside sees each write when it is made, and the log has it.
TEST_IN_ENGINE(VfsTest, AHotFileIsWriteThrough, kHotFilesOnly, kRoomyPool) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Pwrite(fd, "first", 5, 0), 5);
  EXPECT_EQ(Fsync(fd), kNotOurs);
  EXPECT_FALSE(engine.attached());
  EXPECT_EQ(Fsync(fd), 0) << "the second sync settles it";
  EXPECT_TRUE(engine.attached());
  EXPECT_EQ(Pwrite(fd, "third", 5, 5), 5);
  EXPECT_EQ(OnDisk("a"), "firstthird") << "without a sync, a close or a look by us";
  EXPECT_TRUE(RecordOf("a").has_value());
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
  for (uint32_t i = 0; i < 3 * kSyncsToTryAgain; ++i) EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(FileOf(fd).state.load(), State::kKernel) << "it is not tried again";
}

// The one name is exclusive, and the program has opened the file by that one.
TEST_IN_ENGINE(VfsTest, AFileIsExclusiveByTheNameThatItIsOpenedBy, kHotFilesOnly, kRoomyPool,
               "NVCACHE_EXCLUSIVE=*.log:*/mine/*") {
  const auto becomes = [this](const std::string& name) {
    const int fd = Open(name, O_RDWR | O_CREAT);
    for (uint32_t i = 0; i < kHotSyncs; ++i) Fsync(fd);
    return FileOf(fd).state.load();
  };
  ASSERT_EQ(::mkdir(Path("mine").c_str(), 0700), 0);
  EXPECT_EQ(becomes("a.log"), State::kCached);
  EXPECT_EQ(becomes("mine/a"), State::kCached);
  EXPECT_EQ(becomes("a.db"), State::kKernel);
  test::WriteFile(Path("b.log"), "");
  ASSERT_EQ(::link(Path("b.log").c_str(), Path("b.db").c_str()), 0);
  EXPECT_EQ(becomes("b.db"), State::kKernel);
  EXPECT_EQ(becomes("b.log"), State::kKernel) << "open by the other name as well, it is one file";
}

TEST_IN_ENGINE(VfsTest, AnExclusiveFileBecomesCachedWithItsSecondSync, kHotFilesOnly, kAllExclusive,
               kHeldBackLong) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Write(fd, "first ", 6), 6);
  EXPECT_EQ(OnDisk("a"), "first ");
  EXPECT_EQ(Fsync(fd), kNotOurs);
  EXPECT_FALSE(engine.attached());
  EXPECT_EQ(Write(fd, "second ", 7), 7);
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_TRUE(engine.attached());
  EXPECT_EQ(Write(fd, "third", 5), 5);
  EXPECT_EQ(OnDisk("a"), "first second ") << "the rest is in the log";
  EXPECT_EQ(ReadSome(fd, 100, 0), "first second third");
  EXPECT_TRUE(IsSettled(fd));
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(OnDisk("a"), "first second third");
  DrainAll();
  const int again = Open("a", O_RDWR);
  EXPECT_EQ(Pwrite(again, "F", 1, 0), 1);
  EXPECT_EQ(OnDisk("a"), "First second third") << "it begins anew";
}

TEST_IN_ENGINE(VfsTest, SyncsThatAreFarApartDoNotMakeAFileHot, kHotFilesOnly, kAllExclusive) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Write(fd, "bytes", 5), 5);
    EXPECT_EQ(Fsync(fd), kNotOurs);
    FileOf(fd).synced_at.fetch_sub(kHotNs + 1);
  }
  EXPECT_EQ(Fsync(fd), kNotOurs) << "the last one was long ago";
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(FileOf(fd).state.load(), State::kCached);
}

TEST_F(VfsTest, AWriteThatPromisesASyncCountsAsOne) {
  const auto becomes_hot = [&](const std::string& name, int flags, int rwf_flags) {
    const int fd = Open(name, O_RDWR | O_CREAT | flags);
    const iovec word = {const_cast<char*>("word "), 5};
    EXPECT_EQ(Writev(fd, &word, 1, rwf_flags), 5);
    EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
    EXPECT_EQ(Pwritev(fd, &word, 1, 5, rwf_flags), 5);
    EXPECT_EQ(ReadSome(fd, 100, 0), "word word ");
    return FileOf(fd).state.load() == State::kCached;
  };
  WithEngine(
      [&] {
        EXPECT_TRUE(becomes_hot("a", O_DSYNC, 0));
        EXPECT_TRUE(becomes_hot("b", O_SYNC, 0));
        EXPECT_TRUE(becomes_hot("c", 0, RWF_DSYNC));
        EXPECT_TRUE(becomes_hot("d", 0, RWF_SYNC));
        const int fd = Open("e", O_RDWR | O_CREAT);
        for (int i = 0; i < 10; ++i) EXPECT_EQ(Pwrite(fd, "x", 1, i), 1);
        EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
      },
      {kHotFilesOnly, kAllExclusive});
}

TEST_IN_ENGINE(VfsTest, NoFileIsCachedIfNoneShallBe, "NVCACHE_WRITE_BACK=never") {
  const int fd = Open("a", O_RDWR | O_CREAT);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Pwrite(fd, "x", 1, i), 1);
    EXPECT_EQ(Fsync(fd), kNotOurs);
  }
  EXPECT_FALSE(engine.attached());
  EXPECT_EQ(OnDisk("a"), "xxxxxxxxxx");
}

// A child may hand it to a program that we do not see; what is opened after the fork is ours alone.
TEST_IN_ENGINE(VfsTest, AFileThatAChildHasAsWellDoesNotBecomeCached, kHotFilesOnly, kAllExclusive) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  Forked([] { return true; });
  const int other = Open("b", O_RDWR | O_CREAT);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Fsync(fd), i == 0 ? kNotOurs : 0) << "it is write-through";
    Fsync(other);
  }
  EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
  EXPECT_EQ(FileOf(other).state.load(), State::kCached);
}

// The kernel drops a process's locks of a file with any descriptor of that file that it closes.
TEST_IN_ENGINE(VfsTest, BecomingCachedDropsNoLock, kHotFilesOnly, kAllExclusive) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  const int probe = ::open((disk_ / "a").c_str(), O_RDWR);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  EXPECT_EQ(Fcntl(fd, F_SETLK, reinterpret_cast<long>(&lock)), kNotOurs);
  EXPECT_EQ(::fcntl(fd, F_SETLK, &lock), 0);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Pwrite(fd, "x", 1, i), 1);
    Fsync(fd);
    struct flock found = {};
    found.l_type = F_WRLCK;
    EXPECT_EQ(::fcntl(probe, F_OFD_GETLK, &found), 0);
    EXPECT_EQ(found.l_type, F_WRLCK) << "after sync " << i + 1;
  }
}

// The kernel says it once, with one signal.
TEST_F(VfsTest, WhatTheKernelRefusesIsNotTriedAgain) {
  static volatile sig_atomic_t signals;
  WithEngine(
      [&] {
        signals = 0;
        ::signal(SIGXFSZ, [](int) { signals = signals + 1; });
        const int fd = Open("a", O_RDWR | O_CREAT);
        const rlimit limit = {4096, RLIM_INFINITY};
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
        EXPECT_EQ(Pwrite(fd, "x", 1, 5000), -EFBIG);
        EXPECT_EQ(signals, 1);
        EXPECT_EQ(FileOf(fd).state.load(), State::kKernel);
      },
      {kHotFilesOnly});
}

// ---------------------------------------------------------------------------------------------
// The cache is left (a failed exec, unshare) while a writer sleeps for room.

long WriteAnywhere(int fd, const std::string& bytes) {
  const long n = Write(fd, bytes.data(), bytes.size());
  return n == kNotOurs ? ::write(fd, bytes.data(), bytes.size()) : n;
}

// The writer has its file's lock.
TEST_IN_ENGINE(VfsTest, TheCacheIsLeftWhileAWriterSleepsForRoomInTheLog, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  const int stuck = Cached("stuck", ""), fd = Cached("a", "");
  StuckPage page(stuck);
  const std::string block(4096, 'x');
  constexpr int kBlocks = 1000;  // the log has room for 256
  std::thread writer([&] {
    for (int i = 0; i < kBlocks; ++i) EXPECT_EQ(WriteAnywhere(fd, block), 4096);
  });
  while (!engine.log.Hurried()) std::this_thread::yield();
  EXPECT_GE(pool::Peek(engine.statistics()->full_waits), 1u);
  std::thread leaver([] { BeforeExec(); });
  while (!engine.table_lock.IsLocked()) std::this_thread::yield();
  page.Free();
  leaver.join();
  writer.join();
  EXPECT_FALSE(engine.attached());
  EXPECT_EQ(test::ReadFile(disk_ / "a"), std::string(kBlocks * 4096, 'x'));
}

// The log is full of many files, each of which describes itself.
TEST_IN_ENGINE(VfsTest, TheCacheIsLeftWhileAWriterOfManyFilesSleeps, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  const int stuck = Cached("stuck", "");
  StuckPage page(stuck);
  constexpr int kFiles = 200;  // the log has room for half of them
  const auto bytes = [](int i) { return std::string(8192, static_cast<char>('a' + i % 26)); };
  std::thread writer([&] {
    for (int i = 0; i < kFiles; ++i) {
      const int fd = Open("file" + std::to_string(i), O_RDWR | O_CREAT);
      EXPECT_EQ(WriteAnywhere(fd, bytes(i)), 8192);
    }
  });
  while (!engine.log.Hurried()) std::this_thread::yield();
  std::thread leaver([] { BeforeExec(); });
  while (!engine.table_lock.IsLocked()) std::this_thread::yield();
  page.Free();
  leaver.join();
  writer.join();
  BeforeExec();
  for (int i = 0; i < kFiles; ++i) {
    EXPECT_TRUE(test::ReadFile(disk_ / ("file" + std::to_string(i))) == bytes(i)) << i;
  }
}

// ---------------------------------------------------------------------------------------------
// Sizes and holes, while records are pending.

constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

// A hole in bytes that made the file grow, and that the disk has never seen.
TEST_IN_ENGINE(VfsTest, AHoleAtTheEndLeavesTheSize, kHeldBack, kLargeBatch, kHeldBackLong) {
  const int fd = Cached("a", std::string(8192, 'a'));
  ASSERT_EQ(Fallocate(fd, kHole, 4096, 4096), 0);
  const std::string expected = std::string(4096, 'a') + std::string(4096, '\0');
  EXPECT_TRUE(ReadSome(fd, 10000, 0) == expected);
  EXPECT_GT(FileOf(fd).pending.load(), 0u) << "nothing was drained";
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_EQ(OnDisk("a").size(), 8192u);
  EXPECT_TRUE(OnDisk("a") == expected);
  EXPECT_TRUE(ReadSome(fd, 10000, 0) == expected);
}

// More cuts, each beyond the other, than the engine remembers: then the disk is waited for.
TEST_IN_ENGINE(VfsTest, ManyErasuresAreAllMade, kHeldBack, kLargeBatch, kHeldBackLong) {
  constexpr uint64_t kMany = 3 * dramcache::Erasures::kMost;
  std::string expected(kMany * 4096, 'a');
  const int fd = Cached("a", expected);
  bool waited = false;
  for (uint64_t i = 0; i < kMany; i += 2) {
    ASSERT_EQ(Fallocate(fd, kHole, static_cast<off_t>(i * 4096 + 10), 5000), 0);
    expected.replace(i * 4096 + 10, 5000, 5000, '\0');
    waited = waited || FileOf(fd).erasures.empty();
    ASSERT_TRUE(ReadSome(fd, expected.size(), 0) == expected) << i;
  }
  EXPECT_TRUE(waited);
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_TRUE(OnDisk("a") == expected);
  EXPECT_TRUE(FileOf(fd).erasures.empty());
}

// As a journal: emptied again and again.
TEST_IN_ENGINE(VfsTest, AFileIsEmptiedOverAndOver) {
  std::mt19937_64 random(test::Seed());
  const int fd = Open("a", O_RDWR | O_CREAT);
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    bytes = test::Bytes(random, 1 + random() % 20000);
    const int again = Open("a", O_WRONLY | (i % 2 == 0 ? O_TRUNC : 0));
    if (i % 2 != 0) {
      ASSERT_EQ(Ftruncate(fd, 0), 0);
    }
    ASSERT_EQ(ReadSome(fd, 10, 0), "");
    ASSERT_EQ(Pwrite(again, bytes.data(), bytes.size(), 0), std::ssize(bytes));
    ASSERT_TRUE(ReadSome(fd, 30000, 0) == bytes) << i;
    ASSERT_EQ(Close(again), 0);
    if (i % 50 == 7) {
      ASSERT_EQ(Drain(fd), 0);
      ASSERT_TRUE(OnDisk("a") == bytes) << i;
    }
  }
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_TRUE(OnDisk("a") == bytes);
}

// What the engine does not want is the kernel's.
long FallocateAnywhere(int fd, int mode, off_t offset, off_t length) {
  const long result = Fallocate(fd, mode, offset, length);
  return result != kNotOurs ? result : ::fallocate(fd, mode, offset, length);
}

// One step of a random walk; `content` is what the file should hold.
void ChangeAtRandom(int fd, std::mt19937_64& random, std::string* content) {
  const size_t at = random() % 50000, n = 1 + random() % 10000;
  const auto offset = static_cast<off_t>(at), length = static_cast<off_t>(n);
  const auto zero = [&](size_t end) {
    if (at < end) content->replace(at, end - at, end - at, '\0');
  };
  switch (random() % 8) {
    case 0:
      ASSERT_EQ(Ftruncate(fd, offset), 0);
      content->resize(at);
      return;
    case 1:
      ASSERT_EQ(FallocateAnywhere(fd, kHole, offset, length), 0);
      zero(std::min(content->size(), at + n));
      return;
    case 2:
      ASSERT_EQ(FallocateAnywhere(fd, FALLOC_FL_ZERO_RANGE, offset, length), 0);
      content->resize(std::max(content->size(), at + n));
      zero(at + n);
      return;
    case 3:
      ASSERT_EQ(FallocateAnywhere(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, length),
                0);
      zero(std::min(content->size(), at + n));
      return;
    case 4:
      if (random() % 4 == 0) {
        ASSERT_EQ(FallocateAnywhere(fd, 0, offset, length), 0);
        content->resize(std::max(content->size(), at + n));
        return;
      }
      [[fallthrough]];
    default:
      const std::string bytes = test::Bytes(random, n);
      ASSERT_EQ(Pwrite(fd, bytes.data(), n, offset), length);
      content->resize(std::max(content->size(), at + n));
      content->replace(at, n, bytes);
  }
}

// The same walk with a log that drains at once, now and then, and never by itself.
TEST_F(VfsTest, EachChangeOfSizeIsReadAndReachesTheDisk) {
  const int probe = ::open((disk_ / "probe").c_str(), O_RDWR | O_CREAT, 0600);
  const bool zeros = ::fallocate(probe, FALLOC_FL_ZERO_RANGE, 0, 4096) == 0;
  ::close(probe);
  if (!zeros) GTEST_SKIP() << "the file system knows no zero range";
  for (const char* delay : {"1", "5", "60000"}) {
    WithEngine(
        [&] {
          std::mt19937_64 random(test::Seed());
          std::string content;
          const int fd = Open("a", O_RDWR | O_CREAT | O_TRUNC);
          for (int i = 0; i < 1500; ++i) {
            ASSERT_NO_FATAL_FAILURE(ChangeAtRandom(fd, random, &content));
            ASSERT_TRUE(ReadSome(fd, 100000, 0) == content) << "step " << i << ", " << delay;
            if (i % 100 != 99) continue;
            if (random() % 2 == 0) {
              ASSERT_EQ(Drain(fd), 0);
            } else {
              Publish(fd);
            }
            ASSERT_TRUE(OnDisk("a") == content) << "step " << i << ", " << delay;
          }
          EXPECT_EQ(Close(fd), 0);
        },
        {std::string("NVCACHE_BATCH_DELAY=") + delay, "NVCACHE_BATCH_MIN=1000",
         "NVCACHE_BATCH_MAX=10000"});
    ::unlink((disk_ / "a").c_str());
  }
}

// From now on the kernel refuses the call `number` of this thread whose argument is `value`.
void RefuseCall(int number, unsigned argument, uint32_t value) {
  const auto offset =
      static_cast<uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(uint64_t));
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(code), code};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
}

// The log has it, and the kernel refuses: nobody sees the bytes again, and the disk loses them when
// it works again, which it does for the cleanup thread.
TEST_IN_ENGINE(VfsTest, ACutThatTheKernelRefusesIsMadeUpFor, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  const int fd = Cached("a", std::string(20480, 'a'));
  EXPECT_EQ(Drain(fd), 0);
  RefuseCall(SYS_ftruncate, 1, 12300);
  EXPECT_EQ(Ftruncate(fd, 12300), 0);
  EXPECT_EQ(FileOf(fd).erase_error.load(), EIO);
  std::string expected(12300, 'a');
  EXPECT_TRUE(ReadSome(fd, 30000, 0) == expected);
  EXPECT_EQ(Pwrite(fd, "b", 1, 20000), 1);
  expected += std::string(20000 - 12300, '\0') + "b";
  EXPECT_TRUE(ReadSome(fd, 30000, 0) == expected);
  Drain(fd);
  while (FileOf(fd).pending.load() > 0) ::usleep(10000);
  EXPECT_TRUE(OnDisk("a") == expected);
  EXPECT_TRUE(ReadSome(fd, 30000, 0) == expected);
  EXPECT_EQ(FileOf(fd).erase_error.load(), 0);
}

TEST_IN_ENGINE(VfsTest, AHoleThatTheKernelRefusesIsMadeUpFor, kHeldBack, kLargeBatch,
               kHeldBackLong) {
  const int fd = Cached("a", std::string(20480, 'a'));
  EXPECT_EQ(Drain(fd), 0);
  RefuseCall(SYS_fallocate, 2, 4100);
  ASSERT_EQ(Fallocate(fd, kHole, 4100, 9000), 0);
  EXPECT_EQ(FileOf(fd).erase_error.load(), EIO);
  std::string expected(20480, 'a');
  expected.replace(4100, 9000, 9000, '\0');
  EXPECT_TRUE(ReadSome(fd, 30000, 0) == expected);
  EXPECT_EQ(Pwrite(fd, "b", 1, 5000), 1);
  expected[5000] = 'b';
  EXPECT_TRUE(ReadSome(fd, 30000, 0) == expected);
  Drain(fd);
  while (FileOf(fd).pending.load() > 0) ::usleep(10000);
  EXPECT_TRUE(OnDisk("a") == expected);
  EXPECT_TRUE(ReadSome(fd, 30000, 0) == expected);
}

// The moment before it sleeps: there is no pool any more, and nobody who would make room.
TEST_IN_ENGINE(VfsTest, NobodySleepsForRoomInACacheThatWasLeft) {
  const int fd = Cached("a", "something");
  EXPECT_EQ(Drain(fd), 0);
  const uint32_t seen = engine.log.RoomSeen();
  BeforeExec();
  EXPECT_FALSE(engine.attached());
  ::alarm(60);
  engine.log.WaitForRoom(seen);
  ::alarm(0);
}

std::atomic<bool> g_is_at_mappings = false, g_may_go_on = false;
thread_local bool t_waits = false;
thread_local int t_asked = 0;

// A host of which no object calls past libc. The thread that waits does so when it has seen them,
// and is at the mappings, which are asked for one by one.
bool ForEachObject(bool (*look)(void* context, const LoadedObject& object), void* context) {
  if (t_asked++ == 0) return true;
  if (t_waits && t_asked == 2) {
    g_is_at_mappings = true;
    while (!g_may_go_on) usleep(1000);
  }
  auto each = std::make_pair(look, context);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        const auto& [asks, of] = *static_cast<decltype(each)*>(data);
        const LoadedObject object = {info->dlpi_name, info->dlpi_addr, info->dlpi_phdr,
                                     info->dlpi_phnum, false};
        return asks(of, object) ? 0 : 1;
      },
      &each);
  return true;
}

// Two threads look at the program's code for the first time. While one is at the mappings, of which
// one has a call past libc, the other one does not take them for harmless.
TEST_IN_ENGINE(VfsTest, CodeIsKnownToNobodyBeforeAllOfItHasBeenSeen) {
  constexpr uint8_t kStub[] = {0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3};
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::memcpy(page, kStub, sizeof(kStub));
  static Host host;
  host = *engine.host;
  host.for_each_object = ForEachObject;
  host.count_loads = [] { return uint64_t{1}; };
  engine.host = &host;
  Callers callers;
  callers.NoteExecutable();
  bool first = true;
  std::thread other([&] {
    t_waits = true;
    first = callers.Know();
  });
  while (!g_is_at_mappings) usleep(1000);
  EXPECT_FALSE(callers.Know());
  g_may_go_on = true;
  other.join();
  EXPECT_FALSE(first);
}

}  // namespace
}  // namespace nvcache::vfs
