// SPDX-License-Identifier: BSD-3-Clause
//
// The cleanup thread against a disk that refuses: nothing is lost, and others go on (I5, I10).
#include "src/cleanup/cleaner.h"

#include <errno.h>
#include <linux/falloc.h>

#include <map>
#include <memory>
#include <set>
#include <thread>

#include "src/nvlog/group_writer.h"
#include "src/pmem/persist.h"
#include "tests/unit/found.h"
#include "tests/unit/host.h"
#include "tests/unit/support.h"
#include "tests/unit/traced.h"

namespace nvcache::cleanup {
namespace {

using dramcache::CachedFile;
using dramcache::Erasure;
using nvlog::Kind;
using nvlog::Lsn;
using nvlog::Outcome;

class CleanerTest : public testing::Test {
 protected:
  static constexpr uint32_t kFiles = 100;
  static constexpr Limits kLimits = {1, 100, 1000000};

  CleanerTest() {
    pmem::Initialize();
    syncs_ = 0;
    sync_result_ = 0;
    Open(pool::kMinPoolSize);
  }
  ~CleanerTest() override { Close(); }

  static Calls OurCalls() {
    return {.file_of = [](uint32_t number) -> CachedFile& { return *files_[number].load(); },
            .cover =
                [] {
                  ++syncs_;
                  return sync_result_.load();
                }};
  }
  void Open(uint64_t size, const Limits& limits = kLimits) {
    const std::string path = memory_ / "pool";
    test::MakePool(path, size);
    EXPECT_TRUE(test::OpenPool(pool_, path));
    EXPECT_TRUE(log_.Open(&pool_));
    kept_.Open();
    EXPECT_TRUE(supply_.Open(10000));
    EXPECT_TRUE(frames_.Open(16, &supply_.pages, log_.statistics()));
    EXPECT_TRUE(cleaner_.Start(test::UsualHost(), limits, OurCalls()));
  }
  void Close() {
    cleaner_.Stop();
    frames_.Close();
    supply_.Close();
    log_.Close();
    pool_.Close();
  }

  // From here on the cleanup thread does nothing unless somebody waits for it.
  void HoldBack() {
    Close();
    std::filesystem::remove(memory_ / "pool");
    Open(pool::kMinPoolSize, {1000, 1000, 60'000'000'000});
  }

  // While the cleanup thread runs.
  uint64_t KeptUnits() { return pool::Peek(pool_.seats().At(pool_.seat()).kept_units); }

  // Gives the file a number, and makes it known.
  void Add(CachedFile& file, const std::string& name) { Add(file, name, next_number_++); }
  void Add(CachedFile& file, const std::string& name, uint32_t number) {
    file.tag.number = number;
    file.backing_fd = ::open((disk_ / name).c_str(), O_RDWR | O_CREAT, 0600);
    files_[number] = &file;
    cleaner_.Add(file);
  }
  void Remove(CachedFile& file) {
    cleaner_.Remove(file);
    ::close(file.backing_fd);
    CachedFile& gone = gone_[file.tag.number];
    gone.tag.number = file.tag.number;
    gone.handed_over.store(file.handed_over.load());
    files_[file.tag.number] = &gone;
  }
  // One that is known for as long as it lives.
  class File : public CachedFile {
   public:
    File(CleanerTest& test, const std::string& name) : test_(test) { test_.Add(*this, name); }
    ~File() { test_.Remove(*this); }

   private:
    CleanerTest& test_;
  };
  static pool::FileRecord RecordOf(const CachedFile& file) {
    return test::RecordOfNone("/file" + std::to_string(file.tag.number), file.tag.number);
  }

  // What the vfs layer does, but for its locks.
  Outcome TryWrite(CachedFile& file, uint64_t offset, const std::string& bytes) {
    const iovec iov = {const_cast<char*>(bytes.data()), bytes.size()};
    dramcache::Cursor cursor(&iov, 1);
    const Outcome outcome = cache_.Append(file, offset, bytes.size(), &cursor, nullptr);
    if (outcome != Outcome::kUndeclared) return outcome;
    pool::FileRecord record = RecordOf(file);
    return cache_.Append(file, offset, bytes.size(), &cursor, &record);
  }
  void Write(CachedFile& file, uint64_t offset, const std::string& bytes) {
    for (;;) {
      const uint32_t room = log_.RoomSeen();
      const Outcome outcome = TryWrite(file, offset, bytes);
      if (outcome == Outcome::kDone) return;
      ASSERT_EQ(outcome, Outcome::kLogFull);
      log_.WaitForRoom(room);
    }
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
  Lsn Mark(CachedFile& file, Kind kind, uint64_t offset, uint64_t length) {
    for (;;) {
      const uint32_t room = log_.RoomSeen();
      pool::FileRecord record = RecordOf(file);
      {
        nvlog::GroupWriter group(log_, file.tag);
        const Outcome outcome = group.BeginMark(kind, offset, length, &record);
        EXPECT_TRUE(outcome == Outcome::kDone || outcome == Outcome::kLogFull);
        if (outcome == Outcome::kDone) {
          file.pending.fetch_add(group.units());
          return group.Commit();
        }
      }
      log_.WaitForRoom(room);
    }
  }
  // What the kernel is told, it refuses if the file's disk is broken.
  void Erase(CachedFile& file, uint64_t begin, uint64_t end) {
    const bool cuts = end == Erasure::kToTheEnd;
    ASSERT_TRUE(file.erasures.HasRoom());
    cleaner_.WriteBack(file);  // unless it fails
    file.erase_lock.Lock();
    const Lsn lsn =
        cuts ? Mark(file, Kind::kTruncate, begin, 0) : Mark(file, Kind::kErase, begin, end - begin);
    file.erasures.Add({lsn, begin, end});
    file.pages.ForEach(supply_, [&](uint64_t number, radix::PageDescriptor& page) {
      if (number < begin / 4096 || (!cuts && number * 4096 >= end)) return;
      sys::Lock lock(page.lock);
      cache_.ForgetBytes(page);
    });
    const int fd = file.backing_fd;
    const int failed =
        cuts ? ::ftruncate(fd, static_cast<off_t>(begin))
             : ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(begin), static_cast<off_t>(end - begin));
    if (failed != 0) file.erase_error.store(errno);
    file.erased.store(true);
    if (cuts) file.size.store(begin);
    file.erase_lock.Unlock();
  }

  // Until the disk has all of the file, which it may have refused just before.
  void DrainAtLast(CachedFile& file) {
    while (cleaner_.Drain(file) != 0) {
    }
  }
  // What recovery would make of a file that is empty, if the process died now.
  std::string FoundByRecovery(const CachedFile& file) {
    std::string content;
    Lsn cleaned, newest;
    uint64_t kept;
    do {  // once while nothing goes on
      cleaned = cleaner_.cleaned();
      newest = log_.newest();
      kept = pool::Peek(log_.statistics()->records_kept);
      std::filesystem::copy_file(memory_ / "pool", memory_ / "copy",
                                 std::filesystem::copy_options::overwrite_existing);
    } while (cleaner_.cleaned() != cleaned || log_.newest() != newest ||
             pool::Peek(log_.statistics()->records_kept) != kept);
    test::ForEachCommitted(memory_ / "copy", [&](const test::FoundRecord& found) {
      if (!nvlog::IsChange(found.header.kind)) return;
      if (found.file_record().inode == file.tag.number) Apply(found, &content);
    });
    return content;
  }
  static void Apply(const test::FoundRecord& found, std::string* content) {
    const nvlog::RecordHeader& header = found.header;
    if (header.kind == Kind::kTruncate) {
      content->resize(header.offset);
    } else if (header.kind == Kind::kErase) {
      for (uint64_t i = 0; i < header.length && header.offset + i < content->size(); ++i) {
        (*content)[header.offset + i] = '\0';
      }
    } else {
      test::Overwrite(content, header.offset, found.payload());
    }
  }

  // As the vfs layer does for another process.
  void HandOver(CachedFile& file) {
    EXPECT_GE(cleaner_.WriteBack(file), 0);
    EXPECT_TRUE(cleaner_.HandOver(file, [&] { return Mark(file, Kind::kHandedOver, 0, 0); }));
    EXPECT_EQ(file.pending.load(), 0u);
    file.pages.Trim(supply_);
    EXPECT_TRUE(file.pages.empty());
  }

  // Makes the file's own descriptor refuse every write with ENOSPC; Repair() undoes it.
  void Break(CachedFile& file, const char* device = "/dev/full") {
    spare_ = ::dup(file.backing_fd);
    const int full = ::open(device, O_RDWR);
    ASSERT_EQ(::dup2(full, file.backing_fd), file.backing_fd);
    ::close(full);
  }
  void Repair(CachedFile& file) {
    ASSERT_EQ(::dup2(spare_, file.backing_fd), file.backing_fd);
    ::close(spare_);
  }
  void RepairAndDrain(CachedFile& file) {
    Repair(file);
    DrainAtLast(file);
  }
  std::string OnDisk(const std::string& name) { return test::ReadFile(disk_ / name); }

  test::Folder memory_{test::Folder::kMemory};
  test::Folder disk_;
  pool::Pool pool_;
  nvlog::Log log_;
  nvlog::Kept kept_{log_};
  radix::Supply supply_;
  dramcache::Frames frames_;
  dramcache::PageCache cache_{log_, kept_, supply_, frames_};
  Cleaner cleaner_{log_, cache_};
  uint32_t next_number_ = 0;
  int spare_ = -1;
  // By number; and those that stand there once the file is gone.
  static inline std::atomic<CachedFile*> files_[kFiles];
  static inline CachedFile gone_[kFiles];
  // Of what was handed over.
  static inline std::atomic<int> syncs_ = 0;
  static inline std::atomic<long> sync_result_ = 0;
};

TEST_F(CleanerTest, DrainBringsEverythingToTheFile) {
  File file(*this, "a");
  Write(file, 0, "hello");
  Write(file, 3, "LOW");
  Write(file, 10000, std::string(100, 'z'));
  EXPECT_EQ(cleaner_.Drain(file), 0);
  EXPECT_EQ(file.pending.load(), 0u);
  const std::string content = OnDisk("a");
  EXPECT_EQ(content.substr(0, 6), "helLOW");
  EXPECT_EQ(content.substr(10000), std::string(100, 'z'));
  cleaner_.DrainAll();
  EXPECT_EQ(FoundByRecovery(file), "") << "the checkpoint is above all of it";
}

TEST_F(CleanerTest, TheSeatSaysHowManyFilesAndBytesThereWere) {
  const auto files = [this] { return pool::Peek(pool_.seats().At(pool_.seat()).files); };
  const auto written = [this] { return pool::Peek(pool_.seats().At(pool_.seat()).written); };
  CachedFile a, b;
  EXPECT_EQ(files(), 0u);
  Add(a, "a");
  Add(b, "b");
  EXPECT_EQ(files(), 2u);
  Write(a, 0, std::string(1000, 'a'));
  Write(b, 0, std::string(300, 'b'));
  cleaner_.DrainAll();
  EXPECT_EQ(written(), 1300u / pool::kUnitSize);
  // What is less than a unit is not lost.
  Write(b, 0, std::string(44, 'b'));
  cleaner_.DrainAll();
  EXPECT_EQ(written(), 1344u / pool::kUnitSize);
  Remove(a);
  EXPECT_EQ(files(), 1u);
  Remove(b);
  EXPECT_EQ(files(), 0u);
}

// Two writers in turns, each from the end of its file to the beginning: neighbours are found, and
// pages with a frame, without, in pieces, and the last, short one all get what they should.
TEST_F(CleanerTest, NeighboursAreWrittenTogether) {
  constexpr uint64_t kPages = 50;
  constexpr uint64_t kSize = kPages * 4096 - 1000;
  CachedFile files[2];
  std::string contents[2];
  for (int f = 0; f < 2; ++f) {
    Add(files[f], std::to_string(f));
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
    EXPECT_TRUE(OnDisk(std::to_string(f)) == contents[f]);
    Remove(files[f]);
  }
}

// Who looks at the files sees a beginning of what was written, of all of them.
TEST_F(CleanerTest, TheKernelGetsWhatTheLogHasBeforeAndNothingElse) {
  HoldBack();
  File a(*this, "a"), b(*this, "b");
  const auto noted = [this] { return pool::Peek(*pool_.view().written_back(pool_.seat())); };
  Write(b, 0, "b1");
  Write(a, 8192, "a1");
  Write(a, 0, "a2");
  Write(b, 0, "b2");
  EXPECT_EQ(noted(), 0u);
  EXPECT_EQ(cleaner_.WriteBack(a), 1);
  EXPECT_EQ(OnDisk("a"), "a2" + std::string(8190, '\0') + "a1");
  EXPECT_EQ(OnDisk("b"), "b1") << "what came before, and not what came after";
  EXPECT_EQ(noted(), a.newest.load());
  EXPECT_EQ(cleaner_.WriteBack(a), 0) << "it has that";
  EXPECT_EQ(Read(b, 0, 2), "b2");
  Write(a, 0, "a3");
  EXPECT_EQ(cleaner_.WriteBack(b), 1);
  EXPECT_EQ(OnDisk("b"), "b2");
  EXPECT_EQ(OnDisk("a").substr(0, 2), "a2");
  EXPECT_EQ(cleaner_.Drain(a), 0);
  EXPECT_EQ(OnDisk("a").substr(0, 2), "a3");
  EXPECT_EQ(noted(), a.newest.load());
  cleaner_.DrainAll();
}

// Others may have seen what the kernel has when the process dies, so that is noted before.
TEST_F(CleanerTest, KilledInTheCallThatOthersSeeItIsKnownHowFarItWas) {
  HoldBack();
  File file(*this, "a");
  std::map<std::string, Lsn> written = {{"", 0}};
  for (const char* bytes : {"1", "2", "3"}) {
    Write(file, 0, bytes);
    written[bytes] = file.newest.load();
    Write(file, 8192, bytes);
  }
  uint64_t& noted = *pool_.view().written_back(pool_.seat());
  std::set<std::string> seen;
  const auto prepare = [&] {
    EXPECT_EQ(::ftruncate(file.backing_fd, 0), 0);
    pool::Note(noted, 0);
  };
  const auto body = [&] { return cleaner_.WriteBack(file) == 1 ? 0 : 1; };
  const auto check = [&] {
    const std::string now = OnDisk("a").substr(0, 1);
    seen.insert(now);
    EXPECT_GE(pool::Peek(noted), written[now]) << now;
  };
  if (test::KillAtEveryCall(prepare, body, check) < 0) GTEST_SKIP() << "cannot trace a child";
  EXPECT_EQ(seen.size(), written.size());
  EXPECT_EQ(cleaner_.Drain(file), 0);
  EXPECT_EQ(OnDisk("a"), "3" + std::string(8191, '\0') + "3");
}

// Of a file that fails the kernel may lack anything: nobody says how far it is.
TEST_F(CleanerTest, WhileAFileFailsNobodyKnowsWhatTheKernelHas) {
  HoldBack();
  File good(*this, "good"), bad(*this, "bad");
  const auto noted = [this] { return pool::Peek(*pool_.view().written_back(pool_.seat())); };
  Write(bad, 0, "1");
  EXPECT_EQ(cleaner_.WriteBack(bad), 1);
  EXPECT_NE(noted(), 0u);
  Break(bad);
  Write(bad, 0, "2");
  EXPECT_EQ(cleaner_.WriteBack(bad), -ENOSPC);
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  EXPECT_EQ(noted(), 0u);
  Write(good, 0, "1");
  EXPECT_EQ(cleaner_.WriteBack(good), 1) << "it holds up no others";
  EXPECT_EQ(noted(), 0u);
  Write(bad, 0, "3");
  RepairAndDrain(bad);
  EXPECT_EQ(OnDisk("bad"), "3");
  Write(good, 0, "2");
  EXPECT_EQ(cleaner_.WriteBack(good), 1);
  EXPECT_EQ(noted(), good.newest.load());
  cleaner_.DrainAll();
}

TEST_F(CleanerTest, ARefusedWriteStaysAndIsTriedAgain) {
  File file(*this, "a");
  Break(file);
  Write(file, 0, "precious");
  EXPECT_EQ(cleaner_.Drain(file), -ENOSPC);
  EXPECT_EQ(FoundByRecovery(file), "precious");
  EXPECT_EQ(file.failing.load(), ENOSPC);
  EXPECT_TRUE(cleaner_.failing());
  std::atomic<uint32_t> heard{0};
  EXPECT_EQ(file.errors.Take(&heard), ENOSPC);
  EXPECT_GT(pool::Peek(log_.statistics()->write_back_errors), 0u);
  RepairAndDrain(file);
  EXPECT_EQ(OnDisk("a"), "precious");
  EXPECT_EQ(file.failing.load(), 0);
  EXPECT_FALSE(cleaner_.failing());
  EXPECT_EQ(FoundByRecovery(file), "") << "what was kept is void";
  EXPECT_EQ(KeptUnits(), 0u);
}

TEST_F(CleanerTest, AFileThatFailsDoesNotHoldUpThoseBeforeIt) {
  File good(*this, "good"), bad(*this, "bad");
  Break(bad);
  Write(good, 0, "first");
  Write(bad, 0, "second");
  EXPECT_EQ(cleaner_.Drain(good), 0);
  EXPECT_EQ(OnDisk("good"), "first");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  RepairAndDrain(bad);
  EXPECT_EQ(OnDisk("bad"), "second");
}

// A device that takes the write and refuses fdatasync (EINVAL): as a disk whose cache flush fails,
// after which the kernel may have dropped the page. The bytes must come from the log again.
TEST_F(CleanerTest, AfterARefusedSyncThePagesCountAsUnwritten) {
  File file(*this, "a");
  Break(file, "/dev/null");  // swallows writes; fdatasync says EINVAL
  ASSERT_EQ(::fdatasync(file.backing_fd), -1);
  Write(file, 0, "gone once");
  EXPECT_EQ(cleaner_.Drain(file), -EINVAL);
  EXPECT_EQ(Read(file, 0, 9), "gone once") << "a dirty miss, not what the device kept";
  RepairAndDrain(file);
  EXPECT_EQ(OnDisk("a"), "gone once");
}

// Many files of one batch: one sync of their file system, and the device flushed once more.
TEST_F(CleanerTest, ManyFilesAreSyncedTogether) {
  constexpr size_t kMany = 8;
  cleaner_.Stop();
  ASSERT_TRUE(
      cleaner_.Start(test::UsualHost(), {100, 1000, uint64_t{60} << 30, kMany - 1}, OurCalls()));
  // None fails; or the one whose descriptor stands for all, or another one.
  for (const size_t broken : {kMany, size_t{0}, size_t{5}}) {
    CachedFile files[kMany];
    for (size_t i = 0; i < kMany; ++i) {
      files[i].sync_device = 1;
      Add(files[i], std::to_string(broken) + std::to_string(i));
    }
    if (broken < kMany) {
      Break(files[broken], "/dev/null");  // swallows writes and cannot be synced
    }
    const uint64_t syncs = pool::Peek(log_.statistics()->syncs);
    for (size_t i = 0; i < kMany; ++i) Write(files[i], 0, "content " + std::to_string(i));
    if (broken < kMany) {
      EXPECT_LT(cleaner_.Drain(files[broken]), 0);
      EXPECT_EQ(Read(files[broken], 0, 9), "content " + std::to_string(broken));
      Repair(files[broken]);
      DrainAtLast(files[broken]);
    } else {
      cleaner_.DrainAll();
      EXPECT_EQ(pool::Peek(log_.statistics()->syncs), syncs + 2);
    }
    cleaner_.DrainAll();
    for (size_t i = 0; i < kMany; ++i) {
      EXPECT_EQ(files[i].pending.load(), 0u);
      EXPECT_EQ(OnDisk(std::to_string(broken) + std::to_string(i)), "content " + std::to_string(i));
      Remove(files[i]);
    }
  }
}

// A child of fork may have the file as a batch of its parent's had it just then.
TEST_F(CleanerTest, WhatWasSyncedInAnotherBatchIsSyncedInThisOne) {
  CachedFile file;
  file.batch_synced = true;
  Add(file, "a");
  const uint64_t syncs = pool::Peek(log_.statistics()->syncs);
  Write(file, 0, "bytes");
  EXPECT_EQ(cleaner_.Drain(file), 0);
  EXPECT_GT(pool::Peek(log_.statistics()->syncs), syncs);
  Remove(file);
}

// Numbers are used again as soon as nothing of a file is pending, in the same segment.
TEST_F(CleanerTest, ANumberNamesOneFileAfterTheOther) {
  for (uint32_t i = 0; i < 3 * kFiles; ++i) {
    CachedFile file;
    next_number_ = i % 3;
    const std::string name = "f" + std::to_string(i);
    Add(file, name);
    Write(file, 0, "content " + std::to_string(i));
    ASSERT_EQ(cleaner_.Drain(file), 0);
    EXPECT_EQ(OnDisk(name), "content " + std::to_string(i));
    Remove(file);
  }
}

// The checkpoint passes what a disk refuses, which is kept, and others' records are freed.
TEST_F(CleanerTest, AFileThatFailsDoesNotHoldUpThoseBehindIt) {
  File good(*this, "good"), bad(*this, "bad");
  Break(bad);
  Write(bad, 0, "first");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  const Lsn cleaned = cleaner_.cleaned();
  Write(good, 0, "second");
  EXPECT_EQ(cleaner_.Drain(good), 0);
  EXPECT_EQ(good.pending.load(), 0u);
  EXPECT_GT(cleaner_.cleaned(), cleaned);
  EXPECT_EQ(FoundByRecovery(bad), "first");
  EXPECT_EQ(FoundByRecovery(good), "");
  EXPECT_EQ(Read(bad, 0, 5), "first");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC) << "the checkpoint has passed it, and yet";
  cleaner_.DrainAll();
  EXPECT_EQ(pool::Peek(log_.statistics()->records_kept), 1u);
  EXPECT_EQ(bad.pending.load(), KeptUnits());
  RepairAndDrain(bad);
  EXPECT_EQ(OnDisk("bad"), "first");
  EXPECT_EQ(bad.failing.load(), 0);
}

// Nobody waits for its sync but those behind it in the log, and these for one.
TEST_F(CleanerTest, WhatWasHandedOverIsSyncedOnce) {
  HoldBack();
  CachedFile handed_over[3], good;
  for (CachedFile& file : handed_over) {
    Add(file, "handed-over." + std::to_string(next_number_));
    Write(file, 0, "bytes");
  }
  Add(good, "good");
  for (CachedFile& file : handed_over) HandOver(file);
  EXPECT_EQ(syncs_, 0);
  EXPECT_EQ(OnDisk("handed-over.1"), "bytes");
  EXPECT_EQ(FoundByRecovery(handed_over[0]), "bytes");
  Write(good, 0, "later");
  EXPECT_EQ(cleaner_.Drain(good), 0);
  EXPECT_EQ(syncs_, 1);
  EXPECT_EQ(cleaner_.handed_over(), 0u);
  EXPECT_EQ(FoundByRecovery(handed_over[0]), "");
  for (CachedFile& file : handed_over) Remove(file);
  Remove(good);
}

// Another process has.
TEST_F(CleanerTest, WhatWasHandedOverIsBelowTheOthersCheckpoint) {
  HoldBack();
  File file(*this, "handed-over");
  Write(file, 0, "bytes");
  HandOver(file);
  pool_.StoreThroughCheckpoint(log_.newest() + 1);
  cleaner_.DrainAll();
  EXPECT_EQ(syncs_, 0);
  EXPECT_EQ(cleaner_.handed_over(), 0u);
}

// A new pool begins with low LSNs: what was handed over by way of one that is gone says nothing of
// the file's records in this one.
TEST_F(CleanerTest, WhatWasHandedOverInAnotherPoolIsNoneOfThis) {
  HoldBack();
  CachedFile file;
  Add(file, "a");
  for (int i = 0; i < 10; ++i) Write(file, 0, "before");
  HandOver(file);
  cleaner_.DrainAll();
  Remove(file);
  HoldBack();
  Add(file, "a", file.tag.number);
  Write(file, 0, "behind");
  EXPECT_LT(file.newest.load(), gone_[file.tag.number].handed_over.load());
  EXPECT_EQ(cleaner_.WriteBack(file), 1);
  EXPECT_EQ(OnDisk("a"), "behind");
  cleaner_.DrainAll();
  ASSERT_EQ(file.pending.load(), 0u);
  Remove(file);
}

// The disk has lost something, of whichever file: what was handed over stays for recovery, however
// often the log goes round. Its number is another file's by then.
TEST_F(CleanerTest, WhatWasHandedOverIsKeptIfItsSyncFails) {
  HoldBack();
  std::mt19937_64 random(test::Seed());
  CachedFile lost, good;
  Add(lost, "lost");
  Add(good, "good");
  Write(lost, 0, test::Bytes(random, 9000));
  Erase(lost, 5000, Erasure::kToTheEnd);
  Write(lost, 4000, "end");
  HandOver(lost);
  const std::string expected = FoundByRecovery(lost);
  EXPECT_EQ(expected.size(), 5000u);
  sync_result_ = -EIO;
  Remove(lost);
  CachedFile next;
  Add(next, "next", lost.tag.number);
  for (int round = 0; round < 400; ++round) {
    Write(good, 0, test::Bytes(random, 9000));
    ASSERT_EQ(cleaner_.Drain(good), 0);
    if (round == 200) {
      Break(next);
      Write(next, 0, "next");
      EXPECT_EQ(cleaner_.Drain(next), -ENOSPC);
      RepairAndDrain(next);
    }
  }
  EXPECT_GT(pool::Peek(log_.statistics()->segments_taken), 2u * log_.segments().count());
  EXPECT_EQ(syncs_, 1) << "an error is told once";
  EXPECT_TRUE(FoundByRecovery(lost) == expected);
  EXPECT_NE(cleaner_.handed_over(), 0u);
  Remove(next);
  Remove(good);
}

// Over and over through the log, while one file's disk refuses: whenever the process dies, recovery
// finds every byte of it, the newest last (I1, I3); and the other file goes on.
TEST_F(CleanerTest, WhatIsKeptIsFoundInOrder) {
  constexpr size_t kSize = 16 * 4096;
  std::mt19937_64 random(test::Seed());
  File good(*this, "good"), bad(*this, "bad");
  Break(bad);
  std::string expected;
  Write(bad, 0, "x");
  expected = "x";
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 30; ++i) {
      const size_t at = random() % kSize;
      const std::string bytes =
          test::Bytes(random, 1 + random() % std::min<size_t>(9000, kSize - at));
      test::Overwrite(&expected, at, bytes);
      Write(bad, at, bytes);
      Write(good, random() % 50 * 4096, test::Bytes(random, 4096));
    }
    if (round % 20 == 0) {
      EXPECT_TRUE(FoundByRecovery(bad) == expected) << "round " << round;
    }
    const size_t at = random() % (expected.size() / 4096) * 4096;
    EXPECT_TRUE(Read(bad, at, 4096) == expected.substr(at, 4096)) << "round " << round;
  }
  EXPECT_GT(pool::Peek(log_.statistics()->records_kept), 1000u);
  EXPECT_GT(pool::Peek(log_.statistics()->segments_taken), 5u * log_.segments().count());
  EXPECT_FALSE(cleaner_.overloaded());
  EXPECT_LT(KeptUnits(), 2 * kSize / pool::kUnitSize + 16 * 10) << "what is hidden is void";
  RepairAndDrain(bad);
  EXPECT_TRUE(OnDisk("bad") == expected);
  EXPECT_EQ(cleaner_.Drain(good), 0);
  EXPECT_EQ(KeptUnits(), 0u);
  EXPECT_EQ(FoundByRecovery(bad), "");
}

// The same with cuts and holes, which the kernel refuses, too; and a disk that heals now and then.
TEST_F(CleanerTest, CutsAndHolesAreKeptInOrder) {
  constexpr size_t kPages = 12;
  std::mt19937_64 random(test::Seed());
  File good(*this, "good"), bad(*this, "bad");
  std::string expected;
  for (int round = 0; round < 40; ++round) {
    if (round % 10 == 0) Break(bad);
    for (int i = 0; i < 20; ++i) {
      const size_t at = random() % (kPages * 4096);
      const std::string bytes = test::Bytes(random, 1 + random() % 9000);
      test::Overwrite(&expected, at, bytes);
      Write(bad, at, bytes);
      Write(good, random() % 20 * 4096, test::Bytes(random, 4096));
    }
    // As the vfs layer has it: pages that are erased in part reach the kernel first.
    if (bad.failing.load() == 0 && bad.erasures.HasRoom()) {
      const size_t first = random() % (expected.size() / 4096);
      const size_t end = std::min(expected.size() / 4096, first + 1 + random() % 3);
      if (random() % 2 == 0) {
        Erase(bad, first * 4096, Erasure::kToTheEnd);
        expected.resize(first * 4096);
      } else {
        Erase(bad, first * 4096, end * 4096);
        std::fill(expected.begin() + static_cast<long>(first * 4096),
                  expected.begin() + static_cast<long>(end * 4096), '\0');
      }
    }
    for (size_t page = 0; (page + 1) * 4096 <= expected.size(); ++page) {
      ASSERT_TRUE(Read(bad, page * 4096, 4096) == expected.substr(page * 4096, 4096))
          << "round " << round << " page " << page;
    }
    if (round % 10 == 6) {
      cleaner_.DrainAll();
      RepairAndDrain(bad);
      EXPECT_TRUE(OnDisk("bad") == expected) << "round " << round;
      EXPECT_TRUE(bad.erasures.empty());
      EXPECT_EQ(KeptUnits(), 0u);
    }
    if (round % 10 == 9) DrainAtLast(bad);
  }
  EXPECT_TRUE(OnDisk("bad") == expected);
  DrainAtLast(good);
}

// What was kept before a cut, and the cut itself, and what came after it.
TEST_F(CleanerTest, ACutIsKept) {
  File bad(*this, "bad");
  Break(bad);
  Write(bad, 0, std::string(3 * 4096, 'a'));
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  Erase(bad, 4096, Erasure::kToTheEnd);
  EXPECT_EQ(FoundByRecovery(bad), std::string(4096, 'a'));
  cleaner_.DrainAll();
  EXPECT_EQ(FoundByRecovery(bad), std::string(4096, 'a'));
  Write(bad, 2 * 4096, "b");
  cleaner_.DrainAll();
  const std::string expected = std::string(4096, 'a') + std::string(4096, '\0') + "b";
  EXPECT_EQ(FoundByRecovery(bad), expected);
  EXPECT_EQ(Read(bad, 4096, 4096), std::string(4096, '\0'));
  EXPECT_EQ(Read(bad, 2 * 4096, 3), std::string("b\0\0", 3));
  RepairAndDrain(bad);
  EXPECT_EQ(OnDisk("bad"), expected);
  EXPECT_TRUE(bad.erasures.empty());
  EXPECT_EQ(bad.erase_error.load(), 0);
}

// A hole says nothing of the size: the bytes that made the file so long are kept.
TEST_F(CleanerTest, AHoleDoesNotHideTheSize) {
  File bad(*this, "bad");
  Break(bad);
  Write(bad, 0, std::string(2 * 4096, 'a'));
  Erase(bad, 4096, 2 * 4096);
  EXPECT_LT(cleaner_.Drain(bad), 0);
  cleaner_.DrainAll();
  const std::string expected = std::string(4096, 'a') + std::string(4096, '\0');
  EXPECT_TRUE(FoundByRecovery(bad) == expected);
  RepairAndDrain(bad);
  EXPECT_TRUE(OnDisk("bad") == expected);
}

// What the kernel has refused to erase is not read.
TEST_F(CleanerTest, AnErasureThatTheKernelRefusedIsReadAsZeros) {
  File file(*this, "a");
  Write(file, 0, std::string(3 * 4096, 'a'));
  EXPECT_EQ(cleaner_.Drain(file), 0);
  Break(file);
  Erase(file, 0, 2 * 4096);
  Repair(file);
  EXPECT_TRUE(Read(file, 0, 4096) == std::string(4096, '\0'));
  EXPECT_TRUE(Read(file, 4096, 4096) == std::string(4096, '\0'));
  Write(file, 4096, "b");
  EXPECT_EQ(Read(file, 4096, 3), std::string("b\0\0", 3));
  DrainAtLast(file);
  EXPECT_TRUE(OnDisk("a") ==
              std::string(4096, '\0') + "b" + std::string(4095, '\0') + std::string(4096, 'a'));
}

// Pages that are written again and again leave kept segments with holes: they may not take what
// others need.
TEST_F(CleanerTest, AFailingFileThatIsRewrittenLeavesRoomForOthers) {
  constexpr uint64_t kPages = 60;  // less than what a file that fails may have
  std::mt19937_64 random(test::Seed());
  File good(*this, "good"), bad(*this, "bad");
  Break(bad);
  std::string expected(kPages * 4096, '\0');
  for (int i = 0; i < 4000; ++i) {
    const uint64_t page = random() % kPages;
    const std::string bytes(4096, static_cast<char>(random()));
    expected.replace(page * 4096, 4096, bytes);
    Write(bad, page * 4096, bytes);
    if (i % 10 == 0) {
      Write(good, 0, bytes);
      ASSERT_EQ(cleaner_.Drain(good), 0);
    }
  }
  EXPECT_TRUE(FoundByRecovery(bad) == expected);
  RepairAndDrain(bad);
  EXPECT_TRUE(OnDisk("bad") == expected);
}

// Several threads, each with a file of its own, and lanes of their own: what they have written is
// on the disk when the cleanup thread says so, and not before the checkpoint (I5).
TEST_F(CleanerTest, LanesAreCleanedTogether) {
  Close();
  std::filesystem::remove(memory_ / "pool");
  Open(16u << 20, {20, 100, 1000000});
  constexpr size_t kThreads = 4;
  std::vector<std::unique_ptr<CachedFile>> files;
  std::vector<std::string> expected(kThreads);
  for (size_t t = 0; t < kThreads; ++t) {
    files.push_back(std::make_unique<CachedFile>());
    Add(*files[t], std::to_string(t));
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(test::Seed() + t);
      std::string& content = expected[t];
      for (int i = 0; i < 4000; ++i) {
        const size_t at = random() % 100000;
        const std::string bytes = test::Bytes(random, 1 + random() % (i % 50 == 0 ? 50000 : 500));
        test::Overwrite(&content, at, bytes);
        Write(*files[t], at, bytes);
        if (i % 400 == 0) {
          ASSERT_EQ(cleaner_.Drain(*files[t]), 0);
          ASSERT_TRUE(OnDisk(std::to_string(t)) == content);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(cleaner_.Drain(*files[t]), 0);
    EXPECT_TRUE(OnDisk(std::to_string(t)) == expected[t]);
    EXPECT_EQ(FoundByRecovery(*files[t]), "");
    Remove(*files[t]);
  }
}

// The checkpoint passes what somebody waits for, and it is not on the disk for that.
TEST_F(CleanerTest, ADrainIsNotTakenInByACopy) {
  File good(*this, "good"), bad(*this, "bad");
  Break(bad);
  Write(bad, 0, "not on the disk");
  EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    while (!stop) {
      Write(good, 0, "x");
      EXPECT_EQ(cleaner_.Drain(good), 0);
    }
  });
  const Lsn before = cleaner_.cleaned();
  for (int i = 0; i < 500; ++i) {
    Write(bad, 0, "not on the disk");
    EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC) << i;
  }
  stop = true;
  mover.join();
  EXPECT_GT(cleaner_.cleaned(), before);
  EXPECT_GT(pool::Peek(log_.statistics()->records_kept), 0u);
  RepairAndDrain(bad);
}

// As much as a file may have that fails; then it is refused, until the disk works again.
TEST_F(CleanerTest, AFileThatFailsMayNotHaveTheWholeLog) {
  File bad(*this, "bad");
  Break(bad);
  const std::string page(4096, 'p');
  uint64_t pages = 0;
  for (; !cleaner_.Crowds(bad); ++pages) {
    ASSERT_LT(pages, 1000u);
    Write(bad, pages * 4096, page);
    EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  }
  EXPECT_GE(bad.pending.load(), log_.writable_units() / 2);
  while (!cleaner_.overloaded()) EXPECT_EQ(cleaner_.Drain(bad), -ENOSPC);
  EXPECT_EQ(cleaner_.Refusal(bad), -ENOSPC);
  CachedFile good;
  EXPECT_EQ(cleaner_.Refusal(good), 0);
  RepairAndDrain(bad);
  EXPECT_EQ(cleaner_.Refusal(bad), 0);
  while (cleaner_.overloaded()) std::this_thread::yield();
  EXPECT_EQ(OnDisk("bad").size(), pages * 4096);
}

TEST_F(CleanerTest, WhatIsPendingCanBeReadWithoutTheDisk) {
  File file(*this, "a");
  spare_ = ::dup(file.backing_fd);
  const int write_only = ::open("/dev/full", O_WRONLY);  // refuses both
  ASSERT_EQ(::dup2(write_only, file.backing_fd), file.backing_fd);
  ::close(write_only);
  Write(file, 100, "one");
  Write(file, 103, "two");
  EXPECT_EQ(Read(file, 100, 6), "onetwo");
  RepairAndDrain(file);
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
