// SPDX-License-Identifier: BSD-3-Clause
//
// The tester of names: changes made by hand, and exactly what they may leave.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>
#include <string>

#include "src/pool/name_record.h"
#include "tests/crash/model.h"
#include "tests/crash/name_check.h"
#include "tests/crash/name_machine.h"
#include "tests/crash/name_medium.h"

namespace nvcache::crash {
namespace {

constexpr uint32_t kRoot = 0, kFolder = 1, kFirst = 2, kSecond = 3, kThird = 4;
constexpr size_t kPoolSize = 4096;

// The root; in it the folder "s", which has a number, and files that have names as a test says.
class Tree {
 public:
  Tree() {
    trace_.root = kRoot;
    for (const uint32_t mode :
         {S_IFDIR | 0700u, S_IFDIR | 0700u, S_IFREG | 0600u, S_IFREG | 0600u, S_IFREG | 0600u}) {
      FileInfo file;
      file.identity.mode = mode;
      file.identity.inode = 10 + trace_.files.size();
      file.exists = true;
      trace_.files.push_back(file);
    }
    trace_.files[kRoot].identity.path = "/root";
    Has(kRoot, "s", kFolder);
  }

  Tree& Has(uint32_t folder, const std::string& name, uint32_t file) {
    trace_.names[{folder, name}] = file;
    return *this;
  }
  Tree& Set(uint32_t folder, const std::string& name, uint32_t file, bool more = false) {
    trace_.events.push_back(trace_.EntryEvent(0, {folder, name, more}, file));
    return *this;
  }
  Tree& Rename(uint32_t from, const std::string& a, uint32_t to, const std::string& b,
               uint32_t file) {
    return Set(to, b, file, true).Set(from, a, kNobody);
  }
  Tree& Add(Event::Type type, uint32_t file = 0, uint64_t at = 0) {
    trace_.events.push_back({type, {}, 0, file, at, 0, 0});
    return *this;
  }
  Tree& SetMode(uint32_t file, uint32_t mode) {
    trace_.events.push_back(trace_.AttributesEvent(0, file, {pool::kSetMode, {mode}}));
    return *this;
  }
  Tree& Operation_(Operation::Kind kind, bool ends) {
    if (!ends) trace_.operations.push_back({kind, 0, 0, 0, 0});
    const auto last = static_cast<uint32_t>(trace_.operations.size() - 1);
    return Add(ends ? Event::kEnd : Event::kBegin, last);
  }

  // All that may be left: each name with the number of its file.
  std::set<std::string> Left() const {
    NameMedium medium(trace_);
    for (const Event& event : trace_.events) medium.Apply(event, trace_);
    std::set<std::string> left;
    std::mt19937_64 random(1);
    for (const NameChoice& choice : medium.Choices(1000, &random)) {
      left.insert(TextOf(medium.Build(choice).names));
    }
    return left;
  }
  std::set<std::string> Expected_() const {
    Model model(trace_);
    for (const Event& event : trace_.events) model.Apply(event);
    std::set<std::string> expected;
    for (const Entries& names : model.Now().names) expected.insert(TextOf(names));
    return expected;
  }
  const Trace& trace() const { return trace_; }

 private:
  static std::string TextOf(const Entries& names) {
    std::string text;
    for (const auto& [name, file] : names) {
      if (file == kFolder && name.second == "s") continue;
      text += (name.first == kFolder ? "s/" : "") + name.second + std::to_string(file) + " ";
    }
    return text;
  }

  Trace trace_;
};

using Lefts = std::set<std::string>;

TEST(NameMediumTest, WhatWasNotSyncedIsThereUpToSomeCall) {
  EXPECT_EQ(Tree().Set(kRoot, "a", kFirst).Set(kRoot, "b", kSecond).Left(),
            (Lefts{"", "a2 ", "a2 b3 "}));
  EXPECT_EQ(Tree().Has(kRoot, "a", kFirst).Set(kRoot, "a", kNobody).Left(), (Lefts{"a2 ", ""}));
}

TEST(NameMediumTest, ARenameOfAFileMayBeHalfDone) {
  EXPECT_EQ(Tree().Has(kRoot, "a", kFirst).Rename(kRoot, "a", kRoot, "b", kFirst).Left(),
            (Lefts{"a2 ", "a2 b2 ", "b2 "}));
}

TEST(NameMediumTest, ARenameOfAFolderIsWhole) {
  EXPECT_EQ(Tree().Rename(kRoot, "s", kRoot, "t", kFolder).Left(), (Lefts{"", "t1 "}));
}

TEST(NameMediumTest, EachFolderMayBeKeptByItself) {
  EXPECT_EQ(Tree().Set(kRoot, "a", kFirst).Set(kFolder, "b", kSecond).Left(),
            (Lefts{"", "a2 ", "s/b3 ", "a2 s/b3 "}));
}

TEST(NameMediumTest, NoFileIsLostThatHadAnotherName) {
  EXPECT_EQ(Tree().Has(kRoot, "a", kFirst).Rename(kRoot, "a", kFolder, "b", kFirst).Left(),
            (Lefts{"a2 ", "a2 s/b2 ", "s/b2 "}));
}

// Of the first folder all is kept, and of the other one nothing: so the second file keeps its name,
// the third one cannot have it, and the first one is not destroyed by that.
TEST(NameMediumTest, WhatIsNotThereDestroysNoFile) {
  const Lefts lefts = Tree()
                          .Has(kRoot, "x", kFirst)
                          .Has(kRoot, "y", kSecond)
                          .Rename(kRoot, "y", kFolder, "z", kSecond)
                          .Rename(kRoot, "x", kRoot, "y", kFirst)
                          .Set(kRoot, "x", kThird)
                          .Rename(kRoot, "x", kRoot, "y", kThird)
                          .Left();
  EXPECT_EQ(lefts.count("x2 y3 "), 1u);
  for (const std::string& left : lefts) {
    const bool has_first = left.find("2 ") != std::string::npos;
    EXPECT_TRUE(has_first || left.find("y4 ") != std::string::npos) << left;
  }
}

TEST(NameMediumTest, ASyncOfAFileCoversItsFolder) {
  const auto synced = [](uint32_t file) {
    return Tree()
        .Set(kRoot, "a", kFirst)
        .Set(kFolder, "b", kSecond)
        .Add(Event::kSyncBegin, file)
        .Set(kRoot, "c", kFirst)
        .Add(Event::kSyncEnd, file)
        .Left();
  };
  // Where there is one journal, the other one's name is durable as well.
  EXPECT_EQ(synced(kFirst), (Lefts{"a2 s/b3 ", "a2 c2 s/b3 ", "a2 ", "a2 c2 "}));
  // A folder has to be found itself.
  EXPECT_EQ(synced(kSecond), (Lefts{"a2 s/b3 ", "a2 c2 s/b3 "}));
}

TEST(NameMediumTest, AFileThatWentToAnotherFolderIsSyncedInBoth) {
  EXPECT_EQ(Tree()
                .Has(kFolder, "b", kSecond)
                .Rename(kFolder, "b", kRoot, "a", kSecond)
                .Add(Event::kSyncBegin, kSecond)
                .Add(Event::kSyncEnd, kSecond)
                .Left(),
            (Lefts{"a3 "}));
}

TEST(NameMediumTest, ASyncOfAllCoversWhatCameBeforeItBegan) {
  EXPECT_EQ(Tree()
                .Set(kRoot, "a", kFirst)
                .Set(kFolder, "b", kSecond)
                .Add(Event::kNamesBegin)
                .Set(kRoot, "c", kFirst)
                .Add(Event::kNamesEnd)
                .Left(),
            (Lefts{"a2 s/b3 ", "a2 c2 s/b3 "}));
}

TEST(NameMediumTest, AModeIsThereWithANameThatCameLater) {
  const Tree tree = Tree().Set(kRoot, "a", kFirst).SetMode(kFirst, 0640).Set(kRoot, "b", kFirst);
  NameMedium medium(tree.trace());
  for (const Event& event : tree.trace().events) medium.Apply(event, tree.trace());
  EXPECT_EQ(medium.Build({1, {}}).attributes[kFirst].mode, S_IFREG | 0600u);
  EXPECT_EQ(medium.Build({2, {}}).attributes[kFirst].mode, S_IFREG | 0640u);
  EXPECT_EQ(medium.Build({0, {{kRoot, 1}}}).attributes[kFirst].mode, S_IFREG | 0600u);
  EXPECT_EQ(medium.Build({0, {{kRoot, 2}}}).attributes[kFirst].mode, S_IFREG | 0640u);
}

TEST(NameModelTest, ARunningCallIsMadeOrNot) {
  Tree tree;
  tree.Has(kRoot, "a", kFirst).Operation_(Operation::kNames, false);
  EXPECT_EQ(tree.Expected_(), (Lefts{"a2 "}));
  tree.Rename(kRoot, "a", kRoot, "b", kFirst);
  EXPECT_EQ(tree.Expected_(), (Lefts{"a2 ", "b2 "})) << "no half of it";
  tree.Operation_(Operation::kNames, true);
  EXPECT_EQ(tree.Expected_(), (Lefts{"b2 "}));
}

TEST(NameModelTest, OfWhatIsInNoLogARunningCallMayBeHalfMade) {
  Tree tree;
  tree.Has(kRoot, "a", kFirst).Operation_(Operation::kStranger, false);
  tree.Rename(kRoot, "a", kRoot, "b", kFirst);
  EXPECT_EQ(tree.Expected_(), (Lefts{"a2 ", "a2 b2 ", "b2 "}));
  tree.Operation_(Operation::kStranger, true);
  EXPECT_EQ(tree.Expected_(), (Lefts{"b2 "}));
}

class NameCheckTest : public testing::Test {
 protected:
  NameCheckTest() {
    for (const FileInfo& file : tree_.trace().files) {
      machine_.files().push_back({file.identity, true, ""});
      expected_.files.push_back({{""}, false, {file.identity}});
    }
    expected_.names = {{{{kRoot, "s"}, kFolder}, {{kRoot, "a"}, kFirst}, {{kFolder, "b"}, kFirst}}};
    machine_.names() = expected_.names[0];
  }
  std::string Wrong() { return CompareNames(machine_, kRoot, expected_); }

  Tree tree_;
  NameMachine machine_{kPoolSize, kRoot};
  Expected expected_;
};

TEST_F(NameCheckTest, NamesAreAsInOneOfTheStates) {
  EXPECT_EQ(Wrong(), "");
  machine_.names().erase({kFolder, "b"});
  EXPECT_NE(Wrong().find("s/b is missing"), std::string::npos) << Wrong();
  expected_.names.push_back(machine_.names());
  EXPECT_EQ(Wrong(), "");
  machine_.names()[{kRoot, "c"}] = kSecond;
  EXPECT_NE(Wrong().find("c should not be there"), std::string::npos) << Wrong();
}

TEST_F(NameCheckTest, AnotherFileMayStandForOneAtAllOfItsNames) {
  machine_.names()[{kRoot, "a"}] = kSecond;
  EXPECT_NE(Wrong().find("leads to another file"), std::string::npos) << Wrong();
  machine_.names()[{kFolder, "b"}] = kSecond;
  EXPECT_EQ(Wrong(), "");
}

TEST_F(NameCheckTest, BytesAndModesAreLookedAt) {
  machine_.files()[kFirst].content = "x";
  EXPECT_NE(Wrong().find("has other bytes"), std::string::npos) << Wrong();
  expected_.files[kFirst].contents = {"", "x"};
  EXPECT_EQ(Wrong(), "");
  machine_.files()[kFirst].identity.mode = S_IFREG | 0640;
  EXPECT_NE(Wrong().find("has mode"), std::string::npos) << Wrong();
}

}  // namespace
}  // namespace nvcache::crash
