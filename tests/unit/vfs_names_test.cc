// SPDX-License-Identifier: BSD-3-Clause
//
// Names in the log: folders that are known, and the calls that change what is in them.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/nvlog/walk.h"
#include "src/pool/identify.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/attribute_call.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/folder.h"
#include "src/vfs/name_call.h"
#include "src/vfs/name_log.h"
#include "src/vfs/vfs.h"
#include "tests/unit/capability.h"
#include "tests/unit/found.h"
#include "tests/unit/in_engine.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

using lease::FileEntry;
using lease::FileTable;

class VfsNamesTest : public EngineTest {
 protected:
  int InEngine(const std::string& pool, const std::string& setting,
               const std::function<void()>& body, Settings settings = {}) {
    settings.insert(settings.end(), {"NVCACHE_SIZE=16M", "NVCACHE_NAMES=auto", setting});
    return RunEngine(pool, settings, body);
  }
  // With a fresh pool, and a known folder.
  void WithEngine(const std::function<void()>& body, const Settings& settings = {}) {
    const auto in_known_folder = [&] {
      folder_ = ::open(disk_.path().c_str(), O_RDONLY | O_DIRECTORY);
      EXPECT_EQ(Fsync(folder_), kNotOurs);
      EXPECT_EQ(Fsync(folder_), 0);
      EXPECT_TRUE(FolderIsKnown());
      body();
      ::close(folder_);
    };
    const int status = InEngine("pool", "NVCACHE_WRITE_BACK=auto", in_known_folder, settings);
    EXPECT_EQ(status, 0);
  }
  // As a front end makes the call; `real` where that is left to the kernel.
  static long Made(const std::function<void(NameCall&, bool)>& prepare,
                   const std::function<long()>& real) {
    for (bool past = false;; past = true) {
      NameCall call;
      prepare(call, past);
      EXPECT_EQ(call.error(), 0);
      const long result = call.Make();
      if (result == kBeginAnew) continue;
      if (result != kNotOurs) return result;
      const long made = real();
      if (made >= 0) call.MadeByKernel();
      return made;
    }
  }
  long Rename(const std::string& from, const std::string& to, unsigned flags = 0) {
    const std::string a = Path(from), b = Path(to);
    return Made(
        [&](NameCall& call, bool past) {
          call.Rename(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), flags, past);
        },
        [&] { return ::rename(a.c_str(), b.c_str()); });
  }
  long Link(const std::string& from, const std::string& to) {
    const std::string a = Path(from), b = Path(to);
    return Made([&](NameCall& call,
                    bool past) { call.Link(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 0, past); },
                [&] { return ::link(a.c_str(), b.c_str()); });
  }
  long Remove(const std::string& name, int flags = 0) {
    const std::string path = Path(name);
    return Made(
        [&](NameCall& call, bool past) { call.Remove(AT_FDCWD, path.c_str(), flags, past); },
        [&] { return ::unlinkat(AT_FDCWD, path.c_str(), flags); });
  }
  long MakeFolder(const std::string& name) {
    return Made([&](NameCall& call,
                    bool past) { call.MakeFolder(AT_FDCWD, Path(name).c_str(), 0750, past); },
                [&] { return ::mkdir(Path(name).c_str(), 0750); });
  }
  static uint64_t TagOf(int fd) { return lease::TagOf(BornStatOf(fd)); }
  static uint64_t TagOf(const std::string& path) { return lease::TagOf(BornStatOf(path)); }
  static bool IsKnown(uint64_t tag) {
    const FileEntry* entry = engine.file_table.Find(tag);
    return entry != nullptr && FileTable::CoverageOf(*entry).known;
  }
  static bool IsKnown(int fd) { return IsKnown(TagOf(fd)); }
  static bool IsCached(int fd) {
    Access access;
    return access.Enter(fd, Access::kData) == 0 && access.cached();
  }
  bool FolderIsKnown() const { return IsKnown(folder_); }
  bool FolderIsPending() const {
    const FileEntry* entry = engine.file_table.Find(TagOf(folder_));
    return entry != nullptr && engine.file_table.IsPending(*entry);
  }
  // What the log says, but for file records: a letter and the name, or the file's path.
  std::vector<std::string> Log() {
    std::vector<std::string> said;
    test::ForEachCommitted(memory_ / "pool", [&](const test::FoundRecord& found) {
      const auto& [reader, walk, group, header, place] = found;
      if (header.kind == nvlog::Kind::kName) said.push_back(NameText(reader, header, place));
      const std::string file = FileText(walk, header, place);
      if (header.kind == nvlog::Kind::kData) said.push_back("data " + file);
      if (header.kind == nvlog::Kind::kTruncate) said.push_back("truncate " + file);
      if (header.kind == nvlog::Kind::kHandedOver) said.push_back("handed over " + file);
    });
    return said;
  }
  std::string NameText(const nvlog::Reader& reader, const nvlog::RecordHeader& header,
                       nvlog::Place place) {
    static const char* const kDeeds[] = {"?",       "created", "links",   "linked",    "removes",
                                         "removed", "renames", "renamed", "attributes"};
    const auto record = std::make_unique<pool::NameRecord>();
    EXPECT_TRUE(reader.CopyName(header, place, record.get()));
    const pool::NameTexts texts = pool::TextsOf(*record);
    last_folder_ = texts.folder_path;
    last_target_ = texts.target;
    std::string text = kDeeds[static_cast<int>(record->deed)];
    if (record->from_length > 0) text += std::string(" ") + texts.from;
    if (record->name_length > 0) text += std::string(" ") + texts.name;
    if ((record->flags & pool::kNameGone) != 0) text += " gone";
    if ((record->flags & pool::kNameHasOthers) != 0) text += " others";
    if ((record->flags & pool::kNameLacks) != 0) text += " lacks";
    return text;
  }
  static std::string FileText(const nvlog::GroupWalk& walk, const nvlog::RecordHeader& header,
                              nvlog::Place place) {
    const auto record = std::make_unique<pool::FileRecord>();
    const uint32_t file = walk.FileOf(header, place);
    if (file == nvlog::kNoFile || !walk.CopyRecord(file, record.get())) return "?";
    const std::string path = record->path;
    return path.substr(path.rfind('/') + 1);
  }
  using Said = std::vector<std::string>;

  // Somebody without NVCache makes a file there. A call in flight for one of a class is taken for
  // one of any of them (FileTable::AnybodyChanges), and its inode and its birth say of which it is:
  // so it is made anew until it shares its class with none of `others`.
  void MakeOutside(const std::string& name, const std::string& bytes,
                   std::vector<uint64_t>* others) {
    const auto is_shared = [&](uint64_t tag) {
      return std::any_of(others->begin(), others->end(), [&](uint64_t other) {
        return lease::ClassOf(other) == lease::ClassOf(tag);
      });
    };
    do {
      ::unlink(Path(name).c_str());
      std::ofstream(Path(name)) << bytes;
    } while (is_shared(TagOf(Path(name))));
    others->push_back(TagOf(Path(name)));
  }

  // Calls `meanwhile` when `call`, in a thread of its own, waits for the lock of names.
  static void WhileItWaits(const std::function<void()>& call,
                           const std::function<void()>& meanwhile) {
    const uint64_t lock = engine.file_table.LockNames();
    std::atomic<pid_t> number{0};
    std::thread waits([&] {
      number.store(::gettid());
      call();
    });
    const auto sleeps = [&] {
      std::ifstream in("/proc/self/task/" + std::to_string(number.load()) + "/syscall");
      long system_call = -1;
      return (in >> system_call) && system_call == SYS_futex;
    };
    int polls = 0;
    for (; polls < 5000 && !sleeps(); ++polls) ::usleep(1000);
    EXPECT_LT(polls, 5000);
    meanwhile();
    engine.file_table.UnlockNames(lock);
    waits.join();
  }

  int folder_ = -1;
  // In the last name record that Log() has seen: the folder's path, and a link's target.
  std::string last_folder_, last_target_;
};

TEST_IN_ENGINE(VfsNamesTest, ANewFileIsKnownAndItsNameIsInTheLog) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Write(fd, "one", 3), 3);
  EXPECT_EQ(Log(), (Said{"created a", "data a"}));
  EXPECT_EQ(Fsync(fd), 0);
  EXPECT_EQ(Fsync(folder_), 0);
  EXPECT_EQ(SyncRange(fd), 0);
  EXPECT_EQ(Log(), (Said{"created a", "data a"})) << "there was no sync";
}

TEST_IN_ENGINE(VfsNamesTest, WhatChangesNamesIsAnnouncedAndThenSaid) {
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(Close(Open(name, O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Rename("a", "d"), 0);
  EXPECT_EQ(Rename("b", "c"), 0);
  EXPECT_EQ(Remove("c"), 0);
  EXPECT_EQ(Log(),
            (Said{"created a", "created b", "created c", "renames a d", "renamed a d",
                  "renames b c gone", "renamed b c gone", "removes c gone", "removed c gone"}));
  EXPECT_TRUE(FolderIsKnown());
  EXPECT_EQ(::access(Path("d").c_str(), F_OK), 0);
  EXPECT_NE(::access(Path("c").c_str(), F_OK), 0);
}

// Scratch memory has whatever was there before.
TEST_IN_ENGINE(VfsNamesTest, ARecordHasNothingOfWhatWasThereBefore) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  for (const int byte : {0x0c, 0x7f, 0xff}) {
    void* blocks[8];
    for (void*& block : blocks) {
      block = sys::TakeScratch();
      std::memset(block, byte, sys::kScratchSize);
    }
    for (void* block : blocks) sys::GiveScratch(block);
    EXPECT_EQ(Rename(byte == 0x7f ? "b" : "a", byte == 0x7f ? "a" : "b"), 0);
    EXPECT_EQ(Log().back(), byte == 0x7f ? "renamed b a" : "renamed a b");
    EXPECT_EQ(last_target_, "");
  }
}

TEST_IN_ENGINE(VfsNamesTest, ARecordOfMoreThanAPage) {
  const std::string target(pool::kMaxPath - 1, 't');
  const long made =
      Made([&](NameCall& call,
               bool past) { call.MakeLink(target.c_str(), AT_FDCWD, Path("link").c_str(), past); },
           [] { return -1; });
  EXPECT_EQ(made, 0);
  EXPECT_EQ(Log(), (Said{"created link"}));
  EXPECT_EQ(last_target_, target);
  EXPECT_EQ(std::filesystem::read_symlink(Path("link")), target);
}

TEST_IN_ENGINE(VfsNamesTest, ACallThatFailsHasOnlyItsAnnouncement) {
  EXPECT_EQ(MakeFolder("sub"), 0);
  EXPECT_EQ(Close(Open("sub/a", O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Remove("sub", AT_REMOVEDIR), -ENOTEMPTY);
  EXPECT_EQ(Log(), (Said{"created sub", "created a", "removes sub gone"}));
  EXPECT_EQ(Remove("none"), -ENOENT);
  EXPECT_EQ(Log().size(), 3u);
}

TEST_IN_ENGINE(VfsNamesTest, ANewFolderIsKnown) {
  EXPECT_EQ(MakeFolder("sub"), 0);
  const int sub = ::open(Path("sub").c_str(), O_RDONLY);
  EXPECT_TRUE(IsKnown(sub));
  const int fd = Open("sub/a", O_RDWR | O_CREAT);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Fsync(sub), 0);
  EXPECT_EQ(Log(), (Said{"created sub", "created a"}));
  EXPECT_EQ(Close(fd), 0);
  ::close(sub);
}

// InFlight for the one, this process is taken to pass for the other.
TEST_IN_ENGINE(VfsNamesTest, ANewFolderOfItsFoldersClassIsKnown) {
  int found = 0;
  for (int i = 0; i < 5000 && found < 3; ++i) {
    const std::string name = std::to_string(i);
    EXPECT_EQ(MakeFolder(name), 0);
    const uint64_t made = TagOf(Path(name));
    if (!engine.file_table.AreOneClass(TagOf(folder_), made)) continue;
    if (engine.file_table.Find(made) == nullptr) continue;  // another one has its entry
    EXPECT_TRUE(IsKnown(made)) << name;
    ++found;
  }
  EXPECT_EQ(found, 3);
}

// Another thread is at a call in it that is in no log.
TEST_IN_ENGINE(VfsNamesTest, AFolderThatAnotherThreadChangesIsNotKnown) {
  EXPECT_EQ(::mkdir(Path("d").c_str(), 0750), 0);
  test::WriteFile(Path("d/a"), "a");
  const uint64_t tag = TagOf(Path("d"));
  engine.file_table.BeginInFlight(tag);
  EXPECT_EQ(Rename("d/a", "b"), 0);
  EXPECT_FALSE(IsKnown(tag));
  engine.file_table.EndInFlight(tag);
  EXPECT_EQ(Rename("b", "d/a"), 0);
  EXPECT_TRUE(IsKnown(tag));
}

// Paths mean something else outside of the program's root, and it has no right to open by handles
// what they lead to. So no name of it is in the log, though it has its root back later; it says so,
// and its files are hot later.
TEST_F(VfsNamesTest, AProcessInAChrootMayNotLogNamesEvenAfterwards) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may have another root";
  WithEngine(
      [&] {
        ASSERT_EQ(::mkdir(Path("d").c_str(), 0750), 0);
        test::WriteFile(Path("old"), "old");
        const int root = ::open("/", O_RDONLY | O_DIRECTORY);
        const int sub = ::open(Path("d").c_str(), O_RDONLY | O_DIRECTORY);
        EXPECT_TRUE(engine.standing.MayLogNames());
        ASSERT_EQ(::chroot(disk_.path().c_str()), 0);
        ASSERT_TRUE(test::GiveUp(CAP_FOWNER));
        for (int i = 0; i < 2; ++i) EXPECT_EQ(Fsync(sub), kNotOurs);
        ASSERT_TRUE(::fchdir(root) == 0 && ::chroot(".") == 0);
        EXPECT_FALSE(engine.standing.MayLogNames());
        EXPECT_TRUE(engine.leases.HasSaid(lease::Hindrance::kChroot));
        EXPECT_EQ(Fsync(sub), kNotOurs);
        EXPECT_FALSE(IsKnown(sub));
        const Closing fd(Open("old"));
        const File& file = *engine.descriptors.Of(fd)->file.load();
        uint32_t syncs = 0;
        for (; syncs < 2 * kSyncsWithoutNames && file.state.load() != State::kCached; ++syncs)
          Fsync(fd);
        EXPECT_EQ(syncs, kSyncsWithoutNames);
        for (const int each : {root, sub}) ::close(each);
      },
      {kAllExclusive});
}

TEST_IN_ENGINE(VfsNamesTest, AFolderThatMovesIsFoundWhereItIs) {
  EXPECT_EQ(MakeFolder("sub"), 0);
  EXPECT_EQ(Close(Open("sub/a", O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Rename("sub", "new"), 0);
  EXPECT_EQ(Log(), Said{});
  EXPECT_EQ(Close(Open("new/b", O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Log(), Said{"created b"});
  EXPECT_EQ(last_folder_, Path("new"));
}

TEST_IN_ENGINE(VfsNamesTest, AnEmptyFolderMovesByWayOfTheLog) {
  EXPECT_EQ(MakeFolder("sub"), 0);
  EXPECT_EQ(Rename("sub", "new"), 0);
  EXPECT_EQ(Log(), (Said{"created sub", "renames sub new", "renamed sub new"}));
  EXPECT_TRUE(FolderIsKnown());
  EXPECT_EQ(Close(Open("new/b", O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Log().back(), "created b");
  EXPECT_EQ(last_folder_, Path("new"));
}

// What may be in it, or what it replaces, no record says.
TEST_IN_ENGINE(VfsNamesTest, OtherFoldersMovePastTheLog) {
  for (const char* name : {"a", "b"}) EXPECT_EQ(MakeFolder(name), 0);
  EXPECT_EQ(Rename("a", "b"), 0);
  EXPECT_EQ(Log(), Said{}) << "over another one";
  EXPECT_EQ(::mkdir(Path("unknown").c_str(), 0750), 0);
  EXPECT_EQ(Rename("unknown", "c"), 0);
  EXPECT_EQ(Log(), Said{}) << "one that is not known";
  EXPECT_TRUE(FolderIsKnown());
}

// dpkg takes away what a run before it may have left, of each file.
TEST_IN_ENGINE(VfsNamesTest, WhatIsNotThereIsInNoRecord) {
  EXPECT_EQ(MakeFolder("sub"), 0);
  const size_t before = Log().size();
  EXPECT_EQ(Rename("none", "a"), -ENOENT);
  EXPECT_EQ(Rename("none", "sub/a"), -ENOENT);
  EXPECT_EQ(Remove("none", AT_REMOVEDIR), -ENOENT);
  EXPECT_EQ(Log().size(), before);
  EXPECT_TRUE(FolderIsKnown());
}

// Another process makes the name between the look and the call. A removal looks under the lock.
TEST_IN_ENGINE(VfsNamesTest, WhatComesAfterTheLookIsTakenAwayPastTheLog) {
  for (const bool renames : {true, false}) {
    long result = -1;
    WhileItWaits([&] { result = renames ? Rename("d", "e") : Remove("d", AT_REMOVEDIR); },
                 [&] { EXPECT_EQ(::mkdir(Path("d").c_str(), 0750), 0); });
    EXPECT_EQ(result, 0);
    EXPECT_NE(::access(Path("d").c_str(), F_OK), 0);
    EXPECT_EQ(::access(Path("e").c_str(), F_OK), 0);
    EXPECT_EQ(Log(), renames ? Said{} : (Said{"removes d gone", "removed d gone"}));
    EXPECT_TRUE(FolderIsKnown()) << "it was synced";
  }
}

// Nothing is pending of a folder for that, and nothing of it has to be known.
TEST_IN_ENGINE(VfsNamesTest, ARemovalInVainIsInNoRecord) {
  EXPECT_EQ(Remove("none"), -ENOENT);
  EXPECT_EQ(Remove("none", AT_REMOVEDIR), -ENOENT);
  EXPECT_FALSE(FolderIsPending());
  EXPECT_TRUE(FolderIsKnown());
  EXPECT_EQ(Log(), Said{});
}

// In one of some tries: a new folder may stay unknown where another thread has to be waited for, or
// another file has its entry.
TEST_IN_ENGINE(VfsNamesTest, AFolderWithTheNumberOfOneBeforeIsAnotherOne) {
  bool known = false;
  for (int i = 0; i < 10 && !known; ++i) {
    const std::string old = "old" + std::to_string(i), made = "new" + std::to_string(i);
    EXPECT_EQ(MakeFolder(old), 0);
    EXPECT_EQ(Close(Open(old + "/a", O_RDWR | O_CREAT)), 0);
    EXPECT_EQ(Remove(old + "/a"), 0);
    const sys::BornStat before = BornStatOf(Path(old));
    EXPECT_EQ(Remove(old, AT_REMOVEDIR), 0);
    EXPECT_FALSE(IsKnown(lease::TagOf(before)));
    EXPECT_EQ(MakeFolder(made), 0);
    const sys::BornStat after = BornStatOf(Path(made));
    if (before.st_ino != after.st_ino) GTEST_SKIP() << "the file system gives out another number";
    known = IsKnown(lease::TagOf(after));
    EXPECT_EQ(Close(Open(made + "/b", O_RDWR | O_CREAT)), 0);
    const Said said = Log();
    known = known && !said.empty();  // else all of it is on the disk already
    if (!known) continue;
    EXPECT_EQ(said.back(), "created b");
    EXPECT_EQ(last_folder_, Path(made));
  }
  EXPECT_TRUE(known);
}

TEST_IN_ENGINE(VfsNamesTest, AFolderWithTheNumberOfAFileBeforeIsNotKnown) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  const sys::BornStat before = BornStatOf(Path("a"));
  EXPECT_TRUE(IsKnown(lease::TagOf(before)));
  EXPECT_EQ(Remove("a"), 0);
  EXPECT_EQ(::mkdir(Path("new").c_str(), 0750), 0);  // by somebody without us
  const sys::BornStat after = BornStatOf(Path("new"));
  if (before.st_ino != after.st_ino) GTEST_SKIP() << "the file system gives out another number";
  EXPECT_FALSE(IsKnown(lease::TagOf(after)));
}

// By a program without NVCache, while the log has its names.
TEST_IN_ENGINE(VfsNamesTest, AFolderThatSomebodyMakesAgainIsNotKnown) {
  EXPECT_EQ(MakeFolder("sub"), 0);
  const sys::BornStat before = BornStatOf(Path("sub"));
  EXPECT_TRUE(IsKnown(lease::TagOf(before)));
  sys::BornStat after;
  for (int tries = 0; tries < 100; ++tries) {
    EXPECT_EQ(::rmdir(Path("sub").c_str()), 0);
    EXPECT_EQ(::mkdir(Path("sub").c_str(), 0750), 0);
    after = BornStatOf(Path("sub"));
    if (before.st_ino == after.st_ino && before.birth != after.birth) break;
  }
  if (before.st_ino != after.st_ino) GTEST_SKIP() << "the file system gives out another number";
  EXPECT_FALSE(IsKnown(lease::TagOf(after)));
  EXPECT_EQ(Close(Open("sub/b", O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Log(), Said{"created sub"});
}

// In a folder that the log does not know; and the new one may be born at the same time.
TEST_IN_ENGINE(VfsNamesTest, AFolderThatIsRemovedPastTheLogIsForgotten) {
  EXPECT_EQ(::mkdir(Path("parent").c_str(), 0750), 0);
  EXPECT_EQ(MakeFolder("parent/sub"), 0);
  const int fd = ::open(Path("parent/sub").c_str(), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(Fsync(fd), kNotOurs);
  EXPECT_EQ(Fsync(fd), 0);
  ::close(fd);
  const uint64_t tag = TagOf(Path("parent/sub"));
  EXPECT_TRUE(IsKnown(tag));
  EXPECT_FALSE(IsKnown(TagOf(Path("parent"))));
  EXPECT_EQ(Remove("parent/sub", AT_REMOVEDIR), 0);
  EXPECT_FALSE(IsKnown(tag));
}

// Else recovery would look for it when the checkpoint has passed the removal.
TEST_IN_ENGINE(VfsNamesTest, AWriteToARemovedFileIsInNoLog) {
  for (const bool replaces : {false, true}) {
    const Closing fd(Open("a", O_RDWR | O_CREAT));
    EXPECT_EQ(Pwrite(fd, "first", 5, 0), 5);
    if (replaces) {
      EXPECT_EQ(Close(Open("b", O_RDWR | O_CREAT)), 0);
    }
    EXPECT_EQ(replaces ? Rename("b", "a") : Remove("a"), 0);
    const Said said = Log();
    EXPECT_EQ(said.back(), replaces ? "renamed b a gone" : "removed a gone");
    EXPECT_FALSE(IsKnown(fd));
    EXPECT_EQ(Pwrite(fd, "later", 5, 0), 5);
    EXPECT_EQ(Log(), said) << "nor is the checkpoint moved for it";
    EXPECT_EQ(Fsync(fd), 0) << "a real one";
    EXPECT_FALSE(IsKnown(fd));
  }
}

TEST_IN_ENGINE(VfsNamesTest, AWriteByANameThatIsGoneIsInNoLog) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  EXPECT_EQ(Link("a", "b"), 0);
  EXPECT_EQ(Pwrite(fd, "first", 5, 0), 5);
  EXPECT_EQ(Log().back(), "data a");
  EXPECT_EQ(Remove("a"), 0);
  EXPECT_EQ(Log().back(), "removed a others");
  EXPECT_EQ(Pwrite(fd, "later", 5, 0), 5);
  EXPECT_EQ(Log(), Said{}) << "before a call past the log, all is on the disk";
}

// No record is ever written: the checkpoint passes the folder all the same.
TEST_IN_ENGINE(VfsNamesTest, ACallThatChangesNothingIsNotPendingForEver) {
  EXPECT_EQ(::mkdir(Path("there").c_str(), 0750), 0);
  EXPECT_EQ(MakeFolder("there"), -EEXIST);
  EXPECT_TRUE(FolderIsPending());
  NameCall call;
  call.Other(AT_FDCWD, Path("pipe").c_str());
  EXPECT_EQ(call.error(), 0);
  EXPECT_FALSE(FolderIsPending());
}

// The number of the descriptor that is kept of the folder; -1: none is.
int KeptOf(const std::string& folder) {
  for (int fd = sys::kFolderNumber; fd < sys::kFirstTable; ++fd) {
    char path[4096];
    const long n = sys::ReadLinkTo(fd, path, sizeof(path));
    const bool is_path = (sys::Fcntl(fd, F_GETFL) & O_PATH) != 0;
    if (n > 0 && std::string(path, static_cast<size_t>(n)) == folder && is_path) return fd;
  }
  return -1;
}

TEST_IN_ENGINE(VfsNamesTest, AFolderInWhichNamesChangeIsKeptOpenUntilItsNumberIsWanted) {
  for (const char* name : {"a", "b"}) EXPECT_EQ(Close(Open(name, O_RDWR | O_CREAT)), 0);
  const int kept = KeptOf(disk_.path());
  ASSERT_GE(kept, 0);
  EXPECT_EQ(Fcntl(kept, F_GETFD, 0), -EBADF) << "it is none of the program's";
  EXPECT_EQ(Rename("a", "c"), 0);
  EXPECT_EQ(KeptOf(disk_.path()), kept);
  EXPECT_EQ(Dup2(0, kept), kept);
  EXPECT_EQ(KeptOf(disk_.path()), -1);
  for (const char* name : {"b", "c"}) EXPECT_EQ(Remove(name), 0);
  EXPECT_NE(KeptOf(disk_.path()), kept) << "that is the program's now";
  Release();
  EXPECT_EQ(KeptOf(disk_.path()), -1);
  ::close(kept);
}

// The program has closed it by a call that nobody sees, and has another folder there, with files of
// the same names.
TEST_IN_ENGINE(VfsNamesTest, AKeptFolderIsNotTakenForTheOneThatHasItsNumber) {
  const std::string other = memory_ / "other";
  ASSERT_EQ(::mkdir(other.c_str(), 0750), 0);
  for (const char* name : {"a", "b", "c", "e"}) {
    EXPECT_EQ(Close(Open(name, O_RDWR | O_CREAT)), 0);
    std::ofstream(other + "/" + name) << "of the other";
  }
  const int fd = ::open(other.c_str(), O_PATH | O_DIRECTORY);
  const auto replace = [&] {
    for (const char* name : {"x", "y", "x", "y"}) {
      EXPECT_EQ(Close(Open(name, O_RDWR | O_CREAT)), 0);
      EXPECT_EQ(Remove(name), 0);
    }
    const int kept = KeptOf(disk_.path());
    ASSERT_GE(kept, 0);
    ASSERT_EQ(::syscall(SYS_dup3, fd, kept, O_CLOEXEC), kept);
  };
  replace();
  EXPECT_EQ(Remove("a"), 0);
  replace();
  EXPECT_EQ(Rename("b", "d"), 0);
  replace();
  EXPECT_EQ(Rename("c", "e"), 0);
  replace();
  EXPECT_EQ(MakeFolder("f"), 0);
  replace();
  EXPECT_EQ(Close(Open("g", O_RDWR | O_CREAT)), 0);
  replace();
  EXPECT_EQ(Remove("of no other"), -ENOENT);
  EXPECT_EQ(Link("e", "h"), 0);
  for (const char* name : {"a", "b", "c"}) EXPECT_NE(::access(Path(name).c_str(), F_OK), 0) << name;
  for (const char* name : {"d", "e", "f", "g", "h"})
    EXPECT_EQ(::access(Path(name).c_str(), F_OK), 0) << name;
  for (const char* name : {"a", "b", "c", "e"})
    EXPECT_EQ(::access((other + "/" + name).c_str(), F_OK), 0) << name;
  for (const char* name : {"d", "f", "g", "h"})
    EXPECT_NE(::access((other + "/" + name).c_str(), F_OK), 0) << name;
  ::close(fd);
}

// I12.
TEST_IN_ENGINE(VfsNamesTest, ANewFileHasTheLowestNumber) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  const int lowest = ::dup(0);
  ::close(lowest);
  for (const char* name : {"b", "c"}) {
    const int fd = Open(name, O_RDWR | O_CREAT);
    EXPECT_EQ(fd, lowest);
    EXPECT_EQ(Close(fd), 0);
  }
  EXPECT_EQ(Log(), (Said{"created a", "created b", "created c"}));
}

// The kernel alone has a name in another folder. Nothing that is durable later overtakes it.
TEST_F(VfsNamesTest, NothingOvertakesANameThatIsInNoLog) {
  for (const char* name : {"1", "2", "3"}) ASSERT_EQ(::mkdir(Path(name).c_str(), 0750), 0);
  ::close(::open(Path("2/a").c_str(), O_RDWR | O_CREAT, 0640));
  WithEngine([&] {
    const int known = Open("known", O_RDWR | O_CREAT);
    EXPECT_FALSE(engine.file_table.HasUnlogged());
    EXPECT_EQ(Close(Open("1/a", O_RDWR | O_CREAT)), 0);
    EXPECT_TRUE(engine.file_table.HasUnlogged());
    EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
    EXPECT_FALSE(engine.file_table.HasUnlogged()) << "before a name in the log";
    EXPECT_EQ(Rename("2/a", "2/b"), 0);
    EXPECT_TRUE(engine.file_table.HasUnlogged());
    EXPECT_EQ(Fsync(known), 0);
    EXPECT_FALSE(engine.file_table.HasUnlogged()) << "before the fsync of a file has nothing to do";
    EXPECT_EQ(MakeFolder("3/a"), 0);
    EXPECT_TRUE(engine.file_table.HasUnlogged());
    EXPECT_EQ(Fsync(folder_), 0);
    EXPECT_FALSE(engine.file_table.HasUnlogged()) << "before that of a folder";
    EXPECT_EQ(Close(known), 0);
    EXPECT_EQ(Remove("2/b"), 0);
    EXPECT_TRUE(engine.file_table.HasUnlogged());
    const int synced = Open("known", O_RDWR | O_DSYNC);
    EXPECT_EQ(Pwrite(synced, "a", 1, 0), 1);
    EXPECT_FALSE(engine.file_table.HasUnlogged()) << "before a write that syncs by itself returns";
    EXPECT_EQ(Close(synced), 0);
  });
}

// Where syncs wait for names of a folder again and again, these will be in the log.
TEST_F(VfsNamesTest, AFolderWhoseNamesAreWaitedForBecomesKnown) {
  ASSERT_EQ(::mkdir(Path("other").c_str(), 0750), 0);
  WithEngine([&] {
    const int other = ::open(Path("other").c_str(), O_RDONLY | O_DIRECTORY);
    for (const char* name : {"other/a", "other/b", "other/c"}) {
      EXPECT_EQ(Close(Open(name, O_RDWR | O_CREAT)), 0);
      EXPECT_FALSE(IsKnown(other));
      EXPECT_TRUE(engine.file_table.HasUnlogged());
      EXPECT_EQ(Fsync(folder_), 0);
      EXPECT_FALSE(engine.file_table.HasUnlogged());
    }
    EXPECT_EQ(Close(Open("other/d", O_RDWR | O_CREAT)), 0);
    EXPECT_TRUE(IsKnown(other));
    EXPECT_EQ(Close(Open("other/e", O_RDWR | O_CREAT)), 0);
    EXPECT_FALSE(engine.file_table.HasUnlogged());
    ::close(other);
  });
}

// Somebody removes the file between the look and the call.
TEST_IN_ENGINE(VfsNamesTest, AFileThatIsGoneBeforeItIsOpened) {
  const FileEntry& entry = *engine.file_table.Find(TagOf(folder_));
  for (const std::string name : {"a", "b"}) {
    EXPECT_EQ(Close(Open(name, O_RDWR | O_CREAT)), 0);
    const int flags = O_RDWR | O_CREAT | (name == "b" ? O_TRUNC : 0);
    const uint64_t bypasses = FileTable::CoverageOf(entry).bypasses;
    const std::string path = Path(name);
    OpenGuard guard(AT_FDCWD, path.c_str(), flags, 0640);
    EXPECT_EQ(::unlink(path.c_str()), 0);
    EXPECT_EQ(guard.Replace(), kNotOurs);
    EXPECT_EQ(FileTable::CoverageOf(entry).bypasses, bypasses);
    const int fd = ::open(path.c_str(), flags, 0640);
    EXPECT_EQ(guard.Opened(fd), 0);
    EXPECT_GT(FileTable::CoverageOf(entry).bypasses, bypasses) << "its name is in no log";
    EXPECT_FALSE(FolderIsPending());
  }
}

TEST_IN_ENGINE(VfsNamesTest, TheLongestPathThatTheKernelTakes) {
  std::string path;
  while (disk_.path().size() + path.size() < 4090) path += "./";
  const int fd = Open(path + "a", O_RDWR | O_CREAT);
  EXPECT_GE(fd, 0);
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(Log(), Said{"created a"});
  EXPECT_EQ(last_folder_, disk_.path());
}

// It is described by its name record, and found again by that.
TEST_IN_ENGINE(VfsNamesTest, ANewFileIsDescribedAsTheKernelWould) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const auto told = std::make_unique<pool::FileRecord>(),
             asked = std::make_unique<pool::FileRecord>();
  {
    Access access;
    ASSERT_EQ(access.Enter(fd, Access::kData), 0);
    EXPECT_TRUE(CopyRecentRecord(access.file(), told.get()));
  }
  EXPECT_EQ(pool::Describe(fd, asked.get()), 0);
  EXPECT_TRUE(pool::SameFile(*told, *asked));
  EXPECT_STREQ(told->path, asked->path);
  EXPECT_EQ(told->mode, asked->mode);
  EXPECT_EQ(told->file_system, asked->file_system);
  EXPECT_EQ(told->device, asked->device);
}

// What the log does not have is on the disk before anything later is in the log.
TEST_IN_ENGINE(VfsNamesTest, ACallPastTheLogLeavesNothingPending) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  EXPECT_TRUE(FolderIsPending());
  {
    NameCall call;
    call.Other(AT_FDCWD, Path("pipe").c_str());
    EXPECT_EQ(call.error(), 0);
    EXPECT_EQ(call.Make(), kNotOurs);
    EXPECT_FALSE(FolderIsKnown());
    EXPECT_FALSE(FolderIsPending());
    EXPECT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  }
  EXPECT_TRUE(FolderIsKnown()) << "it was synced afterwards";
  EXPECT_EQ(Log(), Said{});
}

// A process that has died has left something of the folder pending, in a pool that is ours or
// another one. Nobody who lives moves that one's checkpoint.
TEST_F(VfsNamesTest, NobodyWaitsForADeadProcess) {
  ::close(::open(Path("there").c_str(), O_RDWR | O_CREAT, 0640));
  for (const std::string pool : {"pool", "other"}) {
    const int status = InEngine(pool, "NVCACHE_WRITE_BACK=auto", [&] {
      folder_ = ::open(disk_.path().c_str(), O_RDONLY | O_DIRECTORY);
      for (int i = 0; i < 2; ++i) Fsync(folder_);
      EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
      EXPECT_TRUE(FolderIsPending());
      raise(SIGKILL);
    });
    EXPECT_EQ(status, -SIGKILL);
    // Such a process has the pool, and no write-through files.
    const int next = InEngine("pool", "NVCACHE_WRITE_BACK=auto", [&] {
      folder_ = ::open(disk_.path().c_str(), O_RDONLY | O_DIRECTORY);
      {
        TableLock lock;
        EXPECT_TRUE(engine.attachment.Attach());
      }
      EXPECT_FALSE(engine.checkpoint.is_open());
      // Of its own pool it has moved it when it came.
      EXPECT_EQ(FolderIsPending(), pool == "other");
      EXPECT_EQ(engine.checkpoint.LookForOwners(), pool == "other");
      const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
      EXPECT_EQ(Rename("a", "c"), 0);
      constexpr uint64_t kSoon = 10ull * 1000 * 1000 * 1000;  // half of what one waits for
      EXPECT_LT(sys::Now(CLOCK_MONOTONIC) - begin, kSoon);
    });
    EXPECT_EQ(next, 0);
  }
}

TEST_IN_ENGINE(VfsNamesTest, WhileSomebodyChangesNamesNoFolderBecomesKnown) {
  NameCall call;
  call.Other(AT_FDCWD, Path("pipe").c_str());
  EXPECT_EQ(Fsync(folder_), kNotOurs);
  EXPECT_FALSE(FolderIsKnown());
}

// It is not drained for that, nor synced.
TEST_IN_ENGINE(VfsNamesTest, ACachedFileGetsAnotherNameWithWhatItHasInTheLog,
               "NVCACHE_BATCH_MIN=10000", "NVCACHE_BATCH_DELAY=60000", kAllExclusive) {
  std::vector<uint64_t> tags = {TagOf(folder_)};
  for (const char* name : {"a", "b"}) {
    MakeOutside(name, "one", &tags);
    const int fd = Open(name);
    for (int i = 0; i < 3; ++i) Fsync(fd);
    EXPECT_TRUE(IsCached(fd));
    EXPECT_EQ(Write(fd, name, 1), 1);
    const std::string to = std::string("new ") + name;
    EXPECT_EQ(name[0] == 'a' ? Rename(name, to) : Link(name, to), 0);
    EXPECT_FALSE(IsCached(fd));
    EXPECT_TRUE(IsKnown(fd));
    EXPECT_EQ(test::ReadFile(Path(to)), name + std::string("ne"));
    EXPECT_EQ(Write(fd, "x", 1), 1);
    EXPECT_EQ(Close(fd), 0);
  }
  EXPECT_EQ(Log(),
            (Said{"data a", "handed over a", "renames a new a", "renamed a new a", "data new a",
                  "data b", "handed over b", "links b new b", "linked b new b", "data b"}));
}

// So that recovery does not make it again without them.
TEST_IN_ENGINE(VfsNamesTest, AFileWithBytesThatNoLogHasIsSaidToLackThem) {
  const auto make = [&](const char* name, bool past, const std::string& bytes) {
    const int fd = Open(name, O_RDWR | O_CREAT);
    EXPECT_EQ(past ? PassThrough(fd) : 0, 0);
    const long n =
        past ? ::write(fd, bytes.data(), bytes.size()) : Write(fd, bytes.data(), bytes.size());
    EXPECT_EQ(n, static_cast<long>(bytes.size()));
    EXPECT_EQ(Close(fd), 0);
  };
  make("a", false, "one");
  make("b", true, "one");
  make("c", true, "one");
  make("d", true, "");
  EXPECT_EQ(Remove("b"), 0);
  EXPECT_EQ(Rename("a", "c"), 0);
  EXPECT_EQ(Remove("c"), 0) << "known";
  EXPECT_EQ(Remove("d"), 0) << "empty";
  const Said said = Log();
  EXPECT_EQ(Said(said.begin() + 5, said.end()),
            (Said{"removes b gone lacks", "removed b gone lacks", "renames a c gone lacks",
                  "renamed a c gone lacks", "removes c gone", "removed c gone", "removes d gone",
                  "removed d gone"}));
}

// A call under way may have taken its name away, and the file system may undo that, and have lost
// the name as well: so it is not said to be on the disk before the call is over.
TEST_IN_ENGINE(VfsNamesTest, AFileThatLosesItsNameMeanwhileIsNotSettled) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  const int strange = ::open(Path("a").c_str(), O_WRONLY);
  EXPECT_EQ(::write(strange, "one", 3), 3);
  ::close(strange);
  const Closing fd(Open("a"));
  EXPECT_FALSE(IsKnown(fd));
  EXPECT_EQ(::unlink(Path("a").c_str()), 0);
  WhileItWaits([&] { EXPECT_EQ(Fsync(fd), 0); }, [] {});
  EXPECT_FALSE(IsKnown(fd));
}

TEST_IN_ENGINE(VfsNamesTest, AFileIsKnownWhenItIsOpenedAgain) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  EXPECT_EQ(Rename("a", "b"), 0);
  const int fd = Open("b");
  EXPECT_TRUE(IsKnown(fd));
  EXPECT_EQ(Write(fd, "one", 3), 3);
  EXPECT_EQ(Close(fd), 0);
  EXPECT_EQ(Log().back(), "data b");
  // A program without us, which says nothing.
  const int strange = ::open(Path("b").c_str(), O_WRONLY | O_APPEND);
  EXPECT_EQ(::write(strange, "two", 3), 3);
  ::close(strange);
  const Closing again(Open("b"));
  EXPECT_FALSE(IsKnown(again));
  EXPECT_EQ(SyncRange(again), kNotOurs);
}

TEST_IN_ENGINE(VfsNamesTest, AKnownFileIsCutByWayOfTheLog) {
  const int fd = Open("a", O_RDWR | O_CREAT);
  EXPECT_EQ(Write(fd, "one two", 7), 7);
  EXPECT_EQ(Ftruncate(fd, 3), 0);
  EXPECT_EQ(Close(fd), 0);
  const int cut = Open("a", O_RDWR | O_TRUNC);
  EXPECT_TRUE(IsKnown(cut));
  EXPECT_EQ(Close(cut), 0);
  EXPECT_EQ(Log(),
            (Said{"created a", "data a", "truncate a", "truncate a", "truncate a", "truncate a"}))
      << "before each call, and after it";
  struct stat st;
  EXPECT_EQ(::stat(Path("a").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 0);
}

// It has not attached the pool when it makes the call.
TEST_F(VfsNamesTest, AnotherProcessCutsAKnownFileByWayOfTheLogWithItsFirstCall) {
  int ready[2], over[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(over), 0);
  const pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    ::close(ready[1]);
    char byte = 0;
    if (::read(ready[0], &byte, 1) != 1) ::_exit(1);
    ::_exit(InEngine("pool", "NVCACHE_WRITE_BACK=auto", [&] {
      const int fd = Open("a", O_WRONLY);
      EXPECT_EQ(Ftruncate(fd, 3), 0);
      EXPECT_TRUE(IsKnown(fd));
      EXPECT_EQ(Close(fd), 0);
    }));
  }
  ::close(over[1]);
  WithEngine([&] {
    const int fd = Open("a", O_RDWR | O_CREAT);
    EXPECT_EQ(Write(fd, "one two", 7), 7);
    EXPECT_EQ(::write(ready[1], "x", 1), 1);
    char byte = 0;
    EXPECT_EQ(::read(over[0], &byte, 1), 0) << "when the other process has ended";
    EXPECT_EQ(Log(), (Said{"created a", "data a", "truncate a", "truncate a"}));
    EXPECT_EQ(Close(fd), 0);
  });
  ::close(ready[0]);
  ::close(ready[1]);
  ::close(over[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

// The number in a record is that of a File of ours, which others have had.
TEST_IN_ENGINE(VfsNamesTest, AFileIsDeclaredThoughAnotherOneHadItsNumber) {
  for (const char* name : {"a", "b", "c"}) {
    const int fd = Open(name, O_RDWR | O_CREAT);
    EXPECT_EQ(Write(fd, name, 1), 1);
    EXPECT_EQ(Close(fd), 0);
  }
  EXPECT_EQ(Log(), (Said{"created a", "data a", "created b", "data b", "created c", "data c"}));
}

TEST_IN_ENGINE(VfsNamesTest, AttributesAreInTheLog) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  {
    AttributeCall call(fd);
    EXPECT_EQ(call.Begin(pool::kSetMode), 0);
    call.End(::fchmod(fd, 0600) == 0);
  }
  EXPECT_EQ(Log(), (Said{"created a", "attributes"}));
  EXPECT_TRUE(IsKnown(fd));
  // Some, no record has.
  AttributeCall call(fd);
  EXPECT_EQ(call.Begin(0), 0);
  EXPECT_FALSE(IsKnown(fd));
  call.End(true);
}

// Others may be the file's by then, and on the disk.
TEST_IN_ENGINE(VfsNamesTest, AttributesAreNotLoggedWhenTheFileIsUnknownMeanwhile) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  FileEntry* const entry = engine.file_table.Find(TagOf(fd));
  const lease::Coverage then = FileTable::CoverageOf(*entry);
  sys::Scratch<pool::NameRecord> record;
  Clear(record.get());
  record->deed = pool::Deed::kAttributes;
  record->set = pool::kSetMode;
  size_t end = 0;
  for (const auto length : {&pool::NameRecord::name_length, &pool::NameRecord::from_length,
                            &pool::NameRecord::target_length, &pool::NameRecord::folder_path_length,
                            &pool::NameRecord::from_folder_path_length}) {
    EXPECT_TRUE(pool::AddText(record.get(), length, "", &end));
  }
  EXPECT_EQ(pool::IdentifyAt(fd, "", &record->file, std::make_unique<struct statx>().get()), 0);
  sys::InEngine inside;
  const NamesLock lock;
  EXPECT_TRUE(CommitAttributes(*record, lock, entry, then));
  FileTable::Forget(*entry);
  EXPECT_FALSE(CommitAttributes(*record, lock, entry, then));
  EXPECT_EQ(Log(), (Said{"created a", "attributes"}));
}

// By a call that no front end sees.
TEST_IN_ENGINE(VfsNamesTest, AttributesOfANewSymbolicLinkAreInTheLog) {
  const std::string path = Path("to");
  EXPECT_EQ(
      Made([&](NameCall& call, bool past) { call.MakeLink("a", AT_FDCWD, path.c_str(), past); },
           [&] { return ::symlink("a", path.c_str()); }),
      0);
  AttributeCall call(AT_FDCWD, path.c_str(), false);
  EXPECT_EQ(call.Begin(pool::kSetTimes), 0);
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  call.End(true);
  EXPECT_EQ(Log(), (Said{"created to", "attributes"}));
}

TEST_IN_ENGINE(VfsNamesTest, AttributesAreOfWhatTheDescriptorLeadsTo) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const int other = ::open(Path("other").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  EXPECT_EQ(::dup3(other, fd, O_CLOEXEC), fd);
  {
    AttributeCall call(fd);
    EXPECT_EQ(call.Begin(pool::kSetMode), 0);
    call.End(::fchmod(fd, 0600) == 0);
  }
  EXPECT_EQ(Log(), (Said{"created a"}));
  ::close(other);
}

// By which recovery looks for the file, where it has no right to use handles.
TEST_IN_ENGINE(VfsNamesTest, AttributesAreOfTheNameThatTheFileHasNow) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const auto set = [&](const std::function<void()>& meanwhile) {
    AttributeCall call(fd);
    EXPECT_EQ(call.Begin(pool::kSetMode), 0);
    meanwhile();
    call.End(::fchmod(fd, 0600) == 0);
    EXPECT_EQ(Log().back(), "attributes");
    return last_target_;
  };
  EXPECT_EQ(set([] {}), Path("a"));
  EXPECT_EQ(Rename("a", "b"), 0);
  EXPECT_EQ(set([] {}), Path("b"));
  EXPECT_EQ(set([&] { EXPECT_EQ(Rename("b", "c"), 0); }), Path("c"));
}

// It may have made its call, or not: nothing is known any more.
TEST_IN_ENGINE(VfsNamesTest, TheLockIsTakenFromADeadProcess) {
  const Closing fd(Open("a", O_RDWR | O_CREAT));
  const std::string leases_of = memory_.path();
  const int status = test::InChild([&] {
    lease::Leases leases;
    FileTable file_table(leases);
    const char* why = "";
    if (!leases.Open(leases_of.c_str(), &why)) return 1;
    file_table.LockNames();
    raise(SIGKILL);
    return 1;
  });
  EXPECT_EQ(status, -SIGKILL);
  const uint64_t lock = engine.file_table.LockNames();
  EXPECT_FALSE(FolderIsKnown());
  EXPECT_FALSE(IsKnown(fd));
  engine.file_table.UnlockNames(lock);
  EXPECT_EQ(Rename("a", "b"), 0);
  EXPECT_TRUE(FolderIsKnown());
}

TEST_IN_ENGINE(VfsNamesTest, WhoeverLosesTheLockCommitsNothing) {
  EXPECT_EQ(Close(Open("a", O_RDWR | O_CREAT)), 0);
  NameCall call;
  call.Remove(AT_FDCWD, Path("a").c_str(), 0, false);
  EXPECT_TRUE(call.logs());
  engine.file_table.UnlockNames(engine.file_table.LockNames());
  FileTable::Forget(*engine.file_table.Find(TagOf(folder_)));
  EXPECT_EQ(call.Make(), kBeginAnew);
  EXPECT_EQ(::access(Path("a").c_str(), F_OK), 0);
}

// A program without us moves the folder after it was looked up, and makes another one in its place.
TEST_IN_ENGINE(VfsNamesTest, AFileThatIsMadeElsewhereIsInNoRecord) {
  EXPECT_EQ(MakeFolder("d"), 0);
  int fd = -1;
  WhileItWaits([&] { fd = Open("d/a", O_RDWR | O_CREAT); },
               [&] {
                 EXPECT_EQ(::rename(Path("d").c_str(), Path("e").c_str()), 0);
                 EXPECT_EQ(::mkdir(Path("d").c_str(), 0750), 0);
               });
  EXPECT_EQ(::access(Path("d/a").c_str(), F_OK), 0);
  EXPECT_EQ(Log(), Said{}) << "all was synced";
  EXPECT_EQ(Close(fd), 0);
}

TEST_IN_ENGINE(VfsNamesTest, ALinkThatLeadsNowhereIsFollowed) {
  EXPECT_EQ(::symlink(Path("target").c_str(), Path("link").c_str()), 0);
  const Closing fd(Open("link", O_RDWR | O_CREAT));
  EXPECT_GE(fd, 0);
  EXPECT_EQ(::access(Path("target").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace nvcache::vfs
