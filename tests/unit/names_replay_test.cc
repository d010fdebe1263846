// SPDX-License-Identifier: BSD-3-Clause
//
// What replay makes of names. Each test makes the files as the program had them, logs what the
// program did, and then has the file system keep some of it.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/pool/identify.h"
#include "src/replay/replay.h"
#include "tests/unit/capability.h"
#include "tests/unit/support.h"
#include "tests/unit/traced.h"

namespace nvcache::replay {
namespace {

using nvlog::Lsn;
using pool::Deed;
using pool::Identity;
using test::Data;
using test::Exists;
using test::Folder;
using test::LogBuilder;
using test::ReadFile;
using test::ScopedPool;
using test::WriteFile;

using Acts = std::vector<std::string>;
using Names_ = std::vector<std::string>;
using Unresolved = std::map<std::string, int>;

constexpr uint32_t kLog = pool::kThroughLog;

std::string FolderOf(const std::string& path) { return std::filesystem::path(path).parent_path(); }
std::string NameOf(const std::string& path) { return std::filesystem::path(path).filename(); }

struct stat StatOf(const std::string& path) {
  struct stat st = {};
  EXPECT_EQ(lstat(path.c_str(), &st), 0) << path;
  return st;
}

Identity IdOf(const std::string& path) {
  Identity identity;
  struct statx st;
  EXPECT_EQ(pool::IdentifyAt(AT_FDCWD, path.c_str(), &identity, &st), 0) << path;
  return identity;
}

// What an Observer hears of names: "create a", and errno by name.
struct Heard {
  explicit Heard(std::string folder) : root(std::move(folder)) {}
  std::string root;
  std::vector<std::string> acts;
  std::map<std::string, int> unresolved;

  std::string Relative(const char* folder, const char* name) const {
    const std::string path = *folder != '\0' ? std::string(folder) + "/" + name : name;
    return path.starts_with(root + "/") ? path.substr(root.size() + 1) : path;
  }
  Observer observer() {
    Observer o;
    o.context = this;
    o.name = [](void* self, NameAct act, const char* folder, const char* name) {
      auto* heard = static_cast<Heard*>(self);
      const char* const words[] = {"create ", "link ", "rename ", "remove "};
      heard->acts.push_back(words[static_cast<int>(act)] + heard->Relative(folder, name));
    };
    o.unresolved_name = [](void* self, const char* folder, const char* name, int error) {
      auto* heard = static_cast<Heard*>(self);
      EXPECT_TRUE(heard->unresolved.emplace(heard->Relative(folder, name), error).second);
    };
    return o;
  }
};

// What there is; what is not named may be anything.
struct There {
  std::optional<Names_> all = {};
  std::vector<std::pair<std::string, Identity>> is = {};
  std::map<std::string, std::string> holds = {};
};

class NamesReplayTest : public testing::Test {
 protected:
  explicit NamesReplayTest(Folder::Where where = Folder::kDisk, uint32_t commit = pool::kCommitOwn)
      : files_(where), commit_(commit) {}
  void SetUp() override {
    test::MakePool(pool_path_, pool::kMinPoolSize, commit_);
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
    pool_.MarkInUse();
    log_.emplace(pool_.view());
    umask(022);
  }

  std::string Path(const std::string& name) const { return files_ / name; }
  Identity Make(const std::string& name, const std::string& bytes = "") const {
    WriteFile(Path(name), bytes);
    return IdOf(Path(name));
  }
  Identity MakeFolder(const std::string& name, mode_t mode = 0755) const {
    EXPECT_EQ(mkdir(Path(name).c_str(), mode), 0);
    return IdOf(Path(name));
  }
  std::string Read(const std::string& name) const { return ReadFile(Path(name)); }
  bool Is(const std::string& name, const Identity& file) const {
    return Exists(Path(name)) && pool::SameIdentity(IdOf(Path(name)), file);
  }
  void Rename(const std::string& from, const std::string& to) {
    ASSERT_EQ(rename(Path(from).c_str(), Path(to).c_str()), 0);
  }
  void Link(const std::string& from, const std::string& to) {
    ASSERT_EQ(link(Path(from).c_str(), Path(to).c_str()), 0);
  }
  void Unlink(const std::string& name) { ASSERT_EQ(remove(Path(name).c_str()), 0); }

  // The names of all that is there, sorted.
  std::vector<std::string> All() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(files_.path())) {
      all.push_back(entry.path().string().substr(files_.path().size() + 1));
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  // ---- What the program has logged
  struct Said {
    Deed deed = Deed::kCreated;
    Identity file = {};
    std::string name = {};  // "" for none
    std::string from = {};
    Identity other = {};
    uint32_t flags = 0;
    uint32_t set = 0;
    std::string target = {};
    struct stat st = {};
  };
  pool::NameRecord RecordOf(const Said& said) const {
    pool::NameRecord record = {};
    struct statfs fs;
    const std::string where = said.name.empty() ? said.target : Path(said.name);
    EXPECT_EQ(statfs(where.empty() ? files_.path().c_str() : FolderOf(where).c_str(), &fs), 0);
    std::memcpy(&record.file_system, &fs.f_fsid, sizeof(record.file_system));
    record.file_system += moved_;
    record.device = StatOf(files_.path()).st_dev;
    record.deed = said.deed;
    record.flags = said.flags;
    record.set = said.set;
    record.mode = said.st.st_mode;
    record.uid = said.st.st_uid;
    record.gid = said.st.st_gid;
    record.access_seconds = said.st.st_atim.tv_sec;
    record.access_nanoseconds = static_cast<uint32_t>(said.st.st_atim.tv_nsec);
    record.change_seconds = said.st.st_mtim.tv_sec;
    record.change_nanoseconds = static_cast<uint32_t>(said.st.st_mtim.tv_nsec);
    record.file = said.file;
    record.other = said.other;
    const std::string folder = said.name.empty() ? "" : FolderOf(Path(said.name));
    const std::string from = said.from.empty() ? "" : FolderOf(Path(said.from));
    if (!folder.empty()) record.folder = IdOf(folder);
    if (!from.empty()) record.from_folder = IdOf(from);
    size_t end = 0;
    using R = pool::NameRecord;
    pool::AddText(&record, &R::name_length, NameOf(said.name).c_str(), &end);
    pool::AddText(&record, &R::from_length, NameOf(said.from).c_str(), &end);
    pool::AddText(&record, &R::target_length, said.target.c_str(), &end);
    pool::AddText(&record, &R::folder_path_length, folder.c_str(), &end);
    pool::AddText(&record, &R::from_folder_path_length, from.c_str(), &end);
    EXPECT_TRUE(pool::IsNameRecord(record, pool::NameRecordSize(record)));
    return record;
  }
  Lsn Log(const Said& said) {
    return log_->Add(test::Names(RecordOf(said)), LogBuilder::kCommit, kLog).lsn;
  }
  // What was just made.
  Identity Created(const std::string& name) {
    Said said = {.deed = Deed::kCreated, .file = IdOf(Path(name)), .name = name};
    said.st = StatOf(Path(name));
    if (S_ISLNK(said.st.st_mode)) said.target = std::filesystem::read_symlink(Path(name));
    Log(said);
    return said.file;
  }
  Identity MakeCreated(const std::string& name) {
    Make(name);
    return Created(name);
  }
  Identity CreateFolder(const std::string& name, mode_t mode = 0755) {
    MakeFolder(name, mode);
    return Created(name);
  }
  Identity MakeWritten(uint32_t number, const std::string& name, const std::string& bytes) {
    const Identity file = MakeCreated(name);
    Wrote(number, name, bytes);
    return file;
  }
  void Renames(const Identity& file, const std::string& from, const std::string& to,
               const Identity& other = {}, Deed deed = Deed::kRenames) {
    Log({.deed = deed,
         .file = file,
         .name = to,
         .from = from,
         .other = other,
         .flags = pool::IsNone(other) ? 0 : pool::kNameGone});
  }
  void Renamed(const Identity& file, const std::string& from, const std::string& to,
               const Identity& other = {}) {
    Renames(file, from, to, other);
    Renames(file, from, to, other, Deed::kRenamed);
  }
  // An empty folder.
  void Moves(const Identity& folder, const std::string& from, const std::string& to,
             Deed deed = Deed::kRenames) {
    Said said = {.deed = deed, .file = folder, .name = to, .from = from};
    said.st.st_mode = S_IFDIR;
    Log(said);
  }
  void Moved(const Identity& folder, const std::string& from, const std::string& to) {
    Moves(folder, from, to);
    Moves(folder, from, to, Deed::kRenamed);
  }
  void Removes(const Identity& file, const std::string& name, uint32_t flags = pool::kNameGone) {
    Log({.deed = Deed::kRemoves, .file = file, .name = name, .flags = flags});
  }
  void Removed(const Identity& file, const std::string& name, uint32_t flags = pool::kNameGone) {
    Removes(file, name, flags);
    Log({.deed = Deed::kRemoved, .file = file, .name = name, .flags = flags});
  }
  void Linked(const Identity& file, const std::string& from, const std::string& to,
              uint32_t flags = 0) {
    Log({.deed = Deed::kLinks, .file = file, .name = to, .from = from, .flags = flags});
    Log({.deed = Deed::kLinked, .file = file, .name = to, .from = from, .flags = flags});
  }
  Lsn Attributes(const std::string& name, uint32_t set, const std::string& path = "") {
    return Log({.deed = Deed::kAttributes,
                .file = IdOf(Path(name)),
                .set = set,
                .target = path,
                .st = StatOf(Path(name))});
  }
  // Bytes of the file that has the name now.
  Lsn Wrote(uint32_t number, const std::string& name, const std::string& bytes) {
    log_->Name(number, test::RecordOf(Path(name)));
    return log_->Add(Data(number, 0, bytes), LogBuilder::kCommit, kLog).lsn;
  }

  // ---- Recovery
  void Reboot() { pool_.view().state()->boot[3] ^= 1; }
  bool Run(const Options& options = {}) {
    heard_ = Heard(files_.path());
    return Replay(pool_, options, heard_.observer(), &summary_);
  }
  void Expect(const There& there, const test::Caller& /*caller*/ = test::Caller()) const {
    const std::vector<std::string> all = All();
    EXPECT_EQ(all, there.all.value_or(all));
    for (const auto& [name, file] : there.is) EXPECT_TRUE(Is(name, file)) << name;
    for (const auto& [name, bytes] : there.holds) EXPECT_EQ(Read(name), bytes) << name;
  }
  // After a power failure: all is well, and another run has nothing to do.
  void ExpectRecovered(const There& there = {}, const test::Caller& caller = test::Caller()) {
    Reboot();
    ExpectRecoveredNow(there, caller);
  }
  // Or it is not.
  void ExpectUnresolved(const Unresolved& unresolved, const There& there = {},
                        const test::Caller& caller = test::Caller()) {
    Reboot();
    EXPECT_FALSE(Run());
    EXPECT_EQ(heard_.unresolved, unresolved);
    Expect(there, caller);
  }
  void ExpectRecoveredNow(const There& there, const test::Caller& caller = test::Caller()) {
    EXPECT_TRUE(Run());
    EXPECT_EQ(heard_.unresolved, (std::map<std::string, int>{}));
    ExpectNoSafeNames();
    EXPECT_FALSE(pool_.dirty());
    const std::vector<std::string> before = All();
    EXPECT_TRUE(Run());
    EXPECT_FALSE(summary_.was_dirty);
    EXPECT_EQ(All(), before);
    Expect(there, caller);
  }
  void ExpectNoSafeNames() const {
    for (const std::string& name : All()) EXPECT_EQ(name.find(".nvcache-"), name.npos) << name;
  }

  Folder memory_{Folder::kMemory};
  Folder files_;
  const uint32_t commit_;
  const std::string pool_path_ = memory_ / "pool";
  ScopedPool pool_;
  std::optional<LogBuilder> log_;
  Heard heard_{""};
  Summary summary_;
  uint64_t moved_ = 0;  // file systems have had other numbers
};

// ------------------------------------------------------------------------------------------ Births

TEST_F(NamesReplayTest, WhatWasBornAndIsLostIsMadeAgain) {
  Make("a");
  chmod(Path("a").c_str(), 0640);
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown(Path("a").c_str(), 12, 34), 0);
  }
  const Identity lost = Created("a");
  Wrote(0, "a", "bytes");
  Unlink("a");
  ExpectRecovered({.holds = {{"a", "bytes"}}});
  const struct stat st = StatOf(Path("a"));
  EXPECT_EQ(st.st_mode, S_IFREG | 0640u);
  if (root) {
    EXPECT_EQ(st.st_uid * 100 + st.st_gid, 1234u);
  }
  EXPECT_FALSE(Is("a", lost));
  EXPECT_EQ(All(), Names_{"a"});
}

TEST_F(NamesReplayTest, WhatIsThereStays) {
  const Identity a = MakeWritten(0, "a", "bytes");
  ExpectRecovered({.is = {{"a", a}}, .holds = {{"a", "bytes"}}});
  EXPECT_EQ(summary_.names, 0u);
}

// It got bytes past the logs.
TEST_F(NamesReplayTest, WhatIsNotWholeIsNotMade) {
  MakeCreated("a");
  const Lsn lsn = Wrote(0, "a", "bytes");
  log_->Add(test::Settled(0, lsn + 1), LogBuilder::kCommit, kLog);
  Unlink("a");
  ExpectUnresolved({{"a", ENOENT}});
  EXPECT_FALSE(Exists(Path("a")));
  EXPECT_TRUE(pool_.dirty());
  EXPECT_TRUE(Run({.discard = true}));
  EXPECT_FALSE(pool_.dirty());
}

TEST_F(NamesReplayTest, FoldersAndLinksAreMadeAgain) {
  CreateFolder("d", 0750);
  CreateFolder("d/e", 0700);
  MakeWritten(0, "d/e/file", "bytes");
  symlink("../e/file", Path("d/e/link").c_str());
  Created("d/e/link");
  std::filesystem::remove_all(Path("d"));
  ExpectRecovered(
      {.all = Names_{"d", "d/e", "d/e/file", "d/e/link"}, .holds = {{"d/e/link", "bytes"}}});
  EXPECT_EQ(StatOf(Path("d")).st_mode, S_IFDIR | 0750u);
  EXPECT_EQ(std::filesystem::read_symlink(Path("d/e/link")), "../e/file");
}

// A pool that comes from its mirror's servers, and may come once more: what recovery has noted in
// it is gone then.
class MirroredNamesReplayTest : public NamesReplayTest {
 protected:
  MirroredNamesReplayTest() : NamesReplayTest(Folder::kDisk, pool::kCommitFsync) {}

  void Save() { saved_.assign(pool_.view().base, pool_.view().base + pool::kMinPoolSize); }
  void ComeAgain() const {
    std::memcpy(static_cast<void*>(pool_.view().base), saved_.data(), saved_.size());
  }
  // A file that is made from now on is younger than all that there are.
  void AwaitTick() const {
    const auto birth = [this] {
      const Identity made = Make("tick");
      EXPECT_EQ(unlink(Path("tick").c_str()), 0);
      return std::pair(made.birth_seconds, made.birth_nanoseconds);
    };
    const auto now = birth();
    while (birth() == now) continue;
  }
  bool SaysMade(const std::string& name) const {
    return getxattr(Path(name).c_str(), "user.nvcache.made", nullptr, 0) > 0;
  }

  std::vector<uint8_t> saved_;
};

TEST_F(MirroredNamesReplayTest, WhatWasMadeIsKnownWhenThePoolComesAgain) {
  CreateFolder("d", 0750);
  CreateFolder("d/e", 0700);
  MakeWritten(0, "d/e/file", "bytes");
  Make("d/closed");
  chmod(Path("d/closed").c_str(), 0400);
  Created("d/closed");
  symlink("../e/file", Path("d/e/link").c_str());
  Created("d/e/link");
  std::filesystem::remove_all(Path("d"));
  Reboot();
  Save();
  const There there = {.all = Names_{"d", "d/closed", "d/e", "d/e/file", "d/e/link"},
                       .holds = {{"d/e/file", "bytes"}}};
  ExpectRecoveredNow(there);
  if (!SaysMade("d/e/file")) GTEST_SKIP() << "the file system has no extended attributes";
  EXPECT_TRUE(SaysMade("d"));
  EXPECT_TRUE(SaysMade("d/closed"));
  const std::vector<Identity> made = {IdOf(Path("d")), IdOf(Path("d/e/file")),
                                      IdOf(Path("d/e/link"))};
  for (int i = 0; i < 2; ++i) {
    ComeAgain();
    ExpectRecoveredNow(there);
    EXPECT_EQ(summary_.names, 0u);
    EXPECT_TRUE(Is("d", made[0]) && Is("d/e/file", made[1]) && Is("d/e/link", made[2]));
  }
}

// The first recovery has come as far as a safe name, and some bytes.
TEST_F(MirroredNamesReplayTest, WhatHasASafeNameIsKnownAsWell) {
  const Identity lost = MakeWritten(0, "a", "bytes");
  Unlink("a");
  Reboot();
  Save();
  ExpectRecoveredNow({.all = Names_{"a"}, .holds = {{"a", "bytes"}}});
  if (!SaysMade("a")) GTEST_SKIP() << "the file system has no extended attributes";
  Rename("a", ".nvcache-" + std::to_string(pool::Fingerprint(lost)));
  ComeAgain();
  ExpectRecoveredNow({.all = Names_{"a"}, .holds = {{"a", "bytes"}}});
}

TEST_F(MirroredNamesReplayTest, SomebodysFileIsNotTakenForIt) {
  Make("b", "another's");
  AwaitTick();
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  Rename("b", "a");
  ExpectUnresolved({{"a", EEXIST}}, {.holds = {{"a", "another's"}}});
}

TEST_F(NamesReplayTest, APoolOfItsOwnLeavesNoAttribute) {
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  ExpectRecovered({.holds = {{"a", "bytes"}}});
  EXPECT_LT(getxattr(Path("a").c_str(), "user.nvcache.made", nullptr, 0), 0);
}

// ----------------------------------------------------------------------------------------- Renames

// `new`, which was born in the log or not, replaced `old`. What of it the file system has kept.
class RenameTest : public NamesReplayTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    NamesReplayTest::SetUp();
    Make("old", "old");
    old_ = IdOf(Path("old"));
    if (GetParam()) {
      new_ = MakeCreated("new");
    } else {
      Make("new", "...");
      new_ = IdOf(Path("new"));
    }
    Wrote(0, "new", "new");
    Renamed(new_, "new", "old", old_);
  }
  void Expect() { ExpectRecovered({.all = Names_{"old"}, .holds = {{"old", "new"}}}); }
  Identity old_, new_;
};
INSTANTIATE_TEST_SUITE_P(Born, RenameTest, testing::Bool());

TEST_P(RenameTest, All) {
  Rename("new", "old");
  Expect();
  EXPECT_TRUE(Is("old", new_));
}
TEST_P(RenameTest, Nothing) {
  Expect();
  EXPECT_TRUE(Is("old", new_));
}
TEST_P(RenameTest, BothNames) {
  Unlink("old");
  Link("new", "old");
  Expect();
  EXPECT_TRUE(Is("old", new_));
}
TEST_P(RenameTest, TheFileIsLost) {
  Unlink("new");
  if (GetParam()) {
    Expect();
    return;
  }
  Reboot();
  EXPECT_FALSE(Run());
  EXPECT_EQ(heard_.unresolved.count("old"), 1u);
  EXPECT_EQ(Read("old"), "old");
}
TEST_P(RenameTest, BothAreLost) {
  Unlink("new");
  Unlink("old");
  if (GetParam()) Expect();
}

TEST_F(NamesReplayTest, ToAFreeName) {
  const Identity a = Make("a", "a");
  Renamed(a, "a", "b");
  ExpectRecovered({.all = Names_{"b"}, .is = {{"b", a}}});
}

TEST_F(NamesReplayTest, FilesThatChangedTheirNames) {
  const Identity a = Make("a", "a"), b = Make("b", "b");
  Renamed(a, "a", "c");
  Renamed(b, "b", "a");
  Renamed(a, "c", "b");
  ExpectRecovered({.all = Names_{"a", "b"}, .is = {{"a", b}, {"b", a}}});
}

TEST_F(NamesReplayTest, BetweenFolders) {
  MakeFolder("d");
  MakeFolder("e");
  const Identity a = Make("d/a", "a");
  Wrote(0, "d/a", "A");
  Renamed(a, "d/a", "e/a");
  ExpectRecovered({.all = Names_{"d", "e", "e/a"}, .is = {{"e/a", a}}});
  EXPECT_EQ(Read("e/a"), "A") << "its record has the old path";
}

// ---------------------------------------------------------------------------------------- Removals

TEST_F(NamesReplayTest, WhatWasRemovedAndIsBackGoes) {
  const Identity a = Make("a", "a");
  Wrote(0, "a", "bytes");
  Removed(a, "a");
  ExpectRecovered({.all = Names_{}});
}

TEST_F(NamesReplayTest, ABirthAndADeath) {
  const Identity a = MakeWritten(0, "a", "bytes");
  Removed(a, "a");
  Unlink("a");
  ExpectRecovered({.all = Names_{}});
  EXPECT_EQ(summary_.unresolved_files, 0u);
}

// Another file has taken the name since.
TEST_F(NamesReplayTest, OnlyTheFileThatWasRemovedGoes) {
  const Identity a = Make("a", "a");
  Removed(a, "a");
  Unlink("a");
  Make("a", "somebody's");
  ExpectRecovered({.holds = {{"a", "somebody's"}}});
}

// Nor a file that the log knows, but not as one that had this name.
TEST_F(NamesReplayTest, OnlyFromTheFileThatHadIt) {
  Removed(Make("a", "a"), "a");
  Unlink("a");
  const Identity b = Make("b", "b");
  Linked(b, "b", "c");
  Link("b", "c");
  Link("b", "a");  // by somebody
  ExpectRecovered({.is = {{"a", b}, {"b", b}, {"c", b}}});
}

TEST_F(NamesReplayTest, OneOfTwoNames) {
  Make("a", "a");
  Link("a", "b");
  const Identity a = IdOf(Path("a"));
  Removed(a, "a", pool::kNameHasOthers);
  ExpectRecovered({.all = Names_{"b"}});
}

// The other name is not there, after all.
TEST_F(NamesReplayTest, TheLastNameStays) {
  Removed(Make("a", "a"), "a", pool::kNameHasOthers);
  ExpectRecovered({.all = Names_{"a"}});
}

TEST_F(NamesReplayTest, ALinkIsLost) {
  const Identity a = Make("a", "a");
  Linked(a, "a", "b");
  ExpectRecovered({.is = {{"a", a}, {"b", a}}});
}

TEST_F(NamesReplayTest, ALinkOfASymbolicLink) {
  symlink("nowhere", Path("a").c_str());
  const Identity a = IdOf(Path("a"));
  Renamed(a, "a", "b");
  ExpectRecovered({.all = Names_{"b"}, .is = {{"b", a}}});
}

TEST_F(NamesReplayTest, AFolderThatIsBackGoes) {
  MakeFolder("d");
  Make("d/a", "a");
  const Identity d = IdOf(Path("d"));
  Removed(IdOf(Path("d/a")), "d/a");
  Removed(d, "d");
  ExpectRecovered({.all = Names_{}});
}

TEST_F(NamesReplayTest, AFolderWithSomebodysFileStays) {
  const Identity d = MakeFolder("d");
  Removed(d, "d");
  Make("d/somebody's");
  ExpectRecovered({.all = Names_{"d", "d/somebody's"}});
}

TEST_F(NamesReplayTest, AFolderIsReplacedByAnother) {
  MakeFolder("d");
  Removed(Make("d/a", "a"), "d/a");
  Removed(IdOf(Path("d")), "d");
  Rename("d", "aside");
  CreateFolder("d", 0700);
  MakeWritten(0, "d/b", "b");
  std::filesystem::remove_all(Path("d"));
  Rename("aside", "d");  // that is all that the file system has kept
  ExpectRecovered({.all = Names_{"d", "d/b"}, .holds = {{"d/b", "b"}}});
}

// A file in a folder that has to give its name away is older than that, and has to give a name away
// itself: so there is a safe name in a folder with a safe name.
TEST_F(NamesReplayTest, AFolderIsReplacedAndHasHadAnOlderFile) {
  const Identity file = MakeCreated("a");
  const Identity d = CreateFolder("d");
  Renamed(file, "a", "d/a");
  Rename("a", "d/a");
  Renamed(file, "d/a", "b");
  Removed(d, "d");
  Rename("d", "aside");
  CreateFolder("d", 0700);
  Unlink("d");
  Rename("aside", "d");
  ExpectRecovered({.is = {{"b", file}}});
  EXPECT_FALSE(Is("d", d));
  EXPECT_EQ(All(), (Names_{"b", "d"}));
}

// ---------------------------------------------------------------------------------- Folders move

// dpkg makes a folder, gives it its name, and then puts files into it. `GetParam()`: how much of
// that the file system has kept.
class FolderMoveTest : public NamesReplayTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Kept, FolderMoveTest, testing::Values(0, 1, 2, 3));

TEST_P(FolderMoveTest, ANewFolderHasItsLastName) {
  const Identity d = CreateFolder("d.new", 0750);
  Moved(d, "d.new", "d");
  Rename("d.new", "d");
  MakeWritten(0, "d/a", "bytes");
  if (GetParam() < 3) Unlink("d/a");
  if (GetParam() < 2) Rename("d", "d.new");
  if (GetParam() < 1) Unlink("d.new");
  ExpectRecovered({.all = Names_{"d", "d/a"}, .holds = {{"d/a", "bytes"}}});
  EXPECT_EQ(StatOf(Path("d")).st_mode, S_IFDIR | 0750u);
}

// Whether it was moved, nothing tells, and so nothing depends on it.
TEST_P(FolderMoveTest, WhatIsAnnouncedIsUndone) {
  MakeFolder("d.new", 0750);
  Moves(Created("d.new"), "d.new", "d");
  if (GetParam() == 0) Unlink("d.new");
  if (GetParam() > 1) Rename("d.new", "d");
  ExpectRecovered({.all = Names_{"d.new"}});
}

TEST_P(FolderMoveTest, TwoChangePlaces) {
  for (const char* name : {"a", "b"}) mkdir(Path(name).c_str(), 0750);
  const Identity a = IdOf(Path("a")), b = IdOf(Path("b"));
  Moved(a, "a", "c");
  Rename("a", "c");
  Moved(b, "b", "a");
  Rename("b", "a");
  Moved(a, "c", "b");
  Rename("c", "b");
  MakeCreated("a/of b");
  if (GetParam() < 3) Rename("b", "c");
  if (GetParam() < 2) Rename("a", "b");
  if (GetParam() < 1) Rename("c", "a");
  ExpectRecovered({.all = Names_{"a", "a/of b", "b"}, .is = {{"a", b}, {"b", a}}});
}

// A file that was removed had the name, and then the name is another file's.
TEST_P(FolderMoveTest, ItsNamesAreFilesAsWell) {
  Make("b", "old");
  MakeFolder("a", 0750);
  const Identity a = IdOf(Path("a")), b = IdOf(Path("b"));
  Removed(b, "b");
  Rename("b", "c");
  Moved(a, "a", "b");
  Rename("a", "b");
  MakeCreated("a");
  if (GetParam() < 3) Unlink("a");
  if (GetParam() < 2) Rename("b", "a");
  if (GetParam() < 1) Rename("c", "b");
  if (GetParam() > 0) Unlink("c");
  ExpectRecovered({.all = Names_{"a", "b"}, .is = {{"b", a}}, .holds = {{"a", ""}}});
}

TEST_F(NamesReplayTest, AFolderIsMadeAgainInOneThatIsYounger) {
  const Identity d = CreateFolder("d", 0750);
  CreateFolder("e", 0750);
  Moved(d, "d", "e/d");
  Rename("d", "e/d");
  CreateFolder("e/d/f", 0750);
  std::filesystem::remove_all(Path("e"));
  ExpectRecovered({.all = Names_{"e", "e/d", "e/d/f"}});
}

TEST_F(NamesReplayTest, AFolderKeepsItsNameWhereItsLastOneCannotBe) {
  for (const char* name : {"a", "gone"}) mkdir(Path(name).c_str(), 0750);
  const Identity a = IdOf(Path("a"));
  Moved(a, "a", "gone/a");
  std::filesystem::remove(Path("gone"));
  ExpectUnresolved({{"gone/a", ENOTDIR}}, {.all = Names_{"a"}, .is = {{"a", a}}});
}

TEST_F(NamesReplayTest, AFolderThatMovesIsToldOnce) {
  MakeFolder("d.new", 0750);
  Moved(IdOf(Path("d.new")), "d.new", "d");
  Reboot();
  for (const bool dry_run : {true, false}) {
    EXPECT_EQ(Run({.dry_run = dry_run}), !dry_run);
    EXPECT_EQ(heard_.acts, Names_{"rename d"});
  }
}

// ----------------------------------------------------------------------------------- Announcements

TEST_F(NamesReplayTest, AnAnnouncedRenameIsNotDone) {
  Make("a", "a");
  Make("b", "b");
  Link("b", "c");
  const Identity a = IdOf(Path("a")), b = IdOf(Path("b"));
  Renames(a, "a", "b", b);
  Rename("a", "b");
  Linked(b, "c", "d");  // what comes after says that the call had failed
  ExpectRecovered();
  EXPECT_TRUE(Is("b", a)) << "the announcement counts as nothing";
}

TEST_F(NamesReplayTest, TheLastAnnouncementIsUndone) {
  Make("a", "a");
  Make("b", "b");
  Link("b", "c");
  const Identity a = IdOf(Path("a")), b = IdOf(Path("b"));
  Linked(b, "b", "c");
  Renames(a, "a", "b", b);
  Rename("a", "b");
  ExpectRecovered({.is = {{"a", a}, {"b", b}, {"c", b}}});
}

TEST_F(NamesReplayTest, TheNameWasFreeAndIsAgain) {
  const Identity a = Make("a", "a");
  Renames(a, "a", "b");
  Rename("a", "b");
  ExpectRecovered({.all = Names_{"a"}, .is = {{"a", a}}});
}

TEST_F(NamesReplayTest, ARenameOfWhichNothingIsLeftIsDone) {
  const Identity a = Make("a", "a"), b = Make("b", "b");
  Renames(a, "a", "b", b);
  Rename("a", "b");
  ExpectRecovered({.all = Names_{"b"}, .is = {{"b", a}}});
}

TEST_F(NamesReplayTest, WhatItDestroysIsMadeAgain) {
  const Identity a = Make("a", "a");
  const Identity b = MakeWritten(0, "b", "bytes");
  Renames(a, "a", "b", b);
  Rename("a", "b");
  ExpectRecovered({.is = {{"a", a}}, .holds = {{"b", "bytes"}}});
}

TEST_F(NamesReplayTest, AnAnnouncedRemoval) {
  Removes(Make("a", "a"), "a");
  Unlink("a");
  ExpectRecovered({.all = Names_{}});
}

TEST_F(NamesReplayTest, AnAnnouncedRemovalOfWhatWasBorn) {
  const Identity a = MakeWritten(0, "a", "bytes");
  Removes(a, "a");
  Unlink("a");
  ExpectRecovered({.holds = {{"a", "bytes"}}});
}

// Made again, it would have none of the bytes that went past the logs, and reached the disk.
TEST_F(NamesReplayTest, AnAnnouncedRemovalOfWhatCannotBeMadeWhole) {
  const Identity a = MakeCreated("a");
  Removes(a, "a", pool::kNameGone | pool::kNameLacks);
  ExpectRecovered();
  EXPECT_TRUE(Is("a", a)) << "it is there";
  Unlink("a");
  ExpectRecovered({.all = Names_{}});
}

TEST_F(NamesReplayTest, AnAnnouncedRenameOverWhatCannotBeMadeWhole) {
  Make("a", "a");
  const Identity a = IdOf(Path("a")), b = MakeCreated("b");
  Log({.deed = Deed::kRenames,
       .file = a,
       .name = "b",
       .from = "a",
       .other = b,
       .flags = pool::kNameGone | pool::kNameLacks});
  Rename("a", "b");
  ExpectRecovered({.all = Names_{"b"}, .is = {{"b", a}}});
}

// ---------------------------------------------------------------------------------------- Somebody

TEST_F(NamesReplayTest, WhatSomebodyHasMovedStays) {
  if (geteuid() != 0) GTEST_SKIP() << "it is found by its handle";
  const Identity a = MakeWritten(0, "a", "bytes");
  Rename("a", "moved");
  ExpectRecovered({.all = Names_{"moved"}, .is = {{"moved", a}}, .holds = {{"moved", "bytes"}}});
}

TEST_F(NamesReplayTest, AFileInTheWayStays) {
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  Make("a", "somebody's");
  const Identity b = Make("b", "b");
  Renamed(b, "b", "c");
  ExpectUnresolved({{"a", EEXIST}});
  EXPECT_EQ(heard_.acts, (Acts{"rename c", "remove b"})) << "the rest is done";
  EXPECT_EQ(summary_.unresolved_names, 1u);
  Expect({.is = {{"c", b}}, .holds = {{"a", "somebody's"}}});
  EXPECT_TRUE(pool_.dirty());
  // That one gives way.
  Rename("a", "aside");
  EXPECT_TRUE(Run());
  EXPECT_EQ(Read("a"), "bytes");
  EXPECT_FALSE(pool_.dirty());
  ExpectNoSafeNames();
}

TEST_F(NamesReplayTest, WithoutTheFolder) {
  MakeFolder("d");
  MakeCreated("d/a");
  std::filesystem::remove_all(Path("d"));
  ExpectUnresolved({{"d/a", ENOTDIR}});
  EXPECT_TRUE(Run({.discard = true}));
  EXPECT_FALSE(pool_.dirty());
}

// As long as something is unresolved, a file that was made again can be made once more.
TEST_F(NamesReplayTest, WhatWasBornStaysInTheLog) {
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  MakeCreated("b");
  Unlink("b");
  Make("b", "somebody's");
  Reboot();
  EXPECT_FALSE(Run());
  EXPECT_EQ(Read("a"), "bytes");
  Unlink("a");  // a power failure
  Unlink("b");
  EXPECT_TRUE(Run());
  Expect({.all = Names_{"a", "b"}, .holds = {{"a", "bytes"}}});
}

// Of what a run has made, the power failure after it may leave the file without its mode.
TEST_F(NamesReplayTest, WhatWasMadeHasItsModeBeforeItsName) {
  Make("a");
  chmod(Path("a").c_str(), 0640);
  const std::string safe = ".nvcache-" + std::to_string(pool::Fingerprint(Created("a")));
  Unlink("a");
  MakeCreated("b");
  Unlink("b");
  Make("b", "somebody's");
  Reboot();
  EXPECT_FALSE(Run());
  EXPECT_EQ(StatOf(Path("a")).st_mode, S_IFREG | 0640u);
  Rename("a", safe);
  chmod(Path(safe).c_str(), 0600);
  Unlink("b");
  EXPECT_TRUE(Run());
  EXPECT_EQ(StatOf(Path("a")).st_mode, S_IFREG | 0640u);
  ExpectNoSafeNames();
}

// A safe name with bytes in it is not one that was made in vain.
TEST_F(NamesReplayTest, ASafeNameThatSomebodyHas) {
  const Identity a = MakeCreated("a");
  Unlink("a");
  const std::string safe = ".nvcache-" + std::to_string(pool::Fingerprint(a));
  Make(safe, "somebody's");
  ExpectUnresolved({{"a", EEXIST}});
  EXPECT_EQ(Read(safe), "somebody's");
}

// -------------------------------------------------------------------------------------- Attributes

TEST_F(NamesReplayTest, TheLastAttributes) {
  Make("a", "....");
  MakeFolder("d");
  chmod(Path("a").c_str(), 0600);
  Attributes("a", pool::kSetMode);
  chmod(Path("a").c_str(), 0751);
  Attributes("a", pool::kSetMode, Path("a"));
  chmod(Path("d").c_str(), 0710);
  Attributes("d", pool::kSetMode, Path("d"));
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown(Path("a").c_str(), 12, 34), 0);
    Attributes("a", pool::kSetOwner);
  }
  Wrote(0, "a", "byte");
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  utimensat(AT_FDCWD, Path("a").c_str(), times, 0);
  Attributes("a", pool::kSetTimes);
  chmod(Path("a").c_str(), 0644);
  chmod(Path("d").c_str(), 0755);
  if (root) {
    ASSERT_EQ(chown(Path("a").c_str(), 0, 0), 0);
  }
  utimensat(AT_FDCWD, Path("a").c_str(), nullptr, 0);
  ExpectRecovered();
  const struct stat st = StatOf(Path("a"));
  EXPECT_EQ(st.st_mode, S_IFREG | 0751u);
  EXPECT_EQ(StatOf(Path("d")).st_mode, S_IFDIR | 0710u);
  if (root) {
    EXPECT_EQ(st.st_uid * 100 + st.st_gid, 1234u);
  }
  EXPECT_EQ(st.st_mtim.tv_sec, 2000);
  EXPECT_EQ(st.st_mtim.tv_nsec, 2);
  EXPECT_EQ(Read("a"), "byte");
}

// A file is given away in a call that is in no record, and the file system has kept it.
TEST_F(NamesReplayTest, ALaterOwnerGetsNoSetUserId) {
  if (geteuid() != 0) GTEST_SKIP() << "nobody may give files away";
  MakeFolder("d");
  for (const char* name : {"a", "b", "c"}) Make(name, "....");
  const std::pair<const char*, mode_t> modes[] = {
      {"a", 06755}, {"b", 02644}, {"c", 06755}, {"d", 03775}};
  for (const auto& [name, mode] : modes) {
    chmod(Path(name).c_str(), mode);
    Attributes(name, pool::kSetMode, Path(name));
    const bool given = *name == 'c' || chown(Path(name).c_str(), 12, 34) == 0;
    EXPECT_TRUE(given);
  }
  ExpectRecovered();
  EXPECT_EQ(StatOf(Path("a")).st_mode, S_IFREG | 0755u);
  EXPECT_EQ(StatOf(Path("b")).st_mode, S_IFREG | 02644u) << "it is no set-group-ID";
  EXPECT_EQ(StatOf(Path("c")).st_mode, S_IFREG | 06755u) << "nobody has given it away";
  EXPECT_EQ(StatOf(Path("d")).st_mode, S_IFDIR | 03775u);
}

TEST_F(NamesReplayTest, TimesBeforeTheLastBytesAreOld) {
  Make("a", "....");
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  utimensat(AT_FDCWD, Path("a").c_str(), times, 0);
  Attributes("a", pool::kSetTimes, Path("a"));
  Wrote(0, "a", "byte");
  ExpectRecovered();
  EXPECT_GT(StatOf(Path("a")).st_mtim.tv_sec, 2000);
  EXPECT_EQ(StatOf(Path("a")).st_atim.tv_sec, 1000);
}

// Others may have been set since then by a call that is in no record, and synced.
TEST_F(NamesReplayTest, AttributesBeforeTheLastSyncDoNotCount) {
  for (const char* name : {"a", "b"}) Make(name, "....");
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  utimensat(AT_FDCWD, Path("a").c_str(), times, 0);
  Attributes("a", pool::kSetTimes, Path("a"));
  chmod(Path("a").c_str(), 0600);
  chmod(Path("b").c_str(), 0600);
  Attributes("b", pool::kSetMode, Path("b"));
  const Lsn last = Attributes("a", pool::kSetMode);
  log_->Name(0, test::RecordOf(Path("a")));
  log_->Add(test::Settled(0, last + 1), LogBuilder::kCommit, kLog);
  const timespec later[2] = {{3000, 1}, {4000, 2}};
  utimensat(AT_FDCWD, Path("a").c_str(), later, 0);
  chmod(Path("a").c_str(), 0640);
  chmod(Path("b").c_str(), 0644);
  ExpectRecovered();
  EXPECT_EQ(StatOf(Path("a")).st_mode, S_IFREG | 0640u);
  EXPECT_EQ(StatOf(Path("a")).st_mtim.tv_sec, 4000);
  EXPECT_EQ(StatOf(Path("b")).st_mode, S_IFREG | 0600u) << "another file's";
}

TEST_F(NamesReplayTest, AttributesAfterTheLastSyncCount) {
  Make("a", "....");
  chmod(Path("a").c_str(), 0600);
  const Lsn last = Attributes("a", pool::kSetMode, Path("a"));
  log_->Name(0, test::RecordOf(Path("a")));
  log_->Add(test::Settled(0, last), LogBuilder::kCommit, kLog);
  chmod(Path("a").c_str(), 0644);
  ExpectRecovered();
  EXPECT_EQ(StatOf(Path("a")).st_mode, S_IFREG | 0600u);
}

TEST_F(NamesReplayTest, AttributesOfWhatIsMadeAgain) {
  CreateFolder("d");
  MakeCreated("d/a");
  chmod(Path("d/a").c_str(), 0400);
  Attributes("d/a", pool::kSetMode);
  Wrote(0, "d/a", "bytes");
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  utimensat(AT_FDCWD, Path("d").c_str(), times, 0);
  chmod(Path("d").c_str(), 0500);
  Attributes("d", pool::kSetMode | pool::kSetTimes);
  chmod(Path("d").c_str(), 0700);
  std::filesystem::remove_all(Path("d"));
  ExpectRecovered();
  EXPECT_EQ(StatOf(Path("d")).st_mode, S_IFDIR | 0500u);
  EXPECT_EQ(StatOf(Path("d")).st_mtim.tv_sec, 2000);
  EXPECT_EQ(StatOf(Path("d/a")).st_mode, S_IFREG | 0400u);
  EXPECT_EQ(Read("d/a"), "bytes");
  chmod(Path("d").c_str(), 0700);
}

// A link is no change to the folder of the name that is there already. A rename is one to both.
TEST_F(NamesReplayTest, TheTimesOfAFolderBeforeANameOfItsFileIsMadeElsewhere) {
  CreateFolder("d");
  CreateFolder("e");
  const Identity a = MakeCreated("d/a");
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  for (const char* folder : {"d", "e"}) {
    utimensat(AT_FDCWD, Path(folder).c_str(), times, 0);
    Attributes(folder, pool::kSetTimes);
  }
  Linked(a, "d/a", "e/b");
  for (const char* folder : {"d", "e"}) utimensat(AT_FDCWD, Path(folder).c_str(), nullptr, 0);
  ExpectRecovered();
  EXPECT_EQ(All(), (Names_{"d", "d/a", "e", "e/b"}));
  EXPECT_EQ(StatOf(Path("d")).st_mtim.tv_sec, 2000);
  EXPECT_NE(StatOf(Path("e")).st_mtim.tv_sec, 2000);
}

// ---------------------------------------------------------------------------------------- The rest

TEST_F(NamesReplayTest, NothingIsDoneThatTheKernelHas) {
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  Removed(Make("b", "b"), "b");
  EXPECT_TRUE(Run());
  EXPECT_EQ(All(), Names_{"b"});
  EXPECT_EQ(heard_.acts, Acts{});
  EXPECT_FALSE(pool_.dirty());
}

// The kernel tells of an error once, and then that all is well.
TEST_F(NamesReplayTest, NorIsTheKernelBelievedOnceARecoveryHasHeardOfAnError) {
  MakeWritten(0, "a", "bytes");
  pool_.Close();
  test::TestInChild([&] {
    ASSERT_EQ(test::Forbid(SYS_syncfs, EIO), 0);
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
    EXPECT_FALSE(Run());
  });
  Unlink("a");  // as if the file system had dropped what it could not write
  ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
  EXPECT_TRUE(Run());
  EXPECT_EQ(Read("a"), "bytes");
}

TEST_F(NamesReplayTest, WhatIsBelowTheCheckpointIsOnTheDisk) {
  Removed(Make("a", "a"), "a");
  MakeCreated("b");
  Unlink("b");
  pool_.seats().next_lsn().store(log_->next_lsn());
  pool_.StoreThroughCheckpoint(log_->next_lsn());
  Renamed(Make("c", "c"), "c", "d");
  ExpectRecovered({.all = Names_{"a", "d"}});
}

TEST_F(NamesReplayTest, ADryRunOnlyTells) {
  CreateFolder("d");
  MakeWritten(0, "d/a", "bytes");
  std::filesystem::remove_all(Path("d"));
  const Identity b = Make("b", "b");
  Renamed(b, "b", "c");
  Linked(b, "c", "e");
  Removed(Make("f", "f"), "f");
  MakeCreated("g");
  Unlink("g");
  Make("g", "somebody's");
  Reboot();
  const std::vector<std::string> before = All();
  EXPECT_FALSE(Run({.dry_run = true}));
  std::sort(heard_.acts.begin(), heard_.acts.end());
  const Acts expected = {"create d", "create d/a", "remove b", "remove f", "rename c", "rename e"};
  EXPECT_EQ(heard_.acts, expected);
  EXPECT_EQ(heard_.unresolved, (Unresolved{{"g", EEXIST}}));
  EXPECT_EQ(All(), before);
  EXPECT_EQ(summary_.records, 1u);
  EXPECT_EQ(summary_.unresolved_records, 0u);
  EXPECT_FALSE(Run());
  std::sort(heard_.acts.begin(), heard_.acts.end());
  EXPECT_EQ(heard_.acts, expected) << "it has told the truth";
  EXPECT_EQ(Read("d/a"), "bytes");
}

// By names alone.
TEST_F(NamesReplayTest, WithoutHandles) {
  const Identity a = Make("a", "a"), b = Make("b", "b");
  MakeFolder("d");
  Renamed(a, "a", "d/a");
  Renamed(b, "b", "a");
  Wrote(0, "b", "B");
  MakeWritten(1, "c", "c");
  Unlink("c");
  Reboot();
  pool_.Close();
  test::TestInChild([&] {
    ASSERT_TRUE(test::GiveUp(CAP_DAC_READ_SEARCH) && test::OpenPool(pool_, pool_path_));
    EXPECT_TRUE(Run());
  });
  Expect({.all = Names_{"a", "c", "d", "d/a"},
          .is = {{"d/a", a}, {"a", b}},
          .holds = {{"a", "B"}, {"c", "c"}}});
}

// ------------------------------------------------------------ What the file system has done since

// With the right to open files by their handles, and without. A file system that has committed
// calls which the logs do not have is that one, as it was left.
class MovedNamesReplayTest : public MirroredNamesReplayTest,
                             public testing::WithParamInterface<bool> {
 protected:
  void ExpectKept(const There& there, const test::Caller& caller = test::Caller()) {
    Recover(true, {}, false);
    ExpectNoSafeNames();
    Expect(there, caller);
  }
  // Again, too: what the first run has changed tells the second one nothing. The bytes of the file
  // are missing as well (`bytes`).
  void ExpectMissing(const Unresolved& unresolved, bool bytes = true) {
    for (int i = 0; i < 2; ++i) Recover(false, unresolved, bytes);
  }
  // The file has a name that no log knows, d/x: by a handle it is found there.
  void ExpectFoundByHandle(const There& there) {
    if (GetParam()) {
      ExpectKept(there);
      EXPECT_EQ(Read("d/x"), "bytes");
    } else {
      ExpectMissing({});
      Expect(there);
    }
  }

 private:
  void Recover(bool clean, const Unresolved& unresolved, bool missing_bytes) {
    if (pool_.is_open()) {
      Reboot();
      pool_.Close();
    }
    test::TestInChild([&] {
      ASSERT_TRUE(GetParam() || test::GiveUp(CAP_DAC_READ_SEARCH));
      ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
      EXPECT_EQ(Run(), clean);
      EXPECT_EQ(heard_.unresolved, unresolved);
      EXPECT_EQ(summary_.unresolved_files != 0, missing_bytes);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(ByHandle, MovedNamesReplayTest, testing::Bool());

TEST_P(MovedNamesReplayTest, AFileWasMoved) {
  const Identity a = MakeWritten(0, "a", "bytes");
  Rename("a", "b");
  ExpectKept({.all = Names_{"b"}, .is = {{"b", a}}, .holds = {{"b", "bytes"}}});
}

TEST_P(MovedNamesReplayTest, AndAnotherOneMadeByItsOldName) {
  const Identity a = MakeWritten(0, "a", "bytes");
  Rename("a", "b");
  Make("a", "later");
  ExpectKept({.is = {{"b", a}}, .holds = {{"a", "later"}, {"b", "bytes"}}});
}

TEST_P(MovedNamesReplayTest, IntoAnotherFolderThatTheLogsKnow) {
  CreateFolder("d");
  MakeCreated("d/x");
  const Identity a = MakeWritten(0, "a", "bytes");
  Rename("a", "d/b");
  ExpectKept({.all = Names_{"d", "d/b", "d/x"}, .is = {{"d/b", a}}, .holds = {{"d/b", "bytes"}}});
}

// Without the right it is made again, with its bytes: it is not taken for removed.
TEST_P(MovedNamesReplayTest, IntoAFolderThatNoLogKnows) {
  MakeFolder("d");
  const Identity a = MakeWritten(0, "a", "bytes");
  Rename("a", "d/b");
  if (GetParam()) {
    ExpectKept({.all = Names_{"d", "d/b"}, .is = {{"d/b", a}}, .holds = {{"d/b", "bytes"}}});
  } else {
    ExpectKept({.all = Names_{"a", "d", "d/b"}, .is = {{"d/b", a}}, .holds = {{"a", "bytes"}}});
  }
}

TEST_P(MovedNamesReplayTest, AFileWasReplaced) {
  MakeWritten(0, "b", "old");
  const Identity a = MakeWritten(1, "a", "new");
  Rename("a", "b");
  ExpectKept({.all = Names_{"b"}, .is = {{"b", a}}, .holds = {{"b", "new"}}});
}

// One that cannot be made again.
TEST_P(MovedNamesReplayTest, AnOldFileWasReplaced) {
  const Identity c = Make("c", "old");
  Renamed(c, "c", "b");
  Rename("c", "b");
  Wrote(0, "b", "OLD");
  const Identity a = MakeWritten(1, "a", "new");
  Rename("a", "b");
  ExpectKept({.all = Names_{"b"}, .is = {{"b", a}}, .holds = {{"b", "new"}}});
}

TEST_P(MovedNamesReplayTest, OneAfterTheOther) {
  MakeWritten(0, "b", "old");
  MakeWritten(1, "a1", "first");
  const Identity a2 = MakeWritten(2, "a2", "second");
  Rename("a1", "b");
  Rename("a2", "b");
  ExpectKept({.is = {{"b", a2}}, .holds = {{"b", "second"}}});
  if (Exists(Path("a1"))) {
    EXPECT_EQ(Read("a1"), "first");
  }
}

TEST_P(MovedNamesReplayTest, TwoFilesHaveChangedTheirNames) {
  const Identity a = MakeWritten(0, "a", "A"), b = MakeWritten(1, "b", "B");
  Rename("a", "c");
  Rename("b", "a");
  Rename("c", "b");
  ExpectKept(
      {.all = Names_{"a", "b"}, .is = {{"a", b}, {"b", a}}, .holds = {{"a", "B"}, {"b", "A"}}});
}

TEST_P(MovedNamesReplayTest, TheReplacedFileWasMovedBefore) {
  const Identity b = MakeWritten(0, "b", "old");
  const Identity a = MakeWritten(1, "a", "new");
  Rename("b", "c");
  Rename("a", "b");
  ExpectKept(
      {.all = Names_{"b", "c"}, .is = {{"b", a}, {"c", b}}, .holds = {{"b", "new"}, {"c", "old"}}});
}

// The first is no longer at the name when the second takes it, whichever is found first.
TEST_P(MovedNamesReplayTest, TheReplacedFileIsYoungerAndWasMovedBefore) {
  const Identity a = Make("old_a", "a");
  AwaitTick();
  const Identity b = Make("old_b", "b");
  Renamed(a, "old_a", "a");
  Renamed(b, "old_b", "b");
  CreateFolder("d");
  Rename("old_b", "d/b");
  Rename("old_a", "b");
  ExpectKept({.all = Names_{"b", "d", "d/b"}, .is = {{"b", a}, {"d/b", b}}});
}

TEST_P(MovedNamesReplayTest, TheReplacedFileHasAnotherName) {
  const Identity b = MakeWritten(0, "b", "old");
  Linked(b, "b", "c");
  Link("b", "c");
  const Identity a = MakeWritten(1, "a", "new");
  Rename("a", "b");
  ExpectKept(
      {.all = Names_{"b", "c"}, .is = {{"b", a}, {"c", b}}, .holds = {{"b", "new"}, {"c", "old"}}});
}

TEST_P(MovedNamesReplayTest, TheReplacedFileHadAnotherNameThatIsLost) {
  const Identity b = MakeWritten(0, "b", "old");
  Linked(b, "b", "c");
  const Identity a = MakeWritten(1, "a", "new");
  Rename("a", "b");
  ExpectKept({.all = Names_{"b", "c"}, .is = {{"b", a}}, .holds = {{"b", "new"}, {"c", "old"}}});
}

// The logs have removed that one, and somebody has made it again.
TEST_P(MovedNamesReplayTest, TheReplacedFileHasItsFirstNameAgain) {
  const Identity b = MakeWritten(0, "first", "old");
  Renamed(b, "first", "b");
  Rename("first", "b");
  const Identity a = MakeWritten(1, "a", "new");
  Link("b", "first");
  Rename("a", "b");
  ExpectKept({.all = Names_{"b", "first"},
              .is = {{"b", a}, {"first", b}},
              .holds = {{"b", "new"}, {"first", "old"}}});
}

// Its path alone tells that it was the one. It was on the disk before, so without handles it may
// be anywhere.
TEST_P(MovedNamesReplayTest, AFileWithoutRecordsOfNamesWasReplaced) {
  Make("b", "old");
  Wrote(0, "b", "OLD");
  const Identity a = MakeWritten(1, "a", "new");
  Rename("a", "b");
  if (GetParam()) {
    ExpectKept({.all = Names_{"b"}, .is = {{"b", a}}, .holds = {{"b", "new"}}});
  } else {
    ExpectMissing({});
    Expect({.all = Names_{"b"}, .is = {{"b", a}}, .holds = {{"b", "new"}}});
  }
}

// So nobody has replaced it by that one: the disk is too old.
TEST_P(MovedNamesReplayTest, AFileWithoutRecordsOfNamesIsYoungerThanTheOneThatHasItsPath) {
  const Identity a = Make("b", "older");
  Linked(a, "b1", "b2");
  Wrote(1, "b", "OLDER");
  AwaitTick();
  Make("t", "younger");
  pool::FileRecord record = test::RecordOf(Path("t"));
  record.path[record.path_length - 1] = 'b';
  log_->Name(0, record);
  log_->Add(Data(0, 0, "YOUNGER"), LogBuilder::kCommit, kLog);
  Unlink("t");
  ExpectMissing({});
  EXPECT_TRUE(Is("b", a));
}

// It may have had it before: so it keeps the one that the logs have for it, too.
TEST_P(MovedNamesReplayTest, AFileWithNamesThatNoLogKnows) {
  const Identity a = Make("a", "a");
  Link("a", "x");
  Linked(a, "a", "b", pool::kNameHasOthers);
  Link("a", "b");
  Rename("b", "c");
  ExpectKept({.all = Names_{"a", "b", "c", "x"}, .is = {{"b", a}}});
}

// It has got that one later, for the logs know whose it was.
TEST_P(MovedNamesReplayTest, AFileWithNamesThatNoLogKnowsHasReplacedOne) {
  MakeWritten(0, "b", "old");
  const Identity a = Make("a", "a");
  Link("a", "x");
  Linked(a, "a", "c", pool::kNameHasOthers);
  Link("a", "c");
  Rename("c", "b");
  ExpectKept({.all = Names_{"a", "b", "x"}, .is = {{"a", a}, {"b", a}}});
}

TEST_P(MovedNamesReplayTest, ALinkWasMade) {
  const Identity a = MakeWritten(0, "a", "bytes");
  Link("a", "b");
  ExpectKept({.all = Names_{"a", "b"}, .is = {{"a", a}, {"b", a}}});
}

TEST_P(MovedNamesReplayTest, ALinkWasMadeAndAnotherFileMoved) {
  const Identity a = MakeWritten(0, "a", "a"), b = MakeWritten(1, "b", "b");
  Link("a", "l");
  Rename("b", "m");
  ExpectKept({.all = Names_{"a", "l", "m"}, .is = {{"a", a}, {"l", a}, {"m", b}}});
}

// It is no name that the logs do not know, so it is not a later one than the first.
TEST_P(MovedNamesReplayTest, ALinkWasAnnouncedAndARenameBeforeItIsLost) {
  const Identity a = Make("x", "a");
  Renamed(a, "x", "a");
  Log({.deed = Deed::kLinks, .file = a, .name = "b", .from = "a"});
  Link("x", "b");
  ExpectKept({.all = Names_{"a", "b"}, .is = {{"a", a}, {"b", a}}});
}

// What was announced last, and what came after it, which no log has.
TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedAndMade) {
  const Identity c = Make("c", "old");
  Wrote(0, "c", "OLD");
  Renames(c, "c", "b");
  Rename("c", "b");
  ExpectKept({.all = Names_{"b"}, .is = {{"b", c}}, .holds = {{"b", "OLD"}}});
}

// It may have had the name for that long, of a file system that is behind.
TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedToANameOfBefore) {
  const Identity c = Make("b", "old");
  Renamed(c, "b", "c");
  Renames(c, "c", "b");
  ExpectKept({.all = Names_{"c"}, .is = {{"c", c}}});
}

TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedAndHalfMade) {
  const Identity c = Make("c", "old");
  Renames(c, "c", "b");
  Link("c", "b");
  ExpectKept({.all = Names_{"c"}, .is = {{"c", c}}});
}

TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedAndAnotherFileHasTheOldName) {
  const Identity c = Make("b", "old"), s = MakeWritten(0, "s", "bytes");
  Rename("b", "c");
  Renamed(c, "b", "c");
  const Identity b = MakeWritten(1, "b", "replaced");
  Renames(c, "c", "b", b);
  Rename("c", "b");
  Rename("s", "c");
  ExpectKept({.all = Names_{"b", "c"}, .is = {{"b", c}, {"c", s}}});
}

TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedAndTheFileMovedOn) {
  MakeWritten(0, "b", "replaced");
  const Identity b = IdOf(Path("b"));
  const Identity c = Make("c", "old");
  Renames(c, "c", "b", b);
  Rename("c", "b");
  Rename("b", "x");
  ExpectKept({.all = Names_{"x"}, .is = {{"x", c}}});
}

TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedAndTheFileIsElsewhere) {
  const Identity c = Make("c", "old");
  Wrote(0, "c", "OLD");
  Renames(c, "c", "b");
  Rename("c", "x");
  ExpectKept({.all = Names_{"x"}, .is = {{"x", c}}, .holds = {{"x", "OLD"}}});
}

TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedAndTheOtherFileMoved) {
  const Identity b = Make("b", "old"), c = Make("c", "new");
  Wrote(0, "b", "OLD");
  Renames(c, "c", "b", b);
  Rename("b", "x");
  ExpectKept({.all = Names_{"c", "x"}, .is = {{"c", c}, {"x", b}}, .holds = {{"x", "OLD"}}});
}

TEST_P(MovedNamesReplayTest, ARenameWasAnnouncedOverAnOldFileAndTheNewOneMovedBack) {
  const Identity b = Make("b", "old");
  Wrote(0, "b", "OLD");
  const Identity c = Make("c", "new");
  Renames(c, "c", "b", b);
  Rename("c", "b");
  Rename("b", "c");
  ExpectKept({.all = Names_{"b"}, .is = {{"b", c}}});
}

TEST_P(MovedNamesReplayTest, AFileIsNowhereOfWhichThereAreNamesAlone) {
  Renamed(Make("a", "..."), "a", "b");
  Unlink("a");
  ExpectKept({.all = Names_{}});
}

// The other way round: the logs know what the file system has not done.
TEST_P(MovedNamesReplayTest, TheFileSystemIsBehind) {
  const Identity a = Make("a", "bytes");
  Renamed(a, "a", "b");
  ExpectKept({.all = Names_{"b"}, .is = {{"b", a}}});
}

TEST_P(MovedNamesReplayTest, AFolderWasMoved) {
  const Identity d = CreateFolder("d");
  Rename("d", "e");
  Make("e/later", "later");
  ExpectKept({.all = Names_{"e", "e/later"}, .is = {{"e", d}}});
}

// A file in it is found where its folder is.
TEST_P(MovedNamesReplayTest, AFolderWithFilesWasMoved) {
  const Identity d = CreateFolder("d");
  const Identity a = MakeWritten(0, "d/a", "bytes");
  Rename("d", "e");
  Rename("e/a", "e/b");
  ExpectKept(
      {.all = Names_{"e", "e/b"}, .is = {{"e", d}, {"e/b", a}}, .holds = {{"e/b", "bytes"}}});
}

// The folders are looked through in the order of the logs, and it is found in a later one.
TEST_P(MovedNamesReplayTest, AFolderWasMovedIntoALaterOne) {
  const Identity d = CreateFolder("d");
  CreateFolder("e");
  const Identity a = MakeWritten(0, "a", "bytes");
  Rename("d", "e/d");
  Rename("a", "e/d/b");
  ExpectKept({.all = Names_{"e", "e/d", "e/d/b"},
              .is = {{"e/d", d}, {"e/d/b", a}},
              .holds = {{"e/d/b", "bytes"}}});
}

TEST_P(MovedNamesReplayTest, AFileWasRemovedAndAnotherOneHasItsName) {
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  Make("a", "later");
  ExpectKept({.all = Names_{"a"}, .holds = {{"a", "later"}}});
}

// With its number, perhaps, and surely with another birth or generation.
TEST_P(MovedNamesReplayTest, ItsNumberIsUsedAgain) {
  const Identity a = MakeWritten(0, "a", "bytes");
  MakeWritten(1, "b", "b");
  Unlink("a");
  for (int i = 0; i < 100; ++i) {
    if (Make("c" + std::to_string(i), "later").inode == a.inode) break;
  }
  ExpectKept({.holds = {{"a", "bytes"}, {"b", "b"}, {"c0", "later"}}});
}

// It has another one still, and without handles nobody can tell where: so its bytes are kept.
TEST_P(MovedNamesReplayTest, AnotherFileHasANameOfOneWithNamesThatNoLogKnows) {
  const Identity a = MakeWritten(0, "a", "bytes");
  MakeFolder("d");
  Link("a", "d/x");
  Linked(a, "a", "b", pool::kNameHasOthers);
  for (const char* name : {"a", "b"}) {
    Make("new", "later");
    Rename("new", name);
  }
  const There there = {.all = Names_{"a", "b", "d", "d/x"},
                       .is = {{"d/x", a}},
                       .holds = {{"a", "later"}, {"b", "later"}}};
  ExpectFoundByHandle(there);
}

// The removal was announced, and somebody has made another one before the logs knew that it was
// done.
TEST_P(MovedNamesReplayTest, ANameWasRemovedOfAFileWithNamesThatNoLogKnows) {
  const Identity a = MakeWritten(0, "a", "bytes");
  MakeFolder("d");
  Link("a", "d/x");
  Removes(a, "a", pool::kNameHasOthers);
  Unlink("a");
  Make("a", "later");
  const There there = {
      .all = Names_{"a", "d", "d/x"}, .is = {{"d/x", a}}, .holds = {{"a", "later"}}};
  ExpectFoundByHandle(there);
}

// The removal of that one may be lost as well, by somebody without a log.
TEST_P(MovedNamesReplayTest, TheFileSystemIsBehindAndAnotherOneHasTheName) {
  const Identity a = MakeWritten(0, "a", "bytes");
  Renamed(a, "a", "b");
  Make("b", "somebody's");
  ExpectMissing({{"b", EEXIST}}, false);
  Expect(
      {.all = Names_{"a", "b"}, .is = {{"a", a}}, .holds = {{"a", "bytes"}, {"b", "somebody's"}}});
}

// It is from before: the disk is too old, or somebody has put it back.
TEST_P(MovedNamesReplayTest, AnOlderFileHasTheName) {
  Make("b", "older");
  AwaitTick();
  MakeWritten(0, "a", "bytes");
  Unlink("a");
  Rename("b", "a");
  MakeWritten(1, "c", "c");
  Unlink("c");
  ExpectMissing({{"a", EEXIST}});
  EXPECT_EQ(Read("a"), "older");
}

TEST_P(MovedNamesReplayTest, AFileOlderThanOthersHasTheName) {
  MakeWritten(0, "a", "bytes");
  AwaitTick();
  Make("b", "older");
  AwaitTick();
  MakeWritten(1, "c", "c");
  Unlink("a");
  Rename("b", "a");
  Unlink("c");
  ExpectMissing({{"a", EEXIST}});
  EXPECT_EQ(Read("a"), "older");
}

// The logs know it by later names, and it had that one before the other was born: somebody without
// a log has taken it away, and the file system has lost that.
TEST_P(MovedNamesReplayTest, AnOlderFileThatTheLogsKnowHasTheName) {
  const Identity z = Make("a", "older");
  AwaitTick();
  Make("t", "bytes");
  Log({.deed = Deed::kCreated, .file = IdOf(Path("t")), .name = "a", .st = StatOf(Path("t"))});
  Wrote(0, "t", "bytes");
  Unlink("t");
  Renamed(z, "b", "c");
  ExpectMissing({{"a", EEXIST}});
  Expect({.all = Names_{"a", "c"}, .is = {{"a", z}, {"c", z}}});
}

TEST_P(MovedNamesReplayTest, TheFileSystemIsBehindAndAnOlderFileHasTheName) {
  const Identity z = Make("a", "older");
  AwaitTick();
  const Identity t = MakeWritten(0, "t", "bytes");
  Renamed(t, "t", "a");
  Renamed(z, "b", "c");
  ExpectMissing({{"a", EEXIST}}, false);
  Expect({.all = Names_{"a", "c", "t"}, .is = {{"a", z}, {"c", z}, {"t", t}}});
}

TEST_P(MovedNamesReplayTest, ADiskThatIsTooOld) {
  const Identity a = Make("a", "...");
  Renamed(a, "a", "b");
  Wrote(0, "a", "bytes");
  Unlink("a");
  MakeWritten(1, "c", "c");
  Unlink("c");
  ExpectMissing({{"b", ENOENT}});
}

// In a pool of one's own, the logs have all.
TEST_F(NamesReplayTest, APoolOfItsOwnIsBehindNoFileSystem) {
  MakeWritten(0, "b", "old");
  MakeWritten(1, "a", "new");
  Rename("a", "b");
  ExpectUnresolved({{"b", EEXIST}});
}

// --------------------------------------------------------------------------------------- Bad input

// Recovery stops for such a name, says so, keeps all records of names, and does the rest.
class BadNamesTest : public NamesReplayTest {
 protected:
  using Edit = std::function<void(pool::NameRecord*, std::vector<std::string>*)>;

  // With texts in their order, right or wrong.
  static pool::NameRecord WithTexts(pool::NameRecord record,
                                    const std::vector<std::string>& texts) {
    using R = pool::NameRecord;
    constexpr uint16_t R::*kLengths[] = {&R::name_length, &R::from_length, &R::target_length,
                                         &R::folder_path_length, &R::from_folder_path_length};
    size_t end = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      record.*kLengths[i] = static_cast<uint16_t>(texts[i].size());
      std::memcpy(record.text + end, texts[i].c_str(), texts[i].size() + 1);
      end += texts[i].size() + 1;
    }
    return record;
  }
  // What no program has logged: a record, edited.
  void LogEdited(const Said& said, const Edit& edit) {
    pool::NameRecord record = RecordOf(said);
    const pool::NameTexts t = pool::TextsOf(record);
    std::vector<std::string> texts = {t.name, t.from, t.target, t.folder_path, t.from_folder_path};
    edit(&record, &texts);
    log_->Add(test::Names(WithTexts(record, texts)), LogBuilder::kCommit, kLog);
  }
  void CreatedAs(const std::string& path, const Edit& edit) {
    LogEdited(
        {.deed = Deed::kCreated, .file = IdOf(Path(path)), .name = path, .st = StatOf(Path(path))},
        edit);
  }

  // A rename, which is to be done whatever else there is.
  void LogTheRest() {
    Make("rest", "rest");
    rest_ = IdOf(Path("rest"));
    Renamed(rest_, "rest", "done");
  }
  void ExpectStopped(const Unresolved& unresolved) {
    EXPECT_FALSE(Run());
    EXPECT_EQ(heard_.unresolved, unresolved);
    EXPECT_EQ(summary_.unresolved_names, unresolved.size());
    EXPECT_NE(summary_.error, 0);
    EXPECT_TRUE(pool_.dirty());
    EXPECT_TRUE(Is("done", rest_)) << "the rest is done";
    EXPECT_FALSE(Exists(Path("rest")));
    ExpectNoSafeNames();
  }
  // The same each time, and by a look; then it is discarded. The rest is done.
  void ExpectStoppedForGood(const Unresolved& unresolved) {
    LogTheRest();
    Reboot();
    const std::vector<std::string> before = All();
    EXPECT_FALSE(Run({.dry_run = true}));
    EXPECT_EQ(heard_.unresolved, unresolved);
    EXPECT_EQ(All(), before);
    ExpectStopped(unresolved);
    const std::vector<std::string> after = All();
    ExpectStopped(unresolved);
    EXPECT_EQ(All(), after);
    EXPECT_TRUE(Run({.discard = true}));
    EXPECT_FALSE(pool_.dirty());
    EXPECT_EQ(All(), after);
  }

  // With mounts of its own, in a child.
  void InOwnMounts(const std::function<void()>& body) {
    pool_.Close();
    test::TestInOwnMounts("", "", [&] {
      EXPECT_TRUE(test::OpenPool(pool_, pool_path_));
      pool_.MarkInUse();
      log_.emplace(pool_.view());
      body();
    });
  }
  void Mount(const std::string& name, const char* options) {
    mkdir(Path(name).c_str(), 0755);
    ASSERT_EQ(mount("tmpfs", Path(name).c_str(), "tmpfs", 0, options), 0);
  }

  Identity rest_ = {};
};

// Each of these leads out of its folder, or nowhere.
class BadTextTest : public BadNamesTest, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Texts, BadTextTest,
                         testing::Values("..", ".", "", "/", "/etc", "../a", "a/b",
                                         std::string("a\0b", 3), std::string(1, '\0'),
                                         std::string(256, 'n')));

TEST_P(BadTextTest, IsNoName) {
  MakeFolder("d");
  Make("a", "somebody's");
  Make("d/a", "a");
  CreatedAs("d/a", [](auto*, auto* texts) { texts->at(0) = GetParam(); });
  Unlink("d/a");
  ExpectStoppedForGood({{"", EBADMSG}});
  EXPECT_EQ(Read("a"), "somebody's");
}

TEST_P(BadTextTest, IsNoOldName) {
  MakeFolder("d");
  Make("d/a", "a");
  LogEdited({.deed = Deed::kRenamed, .file = IdOf(Path("d/a")), .name = "d/b", .from = "d/a"},
            [](auto*, auto* texts) { texts->at(1) = GetParam(); });
  ExpectStoppedForGood({{"", EBADMSG}});
  EXPECT_EQ(Read("d/a"), "a");
}

// A record is not larger than a name record can be, but far smaller.
TEST_F(BadNamesTest, ManySmallRecords) {
  std::vector<test::Record> small(100, {nvlog::Kind::kName, 0, 0, 1, "x"});
  LogTheRest();
  const pool::View& view = pool_.view();
  const uint64_t units = view.segment_count() * view.segment_units();
  uint64_t count = 0;
  for (; count < units / 6; count += small.size()) {
    log_->Add(small, LogBuilder::kCommit, kLog);
  }
  Reboot();
  EXPECT_FALSE(Replay(pool_, {}, {}, &summary_));
  EXPECT_EQ(summary_.unresolved_names, count);
  EXPECT_EQ(summary_.error, EBADMSG);
  EXPECT_TRUE(Is("done", rest_));
  EXPECT_TRUE(Replay(pool_, {.discard = true}, {}, &summary_));
}

TEST_F(BadNamesTest, OneFolderByTwoLongPaths) {
  Make("a", "a");
  std::string path = files_.path();
  for (int i = 0; i < 700; ++i) path += "/./.";
  LogEdited({.deed = Deed::kRenames, .file = IdOf(Path("a")), .name = "b", .from = "a"},
            [&](auto*, auto* texts) { texts->at(3) = path, texts->at(4) = path + "/."; });
  ExpectRecovered({.all = Names_{"a"}});
}

TEST_F(BadNamesTest, TheFolderIsAFileNow) {
  MakeFolder("d");
  MakeCreated("d/a");
  std::filesystem::remove_all(Path("d"));
  Make("d", "somebody's");
  ExpectStoppedForGood({{"d/a", ENOTDIR}});
  EXPECT_EQ(Read("d"), "somebody's");
}

TEST_F(BadNamesTest, TheFolderIsALinkNow) {
  MakeFolder("d");
  MakeCreated("d/a");
  Removed(Make("d/b"), "d/b");
  std::filesystem::remove_all(Path("d"));
  MakeFolder("other");
  Make("other/b", "somebody's");
  symlink("other", Path("d").c_str());
  ExpectStoppedForGood({{"d/a", ENOTDIR}});
  EXPECT_EQ(All(), (Names_{"d", "done", "other", "other/b"}));
}

// By its identity, too.
TEST_F(BadNamesTest, TheFolderIsAFile) {
  Make("file", "file");
  Make("a");
  CreatedAs("a", [&](pool::NameRecord* record, auto* texts) {
    record->folder = IdOf(Path("file"));
    texts->at(3) = Path("file");
  });
  Unlink("a");
  ExpectStoppedForGood({{"file/a", ENOTDIR}});
  EXPECT_EQ(Read("file"), "file");
}

// Nothing is opened that has a name.
TEST_F(BadNamesTest, APipeInTheWay) {
  MakeCreated("a");
  Unlink("a");
  mkfifo(Path("a").c_str(), 0644);
  ExpectStoppedForGood({{"a", EEXIST}});
  EXPECT_TRUE(S_ISFIFO(StatOf(Path("a")).st_mode));
}

TEST_F(BadNamesTest, FoldersInEachOther) {
  const Identity d = MakeFolder("d"), e = MakeFolder("e");
  const auto in = [&](const std::string& name, const Identity& folder, const std::string& path) {
    CreatedAs(name, [&](pool::NameRecord* record, auto* texts) {
      record->folder = folder;
      texts->at(3) = Path(path);
    });
  };
  in("d", e, "e");
  in("e", d, "d");
  MakeFolder("self");
  in("self", IdOf(Path("self")), "self");
  for (const char* name : {"d", "e", "self"}) Unlink(name);
  ExpectStoppedForGood({{"d/e", ENOTDIR}, {"e/d", ENOTDIR}, {"self/self", ENOTDIR}});
  EXPECT_EQ(All(), Names_{"done"});
}

// It is looked for in each of them, and so are they.
TEST_F(BadNamesTest, AFolderInItselfByManyNames) {
  MakeFolder("d");
  Unresolved all;
  for (int i = 0; i < 700; ++i) {
    const std::string name = std::to_string(i);
    CreatedAs("d", [&](pool::NameRecord* record, auto* texts) {
      record->folder = record->file;
      texts->at(0) = name;
      texts->at(3) = Path("d");
    });
    all.emplace("d/" + name, ENOTDIR);
  }
  Unlink("d");
  ExpectStoppedForGood(all);
}

TEST_F(BadNamesTest, AFolderIsToBeInItself) {
  const Identity d = MakeFolder("d");
  Log({.deed = Deed::kRenamed, .file = d, .name = "d/d", .from = "d"});
  LogTheRest();
  Reboot();
  ExpectStopped({{"d/d", EINVAL}});
  ExpectStopped({{"d/d", EINVAL}});
  Expect({.all = Names_{"d", "done"}, .is = {{"d", d}}});
}

TEST_F(BadNamesTest, AFolderIsToHaveTwoNames) {
  const Identity d = MakeFolder("d");
  Moved(d, "d", "e");
  Moved(d, "d", "f");
  LogTheRest();
  Reboot();
  EXPECT_TRUE(Run()) << "one of them is enough";
  Expect({.all = Names_{"done", "e"}, .is = {{"e", d}}});
}

// Both are born under it, and nothing says that the first has lost it.
class OneNameTest : public BadNamesTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kept, OneNameTest, testing::Values("first", "second", "none"));

TEST_P(OneNameTest, OfTwoFiles) {
  const std::string kept = GetParam();
  for (const std::string name : {"first", "second"}) {
    Make(name, "");
    CreatedAs(name, [](auto*, auto* texts) { texts->at(0) = "a"; });
    Wrote(name == "first" ? 0 : 1, name, name);
  }
  if (kept != "none") Rename(kept, "a");
  for (const char* name : {"first", "second"}) std::filesystem::remove(Path(name));
  LogTheRest();
  Reboot();
  if (kept == "first") {
    ExpectStopped({{"a", EEXIST}});
    EXPECT_EQ(Read("a"), "first");
    Unlink("a");
  }
  EXPECT_FALSE(Run()) << "the bytes of the first one are nowhere";
  EXPECT_EQ(heard_.unresolved, Unresolved{});
  EXPECT_EQ(summary_.unresolved_records, 1u);
  Expect({.all = Names_{"a", "done"}, .holds = {{"a", "second"}}});
}

// By somebody, so that it is another one.
TEST_F(BadNamesTest, TheFolderWasMadeAgain) {
  MakeFolder("known");
  CreateFolder("born");
  for (const std::string folder : {"known", "born"}) {
    MakeCreated(folder + "/a");
    Wrote(folder == "born", folder + "/a", "bytes");
    Make(folder + "/b");
    Removed(IdOf(Path(folder + "/b")), folder + "/b");
    std::filesystem::remove_all(Path(folder));
    mkdir(Path(folder).c_str(), 0755);
    Make(folder + "/b", "somebody's");
  }
  ExpectStoppedForGood({{"known/a", ENOTDIR}, {"born", EEXIST}, {"born/a", ENOTDIR}});
  EXPECT_EQ(All(), (Names_{"born", "born/b", "done", "known", "known/b"}));
}

TEST_F(BadNamesTest, AReadOnlyFileSystem) {
  InOwnMounts([&] {
    MakeFolder("ro");
    MakeWritten(0, "ro/lost", "bytes");
    Unlink("ro/lost");
    const Identity from = Make("ro/from");
    Renamed(from, "ro/from", "ro/to");
    Removed(Make("ro/removed"), "ro/removed");
    Make("ro/mode");
    chmod(Path("ro/mode").c_str(), 0751);
    Attributes("ro/mode", pool::kSetMode, Path("ro/mode"));
    chmod(Path("ro/mode").c_str(), 0644);
    LogTheRest();
    const std::string ro = Path("ro");
    ASSERT_EQ(mount(ro.c_str(), ro.c_str(), nullptr, MS_BIND, nullptr), 0);
    ASSERT_EQ(mount("", ro.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr), 0);
    Reboot();
    const Unresolved all = {{"ro/lost", EROFS},
                            {"ro/from", EROFS},
                            {"ro/to", EROFS},
                            {"ro/removed", EROFS},
                            {"ro/mode", EROFS}};
    ExpectStopped(all);
    ExpectStopped(all);
    EXPECT_FALSE(Run({.discard = true})) << "the disk's word is not for discarding";
    EXPECT_TRUE(pool_.dirty());
    ASSERT_EQ(mount("", ro.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr), 0);
    ExpectRecoveredNow({.is = {{"ro/to", from}}, .holds = {{"ro/lost", "bytes"}}});
    EXPECT_EQ(StatOf(Path("ro/mode")).st_mode, S_IFREG | 0751u);
    EXPECT_EQ(All(), (Names_{"done", "ro", "ro/lost", "ro/mode", "ro/to"}));
  });
}

TEST_F(BadNamesTest, AFullFileSystem) {
  InOwnMounts([&] {
    Mount("full", "size=1m,nr_inodes=8");
    CreateFolder("full/d");
    MakeCreated("full/d/a");
    MakeWritten(0, "full/b", "bytes");
    std::filesystem::remove_all(Path("full/d"));
    Unlink("full/b");
    LogTheRest();
    int fillers = 0;
    while (close(creat(Path("full/filler" + std::to_string(fillers)).c_str(), 0600)) == 0) {
      ++fillers;
    }
    Reboot();
    ExpectStopped({{"full/d", ENOSPC}, {"full/d/a", ENOTDIR}, {"full/b", ENOSPC}});
    EXPECT_FALSE(Run({.discard = true}));
    EXPECT_TRUE(pool_.dirty());
    while (fillers > 0) Unlink("full/filler" + std::to_string(--fillers));
    ExpectRecoveredNow({.all = Names_{"done", "full", "full/b", "full/d", "full/d/a"},
                        .holds = {{"full/b", "bytes"}}});
  });
}

// What it has taken away may be back when it is mounted again.
TEST_F(BadNamesTest, AFileSystemThatIsNotMounted) {
  InOwnMounts([&] {
    Mount("mnt", "size=1m");
    MakeFolder("mnt/d");
    MakeWritten(0, "mnt/d/lost", "bytes");
    Unlink("mnt/d/lost");
    Renamed(Make("mnt/d/from"), "mnt/d/from", "mnt/d/to");
    Removed(Make("mnt/removed"), "mnt/removed");
    Make("mnt/mode");
    chmod(Path("mnt/mode").c_str(), 0751);
    Attributes("mnt/mode", pool::kSetMode, Path("mnt/mode"));
    chmod(Path("mnt/mode").c_str(), 0644);
    LogTheRest();
    const long tree = syscall(SYS_open_tree, AT_FDCWD, Path("mnt").c_str(),
                              OPEN_TREE_CLONE | static_cast<unsigned>(O_CLOEXEC));
    ASSERT_GE(tree, 0);
    ASSERT_EQ(umount(Path("mnt").c_str()), 0);
    Make("mnt/removed", "somebody's");
    Reboot();
    const Unresolved all = {{"mnt/d/lost", ENODEV},
                            {"mnt/d/from", ENODEV},
                            {"mnt/d/to", ENODEV},
                            {"mnt/removed", ENODEV},
                            {"mnt/mode", ENODEV}};
    EXPECT_FALSE(Run({.dry_run = true}));
    EXPECT_EQ(heard_.unresolved, all);
    ExpectStopped(all);
    ExpectStopped(all);
    EXPECT_EQ(All(), (Names_{"done", "mnt", "mnt/removed"}));
    ASSERT_EQ(
        syscall(SYS_move_mount, tree, "", AT_FDCWD, Path("mnt").c_str(), MOVE_MOUNT_F_EMPTY_PATH),
        0);
    ExpectRecoveredNow({.all = Names_{"done", "mnt", "mnt/d", "mnt/d/lost", "mnt/d/to", "mnt/mode"},
                        .holds = {{"mnt/d/lost", "bytes"}}});
    EXPECT_EQ(StatOf(Path("mnt/mode")).st_mode, S_IFREG | 0751u);
  });
}

// That of XFS is the number of its device.
TEST_F(BadNamesTest, AFileSystemWithAnotherNumber) {
  moved_ = 1;
  MakeFolder("d");
  MakeWritten(0, "d/lost", "bytes");
  Unlink("d/lost");
  MakeFolder("d/gone");
  Removed(Make("d/gone/a"), "d/gone/a");
  Removed(IdOf(Path("d/gone")), "d/gone");
  std::filesystem::remove_all(Path("d/gone"));
  chmod(Path("d").c_str(), 0750);
  Attributes("d", pool::kSetMode, Path("d"));
  chmod(Path("d").c_str(), 0755);
  LogTheRest();
  ExpectRecovered({.all = Names_{"d", "d/lost", "done"}, .holds = {{"d/lost", "bytes"}}});
  EXPECT_EQ(StatOf(Path("d")).st_mode, S_IFDIR | 0750u);
}

// Wherever it ends for want of memory, nothing has changed.
TEST_F(BadNamesTest, MoreRecordsThanMemory) {
  if (test::kAddressSanitizer || test::kThreadSanitizer) GTEST_SKIP() << "it wants the memory";
  const Identity a = Make("a", "a");
  constexpr size_t kLinks = 400;
  for (size_t i = 0; i < kLinks; ++i) Linked(a, "a", "link" + std::to_string(i));
  Reboot();
  const auto run = [&](uint64_t more) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit = {pages * 4096 + more, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    alarm(60);
    const bool done = Replay(pool_, {}, {}, &summary_);
    return done ? 0 : summary_.error == ENOMEM ? 2 : 1;
  };
  constexpr uint64_t kStep = 64 << 10;
  uint64_t more = 0;
  int result = 2;
  for (; result == 2; more += kStep) {
    ASSERT_EQ(All(), Names_{"a"}) << more;
    ASSERT_TRUE(pool_.dirty());
    result = test::InChild([&] { return run(more); });
  }
  EXPECT_EQ(result, 0) << more;
  EXPECT_GT(more, 16 * kStep);
  EXPECT_EQ(All().size(), kLinks + 1);
  EXPECT_FALSE(pool_.dirty());
}

// ------------------------------------------------------------------------------------------ Killed

class KilledNamesTest : public NamesReplayTest {
 protected:
  KilledNamesTest() : NamesReplayTest(Folder::kMemory) {}

  // What the file system has kept, once more: by hard links, that keep the files.
  void Keep() {
    mkdir(kept_.c_str(), 0755);
    for (const std::string& name : All()) {
      if (!std::filesystem::is_directory(Path(name))) {
        std::filesystem::create_hard_link(Path(name), kept_ + "/" + name);
      }
    }
  }
  void Restore() {
    for (const std::string& name : All()) {
      std::error_code none;
      std::filesystem::remove(Path(name), none);
      std::filesystem::remove_all(Path(name), none);
    }
    for (const auto& entry : std::filesystem::directory_iterator(kept_)) {
      std::filesystem::create_hard_link(entry.path(), Path(entry.path().filename()));
    }
  }
  const std::string kept_ = files_.path() + "-kept";
  ~KilledNamesTest() override { std::filesystem::remove_all(kept_); }
};

// I6. Files that change their names, a rename half kept, births that are lost, removals that are.
// There are some thousand system calls: each seed has its own share of them.
TEST_F(KilledNamesTest, AnywhereAndRunAgain) {
  Make("a", "a");
  Make("b", "b");
  Make("r", "r");
  Make("h", "h");
  const Identity a = IdOf(Path("a")), b = IdOf(Path("b")), h = IdOf(Path("h"));
  Renamed(a, "a", "t");
  Renamed(b, "b", "a");
  Renamed(a, "t", "b");
  Wrote(0, "b", "B");
  Removed(IdOf(Path("r")), "r", pool::kNameHasOthers);  // Keep() has another one
  Renamed(h, "h", "i");
  Link("h", "i");
  MakeWritten(1, "n", "new");
  Linked(IdOf(Path("n")), "n", "m");
  Unlink("n");
  CreateFolder("d");
  MakeWritten(2, "d/x", "x");
  std::filesystem::remove_all(Path("d"));
  Keep();
  Reboot();
  pool_.Close();
  const std::string before = ReadFile(pool_path_);
  constexpr int kShare = 11;
  const auto prepare = [&] {
    Restore();
    WriteFile(pool_path_, before);
  };
  const auto run = [&] { return test::OpenPool(pool_, pool_path_) && Run() ? 0 : 2; };
  const auto check = [&] {
    ASSERT_TRUE(test::OpenPool(pool_, pool_path_));
    EXPECT_TRUE(Run());
    EXPECT_EQ(heard_.unresolved, Unresolved{});
    Expect({.all = Names_{"a", "b", "d", "d/x", "i", "m", "n"},
            .is = {{"a", b}, {"b", a}, {"i", h}},
            .holds = {{"a", "B"}, {"m", "new"}}});
    EXPECT_TRUE(Is("m", IdOf(Path("n"))));
    EXPECT_EQ(Read("d/x"), "x");
    EXPECT_FALSE(pool_.dirty());
    pool_.Close();
  };
  const int steps =
      test::KillAtEveryCall(prepare, run, check, static_cast<int>(test::Seed() % kShare), kShare);
  if (steps < 0) GTEST_SKIP() << "cannot trace a child";
  EXPECT_GT(steps, 200);
}

}  // namespace
}  // namespace nvcache::replay
