// SPDX-License-Identifier: BSD-3-Clause
//
// The tester itself: event lists made by hand, and exactly the images that they allow.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/pmem/persist.h"
#include "src/sys/boot.h"
#include "src/sys/kernel.h"
#include "tests/crash/capture.h"
#include "tests/crash/explorer.h"
#include "tests/crash/log_stage.h"
#include "tests/crash/run.h"
#include "tests/crash/script.h"

namespace nvcache::crash {
namespace {

constexpr size_t kPoolSize = 4096;

// Events of a pool of zeros and of one file.
class Made {
 public:
  Made() { trace_.pool.assign(kPoolSize, '\0'); }

  Made& Store(uint64_t at, const std::string& bytes, uint16_t thread = 0) {
    return Add({Event::kStore,
                {},
                thread,
                0,
                at,
                static_cast<uint32_t>(bytes.size()),
                trace_.Keep(bytes.data(), bytes.size())});
  }
  Made& Pwb(uint64_t at, uint16_t thread = 0) {
    return Add({Event::kPwb, {}, thread, 0, at, 0, 0});
  }
  Made& Fence(uint16_t thread = 0) { return Add({Event::kFence, {}, thread, 0, 0, 0, 0}); }
  Made& File(const std::string& content, bool exists = true) {
    FileInfo file;
    file.exists = exists;
    file.content = content;
    trace_.files.push_back(file);
    return *this;
  }
  Made& Write(uint64_t at, const std::string& bytes) {
    return Add({Event::kWrite,
                {},
                0,
                0,
                at,
                static_cast<uint32_t>(bytes.size()),
                trace_.Keep(bytes.data(), bytes.size())});
  }
  Made& Erase(uint64_t at, uint32_t n) { return Add({Event::kErase, {}, 0, 0, at, n, 0}); }
  Made& Event_(Event::Type type, uint64_t at = 0) { return Add({type, {}, 0, 0, at, 0, 0}); }

  // All that may be left of the first `n` bytes of the pool, a space for each zero.
  std::set<std::string> Pools(size_t n, uint32_t tries = 0) const {
    Memory memory(trace_.pool);
    Disk disk(trace_.files);
    Apply(&memory, &disk);
    std::set<std::string> pools;
    std::mt19937_64 random(1);
    bool complete = false;
    Limits limits = {1000, 0, tries, false};
    for (const Choice& choice : Choose(memory, disk, limits, &random, &complete)) {
      std::string pool = memory.certain();
      for (const LineChoice& line : choice.lines) {
        memory.Build(line, trace_, reinterpret_cast<uint8_t*>(&pool[line.line * kLine]));
      }
      pool.resize(n);
      for (char& c : pool) c = c == '\0' ? ' ' : c;
      pools.insert(pool);
    }
    EXPECT_TRUE(complete);
    return pools;
  }
  // All that may be left of the file; "-" when it is lost.
  std::set<std::string> Files() const {
    Memory memory(trace_.pool);
    Disk disk(trace_.files);
    Apply(&memory, &disk);
    std::set<std::string> files;
    std::mt19937_64 random(1);
    for (const Choice& choice : Choose(memory, disk, {1000, 0, 0, false}, &random)) {
      std::string content;
      files.insert(disk.Build(choice.files[0], trace_, &content) ? content : "-");
    }
    return files;
  }

 private:
  Made& Add(const Event& event) {
    trace_.events.push_back(event);
    return *this;
  }
  void Apply(Memory* memory, Disk* disk) const {
    for (const Event& event : trace_.events) {
      memory->Apply(event, trace_);
      disk->Apply(event, trace_);
    }
  }

  Trace trace_;
};

using Set = std::set<std::string>;

TEST(MemoryTest, StoresOfALineSurviveAsAPrefix) {
  EXPECT_EQ(Made().Store(0, "a").Store(1, "b").Store(0, "c").Pools(2),
            (Set{"  ", "a ", "ab", "cb"}));
}

TEST(MemoryTest, LinesSurviveInAnyCombination) {
  EXPECT_EQ(Made().Store(0, "a").Store(64, "b").Pools(65),
            (Set{std::string(65, ' '), "a" + std::string(64, ' '), std::string(64, ' ') + "b",
                 "a" + std::string(63, ' ') + "b"}));
}

TEST(MemoryTest, APwbAloneIsNothing) {
  EXPECT_EQ(Made().Store(0, "a").Pwb(0).Pools(1), (Set{" ", "a"}));
  EXPECT_EQ(Made().Store(0, "a").Fence().Pools(1), (Set{" ", "a"}));
}

TEST(MemoryTest, APwbAndAFenceAreCertain) {
  EXPECT_EQ(Made().Store(0, "a").Pwb(0).Fence().Pools(1), (Set{"a"}));
}

TEST(MemoryTest, AStoreAfterThePwbIsNotCovered) {
  EXPECT_EQ(Made().Store(0, "a").Pwb(0).Store(0, "b").Fence().Pools(1), (Set{"a", "b"}));
  EXPECT_EQ(Made().Store(0, "a").Pwb(0).Store(0, "b").Fence().Pwb(0).Fence().Pools(1), (Set{"b"}));
}

TEST(MemoryTest, AFenceOrdersThePwbsOfItsOwnThread) {
  EXPECT_EQ(Made().Store(0, "a", 1).Pwb(0, 1).Fence(2).Pools(1), (Set{" ", "a"}));
  EXPECT_EQ(Made().Store(0, "a", 1).Pwb(0, 2).Fence(2).Pools(1), (Set{"a"}));
  constexpr uint16_t kOther = kThreadsOfProcess + 1;  // the same thread of another process
  EXPECT_EQ(Made().Store(0, "a", 1).Pwb(0, 1).Fence(kOther).Pools(1), (Set{" ", "a"}));
}

TEST(MemoryTest, AFenceEndsOncePerPwb) {
  // The second store has no PWB of its own.
  EXPECT_EQ(Made().Store(0, "a").Pwb(0).Fence().Store(0, "b").Fence().Pools(1), (Set{"a", "b"}));
}

TEST(MemoryTest, AStoreOfManyWordsIsTornBetweenThem) {
  const Set pools = Made().Store(0, "aaaaaaaabbbbbbbb").Pools(16, 200);
  EXPECT_EQ(pools, (Set{std::string(16, ' '), "aaaaaaaa        ", "        bbbbbbbb",
                        "aaaaaaaabbbbbbbb"}));
  EXPECT_EQ(Made().Store(0, "aaaaaaaa").Pools(8, 200), (Set{std::string(8, ' '), "aaaaaaaa"}));
}

TEST(DiskTest, WhatWasNotSyncedMayBeMissing) {
  EXPECT_EQ(Made().File("....").Write(0, "a").Write(1, "b").Files(),
            (Set{"....", "a...", ".b..", "ab.."}));
}

TEST(DiskTest, ASyncCoversWhatCameBeforeItBegan) {
  EXPECT_EQ(Made()
                .File("....")
                .Write(0, "a")
                .Event_(Event::kSyncBegin)
                .Write(1, "b")
                .Event_(Event::kSyncEnd)
                .Files(),
            (Set{"a...", "ab.."}));
  EXPECT_EQ(Made().File("....").Write(0, "a").Event_(Event::kSyncBegin).Files(),
            (Set{"....", "a..."}));
}

TEST(DiskTest, ATruncationIsACallLikeAnother) {
  EXPECT_EQ(Made().File("abcd").Event_(Event::kTruncate, 2).Files(), (Set{"ab", "abcd"}));
}

TEST(DiskTest, AnErasureIsACallLikeAnother) {
  EXPECT_EQ(Made().File("abcd").Erase(1, 2).Files(), (Set{"abcd", std::string("a\0\0d", 4)}));
}

TEST(DiskTest, WhatASyncHasLostNoLaterOneBringsBack) {
  const auto failed = [] {
    return Made()
        .File("....")
        .Write(0, "a")
        .Event_(Event::kSyncBegin)
        .Event_(Event::kSyncFailed)
        .Write(1, "b");
  };
  EXPECT_EQ(failed().Files(), (Set{"....", "a...", ".b..", "ab.."}));
  EXPECT_EQ(failed().Event_(Event::kSyncBegin).Event_(Event::kSyncEnd).Files(),
            (Set{".b..", "ab.."}));
  EXPECT_EQ(failed().Write(0, "c").Event_(Event::kSyncBegin).Event_(Event::kSyncEnd).Files(),
            (Set{"cb.."}));
}

TEST(DiskTest, ANewNameIsLostUntilItIsSynced) {
  EXPECT_EQ(Made().File("", false).Files(), (Set{"-"}));
  EXPECT_EQ(Made().File("", false).Event_(Event::kNamed).Write(0, "a").Files(),
            (Set{"-", "", "a"}));
  EXPECT_EQ(Made()
                .File("", false)
                .Event_(Event::kNamed)
                .Write(0, "a")
                .Event_(Event::kSyncBegin)
                .Event_(Event::kSyncEnd)
                .Files(),
            (Set{"a"}));
}

// After a kill it is the same, and after a power failure another one.
TEST(MachineTest, HasTheRunOfTheKernelThatItWasGiven) {
  Machine machine(kPoolSize);
  const auto run = [&machine](uint32_t boot) {
    machine.set_boot(boot);
    machine.Begin();
    Listen(&machine);
    uint8_t id[16];
    sys::ReadBootId(id);
    Listen(nullptr);
    return std::string(std::begin(id), std::end(id));
  };
  const std::string first = run(0), second = run(1);
  EXPECT_NE(first, second);
  EXPECT_EQ(run(0), first);
}

TEST(ModelTest, InFlightGroupsAreWholeOrNotAtAll) {
  Trace trace;
  trace.files.push_back({{}, true, "....", false});
  trace.operations = {{Operation::kWrite, 0, 0, 2, trace.Keep("ab", 2)},
                      {Operation::kWrite, 0, 1, 2, trace.Keep("xy", 2)}};
  trace.items = {{Item::kData, true, 1, 10, 1, 2},
                 {Item::kData, true, 0, 20, 0, 2}};  // the second came first in the log
  Model model(trace);
  const auto contents = [&] {
    const auto now = model.Now().files[0].contents;
    return Set(now.begin(), now.end());
  };
  EXPECT_EQ(contents(), (Set{"...."}));
  model.Apply({Event::kBegin, {}, 0, 0, 0, 0, 0});
  EXPECT_EQ(contents(), (Set{"....", "ab.."}));
  model.Apply({Event::kBegin, {}, 1, 1, 0, 0, 0});
  EXPECT_EQ(contents(), (Set{"....", "ab..", ".xy.", "aby."}));
  model.Apply({Event::kEnd, {}, 1, 1, 0, 0, 0});
  EXPECT_EQ(contents(), (Set{".xy.", "aby."}));
  model.Apply({Event::kEnd, {}, 0, 0, 0, 0, 0});
  EXPECT_EQ(contents(), (Set{"aby."}));
}

TEST(ModelTest, WhatWasCutOffDoesNotComeBackUnderALaterWrite) {
  Trace trace;
  trace.files.push_back({{}, true, "....", false});
  trace.operations = {{Operation::kTruncate, 0, 1, 0, 0},
                      {Operation::kWrite, 0, 2, 1, trace.Keep("x", 1)}};
  trace.items = {{Item::kTruncate, false, 0, 1, 1, 0}, {Item::kData, true, 1, 2, 2, 1}};
  Model model(trace);
  for (uint32_t i = 0; i < 2; ++i) {
    model.Apply({Event::kBegin, {}, 0, i, 0, 0, 0});
    model.Apply({Event::kEnd, {}, 0, i, 0, 0, 0});
    const auto now = model.Now().files[0].contents;
    EXPECT_EQ(Set(now.begin(), now.end()), i == 0 ? (Set{"....", "."}) : (Set{{".\0x", 3}}));
  }
}

TEST(ModelTest, WhoPublishesMayLeaveAGroupUnfinished) {
  Trace trace;
  trace.files.push_back({{}, true, "....", false});
  trace.operations = {{Operation::kWrite, 0, 0, 1, trace.Keep("a", 1)},
                      {Operation::kHandOver, 0, 0, 0, 0}};
  trace.items = {{Item::kData, true, 0, 10, 0, 1}};
  Model model(trace);
  for (const auto type : {Event::kBegin, Event::kEnd}) model.Apply({type, {}, 0, 0, 0, 0, 0});
  for (const auto& [type, running] : {std::pair(Event::kBegin, 1u), std::pair(Event::kEnd, 0u)}) {
    model.Apply({type, {}, 0, 1, 0, 0, 0});
    EXPECT_EQ(model.Now().running, running);
    EXPECT_EQ(model.Now().files[0].contents, (std::vector<std::string>{"a..."}));
  }
}

// Of one file, "....": two calls that the kernel is told of at once, and a call that syncs.
class ThroughModelTest : public testing::Test {
 protected:
  // The file's name in the trace is 0, and so is the thread.
  void Apply(Event::Type type, uint32_t operation) {
    Event event = {type, {}, 0, 0, 0, 0, 0};
    if (type == Event::kWrite) event.data = trace_.operations[operation].data;
    if (type == Event::kBegin || type == Event::kEnd) event.file = operation;
    model_->Apply(event);
  }
  void Make(bool first_logged, bool second_logged) {
    trace_.files.push_back({{}, true, "....", false});
    for (const bool logged : {first_logged, second_logged}) {
      const auto number = static_cast<uint32_t>(trace_.operations.size());
      const uint32_t data = trace_.Keep(number == 0 ? "aaa" : "bb", 3 - number);
      trace_.operations.push_back({Operation::kThrough, 0, number, 3 - number, data});
      trace_.items.push_back(
          {Item::kPiece, logged, number, 10 * (number + 1), number, 3 - number, data});
    }
    trace_.operations.push_back({Operation::kSync, 0, 0, 0, 0});
    model_ = std::make_unique<Model>(trace_);
  }
  Set Contents(bool killed = false) const {
    const auto now = model_->Now(killed).files[0].contents;
    return {now.begin(), now.end()};
  }

  Trace trace_;
  std::unique_ptr<Model> model_;
};

TEST_F(ThroughModelTest, AGroupIsCertainWhenItsCallHasReturned) {
  Make(true, true);
  Apply(Event::kBegin, 0);
  EXPECT_EQ(Contents(), (Set{"...."})) << "the kernel was not told yet";
  Apply(Event::kWrite, 0);
  EXPECT_EQ(Contents(), (Set{"....", "aaa."}));
  EXPECT_EQ(Contents(true), (Set{"aaa."})) << "the kernel has it, and was not killed";
  Apply(Event::kEnd, 0);
  EXPECT_EQ(Contents(), (Set{"aaa."}));
}

TEST_F(ThroughModelTest, OlderGroupsMayLieOverACallThatHasNotReturned) {
  Make(true, true);
  for (const auto type : {Event::kBegin, Event::kWrite, Event::kEnd}) Apply(type, 0);
  Apply(Event::kBegin, 1);
  Apply(Event::kWrite, 1);
  EXPECT_EQ(Contents(), (Set{"aaa.", "abb."}));
  trace_.operations[1].offset = trace_.items[1].offset = 2;
  EXPECT_EQ(Contents(), (Set{"aaa.", "aabb", "aaab"}));
  EXPECT_EQ(Contents(true), (Set{"aabb"}));
  Apply(Event::kEnd, 1);
  EXPECT_EQ(Contents(), (Set{"aabb"}));
}

TEST_F(ThroughModelTest, WhatNoLogHasIsCertainWhenItWasSynced) {
  Make(true, false);
  for (const uint32_t operation : {0u, 1u}) {
    for (const auto type : {Event::kBegin, Event::kWrite, Event::kEnd}) Apply(type, operation);
  }
  EXPECT_EQ(Contents(), (Set{"aaa.", "abb."}));
  Apply(Event::kSyncBegin, 0);
  EXPECT_EQ(Contents(), (Set{"aaa.", "abb."}));
  Apply(Event::kSyncEnd, 0);
  EXPECT_EQ(Contents(), (Set{"abb."}));
}

TEST_F(ThroughModelTest, ASyncCoversCallsThatNeverReturn) {
  Make(true, true);
  for (const auto type : {Event::kBegin, Event::kWrite, Event::kEnd}) Apply(type, 0);
  Apply(Event::kBegin, 1);
  Apply(Event::kWrite, 1);
  Apply(Event::kBegin, 2);
  Apply(Event::kSyncBegin, 0);
  Apply(Event::kSyncEnd, 0);
  EXPECT_EQ(Contents(), (Set{"aaa.", "abb."})) << "an older group may be laid over it";
  Apply(Event::kEnd, 2);
  EXPECT_EQ(Contents(), (Set{"abb."}));
}

TEST(ScriptTest, ActionsHaveWordsAndWhatHappensMeanwhile) {
  const Script script =
      Parse("\n  0: write a p-40 2p\n\n 1: adopt hastily (thread (cut b 7), die)");
  ASSERT_EQ(script.size(), 4u);
  EXPECT_EQ(script[0].verb, "0:");
  EXPECT_EQ(script[1].Word(0), "a");
  EXPECT_EQ(script[1].Number(1), 4056u);
  EXPECT_EQ(script[1].Number(2), 8192u);
  EXPECT_EQ(script[3].Rest(0), "hastily");
  ASSERT_EQ(script[3].meanwhile.size(), 2u);
  EXPECT_EQ(script[3].meanwhile[0].meanwhile[0].Number(1), 7u);
  for (const char* wrong : {"die)", "adopt (die", "(die)"}) {
    EXPECT_THROW(Parse(wrong), std::runtime_error) << wrong;
  }
  EXPECT_THROW(script[1].Number(0), std::runtime_error) << "no number";
  EXPECT_THROW(script[1].Word(3), std::runtime_error) << "too few words";
  EXPECT_THROW(Actor().Do(script), std::runtime_error) << "no verbs are known";
}

TEST(CrashesTest, TextIsReadBack) {
  Crashes crashes = {{17, true, {{{1, 2, 0}, {9, 0, 6}}, {{0, true, false, {true, false}}}, {}}},
                     {3, false, {{}, {{0, false, true, {}}, {1, true, false, {}}}, {4, {{1, 2}}}}}};
  const Crashes again = FromText(ToText(crashes));
  ASSERT_EQ(again.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again[i].events, crashes[i].events);
    EXPECT_EQ(again[i].killed, crashes[i].killed);
    EXPECT_EQ(again[i].choice, crashes[i].choice);
  }
}

// Where no fence follows, too: whoever is killed when the call has returned has stored all of it.
TEST(CaptureTest, WhatProcessesShareIsNotedBeforeTheNextEvent) {
  char memory[] = "/dev/shm/nvcache-test-crash-unit-XXXXXX";
  const Place place = {"/dev/shm", ::mkdtemp(memory)};
  const std::string path = MakeAgedPool(place, 1);
  Capture capture("test", 1, path);
  pool::Pool pool;
  pool::Problem problem;
  ASSERT_TRUE(pool.Open(path.c_str(), pool::Mode::kExclusive, true, nullptr, &problem));
  ::unlink(path.c_str());
  ::rmdir(memory);
  pool.MarkInUse();
  capture.Do({Operation::kOther, 0, 0, 0, 0}, "", [&] { pool.seats().SetThroughFailed(EIO); });
  pool.Close();
  const Trace trace = capture.Finish();
  std::vector<int> failed;  // when the call begins and when it ends
  int shared = 0;
  for (const Event& event : trace.events) {
    const uint64_t at = pool::kSharedOffset + offsetof(pool::SharedState, through_failed);
    if (event.type == Event::kVolatile && event.at <= at && at < event.at + event.length) {
      std::memcpy(&shared, trace.Data(event.data) + (at - event.at), sizeof(shared));
    }
    if (event.type == Event::kBegin || event.type == Event::kEnd) failed.push_back(shared);
  }
  EXPECT_EQ(failed, (std::vector<int>{0, EIO}));
}

// The cleanup thread may come upon a recording that has ended.
TEST(CaptureTest, WhoeverIsStillOnTheWayAtTheEndIsNotRecorded) {
  char memory[] = "/dev/shm/nvcache-test-crash-unit-XXXXXX";
  const Place place = {"/dev/shm", ::mkdtemp(memory)};
  Capture capture("test", 1, MakeAgedPool(place, 1));
  const std::string path = place.memory + "/file";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  capture.Watch(fd, path, false);
  const Trace trace = capture.Finish();
  const size_t events = trace.events.size();
  const char bytes[] = "late";
  EXPECT_EQ(capture.Call(SYS_pwrite64, fd, sys::Address(bytes), 4, 0, 0, 0), 4);
  EXPECT_EQ(capture.Call(SYS_fsync, fd, 0, 0, 0, 0, 0), 0);
  EXPECT_EQ(capture.Finish().events.size(), events);
  ::close(fd);
  std::filesystem::remove_all(memory);
}

// A store that goes past src/pmem is found at the next fence.
TEST(CaptureDeathTest, AStoreThatIsNotRecordedIsFound) {
  const auto body = [](uint64_t past) {
    char memory[] = "/dev/shm/nvcache-test-crash-unit-XXXXXX";
    const Place place = {"/dev/shm", ::mkdtemp(memory)};
    const std::string path = MakeAgedPool(place, 1);
    Capture capture("test", 1, path);
    pool::Pool pool;
    pool::Problem problem;
    pool.Open(path.c_str(), pool::Mode::kExclusive, true, nullptr, &problem);
    ::unlink(path.c_str());
    ::rmdir(memory);
    if (past > 0) pool.view().base[past] ^= 1;
    pool.MarkInUse();
    ::_exit(0);
  };
  EXPECT_EXIT(body(0), testing::ExitedWithCode(0), "");
  // What is never written back may be stored in any way.
  EXPECT_EXIT(body(pool::kOwnersOffset + 2), testing::ExitedWithCode(0), "");
  for (const uint64_t past : {pool::kSeatCheckpointsOffset + 40, pool::kSegmentsOffset + 123}) {
    EXPECT_EXIT(body(past), testing::ExitedWithCode(3), "did not go through src/pmem/persist.h");
  }
}

// But for memory that is never written back, which another thread changes when it likes.
bool AreAlike(Trace a, Trace b) {
  for (Trace* trace : {&a, &b}) {
    std::erase_if(trace->events, [](const Event& event) { return event.type == Event::kVolatile; });
  }
  return std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(),
                    [](const Event& one, const Event& other) {
                      return one.type == other.type && one.step == other.step &&
                             one.thread == other.thread && one.file == other.file &&
                             one.at == other.at && one.length == other.length;
                    });
}

// So a mutant is reported at a moment, or is not, each time.
// In a place whose path is short enough for kPathLength (run.cc), wherever the build is.
TEST(MutantsTest, AreShownWhereRecordingsAreAlike) {
  constexpr char kScratch[] = "/var/tmp";
  std::set<std::pair<std::string, uint64_t>> places;
  for (const Mutant& mutant : AllMutants()) {
    EXPECT_FALSE(mutant.shown.scenario.empty()) << mutant.name << " has no place in shown.cc";
    places.emplace(mutant.shown.scenario, mutant.shown.seed);
  }
  const std::vector<Scenario> all = AllScenarios();
  for (const auto& [name, seed] : places) {
    const auto scenario = std::find_if(
        all.begin(), all.end(), [&n = name](const Scenario& other) { return other.name == n; });
    ASSERT_NE(scenario, all.end()) << name;
    EXPECT_TRUE(AreAlike(Record(*scenario, seed, kScratch), Record(*scenario, seed, kScratch)))
        << name;
  }
}

TEST(MutantsTest, EachChangesSomethingAndLeavesTheRest) {
  std::set<std::string> names;
  for (const Mutant& mutant : AllMutants()) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    Trace nothing;
    mutant.apply(&nothing, false);
    EXPECT_TRUE(nothing.events.empty());
  }
  for (int i = 0; i < static_cast<int>(Step::kCount); ++i) {
    EXPECT_EQ(names.count(NameOf(static_cast<Step>(i))), 1u);
  }
}

}  // namespace
}  // namespace nvcache::crash
