// SPDX-License-Identifier: BSD-3-Clause
#include "src/settings/settings.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nvcache::settings {
namespace {

constexpr uint64_t kKilo = 1024;

// The size, or -1 if it is unreadable.
int64_t Size(const char* text) {
  uint64_t bytes = 0;
  return ParseSize(text, &bytes) ? static_cast<int64_t>(bytes) : -1;
}

TEST(ParseSizeTest, ReadsWhatFioReads) {
  EXPECT_EQ(Size("0"), 0);
  EXPECT_EQ(Size("4096"), 4096);
  EXPECT_EQ(Size("512b"), 512);
  for (const char* text : {"64k", "64K", "64kb", "64KB", "64KiB", "64kib"}) {
    EXPECT_EQ(Size(text), 65536) << text;
  }
  EXPECT_EQ(Size("3m"), int64_t{3} << 20);
  EXPECT_EQ(Size("1GiB"), int64_t{1} << 30);
  EXPECT_EQ(Size("2T"), int64_t{2} << 40);
  EXPECT_EQ(Size("1p"), int64_t{1} << 50);
  EXPECT_EQ(Size("1.5G"), 3 * (int64_t{1} << 29));
  EXPECT_EQ(Size("0.5k"), 512);
  EXPECT_EQ(Size("0.25"), 0);
  EXPECT_EQ(Size("1.5000000000000000000000k"), 1536);
  EXPECT_EQ(Size("007"), 7);
}

TEST(ParseSizeTest, RefusesEverythingElse) {
  for (const char* text :
       {"",     " ",  "k",  "-1",   "+1",    " 1",   "1 ",  "1 k",  "1x",  "1kk", "1ki", "1bb",
        "1kbb", "1.", ".5", "1..5", "1.5.5", "0x10", "1e3", "1,5k", "1gg", "1Bi", "ki",  "1\n"}) {
    EXPECT_EQ(Size(text), -1) << '"' << text << '"';
  }
}

TEST(ParseSizeTest, KnowsItsLimit) {
  uint64_t bytes = 0;
  EXPECT_TRUE(ParseSize("9223372036854775807", &bytes));
  EXPECT_TRUE(ParseSize("9223372036854775808", &bytes));
  EXPECT_EQ(bytes, uint64_t{1} << 63);
  EXPECT_TRUE(ParseSize("8192p", &bytes));
  EXPECT_EQ(bytes, uint64_t{1} << 63);
  for (const char* text : {"9223372036854775809", "18446744073709551616", "8193p", "8192.001p",
                           "99999999999999999999999999", "20000000000G"}) {
    EXPECT_FALSE(ParseSize(text, &bytes)) << text;
  }
}

TEST(GlobTest, Matches) {
  struct {
    const char* pattern;
    const char* text;
    bool matches;
  } const kCases[] = {
      {"", "", true},
      {"", "a", false},
      {"abc", "abc", true},
      {"abc", "abcd", false},
      {"abc", "ab", false},
      {"*", "", true},
      {"*", "/any/thing", true},
      {"/data/*", "/data/a/b", true},  // '*' matches '/' as well
      {"/data/*", "/data", false},
      {"*.db", "/x/y.db", true},
      {"*.db", "/x/y.db-wal", false},
      {"*.db*", "/x/y.db-wal", true},
      {"a*b*c", "aXbYbZc", true},
      {"a*b*c", "aXbYbZ", false},
      {"*aab", "aaaab", true},
      {"?", "a", true},
      {"?", "", false},
      {"?", "/", true},
      {"a?c", "abc", true},
      {"[abc]", "b", true},
      {"[abc]", "d", false},
      {"[a-c]x", "bx", true},
      {"[a-c]x", "dx", false},
      {"[!a-c]", "d", true},
      {"[!a-c]", "b", false},
      {"[]]", "]", true},
      {"[!]]", "]", false},
      {"[!]]", "a", true},
      {"[a-]", "-", true},
      {"[a-]", "b", false},
      {"[-a]", "-", true},
      {"[0-9][0-9]*", "42nd", true},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"a\\?", "a?", true},
      {"a\\?", "ab", false},
      {"*\\*", "x*", true},
      {"[", "[", false},
      {"\\", "\\", false},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(GlobMatches(test.pattern, test.text), test.matches)
        << test.pattern << " " << test.text;
  }
}

TEST(GlobTest, ManyStarsTakeNoTime) {
  const std::string pattern = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b";
  const std::string text(3000, 'a');
  EXPECT_FALSE(GlobMatches(pattern.c_str(), text.c_str()));
}

TEST(GlobTest, KnowsAPattern) {
  for (const char* pattern : {"a", "*", "[a]", "[!a]", "[]]", "\\[", "[a-z]*\\*"}) {
    EXPECT_TRUE(IsGlob(pattern)) << pattern;
  }
  for (const char* pattern : {"", "[", "[a", "[]", "[!", "[!]", "a\\", "[a]["}) {
    EXPECT_FALSE(IsGlob(pattern)) << pattern;
  }
}

TEST(GlobTest, Lists) {
  EXPECT_FALSE(AnyGlobMatches("", "a"));
  EXPECT_FALSE(AnyGlobMatches(":", ""));
  EXPECT_TRUE(AnyGlobMatches("a", "a"));
  EXPECT_TRUE(AnyGlobMatches("x:*.db:y", "a.db"));
  EXPECT_TRUE(AnyGlobMatches("x:y:*.db", "a.db"));
  EXPECT_TRUE(AnyGlobMatches("::a", "a"));
  EXPECT_FALSE(AnyGlobMatches("x:y", "x:y"));
  EXPECT_FALSE(AnyGlobMatches("x:y:", "z"));
}

// ---------------------------------------------------------------------------------------------

bool Take(Settings* settings, const char* name, const char* value, std::string* wrong = nullptr) {
  sys::Text<480> text;
  const bool ok = Apply(settings, name, value, &text);
  if (wrong != nullptr) *wrong = text.c_str();
  return ok;
}

TEST(SettingsTest, TakesEachByItsName) {
  Settings s;
  EXPECT_TRUE(Take(&s, "POOL", "/dev/shm/pool"));
  EXPECT_TRUE(Take(&s, "SIZE", "1G"));
  EXPECT_TRUE(Take(&s, "EMULATE", "1"));
  EXPECT_TRUE(Take(&s, "DRAM", "32M"));
  EXPECT_TRUE(Take(&s, "FRAMES", "pool:48M"));
  EXPECT_TRUE(Take(&s, "FRAME_DELAY", "100000"));
  EXPECT_TRUE(Take(&s, "INCLUDE", "/data/*:*.db"));
  EXPECT_TRUE(Take(&s, "EXCLUDE", "*.log"));
  EXPECT_TRUE(Take(&s, "EXCLUSIVE", "*.wal:/srv/*"));
  EXPECT_TRUE(Take(&s, "REQUIRED", "yes"));
  EXPECT_TRUE(Take(&s, "DRAIN_AT_EXIT", "off"));
  EXPECT_TRUE(Take(&s, "STDIO", "0"));
  EXPECT_TRUE(Take(&s, "BATCH_MIN", "1"));
  EXPECT_TRUE(Take(&s, "BATCH_MAX", "1048576"));
  EXPECT_TRUE(Take(&s, "BATCH_DELAY", "60000"));
  EXPECT_STREQ(s.pool.c_str(), "/dev/shm/pool");
  EXPECT_EQ(s.size, uint64_t{1} << 30);
  EXPECT_TRUE(s.emulate);
  EXPECT_EQ(s.dram, 32 * kKilo * kKilo);
  EXPECT_EQ(s.frames, 48 * kKilo * kKilo);
  EXPECT_TRUE(s.frames_in_pool);
  EXPECT_EQ(s.frame_delay_ns, 100000u);
  EXPECT_STREQ(s.include.c_str(), "/data/*:*.db");
  EXPECT_STREQ(s.exclude.c_str(), "*.log");
  EXPECT_STREQ(s.exclusive.c_str(), "*.wal:/srv/*");
  EXPECT_TRUE(s.required);
  EXPECT_FALSE(s.drain_at_exit);
  EXPECT_FALSE(s.stdio);
  EXPECT_EQ(s.batch_min, 1u);
  EXPECT_EQ(s.batch_max, kMaxBatch);
  EXPECT_EQ(s.batch_delay_ms, 60000u);
}

TEST(SettingsTest, TheLastValueCounts) {
  Settings s;
  EXPECT_TRUE(Take(&s, "POOL", "/a/long/path"));
  EXPECT_TRUE(Take(&s, "POOL", "/b"));
  EXPECT_STREQ(s.pool.c_str(), "/b");
}

TEST(SettingsTest, Flags) {
  for (const char* yes : {"1", "yes", "true", "on"}) {
    Settings s;
    EXPECT_TRUE(Take(&s, "EMULATE", yes));
    EXPECT_TRUE(s.emulate) << yes;
  }
  for (const char* no : {"0", "no", "false", "off"}) {
    Settings s;
    s.emulate = true;
    EXPECT_TRUE(Take(&s, "EMULATE", no));
    EXPECT_FALSE(s.emulate) << no;
  }
}

TEST(SettingsTest, WriteBack) {
  Settings s;
  EXPECT_EQ(s.write_back, WriteBack::kAuto);
  const std::pair<const char*, WriteBack> rules[] = {
      {"always", WriteBack::kAlways}, {"never", WriteBack::kNever}, {"auto", WriteBack::kAuto}};
  for (const auto& [value, rule] : rules) {
    EXPECT_TRUE(Take(&s, "WRITE_BACK", value));
    EXPECT_EQ(s.write_back, rule) << value;
  }
}

TEST(SettingsTest, Raw) {
  Settings s;
  EXPECT_EQ(s.raw, Raw::kOff);
  const std::pair<const char*, Raw> rules[] = {
      {"refuse", Raw::kRefuse}, {"trust", Raw::kTrust}, {"off", Raw::kOff}};
  for (const auto& [value, rule] : rules) {
    EXPECT_TRUE(Take(&s, "RAW", value));
    EXPECT_EQ(s.raw, rule) << value;
  }
}

TEST(SettingsTest, Checkpointer) {
  Settings s;
  EXPECT_TRUE(s.checkpointer);
  EXPECT_TRUE(s.names);
  EXPECT_TRUE(Take(&s, "NAMES", "never"));
  EXPECT_FALSE(s.names);
  EXPECT_TRUE(Take(&s, "NAMES", "auto"));
  EXPECT_TRUE(s.names);
  EXPECT_TRUE(Take(&s, "CHECKPOINTER", "never"));
  EXPECT_FALSE(s.checkpointer);
  EXPECT_TRUE(Take(&s, "CHECKPOINTER", "auto"));
  EXPECT_TRUE(s.checkpointer);
}

TEST(SettingsTest, HowLongSyncsMayBeAhead) {
  Settings s;
  EXPECT_EQ(s.ahead_ms, 10u);
  EXPECT_TRUE(Take(&s, "AHEAD", "1"));
  EXPECT_EQ(s.ahead_ms, 1u);
  EXPECT_TRUE(Take(&s, "AHEAD", "60000"));
  EXPECT_EQ(s.ahead_ms, 60000u);
}

TEST(SettingsTest, HugePages) {
  Settings s;
  EXPECT_EQ(s.huge, kAllHuge);
  EXPECT_TRUE(Take(&s, "HUGE", "never"));
  EXPECT_EQ(s.huge, 0u);
  EXPECT_TRUE(Take(&s, "HUGE", "512M"));
  EXPECT_EQ(s.huge, 512u << 20);
  EXPECT_TRUE(Take(&s, "HUGE", "auto"));
  EXPECT_EQ(s.huge, kAllHuge);
}

TEST(SettingsTest, SaysWhatIsWrong) {
  const std::string long_text(2000, 'x');
  struct {
    const char* name;
    const char* value;
    const char* part;
  } const kCases[] = {
      {"SIZE", "big", "is not a size"},
      {"SIZE", "1k", "1M to 64T"},
      {"SIZE", "65T", "1M to 64T"},
      {"DRAM", "", "is not a size"},
      {"DRAM", "63k", "64k to 4T"},
      {"DRAM", "5T", "64k to 4T"},
      {"FRAMES", "64M", "dram:SIZE or pool:SIZE"},
      {"FRAMES", "Pool:64M", "dram:SIZE or pool:SIZE"},
      {"FRAMES", "pool:", "has no size"},
      {"FRAMES", "pool:x", "has no size"},
      {"FRAMES", "pool:63k", "64k to 4T"},
      {"FRAMES", "dram:5T", "64k to 4T"},
      {"FRAME_DELAY", "1us", "0 to 100000"},
      {"FRAME_DELAY", "100001", "0 to 100000"},
      {"EMULATE", "maybe", "neither yes nor no"},
      {"EMULATE", "Yes", "neither yes nor no"},
      {"REQUIRED", "2", "neither yes nor no"},
      {"INCLUDE", "/data/[a", "pattern"},
      {"EXCLUDE", "*.db:x\\", "pattern"},
      {"EXCLUSIVE", "*.db:[x", "pattern"},
      {"WRITE_BACK", "", "auto, always or never"},
      {"WRITE_BACK", "Auto", "auto, always or never"},
      {"WRITE_BACK", "always ", "auto, always or never"},
      {"WRITE_BACK", "1", "auto, always or never"},
      {"RAW", "on", "off, refuse or trust"},
      {"NAMES", "always", "auto or never"},
      {"HUGE", "", "auto or never"},
      {"HUGE", "much", "a size such as 512M"},
      {"AHEAD", "0", "milliseconds, 1 to 60000"},
      {"AHEAD", "60001", "milliseconds, 1 to 60000"},
      {"AHEAD", "1s", "milliseconds, 1 to 60000"},
      {"CHECKPOINTER", "", "auto or never"},
      {"CHECKPOINTER", "always", "auto or never"},
      {"CHECKPOINTER", "1", "auto or never"},
      {"BATCH_MIN", "0", "1 to 1048576"},
      {"BATCH_MIN", "-1", "1 to 1048576"},
      {"BATCH_MIN", "1k", "1 to 1048576"},
      {"BATCH_MAX", "1048577", "1 to 1048576"},
      {"BATCH_MAX", "18446744073709551617", "1 to 1048576"},
      {"BATCH_DELAY", "0", "1 to 60000"},
      {"BATCH_DELAY", "60001", "1 to 60000"},
      {"POOL", long_text.c_str(), "too long"},
      {"INCLUDE", long_text.c_str(), "too long"},
      {"DRAMM", "1M", "is no setting"},
      {"dram", "1M", "is no setting"},
      {"", "1", "is no setting"},
  };
  for (const auto& test : kCases) {
    Settings s;
    std::string wrong;
    EXPECT_FALSE(Take(&s, test.name, test.value, &wrong)) << test.name << "=" << test.value;
    EXPECT_EQ(wrong.find(std::string("NVCACHE_") + test.name + "="), 0u) << wrong;
    EXPECT_NE(wrong.find(test.part), std::string::npos) << wrong;
    EXPECT_NE(wrong.find(": "), std::string::npos) << "what to do? " << wrong;
    EXPECT_EQ(wrong.find('\n'), std::string::npos) << wrong;
    EXPECT_EQ(s.dram, Settings().dram);
    EXPECT_EQ(s.frames, 0u);
    EXPECT_FALSE(s.frames_in_pool);
    EXPECT_EQ(s.write_back, WriteBack::kAuto);
    EXPECT_EQ(s.batch_min, Settings().batch_min);
  }
}

bool Read(std::vector<std::string> environment, Settings* settings, std::string* wrong) {
  std::vector<char*> pointers;
  pointers.reserve(environment.size() + 1);
  for (std::string& line : environment) pointers.push_back(line.data());
  pointers.push_back(nullptr);
  sys::Text<480> text;
  const bool ok = FromEnvironment(settings, pointers.data(), &text);
  *wrong = text.c_str();
  return ok;
}

TEST(EnvironmentTest, TakesOurs) {
  Settings s;
  std::string wrong;
  EXPECT_TRUE(Read({"PATH=/bin", "NVCACHE_POOL=/p=q", "NVCACHE=x", "XNVCACHE_DRAM=1",
                    "NVCACHE_DRAM=1M", "NVCACHE_INCLUDE=", "NVCACHE_SIZE=", "EMPTY="},
                   &s, &wrong))
      << wrong;
  EXPECT_STREQ(s.pool.c_str(), "/p=q");
  EXPECT_EQ(s.dram, kKilo * kKilo);
  EXPECT_STREQ(s.include.c_str(), "");
  EXPECT_EQ(s.size, 0u);
  EXPECT_TRUE(s.drain_at_exit);
}

// A front end may have another default.
TEST(EnvironmentTest, WhatIsNotGivenStays) {
  Settings s;
  s.write_back = WriteBack::kAlways;
  std::string wrong;
  EXPECT_TRUE(Read({"NVCACHE_WRITE_BACK=", "NVCACHE_DRAM=1M"}, &s, &wrong)) << wrong;
  EXPECT_EQ(s.write_back, WriteBack::kAlways);
  EXPECT_TRUE(Read({"NVCACHE_WRITE_BACK=auto"}, &s, &wrong)) << wrong;
  EXPECT_EQ(s.write_back, WriteBack::kAuto);
}

TEST(EnvironmentTest, EmptyIsTheDefault) {
  Settings s;
  std::string wrong;
  EXPECT_TRUE(Read({}, &s, &wrong));
  EXPECT_STREQ(s.pool.c_str(), "");
  EXPECT_FALSE(s.emulate);
  EXPECT_FALSE(s.required);
}

// Two variables say how large the frames are. They may say the same.
TEST(EnvironmentTest, WhereTheFramesAre) {
  const auto read = [](std::vector<std::string> environment, uint64_t bytes, bool in_pool) {
    Settings s;
    std::string wrong;
    EXPECT_TRUE(Read(std::move(environment), &s, &wrong)) << wrong;
    EXPECT_EQ(s.frame_bytes(), bytes);
    EXPECT_EQ(s.frames_in_pool, in_pool);
  };
  const uint64_t mega = kKilo * kKilo;
  read({}, 256 * mega, false);
  read({"NVCACHE_DRAM=8M"}, 8 * mega, false);
  read({"NVCACHE_FRAMES=dram:16M"}, 16 * mega, false);
  read({"NVCACHE_FRAMES=pool:16M"}, 16 * mega, true);
  read({"NVCACHE_FRAMES=pool:256M"}, 256 * mega, true);
  read({"NVCACHE_FRAMES=", "NVCACHE_DRAM=8M"}, 8 * mega, false);
  read({"NVCACHE_FRAMES=pool:1M", "NVCACHE_DRAM="}, mega, true);
  read({"NVCACHE_DRAM=8192k", "NVCACHE_FRAMES=dram:8M"}, 8 * mega, false);
  for (const char* frames : {"dram:16M", "pool:8M", "pool:16M"}) {
    const std::string both[] = {"NVCACHE_DRAM=8M", std::string("NVCACHE_FRAMES=") + frames};
    for (const bool swapped : {false, true}) {
      Settings s;
      std::string wrong;
      EXPECT_FALSE(Read({both[swapped], both[!swapped]}, &s, &wrong)) << frames;
      EXPECT_EQ(wrong, "NVCACHE_DRAM and NVCACHE_FRAMES say different things: remove one of them");
    }
  }
}

TEST(EnvironmentTest, RefusesUnknownNames) {
  Settings s;
  std::string wrong;
  EXPECT_FALSE(Read({"NVCACHE_POOOL=/p"}, &s, &wrong));
  EXPECT_NE(wrong.find("NVCACHE_POOOL=/p"), std::string::npos) << wrong;
  EXPECT_FALSE(Read({"NVCACHE_=x"}, &s, &wrong));
  EXPECT_FALSE(Read({"NVCACHE_" + std::string(300, 'A') + "=x"}, &s, &wrong));
  EXPECT_EQ(wrong.find('\n'), std::string::npos);
}

TEST(EnvironmentTest, SettingsMustAgree) {
  Settings s;
  std::string wrong;
  EXPECT_TRUE(Read({"NVCACHE_BATCH_MIN=7", "NVCACHE_BATCH_MAX=7"}, &s, &wrong)) << wrong;
  EXPECT_FALSE(Read({"NVCACHE_BATCH_MIN=8", "NVCACHE_BATCH_MAX=7"}, &s, &wrong));
  EXPECT_NE(wrong.find("NVCACHE_BATCH_MIN=8"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("NVCACHE_BATCH_MAX=7"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace nvcache::settings
