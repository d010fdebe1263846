// SPDX-License-Identifier: BSD-3-Clause
//
// The cleanup thread against a disk that refuses: nothing is lost, and the tail waits (I5, I10).
#include "src/cleanup/cleaner.h"

#include <errno.h>

#include <thread>

#include "src/nvlog/reader.h"
#include "src/pmem/persist.h"
#include "tests/unit/host.h"
#include "tests/unit/support.h"

namespace nvcache::cleanup {
namespace {

using dramcache::CachedFile;
using nvlog::Position;

class CleanerTest : public testing::Test {
 protected:
  CleanerTest() {
    pmem::Initialize(nullptr);
    pool::Problem problem;
    const std::string path = memory_ / "pool";
    EXPECT_TRUE(pool::Pool::Create(path.c_str(), {pool::kMinPoolSize, true}, nullptr, &problem));
    EXPECT_TRUE(pool_.Open(path.c_str(), pool::Access::kExclusive, true, nullptr, &problem));
    log_.Open(&pool_);
    EXPECT_TRUE(supply_.Open(10000));
    EXPECT_TRUE(frames_.Open(16, &supply_.pages, log_.statistics()));
    EXPECT_TRUE(table_.Open(pool_.view()));
    EXPECT_TRUE(cleaner_.Start(test::UsualHost(), {1, 100, 1000000}));
  }
  ~CleanerTest() override {
    cleaner_.Stop();
    table_.Close();
    frames_.Close();
    supply_.Close();
    pool_.Close();
  }

  // What the vfs layer does for one page.
  void Write(CachedFile& file, uint64_t offset, const std::string& bytes) {
    ASSERT_EQ(cleaner_.EnsureSlot(file), 0);
    radix::PageDescriptor* page = file.pages.FindOrMake(supply_, offset / 4096);
    ASSERT_NE(page, nullptr);
    sys::Lock lock(page->lock);
    const Position place = log_.TryTake(nvlog::EntryUnits(bytes.size()));
    ASSERT_NE(place, nvlog::kNoPosition);
    nvlog::GroupWriter group(log_, place, 1);
    group.Add({offset, reinterpret_cast<const uint8_t*>(bytes.data()),
               static_cast<uint32_t>(bytes.size()), file.slot, file.incarnation,
               page->dirty > 0 ? page->last : nvlog::kNoPosition});
    if (page->has_frame()) {
      std::memcpy(frames_.Bytes(page->frame()) + offset % 4096, bytes.data(), bytes.size());
    }
    group.Commit();
    ++page->dirty;
    ++page->unwritten;
    page->last = place;
    file.pending.fetch_add(nvlog::EntryUnits(bytes.size()));
    file.size.store(std::max(file.size.load(), offset + bytes.size()));
  }
  std::string Read(CachedFile& file, uint64_t offset, size_t n) {
    radix::PageDescriptor* page = file.pages.FindOrMake(supply_, offset / 4096);
    sys::Lock lock(page->lock);
    std::string bytes(n, '\0');
    EXPECT_EQ(cache_.Read(file, offset / 4096, *page, offset % 4096, n,
                          reinterpret_cast<uint8_t*>(bytes.data())),
              static_cast<long>(n));
    return bytes;
  }
  // As the vfs layer, too: the tests keep within what the cleanup thread can free.
  void WriteWhenThereIsRoom(CachedFile& file, uint64_t offset, const std::string& bytes) {
    for (;;) {
      const uint32_t room = log_.RoomSeen();
      if (log_.head() - log_.tail() + 2 * nvlog::kMaxEntryUnits < log_.writable_units()) break;
      log_.WaitForRoom(room);
    }
    Write(file, offset, bytes);
  }
  // What recovery would make of an empty file, if the process died now.
  std::string FoundByRecovery(const CachedFile& file, size_t size) {
    std::string content(size, '\0');
    Position tail, head;
    do {  // once while the log stands still
      tail = log_.tail();
      head = log_.head();
      std::filesystem::copy_file(memory_ / "pool", memory_ / "copy",
                                 std::filesystem::copy_options::overwrite_existing);
    } while (log_.tail() != tail || log_.head() != head);
    test::ScopedPool copy;
    EXPECT_TRUE(test::OpenPool(copy, memory_ / "copy", pool::Access::kInspect));
    nvlog::Reader reader(copy.view());
    nvlog::GroupWalk walk(reader);
    for (nvlog::Group group; walk.Next(&group);) {
      nvlog::EntryHeader header;
      EXPECT_EQ(group.damaged, nvlog::kNoPosition);
      if (group.verdict != nvlog::Verdict::kCommitted) continue;
      EXPECT_EQ(group.entries, 1u);
      reader.Examine(group.position, &header);
      if (header.file == file.slot && header.incarnation == file.incarnation) {
        reader.Payload(header, content.data() + header.offset, header.length);
      }
    }
    return content;
  }
  int OpenData(const std::string& name) {
    return ::open((disk_ / name).c_str(), O_RDWR | O_CREAT, 0600);
  }
  // Makes the file's own descriptor refuse every write with ENOSPC; Repair() undoes it.
  void Break(CachedFile& file) {
    spare_ = ::dup(file.backing_fd);
    const int full = ::open("/dev/full", O_RDWR);
    ASSERT_EQ(::dup2(full, file.backing_fd), file.backing_fd);
    ::close(full);
  }
  void Repair(CachedFile& file) {
    ASSERT_EQ(::dup2(spare_, file.backing_fd), file.backing_fd);
    ::close(spare_);
  }

  test::Folder memory_{test::Folder::kMemory};
  test::Folder disk_;
  pool::Pool pool_;
  nvlog::Log log_;
  radix::Supply supply_;
  dramcache::Frames frames_;
  dramcache::PageCache cache_{log_, supply_, frames_};
  pool::FileTable table_;
  Cleaner cleaner_{log_, cache_, table_};
  int spare_ = -1;
};

TEST_F(CleanerTest, DrainBringsEverythingToTheFile) {
  CachedFile file;
  file.backing_fd = OpenData("a");
  cleaner_.Add(file);
  Write(file, 0, "hello");
  Write(file, 3, "LOW");
  Write(file, 10000, std::string(100, 'z'));
  EXPECT_EQ(cleaner_.Drain(file), 0);
  EXPECT_EQ(file.pending.load(), 0u);
  const std::string content = test::ReadFile(disk_ / "a");
  EXPECT_EQ(content.substr(0, 6), "helLOW");
  EXPECT_EQ(content.substr(10000), std::string(100, 'z'));
  EXPECT_EQ(log_.tail(), log_.head());
  cleaner_.Remove(file);
  ::close(file.backing_fd);
}

// Two writers in turns, each from the end of its file to the beginning: neighbours are found, and
// pages with a frame, without, in pieces, and the last, short one all get what they should.
TEST_F(CleanerTest, NeighboursAreWrittenTogether) {
  constexpr uint64_t kPages = 50;
  constexpr uint64_t kSize = kPages * 4096 - 1000;
  CachedFile files[2];
  std::string contents[2];
  for (int f = 0; f < 2; ++f) {
    files[f].backing_fd = OpenData(std::to_string(f));
    cleaner_.Add(files[f]);
    contents[f].assign(kSize, '\0');
  }
  for (uint64_t page = kPages; page-- > 0;) {
    for (int f = 0; f < 2; ++f) {
      const uint64_t begin = page * 4096, length = std::min<uint64_t>(4096, kSize - begin);
      const auto put = [&](uint64_t at, size_t n, char c) {
        Write(files[f], begin + at, std::string(n, c));
        contents[f].replace(begin + at, n, n, c);
      };
      if (page % 10 == 3) {
        put(100, 50, 'p');
        put(3000, 70, 'q');
      } else {
        put(0, length, static_cast<char>('A' + page + static_cast<uint64_t>(f)));
      }
      if (page % 4 == 1) Read(files[f], begin, 1);
      if (page % 4 == 1) put(2000, 10, 'r');
    }
  }
  for (int f = 0; f < 2; ++f) {
    EXPECT_EQ(cleaner_.Drain(files[f]), 0);
    EXPECT_TRUE(test::ReadFile(disk_ / std::to_string(f)) == contents[f]);
    cleaner_.Remove(files[f]);
    ::close(files[f].backing_fd);
  }
}

TEST_F(CleanerTest, ARefusedWriteStaysAndIsTriedAgain) {
  CachedFile file;
  file.backing_fd = OpenData("a");
  cleaner_.Add(file);
  cleaner_.EnsureSlot(file);
  Break(file);
  const Position tail = log_.tail();
  Write(file, 0, "precious");
  EXPECT_EQ(cleaner_.Drain(file), -ENOSPC);
  EXPECT_EQ(log_.tail(), tail) << "the tail must wait";
  std::atomic<uint32_t> heard{0};
  EXPECT_EQ(file.errors.Take(&heard), ENOSPC);
  EXPECT_GT(pool::Peek(log_.statistics()->write_back_errors), 0u);
  Repair(file);
  while (cleaner_.Drain(file) != 0) {
  }
  EXPECT_EQ(test::ReadFile(disk_ / "a"), "precious");
  EXPECT_EQ(file.failing.load(), 0);
  cleaner_.Remove(file);
  ::close(file.backing_fd);
}

TEST_F(CleanerTest, AFileThatFailsDoesNotHoldUpThoseBeforeIt) {
  CachedFile good, bad;
  good.backing_fd = OpenData("good");
  bad.backing_fd = OpenData("bad");
  cleaner_.Add(good);
  cleaner_.Add(bad);
  cleaner_.EnsureSlot(bad);
  Break(bad);
  Write(good, 0, "first");
  Write(bad, 0, "second");
  EXPECT_EQ(cleaner_.Drain(good), 0);
  EXPECT_EQ(test::ReadFile(disk_ / "good"), "first");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  Repair(bad);
  while (cleaner_.Drain(bad) != 0) {
  }
  EXPECT_EQ(test::ReadFile(disk_ / "bad"), "second");
  cleaner_.Remove(good);
  cleaner_.Remove(bad);
  ::close(good.backing_fd);
  ::close(bad.backing_fd);
}

// A pipe takes the write and refuses fdatasync (EINVAL): as a disk whose cache flush fails, after
// which the kernel may have dropped the page. The bytes must come from the log again.
TEST_F(CleanerTest, AfterARefusedSyncThePagesCountAsUnwritten) {
  CachedFile file;
  file.backing_fd = OpenData("a");
  cleaner_.Add(file);
  cleaner_.EnsureSlot(file);
  spare_ = ::dup(file.backing_fd);
  const int no_sync = ::open("/dev/null", O_RDWR);  // swallows writes; fdatasync says EINVAL
  ASSERT_EQ(::fdatasync(no_sync), -1);
  ASSERT_EQ(::dup2(no_sync, file.backing_fd), file.backing_fd);
  ::close(no_sync);
  Write(file, 0, "gone once");
  EXPECT_EQ(cleaner_.Drain(file), -EINVAL);
  EXPECT_EQ(Read(file, 0, 9), "gone once") << "a dirty miss, not what the device kept";
  Repair(file);
  while (cleaner_.Drain(file) != 0) {
  }
  EXPECT_EQ(test::ReadFile(disk_ / "a"), "gone once");
  cleaner_.Remove(file);
  ::close(file.backing_fd);
}

// Many files of one batch: one sync of their file system, and the device flushed once more.
TEST_F(CleanerTest, ManyFilesAreSyncedTogether) {
  constexpr size_t kFiles = 8;
  cleaner_.Stop();
  ASSERT_TRUE(cleaner_.Start(test::UsualHost(), {100, 1000, uint64_t{60} << 30, kFiles - 1}));
  // None fails; or the one whose descriptor stands for all, or another one.
  for (const size_t broken : {kFiles, size_t{0}, size_t{5}}) {
    CachedFile files[kFiles];
    for (size_t i = 0; i < kFiles; ++i) {
      files[i].backing_fd = OpenData(std::to_string(broken) + std::to_string(i));
      files[i].sync_device = 1;
      files[i].name = dramcache::Name::kNew;
      cleaner_.Add(files[i]);
      ASSERT_EQ(cleaner_.EnsureSlot(files[i]), 0);
    }
    if (broken < kFiles) {
      spare_ = ::dup(files[broken].backing_fd);
      const int no_sync = ::open("/dev/null", O_RDWR);  // swallows writes and cannot be synced
      ASSERT_EQ(::dup2(no_sync, files[broken].backing_fd), files[broken].backing_fd);
      ::close(no_sync);
    }
    const uint64_t syncs = pool::Peek(log_.statistics()->syncs);
    for (size_t i = 0; i < kFiles; ++i) Write(files[i], 0, "content " + std::to_string(i));
    if (broken < kFiles) {
      EXPECT_LT(cleaner_.Drain(files[broken]), 0);
      EXPECT_EQ(Read(files[broken], 0, 9), "content " + std::to_string(broken));
      EXPECT_EQ(files[broken].name.load(), dramcache::Name::kNew);
      Repair(files[broken]);
      while (cleaner_.Drain(files[broken]) != 0) {
      }
    } else {
      EXPECT_EQ(cleaner_.DrainAll(), 0);
      EXPECT_EQ(pool::Peek(log_.statistics()->syncs), syncs + 2);
    }
    while (cleaner_.DrainAll() != 0) {
    }
    for (size_t i = 0; i < kFiles; ++i) {
      EXPECT_EQ(files[i].pending.load(), 0u);
      EXPECT_EQ(files[i].name.load(), dramcache::Name::kSettled);
      EXPECT_EQ(test::ReadFile(disk_ / (std::to_string(broken) + std::to_string(i))),
                "content " + std::to_string(i));
      cleaner_.Remove(files[i]);
      ::close(files[i].backing_fd);
    }
  }
}

// A child of fork may have the file as a batch of its parent's had it just then.
TEST_F(CleanerTest, WhatWasSyncedInAnotherBatchIsSyncedInThisOne) {
  CachedFile file;
  file.backing_fd = OpenData("a");
  file.name = dramcache::Name::kNew;
  file.batch_synced = true;
  cleaner_.Add(file);
  const uint64_t syncs = pool::Peek(log_.statistics()->syncs);
  Write(file, 0, "bytes");
  EXPECT_EQ(cleaner_.Drain(file), 0);
  EXPECT_GT(pool::Peek(log_.statistics()->syncs), syncs);
  EXPECT_EQ(file.name.load(), dramcache::Name::kSettled);
  cleaner_.Remove(file);
  ::close(file.backing_fd);
}

// More files than slots, one after the other: slots of files with nothing pending are taken back.
TEST_F(CleanerTest, SlotsAreTakenBack) {
  const uint32_t count = table_.capacity() * 3;
  std::vector<std::unique_ptr<CachedFile>> files;
  for (uint32_t i = 0; i < count; ++i) {
    files.push_back(std::make_unique<CachedFile>());
    files.back()->backing_fd = OpenData("f" + std::to_string(i));
    cleaner_.Add(*files.back());
    for (;;) {
      const uint32_t room = log_.RoomSeen();
      const long error = cleaner_.EnsureSlot(*files.back());
      if (error == 0) break;
      ASSERT_EQ(error, -ENFILE);
      cleaner_.RequestTrim();
      log_.WaitForRoom(room);
    }
    Write(*files.back(), 0, "content " + std::to_string(i));
  }
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_EQ(cleaner_.Drain(*files[i]), 0);
    EXPECT_EQ(test::ReadFile(disk_ / ("f" + std::to_string(i))), "content " + std::to_string(i));
    cleaner_.Remove(*files[i]);
    ::close(files[i]->backing_fd);
  }
}

// A file whose entries are not the oldest, too: those before it go to the head of the log.
TEST_F(CleanerTest, AFileThatFailsDoesNotHoldUpThoseBehindIt) {
  CachedFile good, bad;
  good.backing_fd = OpenData("good");
  bad.backing_fd = OpenData("bad");
  cleaner_.Add(good);
  cleaner_.Add(bad);
  cleaner_.EnsureSlot(bad);
  Break(bad);
  Write(bad, 0, "first");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  const Position tail = log_.tail();
  Write(good, 0, "second");
  EXPECT_EQ(cleaner_.Drain(good), 0);
  EXPECT_EQ(good.pending.load(), 0u);
  EXPECT_GT(log_.tail(), tail);
  EXPECT_LT(log_.tail(), log_.head()) << "what was not written stays";
  EXPECT_EQ(Read(bad, 0, 5), "first");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC) << "the tail has passed its old place, and yet";
  EXPECT_EQ(cleaner_.DrainAll(), -ENOSPC);
  EXPECT_GT(pool::Peek(log_.statistics()->entries_moved), 0u);
  Repair(bad);
  while (cleaner_.Drain(bad) != 0) {
  }
  EXPECT_EQ(test::ReadFile(disk_ / "bad"), "first");
  EXPECT_EQ(bad.failing.load(), 0);
  cleaner_.Remove(good);
  cleaner_.Remove(bad);
  ::close(good.backing_fd);
  ::close(bad.backing_fd);
}

// Lap after lap of the log, while one file's disk refuses: whenever the process dies, recovery
// finds every byte of it, the newest last (I1, I3).
TEST_F(CleanerTest, WhatIsMovedIsFoundInOrder) {
  constexpr size_t kSize = 16 * 4096;
  std::mt19937_64 random(test::Seed());
  CachedFile good, bad;
  good.backing_fd = OpenData("good");
  bad.backing_fd = OpenData("bad");
  cleaner_.Add(good);
  cleaner_.Add(bad);
  cleaner_.EnsureSlot(bad);
  Break(bad);
  std::string expected(kSize, '\0');
  Write(bad, 0, "x");
  expected[0] = 'x';
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 30; ++i) {
      const size_t at = random() % kSize;
      const size_t most = std::min(4096 - at % 4096, kSize - at);
      const std::string bytes = test::Bytes(random, 1 + random() % most);
      expected.replace(at, bytes.size(), bytes);
      WriteWhenThereIsRoom(bad, at, bytes);
      WriteWhenThereIsRoom(good, random() % 50 * 4096, test::Bytes(random, 4096));
    }
    if (round % 20 == 0) {
      EXPECT_TRUE(FoundByRecovery(bad, kSize) == expected) << "round " << round;
    }
    const size_t at = random() % 16 * 4096;
    EXPECT_TRUE(Read(bad, at, 4096) == expected.substr(at, 4096)) << "round " << round;
  }
  EXPECT_GT(pool::Peek(log_.statistics()->entries_moved), 1000u);
  EXPECT_GT(pool::Peek(log_.statistics()->wraps), 5u);
  EXPECT_FALSE(cleaner_.overloaded());
  Repair(bad);
  while (cleaner_.Drain(bad) != 0) {
  }
  EXPECT_TRUE(test::ReadFile(disk_ / "bad") == expected.substr(0, bad.size));
  EXPECT_EQ(cleaner_.Drain(good), 0);
  cleaner_.Remove(good);
  cleaner_.Remove(bad);
  ::close(good.backing_fd);
  ::close(bad.backing_fd);
}

// The tail passes what somebody waits for, and it is not on the disk for that.
TEST_F(CleanerTest, ADrainIsNotTakenInByAMove) {
  CachedFile good, bad;
  good.backing_fd = OpenData("good");
  bad.backing_fd = OpenData("bad");
  cleaner_.Add(good);
  cleaner_.Add(bad);
  cleaner_.EnsureSlot(bad);
  Break(bad);
  Write(bad, 0, "not on the disk");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    while (!stop) {
      WriteWhenThereIsRoom(good, 0, "x");
      EXPECT_EQ(cleaner_.Drain(good), 0);
    }
  });
  const uint64_t before = pool::Peek(log_.statistics()->entries_moved);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC) << i;
  stop = true;
  mover.join();
  EXPECT_GT(pool::Peek(log_.statistics()->entries_moved), before);
  Repair(bad);
  while (cleaner_.Drain(bad) != 0) {
  }
  cleaner_.Remove(good);
  cleaner_.Remove(bad);
  ::close(good.backing_fd);
  ::close(bad.backing_fd);
}

// As much as a file may have that fails; then it is refused, until the disk works again.
TEST_F(CleanerTest, AFileThatFailsMayNotHaveTheWholeLog) {
  CachedFile bad;
  bad.backing_fd = OpenData("bad");
  cleaner_.Add(bad);
  cleaner_.EnsureSlot(bad);
  Break(bad);
  const std::string page(4096, 'p');
  uint64_t pages = 0;
  for (; !cleaner_.Crowds(bad); ++pages) {
    ASSERT_LT(pages, 1000u);
    WriteWhenThereIsRoom(bad, pages * 4096, page);
    EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  }
  EXPECT_GE(bad.pending.load(), log_.writable_units() / 2);
  while (!cleaner_.overloaded()) EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  EXPECT_EQ(cleaner_.Refusal(bad), -ENOSPC);
  CachedFile good;
  EXPECT_EQ(cleaner_.Refusal(good), 0);
  Repair(bad);
  while (cleaner_.Drain(bad) != 0) {
  }
  EXPECT_EQ(cleaner_.Refusal(bad), 0);
  while (cleaner_.overloaded()) std::this_thread::yield();
  EXPECT_EQ(test::ReadFile(disk_ / "bad").size(), pages * 4096);
  cleaner_.Remove(bad);
  ::close(bad.backing_fd);
}

TEST_F(CleanerTest, WhatIsPendingCanBeReadWithoutTheDisk) {
  CachedFile file;
  file.backing_fd = OpenData("a");
  cleaner_.Add(file);
  cleaner_.EnsureSlot(file);
  spare_ = ::dup(file.backing_fd);
  const int write_only = ::open("/dev/full", O_WRONLY);  // refuses both
  ASSERT_EQ(::dup2(write_only, file.backing_fd), file.backing_fd);
  ::close(write_only);
  Write(file, 100, "one");
  Write(file, 103, "two");
  EXPECT_EQ(Read(file, 100, 6), "onetwo");
  Repair(file);
  while (cleaner_.Drain(file) != 0) {
  }
  cleaner_.Remove(file);
  ::close(file.backing_fd);
}

TEST(ErrorSequenceTest, EachHearsOnce) {
  dramcache::ErrorSequence errors;
  std::atomic<uint32_t> first{errors.Sample()}, second{errors.Sample()};
  EXPECT_EQ(errors.Take(&first), 0);
  errors.Set(EIO);
  std::atomic<uint32_t> before_anybody_heard{errors.Sample()};
  EXPECT_EQ(errors.Take(&first), EIO);
  EXPECT_EQ(errors.Take(&first), 0);
  std::atomic<uint32_t> after{errors.Sample()};
  EXPECT_EQ(errors.Take(&after), 0);
  EXPECT_EQ(errors.Take(&before_anybody_heard), EIO);
  EXPECT_EQ(errors.Take(&second), EIO);
  errors.Set(EIO);
  errors.Set(ENOSPC);
  for (auto* since : {&first, &second, &after}) {
    EXPECT_EQ(errors.Take(since), ENOSPC);
    EXPECT_EQ(errors.Take(since), 0);
  }
}

}  // namespace
}  // namespace nvcache::cleanup
