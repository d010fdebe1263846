// SPDX-License-Identifier: BSD-3-Clause
//
// The record's text: what is stored is read back, and what is malformed is refused with a reason.
#include <gtest/gtest.h>

#include <string>

#include "mirror/etcd/base64.h"
#include "mirror/etcd/json.h"

namespace nvcache::mirror {
namespace {

Id Filled(uint8_t byte) {
  Id id;
  id.bytes.fill(byte);
  return id;
}

Record Good() {
  return {.version = 7,
          .epoch = 3,
          .writer = "host a, process 81",
          .lineage = Filled(0xab),
          .pool_size = uint64_t{1} << 30,
          .mode = Mode::kMirrored,
          .holders = {{.address = "a:7070", .incarnation = Filled(1)},
                      {.address = "10.0.0.2:7070", .incarnation = Filled(2)},
                      {.address = "[fd00::1]:7070", .incarnation = {}}}};
}

std::string With(const std::string& from, const std::string& to) {
  std::string text = ToText(Good());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

void ExpectRefused(const std::string& text, const std::string& reason) {
  std::string problem;
  EXPECT_FALSE(ParseRecord(text, &problem)) << text;
  EXPECT_NE(problem.find(reason), std::string::npos) << problem << ", of " << text;
  EXPECT_EQ(problem.find('\n'), std::string::npos);
}

TEST(MirrorRecordTest, IsReadAsItWasWritten) {
  std::string problem;
  for (const Mode mode : {Mode::kReal, Mode::kMirrored, Mode::kRecovering}) {
    Record record = Good();
    record.mode = mode;
    EXPECT_EQ(Problem(record), "");
    EXPECT_EQ(ParseRecord(ToText(record), &problem), record) << problem;
  }
  Record extreme = Good();
  extreme.version = extreme.epoch = extreme.pool_size = ~uint64_t{0};
  extreme.writer = std::string("\0\"\n\\", 4) + std::string(kMaxWriter - 4, '\x01');
  extreme.holders.clear();
  for (size_t i = 0; i < kMaxHolders; ++i) {
    extreme.holders.push_back(
        {.address = std::string(kMaxAddress - 6, static_cast<char>('a' + i)) + ":65535",
         .incarnation = Filled(static_cast<uint8_t>(i + 1))});
  }
  EXPECT_EQ(ParseRecord(ToText(extreme), &problem), extreme) << problem;
  Record real = Good();
  real.mode = Mode::kReal;
  real.free = true;
  real.lineage = {};
  real.pool_size = 0;
  EXPECT_EQ(ParseRecord(ToText(real), &problem), real) << problem;
}

TEST(MirrorRecordTest, HasThisText) {
  Record record = Good();
  record.holders.resize(1);
  EXPECT_EQ(ToText(record),
            R"({"layout":1,"version":7,"epoch":3,"writer":"host a, process 81",)"
            R"("lineage":"abababababababababababababababab","pool_size":1073741824,)"
            R"("mode":"mirrored","free":false,"holders":[{"address":"a:7070",)"
            R"("incarnation":"01010101010101010101010101010101"}]})");
}

TEST(MirrorRecordTest, AWriterThatIsNoUtf8IsReplaced) {
  Record record = Good();
  record.writer = "\xff!";
  std::string problem;
  const std::optional<Record> found = ParseRecord(ToText(record), &problem);
  ASSERT_TRUE(found) << problem;
  EXPECT_EQ(found->writer, "\xef\xbf\xbd!");
}

TEST(MirrorRecordTest, RefusesWhatIsNoRecord) {
  for (const std::string text :
       {"", " ", "{", "nonsense", "{\"layout\":1}}", "\xff\xfe", "{'a':1}"}) {
    ExpectRefused(text, "it is not JSON");
  }
  for (const std::string text : {"null", "[]", "1", "\"text\"", "true"}) {
    ExpectRefused(text, "it is not a JSON object");
  }
  ExpectRefused("{}", "lacks the field layout");
  ExpectRefused(std::string(kMaxRecord + 1, ' '), "longer than");
  ExpectRefused(std::string(kMaxRecord, '['), "it is not JSON");
  const std::string text = ToText(Good());
  for (size_t n = 0; n < text.size(); ++n) ExpectRefused(text.substr(0, n), "it is not JSON");
}

TEST(MirrorRecordTest, RefusesAnotherLayout) {
  ExpectRefused(With("\"layout\":1", "\"layout\":2"), "its layout is 2");
  ExpectRefused(With("\"layout\":1", "\"layout\":\"1\""), "layout is not a whole number");
  ExpectRefused("{\"layout\":2}", "its layout is 2");
}

TEST(MirrorRecordTest, RefusesFieldsThatAreMissingOrTooMany) {
  for (const std::string name :
       {"version", "epoch", "writer", "lineage", "pool_size", "mode", "free", "holders"}) {
    ExpectRefused(With("\"" + name + "\"", "\"" + name + "_\""), "lacks the field " + name);
  }
  for (const std::string name : {"address", "incarnation"}) {
    ExpectRefused(With("\"" + name + "\"", "\"x\""), "holder 0 lacks the field " + name);
  }
  ExpectRefused(With("{", "{\"more\":1,"), "this layout has not");
  ExpectRefused(With("{\"address\"", "{\"more\":1,\"address\""), "holder 0 has a field");
  ExpectRefused(With("{", "{\"epoch\":9,"), "twice");
  ExpectRefused(With("{\"address\"", "{\"address\":\"b:1\",\"address\""), "twice");
}

TEST(MirrorRecordTest, RefusesFieldsOfAnotherType) {
  for (const std::string value : {"-3", "3.0", "3e0", "\"3\"", "null", "18446744073709551616"}) {
    ExpectRefused(With("\"epoch\":3", "\"epoch\":" + value), "the field epoch");
  }
  ExpectRefused(With("\"host a, process 81\"", "81"), "the field writer is not a string");
  ExpectRefused(With("\"mirrored\"", "\"Mirrored\""), "none of real, mirrored and recovering");
  ExpectRefused(With("false", "0"), "neither true nor false");
  ExpectRefused(With("\"abab", "\"ABAB"), "the field lineage");
  ExpectRefused(With("\"abab", "\"ab"), "the field lineage");
  ExpectRefused(With("\"0101", "\"010"), "the field incarnation");
  ExpectRefused(With("[{", "[7,{"), "holder 0 is not an object");
  ExpectRefused(With("[{\"address\"", "{\"x\":[{\"address\"").append("}"), "");
}

TEST(MirrorRecordTest, RefusesValuesThatCannotBe) {
  ExpectRefused(With("\"epoch\":3", "\"epoch\":0"), "its epoch is 0");
  ExpectRefused(With("false", "true"), "mirrored and free");
  ExpectRefused(With("\"version\":7", "\"version\":0"), "its version is 0");
  ExpectRefused(With("\"pool_size\":1073741824", "\"pool_size\":0"), "no size");
  ExpectRefused(With("abababababababababababababababab", std::string(32, '0')), "no lineage");
  ExpectRefused(With("10.0.0.2:7070", "a:7070"), "two holders have the address a:7070");
  ExpectRefused(With(std::string(8, '0') + std::string(24, '0'), Filled(1).Text()),
                "two holders have the incarnation");
  for (const std::string address : {"", "a", "a:", ":1", "a:0", "a:01", "a:65536", "a:123456",
                                    "a:x", "a b:1", "\\u0007:1", "a:1\\n"}) {
    ExpectRefused(With("10.0.0.2:7070", address), "the address of holder 1 is not HOST:PORT");
  }
}

TEST(MirrorRecordTest, RefusesNumbersOfHoldersThatCannotBe) {
  Record record = Good();
  const auto with = [&record](size_t count) {
    record.holders.clear();
    for (size_t i = 0; i < count; ++i) {
      record.holders.push_back({.address = "a:" + std::to_string(i + 1), .incarnation = {}});
    }
    EXPECT_EQ(Problem(record).empty(), count % 2 == 1 && count <= kMaxHolders) << count;
    return ToText(record);
  };
  ExpectRefused(with(0), "no holder");
  ExpectRefused(with(2), "odd");
  ExpectRefused(with(8), "odd");
  ExpectRefused(with(kMaxHolders + 1), "at most");
  ExpectRefused(with(kMaxHolders + 2), "at most");
  record = Good();
  record.writer = std::string(kMaxWriter + 1, 'x');
  ExpectRefused(ToText(record), "the field writer is longer");
}

TEST(MirrorBase64Test, ReadsWhatItWrites) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(FromBase64(Base64(bytes)), bytes);
    bytes += static_cast<char>(i * 7);
  }
}

TEST(MirrorBase64Test, RefusesWhatNobodyWrites) {
  for (const std::string text :
       {"Z", "Zg", "Zg=", "Zg===", "Z===", "====", "Zh==", "Zm9=", "Zg==Zg==", "Zm 9", "Zm9v\n",
        "Zm-_", "=Zg=", "\xff\xff\xff\xff"}) {
    EXPECT_FALSE(FromBase64(text)) << text;
  }
}

}  // namespace
}  // namespace nvcache::mirror
