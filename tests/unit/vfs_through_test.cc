// SPDX-License-Identifier: BSD-3-Clause
//
// Files that another process uses as well.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/nvlog/group_writer.h"
#include "src/pool/glance.h"
#include "src/pool/identify.h"
#include "src/sys/deferral.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/unseen.h"
#include "src/vfs/vfs.h"
#include "tests/unit/attributes.h"
#include "tests/unit/found.h"
#include "tests/unit/in_engine.h"
#include "tests/unit/late_page.h"
#include "tests/unit/member.h"
#include "tests/unit/support.h"
#include "tests/unit/unreadable.h"

namespace nvcache::vfs {
namespace {

using lease::FileEntry;
using lease::FileTable;

constexpr size_t kPage = pool::kPageSize;

using Neighbour = test::Other;  // which uses a file as well

class VfsThroughTest : public EngineTest {
 protected:
  // No batch begins by itself.
  void WithEngine(const std::function<void()>& body, Settings settings = {}) {
    settings.insert(settings.end(), {"NVCACHE_SIZE=16M", "NVCACHE_BATCH_DELAY=60000"});
    EXPECT_EQ(RunEngine("pool", settings, body), 0);
  }
  using Deed = std::function<void(lease::Leases&, FileTable&)>;
  std::unique_ptr<Neighbour> NeighbourOf(
      int fd, const Deed& function = [](lease::Leases&, FileTable&) {}) {
    const struct stat st = StatOf(fd);
    return std::make_unique<Neighbour>(memory_.path(), [&](test::Member& member) {
      member.leases.AddUser(st.st_dev, st.st_ino);
      function(member.leases, member.file_table);
    });
  }
  std::unique_ptr<Neighbour> Claimant(int fd);
  static void NothingIsPendingAfter(int fd, const std::function<void()>& leave);
  static uint64_t TagOf(int fd) { return lease::TagOf(BornStatOf(fd)); }
  static bool MayBeWrittenUnseen(int fd) {
    const struct stat st = StatOf(fd);
    return engine.file_table.AnybodyInFlight(TagOf(fd), st.st_dev, st.st_ino) ||
           engine.leases.IsHandedOn(st.st_dev, st.st_ino);
  }
  // With truncations to the size that the file has. Something of it is in the log.
  static void FillLog(int fd) {
    const PoolPin pin;
    Access access;
    ASSERT_EQ(access.Enter(fd, Access::kData), 0);
    const auto record = std::make_unique<pool::FileRecord>();
    ASSERT_EQ(pool::Describe(fd, record.get()), 0);
    const struct stat st = StatOf(fd);
    FileEntry& entry = engine.file_table.At(TagOf(fd));
    for (;;) {
      nvlog::GroupWriter writer(engine.log, access.file().tag,
                                FileTable::CoverageOf(entry).bypasses);
      const auto outcome = writer.BeginMark(nvlog::Kind::kTruncate,
                                            static_cast<uint64_t>(st.st_size), 0, record.get());
      if (outcome == nvlog::Outcome::kLogFull) break;
      ASSERT_EQ(outcome, nvlog::Outcome::kDone);
      FileTable::Raise(entry.lsn, writer.Draw());
      writer.Commit();
      engine.checkpoint.NotePending();
    }
  }
  static bool IsKnown(int fd) {
    const FileEntry* entry = engine.file_table.Find(TagOf(fd));
    return entry != nullptr && FileTable::CoverageOf(*entry).known;
  }
  // By another process than the one that asks.
  bool IsSaidOpen(uint64_t tag) {
    return test::InChild([&] {
             lease::Leases leases;
             const char* why = "";
             if (!leases.Open(memory_.path().c_str(), &why)) return 2;
             const bool open = FileTable(leases).IsOpenElsewhere(tag);
             leases.Close();
             return open ? 1 : 0;
           }) == 1;
  }
  static bool IsPending(int fd) {
    const FileEntry* entry = engine.file_table.Find(TagOf(fd));
    return entry != nullptr && engine.file_table.IsPending(*entry);
  }
  static State StateOf(int fd) { return engine.descriptors.Of(fd)->file.load()->state.load(); }
  // What is not named may be anything.
  struct Is {
    std::optional<State> state = {};
    std::optional<bool> known = {}, pending = {};
  };
  static void Expect(int fd, const Is& is, const test::Caller& /*caller*/ = test::Caller()) {
    const State state = StateOf(fd);
    EXPECT_EQ(state, is.state.value_or(state));
    EXPECT_EQ(IsKnown(fd), is.known.value_or(IsKnown(fd))) << "known";
    EXPECT_EQ(IsPending(fd), is.pending.value_or(IsPending(fd))) << "pending";
  }
  // It is known, and nothing of it is pending, though it was handed over.
  void MakeKnown(int fd) {
    for (int i = 0; i < 2; ++i) Fsync(fd);
    EXPECT_TRUE(!IsPending(fd) || SettleThrough(fd) == 0);
    Expect(fd, {.known = true, .pending = false});
  }
  // A file that was made in a known folder has an entry, and is cached later than others.
  static void MakeCached(int fd) {
    for (uint32_t i = 0; i < kSyncsToTryAgain && StateOf(fd) != State::kCached; ++i) Fsync(fd);
    EXPECT_EQ(StateOf(fd), State::kCached);
  }
  // Two pages.
  static char* Map(int fd, int flags, int protection) {
    const MapGuard guard(fd, flags == MAP_SHARED, protection);
    EXPECT_EQ(guard.error(), 0);
    void* at = ::mmap(nullptr, 2 * kPage, protection, flags, fd, 0);
    EXPECT_NE(at, MAP_FAILED);
    guard.Mapped(at, 2 * kPage);
    return static_cast<char*>(at);
  }
  // A child of fork.
  static pid_t StartForked(const std::function<bool()>& body) {
    BeforeFork();
    const pid_t child = fork();
    if (child == 0) {
      AfterForkInChild();
      const bool right = body();
      Stop();
      _exit(right ? 0 : 1);
    }
    AfterForkInParent();
    return child;
  }
  static int EndOf(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
  static int Forked(const std::function<bool()>& body) { return EndOf(StartForked(body)); }
  // What recovery would apply after a power failure, of all files.
  struct Found {
    uint64_t offset;
    std::string bytes;
    bool operator==(const Found&) const = default;
  };
  std::vector<Found> Pending() {
    std::vector<Found> found;
    std::vector<nvlog::Lsn> lsns;
    nvlog::Lsn settled = 0;
    test::ForEachCommitted(memory_ / "pool", [&](const test::FoundRecord& one) {
      const nvlog::RecordHeader& header = one.header;
      if (header.kind == nvlog::Kind::kSettled) settled = std::max(settled, header.offset);
      if (header.kind != nvlog::Kind::kData) return;
      found.push_back({header.offset, one.payload()});
      lsns.push_back(header.lsn);
    });
    std::vector<Found> counting;
    for (size_t i = 0; i < found.size(); ++i) {
      if (lsns[i] >= settled) counting.push_back(found[i]);
    }
    return counting;
  }

  // "a", which another process uses as well.
  class SharedFile : public Closing {
   public:
    explicit SharedFile(VfsThroughTest& test)
        : Closing(test.Open("a", O_RDWR | O_CREAT)), neighbour_(test.NeighbourOf(*this)) {}

   private:
    std::unique_ptr<Neighbour> neighbour_;
  };
  class KnownFile : public SharedFile {
   public:
    explicit KnownFile(VfsThroughTest& test) : SharedFile(test) { test.MakeKnown(*this); }
  };
};

TEST_F(VfsThroughTest, AHotFileOfTwoIsInTheKernelAndInTheLog) {
  WithEngine([&] {
    const int fd = Open("a", O_RDWR | O_CREAT);
    const auto neighbour = NeighbourOf(fd);
    EXPECT_EQ(Write(fd, "one ", 4), 4);
    EXPECT_EQ(Fsync(fd), kNotOurs);
    EXPECT_FALSE(engine.attached());
    EXPECT_EQ(Write(fd, "two ", 4), 4);
    EXPECT_EQ(Fsync(fd), 0);
    Expect(fd, {.state = State::kKernel, .known = true});
    EXPECT_EQ(Pending(), std::vector<Found>{});
    EXPECT_EQ(Write(fd, "three", 5), 5);
    EXPECT_EQ(Pwrite(fd, "O", 1, 0), 1);
    EXPECT_EQ(OnDisk("a"), "One two three");
    const std::vector<Found> both = {{8, "three"}, {0, "O"}};
    EXPECT_EQ(Pending(), both);
    EXPECT_EQ(Fsync(fd), 0);
    EXPECT_EQ(Pending(), both) << "there was no sync";
    EXPECT_EQ(Close(fd), 0);
  });
  EXPECT_EQ(pool::GlanceAt((memory_ / "pool").c_str()).kind, pool::Glance::Kind::kClean)
      << "at the end all is on the disk";
}

// For `nvcache status`.
TEST_IN_ENGINE(VfsThroughTest, TheSeatSaysByWhichRuleAndSinceWhen) {
  const SharedFile fd(*this);
  EXPECT_EQ(Write(fd, "one ", 4), 4);
  MakeKnown(fd);
  const pool::Seats& seats = engine.pool().seats();
  const pool::Conduct& conduct = seats.ConductOf(engine.pool().seat());
  EXPECT_EQ(pool::Peek(conduct.rule), pool::kRuleAuto);
  const uint64_t begin = sys::Now(CLOCK_REALTIME);
  EXPECT_EQ(Write(fd, "two ", 4), 4);
  // Or when the file was settled, just before.
  EXPECT_LE(pool::Peek(conduct.through_since), sys::Now(CLOCK_REALTIME));
  EXPECT_GT(pool::Peek(conduct.through_since), begin - 60000000000u);
  EXPECT_EQ(seats.through_moved(), 0u);
  EXPECT_TRUE(engine.checkpoint.Move());
  EXPECT_GE(seats.through_moved(), begin);
}

// A process with threads waits for a grace period of the kernel's when its table grows.
TEST_IN_ENGINE(VfsThroughTest, ItsDescriptorsLieInTheFirstTable) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  const auto neighbour = NeighbourOf(fd);
  EXPECT_EQ(Write(fd, "one ", 4), 4);
  MakeKnown(fd);
  EXPECT_EQ(engine.descriptors.CountInternal(), 3u);  // pool, leases, file system
  EXPECT_LE(engine.descriptors.end(), static_cast<uint32_t>(sys::kFirstTable));
}

TEST_IN_ENGINE(VfsThroughTest, AppendsAndVectors) {
  const Closing fd(Open("a", O_RDWR | O_CREAT | O_APPEND));
  const auto neighbour = NeighbourOf(fd);
  EXPECT_EQ(Write(fd, "first", 5), 5);
  MakeKnown(fd);
  const std::string page(pool::kPageSize, 'p');
  const iovec pieces[] = {{const_cast<char*>("12"), 2},
                          {const_cast<char*>(page.data()), page.size()},
                          {const_cast<char*>("34"), 2}};
  const auto length = static_cast<long>(page.size() + 4);
  EXPECT_EQ(Writev(fd, pieces, 3), length);
  EXPECT_EQ(Pending(), (std::vector<Found>{{5, "12" + page + "34"}}));
  EXPECT_EQ(OnDisk("a"), "first12" + page + "34");
  // What is left of the segment would take a part of it.
  const std::string long_one(50000, 'l');
  EXPECT_EQ(Write(fd, long_one.data(), long_one.size()), 50000);
  EXPECT_EQ(Write(fd, long_one.data(), long_one.size()), 50000);
  EXPECT_EQ(Pending().size(), 3u);
  EXPECT_EQ(Pending().back().bytes, long_one);
  // More than a segment has room for: an append is whole, so it is the kernel's alone.
  const std::string much(3 << 16, 'm');
  EXPECT_EQ(Write(fd, much.data(), much.size()), static_cast<long>(much.size()));
  Expect(fd, {.known = false, .pending = false});
  const std::string all = "first12" + page + "34" + long_one + long_one + much;
  EXPECT_EQ(OnDisk("a"), all);
  // In its place, it can be in several groups.
  const int other = Open("a");
  EXPECT_EQ(Fsync(other), 0);
  EXPECT_EQ(Pwrite(other, much.data(), much.size(), 5), static_cast<long>(much.size()));
  EXPECT_GT(Pending().size(), 1u);
  std::string logged;
  for (const Found& found : Pending()) logged += found.bytes;
  EXPECT_EQ(logged, much);
  Close(other);
}

// What a handler does, of the thread that writes, when it holds no lock: once a part is written.
struct Interruption {
  std::atomic<bool> writes{false}, done{false};
  int fd = -1;
  void (*deed)(int fd) = nullptr;
  static Interruption current;
  static void Handle(int /*signal*/) {
    Interruption& now = current;
    struct stat st;
    if (!now.writes || now.done || sys::deferral.depth != 0) return;
    if (::fstat(now.fd, &st) != 0 || st.st_size == 0) return;
    now.deed(now.fd);
    now.done = true;
  }
};
Interruption Interruption::current;

// Another thread may have the file cached while the write waits for room.
TEST_IN_ENGINE(VfsThroughTest, APartIsNotWrittenAgainWhenTheFileIsCached, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  {
    const auto neighbour = NeighbourOf(fd);
    MakeKnown(fd);
  }
  const std::string much(64 << 20, 'm');  // more than the log has room for
  Interruption& now = Interruption::current;
  now.fd = fd;
  now.deed = MakeCached;
  struct sigaction action = {};
  action.sa_handler = Interruption::Handle;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  std::atomic<bool> over{false};
  std::thread disturber([&, writer = ::pthread_self()] {
    for (; !over; usleep(1000)) ::pthread_kill(writer, SIGUSR1);
  });
  now.writes = true;
  const long n = Write(fd, much.data(), much.size());
  now.writes = false;
  over = true;
  disturber.join();
  EXPECT_TRUE(now.done);
  EXPECT_GT(n, 0);
  EXPECT_EQ(Lseek(fd, 0, SEEK_CUR), n);
  EXPECT_EQ(Lseek(fd, 0, SEEK_END), n);
}

// It appends, but the kernel looks at the offset first.
TEST_IN_ENGINE(VfsThroughTest, AnAppendWhoseOwnOffsetHasNoEndIsRefused) {
  const Closing fd(Open("a", O_RDWR | O_CREAT | O_APPEND));
  const auto neighbour = NeighbourOf(fd);
  EXPECT_EQ(Write(fd, "first", 5), 5);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, INT64_MAX - 4), -EINVAL);
  EXPECT_EQ(OnDisk("a"), "first");
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, INT64_MAX - 5), 5);
  EXPECT_EQ(Pending(), (std::vector<Found>{{5, "bytes"}}));
}

TEST_IN_ENGINE(VfsThroughTest, WhatGoesPastTheLogSettlesWhatIsPending) {
  const SharedFile fd(*this);
  const std::string path = disk_ / "a";
  const auto truncate_by_name = [&] {
    NameGuard guard;
    EXPECT_EQ(guard.Claim(AT_FDCWD, path.c_str()), 0);
    Expect(fd, {.known = false, .pending = false});
    EXPECT_EQ(guard.Add(AT_FDCWD, path.c_str()), 0);
    EXPECT_EQ(::truncate(path.c_str(), 1), 0);
  };
  const std::function<void()> calls[] = {
      [&] { EXPECT_EQ(Fallocate(fd, 0, 0, 5000), 0); },
      truncate_by_name,
      [&] { DrainAll(); },
      [&] { Close(Open("a", O_RDWR | O_DIRECT)); },
  };
  for (const auto& call : calls) {
    MakeKnown(fd);
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    EXPECT_TRUE(IsPending(fd));
    call();
    EXPECT_FALSE(IsPending(fd));
    EXPECT_EQ(Pending(), std::vector<Found>{});
  }
}

TEST_IN_ENGINE(VfsThroughTest, AWriteToAnUnknownFileIsTheKernelsAlone) {
  const KnownFile fd(*this);
  EXPECT_EQ(Fallocate(fd, 0, 0, 5000), 0);
  EXPECT_EQ(Pwrite(fd, "past", 4, 0), 4);
  Expect(fd, {.known = false, .pending = false});
  // Unless it promises a sync: then the next one is in the log.
  const iovec word = {const_cast<char*>("word"), 4};
  EXPECT_EQ(Pwritev(fd, &word, 1, 50, RWF_DSYNC), 4);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Pending(), (std::vector<Found>{{50, "word"}}));
}

TEST_IN_ENGINE(VfsThroughTest, WhileANeighbourPassesNothingIsKnown) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const uint64_t tag = TagOf(fd);
  auto neighbour =
      NeighbourOf(fd, [=](auto&, FileTable& file_table) { file_table.BeginInFlight(tag); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    Fsync(fd);
    Expect(fd, {.known = false, .pending = false});
  }
  neighbour->End();
  neighbour = NeighbourOf(fd);
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_TRUE(IsKnown(fd));
}

TEST_IN_ENGINE(VfsThroughTest, AMappedFilePasses) {
  const int fd = Open("a", O_RDWR | O_CREAT), other = Open("b", O_RDWR | O_CREAT);
  const auto neighbour = NeighbourOf(fd), second = NeighbourOf(other);
  for (const int file : {fd, other}) {
    MakeKnown(file);
    EXPECT_EQ(Pwrite(file, "bytes", 5, 0), 5);
  }
  EXPECT_EQ(PassThrough(fd, true), 0);
  EXPECT_EQ(PassThrough(other), 0);
  for (const int file : {fd, other}) {
    Expect(file, {.known = false, .pending = false});
    EXPECT_TRUE(MayBeWrittenUnseen(file));
  }
  const int kept = ::dup(fd), other_kept = ::dup(other);
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(Close(other), 0);
  EXPECT_TRUE(MayBeWrittenUnseen(kept)) << "the mapping stays";
  EXPECT_FALSE(MayBeWrittenUnseen(other_kept));
}

TEST_IN_ENGINE(VfsThroughTest, ALockThatNobodyLetsGoIsTakenAway) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const uint64_t tag = TagOf(fd);
  auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "pending", 7, 0), 7);
  const auto holder =
      NeighbourOf(fd, [=](auto&, FileTable& file_table) { file_table.Lock(file_table.At(tag)); });
  EXPECT_EQ(Pwrite(fd, "P", 1, 0), 1);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_FALSE(IsPending(fd)) << "before the write went past the log";
  EXPECT_EQ(OnDisk("a"), "Pending");
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_TRUE(IsKnown(fd));
}

// The rest goes past the log then, and the program hears of a whole write.
TEST_IN_ENGINE(VfsThroughTest, AWriteThatLosesTheLockMidwayIsMadeToItsEnd) {
  const SharedFile fd(*this);
  FileEntry& entry = engine.file_table.At(TagOf(fd));
  std::string bytes(2 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 / 5);
  MakeKnown(fd);
  const uint64_t bypasses = FileTable::CoverageOf(entry).bypasses;
  constexpr size_t kLate = 100;  // some groups come before its page, and some after it
  const test::LatePage late(bytes, kLate, [&] {
    EXPECT_GT(StatOf(fd).st_size, 0);
    EXPECT_LT(static_cast<size_t>(StatOf(fd).st_size), kLate * kPage);
    entry.lock.store(uint64_t{4000} << 51);  // as a process that has died since
  });
  if (!late.there()) GTEST_SKIP() << "no userfaultfd: " << std::strerror(errno);
  const iovec pieces[] = {{late.bytes(), 100000}, {late.bytes() + 100000, bytes.size() - 100000}};
  EXPECT_EQ(Pwritev(fd, pieces, 2, 0, 0), static_cast<long>(bytes.size()));
  EXPECT_TRUE(OnDisk("a") == bytes);
  EXPECT_NE(FileTable::CoverageOf(entry).bypasses, bypasses);
}

TEST_IN_ENGINE(VfsThroughTest, ALogThatIsFullIsWaitedFor) {
  const KnownFile fd(*this);
  const std::string bytes(1 << 20, 'b');
  for (off_t at = 0; at < 40 << 20; at += 1 << 20) {
    ASSERT_EQ(Pwrite(fd, bytes.data(), bytes.size(), at), static_cast<long>(bytes.size()));
  }
  EXPECT_TRUE(IsKnown(fd)) << "nothing went past the log";
}

TEST_IN_ENGINE(VfsThroughTest, ATruncationWaitsForRoomAsWell) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  FillLog(fd);
  EXPECT_EQ(Ftruncate(fd, 3), 0);
  EXPECT_TRUE(IsKnown(fd)) << "it did not go past the log";
  EXPECT_EQ(OnDisk("a"), "byt");
}

TEST_IN_ENGINE(VfsThroughTest, AFileWithAPlaceStaysKnownWhenTheTableIsFull) {
  const KnownFile fd(*this);
  FillTheTable();
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(Pending(), (std::vector<Found>{{0, "bytes"}}));
  const Closing again(Open("a"));
  EXPECT_EQ(Pwrite(again, "B", 1, 0), 1);
  EXPECT_EQ(Fsync(again), 0);
  EXPECT_EQ(Pending(), (std::vector<Found>{{0, "bytes"}, {0, "B"}}));
  Expect(fd, {.known = true, .pending = true});
}

// No call by that descriptor shows that the file is written to: so nobody believes in a log that
// has all of it, and nobody caches it. What the logs had does not undo what is written.
TEST_IN_ENGINE(VfsThroughTest, AFileWithoutAPlaceInTheTableIsNotKnown) {
  int fd = Open("a", O_RDWR | O_CREAT);
  const uint64_t tag = TagOf(fd);
  const FileEntry& entry = engine.file_table.At(tag);
  const auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "old", 3, 0), 3);
  EXPECT_EQ(Close(fd), 0);
  FillTheTable();
  EXPECT_TRUE(FileTable::CoverageOf(entry).known && engine.file_table.IsPending(entry));
  fd = Open("a");
  EXPECT_EQ(Pwrite(fd, "new", 3, 0), kNotOurs);
  EXPECT_FALSE(FileTable::CoverageOf(entry).known);
  EXPECT_FALSE(engine.file_table.IsPending(entry)) << "recovery would undo it";
  EXPECT_TRUE(MayBeWrittenUnseen(fd));
  neighbour->End();
  const struct stat st = StatOf(fd);
  const Neighbour other(memory_.path(), [&](test::Member& member) {
    member.leases.AddUser(st.st_dev, st.st_ino);
    if (member.leases.TryExclusive(st.st_dev, st.st_ino)) _exit(1);
  });
  ::close(fd);
}

// No call shows what is written by a descriptor of such a file.
TEST_IN_ENGINE(VfsThroughTest, WhatTheLogHasOfAFileThatPassesThroughIsOnTheDisk) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const FileEntry& entry = engine.file_table.At(TagOf(fd));
  const auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "old", 3, 0), 3);
  {
    TableLock lock;
    EXPECT_EQ(PassThrough(*engine.descriptors.Of(fd)->file.load()), 0);
  }
  Expect(fd, {.state = State::kPassThrough, .known = false, .pending = true});
  const Closing again(Open("a"));
  EXPECT_EQ(Pwrite(again, "new", 3, 0), kNotOurs);
  EXPECT_FALSE(engine.file_table.IsPending(entry)) << "recovery would undo it";
}

// Another process has it open: it cannot be cached, and each write is in the log nevertheless.
TEST_IN_ENGINE(VfsThroughTest, WithTheRuleAlwaysAFileOfTwoIsWriteThrough,
               "NVCACHE_WRITE_BACK=always") {
  const int other = ::open(Path("a").c_str(), O_RDWR | O_CREAT, 0600);
  const auto neighbour = NeighbourOf(other);
  ::close(other);
  const Closing fd(Open("a"));
  Expect(fd, {.state = State::kKernel, .known = true, .pending = false});
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  Expect(fd, {.state = State::kKernel, .known = true, .pending = true});
}

// Of which another process was told: nobody would hear of it again.
TEST_IN_ENGINE(VfsThroughTest, AnOpenThatSettlesTellsOfAnError, "NVCACHE_WRITE_BACK=always") {
  const std::string path = Path("a");
  const int other = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  const auto neighbour = NeighbourOf(other);
  ::close(other);
  const Closing fd(Open("a"));
  FileTable::Refuse(engine.file_table.At(TagOf(fd)), TagOf(fd));
  const int again = ::open(path.c_str(), O_RDWR);
  {
    OpenGuard guard(AT_FDCWD, path.c_str(), O_RDWR, 0);
    EXPECT_EQ(guard.Opened(again), -EIO);
  }
  Return(again);
}

// Groups of it count still, from before it was given back.
TEST_IN_ENGINE(VfsThroughTest, WithTheRuleAlwaysAFileIsCachedAgainAtItsNextOpen,
               "NVCACHE_WRITE_BACK=always") {
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_EQ(StateOf(fd), State::kCached);
  {
    TableLock lock;
    EXPECT_EQ(GiveBack(*engine.descriptors.Of(fd)->file.load()), 0);
  }
  Expect(fd, {.state = State::kKernel, .known = true, .pending = true});
  EXPECT_EQ(Close(fd), 0);
  const Closing again(Open("a"));
  EXPECT_EQ(StateOf(again), State::kCached);
  EXPECT_EQ(Pwrite(again, "B", 1, 0), 1);
  EXPECT_EQ(OnDisk("a"), "bytes");
}

// A batch that was under way has brought the last of it to the disk.
TEST_IN_ENGINE(VfsThroughTest, AFileIsHandedOverOfWhichNothingIsPendingAnyMore,
               "NVCACHE_WRITE_BACK=always") {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  engine.cleaner.DrainAll();
  {
    TableLock lock;
    File& file = *engine.descriptors.Of(fd)->file.load();
    file.lock.Lock();
    EXPECT_EQ(file.pending.load(), 0u);
    EXPECT_TRUE(HandOverFile(file));
    file.lock.Unlock();
    EXPECT_EQ(GiveBack(file), 0);
  }
  Expect(fd, {.state = State::kKernel, .known = true, .pending = true});
  EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
  EXPECT_EQ(OnDisk("a"), "Bytes");
}

TEST_IN_ENGINE(VfsThroughTest, NorDoesTheLogHaveAFileThatPassesThroughByItsName) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "old", 3, 0), 3);
  Expect(fd, {.state = State::kKernel, .known = true, .pending = true});
  EXPECT_EQ(PassThroughPath(AT_FDCWD, Path("a").c_str()), 0);
  Expect(fd, {.state = State::kPassThrough, .known = false, .pending = false});
}

TEST_IN_ENGINE(VfsThroughTest, AFileWithoutANameIsTheKernelsAlone) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  {
    NameGuard guard;
    const std::string path = disk_ / "a";
    EXPECT_EQ(guard.Claim(AT_FDCWD, path.c_str()), 0);
    EXPECT_EQ(guard.Add(AT_FDCWD, path.c_str(), false, NameGuard::Fate::kIsRemoved), 0);
    EXPECT_EQ(::unlink(path.c_str()), 0);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Pwrite(fd, "more", 4, 0), 4);
    EXPECT_EQ(Fsync(fd), 0);
  }
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_EQ(Pending(), std::vector<Found>{}) << "recovery would not find it";
}

TEST_IN_ENGINE(VfsThroughTest, ABadBufferLeavesTheFileKnown) {
  const KnownFile fd(*this);
  const test::Unreadable nowhere;
  EXPECT_EQ(Pwrite(fd, nowhere.bytes(), 100, 0), -EFAULT);
  EXPECT_EQ(Pending(), std::vector<Found>{});
  EXPECT_TRUE(IsKnown(fd));
  const iovec half[] = {{const_cast<char*>("good"), 4}, {nowhere.bytes(), 100}};
  EXPECT_EQ(Pwritev(fd, half, 2, 10, 0), 4);
  EXPECT_EQ(Pending(), (std::vector<Found>{{10, "good"}}));
}

TEST_IN_ENGINE(VfsThroughTest, AFileThatIsNobodyElsesAnyMoreBecomesCached, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "shared", 6, 0), 6);
  neighbour->End();
  for (uint32_t i = 0; i < kSyncsToTryAgain && StateOf(fd) == State::kKernel; ++i) {
    EXPECT_EQ(Fsync(fd), 0);
  }
  EXPECT_EQ(StateOf(fd), State::kCached);
  EXPECT_EQ(engine.file_table.Find(TagOf(fd)), nullptr);
  EXPECT_EQ(Pwrite(fd, "S", 1, 0), 1);
  char bytes[6];
  EXPECT_EQ(Pread(fd, bytes, 6, 0), 6);
  EXPECT_EQ(std::string(bytes, 6), "Shared");
}

// A neighbour that has waited until it has the file.
std::unique_ptr<Neighbour> VfsThroughTest::Claimant(int fd) {
  const struct stat st = StatOf(fd);
  return NeighbourOf(fd, [=](lease::Leases& leases, auto&) {
    constexpr uint64_t kLong = 60ull * 1000 * 1000 * 1000;
    if (!leases.AwaitRelease(st.st_dev, st.st_ino, kLong)) _exit(1);
  });
}

// No sync, and no batch, is waited for.
TEST_IN_ENGINE(VfsThroughTest, AFileThatAnotherOneWantsIsPublished, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_EQ(StateOf(fd), State::kCached);
  engine.cleaner.DrainAll();
  const uint64_t syncs = pool::Peek(engine.statistics()->syncs);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  const auto neighbour = Claimant(fd);
  EXPECT_EQ(StateOf(fd), State::kKernel);
  EXPECT_EQ(OnDisk("a"), "bytes");
  Expect(fd, {.known = true, .pending = true});
  EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(OnDisk("a"), "Bytes");
  EXPECT_EQ(Pending(), (std::vector<Found>{{0, "bytes"}, {0, "B"}}));
  EXPECT_EQ(pool::Peek(engine.statistics()->syncs), syncs);
}

// What is renamed, or whose mode is changed, is not on the disk yet as it is.
TEST_IN_ENGINE(VfsThroughTest, AFileThatOwesASyncIsPublishedButNotKnown, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_EQ(Pwrite(fd, "Bytes", 5, 0), 5);
  EXPECT_EQ(::fchmod(fd, 0640), 0);
  test::Sets(fd, pool::kSetMode);
  const auto neighbour = Claimant(fd);
  EXPECT_EQ(StateOf(fd), State::kKernel);
  EXPECT_EQ(OnDisk("a"), "Bytes");
  EXPECT_FALSE(IsKnown(fd));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Fsync(fd), 0);
  Expect(fd, {.known = true, .pending = false});
}

// Its entry is another file's that has something pending.
TEST_IN_ENGINE(VfsThroughTest, AFileThatCannotBePublishedIsDrained, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  const uint64_t tag = TagOf(fd);
  FileEntry& entry = engine.file_table.At(tag);
  EXPECT_TRUE(engine.file_table.SetTag(entry, tag ^ uint64_t{1} << 63));
  FileTable::Raise(entry.lsn, engine.log.Draw());
  const auto neighbour = Claimant(fd);
  EXPECT_EQ(StateOf(fd), State::kKernel);
  EXPECT_EQ(OnDisk("a"), "bytes");
  EXPECT_EQ(engine.file_table.Find(tag), nullptr);
  EXPECT_EQ(Pending(), std::vector<Found>{});
}

// The checkpoint passes what was handed over when the file system was synced: at once, if somebody
// waits for a record behind it.
TEST_IN_ENGINE(VfsThroughTest, TheCheckpointPassesWhatWasPublished, kAllExclusive) {
  const int fd = Open("a", O_RDWR | O_CREAT), other = Open("b", O_RDWR | O_CREAT);
  for (const int each : {fd, fd, other, other}) Fsync(each);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  const auto neighbour = Claimant(fd);
  EXPECT_NE(engine.cleaner.handed_over(), 0u);
  EXPECT_EQ(Pwrite(other, "later", 5, 0), 5);
  EXPECT_EQ(Drain(other), 0);
  EXPECT_EQ(engine.cleaner.handed_over(), 0u);
  EXPECT_EQ(Pending(), std::vector<Found>{});
  EXPECT_EQ(OnDisk("b"), "later");
  for (const int each : {fd, other}) Close(each);
}

// Its number in the log is the same, and what it has there from before is nobody's.
TEST_IN_ENGINE(VfsThroughTest, AFileThatWasPublishedIsCachedAgain, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  for (int i = 0; i < 2; ++i) Fsync(fd);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    Claimant(fd)->End();
    EXPECT_EQ(StateOf(fd), State::kKernel);
    for (uint32_t i = 0; i < 2 * kSyncsToTryAgain && StateOf(fd) == State::kKernel; ++i) {
      EXPECT_EQ(Fsync(fd), 0);
    }
    EXPECT_EQ(StateOf(fd), State::kCached);
    EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
    char bytes[5];
    EXPECT_EQ(Pread(fd, bytes, 5, 0), 5);
    EXPECT_EQ(std::string(bytes, 5), "Bytes");
  }
  EXPECT_EQ(Drain(fd), 0);
  EXPECT_EQ(OnDisk("a"), "Bytes");
}

// There and back, and there again.
TEST_IN_ENGINE(VfsThroughTest, AFileThatWasCachedIsSharedAgain, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  neighbour->End();
  for (uint32_t i = 0; i < kSyncsToTryAgain && StateOf(fd) == State::kKernel; ++i) Fsync(fd);
  EXPECT_EQ(StateOf(fd), State::kCached);
  neighbour = Claimant(fd);
  EXPECT_EQ(StateOf(fd), State::kKernel);
  for (int i = 0; i < 3; ++i) Fsync(fd);
  EXPECT_TRUE(IsKnown(fd));
}

// Another process had it for itself meanwhile, say.
TEST_IN_ENGINE(VfsThroughTest, ATagThatWasRemovedIsSetAgain) {
  const KnownFile fd(*this);
  EXPECT_TRUE(engine.file_table.RemoveTag(*engine.file_table.Find(TagOf(fd))));
  for (uint32_t i = 0; i < kSyncsToTryAgain && !IsKnown(fd); ++i) Fsync(fd);
  EXPECT_TRUE(IsKnown(fd));
}

// What a pool that is gone has left in the table does not keep files with the same numbers waiting.
TEST_F(VfsThroughTest, ATableThatNobodyUsesIsTakenOver) {
  for (const bool shares : {false, true}) {
    WithEngine(
        [&] {
          const int fd = Open("a", O_RDWR | O_CREAT);
          const uint64_t tag = TagOf(fd);
          {
            const auto dead = NeighbourOf(fd, [=](auto&, FileTable& file_table) {
              EXPECT_TRUE(file_table.Join(12345));
              EXPECT_TRUE(file_table.SetTag(file_table.At(tag), tag));
              FileTable::Raise(file_table.At(tag).lsn, uint64_t{1} << 60);
            });
          }
          const auto neighbour = shares ? NeighbourOf(fd) : nullptr;
          const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
          EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
          EXPECT_EQ(Ftruncate(fd, 100), 0);
          for (int i = 0; i < 4; ++i) Fsync(fd);
          EXPECT_EQ(StateOf(fd), shares ? State::kKernel : State::kCached);
          EXPECT_EQ(IsKnown(fd), shares);
          EXPECT_LT(sys::Now(CLOCK_MONOTONIC) - begin, 10ull * 1000 * 1000 * 1000);
          Close(fd);
        },
        {kAllExclusive});
  }
}

// A program without us may have written to the file before.
TEST_IN_ENGINE(VfsThroughTest, WhoOpensAFileDoesNotTakeItForKnown) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  const auto neighbour = NeighbourOf(fd);
  const uint64_t tag = TagOf(fd);
  MakeKnown(fd);
  Close(fd);
  EXPECT_TRUE(FileTable::CoverageOf(*engine.file_table.Find(tag)).known);
  Close(Open("a"));
  EXPECT_TRUE(FileTable::CoverageOf(*engine.file_table.Find(tag)).known) << "it is as it was left";
  const int strange = ::open((disk_ / "a").c_str(), O_WRONLY | O_APPEND);
  EXPECT_EQ(::write(strange, "more", 4), 4);
  ::close(strange);
  const Closing again(Open("a"));
  EXPECT_FALSE(IsKnown(again));
  EXPECT_EQ(Fsync(again), 0);
  EXPECT_TRUE(IsKnown(again));
}

// So the next one to open it need not sync it to know it.
TEST_IN_ENGINE(VfsThroughTest, ACachedFileIsKnownWhenItIsClosedAndOnTheDisk, kAllExclusive) {
  for (const bool is_changed : {false, true}) {
    const std::string name = is_changed ? "changed" : "a";
    const int fd = Open(name, O_RDWR | O_CREAT);
    for (uint32_t i = 0; i < kSyncsToTryAgain && StateOf(fd) == State::kKernel; ++i) Fsync(fd);
    EXPECT_EQ(StateOf(fd), State::kCached);
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    Close(fd);
    DrainAll();
    if (is_changed) test::WriteFile(disk_ / name, "by a program without us");
    const int again = Open(name);
    EXPECT_EQ(StateOf(again), State::kKernel);
    EXPECT_EQ(IsKnown(again), !is_changed);
    Close(again);
  }
}

// SQLite gives its journal to root each time that root opens it.
TEST_F(VfsThroughTest, AFileStaysKnownThatGetsTheOwnerThatItHas) {
  enum class Case { kSaysSo, kSaysNothing, kSomebodyWrites };
  for (const Case each : {Case::kSaysSo, Case::kSaysNothing, Case::kSomebodyWrites}) {
    WithEngine([&] {
      const int fd = Open("a", O_RDWR | O_CREAT);
      const auto neighbour = NeighbourOf(fd);
      MakeKnown(fd);
      EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
      Close(fd);
      const int reader = Open("a", O_RDONLY);
      const sys::BornStat before = BornStatOf(reader);
      ::usleep(20000);  // the kernel's clock for times of change
      EXPECT_EQ(::fchown(reader, before.st_uid, before.st_gid), 0);
      if (each == Case::kSomebodyWrites) {
        const int strange = ::open((disk_ / "a").c_str(), O_WRONLY);
        EXPECT_EQ(::write(strange, "other", 5), 5);
        ::close(strange);
      }
      if (each != Case::kSaysNothing) KeepCoverage(reader, before);
      Close(reader);
      const int again = Open("a");
      EXPECT_EQ(IsKnown(again), each == Case::kSaysSo);
      Close(again);
    });
  }
}

// Whoever has it open has made sure of it. Each of many would make the others' next sync real.
TEST_IN_ENGINE(VfsThroughTest, WhoOpensAFileThatAnotherOneHasOpenTakesItAsItIs) {
  int fd = Open("a", O_RDWR | O_CREAT);
  const uint64_t tag = TagOf(fd);
  const auto change = [&] {
    const int other = ::open((disk_ / "a").c_str(), O_WRONLY | O_APPEND);
    EXPECT_EQ(::write(other, "more", 4), 4);
    ::close(other);
  };
  {
    const auto neighbour =
        NeighbourOf(fd, [=](auto&, const FileTable& file_table) { file_table.SayOpen(tag); });
    MakeKnown(fd);
    Close(fd);
    change();
    fd = Open("a");
    EXPECT_TRUE(IsKnown(fd));
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    EXPECT_EQ(Pending(), (std::vector<Found>{{0, "bytes"}}));
    Close(fd);
  }
  change();
  fd = Open("a");
  EXPECT_FALSE(IsKnown(fd)) << "it has ended";
  Close(fd);
}

TEST_IN_ENGINE(VfsThroughTest, AProcessSaysThatItHasAFileOpen) {
  int fd = Open("a", O_RDWR | O_CREAT);
  const uint64_t tag = TagOf(fd);
  const auto neighbour = NeighbourOf(fd);
  EXPECT_FALSE(IsSaidOpen(tag)) << "it has no entry";
  MakeKnown(fd);
  EXPECT_TRUE(IsSaidOpen(tag)) << "whoever sets its tag";
  const int second = Open("a");
  Close(fd);
  EXPECT_TRUE(IsSaidOpen(tag));
  EXPECT_EQ(Forked([&] { return Close(second) == 0; }), 0);
  EXPECT_TRUE(IsSaidOpen(tag)) << "a child's are not this process's";
  Close(second);
  EXPECT_FALSE(IsSaidOpen(tag));
  fd = Open("a");
  EXPECT_TRUE(IsSaidOpen(tag)) << "whoever opens it";
  Close(fd);
  EXPECT_FALSE(IsSaidOpen(tag));
}

// Most files are only read, and to say it costs calls.
TEST_IN_ENGINE(VfsThroughTest, AReaderSaysNothingBeforeItSyncs) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  const uint64_t tag = TagOf(fd);
  const auto neighbour = NeighbourOf(fd);
  const auto coverage = [&] { return FileTable::CoverageOf(*engine.file_table.Find(tag)); };
  const auto change = [&] {
    const int strange = ::open((disk_ / "a").c_str(), O_WRONLY | O_APPEND);
    EXPECT_EQ(::write(strange, "more", 4), 4);
    ::close(strange);
  };
  MakeKnown(fd);
  Close(fd);
  change();
  int reader = Open("a", O_RDONLY);
  EXPECT_FALSE(IsSaidOpen(tag));
  const uint64_t bypasses = coverage().bypasses;
  EXPECT_EQ(Fsync(reader), 0);
  EXPECT_GT(coverage().bypasses, bypasses) << "it was unknown, and the sync a real one";
  EXPECT_TRUE(coverage().known);
  EXPECT_TRUE(IsSaidOpen(tag));
  Close(reader);

  change();
  reader = Open("a", O_RDONLY);
  const int writer = Open("a", O_WRONLY);
  EXPECT_FALSE(coverage().known);
  EXPECT_EQ(Fsync(writer), 0);
  Close(writer);
  EXPECT_TRUE(IsSaidOpen(tag)) << "as long as the file is open";
  Close(reader);

  change();
  Close(Open("a", O_RDONLY));
  Close(Open("a", O_WRONLY));
  EXPECT_FALSE(coverage().known) << "a reader does not vouch for what it finds";
}

TEST_IN_ENGINE(VfsThroughTest, WhoeverPublishesAFileSaysThatItHasItOpen, kAllExclusive) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  MakeCached(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_FALSE(IsSaidOpen(TagOf(fd)));
  const auto neighbour = Claimant(fd);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_TRUE(IsSaidOpen(TagOf(fd)));
}

// Others have had the file system open for longer. Nobody waits for them.
TEST_IN_ENGINE(VfsThroughTest, WhoeverNeedsItMovesTheCheckpoint) {
  const KnownFile fd(*this);
  auto& seats = const_cast<pool::Seats&>(engine.pool().seats());
  const uint32_t older = seats.Take();
  seats.NoteThroughSince(older, 1);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_TRUE(engine.checkpoint.Move());
  EXPECT_FALSE(IsPending(fd));
  seats.NoteThroughSince(older, 0);
  seats.Give(older);
}

// Something older than a call that nobody saw is pending, and somebody is at the checkpoint. Of two
// syncs, neither is over before that is on the disk.
TEST_IN_ENGINE(VfsThroughTest, EachSyncWaitsForWhatIsOlderThanAnUnseenCall) {
  const KnownFile fd(*this);
  static Host interposed;
  interposed = *engine.host;
  interposed.find_interposer = [] { return "a library"; };
  engine.host = &interposed;
  engine.callers.Begin();
  UnseenCall call;
  EXPECT_TRUE(call.Begin());
  FileEntry& entry = engine.file_table.At(TagOf(fd));
  FileTable::Raise(entry.lsn, engine.log.Draw());  // another process's
  call.End();
  const int at_it = open(engine.pool().path(), O_RDWR | O_CLOEXEC);
  ASSERT_TRUE(pool::HoldByte(at_it, pool::kThroughByte, false));
  std::atomic<int> over = 0, early = 0;
  const auto sync = [&] {
    SettleUnseen(fd);
    if (engine.file_table.IsPending(entry)) ++early;
    ++over;
  };
  std::thread one(sync), other(sync);
  for (int i = 0; i < 500 && over == 0; ++i)
    usleep(1000);  // one that does not wait is over by then
  close(at_it);
  one.join();
  other.join();
  EXPECT_EQ(early, 0);
}

// A process without a descriptor of the file system asks the others, who would move the checkpoint
// seconds later. The call ends when one has.
TEST_IN_ENGINE(VfsThroughTest, WhoCannotMoveTheCheckpointAsksForIt) {
  constexpr uint64_t kOtherPool = 12345, kPendingLsn = 1000;
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const uint64_t tag = TagOf(fd);
  const auto neighbour = NeighbourOf(fd, [=](auto&, FileTable& file_table) {
    EXPECT_TRUE(file_table.Join(kOtherPool));
    EXPECT_TRUE(file_table.SetTag(file_table.At(tag), tag));
    FileTable::Raise(file_table.At(tag).lsn, kPendingLsn);
  });
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over && engine.file_table.wanted() < kPendingLsn) std::this_thread::yield();
    engine.file_table.RaiseCheckpoint(kPendingLsn + 1);
  });
  EXPECT_EQ(Ftruncate(fd, 100), 0);
  is_over = true;
  other.join();
  EXPECT_EQ(engine.file_table.wanted(), kPendingLsn);
  EXPECT_FALSE(engine.file_table.IsPending(engine.file_table.At(tag)));
}

// A process that ends leaves its groups to one that moves the checkpoint, and to nobody who is
// idle, about to end, or has no descriptor yet.
TEST_IN_ENGINE(VfsThroughTest, GroupsAreLeftToOneThatStays) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_FALSE(engine.checkpoint.SomebodyStays()) << "there is nobody";
  pool::Pool other;
  pool::Problem problem;
  ASSERT_TRUE(other.Open(engine.pool().path(), pool::Mode::kShared, true, nullptr, &problem));
  ASSERT_TRUE(other.Join(&problem));
  EXPECT_FALSE(engine.checkpoint.SomebodyStays()) << "it has no descriptor";
  for (const nvlog::Lsn since : {pool::Seats::kComing, pool::Seats::kIdle, pool::Seats::kGoing}) {
    other.seats().NoteThroughSince(other.seat(), since);
    EXPECT_FALSE(engine.checkpoint.SomebodyStays());
    EXPECT_TRUE(engine.pool().seats().OthersHaveThrough(engine.pool().seat()));
  }
  other.seats().NoteThroughSince(other.seat(), 1);
  EXPECT_TRUE(engine.checkpoint.SomebodyStays());
  other.seats().NoteThroughSince(other.seat(), 0);
  other.Leave(false);
  other.Close();
  EXPECT_FALSE(engine.checkpoint.SomebodyStays());
}

// Another process may be stopped while it has an orphan adopted. Who looks for room adopts another
// one, and leaves the table to those who open files.
TEST_IN_ENGINE(VfsThroughTest, WhoLooksForRoomWaitsForNobody) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  const pool::Seats& seats = engine.pool().seats();
  test::ScopedPool slow;
  uint32_t adopted = pool::kNoSeat, dead = pool::kNoSeat;
  {
    const TableLock lock;
    test::ScopedPool first, second;
    for (test::ScopedPool* pool : {&slow, &first}) test::Use(*pool, engine.pool().path());
    first.Close();
    adopted = slow.Adopt();
    test::Use(second, engine.pool().path());
    dead = second.seat();
  }
  ASSERT_EQ(seats.State(adopted), pool::kSeatReplayed);
  engine.responder.LookForRoomSoon();
  // 20 s at most; it would be a minute.
  const auto until = [](const auto& condition) {
    for (int i = 0; i < 20000 && !condition(); ++i) usleep(1000);
  };
  until([&] { return seats.State(dead) == pool::kSeatFree; });
  EXPECT_EQ(seats.State(dead), pool::kSeatFree) << "it adopts the other one";
  bool locked = false;
  until([&] { return locked = engine.table_lock.TryLock(); });
  EXPECT_TRUE(locked) << "it waits for the one that is slow";
  if (locked) engine.table_lock.Unlock();
  EXPECT_EQ(seats.State(adopted), pool::kSeatReplayed);
  slow.Settle(adopted, true);
  slow.Leave(false);
}

// What the process writes after `leave` is in no log. Another process has been at it for longer.
void VfsThroughTest::NothingIsPendingAfter(int fd, const std::function<void()>& leave) {
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  const FileEntry& entry = engine.file_table.At(TagOf(fd));
  pool::Pool older;
  pool::Problem problem;
  ASSERT_TRUE(older.Open(engine.pool().path(), pool::Mode::kShared, true, nullptr, &problem));
  ASSERT_TRUE(older.Join(&problem));
  older.seats().NoteThroughSince(older.seat(), 1);
  EXPECT_TRUE(engine.file_table.IsPending(entry));
  leave();
  EXPECT_FALSE(engine.file_table.IsPending(entry)) << "recovery would undo what comes";
  older.seats().NoteThroughSince(older.seat(), 0);
}

TEST_IN_ENGINE(VfsThroughTest, OneThatRetiresLeavesNothingPending) {
  const KnownFile fd(*this);
  NothingIsPendingAfter(fd, [] { engine.Retire(lease::Hindrance::kRing); });
  EXPECT_EQ(StateOf(fd), State::kPassThrough);
}

TEST_IN_ENGINE(VfsThroughTest, NorDoesOneThatLeaves) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  const auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  NothingIsPendingAfter(fd, [] { engine.Leave(); });
  EXPECT_EQ(close(fd), 0) << "it is the kernel's alone";
}

// It is stopped, perhaps: another one that has waited long enough does without the lock.
TEST_IN_ENGINE(VfsThroughTest, OneThatIsAtItIsNotWaitedForForEver) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  const int stopped = open(engine.pool().path(), O_RDWR | O_CLOEXEC);
  ASSERT_TRUE(pool::HoldByte(stopped, pool::kThroughByte, false));
  EXPECT_FALSE(engine.checkpoint.Move()) << "somebody is at it";
  EXPECT_TRUE(IsPending(fd));
  EXPECT_TRUE(engine.checkpoint.Move(true));
  EXPECT_FALSE(IsPending(fd));
  EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
  // In the store itself nobody passes.
  ASSERT_TRUE(pool::HoldByte(stopped, pool::kThroughStoreByte, false));
  EXPECT_FALSE(engine.checkpoint.Move(true));
  close(stopped);
  EXPECT_TRUE(engine.checkpoint.Move());
  EXPECT_FALSE(IsPending(fd));
}

// The checkpoint stays, so it is not waited for.
TEST_IN_ENGINE(VfsThroughTest, AfterAnErrorNobodyWaitsForTheCheckpoint) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  engine.pool().seats().SetThroughFailed(EIO);
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  InFlight in_flight;
  EXPECT_NE(in_flight.Begin(TagOf(fd)), nullptr);
  EXPECT_EQ(in_flight.Bypass(-1), -EIO);
  in_flight.End();
  EXPECT_LT(sys::Now(CLOCK_MONOTONIC) - begin, 10ull * 1000 * 1000 * 1000);
  EXPECT_TRUE(IsPending(fd));
}

// The kernel tells a descriptor once of an error: what comes next must not make the log void that
// alone has the bytes, perhaps; nor go to the disk below them.
TEST_IN_ENGINE(VfsThroughTest, AFileWhoseSyncHasFailedIsNotSettled) {
  const int fd = Open("a", O_RDWR | O_CREAT), other = Open("b", O_RDWR | O_CREAT);
  const auto neighbour = NeighbourOf(fd), second = NeighbourOf(other);
  const auto fail_sync = [](int file) {
    const int spare = ::dup(file), null = ::open("/dev/null", O_RDWR);
    EXPECT_EQ(::dup2(null, file), file);
    EXPECT_EQ(SettleThrough(file), -EINVAL);
    EXPECT_EQ(::dup2(spare, file), file);
    ::close(spare);
    ::close(null);
  };
  MakeKnown(fd);
  MakeKnown(other);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  fail_sync(fd);
  fail_sync(other);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Fsync(fd), -EIO);
    EXPECT_EQ(Pwrite(fd, "B", 1, 0), -EIO);
    EXPECT_EQ(Ftruncate(fd, 0), -EIO);
    EXPECT_EQ(Fallocate(fd, 0, 0, 5000), -EIO);
    EXPECT_EQ(PassThrough(fd), -EIO);
    EXPECT_EQ(Pending(), (std::vector<Found>{{0, "bytes"}}));
  }
  const std::string path = disk_ / "a";
  {
    NameGuard guard;
    EXPECT_EQ(guard.Claim(AT_FDCWD, path.c_str()), -EIO);
  }
  EXPECT_EQ(OpenGuard(AT_FDCWD, path.c_str(), O_RDWR | O_TRUNC, 0).error(), -EIO);
  EXPECT_EQ(Pwrite(other, "bytes", 5, 0), 5) << "nothing of it is pending";
  EXPECT_EQ(Fsync(other), -EIO) << "it is told once";
  EXPECT_EQ(Fsync(other), 0);
  Close(fd);
  Close(other);
}

// What a disk has lost, nobody takes for synced.
TEST_IN_ENGINE(VfsThroughTest, AfterAnErrorAllGoesPastTheLog) {
  const KnownFile fd(*this);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  engine.pool().seats().SetThroughFailed(EIO);
  EXPECT_FALSE(engine.checkpoint.Move());
  EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
  EXPECT_EQ(OnDisk("a"), "Bytes");
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_FALSE(IsPending(fd)) << "this file was settled";
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_FALSE(IsKnown(fd));
}

// ---------------------------------------------------------------------------------------- Mappings

TEST_F(VfsThroughTest, AFileThatIsMappedForReadingIsWriteThrough) {
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    WithEngine(
        [&] {
          const int fd = Open(std::to_string(flags), O_RDWR | O_CREAT);
          EXPECT_EQ(Ftruncate(fd, 2 * kPage), 0);
          MakeCached(fd);
          EXPECT_EQ(Pwrite(fd, "cached", 6, 0), 6);
          const int protection = PROT_READ | (flags == MAP_PRIVATE ? PROT_WRITE : 0);
          const char* at = Map(fd, flags, protection);
          EXPECT_EQ(std::string(at), "cached");
          EXPECT_EQ(StateOf(fd), State::kLent);
          MakeKnown(fd);
          EXPECT_EQ(Pwrite(fd, "mapped", 6, 0), 6);
          EXPECT_EQ(std::string(at), "mapped");
          for (uint32_t i = 0; i < 2 * kSyncsToTryAgain; ++i) EXPECT_EQ(Fsync(fd), 0);
          EXPECT_EQ(Pending(), (std::vector<Found>{{0, "mapped"}})) << "there was no sync";
          EXPECT_EQ(StateOf(fd), State::kLent);
          Close(fd);
        },
        {kAllExclusive});
  }
}

TEST_IN_ENGINE(VfsThroughTest, AMappingThatIsMadeWritablePasses) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  EXPECT_EQ(Ftruncate(fd, 2 * kPage), 0);
  char* at = Map(fd, MAP_SHARED, PROT_READ);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_EQ(Protect(at, 2 * kPage, PROT_NONE), 0);
  EXPECT_EQ(Protect(at - kPage, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(Protect(at + 2 * kPage, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Protect(at + kPage, 1, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_EQ(Pending(), std::vector<Found>{});
  EXPECT_EQ(StateOf(fd), State::kPassThrough);
  EXPECT_TRUE(MayBeWrittenUnseen(fd));
}

TEST_IN_ENGINE(VfsThroughTest, AMappingThatCannotBeMadeWritableMayBeAskedTo) {
  const int fd = Open("a", O_RDWR | O_CREAT), reader = Open("a", O_RDONLY);
  EXPECT_EQ(Ftruncate(fd, 2 * kPage), 0);
  char* shared = Map(reader, MAP_SHARED, PROT_READ);
  char* own = Map(fd, MAP_PRIVATE, PROT_READ);
  MakeKnown(fd);
  EXPECT_EQ(Protect(shared, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_LT(::mprotect(shared, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(Protect(own, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(IsKnown(fd));
  Close(fd);
  Close(reader);
}

TEST_IN_ENGINE(VfsThroughTest, MappingsAreFollowedWhereTheyGo) {
  const SharedFile fd(*this);
  EXPECT_EQ(Ftruncate(fd, 2 * kPage), 0);
  MakeKnown(fd);
  const auto writable = [](const char* at) {
    return Protect(at, kPage, PROT_READ | PROT_WRITE) == 0;
  };
  char* at = Map(fd, MAP_SHARED, PROT_READ);
  char* place =
      static_cast<char*>(::mmap(nullptr, 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_EQ(Unmap(place, kPage), kNotOurs);
  EXPECT_EQ(Remap(place, kPage, 2 * kPage, 0, nullptr), kNotOurs);
  EXPECT_EQ(Remap(at, 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, place),
            reinterpret_cast<long>(place));
  EXPECT_TRUE(writable(at));
  EXPECT_TRUE(IsKnown(fd)) << "it is not there any more";
  EXPECT_EQ(Unmap(place, 2 * kPage), 0);
  EXPECT_TRUE(writable(place));
  EXPECT_TRUE(IsKnown(fd));
  // Another one of what is there, and a part that goes.
  at = Map(fd, MAP_SHARED, PROT_READ);
  const long copy = Remap(at, 0, 2 * kPage, MREMAP_MAYMOVE, nullptr);
  EXPECT_GT(copy, 0);
  EXPECT_EQ(Unmap(at, 2 * kPage), 0);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Unmap(reinterpret_cast<void*>(copy), kPage), 0);
  EXPECT_TRUE(writable(reinterpret_cast<char*>(copy) + kPage));
  EXPECT_FALSE(IsKnown(fd));
}

TEST_IN_ENGINE(VfsThroughTest, AFileWithMoreMappingsThanCanBeFollowedPasses) {
  const SharedFile fd(*this);
  EXPECT_EQ(Ftruncate(fd, 2 * kPage), 0);
  MakeKnown(fd);
  for (int i = 0; i < 1000; ++i) Unmap(Map(fd, MAP_SHARED, PROT_READ), 2 * kPage);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  int mapped = 0;
  for (; mapped < 1000 && IsKnown(fd); ++mapped) Map(fd, MAP_SHARED, PROT_READ);
  EXPECT_GT(mapped, 50);
  EXPECT_EQ(StateOf(fd), State::kPassThrough);
  EXPECT_EQ(Pending(), std::vector<Found>{});
}

// A number is given to another file when the mapping is gone.
TEST_IN_ENGINE(VfsThroughTest, AMappedFileBeginsAnewWhenItIsOpenedAgain) {
  int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Ftruncate(fd, 2 * kPage), 0);
  Map(fd, MAP_SHARED, PROT_READ);
  MakeKnown(fd);
  Close(fd);
  fd = Open("a");
  EXPECT_TRUE(IsKnown(fd));
  MakeKnown(fd);
  EXPECT_EQ(StateOf(fd), State::kLent) << "it is mapped";
  Close(fd);
}

// ------------------------------------------------------------------- Descriptors in other hands

TEST_F(VfsThroughTest, AFileThatAChildHasAsWellIsWriteThrough) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "it wants no thread after such a fork";
  WithEngine([&] {
    const int fd = Open("a", O_RDWR | O_CREAT);
    EXPECT_EQ(Forked([] { return true; }), 0);
    MakeKnown(fd);
    EXPECT_EQ(StateOf(fd), State::kKernel);
    EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
    EXPECT_EQ(Pending(), (std::vector<Found>{{0, "bytes"}}));
    const int status = Forked([&] {
      EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
      EXPECT_TRUE(engine.attached());
      EXPECT_TRUE(IsKnown(fd));
      EXPECT_EQ(Fsync(fd), 0);
      return !testing::Test::HasFailure();
    });
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(IsKnown(fd));
    // Where it is, only the kernel knows.
    EXPECT_EQ(Write(fd, "somewhere", 9), 9);
    EXPECT_FALSE(IsKnown(fd));
    EXPECT_EQ(Pending(), std::vector<Found>{});
    Close(fd);
  });
}

TEST_F(VfsThroughTest, AChildMakesWhatItHasInheritedWriteThrough) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "it wants no thread after such a fork";
  for (const bool cached : {false, true}) {
    WithEngine(
        [&] {
          const std::string name = cached ? "cached" : "kernel's";
          const int fd = Open(name, O_RDWR | O_CREAT | O_APPEND);
          if (cached) MakeCached(fd);
          EXPECT_EQ(Write(fd, "parent", 6), 6);
          const int status = Forked([&] {
            for (int i = 0; i < 3; ++i) Fsync(fd);
            Expect(fd, {.state = State::kKernel, .known = true});
            EXPECT_EQ(Write(fd, "child", 5), 5);
            EXPECT_TRUE(IsKnown(fd));
            return !testing::Test::HasFailure() && OnDisk(name) == "parentchild";
          });
          EXPECT_EQ(status, 0);
          EXPECT_EQ(Write(fd, "parent", 6), 6);
          EXPECT_EQ(OnDisk(name), "parentchildparent");
          Close(fd);
        },
        {kAllExclusive});
  }
}

TEST_IN_ENGINE(VfsThroughTest, AFileThatIsHandedOnForWritingIsNotKnownUntilItIsClosed) {
  int fd = Open("a", O_RDWR | O_CREAT);
  const auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_EQ(HandOn(fd), 0);
  EXPECT_EQ(Pending(), std::vector<Found>{});
  for (int i = 0; i < 4; ++i) {
    Fsync(fd);
    EXPECT_FALSE(IsKnown(fd));
    EXPECT_EQ(Pwrite(fd, "B", 1, 0), 1);
    EXPECT_FALSE(IsPending(fd));
  }
  Close(fd);
  fd = Open("a");
  Fsync(fd);
  EXPECT_FALSE(IsKnown(fd)) << "the neighbour has it open";
  Close(fd);
}

TEST_F(VfsThroughTest, WhatIsHandedOnForGoodStaysSo) {
  for (const bool forever : {false, true}) {
    WithEngine(
        [&] {
          int fd = Open("a", O_RDWR | O_CREAT);
          EXPECT_EQ(HandOn(fd, forever), 0);
          Close(fd);
          fd = Open("a");
          for (int i = 0; i < 3; ++i) Fsync(fd);
          EXPECT_EQ(StateOf(fd), forever ? State::kLent : State::kCached);
          EXPECT_FALSE(IsKnown(fd));
          Close(fd);
        },
        {kAllExclusive});
  }
}

TEST_IN_ENGINE(VfsThroughTest, WhatIsHandedOnForReadingIsWriteThrough, kAllExclusive) {
  const int fd = Open("a", O_RDWR | O_CREAT), reader = Open("a", O_RDONLY);
  MakeCached(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  EXPECT_EQ(HandOn(reader, true), 0);
  EXPECT_EQ(OnDisk("a"), "bytes");
  Close(reader);
  MakeKnown(fd);
  EXPECT_EQ(StateOf(fd), State::kLent);
  Close(fd);
}

TEST_F(VfsThroughTest, AProgramThatIsStartedHasWhatStaysOpen) {
  struct {
    const char* what;
    int flags;
    bool stays;
    std::function<void(int)> change;
  } const cases[] = {
      {"stays", O_RDWR, true, [](int) {}},
      {"writes only", O_WRONLY, true, [](int) {}},
      {"is closed", O_RDWR | O_CLOEXEC, false, [](int) {}},
      {"is closed, set later", O_RDWR, false,
       [](int fd) { ::fcntl(fd, F_SETFD, Fcntl(fd, F_SETFD, FD_CLOEXEC) == kNotOurs ? 1 : 0); }},
      {"stays, set later", O_RDWR | O_CLOEXEC, true,
       [](int fd) { ::fcntl(fd, F_SETFD, Fcntl(fd, F_SETFD, 0) == kNotOurs ? 0 : 1); }},
      {"stays, by ioctl", O_RDWR | O_CLOEXEC, true,
       [](int fd) {
         NoteKeptOnExec(fd);
         ::ioctl(fd, FIONCLEX);
       }},
      {"its copy stays", O_RDWR | O_CLOEXEC, true, [](int fd) { EXPECT_GE(Dup(fd), 0); }},
      {"its copy is closed", O_RDWR | O_CLOEXEC, false,
       [](int fd) { EXPECT_GE(Fcntl(fd, F_DUPFD_CLOEXEC, 0), 0); }},
      {"another one's place", O_RDWR | O_CLOEXEC, true,
       [](int fd) { EXPECT_EQ(Dup2(fd, 100), 100); }},
  };
  for (const auto& one : cases) {
    WithEngine([&] {
      SCOPED_TRACE(one.what);
      Close(Open("a", O_RDWR | O_CREAT));
      const int fd = Open("a", one.flags);
      const auto neighbour = NeighbourOf(fd);
      MakeKnown(fd);
      one.change(fd);
      EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
      BeforeSpawn();
      EXPECT_EQ(IsKnown(fd), !one.stays);
      EXPECT_EQ(IsPending(fd), !one.stays);
      for (int i = 0; i < 3; ++i) Fsync(fd);
      EXPECT_EQ(IsKnown(fd), !one.stays);
    });
  }
}

// Recovery would undo what the program writes.
TEST_F(VfsThroughTest, NothingIsPendingOfWhatAProgramMayWriteTo) {
  const std::function<void(int)> ways[] = {
      [](int) { BeforeSpawn(); },
      [](int) { BeforeExec(); },
      [](int fd) { EXPECT_EQ(HandOn(fd), 0); },
      [](int) {
        const auto exec = [] {
          BeforeExec();
          return true;
        };
        EXPECT_EQ(Forked(exec), 0);
      },
  };
  int number = 0;
  for (const auto& way : ways) {
    const std::string name = std::to_string(++number);
    WithEngine(
        [&] {
          SCOPED_TRACE(name);
          const int fd = Open(name, O_RDWR | O_CREAT);
          MakeCached(fd);
          EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
          EXPECT_EQ(Pending().size(), 1u);
          way(fd);
          EXPECT_EQ(Pending(), std::vector<Found>{});
          EXPECT_FALSE(IsKnown(fd));
          EXPECT_EQ(OnDisk(name), "bytes");
        },
        {kAllExclusive});
  }
}

TEST_IN_ENGINE(VfsThroughTest, AProgramThatIsStartedMayReadWhatIsWriteThrough, kAllExclusive) {
  const int fd = Open("a", O_RDWR | O_CREAT | O_CLOEXEC);
  Open("a", O_RDONLY);
  MakeCached(fd);
  EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
  BeforeSpawn();
  EXPECT_EQ(OnDisk("a"), "bytes");
  MakeKnown(fd);
  EXPECT_EQ(StateOf(fd), State::kKernel);
}

// The child ends as one of NVCache there, and its parent remembers.
TEST_F(VfsThroughTest, AChildThatBecomesAProgramHandsOnWhatStaysOpen) {
  for (const int flags : {0, O_CLOEXEC}) {
    WithEngine(
        [&] {
          const std::string name = std::to_string(flags);
          int fd = Open(name, O_RDWR | O_CREAT | flags);
          MakeCached(fd);
          EXPECT_EQ(Forked([&] { return Pwrite(fd, "child", 5, 0) == 5; }), 0);
          MakeKnown(fd);
          EXPECT_EQ(Pwrite(fd, "bytes", 5, 0), 5);
          const auto exec = [] {
            BeforeExec();
            return true;
          };
          EXPECT_EQ(Forked(exec), 0);
          EXPECT_EQ(IsKnown(fd), flags != 0);
          EXPECT_EQ(IsPending(fd), flags != 0);
          for (int i = 0; i < 3; ++i) Fsync(fd);
          EXPECT_EQ(IsKnown(fd), flags != 0);
          Close(fd);
          fd = Open(name, O_RDWR | O_CLOEXEC);
          Fsync(fd);
          EXPECT_TRUE(IsKnown(fd));
          Close(fd);
        },
        {kAllExclusive});
  }
}

TEST_IN_ENGINE(VfsThroughTest, AChildNeedNotWakeToHandOnAFileWithoutAnEntry) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const auto exec = [] {
    BeforeExec();
    return engine.standing.asleep();
  };
  EXPECT_EQ(Forked(exec), 0);
  for (int i = 0; i < 4; ++i) Fsync(fd);
  Expect(fd, {.state = State::kKernel, .known = false});
}

// A child that sleeps is not seen, so it has to find out when it wakes.
TEST_F(VfsThroughTest, AChildLearnsWhatItsSiblingsHaveHandedOn) {
  enum class When { kNever, kBefore, kMeanwhile };
  for (const When when : {When::kNever, When::kBefore, When::kMeanwhile}) {
    WithEngine([&] {
      const int fd = Open("a", O_RDWR | O_CREAT);
      const auto exec = [] {
        BeforeExec();
        return true;
      };
      if (when == When::kBefore) {
        EXPECT_EQ(Forked(exec), 0);
      }
      int go[2];
      EXPECT_EQ(::pipe(go), 0);
      const pid_t child = StartForked([&] {
        char byte;
        if (::read(go[0], &byte, 1) != 1) return false;
        for (int i = 0; i < 4; ++i) Fsync(fd);
        return IsKnown(fd) == (when == When::kNever);
      });
      if (when == When::kMeanwhile) {
        EXPECT_EQ(Forked(exec), 0);
      }
      Close(fd);
      EXPECT_EQ(::write(go[1], "x", 1), 1);
      EXPECT_EQ(EndOf(child), 0);
    });
  }
}

TEST_IN_ENGINE(VfsThroughTest, ADescriptorFromElsewhereIsWriteThrough) {
  const std::string path = disk_ / "a";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
  EXPECT_EQ(Adopt(fd), 0);
  EXPECT_EQ(Write(fd, "first ", 6), 6);
  for (int i = 0; i < 2; ++i) Fsync(fd);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(StateOf(fd), State::kKernel) << "whoever has it, too, reads the kernel's bytes";
  EXPECT_EQ(Write(fd, "second", 6), 6);
  EXPECT_EQ(Pending(), (std::vector<Found>{{6, "second"}}));
  Close(fd);
  const int other = ::open(path.c_str(), O_RDWR);
  EXPECT_EQ(Adopt(other), 0);
  EXPECT_EQ(Fsync(other), 0);
  EXPECT_EQ(Pwrite(other, "F", 1, 0), 1);
  EXPECT_EQ(Pending(), (std::vector<Found>{{6, "second"}, {0, "F"}})) << "nobody had changed it";
  EXPECT_EQ(Write(other, "S", 1), 1);
  EXPECT_FALSE(IsKnown(other)) << "somebody else may move its offset";
  EXPECT_EQ(OnDisk("a"), "Sirst second");
  Close(other);
  const int direct = ::open(path.c_str(), O_RDWR | O_DIRECT);
  EXPECT_EQ(Adopt(direct), 0);
  EXPECT_EQ(StateOf(direct), State::kPassThrough);
  Close(direct);
  const int name = ::open(path.c_str(), O_PATH);
  EXPECT_EQ(Adopt(name), 0);
  EXPECT_FALSE(Tracks(name));
  ::close(name);
}

// ------------------------------------------------------------------ Descriptors that promise syncs

TEST_F(VfsThroughTest, ADescriptorWithOSyncWritesByAnother) {
  for (const int flags : {O_DSYNC, O_SYNC, O_SYNC | O_APPEND}) {
    WithEngine([&] {
      const std::string name = std::to_string(flags);
      Close(Open(name, O_RDWR | O_CREAT));
      const int fd = Open(name, O_WRONLY | flags);
      const auto neighbour = NeighbourOf(fd);
      EXPECT_EQ(Write(fd, "first ", 6), 6);
      EXPECT_EQ(Write(fd, "second", 6), 6);
      EXPECT_TRUE(IsKnown(fd));
      const bool appends = (flags & O_APPEND) != 0;
      EXPECT_EQ(Pwrite(fd, "third", 5, 0), 5);
      EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 12);
      EXPECT_GE(engine.descriptors.Of(fd)->file.load()->backing_fd.load(), 0);
      EXPECT_EQ(Write(fd, " more", 5), 5);
      EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), appends ? 22 : 17);
      EXPECT_EQ(OnDisk(name), appends ? "first secondthird more" : "third second more");
      EXPECT_EQ(Pending().size(), 3u);
      EXPECT_TRUE(IsKnown(fd));
      EXPECT_EQ(Close(fd), 0);
    });
  }
}

// By the kernel, whoever else appends.
TEST_IN_ENGINE(VfsThroughTest, AnAppendWithOSyncIsOneCall) {
  const Closing fd(Open("a", O_WRONLY | O_CREAT | O_APPEND | O_SYNC));
  const auto neighbour = NeighbourOf(fd);
  MakeKnown(fd);
  std::atomic<bool> ends{false};
  std::atomic<int> strangers{0};
  std::thread stranger([&] {
    const int other = ::open((disk_ / "a").c_str(), O_WRONLY | O_APPEND);
    for (; !ends.load(); ::usleep(100)) strangers += ::write(other, "s", 1) == 1 ? 1 : 0;
    ::close(other);
  });
  constexpr int kTimes = 300;
  for (int i = 0; i < kTimes; ++i) EXPECT_EQ(Write(fd, "m", 1), 1);
  ends.store(true);
  stranger.join();
  const std::string all = OnDisk("a");
  EXPECT_EQ(std::count(all.begin(), all.end(), 'm'), kTimes);
  EXPECT_EQ(std::count(all.begin(), all.end(), 's'), strangers.load());
}

}  // namespace
}  // namespace nvcache::vfs
