// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/pool.h"

#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "recovery/tool/libpmem.h"
#include "src/pmem/persist.h"
#include "src/pool/identify.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "tests/unit/support.h"

namespace nvcache::pool {
namespace {

using test::Exists;
using test::FailToOpen;
using test::Folder;
using test::InChild;
using test::kSkip;
using test::MakePool;
using test::OpenedPool;
using test::OpenPool;
using test::ReadFile;
using test::ScopedPool;
using test::WriteFile;

constexpr uint64_t kSize = kMinPoolSize;
constexpr Mode kAllButShared[] = {Mode::kExclusive, Mode::kRecovery, Mode::kInspect,
                                  Mode::kSalvage};

// One line that names the pool and says what is wrong and what to do.
bool IsClear(const Problem& problem, const std::string& path, const std::string& part) {
  const std::string text = problem.text.c_str();
  const std::string name = path.size() > 200 ? path.substr(path.size() - 200) : path;
  return text.find(name) != std::string::npos && text.find(part) != std::string::npos &&
         text.find(": ") != std::string::npos && text.find('\n') == std::string::npos &&
         text.size() < 470 && problem.error != 0;
}

#define EXPECT_CLEAR(problem, path, part)                                     \
  do {                                                                        \
    const Problem shown = (problem);                                          \
    EXPECT_TRUE(IsClear(shown, path, part))                                   \
        << "expected: " << (part) << "\nbut it says: " << shown.text.c_str(); \
  } while (false)

Problem FailToCreate(const std::string& path, uint64_t size = kSize, bool emulate = true,
                     const pmem::Libpmem* libpmem = nullptr) {
  Problem problem;
  EXPECT_FALSE(Pool::Create(path.c_str(), {.size = size, .emulate = emulate}, libpmem, &problem));
  return problem;
}

// Neither to be used nor to be looked at.
void ExpectNoOpen(const std::string& path, const std::string& part,
                  const test::Caller& /*caller*/ = test::Caller()) {
  EXPECT_CLEAR(FailToOpen(path), path, part);
  EXPECT_CLEAR(FailToOpen(path, Mode::kInspect), path, part);
}

// ---------------------------------------------------------------------------------------------

// `records`: how many records of it are whole.
void ExpectCheckpoint(const Pool& pool, Lsn expected, int records = 2,
                      const test::Caller& /*caller*/ = test::Caller()) {
  Lsn checkpoint = 0;
  EXPECT_EQ(LoadCheckpoint(pool.view(), kOfPool, &checkpoint), records);
  EXPECT_EQ(checkpoint, expected);
}
constexpr uint64_t CheckpointOffset(uint64_t i) {
  return kCheckpointOffset + i * kCheckpointDistance;
}

class NoPoolTest : public testing::Test {
 protected:
  // The pool's file, changed; it is a file like any other.
  void Patch(uint64_t offset, const void* bytes, size_t n) {
    const int fd = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, bytes, n, static_cast<off_t>(offset)), static_cast<ssize_t>(n));
    close(fd);
  }
  template <typename T>
  T Get(uint64_t offset) {
    T value;
    std::memcpy(static_cast<void*>(&value), ReadFile(path_).data() + offset, sizeof(value));
    return value;
  }

  // In a child that has a file system of 2 MiB of its own as the folder.
  void InSmall(const std::function<void()>& body) {
    test::TestInOwnMounts(folder_.path(), "size=2m", body);
  }

  Folder folder_{Folder::kMemory};
  const std::string path_ = folder_ / "pool";
};

class PoolTest : public NoPoolTest {
 protected:
  PoolTest() { MakePool(path_); }
};

TEST_F(NoPoolTest, CreateMakesACleanPool) {
  MakePool(path_, kSize + 100);  // rounded down to a page
  struct stat st;
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_EQ(st.st_size, static_cast<off_t>(kSize));
  EXPECT_GE(st.st_blocks * 512, static_cast<blkcnt_t>(kSize));

  OpenedPool pool(path_);
  EXPECT_TRUE(pool.is_open());
  EXPECT_FALSE(pool.dirty());
  EXPECT_EQ(pool.durability(), pmem::Durability::kProcess);
  EXPECT_EQ(pool.device(), st.st_dev);
  EXPECT_EQ(pool.inode(), st.st_ino);
  EXPECT_EQ(pool.path(), path_);
  const View view = pool.view();
  const Geometry geometry = GeometryOf(kSize);
  EXPECT_EQ(view.segment_units(), geometry.segment_size / kUnitSize);
  EXPECT_EQ(view.segment_count(), geometry.segment_count);
  EXPECT_EQ(view.unit(0), view.base + kSegmentsOffset);
  EXPECT_EQ(view.salt() >> 63, 1u);
  ExpectCheckpoint(pool, 1);
  EXPECT_EQ(pool.checkpoint(), 1u);
  for (uint32_t number = 0; number < geometry.segment_count; ++number) {
    SegmentHeader header;
    EXPECT_FALSE(CopySegmentHeader(view, *view.segment(number), number, &header));
    EXPECT_FALSE(CopySegmentHeader(view, *view.segment_copy(number), number, &header));
  }
}

TEST_F(PoolTest, TwoPoolsHaveNothingInCommon) {
  MakePool(folder_ / "other");
  ScopedPool a, b;
  ASSERT_TRUE(OpenPool(a, path_));
  ASSERT_TRUE(OpenPool(b, folder_ / "other"));
  EXPECT_NE(a.view().salt(), b.view().salt());
  EXPECT_NE(std::memcmp(a.view().superblock->uuid, b.view().superblock->uuid, 16), 0);
}

TEST_F(NoPoolTest, EveryGeometryOpens) {
  for (uint64_t size : {kSize, kSize + 4096, uint64_t{3} << 20, uint64_t{40} << 20}) {
    MakePool(path_, size);
    OpenedPool pool(path_);
    const Superblock& s = *pool.view().superblock;
    EXPECT_LE(kSegmentsOffset + s.segment_count * s.segment_size, size);
    EXPECT_GT(kSegmentsOffset + (s.segment_count + 1) * s.segment_size, size);
    unlink(path_.c_str());
  }
}

TEST_F(NoPoolTest, CreateNeverOverwrites) {
  WriteFile(path_, "precious");
  EXPECT_CLEAR(FailToCreate(path_), path_, "exists already");
  EXPECT_EQ(ReadFile(path_), "precious");
  const std::string link = folder_ / "link";
  ASSERT_EQ(symlink((folder_ / "nowhere").c_str(), link.c_str()), 0);
  EXPECT_EQ(FailToCreate(link).error, EEXIST);
  EXPECT_FALSE(Exists(folder_ / "nowhere"));
}

TEST_F(NoPoolTest, CreateKilledAtAnyMomentLeavesAPoolOrNothing) {
  int whole = 0, nothing = 0;
  for (useconds_t delay = 0; delay < 20000; delay += 400) {
    const pid_t child = fork();
    if (child == 0) {
      Problem problem;
      Pool::Create(path_.c_str(), {64 << 20, true}, nullptr, &problem);
      _exit(0);
    }
    usleep(delay);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    if (!test::Exists(path_)) {
      ++nothing;
      continue;
    }
    ++whole;
    Pool pool;
    Problem problem;
    EXPECT_TRUE(pool.Open(path_.c_str(), Mode::kExclusive, true, nullptr, &problem))
        << problem.text.c_str();
    pool.Close();
    ASSERT_EQ(unlink(path_.c_str()), 0);
  }
  EXPECT_GT(nothing, 0);
  std::printf("killed before the pool was there: %d times, after: %d\n", nothing, whole);
}

TEST_F(NoPoolTest, CreateRefusesSizes) {
  for (uint64_t size : {uint64_t{0}, kSize - 1, kMaxPoolSize + 4096, ~uint64_t{0}}) {
    EXPECT_CLEAR(FailToCreate(path_, size), path_, "1M to 64T");
    EXPECT_FALSE(Exists(path_));
  }
}

TEST_F(NoPoolTest, CreateWithoutAFolder) {
  const std::string missing = folder_ / "missing/pool";
  EXPECT_CLEAR(FailToCreate(missing), missing, "folder does not exist");
  WriteFile(folder_ / "file", "");
  const std::string through = folder_ / "file/pool";
  EXPECT_CLEAR(FailToCreate(through), through, "through a file");
  EXPECT_CLEAR(FailToCreate(folder_.path()), folder_.path(), "exists already");
}

TEST_F(NoPoolTest, CreateWithARelativePath) {
  test::TestInChild([&] {
    ASSERT_EQ(chdir(folder_.path().c_str()), 0);
    MakePool("pool");
  });
  EXPECT_TRUE(Exists(path_));
}

TEST_F(NoPoolTest, OrdinaryMemoryNeedsConsent) {
  EXPECT_CLEAR(FailToCreate(path_, kSize, false), path_, "--emulate");
  EXPECT_FALSE(Exists(path_));
  MakePool(path_);
  const std::string before = ReadFile(path_);
  EXPECT_CLEAR(FailToOpen(path_, Mode::kExclusive, false), path_, "--emulate");
  EXPECT_EQ(ReadFile(path_), before);
  ScopedPool pool;
  Problem problem;  // who only looks needs none
  EXPECT_TRUE(pool.Open(path_.c_str(), Mode::kInspect, false, nullptr, &problem));
}

TEST_F(NoPoolTest, WithLibpmem) {
  const pmem::Libpmem* libpmem = tool::LoadLibpmem();
  if (libpmem == nullptr) GTEST_SKIP() << "no libpmem here";
  EXPECT_CLEAR(FailToCreate(path_, kSize, false, libpmem), path_, "--emulate");
  EXPECT_FALSE(Exists(path_));
  Problem problem;
  ASSERT_TRUE(Pool::Create(path_.c_str(), {.size = kSize, .emulate = true}, libpmem, &problem))
      << problem.text.c_str();
  ScopedPool pool;
  ASSERT_TRUE(pool.Open(path_.c_str(), Mode::kExclusive, true, libpmem, &problem));
  EXPECT_EQ(pool.durability(), pmem::Durability::kProcess);
  pool.MarkInUse();
  pool.Close();
  ASSERT_TRUE(pool.Open(path_.c_str(), Mode::kExclusive, true, libpmem, &problem));
  EXPECT_TRUE(pool.dirty());
}

TEST_F(NoPoolTest, WhatLibpmemCallsPersistentIsPersistent) {
  if (dlopen("libpmem.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) {
    GTEST_SKIP() << "libpmem was loaded by an earlier test: it reads the environment only then";
  }
  setenv("PMEM_IS_PMEM_FORCE", "1", 1);
  const int result = InChild([&] {
    const pmem::Libpmem* libpmem = tool::LoadLibpmem();
    if (libpmem == nullptr) return kSkip;
    Problem problem;
    ScopedPool pool;
    return Pool::Create(path_.c_str(), {.size = kSize}, libpmem, &problem) &&
                   pool.Open(path_.c_str(), Mode::kExclusive, false, libpmem, &problem) &&
                   pool.durability() == pmem::Durability::kPower
               ? 0
               : 1;
  });
  unsetenv("PMEM_IS_PMEM_FORCE");
  if (result == kSkip) GTEST_SKIP() << "no libpmem here";
  EXPECT_EQ(result, 0);
}

// ---------------------------------------------------------------------------------------------
// No room.

TEST_F(NoPoolTest, AFileSizeLimitIsRespected) {
  test::TestInChild([&] {
    const rlimit limit = {kSize / 2, kSize / 2};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Problem problem = FailToCreate(path_);
    EXPECT_CLEAR(problem, path_, "ulimit -f");
    EXPECT_EQ(problem.error, EFBIG);
  });
  EXPECT_FALSE(Exists(path_));
}

TEST_F(NoPoolTest, AFullFileSystemLeavesNothing) {
  InSmall([&] {
    const Problem problem = FailToCreate(path_, 4 << 20);
    EXPECT_CLEAR(problem, path_, "no room");
    EXPECT_EQ(problem.error, ENOSPC);
    EXPECT_FALSE(Exists(path_));
    MakePool(path_, kSize);  // the room is given back
  });
}

TEST_F(NoPoolTest, AReadOnlyFileSystem) {
  InSmall([&] {
    MakePool(path_);
    ASSERT_EQ(mount("", folder_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    EXPECT_CLEAR(FailToOpen(path_), path_, "read-only");
    const std::string other = folder_ / "other";
    EXPECT_CLEAR(FailToCreate(other), other, "read-only");
    OpenedPool pool(path_, Mode::kInspect);  // looking is possible
  });
}

TEST_F(PoolTest, PermissionDenied) {
  const int result = InChild([&] {
    if (geteuid() == 0 && setuid(65534) != 0) return kSkip;
    chmod(path_.c_str(), 0);  // if it is ours
    if (!IsClear(FailToOpen(path_), path_, "permission denied")) return 1;
    return FailToOpen(path_, Mode::kInspect).error == EACCES ? 0 : 2;
  });
  if (result == kSkip) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(result, 0);
}

// ---------------------------------------------------------------------------------------------
// What is no pool.

TEST_F(NoPoolTest, NotAPool) {
  for (const Mode mode : {Mode::kExclusive, Mode::kInspect}) {
    EXPECT_CLEAR(FailToOpen(path_, mode), path_, "does not exist");
    EXPECT_CLEAR(FailToOpen(folder_.path(), mode), folder_.path(), "is a directory");
    EXPECT_CLEAR(FailToOpen("/dev/null", mode), "/dev/null", "");
    EXPECT_CLEAR(FailToOpen("/dev/zero", mode), "/dev/zero", "");
  }
  EXPECT_EQ(FailToOpen(path_).error, ENOENT);
  EXPECT_EQ(FailToOpen(folder_.path()).error, EISDIR);
}

TEST_F(NoPoolTest, AFifoDoesNotHang) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectNoOpen(path_, "neither a file nor");
}

TEST_F(NoPoolTest, OtherContent) {
  for (const Mode mode : {Mode::kExclusive, Mode::kInspect}) {
    for (size_t size : {size_t{0}, size_t{1}, sizeof(Superblock), size_t{kSize} - 1}) {
      const std::string content(size, 'x');
      WriteFile(path_, content);
      EXPECT_CLEAR(FailToOpen(path_, mode), path_, "too few for a pool");
      EXPECT_EQ(ReadFile(path_), content);
    }
    const std::string content(kSize, 'x');
    WriteFile(path_, content);
    EXPECT_CLEAR(FailToOpen(path_, mode), path_, "is not a pool");
    EXPECT_EQ(ReadFile(path_), content);
  }
}

// The state of a creation that was killed before its last step.
TEST_F(PoolTest, AHalfMadePoolIsNone) {
  Patch(kSuperblockCopyOffset, "\0\0\0\0\0\0\0\0", 8);
  Patch(0, "\0\0\0\0\0\0\0\0", 8);
  EXPECT_CLEAR(FailToOpen(path_), path_, "is not a pool");
}

TEST_F(NoPoolTest, LongPathsAreShownByTheirEnd) {
  const std::string path = folder_ / std::string(250, 'p');
  EXPECT_CLEAR(FailToOpen(path), path, "does not exist");
  const std::string absurd = folder_ / std::string(300, 'p');
  EXPECT_CLEAR(FailToOpen(absurd), absurd, "too long");
  EXPECT_CLEAR(FailToCreate(absurd), absurd, "too long");
}

// Recovery does without the first superblock, or without the copy, and makes it again.
TEST_F(PoolTest, EveryFlippedBitOfASuperblockIsRepaired) {
  const std::string good = ReadFile(path_);
  for (const uint64_t place : {uint64_t{0}, kSuperblockCopyOffset}) {
    for (uint64_t at = place; at < place + sizeof(Superblock); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        const char flipped = static_cast<char>(good[at] ^ 1 << bit);
        Patch(at, &flipped, 1);
        OpenedPool pool(path_, Mode::kInspect);
        EXPECT_TRUE(pool.superblock_damaged());
        pool.Close();
        EXPECT_EQ(ReadFile(path_)[at], flipped) << "looking changes nothing";
        ASSERT_TRUE(OpenPool(pool, path_));
        pool.Repair();
        EXPECT_FALSE(pool.superblock_damaged());
        pool.Close();
        ASSERT_TRUE(ReadFile(path_) == good) << "bit " << bit << " of " << at;
      }
    }
  }
}

TEST_F(PoolTest, UseRepairsTheSuperblock) {
  const std::string good = ReadFile(path_);
  const std::string zeros(4096, '\0');
  Patch(0, zeros.data(), zeros.size());
  OpenedPool pool(path_);
  pool.MarkInUse();
  pool.MarkClean();
  EXPECT_EQ(ReadFile(path_).substr(0, 4096), good.substr(0, 4096));
}

// A crash while a pool is made on a device, between the two superblocks.
TEST_F(PoolTest, TheCopyAloneIsAPool) {
  const std::string none(sizeof(kMagic), '\0');
  Patch(0, none.data(), none.size());
  OpenedPool pool(path_);
}

// What a pool of this version has left behind the superblock of another one, however large that is,
// is no copy.
TEST_F(PoolTest, AnotherVersionsSuperblockHidesTheCopy) {
  auto superblock = Get<Superblock>(0);
  superblock.version = 15;
  for (const uint32_t size : {20u, 64u, 80u, 88u, 92u, 128u, 256u}) {
    std::string bytes(4096, 'x');
    superblock.superblock_size = size;
    std::memcpy(bytes.data(), &superblock, sizeof(superblock));
    const uint32_t crc = sys::Crc32c(bytes.data(), size - sizeof(crc));
    std::memcpy(bytes.data() + size - sizeof(crc), &crc, sizeof(crc));
    Patch(0, bytes.data(), bytes.size());
    const std::string before = ReadFile(path_);
    for (const Mode mode : kAllButShared) {
      EXPECT_CLEAR(FailToOpen(path_, mode), path_, "format version 15, this is for version 14");
    }
    EXPECT_TRUE(ReadFile(path_) == before) << size;
  }
}

// The superblock of a pool of version 4.
std::string SuperblockOfVersion4(uint64_t size) {
  std::string bytes(88, '\0');
  const auto put = [&](size_t offset, auto value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  };
  constexpr uint32_t kSlots = 16;
  const uint64_t log = 16384 + 4096 * kSlots;
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  put(8, uint32_t{4});
  put(12, uint32_t{88});
  put(16, size);
  put(24, uint64_t{0xf123456789abcdef});  // salt
  std::memset(bytes.data() + 32, 0x5a, 16);
  put(48, uint64_t{1700000000} * 1000000000);
  put(56, log);
  put(64, (size - log) / 64);
  put(72, kSlots);
  put(76, uint32_t{4096});
  put(80, uint32_t{64});
  put(84, sys::Crc32c(bytes.data(), 84));
  return bytes;
}

// It is the business of the NVCache that made it, in use or clean, with one superblock or two, or
// with one of version 14 that was left where its copy was.
TEST_F(NoPoolTest, APoolOfVersion4IsRefused) {
  std::mt19937_64 random(test::Seed());
  MakePool(path_);
  const std::string of_this_version = ReadFile(path_).substr(0, sizeof(Superblock));
  const std::string superblock = SuperblockOfVersion4(kSize);
  for (const uint64_t state : {kStateClean, kStateInUse}) {
    for (const std::string& copy : {superblock, std::string(), of_this_version}) {
      std::string content = test::Bytes(random, kSize);
      content.replace(0, superblock.size(), superblock);
      content.replace(kSuperblockCopyOffset, copy.size(), copy);
      std::memcpy(content.data() + kStateOffset, &state, sizeof(state));
      WriteFile(path_, content);
      ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
      for (const Mode mode : kAllButShared) {
        EXPECT_CLEAR(FailToOpen(path_, mode), path_, "format version 4, this is for version 14");
      }
      EXPECT_CLEAR(FailToCreate(path_), path_, "exists already");
      EXPECT_TRUE(ReadFile(path_) == content);
    }
  }
}

// Any 4 KiB before the segments may be lost at once.
TEST_F(PoolTest, AnyPageOfTheHeaderMayBeLost) {
  {
    OpenedPool pool(path_);
    pool.MarkInUse();
    pool.StoreCheckpoint(10);
  }
  const std::string good = ReadFile(path_);
  for (uint64_t page = 0; page < kSegmentsOffset; page += 4096) {
    for (const char filler : {'\0', '\xff'}) {
      const std::string lost(4096, filler);
      Patch(page, lost.data(), lost.size());
      ScopedPool pool;
      EXPECT_TRUE(OpenPool(pool, path_)) << page;
      EXPECT_TRUE(pool.dirty());
      EXPECT_EQ(pool.checkpoint(), 10u);
      pool.Close();
      Patch(page, good.data() + page, 4096);
    }
  }
}

TEST_F(PoolTest, EveryFlippedBitOfBothSuperblocksIsFound) {
  const std::string none(sizeof(Superblock), '\0');
  Patch(kSuperblockCopyOffset, none.data(), none.size());
  const std::string good = ReadFile(path_);
  for (size_t bit = 0; bit < sizeof(Superblock) * 8; ++bit) {
    const char flipped = static_cast<char>(good[bit / 8] ^ 1 << bit % 8);
    Patch(bit / 8, &flipped, 1);
    const char* part = bit < 64   ? "is not a pool"
                       : bit < 96 ? "format version"
                                  : "damaged superblock";
    ExpectNoOpen(path_, part);
    std::string expected = good;
    expected[bit / 8] = flipped;
    ASSERT_TRUE(ReadFile(path_) == expected) << "the pool was written to, bit " << bit;
    Patch(bit / 8, &good[bit / 8], 1);
  }
  OpenedPool pool(path_);
}

TEST_F(NoPoolTest, APoolSaysWhatWaitsForItsMirror) {
  for (const uint32_t commit : {kCommitOwn, kCommitFsync, kCommitWrite, kCommitOutput}) {
    Problem problem;
    ASSERT_TRUE(Pool::Create(path_.c_str(), {.size = kSize, .emulate = true, .commit = commit},
                             nullptr, &problem));
    {
      const OpenedPool pool(path_, Mode::kInspect);
      EXPECT_EQ(pool.view().superblock->commit, commit);
    }
    std::filesystem::remove(path_);
  }
}

// Whole superblocks, but not for this program.
TEST_F(PoolTest, OtherVersionsAndGeometries) {
  const std::string good = ReadFile(path_);
  struct {
    const char* part;
    void (*change)(Superblock*);
  } const kCases[] = {
      {"version 3, this is for version 14", [](Superblock* s) { s->version = 3; }},
      {"version 7, this is for version 14", [](Superblock* s) { s->version = 7; }},
      {"version 15, this is for version 14", [](Superblock* s) { s->version = 15; }},
      {"version 0", [](Superblock* s) { s->version = 0; }},
      {"damaged", [](Superblock* s) { s->superblock_size = 96; }},
      {"pages of 8192", [](Superblock* s) { s->page_size = 8192; }},
      {"waits for its mirror in a way", [](Superblock* s) { s->commit = 4; }},
      {"units of 128", [](Superblock* s) { s->unit_size = 128; }},
      {"geometry", [](Superblock* s) { s->segment_size *= 2; }},
      {"geometry", [](Superblock* s) { s->segment_count -= 1; }},
      {"geometry", [](Superblock* s) { s->segment_count += 1; }},
      {"geometry", [](Superblock* s) { s->pool_size -= 4096; }},
      {"geometry", [](Superblock* s) { s->pool_size += 1; }},
      {"geometry", [](Superblock* s) { s->pool_size = 0; }},
      {"geometry", [](Superblock* s) { s->pool_size = ~uint64_t{0}; }},
      {"geometry", [](Superblock* s) { s->salt &= ~uint64_t{0} >> 1; }},
  };
  for (const auto& test : kCases) {
    Superblock superblock = {};
    std::memcpy(&superblock, good.data(), sizeof(superblock));
    test.change(&superblock);
    superblock.crc = sys::Crc32c(&superblock, offsetof(Superblock, crc));
    Patch(0, &superblock, sizeof(superblock));
    const std::string before = ReadFile(path_);
    ExpectNoOpen(path_, test.part);
    EXPECT_TRUE(ReadFile(path_) == before);
  }
}

TEST_F(NoPoolTest, Truncated) {
  MakePool(path_, 2 * kSize);
  for (uint64_t size :
       {2 * kSize - 1, 2 * kSize - 4096, kSize, kCheckpointOffset, sizeof(Superblock)}) {
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(size)), 0);
    EXPECT_CLEAR(FailToOpen(path_), path_, "is truncated, " + std::to_string(size) + " of ");
    EXPECT_CLEAR(FailToOpen(path_, Mode::kInspect), path_, "is truncated");
  }
  for (size_t size : {sizeof(Superblock) - 1, sizeof(kMagic), size_t{0}}) {
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(size)), 0);
    FailToOpen(path_);
  }
}

TEST_F(PoolTest, ALongerFileIsNoHarm) {
  ASSERT_EQ(truncate(path_.c_str(), 2 * kSize), 0);
  OpenedPool pool(path_);
}

// It counts as in use, even if a record of the checkpoint is lost as well.
TEST_F(PoolTest, DamagedState) {
  const std::string good = ReadFile(path_);
  const auto check = [&] {
    for (const Mode mode : {Mode::kInspect, Mode::kExclusive}) {
      OpenedPool pool(path_, mode);
      EXPECT_TRUE(pool.dirty());
      EXPECT_EQ(pool.checkpoint(), 1u);
    }
  };
  for (int bit = 0; bit < 64; ++bit) {
    for (const uint64_t state : {kStateClean, kStateInUse}) {
      const uint64_t damaged = state ^ uint64_t { 1 } << bit;
      Patch(kStateOffset, &damaged, sizeof(damaged));
      check();
    }
  }
  const uint64_t wrong = 7;
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t record = CheckpointOffset(i);
    Patch(record, &wrong, sizeof(wrong));
    check();
    Patch(record, good.data() + record, sizeof(wrong));
  }
}

// ---------------------------------------------------------------------------------------------
// The checkpoint.

TEST_F(PoolTest, TheCheckpointMovesAndStays) {
  Lsn expected = 1;
  for (int round = 0; round < 5; ++round) {
    OpenedPool pool(path_);
    ExpectCheckpoint(pool, expected);
    EXPECT_EQ(pool.checkpoint(), expected);
    for (int i = 0; i < 3; ++i) {
      expected += 1 + static_cast<uint64_t>(i * 100);
      pool.StoreCheckpoint(expected);
      ExpectCheckpoint(pool, expected);
      EXPECT_EQ(pool.checkpoint(), expected);
      for (uint64_t k = 0; k < 2; ++k) {
        EXPECT_EQ(pool.view().checkpoint_record(k)->checkpoint, expected) << "both are written";
      }
    }
    pool.StoreCheckpoint(expected);  // the same is allowed
  }
}

TEST_F(PoolTest, TheCheckpointNeverGoesBack) {
  OpenedPool pool(path_);
  pool.StoreCheckpoint(10);
  EXPECT_EXIT(pool.StoreCheckpoint(9), testing::KilledBySignal(SIGKILL), "invariant broken");
  EXPECT_EXIT(pool.StoreCheckpoint(uint64_t{1} << kLsnBits), testing::KilledBySignal(SIGKILL),
              "invariant");
}

// Both records say the same, so one is enough; between their two writes, the higher one counts.
TEST_F(PoolTest, ADamagedCheckpointRecordCostsNothing) {
  {
    OpenedPool pool(path_);
    pool.MarkInUse();  // dirty: nothing is changed by opening
    pool.StoreCheckpoint(10);
    pool.StoreCheckpoint(20);
  }
  const std::string good = ReadFile(path_);
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t record = CheckpointOffset(i);
    for (size_t bit = 0; bit < (offsetof(CheckpointRecord, crc) + 4) * 8; ++bit) {
      const char flipped = static_cast<char>(good[record + bit / 8] ^ 1 << bit % 8);
      Patch(record + bit / 8, &flipped, 1);
      for (const Mode mode : {Mode::kInspect, Mode::kExclusive}) {
        OpenedPool pool(path_, mode);
        ExpectCheckpoint(pool, 20u, 1);
        EXPECT_EQ(pool.checkpoint(), 20u);
      }
      Patch(record + bit / 8, &good[record + bit / 8], 1);
    }
  }
  EXPECT_TRUE(ReadFile(path_) == good);
}

TEST_F(PoolTest, TheHigherCheckpointRecordCounts) {
  const std::string old = ReadFile(path_);
  OpenedPool pool(path_);
  pool.StoreCheckpoint(10);
  pool.Close();
  const std::string now = ReadFile(path_);
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t record = CheckpointOffset(i);
    Patch(record, old.data() + record, sizeof(CheckpointRecord));
    ASSERT_TRUE(OpenPool(pool, path_));
    EXPECT_EQ(pool.checkpoint(), 10u);
    pool.Close();
    Patch(record, now.data() + record, sizeof(CheckpointRecord));
  }
}

TEST_F(PoolTest, BothCheckpointRecordsDamaged) {
  const uint64_t wrong = 7;
  Patch(kCheckpointOffset, &wrong, sizeof(wrong));
  Patch(kCheckpointOffset + kCheckpointDistance, &wrong, sizeof(wrong));
  const std::string before = ReadFile(path_);
  for (const Mode mode : {Mode::kExclusive, Mode::kRecovery, Mode::kInspect}) {
    EXPECT_CLEAR(FailToOpen(path_, mode), path_, "both records of its checkpoint");
  }
  OpenedPool pool(path_, Mode::kSalvage);
  EXPECT_TRUE(ReadFile(path_) == before);
}

TEST_F(PoolTest, ARecordFromAnotherPoolIsNone) {
  const std::string other = folder_ / "other";
  MakePool(other);
  const std::string content = ReadFile(other);
  for (uint64_t i = 0; i < 2; ++i) {
    const uint64_t record = CheckpointOffset(i);
    Patch(record, content.data() + record, sizeof(CheckpointRecord));
  }
  EXPECT_CLEAR(FailToOpen(path_), path_, "both records");
}

TEST_F(PoolTest, ADamagedCheckpointRecordIsRepaired) {
  const uint64_t wrong = 7;
  for (uint64_t i = 0; i < 2; ++i) {
    Patch(CheckpointOffset(i), &wrong, sizeof(wrong));
    const std::string before = ReadFile(path_);
    OpenedPool pool(path_);
    EXPECT_TRUE(ReadFile(path_) == before) << "changed by being opened";
    pool.Repair();
    ExpectCheckpoint(pool, 1u);
  }
}

// ---------------------------------------------------------------------------------------------
// The checkpoints of seats.

uint64_t RecordOffset(uint32_t seat, uint64_t i) {
  return kSeatCheckpointsOffset + i * kSeatCheckpointsDistance + seat * sizeof(CheckpointRecord);
}
Lsn SeatCheckpoint(const Pool& pool, uint32_t seat, int records = 2) {
  Lsn checkpoint = 0;
  EXPECT_EQ(LoadCheckpoint(pool.view(), seat, &checkpoint), records) << "seat " << seat;
  return checkpoint;
}

class SeatCheckpointTest : public PoolTest {
 protected:
  // Each seat has stored a checkpoint of its own, and all have died.
  void StoreAll() {
    std::vector<std::unique_ptr<ScopedPool>> users;
    for (uint32_t seat = 0; seat < GeometryOf(kSize).seat_count; ++seat) {
      users.push_back(std::make_unique<ScopedPool>());
      test::Use(*users[seat], path_);
      ASSERT_EQ(users[seat]->seat(), seat);
    }
    for (uint32_t seat = 0; seat < users.size(); ++seat) {
      users[seat]->StoreSeatCheckpoint(Of(seat) - 1);
      users[seat]->StoreSeatCheckpoint(Of(seat));
      EXPECT_EQ(users[seat]->checkpoint(), Of(seat));
    }
  }
  static Lsn Of(uint32_t seat) { return 1000 - 100 * seat; }
  void ExpectAll(const Pool& pool, uint32_t damaged = kNoSeat, int whole = 2) {
    for (uint32_t seat = 0; seat < pool.view().seat_count(); ++seat) {
      EXPECT_EQ(SeatCheckpoint(pool, seat, seat == damaged ? whole : 2), Of(seat));
    }
    ExpectCheckpoint(pool, 1);  // the pool's stays where it is
  }
};

TEST_F(SeatCheckpointTest, EachSeatHasItsOwn) {
  StoreAll();
  OpenedPool pool(path_, Mode::kInspect);
  ExpectAll(pool);
  EXPECT_EQ(pool.checkpoint(), 1u);
}

// Of either record, each bit that the checksum covers.
TEST_F(SeatCheckpointTest, EitherRecordMayBeDamaged) {
  StoreAll();
  const std::string before = ReadFile(path_);
  for (const uint32_t seat : {0u, 1u, 5u}) {
    for (uint64_t i = 0; i < 2; ++i) {
      for (size_t bit = 0; bit < offsetof(CheckpointRecord, crc) * 8 + 32; bit += 3) {
        char byte = before[RecordOffset(seat, i) + bit / 8];
        byte = static_cast<char>(byte ^ 1 << bit % 8);
        Patch(RecordOffset(seat, i) + bit / 8, &byte, 1);
        OpenedPool pool(path_, Mode::kInspect);
        ExpectAll(pool, seat, 1);
        Patch(RecordOffset(seat, i), before.data() + RecordOffset(seat, i),
              sizeof(CheckpointRecord));
        ASSERT_FALSE(HasFailure()) << seat << " " << i << " " << bit;
      }
    }
  }
  OpenedPool pool(path_);
  ExpectAll(pool);
}

// A process was killed between the two, or a power failure came.
TEST_F(SeatCheckpointTest, TheHigherRecordOfASeatCounts) {
  StoreAll();
  const CheckpointRecord of_0 = Get<CheckpointRecord>(RecordOffset(0, 0));
  const CheckpointRecord zero = {};
  for (uint64_t i = 0; i < 2; ++i) {
    Patch(RecordOffset(2, i), &of_0, sizeof(of_0));
    OpenedPool pool(path_, Mode::kInspect);
    EXPECT_EQ(SeatCheckpoint(pool, 2), Of(0));
    Patch(RecordOffset(2, 1 - i), &zero, sizeof(zero));
    EXPECT_EQ(SeatCheckpoint(pool, 2), Of(0)) << "and its first one";
  }
}

TEST_F(SeatCheckpointTest, AllZeroWasNeverWritten) {
  OpenedPool pool(path_);
  for (uint32_t seat = 0; seat < pool.view().seat_count(); ++seat) {
    EXPECT_EQ(SeatCheckpoint(pool, seat), 0u);
  }
  pool.Close();
  // But not of the pool itself, which has a checkpoint from the start.
  const CheckpointRecord zero = {};
  Patch(kCheckpointOffset, &zero, sizeof(zero));
  ASSERT_TRUE(OpenPool(pool, path_, Mode::kInspect));
  ExpectCheckpoint(pool, 1u, 1);
  pool.Close();
  Patch(kCheckpointOffset + kCheckpointDistance, &zero, sizeof(zero));
  EXPECT_CLEAR(FailToOpen(path_), path_, "both records");
}

TEST_F(SeatCheckpointTest, BothRecordsOfASeatAreDamaged) {
  StoreAll();
  const uint64_t wrong = 7;
  for (const uint32_t seat : {0u, 3u, 5u}) {
    const std::string whole = ReadFile(path_);
    for (uint64_t i = 0; i < 2; ++i) Patch(RecordOffset(seat, i), &wrong, sizeof(wrong));
    const std::string before = ReadFile(path_);
    for (const Mode mode : {Mode::kShared, Mode::kExclusive, Mode::kRecovery, Mode::kInspect}) {
      const Problem problem = FailToOpen(path_, mode);
      EXPECT_CLEAR(problem, path_, "both records of its checkpoint");
      EXPECT_EQ(problem.error, EBADMSG);
    }
    OpenedPool pool(path_, Mode::kSalvage);
    pool.Close();
    EXPECT_TRUE(ReadFile(path_) == before);
    for (uint64_t i = 0; i < 2; ++i) {
      Patch(RecordOffset(seat, i), whole.data() + RecordOffset(seat, i), sizeof(CheckpointRecord));
    }
  }
  // Where no seat is, nothing is wrong.
  const uint32_t none = GeometryOf(kSize).seat_count;
  for (uint64_t i = 0; i < 2; ++i) Patch(RecordOffset(none, i), &wrong, sizeof(wrong));
  OpenedPool pool(path_);
}

TEST_F(SeatCheckpointTest, ADamagedRecordIsRepaired) {
  const uint64_t wrong = 7;
  for (const bool by_use : {false, true}) {
    for (uint64_t i = 0; i < 2; ++i) {
      unlink(path_.c_str());
      MakePool(path_);
      StoreAll();
      const uint64_t clean = kStateClean;  // so that it can be used
      Patch(kStateOffset, &clean, sizeof(clean));
      Patch(RecordOffset(4, i), &wrong, sizeof(wrong));
      Patch(RecordOffset(1, 1 - i), &wrong, sizeof(wrong));
      OpenedPool pool(path_, by_use ? Mode::kShared : Mode::kExclusive);
      if (by_use) {
        test::Join(pool);
        EXPECT_EQ(pool.checkpoint(), Of(0)) << "its seat's";
      } else {
        pool.Repair();
      }
      ExpectAll(pool);
    }
  }
}

// ---------------------------------------------------------------------------------------------
// Segment headers.

TEST(SegmentHeaderTest, EveryFlippedBitIsFound) {
  const test::MemoryPool memory;
  const View& view = memory.view();
  test::LogBuilder builder(view);
  builder.Take(0);
  const uint32_t number = builder.Take(0);
  SegmentHeader header;
  for (SegmentHeader* place : {view.segment(number), view.segment_copy(number)}) {
    ASSERT_TRUE(CopySegmentHeader(view, *place, number, &header));
    EXPECT_EQ(std::memcmp(&header, place, sizeof(header)), 0);
    EXPECT_FALSE(CopySegmentHeader(view, *place, number + 1, &header)) << "another's place";
    for (size_t bit = 0; bit < sizeof(header) * 8; ++bit) {
      uint8_t& byte = reinterpret_cast<uint8_t*>(place)[bit / 8];
      byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
      EXPECT_FALSE(CopySegmentHeader(view, *place, number, &header)) << bit;
      byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
    }
  }
}

TEST(SegmentHeaderTest, RefusesWhatCannotBe) {
  const test::MemoryPool memory;
  const View& view = memory.view();
  const auto check = [&](auto change) {
    test::LogBuilder builder(view);
    builder.Take(0);
    const uint32_t number = builder.Take(0);
    change(*view.segment(number));
    builder.SealSegment(number);
    SegmentHeader header;
    return CopySegmentHeader(view, *view.segment(number), number, &header);
  };
  EXPECT_TRUE(check([](SegmentHeader&) {}));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.generation = 0; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.generation = uint64_t{1} << kLsnBits; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.checkpoint = h.generation + 1; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.previous_generation = h.generation; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.previous_last = h.generation; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.previous_number = 15; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.number = 0; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.kind = SegmentKind{0}; }));
  EXPECT_FALSE(check([](SegmentHeader& h) { h.kind = SegmentKind{4}; }));
}

// A log of a seat that there is not, in a small pool and in a larger one.
TEST(SegmentHeaderTest, RefusesALogWithoutASeat) {
  for (const uint64_t size : {kMinPoolSize, 4 * kMinPoolSize}) {
    const test::MemoryPool memory(size);
    const View& view = memory.view();
    EXPECT_EQ(view.seat_count(), view.segment_count() / kSegmentsPerSeat);
    const uint32_t logs = view.seat_count() * kLogsOfSeat;
    for (const uint32_t log : {0u, 1u, logs / 2, logs - 1, logs, logs + 1, ~0u}) {
      test::LogBuilder builder(view);
      const uint32_t number = builder.Take(0);
      view.segment(number)->log = log;
      builder.SealSegment(number);
      SegmentHeader header;
      EXPECT_EQ(CopySegmentHeader(view, *view.segment(number), number, &header), log < logs) << log;
    }
  }
}

// ---------------------------------------------------------------------------------------------
// State and lock.

TEST_F(PoolTest, StateStays) {
  OpenedPool pool(path_);
  EXPECT_FALSE(pool.dirty());
  pool.MarkInUse();
  EXPECT_TRUE(pool.dirty());
  EXPECT_EQ(pool.view().state()->owner_pid, static_cast<uint32_t>(getpid()));
  EXPECT_GT(pool.view().state()->owner_since, uint64_t{1600000000} * 1000000000);
  pool.Close();
  EXPECT_FALSE(pool.is_open());
  pool.Close();  // again
  ASSERT_TRUE(OpenPool(pool, path_));
  EXPECT_TRUE(pool.dirty());
  pool.MarkClean();
  EXPECT_FALSE(pool.dirty());
  pool.Close();
  ASSERT_TRUE(OpenPool(pool, path_));
  EXPECT_FALSE(pool.dirty());
}

TEST_F(PoolTest, OneUserAtATime) {
  OpenedPool pool(path_);
  Problem problem = FailToOpen(path_);
  EXPECT_EQ(problem.error, EBUSY);
  EXPECT_CLEAR(problem, path_, "in use by another process");
  pool.MarkInUse();
  EXPECT_CLEAR(FailToOpen(path_), path_, "in use by process " + std::to_string(getpid()));
  EXPECT_EQ(InChild([&] { return FailToOpen(path_).error == EBUSY ? 0 : 1; }), 0);
  OpenedPool looker(path_, Mode::kInspect);
  EXPECT_TRUE(looker.dirty());
  pool.MarkClean();
  EXPECT_FALSE(looker.dirty());
  pool.Close();
  EXPECT_TRUE(OpenPool(pool, path_));
}

TEST_F(PoolTest, ADeadUserLeavesItDirtyAndFree) {
  EXPECT_EQ(InChild([&] {
              ScopedPool pool;
              if (!OpenPool(pool, path_)) return 1;
              pool.MarkInUse();
              raise(SIGKILL);
              return 2;
            }),
            -SIGKILL);
  OpenedPool pool(path_);
  EXPECT_TRUE(pool.dirty());
  // Another one recovers it meanwhile: the dead owner is not named.
  EXPECT_CLEAR(FailToOpen(path_), path_, "in use by another process");
}

TEST_F(PoolTest, AFailedOpenLeavesNoLockAndNoDescriptor) {
  const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (int i = 0; i < 10; ++i) FailToOpen(path_, Mode::kExclusive, false);
  const int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(after, before + 1);
  EXPECT_EQ(fcntl(64, F_GETFD), -1);
  close(before);
  close(after);
  OpenedPool pool(path_);
}

TEST_F(PoolTest, ItsDescriptorIsOutOfTheWay) {
  const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(lowest);
  OpenedPool pool(path_);
  EXPECT_GE(pool.fd(), sys::kPoolNumber);
  EXPECT_LT(pool.fd(), sys::kFirstTable);
  EXPECT_EQ(fcntl(pool.fd(), F_GETFD), FD_CLOEXEC);
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(next, lowest);
  close(next);
}

TEST(MoveHighTest, StaysWithinTheLimit) {
  EXPECT_EQ(InChild([] {
              for (rlim_t limit : {rlim_t{3000}, rlim_t{1024}, rlim_t{100}, rlim_t{30}}) {
                const rlimit both = {limit, limit};
                if (setrlimit(RLIMIT_NOFILE, &both) != 0) return kSkip;
                const int fd = open("/dev/null", O_RDONLY);
                const int high = sys::MoveHigh(fd);
                const rlim_t base = std::min<rlim_t>(limit, 512) * 3 / 4;
                if (static_cast<rlim_t>(high) >= 512) return 5;  // a child's table would be long
                if (static_cast<rlim_t>(high) < base) return 1;
                if (static_cast<rlim_t>(high) >= limit) return 2;
                if (fcntl(high, F_GETFD) < 0) return 3;
                if (high != fd && fcntl(fd, F_GETFD) != -1) return 4;
                close(high);
              }
              return 0;
            }),
            0);
}

TEST(MoveHighTest, StaysWhereThereIsNoRoom) {
  EXPECT_EQ(InChild([] {
              const rlimit limit = {30, 30};
              if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return kSkip;
              int last = -1;
              for (int fd = 0; (fd = open("/dev/null", O_RDONLY)) >= 0;) last = fd;
              if (sys::MoveHigh(last) != last || sys::MoveLow(last, 20) != last) return 1;
              return fcntl(last, F_GETFD) < 0 ? 2 : 0;
            }),
            0);
}

TEST(MoveLowTest, IsInTheFirstTableIfThereIsRoom) {
  EXPECT_EQ(InChild([] {
              const auto moved = [] { return sys::MoveLow(open("/dev/null", O_RDONLY), 56); };
              const int first = moved();
              if (first < 56 || first >= sys::kFirstTable) return 1;
              while (moved() < sys::kFirstTable) {
              }
              for (int fd = 56; fd < sys::kFirstTable; ++fd) {
                if (fcntl(fd, F_GETFD) < 0) return 2;
              }
              return moved() >= 128 ? 0 : 3;
            }),
            0);
}

// ---------------------------------------------------------------------------------------------
// File records.

FileRecord Identified(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  FileRecord record = {};
  EXPECT_EQ(Identify(fd, &record), 0);
  close(fd);
  return record;
}

TEST(FileRecordTest, KnowsAFileAgain) {
  Folder folder;
  const std::string path = folder / "file";
  WriteFile(path, "one");
  WriteFile(folder / "other", "two");
  const FileRecord record = Identified(path);
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(record.inode, st.st_ino);
  EXPECT_EQ(record.device, st.st_dev);
  EXPECT_EQ(record.mode, st.st_mode);
  EXPECT_EQ(record.uid, st.st_uid);
  EXPECT_TRUE(SameFile(record, Identified(path)));
  EXPECT_FALSE(SameFile(record, Identified(folder / "other")));

  ASSERT_EQ(rename(path.c_str(), (folder / "renamed").c_str()), 0);
  WriteFile(folder / "renamed", "other content");
  chmod((folder / "renamed").c_str(), 0640);
  EXPECT_TRUE(SameFile(record, Identified(folder / "renamed")));
}

// File systems like to use a freed inode again at once.
TEST(FileRecordTest, ASuccessorIsAnotherFile) {
  Folder folder;
  const std::string path = folder / "file";
  for (int i = 0; i < 20; ++i) {
    WriteFile(path, "one");
    const FileRecord record = Identified(path);
    if (record.birth_seconds == 0 && record.handle_size == 0) {
      GTEST_SKIP() << "the file system has neither birth times nor handles";
    }
    ASSERT_EQ(unlink(path.c_str()), 0);
    WriteFile(path, "one");
    EXPECT_FALSE(SameFile(record, Identified(path)));
  }
}

// The fingerprint goes with what SameFile compares, and with nothing else.
TEST(FileRecordTest, TheFingerprint) {
  Folder folder;
  WriteFile(folder / "file", "");
  WriteFile(folder / "other", "");
  const FileRecord record = test::RecordOf(folder / "file");
  const uint64_t fingerprint = Fingerprint(record);
  EXPECT_NE(fingerprint, 0u);
  EXPECT_NE(fingerprint, Fingerprint(Identified(folder / "other")));
  const size_t size = FileRecordSize(record.path_length);
  for (size_t bit = 0; bit < size * 8; ++bit) {
    FileRecord changed = record;
    reinterpret_cast<uint8_t*>(&changed)[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    // The lowest bit is always set; two records in 2^63 have the same one.
    EXPECT_TRUE(!SameFile(record, changed) || Fingerprint(changed) == fingerprint) << bit;
    const bool in_inode =
        bit / 8 >= offsetof(FileRecord, inode) && bit / 8 < offsetof(FileRecord, birth_seconds);
    if (in_inode) {
      EXPECT_NE(Fingerprint(changed), fingerprint) << bit;
    }
  }
}

TEST(FileRecordTest, DescribesAnOpenFile) {
  Folder folder;
  const std::string path = folder / "file";
  WriteFile(path, "");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  FileRecord record;
  std::memset(static_cast<void*>(&record), 0xff, sizeof(record));
  ASSERT_EQ(Describe(fd, &record), 0);
  EXPECT_EQ(record.path, path);
  EXPECT_EQ(record.path_length, path.size());
  EXPECT_EQ(record.flags, 0u);
  EXPECT_TRUE(SameFile(record, Identified(path)));
  EXPECT_TRUE(IsFileRecord(record, FileRecordSize(record.path_length)));
  unlink(path.c_str());
  EXPECT_EQ(Describe(fd, &record), -ENOENT);
  WriteFile(path + " (deleted)", "");  // another file of the name that the kernel says
  EXPECT_EQ(Describe(fd, &record), -ENOENT);
  close(fd);
}

TEST(FileRecordTest, RefusesWhatCannotBe) {
  Folder folder;
  const std::string path = folder / "file";
  WriteFile(path, "");
  const auto check = [&](auto change, size_t more = 0) {
    FileRecord record = test::RecordOf(path);
    const size_t size = FileRecordSize(record.path_length) + more;
    change(record);
    return IsFileRecord(record, size);
  };
  const auto nothing = [](FileRecord&) {};
  EXPECT_TRUE(check(nothing));
  EXPECT_TRUE(check([](FileRecord& r) { r.flags = kFileRemoved; }));
  EXPECT_FALSE(check(nothing, 1));
  EXPECT_FALSE(check(nothing, size_t{0} - 1));
  EXPECT_FALSE(IsFileRecord(test::RecordOf(path), 0));
  EXPECT_FALSE(IsFileRecord(test::RecordOf(path), ~size_t{0}));
  EXPECT_FALSE(check([](FileRecord& r) { r.path_length = kMaxPath; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.path_length = ~0u; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.path_length = 0; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.path_length -= 1; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.path[r.path_length] = 'x'; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.path[3] = '\0'; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.handle_size = kMaxHandle + 1; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.path[0] = 'x'; }));
  EXPECT_FALSE(check([](FileRecord& r) { r.flags = kFileRemoved << 1; }));
}

// Standard error may be on a disk that is full: then the pool says it.
TEST_F(PoolTest, AProcessThatStopsItselfLeavesItsLastWords) {
  const pid_t child = fork();
  if (child == 0) {
    close(2);
    ScopedPool pool;
    const bool opened = OpenPool(pool, path_);
    NVCACHE_CHECK(!opened);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  OpenedPool pool(path_, Mode::kInspect);
  const LastWords& words = *pool.view().last_words();
  EXPECT_EQ(words.pid, static_cast<uint64_t>(child));
  EXPECT_NE(words.time, 0u);
  EXPECT_NE(std::string(words.text).find("!opened at pool_test.cc:"), std::string::npos)
      << words.text;
}

// ---------------------------------------------------------------------------------------------
// Several users. What seats are is in seats_test.cc.

class UsersTest : public PoolTest {
 protected:
  void Use(Pool& pool) { test::Use(pool, path_); }
  Lsn InPool() {
    const OpenedPool looker(path_, Mode::kInspect);
    return test::CheckpointOf(looker);
  }
};

// Above every LSN that any of them drew, also what another one drew that left before.
TEST_F(UsersTest, TheLastToLeaveMakesItClean) {
  Lsn checkpoint = 1;
  for (const bool first_leaves_last : {true, false}) {
    ScopedPool pools[3];
    for (ScopedPool& pool : pools) Use(pool);
    EXPECT_EQ(pools[0].seats().next_lsn().load(), checkpoint);
    pools[0].seats().next_lsn().fetch_add(10);
    const Lsn drawn = pools[2].seats().next_lsn().fetch_add(1000) + 1000;
    for (int i = 0; i < 3; ++i) {
      ScopedPool& pool = pools[first_leaves_last ? 2 - i : i];
      EXPECT_EQ(pool.seats().next_lsn().load(), drawn) << "one counter";
      EXPECT_TRUE(pool.dirty());
      EXPECT_EQ(InPool(), checkpoint) << "moves when nobody else uses it";
      const uint32_t seat = pool.seat();
      pool.StoreSeatCheckpoint(checkpoint + 5);
      pool.Leave();
      EXPECT_EQ(pool.seats().State(seat), kSeatFree);
      EXPECT_EQ(pool.dirty(), i < 2) << i;
    }
    EXPECT_GE(InPool(), drawn);
    checkpoint = InPool();
    for (ScopedPool& pool : pools) pool.Close();
  }
}

// A dead one has left something, and so has one of which not all could be brought to the files.
TEST_F(UsersTest, WhoeverLeavesSomethingBehindLeavesItInUse) {
  for (const bool unresolved : {false, true}) {
    ScopedPool dead, last;
    Use(last);
    Use(dead);
    dead.Close();
    if (unresolved) {
      EXPECT_EQ(last.Adopt(), 1u);
      last.Settle(1, false);
    }
    const Lsn before = InPool();
    last.seats().next_lsn().fetch_add(7);
    last.Leave();
    EXPECT_EQ(last.seat(), kNoSeat);
    EXPECT_TRUE(last.dirty());
    EXPECT_EQ(InPool(), before) << "what the dead one has lies above it";
    last.Close();
    OpenedPool next(path_, Mode::kShared);
    EXPECT_TRUE(next.alone() && next.dirty());
    Problem problem;
    EXPECT_FALSE(next.Join(&problem)) << "it is to be recovered first";
    EXPECT_EQ(problem.error, EBUSY);
    next.MarkClean();
    test::Join(next);
    EXPECT_FALSE(next.seats().HasUnresolved());
    EXPECT_FALSE(next.seats().HasOrphans(next.seat()));
    next.Leave();
    EXPECT_FALSE(next.dirty());
  }
}

TEST_F(UsersTest, WhileASeatIsUnresolvedNobodyJoins) {
  ScopedPool dead, stays, comes;
  Use(dead);
  Use(stays);
  dead.Close();
  EXPECT_EQ(stays.Adopt(), 0u);
  stays.Settle(0, false);
  ASSERT_TRUE(OpenPool(comes, path_, Mode::kShared));
  Problem problem;
  EXPECT_FALSE(comes.Join(&problem));
  EXPECT_EQ(problem.error, EUCLEAN);
  EXPECT_CLEAR(problem, path_, "nvcache recover");
  EXPECT_EQ(comes.seat(), kNoSeat);
  EXPECT_EQ(SeatCheckpoint(stays, 0), 1u) << "what it has is not on disk";
}

// What is replayed is below the seat's checkpoint, before another process has the seat.
TEST_F(UsersTest, ASettledSeatHasACheckpointAboveAll) {
  ScopedPool dead, stays, next;
  Use(stays);
  Use(dead);
  const Lsn drawn = stays.seats().next_lsn().fetch_add(1000) + 1000;
  dead.Close();
  EXPECT_EQ(stays.Adopt(), 1u);
  stays.Settle(1, true);
  EXPECT_GE(SeatCheckpoint(stays, 1), drawn);
  EXPECT_EQ(SeatCheckpoint(stays, 0), 1u) << "of the living nothing changes";
  EXPECT_EQ(stays.checkpoint(), 1u);
  EXPECT_EQ(InPool(), 1u);
  Use(next);
  EXPECT_EQ(next.seat(), 1u);
  EXPECT_GE(next.checkpoint(), drawn) << "its own begins there";
}

TEST_F(UsersTest, TheFirstOneClearsTheStatistics) {
  ScopedPool first, second;
  Use(first);
  Count(first.view().statistics()->batches, 5);
  Note(first.view().statistics()->failing_error[3], 28);
  Use(second);
  EXPECT_EQ(Peek(second.view().statistics()->batches), 5u);
  Count(second.view().statistics()->batches);
  first.Leave();
  first.Close();
  Use(first);
  EXPECT_EQ(Peek(first.view().statistics()->batches), 6u) << "as long as somebody uses it";
  first.Leave();
  second.Leave();
  EXPECT_EQ(Peek(second.view().statistics()->batches), 6u) << "who looks afterwards sees them";
  first.Close();
  second.Close();
  Use(first);
  EXPECT_EQ(Peek(first.view().statistics()->batches), 0u);
  EXPECT_EQ(Peek(first.view().statistics()->failing_error[3]), 0u);
}

// Only who comes first marks it, and says so.
TEST_F(UsersTest, TheStateIsThatOfTheFirstOne) {
  ScopedPool first;
  Use(first);
  const uint64_t since = Peek(first.view().state()->owner_since);
  EXPECT_EQ(InChild([&] {
              ScopedPool second;
              Use(second);
              const bool same =
                  Peek(second.view().state()->owner_since) == since &&
                  Peek(second.view().state()->owner_pid) == static_cast<uint32_t>(getppid());
              second.Leave();
              return same && second.dirty() && !HasFailure() ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(first.dirty());
}

}  // namespace
}  // namespace nvcache::pool
