// SPDX-License-Identifier: BSD-3-Clause
//
// A pool with its journal on the disk (docs/disk.md), and what opens and recovers it when its
// memory is gone, or is not to be believed.
#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "src/journal/file.h"
#include "src/pool/journal.h"
#include "src/replay/replay.h"
#include "tests/unit/log_user.h"
#include "tests/unit/support.h"

namespace nvcache::pool {
namespace {

using test::ReadFile;

class JournalPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    CreateOptions options;
    options.size = kMinPoolSize;
    Problem problem;
    const bool made = Pool::Create(path_.c_str(), options, nullptr, &problem);
    if (!made && problem.error == ENOTSUP) GTEST_SKIP() << problem.text.c_str();
    ASSERT_TRUE(made) << problem.text.c_str();
    ASSERT_EQ(stat(path_.c_str(), &st_), 0);
    test::WriteFile(file_, std::string(8, '.'));
    BeUsed();
  }
  void TearDown() override {
    user_.reset();
    if (st_.st_ino != 0) unlink(Memory().c_str());
  }

  journal::Header Header() const {
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    journal::Header header = {};
    EXPECT_EQ(journal::ReadHeader(fd, &header), 0);
    close(fd);
    return header;
  }
  std::string Memory() const { return Journal::PathOf(Header(), st_).c_str(); }

  // By one more process, which is killed when it is BeDead().
  void BeUsed() {
    user_ = std::make_unique<test::LogUser>();
    test::Use(user_->pool, path_);
    ASSERT_TRUE(user_->log.Open(&user_->pool));
    tag_.emplace();
  }
  void BeDead() {
    user_->log.Close();
    user_.reset();
  }
  // One byte of the file: in the log, and in memory.
  Lsn Write(uint64_t at, char byte) {
    return user_->Append(*tag_, test::RecordOf(file_), at, std::string(1, byte));
  }
  void Sync() { ASSERT_TRUE(user_->pool.own_journal().Await()); }

  // What the file has when all has been brought to it.
  std::string Recovered() {
    test::ScopedPool pool;
    Problem problem;
    if (!pool.Open(path_.c_str(), Mode::kRecovery, true, nullptr, &problem)) {
      return problem.text.c_str();
    }
    replay::Summary summary;
    EXPECT_TRUE(replay::Replay(pool, {}, {}, &summary));
    EXPECT_EQ(summary.damaged_groups, 0u);
    return ReadFile(file_);
  }
  // The memory's file, with other bytes there.
  void Change(uint64_t offset, const void* bytes, size_t n) const {
    const int fd = open(Memory().c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(pwrite(fd, bytes, n, static_cast<off_t>(kMinPoolSize + offset)),
              static_cast<ssize_t>(n));
    close(fd);
  }

  const test::Folder folder_;
  const std::string path_ = folder_ / "pool", file_ = folder_ / "file";
  struct stat st_ = {};
  std::unique_ptr<test::LogUser> user_;
  std::optional<nvlog::FileTag> tag_;
};

TEST_F(JournalPoolTest, WithItsMemoryHasAll) {
  Write(0, 'a');
  Sync();
  Write(1, 'b');
  BeDead();
  EXPECT_EQ(Recovered(), "ab......");
}

TEST_F(JournalPoolTest, WithoutItsMemoryHasWhatWasWaitedFor) {
  Write(0, 'a');
  Sync();
  Write(1, 'b');
  BeDead();
  unlink(Memory().c_str());
  EXPECT_EQ(Recovered(), "a.......");
}

// It is another kernel's, and its page cache's bytes are as gone as that.
TEST_F(JournalPoolTest, MemoryOfAnotherBootIsNotBelieved) {
  Write(0, 'a');
  Sync();
  Write(1, 'b');
  BeDead();
  const uint8_t boot[16] = {1, 2, 3};
  Change(offsetof(JournalControl, boot), boot, sizeof(boot));
  EXPECT_EQ(Recovered(), "a.......");
}

// Of the same boot id, from before the journal went on without it: a machine that was set back.
TEST_F(JournalPoolTest, MemoryOfAnotherRunIsNotBelieved) {
  Write(0, 'a');
  Sync();
  Write(1, 'b');
  BeDead();
  const std::string old = folder_ / "memory";
  std::filesystem::copy_file(Memory(), old);
  unlink(Memory().c_str());
  EXPECT_EQ(Recovered(), "a.......");
  BeUsed();
  Write(2, 'c');
  Sync();
  BeDead();
  unlink(Memory().c_str());
  std::filesystem::copy_file(old, Memory());
  EXPECT_EQ(Recovered(), "a.c.....");
}

// The journal may have groups from its last bound on, and lack what they rely on.
TEST_F(JournalPoolTest, GroupsFromTheBoundOnAreNotApplied) {
  Write(0, 'a');
  Sync();
  user_->pool.journal().cut = Write(1, 'b');  // is the bound from now on
  Write(2, 'c');
  Sync();
  BeDead();
  unlink(Memory().c_str());
  EXPECT_EQ(Recovered(), "a.......");
  EXPECT_EQ(Recovered(), "a.......");
}

TEST_F(JournalPoolTest, AVoidJournalIsNotRead) {
  Write(0, 'a');
  Sync();
  ASSERT_EQ(user_->pool.own_journal().MakeVoid(), 0);
  const journal::Header header = Header();
  EXPECT_EQ(header.is_void, 1u);
  BeDead();
  const std::string memory = Memory();
  std::filesystem::copy_file(memory, folder_ / "memory");
  unlink(memory.c_str());
  EXPECT_NE(Recovered().find("has failed as a journal"), std::string::npos);
  EXPECT_EQ(ReadFile(file_), "........");
  // With its memory it is the pool that it was.
  std::filesystem::copy_file(folder_ / "memory", memory);
  EXPECT_EQ(Recovered(), "a.......");
}

}  // namespace
}  // namespace nvcache::pool
