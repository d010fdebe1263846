// SPDX-License-Identifier: BSD-3-Clause
//
// A pool with something pending, damaged everywhere, one place at a time: it is opened and
// recovered or refused, and no file holds anything but what it held before or what was written to
// it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "recovery/replay/replay.h"
#include "src/pool/pool.h"
#include "tests/unit/support.h"

namespace nvcache::recovery {
namespace {

using pool::Access;
using test::Folder;
using test::LogBuilder;
using test::ReadFile;
using test::ScopedPool;
using test::WriteFile;

const std::string kOld(300, 'o');
const std::string kNew(200, 'n');
const std::string kBoth = kNew + kOld.substr(kNew.size());

class DamageTest : public testing::Test {
 protected:
  // What became of a damaged pool.
  struct Outcomes {
    int refused = 0, clean = 0, kept = 0, applied = 0;
  };

  void SetUp() override {
    test::MakePool(pool_path_);
    ScopedPool pool;
    ASSERT_TRUE(test::OpenPool(pool, pool_path_));
    pool.MarkInUse();
    LogBuilder log(pool.view());
    for (uint32_t slot : {0u, 1u}) {
      WriteFile(Path(slot), kOld);
      pool::FileRecord* record = pool.view().file(slot);
      const int fd = open(Path(slot).c_str(), O_RDONLY | O_CLOEXEC);
      ASSERT_EQ(pool::Identify(fd, record), 0);
      close(fd);
      record->incarnation = 1;
      record->name = pool::kNameSettled;
      record->path_length = static_cast<uint32_t>(Path(slot).size());
      std::memcpy(record->path, Path(slot).c_str(), Path(slot).size() + 1);
      record->crc = pool::FileRecordCrc(*record);
      log.Add({slot, 1, 0, kNew});
    }
    WriteFile(wrong_, kOld);
    log_offset_ = pool.view().superblock->log_offset;
    pool.Close();
    good_ = ReadFile(pool_path_);
  }

  std::string Path(uint32_t slot) const { return files_ / std::to_string(slot); }

  // Recovers a pool of these bytes. `where` is for messages.
  void Try(const std::string& bytes, const std::string& where) {
    const int fd = open(pool_path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(bytes.size())), 0);
    ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    close(fd);
    ScopedPool pool;
    pool::Problem problem;
    if (!pool.Open(pool_path_.c_str(), Access::kRecovery, true, nullptr, &problem)) {
      EXPECT_NE(problem.text.size(), 0u) << where;
      ++outcomes_.refused;
    } else {
      Summary summary;
      ++(Replay(pool, {}, {}, &summary) ? outcomes_.clean : outcomes_.kept);
      if (summary.entries == 2) ++outcomes_.applied;
    }
    pool.Close();
    ASSERT_EQ(ReadFile(wrong_), kOld) << where;
    for (uint32_t slot : {0u, 1u}) {
      const std::string content = ReadFile(Path(slot));
      ASSERT_TRUE(content == kOld || content == kBoth) << where << ", file " << slot;
      if (content != kOld) WriteFile(Path(slot), kOld);
    }
  }

  Folder files_{Folder::kMemory};  // syncs cost nothing there
  Folder memory_{Folder::kMemory};
  const std::string pool_path_ = memory_ / "pool";
  const std::string wrong_ = files_ / "wrong";
  std::string good_;
  uint64_t log_offset_ = 0;
  Outcomes outcomes_;
};

TEST_F(DamageTest, None) {
  Try(good_, "nowhere");
  EXPECT_EQ(outcomes_.applied, 1);
  EXPECT_EQ(outcomes_.clean, 1);
}

// Any one byte before the file table may be wrong: everything is recovered.
TEST_F(DamageTest, EveryByteOfTheHeader) {
  // Under a sanitizer, which takes its time, only some.
  const int step = test::kAddressSanitizer || test::kThreadSanitizer ? 13 : 1;
  int bytes = 0;
  for (int at = 0; at < static_cast<int>(pool::kFileTableOffset); at += step, ++bytes) {
    std::string damaged = good_;
    damaged[static_cast<size_t>(at)] = static_cast<char>(~damaged[static_cast<size_t>(at)]);
    Try(damaged, "byte " + std::to_string(at));
  }
  // In the state, some bytes make no state of it, and it counts as in use. None makes it clean.
  EXPECT_EQ(outcomes_.applied, bytes);
  EXPECT_EQ(outcomes_.clean, bytes);
}

// Of what names a file, and of the entries.
TEST_F(DamageTest, EveryByteOfRecordsAndEntries) {
  const uint64_t record = pool::kFileTableOffset;
  const uint64_t log = log_offset_;
  for (const auto& [begin, end] :
       std::map<uint64_t, uint64_t>{{record, record + 400}, {log, log + 2 * (64 + 256)}}) {
    for (uint64_t at = begin; at < end; ++at) {
      std::string damaged = good_;
      damaged[at] = static_cast<char>(~damaged[at]);
      Try(damaged, "byte " + std::to_string(at));
    }
  }
  EXPECT_EQ(outcomes_.refused, 0);
  EXPECT_GT(outcomes_.kept, 200) << "of a file that is not known";
  EXPECT_GT(outcomes_.clean, 500);
}

TEST_F(DamageTest, EveryPageZeroedOrFilled) {
  for (const char filler : {'\0', '\xff'}) {
    for (size_t page = 0; page < good_.size(); page += 4096) {
      std::string damaged = good_;
      damaged.replace(page, 4096, 4096, filler);
      Try(damaged, "page " + std::to_string(page));
    }
  }
  EXPECT_EQ(outcomes_.refused, 0);
  EXPECT_EQ(outcomes_.kept, 2 * 2) << "the two records";
}

TEST_F(DamageTest, TruncatedEverywhere) {
  for (size_t size = 0; size < good_.size(); size += 4096) {
    Try(good_.substr(0, size), "size " + std::to_string(size));
  }
  EXPECT_EQ(outcomes_.refused, static_cast<int>(good_.size() / 4096));
}

}  // namespace
}  // namespace nvcache::recovery
