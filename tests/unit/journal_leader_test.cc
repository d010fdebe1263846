// SPDX-License-Identifier: BSD-3-Clause
//
// The journal's leader, with a file in memory in the disk's place: what a write has brought there
// is what a power failure leaves.
#include "src/pool/journal_leader.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "src/journal/file.h"
#include "src/pool/byte_locks.h"
#include "src/sys/descriptor.h"
#include "tests/unit/traced.h"

namespace nvcache::pool {
namespace {

using journal::kLine;

constexpr uint64_t kPool = 1u << 20;
// Between two instructions after which a leader is looked at, an odd number: all of them would take
// minutes, and a sanitizer's, which are three or twenty times as many, hours.
constexpr int kStride = (test::kThreadSanitizer ? 21 : test::kAddressSanitizer ? 3 : 1) * 101;
constexpr uint64_t kSegmentLine = kSegmentsOffset / kLine;
constexpr uint64_t kSegmentLines = GeometryOf(kPool).segment_size / kLine;

uint8_t* MapShared(uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<uint8_t*>(memory);
}

class JournalLeaderTest : public testing::Test {
 protected:
  explicit JournalLeaderTest(uint64_t pool = kPool)
      : pool_(pool),
        fd_(memfd_create("journal", MFD_CLOEXEC)),
        bytes_(JournalMemory::Bytes(pool)),
        memory_(MapShared(bytes_), pool) {
    header_.uuid[0] = 77;
    header_.pool_size = pool;
    header_.half_size = journal::HalfBytes(pool);
    header_.first = 1;
    header_.life = 1;
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(journal::FileBytes(pool))), 0);
    control().positions[0] = journal::BeginHalf(0, header_.half_size, 1, 0);
    control().round = control().positions[0].place;
    control().life = 1;
    shared().mirror_state = kMirrorMirrored;
    shared().next = 1;
    leader_ = NewLeader();
  }
  ~JournalLeaderTest() override {
    munmap(memory_.base(), bytes_);
    close(fd_);
  }

  JournalControl& control() const { return memory_.control(); }
  SharedState& shared() const {
    return *reinterpret_cast<SharedState*>(memory_.base() + kSharedOffset);
  }
  // For another process, with an open file of its own.
  std::unique_ptr<JournalLeader> NewLeader() {
    descriptors_.emplace_back(open(sys::LinkTo(fd_).c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(descriptors_.back().IsOpen());
    return std::make_unique<JournalLeader>(memory_, descriptors_.back().get(), header_);
  }
  // One round that takes everything, and little more.
  void TightenRing(uint64_t more = 16 * journal::kBlock) {
    header_.half_size = journal::ToBlocks(journal::RoundBytes(pool_)) + more;
    control().positions[0] = journal::BeginHalf(0, header_.half_size, 1, 0);
    leader_ = NewLeader();
  }
  uint64_t& Word(uint64_t line) const {
    return *reinterpret_cast<uint64_t*>(memory_.base() + line * kLine);
  }
  void Store(uint64_t line, uint64_t value) const {
    std::atomic_ref(Word(line)).store(value);
    memory_.marks().Set(line, 1);
  }
  // What a power failure would leave.
  void Read() {
    read_.assign(pool_, 0);
    journal::Ring ring(fd_, header_, buffer_.get());
    ASSERT_EQ(ring.Read(read_.data(), &found_, &bound_), journal::Ring::Result::kRead)
        << "damage at " << ring.damaged_at() << ", the next place is "
        << control().positions[control().position].place;
  }
  uint64_t Found(uint64_t line) const {
    uint64_t value = 0;
    std::memcpy(&value, read_.data() + line * kLine, sizeof(value));
    return value;
  }

  journal::Header header_ = {};
  const uint64_t pool_;
  const int fd_;
  const uint64_t bytes_;
  const JournalMemory memory_;
  std::vector<sys::Descriptor> descriptors_;
  std::unique_ptr<JournalLeader> leader_;
  journal::Buffer buffer_{journal::kMaxBatch};
  std::vector<uint8_t> read_;
  journal::Position found_ = {};
  uint64_t bound_ = 0;
};

using Outcome = JournalLeader::Outcome;

TEST_F(JournalLeaderTest, BringsWhatIsMarked) {
  Store(100, 5);
  Store(kSegmentLine + 7, 6);
  Word(200) = 9;  // is not marked
  shared().next = 42;
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  Read();
  EXPECT_EQ(Found(100), 5u);
  EXPECT_EQ(Found(kSegmentLine + 7), 6u);
  EXPECT_EQ(bound_, 42u);
  EXPECT_EQ(shared().mirrored, 42u);
  EXPECT_EQ(control().batches, 1u);
}

// The memory may be that of a recovery, which has not taken out yet what came after the bound.
TEST_F(JournalLeaderTest, TheCutStaysTheBound) {
  control().cut = 10;
  shared().next = 42;
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  Read();
  EXPECT_EQ(bound_, 10u);
  EXPECT_EQ(shared().mirrored, 42u);
}

// A bound may be needed without a line: a group may have come into the batch before whose LSN that
// one's bound does not cover. Only where none was drawn since, there is nothing to write.
TEST_F(JournalLeaderTest, ABoundIsWrittenWithoutLines) {
  Store(100, 5);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  EXPECT_EQ(control().batches, 1u);
  shared().next = 50;  // drawn, and nothing is stored yet: it will be marked
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  EXPECT_EQ(control().batches, 1u);
  EXPECT_EQ(shared().mirrored, 50u);
  control().quiet = 0;
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  EXPECT_EQ(control().batches, 2u);
  Read();
  EXPECT_EQ(bound_, 50u);
}

TEST_F(JournalLeaderTest, OneLeadsAtATime) {
  const std::unique_ptr<JournalLeader> other = NewLeader();
  Store(100, 5);
  ASSERT_TRUE(HoldByte(descriptors_.back().get(), kLeaderByte, false));
  EXPECT_EQ(leader_->Lead(), Outcome::kBusy);
  ReleaseByte(descriptors_.back().get(), kLeaderByte);
  EXPECT_EQ(leader_->Lead(), Outcome::kLed);
}

// A round may have taken its marks before ours were set: who comes while it goes on is not served
// by it. It ends at each system call of who waits, in turn.
TEST_F(JournalLeaderTest, WhoComesInARoundWaitsForTheNext) {
  const sys::Descriptor other(open(sys::LinkTo(fd_).c_str(), O_RDWR | O_CLOEXEC));
  for (int calls = 0; calls < 12; ++calls) {
    SCOPED_TRACE(calls);
    const uint64_t value = static_cast<uint64_t>(calls) + 1;
    ASSERT_TRUE(HoldByte(other.get(), kLeaderByte, false));
    control().begun = control().done + 1;
    control().leads = 1;
    const int status = test::WithActAt(
        calls,
        [&](pid_t) {
          std::atomic_ref(control().leads).store(0);
          std::atomic_ref(control().done).store(control().begun);
          ReleaseByte(other.get(), kLeaderByte);
        },
        [&] {
          const std::unique_ptr<JournalLeader> leader = NewLeader();
          Store(kSegmentLine, value);
          return leader->Await() ? 0 : 1;
        });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    ASSERT_EQ(status, 0);
    Read();
    ASSERT_EQ(Found(kSegmentLine), value);
  }
}

// Nobody is woken while the leader, or the caller, has a lock: who is woken would find it taken,
// and sleep on.
TEST_F(JournalLeaderTest, TheCallerWakes) {
  const uint32_t turn = shared().mirror_turn;
  Store(100, 5);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  EXPECT_EQ(shared().mirror_turn, turn);
  ASSERT_TRUE(leader_->Await());
  EXPECT_NE(shared().mirror_turn, turn);
}

// What a dead leader had taken is in its list, or has its mark. It lies where nobody marks it again
// for the half's sake.
TEST_F(JournalLeaderTest, TakesOverFromADeadOne) {
  const uint64_t word = kSegmentLine / 64 + 2, a = word * 64 + 36, b = a + 640;
  Store(a, 5);
  Store(b, 6);
  memory_.marks().TakeWords([](uint64_t, uint64_t) {});
  memory_.marks().ClearLines(word, uint64_t{1} << 36);
  memory_.taken()[0] = {word, uint64_t{1} << 36};
  control().taken = 1;
  control().leads = 1;
  control().begun = 1;
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  Read();
  EXPECT_EQ(Found(a), 5u);
  EXPECT_EQ(Found(b), 6u);
}

// Two of three that were served together have come again: the third is waited for.
// By Ctrl-Z, which is SIGTSTP, or as a program in the background that reads from its terminal or
// writes to it: such a signal waits for the end of the round.
TEST_F(JournalLeaderTest, IsNotStoppedWhileItLeads) {
  const auto leader = NewLeader();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setpgid(0, 0);  // a group with a parent in another one: else the kernel stops nobody
    for (uint64_t i = 0;; ++i) {
      Store(kSegmentLine + i % kSegmentLines, i + 1);
      leader->Lead();
    }
  }
  uint64_t done = 0;
  for (int i = 0; i < 300; ++i) {
    while (std::atomic_ref(control().done).load() <= done) sched_yield();
    const int signal = i % 3 == 0 ? SIGTSTP : i % 3 == 1 ? SIGTTIN : SIGTTOU;
    ASSERT_EQ(kill(child, signal), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    ASSERT_EQ(leader_->Lead(), Outcome::kLed) << "after " << i << " stops";
    done = std::atomic_ref(control().done).load();
    ASSERT_EQ(kill(child, SIGCONT), 0);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(JournalLeaderTest, WhoWasServedTogetherIsWaitedFor) {
  constexpr uint64_t kLongNs = 60'000'000'000;
  View view;
  view.base = memory_.base();
  const MirrorWords words(view);
  control().served = 3;
  control().patience_ns = kLongNs;
  words.RingBell();
  words.RingBell();
  Store(100, 1);
  std::thread leader([this] {
    while (leader_->Lead() == Outcome::kBusy) sched_yield();
  });
  // It has the lock while it waits.
  const sys::Descriptor look(open(sys::LinkTo(fd_).c_str(), O_RDWR | O_CLOEXEC));
  while (HoldByte(look.get(), kLeaderByte, false)) {
    ReleaseByte(look.get(), kLeaderByte);
    ASSERT_EQ(std::atomic_ref(control().begun).load(), 0u) << "it did not wait for the third";
    sched_yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(std::atomic_ref(control().begun).load(), 0u);
  Store(101, 2);
  words.RingBell();
  leader.join();
  EXPECT_EQ(control().served, 3u);
  EXPECT_EQ(control().bell, 3u);
  Read();
  EXPECT_EQ(Found(101), 2u);
}

// One of them does not come: the next time he is waited for less, and then not at all.
TEST_F(JournalLeaderTest, WhoDoesNotComeIsNotWaitedForAgain) {
  View view;
  view.base = memory_.base();
  control().served = 2;
  control().took_ns = 1600;
  control().patience_ns = 800;
  MirrorWords(view).RingBell();
  Store(100, 1);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  EXPECT_EQ(control().served, 1u);
  EXPECT_EQ(control().patience_ns, 400u);
}

TEST_F(JournalLeaderTest, AFailedWriteIsNotTriedAgain) {
  Store(100, 5);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  JournalLeader refused(memory_, open("/dev/full", O_RDWR | O_CLOEXEC), header_);
  Store(100, 6);
  EXPECT_EQ(refused.Lead(), Outcome::kFailed);
  EXPECT_NE(control().failed, 0u);
  EXPECT_EQ(shared().mirror_state, kMirrorLeaving);
  EXPECT_EQ(leader_->Lead(), Outcome::kFailed);
  EXPECT_FALSE(leader_->Await());
  Read();
  EXPECT_EQ(Found(100), 5u);
}

TEST_F(JournalLeaderTest, FailsOnce) {
  JournalLeader refused(memory_, open("/dev/full", O_RDWR | O_CLOEXEC), header_);
  EXPECT_EQ(refused.Lead(), Outcome::kFailed);
  const uint32_t failed = control().failed;
  shared().mirror_state = kMirrorReal;  // it has been left
  leader_->GiveUp();
  EXPECT_EQ(control().failed, failed);
  EXPECT_EQ(shared().mirror_state, kMirrorReal);
}

// Whoever has the journal fail dies before it is left, and the next one leaves it.
TEST_F(JournalLeaderTest, IsLeftWhereverTheOneDiesWhoFailsIt) {
  bool parted = false;
  for (int instructions = 0;; ++instructions) {
    SCOPED_TRACE(instructions);
    control().failed = 0;
    shared().mirror_state = kMirrorMirrored;
    const int status = test::WithActAfter(
        instructions, [](pid_t pid) { kill(pid, SIGKILL); }, [] {},
        [&] {
          leader_->GiveUp();
          return 0;
        });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    ASSERT_EQ(status, -SIGKILL);
    const bool failed = control().failed != 0, left = shared().mirror_state == kMirrorLeaving;
    ASSERT_TRUE(failed || !left);
    if (left) break;
    parted |= failed;
    EXPECT_EQ(leader_->Lead(), failed ? Outcome::kFailed : Outcome::kLed);
    ASSERT_EQ(shared().mirror_state, failed ? kMirrorLeaving : kMirrorMirrored);
  }
  EXPECT_TRUE(parted);
}

// The program has closed the descriptor, and has its number for a file of its own.
TEST_F(JournalLeaderTest, WritesToNoOtherFile) {
  Store(100, 5);
  const int other = memfd_create("other", MFD_CLOEXEC);
  const int own = dup(fd_);
  JournalLeader leader(memory_, own, header_);
  ASSERT_EQ(dup2(other, own), own);
  EXPECT_EQ(leader.Lead(), Outcome::kUnable);
  EXPECT_EQ(lseek(other, 0, SEEK_END), 0);
  close(own);
  EXPECT_EQ(leader.Lead(), Outcome::kUnable);
  EXPECT_EQ(leader_->Lead(), Outcome::kLed);
  close(other);
}

// A leader's size limit falls after each instruction, nearly: it is not killed, the journal does
// not fail, and the next leader brings what it had taken.
TEST_F(JournalLeaderTest, IsUnableWhereverItsSizeLimitFalls) {
  const uint64_t a = kSegmentLine + 5, b = kSegmentLine + 500;
  const auto forbid = [](pid_t pid) {
    const rlimit none = {journal::kBlock, RLIM_INFINITY};
    EXPECT_EQ(prlimit(pid, RLIMIT_FSIZE, &none, nullptr), 0);
  };
  bool acted = true, withdrew = false;
  for (int instructions = 0; acted; instructions += kStride) {
    SCOPED_TRACE(instructions);
    const uint64_t value = static_cast<uint64_t>(instructions) + 1, begun = control().begun;
    Store(a, value);
    Store(b, value);
    control().positions[control().position].is_whole = 1;  // or it would go over the whole pool
    std::unique_ptr<JournalLeader> leader;
    acted = false;
    const int status = test::WithActAfter(
        instructions,
        [&](pid_t pid) {
          forbid(pid);
          acted = true;
        },
        [&] { leader = NewLeader(); }, [&] { return static_cast<int>(leader->Lead()); });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    const bool unable = status == static_cast<int>(Outcome::kUnable);
    ASSERT_TRUE(unable || status == static_cast<int>(Outcome::kLed)) << status;
    ASSERT_EQ(control().failed, 0u);
    withdrew |= unable && control().begun != begun;
    if (unable) {
      ASSERT_EQ(leader_->Lead(), Outcome::kLed);
    }
    Read();
    ASSERT_EQ(Found(a), value);
    ASSERT_EQ(Found(b), value);
  }
  EXPECT_TRUE(withdrew);
}

// Lap after lap: what nobody stores to any more is still there, as far as it is needed.
TEST_F(JournalLeaderTest, NeverLosesWhatIsNeeded) {
  auto* owners = reinterpret_cast<Owner*>(memory_.base() + kOwnersOffset);
  owners[2] = 1;
  const uint64_t kept = kSegmentLine + 2 * kSegmentLines, freed = kSegmentLine + 3 * kSegmentLines;
  Store(64, 1);
  Store(kept + 5, 2);
  Store(freed + 5, 3);
  const uint64_t busy = kSegmentLine + 20;
  owners[0] = 1;
  uint64_t value = 0;
  uint32_t laps = 0;
  for (uint32_t half = 0; laps < 6;) {
    for (uint64_t i = 0; i < 40; ++i) Store(busy + i * 2, ++value);
    ASSERT_EQ(leader_->Lead(), Outcome::kLed);
    if (control().positions[control().position].half == half) continue;
    half = 1 - half;
    ++laps;
    Read();
    EXPECT_EQ(Found(64), 1u);
    EXPECT_EQ(Found(kept + 5), 2u);
    EXPECT_EQ(Found(busy + 78), value);
  }
  EXPECT_EQ(Found(freed + 5), 0u);
}

// The tightest ring that can be: there is always room for one more round that takes everything.
TEST_F(JournalLeaderTest, ManyLinesInATightRing) {
  auto* owners = reinterpret_cast<Owner*>(memory_.base() + kOwnersOffset);
  for (uint32_t i = 0; i < GeometryOf(kPool).segment_count; ++i) owners[i] = 1;
  TightenRing();
  const auto fill = [&](uint64_t value, uint64_t every) {
    for (uint64_t line = kSegmentLine; line < kPool / kLine; line += every) Store(line, value);
  };
  for (uint64_t round = 1; round <= 40; ++round) {
    // So little that a half is not whole for long, and then everything.
    for (uint64_t i = 0; i < round % 7; ++i) {
      Store(64 + i, round);
      ASSERT_EQ(leader_->Lead(), Outcome::kLed) << round;
    }
    fill(round, round % 2 + 1);
    ASSERT_EQ(leader_->Lead(), Outcome::kLed) << round;
    Read();
    ASSERT_EQ(std::memcmp(read_.data() + kSegmentsOffset, memory_.base() + kSegmentsOffset,
                          kPool - kSegmentsOffset),
              0)
        << round;
  }
}

// Of a pool whose rounds may have several batches.
class LargeJournalLeaderTest : public JournalLeaderTest {
 protected:
  LargeJournalLeaderTest() : JournalLeaderTest(4 * kPool) {
    auto* owners = reinterpret_cast<Owner*>(memory_.base() + kOwnersOffset);
    for (uint32_t i = 0; i < GeometryOf(pool_).segment_count; ++i) owners[i] = 1;
    TightenRing(kPool / 2);
  }
  uint64_t lines() const { return pool_ / kLine; }
  void Fill(uint64_t value) const {
    for (uint64_t line = kSegmentLine; line < lines(); ++line) Store(line, value);
  }
  // The lines are of one moment, not before the last round that was acknowledged.
  void Expect() {
    Read();
    EXPECT_EQ(Found(kApart), apart_);
    const uint64_t value = Found(kSegmentLine);
    EXPECT_GE(value, kept_);
    EXPECT_LE(value, value_);
    for (uint64_t line = kSegmentLine; line < lines(); ++line)
      ASSERT_EQ(Found(line), value) << line;
  }
  // One that is not whole, has a round, and no room for two rounds that take everything.
  bool BeginHalf() {
    journal::Position& then = control().positions[control().position];
    then = journal::BeginHalf(1 - then.half, header_.half_size, then.sequence, then.previous);
    control().round = then.place;
    control().last_round = 0;
    Store(kApart, ++apart_);
    return leader_->Lead() == Outcome::kLed &&
           control().positions[control().position].is_whole == 0;
  }
  // All is stored to, and a leader is killed as its n-th system call begins or ends, if there are
  // so many. False: no child can be traced here.
  bool Dies(int calls, int* status) {
    Fill(++value_);
    const uint64_t done = control().done;
    *status = test::WithActAt(
        calls, [](pid_t pid) { kill(pid, SIGKILL); },
        [&] { return leader_->Lead() == Outcome::kLed ? 0 : 1; });
    if (control().done != done) kept_ = value_;
    Expect();
    return *status != test::kSkip;
  }

  static constexpr uint64_t kApart = 64;  // a line of the header
  uint64_t apart_ = 0;
  uint64_t value_ = 0;
  uint64_t kept_ = 0;  // the last one that was acknowledged
};

// A leader dies in a round that takes everything, and so does the next one, by each of its system
// calls in turn; all is stored to meanwhile. There is room for the one after them, and what was in
// the journal before is there until that has been.
TEST_F(LargeJournalLeaderTest, DiesInRoundsThatTakeEverything) {
  Fill(++value_);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  kept_ = value_;
  int first = 0, status = -SIGKILL;
  for (bool wrote = false; !wrote; first += wrote ? 0 : 1) {
    ASSERT_TRUE(BeginHalf());
    const uint64_t batches = control().batches;
    if (!Dies(first, &status)) GTEST_SKIP();
    wrote = control().batches != batches;
    ASSERT_EQ(leader_->Lead(), Outcome::kLed);
    kept_ = value_;
  }
  // From there on the first one has written a batch, or more, and not its round.
  for (int more = 0; more < 28; more += 3) {
    status = -SIGKILL;
    for (int calls = 1 + more % 2; status == -SIGKILL; calls += 2) {
      SCOPED_TRACE(testing::Message() << first + more << ", " << calls);
      ASSERT_TRUE(BeginHalf());
      if (!Dies(first + more, &status) || !Dies(calls, &status)) GTEST_SKIP();
      if (more % 2 == 0) Fill(++value_);
      ASSERT_EQ(leader_->Lead(), Outcome::kLed) << control().failed;
      kept_ = value_;
      Expect();
    }
    EXPECT_EQ(status, 0);
  }
}

// A leader is killed after each instruction, nearly. What it has published by then is in the
// journal, and the next leader brings all.
TEST_F(JournalLeaderTest, DiesAtAnyInstruction) {
  const uint64_t a = kSegmentLine + 5, b = kSegmentLine + 500;
  TightenRing();
  int status = -SIGKILL;
  for (int instructions = 0; status == -SIGKILL; instructions += kStride) {
    SCOPED_TRACE(instructions);
    const uint64_t value = static_cast<uint64_t>(instructions) + 1, done = control().done;
    Word(a + 1) = Word(b + 1) = value;
    Store(a, value);
    Store(b, value);
    control().positions[control().position].is_whole = 1;  // or it would go over the whole pool
    std::unique_ptr<JournalLeader> leader;
    status = test::WithActAfter(
        instructions, [](pid_t pid) { kill(pid, SIGKILL); }, [&] { leader = NewLeader(); },
        [&] { return leader->Lead() == Outcome::kLed ? 0 : 1; });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    if (control().done != done) {
      Read();
      ASSERT_EQ(Found(a), value);
      ASSERT_EQ(Found(b), value);
    }
    ASSERT_EQ(leader_->Lead(), Outcome::kLed);
    Read();
    ASSERT_EQ(Found(a), value);
    ASSERT_EQ(Found(b), value);
  }
  EXPECT_EQ(status, 0);
}

// After each instruction of a leader, nearly, somebody commits a group, and then one that relies on
// it. If the batch has the second one alone, then that is not below the bound; and the next batch
// has both.
TEST_F(JournalLeaderTest, OneMomentAtAnyInstruction) {
  const uint64_t a = kSegmentLine + 5, b = kSegmentLine + 500;
  TightenRing();
  bool acted = true, parted = false;
  for (int instructions = 0; acted; instructions += kStride) {
    SCOPED_TRACE(instructions);
    const uint64_t value = static_cast<uint64_t>(instructions) + 1;
    if (instructions % 2 == 0) Store(a, 0);  // its word is taken in this round, or is not
    Store(b, 0);
    control().positions[control().position].is_whole = 1;
    std::unique_ptr<JournalLeader> leader;
    Lsn second = 0;
    acted = false;
    const int status = test::WithActAfter(
        instructions,
        [&](pid_t) {
          ++shared().next;
          Store(a, value);
          second = shared().next++;
          Store(b, value);
          acted = true;
        },
        [&] { leader = NewLeader(); }, [&] { return leader->Lead() == Outcome::kLed ? 0 : 1; });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    ASSERT_EQ(status, 0);
    if (!acted) break;
    Read();
    if (Found(b) == value && Found(a) != value) {
      ASSERT_LE(bound_, second);
      parted = true;
    }
    ASSERT_EQ(leader_->Lead(), Outcome::kLed);
    Read();
    ASSERT_EQ(Found(a), value);
    ASSERT_EQ(Found(b), value);
  }
  EXPECT_TRUE(parted);
}

// The same of who stores twice to the header and then to a segment, and waits for nothing: what the
// journal has of that is no later store without those before.
TEST_F(JournalLeaderTest, TheHeaderIsInOrderAtAnyInstruction) {
  // In the order in which a leader meets them.
  const uint64_t second = 64 + 5, first = 64 * 4 + 9, last = kSegmentLine + 5;
  TightenRing();
  bool acted = true, parted = false;
  for (int instructions = 0; acted; instructions += kStride) {
    SCOPED_TRACE(instructions);
    const uint64_t value = static_cast<uint64_t>(instructions) + 1;
    Store(second, 0);  // is taken in this round, whatever happens
    if (instructions % 2 == 0) Store(last, 0);
    control().positions[control().position].is_whole = 1;
    std::unique_ptr<JournalLeader> leader;
    acted = false;
    const int status = test::WithActAfter(
        instructions,
        [&](pid_t) {
          Store(first, value);
          Store(second, value);
          Store(last, value);
          acted = true;
        },
        [&] { leader = NewLeader(); }, [&] { return leader->Lead() == Outcome::kLed ? 0 : 1; });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    ASSERT_EQ(status, 0);
    if (!acted) break;
    Read();
    if (Found(last) == value) {
      ASSERT_EQ(Found(second), value);
    }
    if (Found(second) == value) {
      ASSERT_EQ(Found(first), value);
      parted |= Found(last) != value;
    }
    ASSERT_EQ(leader_->Lead(), Outcome::kLed);
    Read();
    ASSERT_EQ(Found(last), value);
  }
  EXPECT_TRUE(parted);
}

// Nothing but the header is marked.
TEST_F(JournalLeaderTest, TheHeaderAlone) {
  Store(kSegmentLine, 1);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  Store(64, 2);
  Store(kSharedOffset / kLine - 1, 3);
  ASSERT_EQ(leader_->Lead(), Outcome::kLed);
  Read();
  EXPECT_EQ(Found(64), 2u);
  EXPECT_EQ(Found(kSharedOffset / kLine - 1), 3u);
}

// A round that takes the whole pool, when half of a half is used up already.
TEST_F(JournalLeaderTest, ManyLinesAtOnce) {
  auto* owners = reinterpret_cast<Owner*>(memory_.base() + kOwnersOffset);
  const uint64_t end = kPool / kLine;
  for (uint32_t i = 0; i < GeometryOf(kPool).segment_count; ++i) owners[i] = 1;
  for (uint64_t round = 1; round <= 60; ++round) {
    // Every second line: each of them is a piece.
    for (uint64_t line = kSegmentLine; line < end; line += round % 3 == 0 ? 1 : 2) {
      Store(line, round);
    }
    for (uint64_t i = 0; i < round % 5; ++i) {
      ASSERT_EQ(leader_->Lead(), Outcome::kLed) << round;
      Store(64 + i, round);
    }
    ASSERT_TRUE(leader_->Await());
    Read();
    ASSERT_EQ(std::memcmp(read_.data() + kSegmentsOffset, memory_.base() + kSegmentsOffset,
                          kPool - kSegmentsOffset),
              0)
        << round;
  }
}

// Processes store, wait, and say what has to be there; they are killed, with whoever leads among
// them, and what they have said is there. The next ones go on in the same memory.
TEST_F(JournalLeaderTest, WhatWasSaidIsThereAfterEachKill) {
  constexpr uint64_t kThreads = 3, kProcesses = 2, kRounds = 40;
  struct Said {
    std::atomic<uint64_t> value;
  };
  auto* said = reinterpret_cast<Said*>(MapShared(4096));
  auto* owners = reinterpret_cast<Owner*>(memory_.base() + kOwnersOffset);
  owners[0] = 1;
  const auto line = [](uint64_t who, uint64_t i) { return kSegmentLine + 8 + who + i % 60 * 16; };
  std::mt19937 random(20261129);
  for (uint64_t round = 0; round < kRounds; ++round) {
    std::vector<pid_t> children;
    for (uint64_t process = 0; process < kProcesses; ++process) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        const std::unique_ptr<JournalLeader> leader = NewLeader();
        std::vector<std::thread> threads;
        for (uint64_t t = 0; t < kThreads; ++t) {
          threads.emplace_back([&, who = process * kThreads + t] {
            for (uint64_t value = said[who].value.load() + 1;; ++value) {
              Store(line(who, value), value);
              if (!leader->Await()) _exit(1);
              said[who].value.store(value);
            }
          });
        }
        for (;;) pause();
      }
      children.push_back(child);
    }
    const uint64_t begun = control().batches + 1 + random() % 200;
    while (std::atomic_ref(control().batches).load() < begun) sched_yield();
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status));
    }
    Read();
    for (uint64_t who = 0; who < kProcesses * kThreads; ++who) {
      const uint64_t value = said[who].value.load();
      for (uint64_t i = value; i + 30 > value && i > 0; --i) {
        ASSERT_GE(Found(line(who, i)), i) << "round " << round << ", writer " << who;
      }
    }
  }
  munmap(said, 4096);
}

}  // namespace
}  // namespace nvcache::pool
