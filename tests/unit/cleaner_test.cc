// SPDX-License-Identifier: BSD-3-Clause
//
// The cleanup thread against a disk that refuses: nothing is lost, and the tail waits (I5, I10).
#include "src/cleanup/cleaner.h"

#include <errno.h>

#include <thread>

#include "libc-shim/glibc/host.h"
#include "src/pmem/persist.h"
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
    EXPECT_TRUE(cleaner_.Start(GlibcHost(), {1, 100, 1000000}));
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

}  // namespace
}  // namespace nvcache::cleanup
