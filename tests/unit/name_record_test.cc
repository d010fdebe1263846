// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/name_record.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

namespace nvcache::pool {
namespace {

struct Texts {
  std::string name, from, target, folder, from_folder;
};

Identity SomeIdentity(uint64_t inode) {
  Identity identity = {};
  identity.inode = inode;
  return identity;
}

// By hand, so that it may be wrong.
NameRecord Record(Deed deed, const Texts& texts) {
  NameRecord record = {};
  record.deed = deed;
  record.mode = S_IFREG | 0600;
  record.file = SomeIdentity(1);
  if (!texts.folder.empty()) record.folder = SomeIdentity(2);
  if (!texts.from_folder.empty()) record.from_folder = SomeIdentity(3);
  if (deed == Deed::kAttributes) record.set = kSetMode;
  size_t end = 0;
  const auto add = [&](uint16_t NameRecord::*length, const std::string& text) {
    record.*length = static_cast<uint16_t>(text.size());
    std::memcpy(record.text + end, text.data(), text.size());
    end += text.size() + 1;
  };
  add(&NameRecord::name_length, texts.name);
  add(&NameRecord::from_length, texts.from);
  add(&NameRecord::target_length, texts.target);
  add(&NameRecord::folder_path_length, texts.folder);
  add(&NameRecord::from_folder_path_length, texts.from_folder);
  return record;
}

bool IsGood(const NameRecord& record) { return IsNameRecord(record, NameRecordSize(record)); }
bool IsGood(Deed deed, const Texts& texts) { return IsGood(Record(deed, texts)); }

const Texts kOne = {"a", "", "", "/d", ""};
const Texts kTwo = {"a", "b", "", "/d", "/e"};

TEST(NameRecord, EachDeed) {
  EXPECT_TRUE(IsGood(Deed::kCreated, kOne));
  EXPECT_TRUE(IsGood(Deed::kRemoves, kOne));
  EXPECT_TRUE(IsGood(Deed::kRemoved, kOne));
  for (const Deed deed : {Deed::kLinks, Deed::kLinked, Deed::kRenames, Deed::kRenamed}) {
    EXPECT_TRUE(IsGood(deed, kTwo));
    EXPECT_FALSE(IsGood(deed, kOne));
    EXPECT_FALSE(IsGood(deed, {"a", "b", "", "/d", ""}));
    EXPECT_FALSE(IsGood(deed, {"a", "", "", "/d", "/e"}));
  }
  for (const Deed deed : {Deed::kCreated, Deed::kRemoves, Deed::kRemoved}) {
    EXPECT_FALSE(IsGood(deed, kTwo));
  }
  EXPECT_TRUE(IsGood(Deed::kAttributes, {}));
  EXPECT_TRUE(IsGood(Deed::kAttributes, {"", "", "/d/a", "", ""})) << "its path";
  EXPECT_FALSE(IsGood(Deed::kAttributes, kOne));
  EXPECT_FALSE(IsGood(static_cast<Deed>(0), kOne));
  EXPECT_FALSE(IsGood(static_cast<Deed>(9), kOne));
}

// Whatever leads out of the folder.
TEST(NameRecord, NamesAreNoPaths) {
  const std::string longest(kMaxName, 'n');
  for (const std::string& name :
       {std::string(".."), std::string("."), std::string("/"), std::string("a/b"),
        std::string("../a"), std::string("/a"), std::string("a/"), std::string(), longest + "n",
        std::string("a\0b", 3), std::string("\0", 1)}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(IsGood(Deed::kCreated, {name, "", "", "/d", ""}));
    EXPECT_FALSE(IsGood(Deed::kRemoved, {name, "", "", "/d", ""}));
    EXPECT_FALSE(IsGood(Deed::kRenamed, {name, "b", "", "/d", "/e"}));
    EXPECT_FALSE(IsGood(Deed::kRenamed, {"a", name, "", "/d", "/e"}));
    EXPECT_FALSE(IsGood(Deed::kLinked, {"a", name, "", "/d", "/e"}));
  }
  for (const std::string& name : {std::string("..."), std::string(".a"), std::string("..a"),
                                  std::string("a\\b"), std::string("\n"), longest}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(IsGood(Deed::kCreated, {name, "", "", "/d", ""}));
    EXPECT_TRUE(IsGood(Deed::kRenamed, {"a", name, "", "/d", "/e"}));
  }
}

TEST(NameRecord, PathsAreAbsolute) {
  for (const std::string& path : {std::string("d"), std::string("./d"), std::string("\0/", 2),
                                  "/" + std::string(kMaxPath - 1, 'p')}) {
    SCOPED_TRACE(path);
    EXPECT_FALSE(IsGood(Deed::kCreated, {"a", "", "", path, ""}));
    EXPECT_FALSE(IsGood(Deed::kRenamed, {"a", "b", "", "/d", path}));
  }
  EXPECT_TRUE(IsGood(Deed::kCreated, {"a", "", "", "/", ""}));
  EXPECT_TRUE(IsGood(Deed::kCreated, {"a", "", "", "/" + std::string(kMaxPath - 2, 'p'), ""}));
}

TEST(NameRecord, WhatIsBorn) {
  NameRecord record = Record(Deed::kCreated, kOne);
  for (const int type : {S_IFREG, S_IFDIR}) {
    record.mode = static_cast<uint32_t>(type | 0644);
    EXPECT_TRUE(IsGood(record));
  }
  for (const int type : {0, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
    record.mode = static_cast<uint32_t>(type | 0644);
    EXPECT_FALSE(IsGood(record)) << std::oct << type;
  }
  record = Record(Deed::kCreated, {"a", "", "target", "/d", ""});
  record.mode = S_IFLNK | 0777;
  EXPECT_TRUE(IsGood(record));
}

TEST(NameRecord, Identities) {
  NameRecord record = Record(Deed::kRenamed, kTwo);
  record.other = SomeIdentity(4);
  EXPECT_TRUE(IsGood(record));
  record.other.inode = 0;
  record.other.handle_type = 1;
  EXPECT_FALSE(IsGood(record)) << "half of one";
  record.other = {};
  for (Identity* identity : {&record.file, &record.folder, &record.from_folder}) {
    const Identity before = *identity;
    identity->handle_size = kMaxNameHandle;
    EXPECT_TRUE(IsGood(record));
    identity->handle_size = kMaxNameHandle + 1;
    EXPECT_FALSE(IsGood(record));
    *identity = {};
    EXPECT_FALSE(IsGood(record));
    *identity = before;
  }
  record = Record(Deed::kRemoved, kOne);
  record.other = SomeIdentity(4);
  EXPECT_FALSE(IsGood(record));
}

TEST(NameRecord, SizesAndFlags) {
  const NameRecord good = Record(Deed::kRenamed, kTwo);
  const size_t size = NameRecordSize(good);
  EXPECT_TRUE(IsNameRecord(good, size));
  EXPECT_FALSE(IsNameRecord(good, size - 1));
  EXPECT_FALSE(IsNameRecord(good, size + 1));
  EXPECT_FALSE(IsNameRecord(good, 0));
  EXPECT_FALSE(IsNameRecord(good, sizeof(NameRecord) + 1));
  for (const auto length :
       {&NameRecord::name_length, &NameRecord::from_length, &NameRecord::target_length,
        &NameRecord::folder_path_length, &NameRecord::from_folder_path_length}) {
    NameRecord record = good;
    record.*length = UINT16_MAX;
    EXPECT_FALSE(IsGood(record));
    record.*length = static_cast<uint16_t>(good.*length + 1);
    EXPECT_FALSE(IsGood(record));
  }
  NameRecord record = good;
  record.flags = kNameFlags;
  EXPECT_TRUE(IsGood(record));
  record.flags = kNameFlags + 1;
  EXPECT_FALSE(IsGood(record));
  record.flags = 0;
  record.set = kSetMode;
  EXPECT_FALSE(IsGood(record));
  record = Record(Deed::kAttributes, {});
  record.set = 0;
  EXPECT_FALSE(IsGood(record));
  record.set = kSetAll + 1;
  EXPECT_FALSE(IsGood(record));
}

// The last text has no end: nothing is read behind the record.
TEST(NameRecord, NothingBehindIt) {
  constexpr size_t kPage = 4096;
  constexpr size_t kRoom = (sizeof(NameRecord) + kPage - 1) / kPage * kPage;
  void* memory =
      mmap(nullptr, kRoom + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bytes = static_cast<char*>(memory);
  ASSERT_EQ(mprotect(bytes + kRoom, kPage, PROT_NONE), 0);
  const std::string name(kMaxName, 'n'), path = "/" + std::string(kMaxPath - 2, 'p');
  auto* record = reinterpret_cast<NameRecord*>(bytes + kRoom - sizeof(NameRecord));
  *record = Record(Deed::kRenamed, {name, name, path, path, path});
  EXPECT_TRUE(IsNameRecord(*record, sizeof(*record)));
  record->text[kMaxNameText - 1] = 'p';
  EXPECT_FALSE(IsNameRecord(*record, sizeof(*record)));
  munmap(memory, kRoom + kPage);
}

}  // namespace
}  // namespace nvcache::pool
