// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/replay.h"

#include <errno.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/kept.h"
#include "src/nvlog/log.h"
#include "src/nvlog/walk.h"
#include "src/pool/identify.h"
#include "tests/unit/found.h"
#include "tests/unit/log_user.h"
#include "tests/unit/support.h"
#include "tests/unit/traced.h"

namespace nvcache::replay {
namespace {

using nvlog::Lsn;
using nvlog::Place;
using test::Added;
using test::Data;
using test::Erase;
using test::Exists;
using test::Folder;
using test::InChild;
using test::KillAtEveryCall;
using test::LogBuilder;
using test::On;
using test::OpenedPool;
using test::ReadFile;
using test::RecordOf;
using test::ScopedPool;
using test::TestInChild;
using test::Truncate;
using test::WriteFile;

// What an Observer hears. Files go by the last part of their paths.
struct Heard {
  struct Orphan {
    std::string file;
    nvlog::Kind kind;
    uint64_t offset;
    std::string bytes;
  };
  std::map<std::string, int> unresolved;  // errno
  std::vector<Orphan> orphans;
  std::vector<Place> damaged, unfinished;
  std::map<uint32_t, std::string> names;
  uint64_t done = 0, total = 0;
  int die_at = -1;  // SIGKILL at the n-th call of progress

  // The one file whose file record is damaged has no name.
  static std::string NameOf(uint32_t file, const pool::FileRecord& record) {
    EXPECT_EQ(record.path_length == 0, file == nvlog::kNoFile);
    return std::filesystem::path(record.path).filename();
  }
  Observer observer() {
    Observer o;
    o.context = this;
    o.progress = [](void* self, uint64_t now, uint64_t all) {
      auto* heard = static_cast<Heard*>(self);
      EXPECT_GE(now, heard->done);
      EXPECT_LE(now, all);
      heard->done = now;
      heard->total = all;
      if (heard->die_at-- == 0) raise(SIGKILL);
    };
    o.damaged = [](void* self, const nvlog::Group& group) {
      static_cast<Heard*>(self)->damaged.push_back(group.damaged);
    };
    o.unfinished = [](void* self, const nvlog::Group& group) {
      static_cast<Heard*>(self)->unfinished.push_back(group.damaged);
    };
    o.unresolved = [](void* self, uint32_t file, const pool::FileRecord& record, int error) {
      auto* heard = static_cast<Heard*>(self);
      heard->names[file] = NameOf(file, record);
      EXPECT_TRUE(heard->unresolved.emplace(heard->names[file], error).second) << "twice";
    };
    o.orphan = [](void* self, uint32_t file, const nvlog::Reader& reader,
                  const nvlog::RecordHeader& header, Place place) {
      auto* heard = static_cast<Heard*>(self);
      EXPECT_TRUE(heard->names.contains(file)) << "told before its file was";
      const std::string bytes = test::PayloadOf(reader, header, place);
      heard->orphans.push_back({heard->names[file], header.kind, header.offset, bytes});
    };
    return o;
  }
};

using Contents = std::map<std::string, std::string>;  // by the files' names
using Unresolved = std::map<std::string, int>;
using Places = std::vector<Place>;

// What a run has counted and told; what is not named may be anything.
struct Told {
  std::optional<uint64_t> files = {}, records = {}, bytes = {};
  std::optional<uint64_t> unresolved_files = {}, unresolved_records = {}, unresolved_bytes = {};
  std::optional<uint64_t> failed_files = {}, failed_records = {}, failed_bytes = {};
  std::optional<uint64_t> damaged_groups = {}, unfinished_groups = {};
  std::optional<int> error = {};
  std::optional<Unresolved> unresolved = {};
  std::optional<Places> damaged = {}, unfinished = {};
};

// A pool, files, and what the last run has said.
class RunTest : public testing::Test {
 protected:
  explicit RunTest(Folder::Where where = Folder::kDisk) : files_(where) {}

  std::string Path(const std::string& name) const { return files_ / name; }

  // What the files hold, and what the last run has told.
  void Expect(const Contents& contents, const Told& told = {},
              const test::Caller& /*caller*/ = test::Caller()) {
    for (const auto& [name, content] : contents) {
      const std::string found = ReadFile(Path(name));
      if (content.size() > 1000) {
        EXPECT_TRUE(found == content) << name;
      } else {
        EXPECT_EQ(found, content) << name;
      }
    }
    const auto expect = [](const auto& expected, const auto& found, const char* name) {
      EXPECT_EQ(found, expected.value_or(found)) << name;
    };
    expect(told.files, summary_.files, "files");
    expect(told.records, summary_.records, "records");
    expect(told.bytes, summary_.bytes, "bytes");
    expect(told.unresolved_files, summary_.unresolved_files, "unresolved files");
    expect(told.unresolved_records, summary_.unresolved_records, "unresolved records");
    expect(told.unresolved_bytes, summary_.unresolved_bytes, "unresolved bytes");
    expect(told.failed_files, summary_.failed_files, "failed files");
    expect(told.failed_records, summary_.failed_records, "failed records");
    expect(told.failed_bytes, summary_.failed_bytes, "failed bytes");
    expect(told.damaged_groups, summary_.damaged_groups, "damaged groups");
    expect(told.unfinished_groups, summary_.unfinished_groups, "unfinished groups");
    expect(told.error, summary_.error, "error");
    expect(told.unresolved, heard_.unresolved, "unresolved");
    expect(told.damaged, heard_.damaged, "damaged");
    expect(told.unfinished, heard_.unfinished, "unfinished");
  }

  std::mt19937_64 random_{test::Seed()};
  Folder memory_{Folder::kMemory};
  Folder files_;
  const std::string pool_path_ = memory_ / "pool";
  Heard heard_;
  Summary summary_;
};

class ReplayTest : public RunTest {
 protected:
  explicit ReplayTest(Folder::Where where = Folder::kDisk) : RunTest(where) {}
  void SetUp() override { Make(pool::kMinPoolSize); }

  void Make(uint64_t size) {
    pool_.Close();
    unlink(pool_path_.c_str());
    test::MakePool(pool_path_, size);
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
    Begin();
  }
  void Reopen() {
    pool_.Close();
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
  }
  // The pool's next user. It knows the same files by the same numbers.
  void Begin() {
    pool_.MarkInUse();
    log_.emplace(pool_.view());
    for (const auto& [number, record] : names_) log_->Name(number, record);
  }

  void Name(uint32_t number, const pool::FileRecord& record) {
    names_[number] = record;
    log_->Name(number, record);
  }
  void MakeFile(uint32_t number, const std::string& name, const std::string& content = "") {
    WriteFile(Path(name), content);
    Name(number, RecordOf(Path(name)));
  }
  // A file that goes away at once.
  void MakeLost(uint32_t number, const std::string& name) {
    MakeFile(number, name);
    unlink(Path(name).c_str());
  }
  struct Made {
    std::string name;
    std::string content = {};
  };
  // With the numbers from 0 on.
  void MakeFiles(const std::vector<Made>& files) {
    uint32_t number = 0;
    for (const Made& file : files) MakeFile(number++, file.name, file.content);
  }

  bool Run(const Options& options = {}) {
    heard_ = {};
    return Replay(pool_, options, heard_.observer(), &summary_);
  }
  void ExpectRun(bool done, const Contents& contents, const Told& told = {},
                 const test::Caller& caller = test::Caller()) {
    EXPECT_EQ(Run(), done);
    Expect(contents, told, caller);
  }
  void ExpectReplayed(const Contents& contents, const Told& told = {},
                      const test::Caller& caller = test::Caller()) {
    ExpectRun(true, contents, told, caller);
    ExpectDone();
  }
  // In a child: the pool, which nobody has open, and a run that may be killed.
  int RunInChild(int die_at = -1) {
    if (!test::OpenPool(pool_, pool_path_)) return 1;
    heard_ = {};
    heard_.die_at = die_at;
    return Replay(pool_, {}, heard_.observer(), &summary_) ? 0 : 2;
  }
  // Kills a run at each of its calls, and calls check(content of the file) each time, while the
  // pool is open. False: nobody can be traced.
  bool KillRuns(const std::string& file, const std::function<void(const std::string&)>& check) {
    pool_.Close();
    const std::string pool_before = ReadFile(pool_path_), before = ReadFile(Path(file));
    const auto prepare = [&] {
      WriteFile(Path(file), before);
      WriteFile(pool_path_, pool_before);
    };
    const auto look = [&] {
      Reopen();
      check(ReadFile(Path(file)));
      pool_.Close();
    };
    const auto run = [&] { return RunInChild() == 0 ? 0 : 1; };
    return KillAtEveryCall(prepare, run, look) >= 0;
  }
  // As an unprivileged user, who has the pool meanwhile and reaches the files.
  static constexpr uid_t kUser = 65534;
  void RunAsUser(const Told& told, const test::Caller& caller = test::Caller()) {
    chmod(files_.path().c_str(), 0755);
    chmod(memory_.path().c_str(), 0777);
    ASSERT_EQ(chown(pool_path_.c_str(), kUser, kUser), 0);
    pool_.Close();
    TestInChild([&] {
      ASSERT_EQ(setuid(kUser), 0);
      Reopen();
      ExpectRun(false, {}, told, caller);
    });
    ASSERT_EQ(chown(pool_path_.c_str(), 0, 0), 0);
    Reopen();
  }
  // Where no file may be larger than so.
  void RunLimited(const Options& options, const Told& told,
                  const test::Caller& caller = test::Caller()) {
    pool_.Close();
    TestInChild([&] {
      Reopen();
      const rlimit limit = {4500, 4500};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      EXPECT_FALSE(Run(options));
      Expect({}, told, caller);
      EXPECT_TRUE(heard_.orphans.empty() || options.discard);
      EXPECT_TRUE(pool_.dirty());
    });
    Reopen();
  }
  // In a child whose files lie in a file system of their own.
  void InFileSystem(const char* options, const std::function<void()>& body) {
    pool_.Close();
    test::TestInOwnMounts(files_.path(), options, [&] {
      Reopen();
      body();
    });
  }
  // The pool is clean, its logs are empty, and another run has nothing to do.
  void ExpectDone() {
    EXPECT_FALSE(pool_.dirty());
    nvlog::Reader reader;
    ASSERT_TRUE(reader.Open(pool_.view()));
    nvlog::GroupWalk walk(reader);
    ASSERT_TRUE(walk.Open());
    for (nvlog::Group group; walk.Next(&group);) {
      EXPECT_TRUE(group.kept && group.verdict == nvlog::Verdict::kVoid);
    }
    EXPECT_TRUE(Run());
    EXPECT_FALSE(summary_.was_dirty);
    EXPECT_EQ(summary_.records, 0u);
  }
  bool IsVoid(const Added& group) const {
    return log_->Header(group.first())->commit == nvlog::VoidWord(group.lsn, pool_.view().salt());
  }
  // So many segments that nobody has taken.
  uint32_t SegmentsLeft(uint32_t logs) const {
    uint32_t last = 0;
    for (uint32_t log = 0; log < logs; ++log) last = std::max(last, log_->segment(log));
    return pool_.view().segment_count() - 1 - last;
  }

  ScopedPool pool_;
  std::map<uint32_t, pool::FileRecord> names_;
  std::optional<LogBuilder> log_;
};

// ---------------------------------------------------------------------------------------------

TEST_F(ReplayTest, ACleanPoolNeedsNothing) {
  MakeFile(0, "a", "content");
  log_->Add(Data(0, 0, "never"));
  pool_.MarkClean();
  const std::string before = ReadFile(pool_path_);
  EXPECT_TRUE(Run());
  EXPECT_FALSE(summary_.was_dirty);
  EXPECT_EQ(heard_.total, 0u);
  EXPECT_TRUE(ReadFile(pool_path_) == before);
  EXPECT_EQ(ReadFile(Path("a")), "content");
}

TEST_F(ReplayTest, ADirtyPoolWithNothingInIt) {
  EXPECT_TRUE(Run());
  EXPECT_TRUE(summary_.was_dirty);
  EXPECT_EQ(summary_.records, 0u);
  ExpectDone();
}

TEST_F(ReplayTest, AppliesInTheLogsOrder) {
  MakeFile(0, "a", "aaaaaaaaaa");
  MakeFile(5, "b");
  log_->AddEach({Data(0, 2, "XXXX"), Data(5, 10, "tail"), Data(0, 4, "YYYY"), Data(0, 5, "Z")});
  ExpectRun(true, {{"a", "aaXXYZYYaa"}, {"b", std::string(10, '\0') + "tail"}});
  EXPECT_TRUE(summary_.was_dirty);
  Expect({}, {.files = 2, .records = 4, .bytes = 13});
  EXPECT_EQ(summary_.unresolved_files + summary_.failed_files + summary_.damaged_groups, 0u);
  EXPECT_EQ(summary_.error, 0);
  EXPECT_EQ(heard_.done, heard_.total);
  EXPECT_GT(heard_.total, 0u);
  ExpectDone();
}

// The order of the LSNs is the order of all logs together.
TEST_F(ReplayTest, AppliesSeveralLogsInOneOrder) {
  MakeFiles({{"a", "aaaaaaaaaa"}, {"b"}});
  std::string expected = "aaaaaaaaaa", b;
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t log = i * 7 % 5;
    const std::string bytes(1 + i % 4, static_cast<char>('a' + i % 26));
    log_->Add(Data(0, i % 6, bytes), LogBuilder::kCommit, log);
    expected.replace(i % 6, bytes.size(), bytes);
    if (i % 9 == 0) log_->Take(log);
    if (i % 10 != 5) continue;
    log_->AddEach({On((log + 1) % 5, Truncate(1, 0)), On((log + 2) % 5, Data(1, 1, bytes))});
    b = std::string(1, '\0') + bytes;
  }
  ExpectReplayed({{"a", expected}, {"b", b}}, {.files = 2, .records = 72});
}

TEST_F(ReplayTest, GroupsWholeOrNotAtAll) {
  MakeFiles({{"a"}, {"b"}});
  const std::string whole = test::Bytes(random_, 30000);
  log_->Add(Data(0, 100, whole));
  log_->Add({Data(1, 5, "two"), Truncate(1, 6), Data(1, 0, "one")});
  log_->Add(Data(0, 0, std::string(20000, 'n')), LogBuilder::kCommitNot, 1);
  log_->Add(Data(0, 0, std::string(20000, 'n')), LogBuilder::kFirstHeaderNot, 2);
  log_->Add({Data(1, 0, "no"), Data(1, 9, "no")}, LogBuilder::kCommitNot);
  log_->Add(Data(0, 0, "last"));
  EXPECT_TRUE(Run());
  std::string expected = std::string(100, '\0') + whole;
  expected.replace(0, 4, "last");
  Expect({{"a", expected}, {"b", std::string("one\0\0t", 6)}},
         {.records = 5, .bytes = 30010, .damaged_groups = 0});
  ExpectDone();
}

// A call of more than what is left of a segment.
TEST_F(ReplayTest, GroupsOverASegmentsEnd) {
  MakeFiles({{"a"}, {"b", "untouched"}});
  std::string expected;
  for (const uint64_t offset : {100u, 0u, 150000u}) {
    const std::string bytes = test::Bytes(random_, 200000);
    const Added group = log_->Add(Data(0, offset, bytes));
    ASSERT_GT(group.places.size(), 4u);
    test::Overwrite(&expected, offset, bytes);
  }
  const Added damaged = log_->Add(Data(1, 0, test::Bytes(random_, 100000)));
  const Place last = damaged.places.back();
  ASSERT_NE(last / log_->next_place(), damaged.first());
  *log_->Unit(last + 3) ^= 1;
  log_->Add(Data(0, 7, "end"));
  expected.replace(7, 3, "end");
  ExpectReplayed({{"a", expected}, {"b", "untouched"}}, {.bytes = 600003, .damaged = Places{last}});
}

// In one segment, one after the other.
TEST_F(ReplayTest, ANumberThatIsUsedAgain) {
  MakeFile(0, "a");
  log_->Add(Data(0, 0, "of a"));
  MakeFile(0, "b");
  log_->AddEach({Data(0, 0, "of b"), Data(0, 4, ", too")});
  log_->Name(0, RecordOf(Path("a")));
  log_->Add(Data(0, 4, " again"));
  ASSERT_EQ(log_->segment(), 0u);
  ExpectReplayed({{"a", "of a again"}, {"b", "of b, too"}}, {.files = 2});
}

TEST_F(ReplayTest, AFileOfTwoNumbersAndTwoNames) {
  MakeFile(0, "a", "..........");
  log_->Add(Data(0, 0, "one"));
  ASSERT_EQ(link(Path("a").c_str(), Path("b").c_str()), 0);
  Name(7, RecordOf(Path("b")));
  log_->AddEach({On(3, Data(7, 2, "two")), Data(0, 1, "X"), On(3, Data(7, 1, "Y"))});
  ExpectReplayed({{"a", "oYtwo....."}}, {.files = 1, .records = 4});
}

TEST_F(ReplayTest, NoLsnComesBack) {
  MakeFile(0, "a");
  const Added one = log_->Add(Data(0, 0, "one"));
  // As a group that was cut off by a power failure: it has left no more than a header.
  const Added cut_off = log_->Add(Data(0, 0, "cut off"), LogBuilder::kCommitNot, 1);
  EXPECT_TRUE(Run());
  EXPECT_GE(test::CheckpointOf(pool_), cut_off.lsn + pool::kLsnMargin);
  // The same places, and nothing of the old is met.
  Begin();
  EXPECT_EQ(log_->Add(Data(0, 3, "two")).first(), one.first());
  ExpectRun(true, {{"a", "onetwo"}}, {.records = 1});
}

// What a file holds.
void EraseIn(std::string* content, uint64_t offset, uint64_t length) {
  if (offset >= content->size()) return;
  length = std::min<uint64_t>(length, content->size() - offset);
  content->replace(offset, length, std::string(length, '\0'));
}

TEST_F(ReplayTest, RandomCallsAgainstAModel) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  constexpr uint32_t kLogs = 3;
  std::vector<std::string> model(8);
  for (uint32_t file = 0; file < model.size(); ++file) {
    model[file] = test::Bytes(random_, random_() % 9000);
    MakeFile(file, std::to_string(file), model[file]);
  }
  for (int session = 0; session < 30; ++session) {
    for (uint32_t log = 0; log < kLogs; ++log) log_->Take(log);
    while (SegmentsLeft(kLogs) > 1) {
      const auto file = static_cast<uint32_t>(random_() % model.size());
      const auto log = static_cast<uint32_t>(random_() % kLogs);
      const auto how = random_() % 6 == 0 ? LogBuilder::kCommitNot : LogBuilder::kCommit;
      const uint64_t offset = random_() % 12000, length = 1 + random_() % 9000;
      std::string content = model[file];
      if (const uint64_t what = random_() % 10; what == 0) {
        log_->Add(Truncate(file, offset), how, log);
        content.resize(offset);
      } else if (what == 1) {
        log_->Add(Erase(file, offset, length), how, log);
        EraseIn(&content, offset, length);
      } else {
        const std::string bytes = test::Bytes(random_, length);
        log_->Add(Data(file, offset, bytes), how, log);
        test::Overwrite(&content, offset, bytes);
      }
      if (how == LogBuilder::kCommit) model[file] = content;
    }
    ASSERT_TRUE(Run());
    for (uint32_t file = 0; file < model.size(); ++file) {
      ASSERT_TRUE(ReadFile(Path(std::to_string(file))) == model[file]) << session << " " << file;
    }
    Reopen();
    Begin();
  }
}

// ---------------------------------------------------------------------------------------------
// What is next to each other in a file is written by one call.

TEST_F(ReplayTest, NeighboursInAnyOrder) {
  MakeFiles({{"a"}, {"b"}});
  const std::string bytes = test::Bytes(random_, 40 << 10);
  std::vector<size_t> pages = {3, 0, 9, 1, 2, 8, 4, 7, 6, 5};
  for (const size_t page : pages) {
    log_->Add(Data(0, page * 4096, bytes.substr(page * 4096, 4096)));
    log_->Add(Data(1, page * 4096 + 10, bytes.substr(page * 4096, 100)));  // with gaps
  }
  ExpectRun(true, {{"a", bytes}});
  std::string expected(9 * 4096 + 110, '\0');
  for (const size_t page : pages) {
    expected.replace(page * 4096 + 10, 100, bytes.substr(page * 4096, 100));
  }
  Expect({{"b", expected}}, {.records = 20});
  ExpectDone();
}

// Of all ways in which two pieces of a page can lie, after each other and before a third.
TEST_F(ReplayTest, OverlapsKeepTheirOrder) {
  constexpr uint64_t kPlaces[][2] = {{10, 20}, {10, 20}, {5, 10},  {20, 30}, {0, 40},
                                     {12, 18}, {15, 25}, {10, 30}, {5, 20},  {30, 40}};
  for (uint32_t file = 0; file < 3; ++file) MakeFile(file, std::to_string(file), ".");
  for (const auto& first : kPlaces) {
    for (const auto& second : kPlaces) {
      for (const auto& third : kPlaces) {
        const auto file = static_cast<uint32_t>(random_() % 3);
        std::string expected = ReadFile(Path(std::to_string(file)));
        Begin();
        char c = 'a';
        for (const auto& place : {first, second, third}) {
          const std::string bytes(place[1] - place[0], c++);
          log_->Add(Data(file, 4096 + place[0], bytes));
          test::Overwrite(&expected, 4096 + place[0], bytes);
        }
        ASSERT_TRUE(Run());
        ASSERT_TRUE(ReadFile(Path(std::to_string(file))) == expected)
            << first[0] << " " << second[0] << " " << third[0];
      }
    }
  }
}

// Small pieces, most of them over others; also over the ends of segments.
TEST_F(ReplayTest, PiecesAgainstAModel) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  std::vector<std::string> model(3);
  for (uint32_t file = 0; file < model.size(); ++file) MakeFile(file, std::to_string(file));
  int over_an_end = 0;
  for (int session = 0; session < 60; ++session) {
    for (log_->Take(0); SegmentsLeft(1) > 1;) {
      const auto file = static_cast<uint32_t>(random_() % model.size());
      const uint64_t offset = random_() % 40000;
      const std::string bytes = test::Bytes(random_, 1 + random_() % (random_() % 2 ? 200 : 9000));
      const Added group = log_->Add(Data(file, offset, bytes));
      const uint64_t units = pool_.view().segment_units();
      over_an_end += group.places.front() / units != group.places.back() / units ? 1 : 0;
      test::Overwrite(&model[file], offset, bytes);
    }
    // What the kernel has decides the order, and nothing else.
    const nvlog::Lsn has = session % 3 != 0 ? log_->next_lsn() - random_() % 99 : 0;
    pool::Note(*pool_.view().written_back(0), has);
    ASSERT_TRUE(Run());
    for (uint32_t file = 0; file < model.size(); ++file) {
      ASSERT_TRUE(ReadFile(Path(std::to_string(file))) == model[file]) << session << " " << file;
    }
    Reopen();
    Begin();
  }
  EXPECT_GT(over_an_end, 40);
}

// Others may have seen what the kernel has when the replay dies, so that is noted before.
TEST_F(ReplayTest, KilledInTheCallThatOthersSeeItIsKnownHowFarItWas) {
  MakeFile(0, "a", "0");
  std::map<std::string, nvlog::Lsn> written = {{"0", 0}};
  for (const char* bytes : {"1", "2", "3"}) {
    written[bytes] = log_->next_lsn();
    log_->Add(Data(0, 0, bytes));
    log_->Add(Data(0, 8192, bytes));
  }
  std::set<std::string> seen;
  const auto check = [&](const std::string& content) {
    const std::string now = content.substr(0, 1);
    seen.insert(now);
    EXPECT_GE(pool::Peek(*pool_.view().written_back(0)), written[now]) << now;
  };
  if (!KillRuns("a", check)) GTEST_SKIP() << "cannot trace a child";
  EXPECT_EQ(seen.size(), written.size());
}

// Of each seat: no call has bytes of two.
TEST_F(ReplayTest, KilledInTheCallItIsKnownOfEachSeatHowFarItWas) {
  MakeFile(0, "a", "00");
  std::vector<nvlog::Lsn> written;
  for (uint32_t seat = 0; seat < 2; ++seat) {
    written.push_back(
        log_->Add(Data(0, seat, "1"), LogBuilder::kCommit, seat * pool::kLogsOfSeat).lsn);
  }
  std::set<std::string> seen;
  const auto check = [&](const std::string& content) {
    seen.insert(content);
    for (uint32_t seat = 0; seat < 2; ++seat) {
      if (content[seat] == '0') continue;
      EXPECT_GE(pool::Peek(*pool_.view().written_back(seat)), written[seat]) << "seat " << seat;
    }
  };
  if (!KillRuns("a", check)) GTEST_SKIP() << "cannot trace a child";
  EXPECT_EQ(seen, (std::set<std::string>{"00", "10", "11"}));
}

// They are applied in several goes.
TEST_F(ReplayTest, MoreRecordsThanAreHeldAtATime) {
  Make(64 << 20);
  MakeFile(0, "a");
  constexpr uint64_t kRecords = 400000, kSize = 5000;
  std::string expected(kSize, '\0');
  for (uint64_t i = 0; i < kRecords; ++i) {
    const uint64_t at = (kRecords - i) * 7 % kSize;
    expected[at] = static_cast<char>('a' + i % 26);
    log_->Add(Data(0, at, std::string(1, expected[at])));
  }
  ExpectReplayed({{"a", expected}}, {.records = kRecords});
}

// ---------------------------------------------------------------------------------------------
// Truncations and erasures.

TEST_F(ReplayTest, WhatWasCutOffDoesNotComeBack) {
  for (const char* name : {"a", "b", "c", "d"}) {
    MakeFile(static_cast<uint32_t>(name[0] - 'a'), name, std::string(10, name[0]));
  }
  log_->Add(Truncate(3, 0));  // is on disk for long
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  log_->AddEach({Data(0, 12, "before"), Data(1, 12, "before"), Truncate(0, 0), Truncate(1, 0),
                 Data(0, 2, "after")});
  log_->Add(Truncate(2, 0));  // and nothing else in the log
  Reopen();
  for (int again = 0; again < 2; ++again) {
    ExpectRun(true,
              {{"a", std::string(2, '\0') + "after"}, {"b", ""}, {"c", ""}, {"d", "dddddddddd"}},
              {.records = again == 0 ? 6 : 0});
  }
  EXPECT_EQ(summary_.unresolved_files + summary_.failed_files, 0u);
  ExpectDone();
}

// Data before and behind, in other files as well.
TEST_F(ReplayTest, TruncationsAndErasuresKeepTheirPlace) {
  MakeFiles({{"a", std::string(100, '.')}, {"b", std::string(100, '.')}});
  const std::string page(4096, 'p');
  log_->AddEach({Data(1, 10, "xyz"), Data(0, 4096, page), Truncate(0, 50)});
  log_->Add(Data(0, 60, "AAA"));  // a hole before it
  log_->AddEach({Data(1, 13, "uvw"), Erase(0, 40, 21), Data(0, 42, "BB"), Truncate(0, 8192)});
  log_->Add(Erase(0, 62, 1 << 20));  // no further than the file goes
  log_->AddEach({Data(0, 8190, "CC"), Erase(0, 9000, 5), Truncate(1, 200), Erase(1, 0, 11)});
  std::string a(8192, '\0');
  a.replace(0, 40, std::string(40, '.'));
  a.replace(42, 2, "BB");
  a.replace(61, 1, "A");
  a.replace(8190, 2, "CC");
  std::string b = std::string(11, '\0') + "yzuvw" + std::string(84, '.') + std::string(100, '\0');
  ExpectReplayed({{"a", a}, {"b", b}}, {.records = 13, .bytes = 4096 + 3 + 3 + 3 + 2 + 2});
}

TEST_F(ReplayTest, ATruncationIsNotRepeatedOnceItIsVoid) {
  MakeFile(0, "a", "aaaaaaaaaa");
  MakeLost(1, "gone");
  log_->AddEach({Data(0, 12, "before"), Data(1, 0, "kept"), Truncate(0, 0), Data(0, 0, "after")});
  for (int again = 0; again < 3; ++again) {
    ExpectRun(false, {{"a", again == 0 ? "after" : "changed since"}},
              {.records = again == 0 ? 3 : 0, .unresolved_records = 1});
    WriteFile(Path("a"), "changed since");
  }
}

TEST_F(ReplayTest, ErasuresWhereTheFileSystemKnowsNoHoles) {
  const std::string content = test::Bytes(random_, 300000);
  MakeFile(0, "a", content);
  log_->AddEach({Data(0, 5000, "before"), Erase(0, 4999, 200001), Erase(0, 299999, 1000),
                 Data(0, 5002, "after")});
  std::string expected = content;
  EraseIn(&expected, 4999, 200001);
  EraseIn(&expected, 299999, 1000);
  test::Overwrite(&expected, 5002, "after");
  pool_.Close();
  TestInChild([&] {
    ASSERT_EQ(test::Forbid(SYS_fallocate, EOPNOTSUPP), 0);
    EXPECT_EQ(RunInChild(), 0);
  });
  EXPECT_TRUE(ReadFile(Path("a")) == expected);
}

// Neither the kernel's signal nor a larger file; what makes a file smaller may be done.
TEST_F(ReplayTest, TruncationsBeyondTheLimit) {
  MakeFiles({{"a", "content"}, {"b", std::string(20000, 'b')}});
  log_->AddEach({Truncate(0, 9000), Truncate(1, 9000)});
  RunLimited({}, {.files = 1, .failed_records = 1, .unresolved = Unresolved{{"a", EFBIG}}});
  Expect({{"a", "content"}, {"b", std::string(9000, 'b')}});
  ExpectReplayed({{"a", "content" + std::string(8993, '\0')}});
}

// ---------------------------------------------------------------------------------------------
// Kept segments.

TEST_F(ReplayTest, KeptGroupsCountBelowTheCheckpoint) {
  MakeFiles({{"a", std::string(20, '.')}, {"b", std::string(20, '.')}});
  const Added first = log_->Add(Data(0, 0, "first"));
  const Added second = log_->Add(Data(1, 0, "second"));
  const Added third = log_->Add(Data(0, 3, "third"));
  const Added cut = log_->Add(Truncate(0, 9));
  log_->Keep({Data(0, 0, "first")}, first.lsn);
  log_->Keep({Data(0, 3, "third")}, third.lsn);
  log_->Keep({Truncate(0, 9)}, cut.lsn);
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  log_->Add(Data(1, 6, "new"));
  Reopen();
  ExpectRun(true, {{"a", "firthird."}});
  EXPECT_EQ(ReadFile(Path("b")), "......new...........") << "the checkpoint has passed the other";
  EXPECT_EQ(summary_.records, 4u);
  EXPECT_FALSE(IsVoid(second));
  ExpectDone();
}

// In one order with all others, and in several segments.
TEST_F(ReplayTest, KeptGroupsHaveTheirPlaceInTheOrder) {
  MakeFile(0, "a");
  const Lsn lsn = log_->next_lsn();
  log_->SkipLsns(10);
  log_->Add(Data(0, 0, "444444"));  // a segment's header has drawn an LSN, too
  log_->Keep({Data(0, 0, "11111111")}, lsn + 1);
  log_->TakeKept();
  log_->Keep({Data(0, 1, "2222222")}, lsn + 2);
  log_->Keep({Data(0, 2, "555")}, log_->next_lsn());
  log_->SkipLsns(1);
  log_->TakeKept();
  log_->Keep({Data(0, 0, "33")}, lsn + 3);
  log_->Add(Data(0, 3, "6"));
  ExpectReplayed({{"a", "44565422"}}, {.records = 6});
}

TEST_F(ReplayTest, KeptGroupsThatAreVoidAreNothing) {
  MakeFile(0, "a", "....");
  const Added one = log_->Add(Data(0, 0, "1"));
  const Added two = log_->Add(Data(0, 1, "2"));
  const Added kept = log_->Keep({Data(0, 0, "1")}, one.lsn);  // has the file record
  log_->Keep({Data(0, 1, "2")}, two.lsn);
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  log_->Void(kept);
  Reopen();
  ExpectReplayed({{"a", ".2.."}}, {.records = 1});
}

// The checkpoint has not passed it yet, and then a copy of its pages lies in a kept segment.
TEST_F(ReplayTest, AGroupAndItsKeptCopies) {
  MakeFile(0, "a");
  const std::string bytes = test::Bytes(random_, 3 * 4096);
  log_->Add(Data(0, 0, "before"));
  const Added group = log_->Add(Data(0, 0, bytes));
  log_->Keep({Data(0, 0, bytes.substr(0, 4096))}, group.lsn);
  log_->Keep({Data(0, 4096, bytes.substr(4096, 4096))}, group.lsn);
  log_->Add(Data(0, 4090, "after that"));
  std::string expected = bytes;
  test::Overwrite(&expected, 4090, "after that");
  ExpectReplayed({{"a", expected}}, {.records = 5});
}

// A file that is there, and groups of it in a kept segment, the checkpoint above them, and later
// ones in the log. Then recovery ends, and so many of its steps are on the medium.
TEST_F(ReplayTest, KilledWhileKeptGroupsBecomeVoid) {
  MakeFile(0, "a", std::string(10, '.'));
  std::vector<Lsn> lsns;
  for (int i = 0; i < 5; ++i) {
    lsns.push_back(log_->Add(Data(0, static_cast<uint64_t>(i), std::string(5, 'a'))).lsn);
  }
  std::vector<Added> kept;
  for (uint64_t i = 0; i < 5; ++i) {
    if (i == 3) log_->TakeKept();
    const std::string bytes(5, static_cast<char>('a' + i));
    kept.push_back(log_->Keep({Data(0, i, bytes)}, lsns[i]));
  }
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  const Added later = log_->Add(Data(0, 3, "XY"));
  Reopen();
  const std::string before = ReadFile(pool_path_);
  ExpectRun(true, {{"a", "abcXYeeee."}});
  for (const Added& group : kept) EXPECT_TRUE(IsVoid(group));
  EXPECT_FALSE(IsVoid(later)) << "the checkpoint is above it";
  for (size_t done = 0; done <= kept.size(); ++done) {
    pool_.Close();
    WriteFile(pool_path_, before);
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
    const LogBuilder log(pool_.view());
    for (size_t i = 0; i < done; ++i) log.Void(kept[i]);
    ExpectRun(true, {}, {.records = 6 - done});
    EXPECT_EQ(ReadFile(Path("a")), "abcXYeeee.") << done;
    ExpectDone();
  }
}

// What is left cannot be applied: it stays kept, the others become void.
TEST_F(ReplayTest, KeptGroupsOfAMissingFileStay) {
  MakeFile(0, "a");
  MakeLost(1, "gone");
  const Lsn lsn = log_->next_lsn();
  log_->SkipLsns(10);
  const Added applied = log_->Keep({Data(0, 0, "one")}, lsn);
  const Added kept = log_->Keep({Data(1, 0, "kept")}, lsn + 1);
  const Added too = log_->Keep({Data(0, 3, "two")}, lsn + 2);
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  Reopen();
  for (int again = 0; again < 2; ++again) {
    ExpectRun(false, {},
              {.records = again == 0 ? 2 : 0, .unresolved = Unresolved{{"gone", ENOENT}}});
    EXPECT_TRUE(IsVoid(applied) && IsVoid(too));
    EXPECT_FALSE(IsVoid(kept));
    EXPECT_EQ(ReadFile(Path("a")), "onetwo");
  }
  EXPECT_TRUE(Run({.discard = true}));
  EXPECT_TRUE(IsVoid(kept));
  ExpectDone();
}

TEST_F(ReplayTest, ADamagedKeptGroupIsToldOnce) {
  MakeFile(0, "a", "....");
  const Lsn lsn = log_->next_lsn();
  log_->SkipLsns(10);
  log_->Keep({Data(0, 0, "1")}, lsn);
  const Added damaged = log_->Keep({Data(0, 1, "2")}, lsn + 1);
  log_->Keep({Data(0, 2, "3")}, lsn + 2);
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  *log_->Unit(damaged.place() + 1) ^= 1;
  Reopen();
  ExpectReplayed({{"a", "1.3."}}, {.damaged = Places{damaged.place()}});
  Begin();
  EXPECT_TRUE(Run());
  EXPECT_TRUE(heard_.damaged.empty() && heard_.unfinished.empty());
}

// ---------------------------------------------------------------------------------------------
// I6: killed and run again.

TEST_F(ReplayTest, KilledAnywhereAndRunAgain) {
  MakeFiles({{"a", "0123456789"}, {"b"}});
  for (int i = 0; i < 10; ++i) {
    log_->AddEach(
        {Data(0, static_cast<uint64_t>(i % 4), std::string(5, static_cast<char>('a' + i))),
         On(1, Data(1, 4094, std::string(4, static_cast<char>('a' + i))))});
  }
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  std::string a, b;
  int killed = 0;
  for (int die_at = 0; die_at < 60; ++die_at) {
    WriteFile(Path("a"), "0123456789");
    WriteFile(Path("b"), "");
    WriteFile(pool_path_, pool_before);
    const int result = InChild([&] { return RunInChild(die_at); });
    if (result == -SIGKILL) ++killed;
    ASSERT_TRUE(result == -SIGKILL || result == 0) << result;
    Reopen();
    EXPECT_EQ(pool_.dirty(), result != 0);
    EXPECT_TRUE(Run());
    if (die_at == 0) a = ReadFile(Path("a")), b = ReadFile(Path("b"));
    EXPECT_EQ(ReadFile(Path("a")), a) << die_at;
    EXPECT_EQ(ReadFile(Path("b")), b) << die_at;
    pool_.Close();
  }
  EXPECT_EQ(killed, 53);  // 20 groups read, 30 pieces applied, 2 files synced, and the end
  EXPECT_EQ(a, "ijjjjjhh89");
  EXPECT_EQ(b, std::string(4094, '\0') + "jjjj");
}

// Truncations are repeated, and so is what came before them.
TEST_F(ReplayTest, KilledAmongTruncations) {
  const std::string before = "0123456789";
  MakeFile(0, "a", before);
  std::string expected = before;
  for (uint64_t i = 0; i < 8; ++i) {
    log_->AddEach({Data(0, 3 * i, "abcdef"), On(1, Truncate(0, 5 + i)), On(2, Erase(0, i, 2))});
    test::Overwrite(&expected, 3 * i, "abcdef");
    expected.resize(5 + i);
    EraseIn(&expected, i, 2);
  }
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  int killed = 0;
  for (int die_at = 0;; ++die_at) {
    WriteFile(Path("a"), "");  // the same file: the program has written to it before
    WriteFile(Path("a"), before);
    WriteFile(pool_path_, pool_before);
    const int result = InChild([&] { return RunInChild(die_at); });
    if (result == 0) break;
    ASSERT_EQ(result, -SIGKILL);
    ++killed;
    Reopen();
    EXPECT_TRUE(Run());
    EXPECT_EQ(ReadFile(Path("a")), expected) << die_at;
    pool_.Close();
  }
  EXPECT_EQ(killed, 24 + 24 + 2);
  Reopen();
}

// Killed after the checkpoint was stored, before the state was.
TEST_F(ReplayTest, KilledBetweenCheckpointAndState) {
  MakeFile(0, "a");
  log_->Add(Data(0, 0, "one"));
  EXPECT_TRUE(Run());
  WriteFile(Path("a"), "changed since");
  pool_.MarkInUse();
  ExpectRun(true, {{"a", "changed since"}}, {.records = 0});
}

// Killed after any number of groups has become void: they are the oldest.
TEST_F(ReplayTest, KilledWhileGroupsBecomeVoid) {
  MakeFiles({{"a"}, {"gone"}});
  std::vector<Added> groups;
  for (uint32_t i = 0; i < 6; ++i) {
    const std::string bytes(8000, static_cast<char>('a' + i));
    groups.push_back(log_->Add(Data(0, uint64_t{i} * 1000, bytes), LogBuilder::kCommit, i % 2));
    if (i == 3) groups.push_back(log_->Add(Truncate(0, 7000)));
  }
  log_->Add(Data(1, 0, "orphan"));
  unlink(Path("gone").c_str());
  EXPECT_FALSE(Run());
  const std::string result = ReadFile(Path("a"));
  for (const Added& group : groups) EXPECT_TRUE(IsVoid(group));
  for (size_t done = 0; done <= groups.size(); ++done) {
    for (size_t i = 0; i < groups.size(); ++i) {
      const uint64_t salt = pool_.view().salt();
      log_->Header(groups[i].first())->commit =
          i < done ? nvlog::VoidWord(groups[i].lsn, salt) : nvlog::CommitWord(groups[i].lsn, salt);
    }
    ExpectRun(false, {}, {.records = groups.size() - done});
    EXPECT_TRUE(ReadFile(Path("a")) == result) << done;
    for (const Added& group : groups) EXPECT_TRUE(IsVoid(group));
  }
}

TEST_F(ReplayTest, ADryRunWritesNothing) {
  MakeFile(0, "a", "content");
  MakeLost(1, "gone");
  log_->AddEach({Data(0, 0, "xxx"), Truncate(0, 1), Erase(0, 0, 1)});
  log_->Keep({Data(0, 0, "x")}, log_->next_lsn());
  log_->SkipLsns(1);
  log_->Add(Data(1, 0, "yy"));
  const Added damaged = log_->Add(Data(0, 0, "z"));
  log_->Add(Data(1, 0, "behind it"));
  *log_->Unit(damaged.place() + 1) ^= 1;
  const Added unfinished = log_->Add(Data(1, 0, "u"), LogBuilder::kCommit, 1);
  *log_->Unit(unfinished.place() + 1) ^= 1;
  const std::string before = ReadFile(pool_path_);
  EXPECT_FALSE(Run({.dry_run = true}));
  EXPECT_TRUE(ReadFile(pool_path_) == before);
  Expect({{"a", "content"}}, {.files = 1,
                              .records = 4,
                              .bytes = 4,
                              .unresolved_files = 1,
                              .unresolved_records = 2,
                              .damaged_groups = 1,
                              .unfinished_groups = 1});
  EXPECT_FALSE(Run({.dry_run = true, .discard = true}));
  EXPECT_TRUE(ReadFile(pool_path_) == before);
}

// ---------------------------------------------------------------------------------------------
// Damage.

TEST_F(ReplayTest, DamagedGroupsAreToldAndNotApplied) {
  MakeFile(0, "a", std::string(20000, '.'));
  log_->Add(Data(0, 0, "first"));
  const Added group = log_->Add({Data(0, 0, std::string(100, 'D')), Data(0, 200, "D")});
  log_->Add(Data(0, 30, "more"));
  const Added header = log_->Add(Data(0, 0, "DD"));
  log_->Add(Data(0, 10, "last"));
  *log_->Unit(group.places[1] + 1) ^= 4;
  log_->Header(header.first())->offset ^= 1;
  EXPECT_TRUE(Run()) << "nothing more can be done about it";
  std::string expected(20000, '.');
  expected.replace(0, 5, "first");
  expected.replace(10, 4, "last");
  expected.replace(30, 4, "more");
  Expect({{"a", expected}}, {.damaged_groups = 2,
                             .unfinished_groups = 0,
                             .damaged = Places{group.places[1], header.first()}});
  ExpectDone();
}

// What a power failure leaves of the newest call of each log: none of it is applied, and nothing is
// damaged.
TEST_F(ReplayTest, UnfinishedGroupsAreToldAndNotApplied) {
  MakeFile(0, "a", std::string(30000, '.'));
  for (uint32_t log = 0; log < 4; ++log) log_->Add(Data(0, 0, "first"), LogBuilder::kCommit, log);
  const Added group = log_->Add(Data(0, 0, std::string(12288, 'U')), LogBuilder::kCommit, 0);
  const Added headless = log_->Add({Data(0, 0, "U"), Data(0, 1, "U")}, LogBuilder::kCommit, 1);
  const Added alone = log_->Add(Data(0, 0, "UU"), LogBuilder::kCommit, 2);
  log_->Add(Data(0, 10, "last"), LogBuilder::kCommit, 3);
  *log_->Unit(group.first() + 3) ^= 4;
  std::memset(log_->Unit(headless.places[1]), 0, pool::kUnitSize);
  *log_->Unit(alone.first() + 1) ^= 1;
  EXPECT_TRUE(Run());
  std::string expected(30000, '.');
  expected.replace(0, 5, "first");
  expected.replace(10, 4, "last");
  Expect({{"a", expected}},
         {.damaged_groups = 0,
          .unfinished_groups = 3,
          .unfinished = Places{group.first(), headless.places[1], alone.first()}});
  ExpectDone();
}

TEST_F(ReplayTest, NoFlippedBitOfARecordIsApplied) {
  MakeFile(0, "a", std::string(300, '.'));
  log_->Add(Data(0, 0, "names the file"));
  const Place place = log_->Add(Data(0, 20, test::Bytes(random_, 130))).first();
  const auto run = [&](size_t bit) {
    uint8_t& byte = log_->Unit(place + bit / 512)[bit / 8 % 64];
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
    EXPECT_FALSE(Run({.dry_run = true}));
    byte = static_cast<uint8_t>(byte ^ 1u << bit % 8);
  };
  constexpr size_t kBits = (sizeof(nvlog::RecordHeader) + 130) * 8;
  constexpr size_t kLink = offsetof(nvlog::RecordHeader, link) * 8;
  const auto counts = [](size_t bit) { return bit < kLink || bit >= kLink + 64; };
  for (size_t bit = 0; bit < kBits; bit += 7) {  // of the newest call of the log
    run(bit);
    const uint64_t told = summary_.damaged_groups + summary_.unfinished_groups;
    ASSERT_EQ(told, counts(bit) ? 1u : 0u) << bit;
    ASSERT_EQ(summary_.records, counts(bit) ? 1u : 2u) << bit;
    if (bit >= 512) {
      ASSERT_EQ(summary_.unfinished_groups, 1u) << bit;
    }
  }
  log_->Add(Data(0, 20, "later"));
  for (size_t bit = 0; bit < kBits; bit += 7) {
    run(bit);
    ASSERT_EQ(summary_.damaged_groups, counts(bit) ? 1u : 0u) << bit;
    ASSERT_EQ(summary_.unfinished_groups, 0u) << bit;
    // What was lost may have been a file record: then the later group's number says nothing.
    ASSERT_EQ(summary_.records + summary_.unresolved_records, counts(bit) ? 2u : 3u) << bit;
    ASSERT_LE(summary_.unresolved_records, bit < 512 ? 1u : 0u) << bit;
  }
  EXPECT_FALSE(Run({.dry_run = true}));
  EXPECT_EQ(summary_.records, 3u);
}

TEST_F(ReplayTest, ADamagedFileRecordKeepsItsRecords) {
  MakeFiles({{"a"}, {"b"}});
  const Added naming = log_->Add(Data(0, 0, "one"));
  const Added later = log_->Add(Data(0, 3, "two"));
  log_->Add(Data(1, 0, "two"));
  uint8_t& byte = *(log_->Unit(naming.first() + 1) + offsetof(pool::FileRecord, inode));
  byte ^= 1;
  EXPECT_FALSE(Run());
  EXPECT_TRUE(pool_.dirty());
  Expect({}, {.unresolved = Unresolved{{"", EBADMSG}}, .damaged = Places{naming.first()}});
  ASSERT_EQ(heard_.orphans.size(), 1u);
  EXPECT_EQ(heard_.orphans[0].bytes, "two");
  EXPECT_FALSE(IsVoid(later));
  Expect({{"a", ""}, {"b", "two"}});
  byte ^= 1;  // a miracle
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.records, 2u) << "the other file's is void";
  EXPECT_EQ(ReadFile(Path("a")), "onetwo");
  ExpectDone();
}

TEST_F(ReplayTest, ANumberWithoutAFile) {
  MakeFile(0, "a");
  log_->AddEach({Data(0, 0, "one"), Data(3, 0, "of a file that nothing names"),
                 Data(4, 0, "of another one")});
  ExpectRun(
      false, {{"a", "one"}},
      {.unresolved_files = 1, .unresolved_records = 2, .unresolved = Unresolved{{"", EBADMSG}}});
  EXPECT_TRUE(Run({.discard = true}));
  ExpectDone();
}

TEST_F(ReplayTest, ADamagedCheckpointRecord) {
  MakeFile(0, "a");
  log_->Add(Data(0, 0, "on disk, "));
  const Lsn checkpoint = log_->next_lsn();
  log_->Add(Data(0, 9, "pending"));
  // One was stored, the other one not yet; and then the first one is damaged.
  pool_.StoreCheckpoint(test::CheckpointOf(pool_));
  pool::CheckpointRecord older = *pool_.view().checkpoint_record(1);
  pool_.StoreCheckpoint(checkpoint);
  std::memcpy(static_cast<void*>(pool_.view().checkpoint_record(1)), &older, sizeof(older));
  pool_.view().checkpoint_record(0)->checkpoint ^= 1;
  Reopen();
  EXPECT_TRUE(Run());
  EXPECT_EQ(summary_.records, 2u) << "one step back is harmless";
  EXPECT_EQ(ReadFile(Path("a")), "on disk, pending");
  EXPECT_GE(test::CheckpointOf(pool_),
            log_->next_lsn() + pool::kLsnMargin - 1);  // and both records are whole
  ExpectDone();
}

// ---------------------------------------------------------------------------------------------
// I6: only the file that the record was written to.

TEST_F(ReplayTest, AMissingFileKeepsItsEntries) {
  MakeFiles({{"a"}, {"gone"}});
  const Added applied = log_->Add(Data(0, 0, "one"));
  const Added kept = log_->Add(Data(1, 4000, std::string(200, 'k')));
  log_->Add(Data(0, 3, "two"));
  unlink(Path("gone").c_str());
  for (int run = 0; run < 2; ++run) {
    EXPECT_FALSE(Run());
    EXPECT_TRUE(pool_.dirty());
    EXPECT_EQ(ReadFile(Path("a")), "onetwo");
    EXPECT_FALSE(Exists(Path("gone")));
    EXPECT_EQ(summary_.records, run == 0 ? 2u : 0u) << "applied only once";
    Expect({}, {.unresolved_files = 1,
                .unresolved_records = 1,
                .unresolved_bytes = 200,
                .unresolved = Unresolved{{"gone", ENOENT}}});
    ASSERT_EQ(heard_.orphans.size(), 1u);
    EXPECT_EQ(heard_.orphans[0].file, "gone");
    EXPECT_EQ(heard_.orphans[0].kind, nvlog::Kind::kData);
    EXPECT_EQ(heard_.orphans[0].offset, 4000u);
    EXPECT_EQ(heard_.orphans[0].bytes, std::string(200, 'k'));
    EXPECT_TRUE(IsVoid(applied));
    EXPECT_FALSE(IsVoid(kept));
    WriteFile(Path("a"), "onetwo");
    Reopen();
  }
}

TEST_F(ReplayTest, DiscardDropsThemAfterTheyWereTold) {
  MakeFiles({{"a"}, {"gone"}});
  log_->AddEach({Data(0, 0, "one"), Data(1, 5, "lost")});
  unlink(Path("gone").c_str());
  EXPECT_TRUE(Run({.discard = true}));
  ASSERT_EQ(heard_.orphans.size(), 1u);
  EXPECT_EQ(heard_.orphans[0].bytes, "lost");
  Expect({{"a", "one"}}, {.unresolved_records = 1});
  ExpectDone();
}

TEST_F(ReplayTest, AnotherFileOfTheSameNameIsNotTouched) {
  MakeFile(0, "a", "old");
  log_->Add(Data(0, 0, "XXX"));
  unlink(Path("a").c_str());
  WriteFile(Path("a"), "new");  // perhaps with the same inode
  ExpectRun(false, {{"a", "new"}}, {.unresolved = Unresolved{{"a", ESTALE}}});
}

// The program has removed it, or was about to: nothing is missing, and nothing is made again.
TEST_F(ReplayTest, ARemovedFileIsNotMissed) {
  MakeFiles({{"a"}, {"old"}, {"new"}});
  for (const uint32_t number : {0u, 1u, 2u}) log_->Add(Data(number, 0, "one"));
  for (const uint32_t number : {1u, 2u}) {
    pool::FileRecord record = names_[number];
    record.flags |= pool::kFileRemoved;
    log_->Add(test::File(number, record), LogBuilder::kCommit, number);
    unlink(record.path);
  }
  log_->Add(Data(0, 3, "two"));
  EXPECT_TRUE(Run({.dry_run = true}) || pool_.dirty());
  EXPECT_EQ(heard_.unresolved.size(), 0u);
  ExpectRun(true, {{"a", "onetwo"}});
  EXPECT_FALSE(Exists(Path("old")) || Exists(Path("new")));
  Expect({}, {.files = 1, .unresolved_files = 0});
  ExpectDone();
}

// The file system may not know of the removal yet: the file may be there when it is mounted.
TEST_F(ReplayTest, ARemovedFileOfAFileSystemThatIsNotMounted) {
  MakeFile(0, "a", "old");
  pool::FileRecord record = names_[0];
  record.file_system ^= 1;
  Name(0, record);
  const Added data = log_->Add(Data(0, 0, "new"));
  record.flags |= pool::kFileRemoved;
  log_->Add(test::File(0, record), LogBuilder::kCommit, 1);
  ASSERT_EQ(rename(Path("a").c_str(), Path("away").c_str()), 0);
  MakeFile(1, "a", "below the mount point");
  for (const bool dry_run : {true, false}) {
    EXPECT_FALSE(Run({.dry_run = dry_run}));
    EXPECT_EQ(heard_.unresolved, (Unresolved{{"a", ENODEV}}));
    EXPECT_FALSE(IsVoid(data));
  }
  EXPECT_EQ(ReadFile(Path("a")), "below the mount point");
}

// The removal is lost, or has failed.
TEST_F(ReplayTest, ARemovedFileThatIsThereGetsItsBytes) {
  MakeFile(0, "a");
  log_->Add(Data(0, 0, "one"));
  pool::FileRecord record = names_[0];
  record.flags |= pool::kFileRemoved;
  log_->Add(test::File(0, record), LogBuilder::kCommit, 1);
  ExpectReplayed({{"a", "one"}});
}

// It has failed, and the log says that as well. Then the file is missed like any other.
TEST_F(ReplayTest, AFileThatCameBackIsMissed) {
  MakeFile(0, "a");
  log_->Add(Data(0, 0, "one"));
  pool::FileRecord record = names_[0];
  record.flags |= pool::kFileRemoved;
  log_->AddEach({On(1, test::File(0, record)), On(2, test::File(0, names_[0]))});
  unlink(record.path);
  ExpectRun(false, {}, {.unresolved = Unresolved{{"a", ENOENT}}});
  EXPECT_FALSE(Exists(Path("a")));
}

TEST_F(ReplayTest, AFileRenamedOverItIsNotTouched) {
  MakeFile(0, "a", "old");
  WriteFile(Path("a.new"), "new");
  log_->Add(Data(0, 0, "XXX"));
  ASSERT_EQ(rename(Path("a.new").c_str(), Path("a").c_str()), 0);
  ExpectRun(false, {{"a", "new"}}, {.unresolved = Unresolved{{"a", ESTALE}}});
}

TEST_F(ReplayTest, WhateverElseHasTheNameIsNotTouched) {
  const auto run = [&](auto replace) {
    Make(pool::kMinPoolSize);
    MakeFile(0, "a", "old");
    log_->Add(Data(0, 0, "XXX"));
    unlink(Path("a").c_str());
    replace();
    EXPECT_FALSE(Run());
    std::filesystem::remove_all(Path("a"));
    return heard_.unresolved.contains("a") ? heard_.unresolved["a"] : 0;
  };
  WriteFile(Path("victim"), "safe");
  EXPECT_EQ(run([&] { ASSERT_EQ(symlink(Path("victim").c_str(), Path("a").c_str()), 0); }), ESTALE);
  EXPECT_EQ(ReadFile(Path("victim")), "safe");
  EXPECT_EQ(run([&] { ASSERT_EQ(symlink("/nowhere", Path("a").c_str()), 0); }), ESTALE);
  EXPECT_EQ(run([&] { ASSERT_EQ(mkdir(Path("a").c_str(), 0700), 0); }), ESTALE);
  EXPECT_EQ(run([&] { ASSERT_EQ(mkfifo(Path("a").c_str(), 0600), 0); }), ESTALE);
}

TEST_F(ReplayTest, AFolderThatBecameAFile) {
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  MakeFile(0, "folder/a");
  log_->Add(Data(0, 0, "XXX"));
  std::filesystem::remove_all(Path("folder"));
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved["a"], ENOENT);
  WriteFile(Path("folder"), "");
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved["a"], ENOENT);
}

// An unprivileged user knows a file by its path; root finds it wherever it is.
TEST_F(ReplayTest, ARenamedFileIsFoundByItsHandle) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  MakeFile(0, "a", "old");
  if (names_[0].handle_size == 0) GTEST_SKIP() << "no handles here";
  log_->Add(Data(0, 0, "XXXX"));
  ASSERT_EQ(rename(Path("a").c_str(), Path("b c").c_str()), 0);
  WriteFile(Path("a"), "another");  // has its name
  RunAsUser({.unresolved = Unresolved{{"a", ESTALE}}});
  ExpectReplayed({{"b c", "XXXX"}, {"a", "another"}});
}

// As the program declares a file that it has renamed: so it is found by who may not use handles.
TEST_F(ReplayTest, ARenamedFileIsFoundByItsLastName) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  WriteFile(Path("old"), "....");
  ASSERT_EQ(chown(Path("old").c_str(), kUser, kUser), 0);
  Name(0, RecordOf(Path("old")));
  MakeFile(1, "gone");
  log_->AddEach({Data(0, 0, "1"), Data(1, 0, "kept")});
  ASSERT_EQ(rename(Path("old").c_str(), Path("new").c_str()), 0);
  unlink(Path("gone").c_str());
  Name(0, RecordOf(Path("new")));
  log_->Add(Data(0, 1, "2"), LogBuilder::kCommit, 1);
  RunAsUser({.files = 1, .records = 2, .unresolved = Unresolved{{"gone", ENOENT}}});
  EXPECT_EQ(ReadFile(Path("new")), "12..");
  EXPECT_FALSE(Exists(Path("old")));
}

TEST_F(ReplayTest, ADeletedFileIsNotFoundByItsHandleWhileSomebodyHasItOpen) {
  MakeFile(0, "a", "old");
  log_->Add(Data(0, 0, "XXXX"));
  const int fd = open(Path("a").c_str(), O_RDONLY | O_CLOEXEC);
  unlink(Path("a").c_str());
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved["a"], ENOENT);
  close(fd);
}

// ---------------------------------------------------------------------------------------------
// Run again.

// Found by its handle, where the rename that was lost had found it.
TEST_F(ReplayTest, ALostRename) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  MakeFile(0, "new name");
  if (names_[0].handle_size == 0) GTEST_SKIP() << "no handles here";
  log_->Add(Data(0, 0, "XXXX"));
  ASSERT_EQ(rename(Path("new name").c_str(), Path("old name").c_str()), 0);
  ExpectRun(true, {{"old name", "XXXX"}});
  EXPECT_FALSE(Exists(Path("new name")));
}

// One of the files keeps the pool from becoming clean.
TEST_F(ReplayTest, KilledAtEverySystemCallOfFiles) {
  MakeFiles({{"there", "...."}, {"a"}, {"b"}});
  MakeLost(3, "gone");
  log_->AddEach({Data(0, 0, "12"), Data(1, 0, "one"), Data(2, 4090, std::string(10, 'b')),
                 Data(3, 0, "kept"), Data(1, 2, "two"), Data(0, 1, "34")});
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  int before = 0, half_done = 0;
  const auto prepare = [&] {
    for (const char* name : {"a", "b"}) WriteFile(Path(name), "");
    WriteFile(Path("there"), "....");
    WriteFile(pool_path_, pool_before);
  };
  const auto check = [&] {
    Reopen();
    const bool has_a = !ReadFile(Path("a")).empty(), has_b = !ReadFile(Path("b")).empty();
    before += has_a || has_b ? 0 : 1;
    half_done += has_a != has_b ? 1 : 0;
    ExpectRun(
        false,
        {{"there", "134."}, {"a", "ontwo"}, {"b", std::string(4090, '\0') + std::string(10, 'b')}},
        {.unresolved = Unresolved{{"gone", ENOENT}}});
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(files_.path()), {}), 3)
        << "nothing else is left behind";
    pool_.Close();
  };
  const auto run = [&] { return RunInChild() == 2 ? 0 : 1; };
  const int steps = KillAtEveryCall(prepare, run, check);
  if (steps < 0) GTEST_SKIP() << "cannot trace a child";
  EXPECT_GT(before, 10);
  EXPECT_GT(half_done, 0);
  EXPECT_LT(before + half_done, steps);
}

// Groups of the logs and kept ones, with all that can happen to a file.
TEST_F(ReplayTest, KilledAtEverySystemCallOfChanges) {
  const std::string before = "0123456789";
  MakeFiles({{"a", before}, {"b", before}});
  const Added first = log_->Add(Data(0, 8, "first"));
  const Added cut = log_->Add(Truncate(1, 4));
  log_->Keep({Data(0, 8, "first")}, first.lsn);
  log_->Keep({Truncate(1, 4)}, cut.lsn);
  test::SetCheckpoint(pool_.view(), log_->next_lsn());
  log_->AddEach({On(1, Data(1, 6, "b")), Truncate(0, 11), On(1, Erase(0, 2, 3)), Data(0, 3, "x"),
                 On(1, Truncate(0, 12)), Erase(1, 3, 9)});
  pool_.Close();
  const std::string pool_before = ReadFile(pool_path_);
  const auto prepare = [&] {
    for (const char* name : {"a", "b"}) WriteFile(Path(name), before);
    WriteFile(pool_path_, pool_before);
  };
  const auto check = [&] {
    Reopen();
    ExpectRun(true,
              {{"a", std::string("01\0x\000567fir\0", 12)}, {"b", std::string("012\0\0\0\0", 7)}});
    pool_.Close();
  };
  const int steps = KillAtEveryCall(
      prepare, [&] { return RunInChild(); }, check);
  if (steps < 0) GTEST_SKIP() << "cannot trace a child";
  EXPECT_GT(steps, 40);
}

// ---------------------------------------------------------------------------------------------
// The file system says no.

TEST_F(ReplayTest, ARefusedFileIsKeptTheOthersAreApplied) {
  MakeFiles({{"a"}, {"b"}});
  log_->AddEach({Data(0, 0, "small"), Data(1, 0, std::string(5000, 'b')),
                 Data(1, 0, std::string(100, 'c')), Data(0, 5, " too")});
  RunLimited({.discard = true}, {.files = 1,
                                 .records = 2,
                                 .failed_files = 1,
                                 .failed_records = 2,
                                 .failed_bytes = 5100,
                                 .error = EFBIG,
                                 .unresolved = Unresolved{{"b", EFBIG}}});
  EXPECT_EQ(ReadFile(Path("a")), "small too");
  ExpectReplayed({{"b", std::string(100, 'c') + std::string(4900, 'b')}}, {.records = 2});
}

// What is left of the file stays unresolved.
TEST_F(ReplayTest, KilledWhileGroupsAreDiscarded) {
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  MakeLost(0, "folder/a");
  MakeFile(1, "b");
  log_->Add(Data(0, 0, "one"));
  const Added left = log_->Add(Data(0, 3, "two"));
  log_->Add(Data(1, 0, std::string(5000, 'b')));
  ASSERT_EQ(rmdir(Path("folder").c_str()), 0);
  RunLimited({.discard = true}, {.unresolved_records = 2, .failed_files = 1});
  log_.emplace(pool_.view());
  auto* header = reinterpret_cast<nvlog::RecordHeader*>(pool_.view().unit(left.first()));
  EXPECT_EQ(header->commit, nvlog::VoidWord(left.lsn, pool_.view().salt()));
  header->commit = nvlog::CommitWord(left.lsn, pool_.view().salt());
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  ExpectRun(false, {}, {.unresolved = Unresolved{{"a", ENOENT}}});
  EXPECT_FALSE(Exists(Path("folder/a")));
  EXPECT_EQ(ReadFile(Path("b")), std::string(5000, 'b'));
}

TEST_F(ReplayTest, AFullDiskKeepsTheEntries) {
  InFileSystem("size=64k", [&] {
    MakeFile(0, "a");
    WriteFile(Path("full"), std::string(60 << 10, 'x'));
    log_->Add(Data(0, 0, std::string(40000, 'a')));
    ExpectRun(false, {}, {.failed_files = 1, .error = ENOSPC});
    EXPECT_TRUE(pool_.dirty());
    unlink(Path("full").c_str());
    ExpectRun(true, {{"a", std::string(40000, 'a')}});
  });
}

// A part of a merged write is done when the disk is full: all of it is kept. Other files, and what
// comes later, are not concerned.
TEST_F(ReplayTest, AFullDiskWithinAMergedWrite) {
  InFileSystem("size=128k", [&] {
    const std::string bytes = test::Bytes(random_, 200 << 10);
    MakeFiles({{"a"}, {"b", std::string(8192, '.')}});
    log_->Add(Data(1, 0, "first"));
    for (uint64_t at = 0; at < bytes.size(); at += 4096) {
      log_->AddEach({Data(0, at, bytes.substr(at, 4096)), Data(1, 5 + at / 4096, "x")});
    }
    log_->Add(Data(1, 8000, "last"));
    std::string b = "first" + std::string(50, 'x') + std::string(8192 - 55, '.');
    b.replace(8000, 4, "last");
    ExpectRun(false, {{"b", b}},
              {.records = 52, .failed_records = 50, .unresolved = Unresolved{{"a", ENOSPC}}});
    EXPECT_GT(ReadFile(Path("a")).size(), 4096u) << "a part of it was written";
    ASSERT_EQ(mount("tmpfs", files_.path().c_str(), "tmpfs", MS_REMOUNT, "size=1m"), 0);
    ExpectRun(true, {{"a", bytes}}, {.records = 50});
  });
}

TEST_F(ReplayTest, AFileThatMayNotBeWritten) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  MakeFile(0, "a", "old");
  log_->Add(Data(0, 0, "new"));
  chmod(Path("a").c_str(), 0444);
  RunAsUser({.unresolved = Unresolved{{"a", EACCES}}});
  ExpectRun(true, {{"a", "new"}});
}

// ---------------------------------------------------------------------------------------------
// Many files.

class ManyFilesTest : public ReplayTest {
 protected:
  ManyFilesTest() : ReplayTest(Folder::kMemory) {}  // fsync of a thousand files takes its time

  void MakeFiles(uint32_t files, uint32_t logs) {
    files_made_ = files;
    for (uint32_t file = 0; file < files; ++file) MakeFile(file, std::to_string(file));
    for (uint32_t i = 0; i < 3 * files; ++i) {
      const uint32_t file = i % files;
      const std::string bytes = std::to_string(10000 + file);
      log_->Add(Data(file, uint64_t{i / files} * 5, bytes), LogBuilder::kCommit, i % logs);
    }
  }
  static void LimitDescriptors() {
    const rlimit limit = {20, 20};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  void ExpectContents() {
    for (uint32_t file = 0; file < files_made_; ++file) {
      const std::string once = std::to_string(10000 + file);
      EXPECT_EQ(ReadFile(Path(std::to_string(file))), (once + once).append(once));
    }
  }

  uint32_t files_made_ = 0;
};

TEST_F(ManyFilesTest, AllAreApplied) {
  MakeFiles(400, 3);
  ExpectRun(true, {}, {.files = 400, .records = 1200});
  ExpectContents();
  ExpectDone();
}

// More than are open at a time, and more than any table of the pool could have.
TEST_F(ManyFilesTest, TenThousand) {
  Make(64 << 20);
  MakeFiles(10000, 7);
  ExpectRun(true, {}, {.files = 10000, .records = 30000});
  ExpectContents();
  ExpectDone();
}

TEST_F(ManyFilesTest, WithFewDescriptors) {
  MakeFiles(400, 1);
  pool_.Close();
  TestInChild([&] {
    LimitDescriptors();
    Reopen();
    EXPECT_TRUE(Run());
    Expect({}, {.files = 400, .unresolved_files = 0, .failed_files = 0});
    const int fd = open("/dev/null", O_RDONLY);
    EXPECT_LT(fd, 10) << "none is left open";
  });
  ExpectContents();
}

TEST_F(ManyFilesTest, ADryRunWithFewDescriptors) {
  MakeFiles(400, 1);
  pool_.Close();
  const std::string before = ReadFile(pool_path_);
  TestInChild([&] {
    LimitDescriptors();
    Reopen();
    EXPECT_FALSE(Run({.dry_run = true}));
    Expect({}, {.files = 400});
    EXPECT_TRUE(ReadFile(pool_path_) == before);
    EXPECT_TRUE(Run());
  });
  ExpectContents();
}

// ---------------------------------------------------------------------------------------------
// What dead processes have left, while others use the pool.

// A process with files of its own.
class User : public test::LogUser {
 public:
  ~User() { Die(); }
  void Start(const std::string& pool_path) {
    test::Use(pool, pool_path);
    ASSERT_TRUE(log.Open(&pool));
    kept.Open();
    tags_.clear();
  }
  void Die() {
    log.Close();
    pool.Close();
  }

  // At most to the end of the page. 0: there is no room.
  Lsn Write(const pool::FileRecord& file, uint64_t offset, const std::string& bytes) {
    return Append(TagOf(file), file, offset, bytes);
  }
  // The last write of this file, once more, as the cleanup thread does it when the disk refuses it.
  void Keep(const pool::FileRecord& file) {
    const nvlog::FileTag& tag = TagOf(file);
    const nvlog::RecordHeader& header = log.At(last);
    const nvlog::Log::Piece piece = log.PieceAt(last, header.offset / pool::kPageSize);
    const nvlog::Kept::Copy copy = {nvlog::Kind::kData, header.lsn,  tag.number,     header.offset,
                                    header.length,      piece.bytes, nvlog::kNoPlace};
    EXPECT_NE(kept.Append(copy, &declared_, tag.record.load(), 0), nvlog::kNoPlace);
    declared_ = 0;
  }
  size_t Owned(uint32_t seat) const { return OwnedBy(seat).size(); }

  nvlog::Kept kept{log};

 private:
  nvlog::FileTag& TagOf(const pool::FileRecord& file) {
    nvlog::FileTag& tag = tags_[file.path];
    if (tag.number == 0) tag.number = static_cast<uint32_t>(tags_.size());
    return tag;
  }

  std::map<std::string, nvlog::FileTag> tags_;
  Lsn declared_ = 0;
};

class OrphansTest : public RunTest {
 protected:
  OrphansTest() { test::MakePool(pool_path_); }

  pool::FileRecord Make(const std::string& name, const std::string& content = "") {
    WriteFile(Path(name), content);
    return RecordOf(Path(name));
  }
  static Lsn SeatCheckpoint(const pool::Pool& pool, uint32_t seat) {
    Lsn checkpoint = 0;
    EXPECT_EQ(pool::LoadCheckpoint(pool.view(), seat, &checkpoint), 2);
    return checkpoint;
  }
  // Nothing is left of it, and all that it had is below its checkpoint.
  static void ExpectFree(const User& user, uint32_t seat, Lsn above) {
    EXPECT_EQ(user.pool.seats().State(seat), pool::kSeatFree);
    EXPECT_FALSE(user.pool.seats().Lives(seat));
    EXPECT_EQ(user.Owned(seat), 0u);
    EXPECT_GT(SeatCheckpoint(user.pool, seat), above);
  }
  // Records of files, as recovery of the whole pool would find them now.
  std::map<std::string, int> Pending() {
    std::map<std::string, int> pending;
    test::ForEachCommitted(pool_path_, [&](const test::FoundRecord& found) {
      if (found.header.kind == nvlog::Kind::kFile) return;
      ++pending[std::filesystem::path(found.file_record().path).filename()];
    });
    return pending;
  }
};

TEST_F(OrphansTest, WithoutTheDeadNothingIsToBeDone) {
  User a, b;
  a.Start(pool_path_);
  b.Start(pool_path_);
  const pool::FileRecord file = Make("a", "....");
  a.Write(file, 0, "1");
  b.Write(Make("b", "...."), 0, "2");
  EXPECT_TRUE(ReplayOrphans(a.pool, &summary_));
  EXPECT_TRUE(ReplayOrphans(b.pool, &summary_));
  EXPECT_EQ(summary_.records, 0u);
  EXPECT_EQ(ReadFile(Path("a")) + ReadFile(Path("b")), "........");
  EXPECT_EQ(Pending(), (Unresolved{{"a", 1}, {"b", 1}}));
  EXPECT_EQ(a.Owned(0) + a.Owned(1), 2u);
}

// Two have died, and the one that brings what they had to the files goes on appending meanwhile.
TEST_F(OrphansTest, WhileItsOwnLogGoesOn) {
  User alive, dead[2];
  alive.Start(pool_path_);
  const pool::FileRecord mine = Make("mine");
  const pool::FileRecord of_dead[2] = {Make("0", std::string(100, '.')), Make("1")};
  std::string expected[2] = {std::string(100, '.'), ""};
  for (User& user : dead) user.Start(pool_path_);
  alive.Write(mine, 0, "first");
  Lsn newest = 0;
  for (int i = 0; i < 60; ++i) {
    const size_t user = random_() % 2;
    const uint64_t offset = random_() % 200;
    const std::string bytes = test::Bytes(random_, 1 + random_() % 3000);
    newest = dead[user].Write(of_dead[user], offset, bytes);
    ASSERT_NE(newest, 0u);
    test::Overwrite(&expected[user], offset, bytes);
  }
  for (User& user : dead) user.Die();
  EXPECT_TRUE(alive.pool.seats().HasOrphans(0));

  std::atomic<bool> over{false};
  int appended = 0;
  std::thread appends([&] {
    do {
      if (alive.Write(mine, 0, std::string(100, 'x')) != 0) ++appended;
    } while (!over.load());
  });
  EXPECT_TRUE(ReplayOrphans(alive.pool, &summary_));
  over.store(true);
  appends.join();
  Expect({}, {.files = 2, .records = 60});
  EXPECT_EQ(summary_.unresolved_files + summary_.failed_files + summary_.damaged_groups +
                summary_.unfinished_groups,
            0u);
  for (const size_t i : {0u, 1u}) {
    EXPECT_TRUE(ReadFile(Path(std::to_string(i))) == expected[i]) << i;
    ExpectFree(alive, static_cast<uint32_t>(i) + 1, newest);
  }
  EXPECT_EQ(ReadFile(Path("mine")), "") << "the living one does that itself";
  EXPECT_GT(appended, 0);
  EXPECT_EQ(Pending(), (Unresolved{{"mine", appended + 1}}));
  EXPECT_EQ(alive.pool.checkpoint(), 1u) << "nor moves its checkpoint";
  EXPECT_TRUE(alive.pool.dirty());

  // They count no more, even if nobody closes the pool.
  for (const char* name : {"0", "1"}) WriteFile(Path(name), "since");
  alive.Die();
  ASSERT_TRUE(test::OpenPool(alive.pool, pool_path_));
  Summary summary;
  EXPECT_TRUE(Replay(alive.pool, {}, {}, &summary));
  EXPECT_EQ(summary.records, static_cast<uint64_t>(appended) + 1);
  EXPECT_EQ(ReadFile(Path("mine")), std::string(100, 'x'));
  EXPECT_EQ(ReadFile(Path("0")) + ReadFile(Path("1")), "sincesince");
}

// The seat's next process has the same logs: what is left in its segments is nothing.
TEST_F(OrphansTest, ASeatThatIsUsedAgain) {
  User alive;
  alive.Start(pool_path_);
  const pool::FileRecord file = Make("a");
  std::string expected;
  for (int life = 0; life < 5; ++life) {
    User user;
    user.Start(pool_path_);
    ASSERT_EQ(user.pool.seat(), 1u);
    for (int i = 0; i < 40; ++i) {
      const std::string bytes = test::Bytes(random_, 2000);
      ASSERT_NE(user.Write(file, 0, bytes), 0u);
      expected = bytes;
      if (i == 20 && life % 2 == 0) user.Clean();
    }
    const std::string last = "life " + std::to_string(life);
    const Lsn newest = user.Write(file, 0, last);
    test::Overwrite(&expected, 0, last);
    user.Die();
    Summary summary;
    EXPECT_TRUE(ReplayOrphans(alive.pool, &summary));
    EXPECT_EQ(summary.records, life % 2 == 0 ? 20u : 41u);
    EXPECT_TRUE(ReadFile(Path("a")) == expected) << life;
    ExpectFree(alive, 1, newest);
    EXPECT_TRUE(Pending().empty());
  }
}

// Without a seat: whoever comes brings it to the files before it joins.
TEST_F(OrphansTest, ByOneThatHasNoSeatYet) {
  User alive, dead;
  alive.Start(pool_path_);
  dead.Start(pool_path_);
  const Lsn lsn = dead.Write(Make("a"), 0, "one");
  dead.Die();
  OpenedPool comes(pool_path_, pool::Mode::kShared);
  EXPECT_FALSE(comes.alone());
  EXPECT_TRUE(ReplayOrphans(comes, &summary_));
  EXPECT_EQ(ReadFile(Path("a")), "one");
  ExpectFree(alive, 1, lsn);
  test::Join(comes);
  EXPECT_EQ(comes.seat(), 1u);
}

TEST_F(OrphansTest, KeptGroupsOfADeadSeat) {
  User alive, dead;
  alive.Start(pool_path_);
  dead.Start(pool_path_);
  const pool::FileRecord a = Make("a", "............"), mine = Make("mine", "....");
  // Kept by the living one, too: that stays its own.
  alive.Write(mine, 0, "12");
  alive.Keep(mine);
  dead.Write(a, 0, "aaaaaa");
  dead.Keep(a);
  dead.Write(a, 2, "bbbbbb");
  dead.Keep(a);
  dead.Clean();
  alive.Clean();
  const Lsn newest = dead.Write(a, 4, "cc");
  dead.Die();
  EXPECT_EQ(Pending(), (Unresolved{{"a", 3}, {"mine", 1}}));
  EXPECT_TRUE(ReplayOrphans(alive.pool, &summary_));
  Expect({{"a", "aabbccbb...."}, {"mine", "...."}}, {.records = 3});
  ExpectFree(alive, 1, newest);
  EXPECT_EQ(Pending(), (Unresolved{{"mine", 1}})) << "they are void: no checkpoint would end them";
  WriteFile(Path("a"), "since");
  alive.Die();
  ASSERT_TRUE(test::OpenPool(alive.pool, pool_path_));
  EXPECT_TRUE(Replay(alive.pool, {}, {}, &summary_));
  EXPECT_EQ(ReadFile(Path("a")) + ReadFile(Path("mine")), "since12..");
}

TEST_F(OrphansTest, AFileThatIsMissing) {
  User alive, dead[2];
  alive.Start(pool_path_);
  for (User& user : dead) user.Start(pool_path_);
  const pool::FileRecord mine = Make("mine"), a = Make("a"), b = Make("b");
  // A file that has no name yet can be given one: the very file that was missing.
  const int fd = open(files_.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) GTEST_SKIP() << "no files without a name";
  ASSERT_EQ(write(fd, ".....", 5), 5);
  pool::FileRecord gone = test::RecordOfNone(Path("gone"), 0);
  ASSERT_EQ(pool::Identify(fd, &gone), 0);
  dead[0].Write(a, 0, "one");
  dead[0].Write(gone, 1, "kept");
  dead[0].Write(a, 3, "two");
  dead[1].Write(b, 0, "three");
  for (User& user : dead) user.Die();
  EXPECT_FALSE(ReplayOrphans(alive.pool, &summary_));
  Expect({{"a", "onetwo"}}, {.unresolved_files = 1, .unresolved_records = 1});
  EXPECT_EQ(ReadFile(Path("b")), "three") << "what another one has left";
  const pool::Seats& seats = alive.pool.seats();
  EXPECT_EQ(seats.State(1), pool::kSeatUnresolved);
  EXPECT_TRUE(seats.HasUnresolved());
  EXPECT_FALSE(seats.HasOrphans(0)) << "it was looked at";
  EXPECT_FALSE(seats.Lives(1));
  EXPECT_GT(alive.Owned(1), 0u);
  EXPECT_EQ(SeatCheckpoint(alive.pool, 1), 1u) << "it has something above it";
  EXPECT_EQ(Pending(), (Unresolved{{"gone", 1}}));

  // Who is there goes on, nobody else comes, and nothing is applied again.
  WriteFile(Path("a"), "since");
  Summary again;
  EXPECT_FALSE(ReplayOrphans(alive.pool, &again));
  EXPECT_EQ(again.records, 0u);
  EXPECT_NE(alive.Write(mine, 0, "mine"), 0u);
  ScopedPool comes;
  pool::Problem problem;
  ASSERT_TRUE(test::OpenPool(comes, pool_path_, pool::Mode::kShared));
  EXPECT_FALSE(ReplayOrphans(comes, &again));
  EXPECT_FALSE(comes.Join(&problem));
  EXPECT_EQ(problem.error, EUCLEAN);
  EXPECT_NE(std::string(problem.text.c_str()).find("nvcache recover"), std::string::npos);
  comes.Close();

  // The last one leaves with nothing of its own, and the file is back.
  alive.Clean();
  alive.log.FreeAll();
  alive.log.Close();
  alive.pool.Leave();
  EXPECT_TRUE(alive.pool.dirty());
  alive.pool.Close();
  ASSERT_TRUE(test::OpenPool(comes, pool_path_));
  Summary summary;
  EXPECT_FALSE(Replay(comes, {}, {}, &summary)) << "not yet";
  EXPECT_EQ(summary.records, 0u);
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  ASSERT_EQ(linkat(AT_FDCWD, link.c_str(), AT_FDCWD, Path("gone").c_str(), AT_SYMLINK_FOLLOW), 0);
  close(fd);
  EXPECT_TRUE(Replay(comes, {}, {}, &summary));
  EXPECT_EQ(summary.records, 1u);
  Expect({{"gone", ".kept"}, {"a", "since"}});
  EXPECT_FALSE(comes.dirty());
  comes.Close();
  alive.Start(pool_path_);
  EXPECT_FALSE(alive.pool.seats().HasUnresolved());
}

// TODO: the seats that come after one that is unresolved are called unresolved, too, because what
// is counted of all of them decides.
TEST_F(OrphansTest, WhatOneSeatKeepsIsNoMatterToAnother) {
  User alive, dead[2];
  alive.Start(pool_path_);
  for (User& user : dead) user.Start(pool_path_);
  dead[0].Write(test::RecordOfNone(Path("gone"), 7), 0, "gone");
  const Lsn newest = dead[1].Write(Make("b"), 0, "three");
  for (User& user : dead) user.Die();
  EXPECT_FALSE(ReplayOrphans(alive.pool, &summary_));
  EXPECT_EQ(ReadFile(Path("b")), "three");
  EXPECT_EQ(alive.pool.seats().State(1), pool::kSeatUnresolved);
  ExpectFree(alive, 2, newest);
}

// The disk refuses it: all of the seat that is applied is void, the rest stays, its kept ones too.
TEST_F(OrphansTest, AFileThatIsRefused) {
  const pool::FileRecord a = Make("a"), big = Make("big");
  User dead;
  User alive;
  alive.Start(pool_path_);
  dead.Start(pool_path_);
  dead.Write(big, 5000, "kept");
  dead.Keep(big);
  dead.Clean();
  dead.Write(a, 0, "one");
  dead.Write(big, 5002, "new");
  dead.Die();
  TestInChild([&] {
    ScopedPool pool;
    const rlimit limit = {4500, 4500};
    ASSERT_TRUE(test::OpenPool(pool, pool_path_, pool::Mode::kShared));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_FALSE(ReplayOrphans(pool, &summary_));
    Expect({}, {.records = 1, .failed_files = 1, .error = EFBIG});
  });
  EXPECT_EQ(alive.pool.seats().State(1), pool::kSeatUnresolved);
  EXPECT_EQ(ReadFile(Path("a")), "one");
  EXPECT_EQ(Pending(), (Unresolved{{"big", 2}}));
  alive.Die();
  ASSERT_TRUE(test::OpenPool(alive.pool, pool_path_));
  EXPECT_TRUE(Replay(alive.pool, {}, {}, &summary_));
  Expect({{"big", std::string(5000, '\0') + "kenew"}}, {.records = 2});
}

// Two dead seats, kept groups among what they had, and one that stays alive. What a process that
// replays has done when it is killed, the next one finds.
class KilledOrphansTest : public OrphansTest {
 protected:
  KilledOrphansTest() {
    alive_.Start(pool_path_);
    User dead[2];
    for (User& user : dead) user.Start(pool_path_);
    alive_.Write(Make("mine"), 0, "mine");
    const pool::FileRecord a = Make("a", kBefore), b = Make("b", kBefore);
    dead[0].Write(a, 0, "11111111");
    dead[0].Keep(a);
    dead[0].Write(a, 1, "222222");
    dead[0].Keep(a);
    dead[0].Clean();
    for (uint64_t i = 0; i < 6; ++i) {
      dead[0].Write(a, 2 + i, std::string(3, static_cast<char>('a' + i)));
      newest_ = dead[1].Write(b, 3 * i, std::string(7, static_cast<char>('A' + i)));
    }
    for (User& user : dead) user.Die();
    pool_before_ = ReadFile(pool_path_);
  }
  // The alive one has the pool mapped: the file is not made anew.
  void Restore() {
    for (const char* name : {"a", "b"}) WriteFile(Path(name), kBefore);
    const int fd = open(pool_path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, pool_before_.data(), pool_before_.size(), 0),
              static_cast<ssize_t>(pool_before_.size()));
    close(fd);
    ASSERT_EQ(alive_.pool.seats().State(1), pool::kSeatTaken);
    ASSERT_TRUE(alive_.pool.seats().IsOrphan(1) && alive_.pool.seats().IsOrphan(2));
  }
  // In a child.
  int Replay() const {
    ScopedPool pool;
    pool::Problem problem;
    Summary summary;
    if (!test::OpenPool(pool, pool_path_, pool::Mode::kShared)) return 1;
    if (!pool.Join(&problem)) return 2;
    if (!ReplayOrphans(pool, &summary)) return 3;
    pool.Leave();
    return pool.seat() == pool::kNoSeat && !HasFailure() ? 0 : 4;
  }
  // The next one goes on.
  void ExpectFinished() {
    const uint32_t end = alive_.pool.seats().end();
    EXPECT_TRUE(ReplayOrphans(alive_.pool, &summary_));
    EXPECT_EQ(summary_.damaged_groups + summary_.unfinished_groups + summary_.unresolved_files, 0u);
    Expect({{"a", "12abcdefff...................."}, {"b", "AAABBBCCCDDDEEEFFFFFFF........"}});
    for (uint32_t seat = 1; seat < end; ++seat) {
      EXPECT_EQ(alive_.pool.seats().State(seat), pool::kSeatFree);
      EXPECT_EQ(alive_.Owned(seat), 0u);
      if (seat < 3) ExpectFree(alive_, seat, newest_);
    }
    EXPECT_FALSE(alive_.pool.seats().HasUnresolved() || alive_.pool.seats().AnybodyLives());
    EXPECT_EQ(alive_.log.segments().free(), alive_.pool.view().segment_count() - 1);
    EXPECT_EQ(Pending(), (Unresolved{{"mine", 1}}));
  }

  static constexpr char kBefore[] = "..............................";
  User alive_;
  Lsn newest_ = 0;
  std::string pool_before_;
};

TEST_F(KilledOrphansTest, AtEverySystemCall) {
  int half_done = 0, gate = 0;
  const auto check = [&] {
    const pool::Seats& seats = alive_.pool.seats();
    if (seats.State(1) == pool::kSeatReplayed) ++gate;
    if (seats.State(1) == pool::kSeatFree && seats.State(2) != pool::kSeatFree) ++half_done;
    ExpectFinished();
  };
  const int steps = KillAtEveryCall([&] { Restore(); }, [&] { return Replay(); }, check);
  if (steps < 0) GTEST_SKIP() << "cannot trace a child";
  EXPECT_GT(steps, 80);
  EXPECT_GT(gate, 10) << "killed while it has the first one adopted";
  EXPECT_GT(half_done, 10) << "killed when that was done";
}

TEST_F(KilledOrphansTest, AtAnyMoment) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  int killed = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Restore();
    const auto patience = static_cast<useconds_t>(random_() % 4000);
    const pid_t pid = fork();
    if (pid == 0) _exit(Replay());
    usleep(patience);
    kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) ++killed;
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
    ExpectFinished();
    ASSERT_FALSE(HasFailure());
  }
  std::printf("%d of 60 were killed\n", killed);
}

// The one that replays dies, and all others with it: recovery of the whole pool does the rest.
TEST_F(KilledOrphansTest, AndNobodyIsLeft) {
  // With a seat that nobody of the image has, so that the child is not alone.
  std::optional<ScopedPool> other;
  const auto prepare = [&] {
    for (const char* name : {"a", "b"}) WriteFile(Path(name), kBefore);
    WriteFile(Path("mine"), "");
    alive_.Die();
    WriteFile(pool_path_, pool_before_);
    ASSERT_TRUE(test::OpenPool(other.emplace(), pool_path_, pool::Mode::kExclusive));
    const uint32_t seats = pool::GeometryOf(pool::kMinPoolSize).seat_count;
    struct flock lock = {F_WRLCK, SEEK_SET, pool::kLifeOffset + seats - 1, 1, 0};
    ASSERT_EQ(fcntl(other->fd(), F_OFD_SETLK, &lock), 0);
    ASSERT_EQ(flock(other->fd(), LOCK_UN), 0);
  };
  const auto check = [&] {
    other.reset();
    OpenedPool pool(pool_path_);
    EXPECT_TRUE(replay::Replay(pool, {}, {}, &summary_));
    EXPECT_EQ(summary_.damaged_groups + summary_.unresolved_files, 0u);
    Expect({{"a", "12abcdefff...................."},
            {"b", "AAABBBCCCDDDEEEFFFFFFF........"},
            {"mine", "mine"}});
    EXPECT_FALSE(pool.dirty());
  };
  if (KillAtEveryCall(
          prepare, [&] { return Replay(); }, check, 0, 7) < 0) {
    GTEST_SKIP() << "cannot trace a child";
  }
}

// ---------------------------------------------------------------------------------------------
// Write-through: what the kernel had, and the disk may lack.

class ThroughReplayTest : public ReplayTest {
 protected:
  static constexpr uint32_t kOne = pool::kThroughLog;  // of seat 0
  static constexpr uint32_t kTwo = pool::kLogsOfSeat + pool::kThroughLog + 1;

  // The machine was down since. Without it, the kernel has all of it.
  void Reboot() { pool_.view().state()->boot[3] ^= 1; }
  Added Add(uint32_t log, const test::Record& record) {
    return log_->Add(record, LogBuilder::kCommit, log);
  }
  void ExpectAfterReboot(const Contents& contents, const Told& told = {},
                         const test::Caller& caller = test::Caller()) {
    Reboot();
    ExpectRun(true, contents, told, caller);
  }
};

TEST_F(ThroughReplayTest, GroupsOfSeveralProcessesAreAppliedInOrder) {
  MakeFile(0, "a", std::string(12, '.'));
  log_->AddEach({On(kOne, Data(0, 0, "11111")), On(kTwo, Data(0, 3, "22222")),
                 On(kOne, Data(0, 6, "333")), On(kTwo, Data(0, 7, "4"))});
  Reboot();
  ExpectReplayed({{"a", "111222343..."}}, {.records = 4});
}

// A record says that the file was synced: what is older would undo what no log has.
TEST_F(ThroughReplayTest, WhatIsSettledCountsNoMore) {
  for (const std::string name : {"a", "b"}) {
    MakeFile(name == "a" ? 0 : 1, name, std::string(8, '.'));
  }
  Add(kOne, Data(0, 0, "old"));
  const Added bound = Add(kTwo, Data(0, 0, "older than its sync"));
  log_->AddEach({On(kOne, Data(1, 0, "of b")), Data(0, 4, "wb")});
  // Drawn before the sync, committed after.
  const Added later = Add(kOne, Data(0, 1, "!"));
  Add(kTwo, test::Settled(0, later.lsn));
  EXPECT_LT(bound.lsn, later.lsn);
  Add(kOne, Data(0, 2, "?"));
  Reboot();
  EXPECT_TRUE(Run());
  EXPECT_EQ(ReadFile(Path("a")), ".!?.wb..") << "write-back has a checkpoint of its own";
  Expect({{"b", "of b...."}}, {.records = 4});
  ExpectDone();
}

// Of two records, the one with the higher bound, wherever it lies.
TEST_F(ThroughReplayTest, SettledTwice) {
  MakeFile(0, "a", "....");
  Add(kOne, Data(0, 0, "1"));
  const Added two = Add(kOne, Data(0, 1, "2"));
  const Added three = Add(kOne, Data(0, 2, "3"));
  log_->AddEach({On(kTwo, test::Settled(0, three.lsn)), On(kOne, test::Settled(0, two.lsn))});
  ExpectAfterReboot({{"a", "..3."}});
}

// Neither counts that is not whole.
TEST_F(ThroughReplayTest, AnUnfinishedSettledSaysNothing) {
  MakeFile(0, "a", "....");
  const Added one = Add(kOne, Data(0, 0, "1"));
  log_->Add(test::Settled(0, one.lsn + 1), LogBuilder::kCommitNot, kTwo);
  ExpectAfterReboot({{"a", "1..."}});
}

// Somebody has changed or removed the files since, as anybody may: the kernel had all of it.
TEST_F(ThroughReplayTest, NothingIsAppliedThatTheKernelHas) {
  MakeFiles({{"a", "since"}, {"gone"}});
  log_->AddEach({On(kOne, Data(0, 0, "before")), On(kTwo, Data(1, 0, "bytes"))});
  MakeFile(2, "c", "......");
  log_->Add(Data(2, 0, "write-back"), LogBuilder::kCommit, 0);
  unlink(Path("gone").c_str());
  ExpectReplayed({{"a", "since"}, {"c", "write-back"}}, {.records = 1, .unresolved = Unresolved{}});
}

TEST_F(ThroughReplayTest, AllIsAppliedOnceASyncHasFailed) {
  MakeFile(0, "a", "lost..");
  Add(kOne, Data(0, 0, "before"));
  pool_.seats().SetThroughFailed(EIO);
  ExpectRun(true, {{"a", "before"}});
}

// The kernel tells one descriptor of an error, and then that all is well.
TEST_F(ThroughReplayTest, NorIsTheKernelBelievedOnceARecoveryHasHeardOfAnError) {
  MakeFile(0, "a", "before");
  Add(kOne, Data(0, 0, "before"));
  pool_.Close();
  TestInChild([&] {
    ASSERT_EQ(test::Forbid(SYS_fsync, EIO), 0);
    EXPECT_EQ(RunInChild(), 2);
  });
  WriteFile(Path("a"), "lost..");
  ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
  ExpectRun(true, {{"a", "before"}});
}

TEST_F(ThroughReplayTest, WhatIsBelowItsCheckpointIsOnTheDisk) {
  MakeFile(0, "a", "....");
  log_->AddEach({On(kOne, Data(0, 0, "1")), On(kTwo, Data(0, 1, "2"))});
  const Added three = Add(kTwo, Data(0, 2, "3"));
  pool_.seats().next_lsn().store(log_->next_lsn());
  pool_.StoreThroughCheckpoint(three.lsn);
  ExpectAfterReboot({{"a", "..3."}});
}

// I6. What keeps the last run from its end is a file that is not found: so void words are written.
TEST_F(ThroughReplayTest, KilledAnywhereAndRunAgain) {
  MakeFiles({{"a", std::string(16, '.')}, {"lost"}});
  log_->AddEach({On(kOne, Data(0, 0, "aaaa")), On(kTwo, Data(0, 2, "bbbb")),
                 On(kOne, Data(1, 0, "nowhere"))});
  const Added settled = Add(kTwo, Data(0, 4, "cccc"));
  log_->AddEach({On(kOne, test::Settled(0, settled.lsn)), On(kTwo, Data(0, 6, "dddd"))});
  Reboot();
  unlink(Path("lost").c_str());
  pool_.Close();
  const std::string before = ReadFile(pool_path_);
  const auto prepare = [&] {
    WriteFile(Path("a"), std::string(16, '.'));
    WriteFile(pool_path_, before);
  };
  const auto check = [&] {
    Reopen();
    ExpectRun(false, {{"a", "....ccdddd......"}}, {.unresolved_records = 1});
    pool_.Close();
  };
  const auto run = [&] { return RunInChild() == 2 ? 0 : 1; };
  if (KillAtEveryCall(prepare, run, check) < 0) GTEST_SKIP() << "cannot trace a child";
}

// ---------------------------------------------------------------------------------------------
// Handed over: what its process had in its cache, and has given to the kernel.

class HandedOverTest : public ThroughReplayTest {
 protected:
  static constexpr uint32_t kThree = pool::kLogsOfSeat;  // of seat 1, write-back

  // As the engine does before the first one.
  void SetUp() override {
    ThroughReplayTest::SetUp();
    pool_.MarkHandsOver();
  }
  Lsn Back(uint32_t log, const test::Record& record) {
    return log_->Add(record, LogBuilder::kCommit, log).lsn;
  }
  void MoveThroughCheckpoint(Lsn lsn) {
    pool_.seats().next_lsn().store(log_->next_lsn());
    pool_.StoreThroughCheckpoint(lsn);
  }
};

// Others may have written to the file, or removed it. What came later is the process's own again.
TEST_F(HandedOverTest, TheKernelHasIt) {
  MakeFiles({{"a", "since."}, {"gone"}});
  log_->AddEach({Data(0, 0, "before"), Data(1, 0, "bytes"), test::HandedOver(0),
                 test::HandedOver(1), Data(0, 5, "!")});
  unlink(Path("gone").c_str());
  ExpectReplayed({{"a", "since!"}}, {.records = 1, .unresolved = Unresolved{}});
}

TEST_F(HandedOverTest, APowerFailureMayHaveTakenIt) {
  MakeFile(0, "a", "......");
  log_->AddEach({Data(0, 0, "11"), test::HandedOver(0), On(kTwo, Data(0, 1, "22")),
                 On(kThree, Data(0, 2, "3"))});
  Reboot();
  EXPECT_TRUE(Run());
  EXPECT_EQ(ReadFile(Path("a")), "123...") << "in the order of LSNs";
  ExpectDone();
}

TEST_F(HandedOverTest, ASyncHasFailed) {
  MakeFile(0, "a", "lost");
  log_->AddEach({Data(0, 0, "1"), test::HandedOver(0)});
  pool_.seats().SetThroughFailed(EIO);
  ExpectRun(true, {{"a", "1ost"}});
}

// A bound between the group and its handing over: the kernel did not have it when the sync began.
TEST_F(HandedOverTest, SettledOnlyIfThatCameLater) {
  MakeFiles({{"a", "...."}, {"b", "...."}});
  log_->AddEach({Data(0, 0, "1"), Data(1, 0, "1")});
  const Lsn handed_over = Back(0, test::HandedOver(0));
  log_->AddEach({test::HandedOver(1), On(kTwo, test::Settled(0, handed_over + 1)),
                 On(kTwo, test::Settled(1, handed_over + 1))});
  ExpectAfterReboot({{"a", "...."}, {"b", "1..."}});
}

TEST_F(HandedOverTest, BelowTheCheckpointOnlyIfThatCameLater) {
  MakeFiles({{"a", "...."}, {"b", "...."}});
  log_->AddEach({Data(0, 0, "1"), Data(1, 0, "1")});
  const Lsn handed_over = Back(0, test::HandedOver(0));
  Back(0, test::HandedOver(1));
  MoveThroughCheckpoint(handed_over + 1);
  ExpectAfterReboot({{"a", "...."}, {"b", "1..."}});
}

// Two owners, one after the other: what the first had is settled, what the second has is not.
TEST_F(HandedOverTest, Twice) {
  MakeFile(0, "a", "......");
  Back(0, Data(0, 0, "1"));
  const Lsn first = Back(0, test::HandedOver(0));
  log_->AddEach({On(kTwo, test::Settled(0, first + 1)), On(kThree, Data(0, 1, "2")),
                 On(kThree, test::HandedOver(0)), Data(0, 2, "3")});
  ExpectAfterReboot({{"a", ".23..."}});
}

// A sync was begun before the second handing over, and its record committed after it.
TEST_F(HandedOverTest, SettledInBetween) {
  MakeFile(0, "a", "......");
  Back(0, Data(0, 0, "1"));
  const Lsn first = Back(0, test::HandedOver(0));
  log_->AddEach({On(kThree, Data(0, 1, "2")), On(kThree, test::HandedOver(0)),
                 On(kTwo, test::Settled(0, first + 1))});
  ExpectAfterReboot({{"a", ".2...."}});
}

TEST_F(HandedOverTest, NotIfTheRecordIsUnfinished) {
  MakeFile(0, "a", "....");
  Back(0, Data(0, 0, "1"));
  log_->Add(test::HandedOver(0), LogBuilder::kCommitNot, 0);
  ExpectRun(true, {{"a", "1..."}});
}

}  // namespace
}  // namespace nvcache::replay
