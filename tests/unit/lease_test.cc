// SPDX-License-Identifier: BSD-3-Clause
//
// Every part is played by a process of its own: that is what leases are about.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "src/lease/format.h"
#include "src/lease/hindrances.h"
#include "src/lease/leases.h"
#include "src/lease/tag.h"
#include "src/sys/descriptor.h"
#include "src/sys/sharing.h"
#include "tests/unit/support.h"

namespace nvcache::lease {
namespace {

using test::InChild;

constexpr uint64_t kDevice = 0x801;
constexpr uint64_t kSecond = 1000000000;
constexpr uint64_t kLong = 60 * kSecond;  // for what has to come

std::string FileIn(const std::string& folder) {
  return folder + "/nvcache-leases-" + std::to_string(geteuid());
}

// Memory that processes share, all zero.
template <typename T>
class Common {
 public:
  Common()
      : at_(static_cast<T*>(
            mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Common() { munmap(at_, sizeof(T)); }
  Common(const Common&) = delete;
  Common& operator=(const Common&) = delete;
  T* operator->() const { return at_; }

 private:
  T* at_;
};

// The file, as it is.
class Look {
 public:
  explicit Look(const std::string& folder) {
    const int fd = open(FileIn(folder).c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_GE(fd, 0);
    at_ = static_cast<Shared*>(mmap(nullptr, kMaxSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(at_, MAP_FAILED);
    close(fd);  // not in a process that has a slot
  }
  ~Look() { munmap(at_, kMaxSize); }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;
  Shared* operator->() const { return at_; }
  uint64_t mark() const { return at_->mark.load() % (1u << kMarkBits); }

 private:
  Shared* at_;
};

// What TagOf does, backwards: an inode of kDevice's.
uint64_t InodeWithTag(uint64_t tag) {
  constexpr uint64_t kFactor = 0xd6e8feb86659fd93u;
  uint64_t inverse = kFactor;  // modulo 8; each step doubles the bits that are right
  for (int i = 0; i < 5; ++i) inverse *= 2 - kFactor * inverse;
  uint64_t h = tag ^ (tag >> 32);
  for (int i = 0; i < 2; ++i) {
    h *= inverse;
    h ^= h >> 32;
  }
  const uint64_t inode = h - kDevice * 0x9e3779b97f4a7c15u;
  EXPECT_EQ(NumberTagOf(kDevice, inode), tag);
  return inode;
}

// Another file with its cell: what it differs in, no cell says, and no place of one.
uint64_t TwinOf(uint64_t inode) {
  constexpr uint64_t kUnseen = uint64_t{kFirstBuckets} << (32 + 4);
  static_assert(kFirstBuckets % 4 == 0);
  const uint64_t tag = NumberTagOf(kDevice, inode);
  return InodeWithTag(tag < ~kUnseen ? tag + kUnseen : tag - kUnseen);
}

// The next one from `inode` on whose cell is in the same bucket of a first page as that of `other`.
uint64_t NeighbourOf(uint64_t other, uint64_t inode) {
  const auto bucket = [](uint64_t i) { return (NumberTagOf(kDevice, i) >> 32) % kFirstBuckets; };
  while (bucket(inode) != bucket(other)) ++inode;
  return inode;
}

enum class Do : uint8_t {
  kShare,
  kShareMany,  // so many files, from this one on
  kDropMany,
  kWantedMany,  // how many of them
  kExclude,
  kDowngrade,
  kDrop,
  kDropExclusive,
  kHeld,
  kWanted,
  kAwaitRelease,
  kAwaitPublish,
  kDeaths,
  kKeep,          // start a responder that does as it is asked
  kKeepDeaf,      // start one that hears one request and does nothing
  kFail,          // from now on the responder can publish nothing; or again, the next time
  kPublished,     // how often the responder published the file
  kStop,          // the responder
  kOpenAndClose,  // the file of leases, as a program might
  kRelock,
  kLost,
  kFork,  // a child that shares the file; is it held elsewhere?
  kHandOn,
  kIsHandedOn,
  kRemember,
  kRememberAny,
  kMark,
  kSeen,   // keep how often something was handed on
  kSince,  // was it since?
  kSay,    // the hindrance of that number, of pool 7
  kClose,
  kReopen,
};
using enum Do;

// A process with a slot, that does what it is told and says what came of it.
class Peer {
 public:
  explicit Peer(const std::string& folder) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      Actor(folder, ends[1]).Run();
      _exit(0);
    }
    close(ends[1]);
    socket_ = ends[0];
    EXPECT_EQ(Answer(), 1) << "has a slot";
  }
  ~Peer() {
    close(socket_);  // it ends by itself
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  long operator()(Do what, uint64_t inode = 0, uint64_t timeout = kLong) {
    Begin(what, inode, timeout);
    return Answer();
  }
  void Begin(Do what, uint64_t inode = 0, uint64_t timeout = kLong) const {
    const Order order = {what, inode, timeout};
    EXPECT_EQ(write(socket_, &order, sizeof(order)), static_cast<ssize_t>(sizeof(order)));
  }
  long Answer() const {
    long answer = -1;
    EXPECT_EQ(read(socket_, &answer, sizeof(answer)), static_cast<ssize_t>(sizeof(answer)));
    return answer;
  }
  void Kill() {
    EXPECT_EQ(kill(pid_, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFSIGNALED(status));
    pid_ = -1;
  }
  void Signal(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }

 private:
  struct Order {
    Do what;
    uint64_t inode;
    uint64_t timeout;
  };

  class Actor {
   public:
    Actor(std::string folder, int socket) : folder_(std::move(folder)), socket_(socket) {}
    void Run() {
      const char* why = nullptr;
      long answer = leases_.Open(folder_.c_str(), &why) ? 1 : 0;
      Order order;
      do {
        if (write(socket_, &answer, sizeof(answer)) < 0) break;
        if (read(socket_, &order, sizeof(order)) <= 0) break;
        answer = Obey(order);
      } while (true);
      StopKeeper();
      leases_.Close();
    }

   private:
    long Obey(const Order& order) {
      const uint64_t inode = order.inode;
      switch (order.what) {
        case kAwaitRelease:
          return leases_.AwaitRelease(kDevice, inode, order.timeout);
        case kAwaitPublish:
          return leases_.AwaitPublish(kDevice, inode, order.timeout);
        case kKeep:
          responder_ = std::thread([this] { Keep(false); });
          return 1;
        case kKeepDeaf:
          responder_ = std::thread([this] { Keep(true); });
          return 1;
        case kStop:
          StopKeeper();
          return 1;
        default:
          break;
      }
      const std::lock_guard lock(mutex_);
      const char* why = nullptr;
      const uint64_t end = inode + order.timeout;
      long count = 0;
      switch (order.what) {
        case kShare:
          leases_.AddUser(kDevice, inode);
          return 1;
        case kShareMany:
          for (uint64_t i = inode; i < end; ++i) leases_.AddUser(kDevice, i);
          return 1;
        case kDropMany:
          for (uint64_t i = inode; i < end; ++i) leases_.RemoveUser(kDevice, i, false);
          return 1;
        case kWantedMany:
          for (uint64_t i = inode; i < end; ++i)
            count += leases_.IsUsedElsewhere(kDevice, i) ? 1 : 0;
          return count;
        case kExclude:
          if (!leases_.TryExclusive(kDevice, inode)) return 0;
          exclusive_.insert(inode);
          return 1;
        case kDowngrade:
          exclusive_.erase(inode);
          leases_.Downgrade(kDevice, inode);
          return 1;
        case kDrop:
          leases_.RemoveUser(kDevice, inode, false);
          return 1;
        case kDropExclusive:
          exclusive_.erase(inode);
          leases_.RemoveUser(kDevice, inode, true);
          return 1;
        case kHeld:
          return leases_.IsExclusiveElsewhere(kDevice, inode);
        case kWanted:
          return leases_.IsUsedElsewhere(kDevice, inode);
        case kFail:
          failing_ = !failing_;
          return 1;
        case kDeaths:
          return leases_.deaths();
        case kPublished:
          return std::count(published_.begin(), published_.end(), inode);
        case kOpenAndClose:
          return close(open(FileIn(folder_).c_str(), O_RDONLY)) == 0;
        case kRelock:
          return leases_.Relock();
        case kLost:
          return leases_.lost();
        case kFork:
          return InChild([&] {
            if (!leases_.AfterForkInChild(&why)) return 2;
            leases_.AddUser(kDevice, inode);
            return leases_.IsExclusiveElsewhere(kDevice, inode) ? 1 : 0;  // dies with its slot
          });
        case kSay:
          return leases_.Say(static_cast<Hindrance>(inode), 7, inode == 1 ? "libx.so" : "");
        case kHandOn:
          leases_.HandOn(kDevice, inode);
          return 1;
        case kIsHandedOn:
          return leases_.IsHandedOn(kDevice, inode);
        case kSeen:
          seen_ = leases_.hand_ons();
          return 1;
        case kSince:
          return leases_.HandedOnSince(seen_);
        case kRemember:
          return leases_.RemembersHandOn(kDevice, inode);
        case kRememberAny:
          return leases_.RemembersHandOns();
        case kMark:
          leases_.MarkHandedOn(kDevice, inode);
          return 1;
        case kClose:
          leases_.Close();
          return 1;
        case kReopen:
          return leases_.Open(folder_.c_str(), &why);
        default:
          return -1;
      }
    }
    void Keep(bool deaf) {
      for (;;) {
        const Request request = leases_.WaitForRequest();
        if (request.stop) return;
        const std::lock_guard lock(mutex_);
        for (auto at = exclusive_.begin(); at != exclusive_.end();) {
          const uint64_t inode = *at;
          if (!deaf && !failing_ && request.Publish(kDevice, inode)) published_.push_back(inode);
          if (!deaf && request.release && leases_.IsUsedElsewhere(kDevice, inode)) {
            leases_.Downgrade(kDevice, inode);
            at = exclusive_.erase(at);
          } else {
            ++at;
          }
        }
        if (deaf) return;
        leases_.Answered(request, !failing_);
      }
    }
    void StopKeeper() {
      if (!responder_.joinable()) return;
      leases_.StopWaiting();
      responder_.join();
    }

    const std::string folder_;
    const int socket_;
    Leases leases_;
    std::mutex mutex_;
    std::set<uint64_t> exclusive_;
    std::vector<uint64_t> published_;
    bool failing_ = false;
    uint32_t seen_ = 0;
    std::thread responder_;
  };

  pid_t pid_ = -1;
  int socket_ = -1;
};

// What a part does in a play, and what is to come of it, if that is of interest.
struct Step {
  Peer& peer;
  std::optional<Do> what;  // none: it is killed
  uint64_t inode = 0;
  std::optional<long> answer = {};
  const char* why = "";
  bool shares_first = false;
};
using Part = std::unique_ptr<Peer>;
Step Does(const Part& peer, Do what, uint64_t inode = 0) { return {*peer, what, inode}; }
Step Says(const Part& peer, long answer, Do what, uint64_t inode = 0, const char* why = "") {
  return {*peer, what, inode, answer, why};
}
Step Yes(const Part& peer, Do what, uint64_t inode = 0, const char* why = "") {
  return Says(peer, 1, what, inode, why);
}
Step No(const Part& peer, Do what, uint64_t inode = 0, const char* why = "") {
  return Says(peer, 0, what, inode, why);
}
// Uses the file, and then has it for itself.
Step Takes(const Part& peer, uint64_t inode) { return {*peer, kExclude, inode, 1, "", true}; }
Step Dies(const Part& peer) { return {*peer, std::nullopt}; }

void Play(const std::vector<Step>& steps, const test::Caller& /*caller*/ = test::Caller()) {
  int number = 0;
  for (const Step& step : steps) {
    SCOPED_TRACE("step " + std::to_string(++number));
    if (!step.what.has_value()) {
      step.peer.Kill();
      continue;
    }
    if (step.shares_first) step.peer(kShare, step.inode);
    const long answer = step.peer(*step.what, step.inode);
    EXPECT_EQ(answer, step.answer.value_or(answer)) << step.why;
  }
}

class LeaseTest : public testing::Test {
 protected:
  std::unique_ptr<Peer> NewPeer() const { return std::make_unique<Peer>(folder.path()); }

  // In a process of its own: whether a slot is to be had, and if not, why.
  std::string WhyNot(const std::function<void()>& before = [] {}) const {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const int status = InChild([&] {
      before();
      Leases leases;
      const char* why = "";
      if (leases.Open(folder.path().c_str(), &why)) {
        leases.Close();
        return 0;
      }
      return write(ends[1], why, strlen(why)) > 0 && !leases.is_open() ? 1 : 2;
    });
    close(ends[1]);
    char text[256] = {};
    EXPECT_GE(read(ends[0], text, sizeof(text) - 1), 0);
    close(ends[0]);
    EXPECT_TRUE(status == 0 || status == 1) << status;
    return text;
  }

  const test::Folder folder{test::Folder::kMemory};
  const std::string file = FileIn(folder.path());
};

TEST_F(LeaseTest, SharedByAllExclusiveForOne) {
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kShare, 1), No(b, kHeld, 1), Yes(b, kWanted, 1),
        No(a, kWanted, 1, "one's own use is none of others"), Yes(a, kExclude, 1), Yes(b, kHeld, 1),
        No(a, kHeld, 1), No(b, kHeld, 2)});

  Play({Does(b, kShare, 1), No(b, kExclude, 1), Yes(a, kWanted, 1), No(a, kHeld, 1, "taken back"),
        Does(a, kDowngrade, 1), No(b, kHeld, 1), No(a, kExclude, 1, "b uses it"),
        No(b, kExclude, 1, "a uses it"), Does(a, kDrop, 1), Yes(b, kExclude, 1),
        Does(b, kDropExclusive, 1), Takes(a, 1)});
}

TEST_F(LeaseTest, ClosingGivesAllBack) {
  auto a = NewPeer(), b = NewPeer();
  Play({Takes(a, 1), Does(a, kClose), Takes(b, 1), Says(b, 0, kDeaths), Yes(a, kReopen),
        Yes(a, kHeld, 1), Does(b, kDropExclusive, 1),
        No(a, kWanted, 1, "of its own life before nothing is left"), Takes(a, 1)});
}

TEST_F(LeaseTest, FilesThatShareACell) {
  const uint64_t twin = TwinOf(1);
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kShare, 1), Does(a, kShare, twin),
        Yes(a, kExclude, 1, "one's own do not disturb each other"), Yes(a, kExclude, twin),
        Does(a, kDropExclusive, 1), Yes(b, kHeld, twin, "both were counted"),
        Yes(b, kHeld, 1, "needlessly"), Does(b, kShare, 1), No(b, kExclude, 1),
        Does(a, kDropExclusive, twin), Yes(b, kExclude, 1)});
}

TEST_F(LeaseTest, ACellThatIsFullStaysInUse) {
  auto a = NewPeer(), b = NewPeer();
  constexpr int kMany = 100;
  for (int i = 0; i < kMany; ++i) (*a)(kShare, 1);
  int exclusive = 0;
  while (exclusive < kMany && (*a)(kExclude, 1)) ++exclusive;
  EXPECT_EQ(exclusive, kExclusives / kExclusive);
  for (int i = 0; i < exclusive; ++i) (*a)(kDropExclusive, 1);
  EXPECT_FALSE((*b)(kHeld, 1));
  for (int i = exclusive; i < kMany; ++i) (*a)(kDrop, 1);
  Play({Does(b, kShare, 1), No(b, kExclude, 1), Does(a, kClose), Yes(b, kExclude, 1)});

  for (uint32_t i = 0; i < kUsers - 2; ++i) (*b)(kShare, 1);  // one less than full
  for (uint32_t i = 0; i < kUsers - 2; ++i) (*b)(kDrop, 1);
  Play({Does(b, kDropExclusive, 1), Yes(a, kReopen), No(a, kWanted, 1)});
}

// ----------------------------------------------------------------------------- Programs that start

TEST_F(LeaseTest, WhoUsesAFileRemembersThatItWasHandedOn) {
  auto a = NewPeer(), b = NewPeer(), starter = NewPeer();
  Play({Does(a, kShare, 1), Does(a, kShare, 2), Does(starter, kHandOn, 1)});
  for (const auto& peer : {&a, &b, &starter}) {
    EXPECT_TRUE((**peer)(kIsHandedOn, 1));
    EXPECT_FALSE((**peer)(kIsHandedOn, 2));
  }
  EXPECT_FALSE((*a)(kExclude, 1)) << "a program may have it open";
  starter.reset();
  Play({Yes(b, kIsHandedOn, 1), Does(a, kShare, 1), Does(a, kDrop, 1),
        Yes(b, kIsHandedOn, 1, "it has it open still"), Does(a, kDrop, 1), Does(a, kShare, 1),
        No(b, kIsHandedOn, 1), Yes(a, kExclude, 1)});
}

TEST_F(LeaseTest, TheDeadRememberNothing) {
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kShare, 1), Does(b, kHandOn, 1), Does(b, kShare, 1), Dies(a),
        No(b, kIsHandedOn, 1, "b came later")});
  const auto next = NewPeer();
  Play({Does(next, kShare, 1), No(next, kIsHandedOn, 1, "nor does who has its slot")});
}

TEST_F(LeaseTest, AProcessKnowsWhatItRemembers) {
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kShare, 1), Does(a, kShare, 2), No(a, kRememberAny), Does(b, kHandOn, 1),
        Yes(a, kRemember, 1), No(a, kRemember, 2), Yes(a, kRememberAny), No(b, kRemember, 1),
        No(b, kRememberAny), Does(b, kHandOn, 1), Does(a, kMark, 2), Does(a, kDrop, 1),
        Yes(a, kRememberAny), Yes(b, kIsHandedOn, 2), Does(a, kDrop, 2), No(a, kRememberAny)});
}

TEST_F(LeaseTest, AChildKnowsWhetherSomethingWasHandedOnMeanwhile) {
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kSeen), No(a, kSince), Does(b, kHandOn, 1), Yes(a, kSince), Does(a, kSeen),
        No(a, kSince)});
  // A process that dies in the midst of it is taken for one that goes on.
  Look(folder.path())->hand_ons_begun.fetch_add(1);
  Play({Yes(a, kSince), Does(a, kSeen), Yes(a, kSince)});
}

// ------------------------------------------------------------------------------------------ Death

TEST_F(LeaseTest, ADeadHolderHoldsNothing) {
  auto b = NewPeer();
  const auto holder = [&] {
    auto peer = NewPeer();
    Play({Takes(peer, 1), Yes(b, kHeld, 1)});
    return peer;
  };
  Play({Does(b, kShare, 1), Says(b, 0, kDeaths), Does(b, kDrop, 1)});

  holder()->Kill();
  Play({No(b, kHeld, 1), Says(b, 1, kDeaths)});
  holder()->Kill();
  Play({No(b, kWanted, 1), Says(b, 2, kDeaths)});
  auto a = holder();
  Play({Does(b, kShare, 1), No(b, kExclude, 1), Dies(a), Yes(b, kExclude, 1), Says(b, 3, kDeaths)});
}

TEST_F(LeaseTest, AStoppedHolderIsNotDead) {
  auto a = NewPeer(), b = NewPeer();
  Play({Takes(a, 1)});
  a->Signal(SIGSTOP);
  Play({Does(b, kShare, 1), Yes(b, kHeld, 1), No(b, kExclude, 1)});
  EXPECT_FALSE((*b)(kAwaitRelease, 1, kSecond / 5));
  a->Signal(SIGCONT);
  Play({Does(a, kDowngrade, 1), Yes(b, kAwaitRelease, 1)});
}

TEST_F(LeaseTest, TheNextOwnerOfASlotIsNotTheOneBefore) {
  auto a = NewPeer();
  Play({Takes(a, 1), Dies(a)});
  const uint64_t neighbour = NeighbourOf(1, 2);
  auto next = NewPeer(), b = NewPeer();
  Play({Does(next, kShare, neighbour), Says(b, 1, kDeaths), No(b, kWanted, 1)});
  EXPECT_EQ(Look(folder.path()).mark(), 2u) << "the slot was taken again";
}

TEST_F(LeaseTest, ScanningEndsWhereTheLivingDo) {
  auto first = NewPeer();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Peer>> peers(20);
    for (size_t i = 0; i < peers.size(); ++i) {
      peers[i] = NewPeer();
      const uint64_t used = i;
      (*peers[i])(kShare, used);
      if (i < 5) {
        EXPECT_TRUE((*peers[i])(kExclude, used));
      }
    }
    EXPECT_EQ(Look(folder.path()).mark(), 21u);
    for (auto& peer : peers) peer->Kill();
    for (int i = 0; i < 30; ++i) EXPECT_EQ(WhyNot(), "");
    EXPECT_EQ(Look(folder.path()).mark(), 1u);
  }
  EXPECT_EQ((*first)(kDeaths), 15) << "who held nothing has left nothing";
}

// ------------------------------------------------------------------------------------- Hindrances

// "slot: bits detail" of each that has said something.
std::string Said(const std::string& file) {
  std::string text;
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  for (uint32_t slot = 0; slot < CountSlots(fd); ++slot) {
    Hindrances said = {};
    if (!ReadHindrances(fd, slot, &said)) continue;
    EXPECT_EQ(said.pool, 7u);
    text +=
        std::to_string(slot) + ": " + std::to_string(said.said.load()) + " " + said.detail + ";";
  }
  close(fd);
  return text;
}

TEST_F(LeaseTest, WhatHindersAProcessIsReadByOthersAsLongAsItLives) {
  auto a = NewPeer(), b = NewPeer();
  EXPECT_EQ(Said(file), "");
  EXPECT_EQ((*b)(kSay, 0), 1);
  EXPECT_EQ((*b)(kSay, 0), 0);  // once
  EXPECT_EQ((*b)(kSay, 1), 1);
  EXPECT_EQ((*b)(kSay, 2), 1);
  EXPECT_EQ(Said(file), "1: 7 libx.so;");
  EXPECT_EQ((*a)(kSay, 2), 1);
  EXPECT_EQ(Said(file), "0: 4 ;1: 7 libx.so;");
  b->Kill();
  EXPECT_EQ(Said(file), "0: 4 ;");
  // The next owner of the slot has said nothing yet.
  b = NewPeer();
  EXPECT_EQ(Said(file), "0: 4 ;");
  EXPECT_EQ((*b)(kSay, 3), 1);
  EXPECT_EQ(Said(file), "0: 4 ;1: 8 ;");
  EXPECT_EQ((*a)(kClose), 1);
  EXPECT_EQ(Said(file), "1: 8 ;");
}

TEST_F(LeaseTest, AFileThatIsNoneOfLeasesHasNoHindrances) {
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(CountSlots(fd), 0u);
  close(fd);
  EXPECT_EQ(CountSlots(-1), 0u);
}

// ------------------------------------------------------------------------------------------- Room

constexpr long kManyFiles = 3000;  // more than go into the first page

TEST_F(LeaseTest, TheFileIsAsLargeAsItIsUsed) {
  const auto pages = [&] {
    struct stat st;
    EXPECT_EQ(stat(file.c_str(), &st), 0);
    EXPECT_EQ(static_cast<size_t>(st.st_blocks) * 512,
              kTablesSize + 2 * kPage + static_cast<size_t>(st.st_size) - kFirstSize);
    return (static_cast<size_t>(st.st_size) - kFirstSize) / kPage;
  };
  static_assert(kFirstSize < 4 << 20);
  auto a = NewPeer();
  (*a)(kShareMany, 1, 100);
  EXPECT_EQ(pages(), 1u);
  {
    auto b = NewPeer();
    EXPECT_EQ(pages(), 2u);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(WhyNot(), "");
  EXPECT_EQ(pages(), 2u) << "those who come and go have the same one";
  for (uint64_t inode = 101; inode < kManyFiles; inode += 100) {
    (*a)(kShareMany, inode, 100);
    (*a)(kDropMany, inode, 100);
  }
  EXPECT_EQ(pages(), 2u) << "files that come and go have the same cells";
  (*a)(kShareMany, 101, kManyFiles);
  EXPECT_EQ(pages(), 2u + kLevelPages[1]);
  Play({Does(a, kClose), Yes(a, kReopen)});
  (*a)(kShareMany, 1, kManyFiles);
  EXPECT_EQ(pages(), 2u + kLevelPages[1]) << "they stay the slot's";
}

TEST_F(LeaseTest, ManyFilesOfOneProcess) {
  constexpr long kFiles = 20000;
  const auto levels = [&] { return uint32_t{Look(folder.path())->slots[0].levels.load()}; };
  auto a = NewPeer(), b = NewPeer();
  (*a)(kShareMany, 0, kFiles);
  EXPECT_EQ(levels(), kLevels);
  EXPECT_EQ((*b)(kWantedMany, 0, kFiles), kFiles);
  EXPECT_EQ((*b)(kWantedMany, kFiles, kFiles), 0);
  Play({Yes(a, kExclude, kFiles - 1), Yes(b, kHeld, kFiles - 1),
        Does(a, kDropExclusive, kFiles - 1)});
  (*a)(kDropMany, 0, kFiles - 1);
  EXPECT_EQ((*b)(kWantedMany, 0, kFiles), 0);

  (*a)(kShareMany, 0, kFiles);
  a->Kill();
  auto next = NewPeer();
  EXPECT_EQ(levels(), 1u);
  EXPECT_EQ((*b)(kWantedMany, 0, kFiles), 0);
  (*next)(kShareMany, kFiles, kManyFiles);
  EXPECT_EQ(levels(), 2u);
  EXPECT_EQ((*b)(kWantedMany, 0, kFiles), 0) << "nothing is left of the one before";
  EXPECT_EQ((*b)(kWantedMany, kFiles, kManyFiles), kManyFiles);
}

// More than the last level has room for: some are wanted needlessly, none is missed.
TEST_F(LeaseTest, TooManyFilesOfOneProcess) {
  constexpr long kFiles = 100000;
  auto a = NewPeer(), b = NewPeer();
  (*a)(kShareMany, 0, kFiles);
  EXPECT_EQ((*b)(kWantedMany, 0, kFiles), kFiles);
  const long needlessly = (*b)(kWantedMany, kFiles, kFiles);
  EXPECT_GT(needlessly, 0);
  EXPECT_LT(needlessly, kFiles);
  EXPECT_FALSE((*a)(kExclude, kFiles - 1)) << "has no cell";
  (*a)(kDropMany, 0, kFiles);
  EXPECT_GE((*b)(kWantedMany, kFiles, kFiles), needlessly) << "nobody knows whose it was";
}

TEST_F(LeaseTest, FilesRarelyCollide) {
  constexpr long kFiles = 1000, kOthers = 1000000;
  auto a = NewPeer(), b = NewPeer();
  (*a)(kShareMany, 0, kFiles);
  EXPECT_LE((*b)(kWantedMany, kFiles, kOthers), kOthers / 100000);
}

// By a child that shares memory and has looked for one when the parent did.
TEST_F(LeaseTest, AFileWithTwoCells) {
  Leases leases;
  const char* why = nullptr;
  ASSERT_TRUE(leases.Open(folder.path().c_str(), &why));
  auto other = NewPeer();
  leases.AddUser(kDevice, 1);
  EXPECT_TRUE(leases.TryExclusive(kDevice, 1));
  {
    const Look look(folder.path());
    for (Bucket& bucket : look->pages[0].first.buckets) {
      if (bucket.cells[0].load() != 0) bucket.cells[1].store(bucket.cells[0].load() - kExclusive);
    }
  }
  EXPECT_TRUE(leases.Relock()) << "the look has closed a descriptor";
  leases.RemoveUser(kDevice, 1, false);
  EXPECT_TRUE((*other)(kHeld, 1));
  leases.AddUser(kDevice, 1);
  leases.RemoveUser(kDevice, 1, true);
  Play({No(other, kHeld, 1), Yes(other, kWanted, 1)});
  leases.RemoveUser(kDevice, 1, false);
  EXPECT_FALSE((*other)(kWanted, 1));
  leases.Close();
}

// A child that shares its parent's memory takes no pages: their descriptor may be another file's.
TEST_F(LeaseTest, AChildThatSharesMemoryTakesNoPages) {
  Leases leases;
  const char* why = nullptr;
  ASSERT_TRUE(leases.Open(folder.path().c_str(), &why));
  auto other = NewPeer();
  sys::sharing = 1;
  for (uint64_t inode = 0; inode < kManyFiles; ++inode) leases.AddUser(kDevice, inode);
  sys::sharing = 0;
  EXPECT_EQ(Look(folder.path())->pages_given.load(), 2u);
  EXPECT_TRUE(leases.Relock()) << "the look has closed a descriptor";
  EXPECT_EQ((*other)(kWantedMany, 0, kManyFiles), kManyFiles);
  for (uint64_t inode = 0; inode < kManyFiles; ++inode) leases.RemoveUser(kDevice, inode, false);
  leases.Close();
}

// ----------------------------------------------------------------------------------------- Asking

TEST_F(LeaseTest, NobodyToAsk) {
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kShare, 1), Does(b, kShare, 1)});
  EXPECT_TRUE((*a)(kAwaitRelease, 1, 0));
  EXPECT_TRUE((*a)(kAwaitPublish, 1, 0));
}

TEST_F(LeaseTest, TheKeeperLetsGoOfWhatIsWanted) {
  auto a = NewPeer(), b = NewPeer();
  Play({Takes(a, 1), Takes(a, 2)});
  (*b)(kShare, 1);
  b->Begin(kAwaitRelease, 1);
  (*a)(kKeep);  // what was asked before is served
  EXPECT_TRUE(b->Answer());
  Play({No(b, kHeld, 1), Yes(b, kHeld, 2)});

  for (int round = 0; round < 200; ++round) {
    Play({Does(b, kDrop, 1), Yes(a, kExclude, 1), Does(b, kShare, 1), Yes(b, kAwaitRelease, 1)});
  }
  Play({Does(a, kStop), Does(b, kShare, 2)});
  EXPECT_FALSE((*b)(kAwaitRelease, 2, kSecond / 5)) << "nobody serves any more";
}

// Each wait is served long before a holder's life is doubted, so wake-ups are not lost.
TEST_F(LeaseTest, TheAskerIsWoken) {
  auto a = NewPeer(), b = NewPeer();
  (*a)(kKeep);
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    Play({Takes(a, 1), Does(b, kShare, 1), Yes(b, kAwaitRelease, 1), Does(a, kDrop, 1),
          Does(b, kDrop, 1), Takes(a, 2), Yes(b, kAwaitPublish, 2), Does(a, kDropExclusive, 2)});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::nanoseconds(kRounds * kAliveCheckInterval * 3 / 4));
}

TEST_F(LeaseTest, WhoLetsGoOrPublishesWakes) {
  for (const Do how : {kDowngrade, kDropExclusive, kClose, kKeep}) {
    int woken = 0;
    for (int round = 0; round < 5; ++round) {
      auto a = NewPeer(), b = NewPeer();
      Play({Takes(a, 1), Does(b, kShare, 1)});
      const Look look(folder.path());
      sys::Word& answers = look->slots[0].answers;
      b->Begin(how == kKeep ? kAwaitPublish : kAwaitRelease, 1);
      while (answers.load() % 2 == 0) usleep(1000);
      (*a)(how, 1);
      EXPECT_TRUE(b->Answer());
      woken += answers.load() % 2 == 0 ? 1 : 0;  // odd: it has looked once more by itself
    }
    EXPECT_GT(woken, 0) << static_cast<int>(how);
  }
}

TEST_F(LeaseTest, DeathEndsTheWait) {
  for (const Do what : {kAwaitRelease, kAwaitPublish}) {
    auto a = NewPeer(), b = NewPeer();
    Play({Takes(a, 1), Does(a, kKeepDeaf), Does(b, kShare, 1)});
    const long deaths = (*b)(kDeaths);
    b->Begin(what, 1);
    usleep(20000);
    a->Kill();
    auto next = NewPeer();  // may have the slot before b looks
    EXPECT_TRUE(b->Answer());
    EXPECT_EQ((*b)(kDeaths), deaths + 1);
  }
}

TEST_F(LeaseTest, ANewOwnerOfTheSlotDoesNotProlongTheWait) {
  auto a = NewPeer(), b = NewPeer();
  Play({Takes(a, 1), Does(b, kShare, 1)});
  b->Begin(kAwaitRelease, 1);
  usleep(20000);
  b->Signal(SIGSTOP);
  a->Kill();
  auto next = NewPeer();
  Play({Takes(next, 2)});
  b->Signal(SIGCONT);
  EXPECT_TRUE(b->Answer());
}

TEST_F(LeaseTest, PublishingKeepsTheLease) {
  auto a = NewPeer(), b = NewPeer(), c = NewPeer();
  Play({Takes(a, 1), Takes(a, 2), Takes(a, 3)});
  EXPECT_FALSE((*b)(kAwaitPublish, 1, kSecond / 5)) << "no responder";
  Play({Does(a, kKeep), Yes(b, kAwaitPublish, 1)});
  EXPECT_GE((*a)(kPublished, 1), 1);
  Play({Says(a, 0, kPublished, 2), Yes(b, kHeld, 1)});
  const long before = (*a)(kPublished, 1);
  for (int round = 1; round <= 100; ++round) {
    b->Begin(kAwaitPublish, 1);
    c->Begin(kAwaitPublish, 2);
    EXPECT_TRUE(b->Answer());
    EXPECT_TRUE(c->Answer());
    EXPECT_GE((*a)(kPublished, 1), before + round);
    EXPECT_GE((*a)(kPublished, 2), round);
  }
  Play({Yes(b, kHeld, 1), Yes(b, kAwaitPublish, 4, "nobody's")});
}

TEST_F(LeaseTest, WhatCouldNotBePublishedIsOwed) {
  auto a = NewPeer(), b = NewPeer();
  Play({Takes(a, 1), Takes(a, 2)});
  Play({Does(a, kKeep), Does(a, kFail)});
  EXPECT_FALSE((*b)(kAwaitPublish, 1, kSecond / 5));
  Play({Does(a, kFail), Yes(b, kAwaitPublish, 2), Says(a, 1, kPublished, 1),
        Says(a, 1, kPublished, 2)});
}

TEST_F(LeaseTest, TwoAskForDifferentFilesAtOnce) {
  auto a = NewPeer(), b = NewPeer(), c = NewPeer();
  Play({Takes(a, 1), Takes(a, 2)});
  b->Begin(kAwaitPublish, 1);
  c->Begin(kAwaitPublish, 2);
  const Look look(folder.path());
  const auto asked = [&] {
    uint32_t n = 0;
    for (Slot& slot : look->slots) n += slot.publish_wanted.load();
    return n;
  };
  while (asked() < 2) usleep(1000);
  (*a)(kKeep);
  EXPECT_TRUE(b->Answer());
  EXPECT_TRUE(c->Answer());
  Play({Says(a, 1, kPublished, 1), Says(a, 1, kPublished, 2)});
}

// ------------------------------------------------------------------------------------------- Fork

TEST_F(LeaseTest, AChildHasASlotOfItsOwn) {
  auto a = NewPeer(), b = NewPeer();
  Play({Does(a, kShare, 1), Says(a, 0, kFork, 2), Yes(a, kExclude, 1),
        Says(a, 1, kFork, 1, "its parent's"), Yes(b, kHeld, 1, "still the parent's"),
        Does(a, kDropExclusive, 1), No(b, kWanted, 1, "the child died")});
}

TEST_F(LeaseTest, AChildWithoutASlotIsClosed) {
  Leases leases;
  const char* why = nullptr;
  ASSERT_TRUE(leases.Open(folder.path().c_str(), &why));
  Common<std::atomic<int>> step;
  const pid_t greedy = fork();
  if (greedy == 0) {
    struct flock rest = {};
    rest.l_type = F_WRLCK;
    rest.l_start = 1;
    rest.l_len = kMaxProcesses - 1;
    if (fcntl(leases.fd(), F_SETLK, &rest) == 0) step->store(1);
    while (getppid() != 1) usleep(1000);
    _exit(0);
  }
  while (step->load() == 0) usleep(1000);
  EXPECT_EQ(InChild([&] {
              const bool got = leases.AfterForkInChild(&why);
              return !got && !leases.is_open() && strstr(why, "too many") != nullptr ? 0 : 1;
            }),
            0);
  kill(greedy, SIGKILL);
  waitpid(greedy, nullptr, 0);
  EXPECT_EQ(InChild([&] { return leases.AfterForkInChild(&why) ? 0 : 1; }), 0);
  leases.AddUser(kDevice, 1);
  EXPECT_TRUE(leases.TryExclusive(kDevice, 1)) << "the parent's slot is as it was";
  leases.Close();
}

// ------------------------------------------------------------------------------- Losing the lock

TEST_F(LeaseTest, AProgramThatClosesTheFile) {
  auto a = NewPeer(), b = NewPeer();
  Play({Takes(a, 1), Yes(a, kOpenAndClose), Yes(a, kRelock), Yes(b, kHeld, 1), No(a, kLost)});

  Play({Yes(a, kOpenAndClose), No(b, kHeld, 1, "taken for dead"), Yes(a, kLost), No(a, kRelock)});
  auto next = NewPeer();
  Play({Takes(next, 1), Does(a, kDropExclusive, 1), Does(a, kShare, 1), No(a, kExclude, 1),
        Yes(b, kHeld, 1, "the next owner's marks are its own"), Does(a, kClose), Yes(b, kHeld, 1),
        Yes(a, kReopen)});
}

TEST_F(LeaseTest, AFileThatNobodyFindsExcludesNobody) {
  auto a = NewPeer();
  (*a)(kShare, 1);
  ASSERT_EQ(unlink(file.c_str()), 0);
  EXPECT_FALSE((*a)(kExclude, 1));
}

TEST_F(LeaseTest, ItsOwnFile) {
  Leases leases;
  EXPECT_FALSE(leases.IsOwnFile(0, 0));
  const char* why = nullptr;
  ASSERT_TRUE(leases.Open(folder.path().c_str(), &why));
  struct stat st;
  ASSERT_EQ(stat(file.c_str(), &st), 0);
  EXPECT_TRUE(leases.IsOwnFile(st.st_dev, st.st_ino));
  EXPECT_FALSE(leases.IsOwnFile(st.st_dev, st.st_ino + 1));
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_GE(leases.fd(), sys::kLeasesNumber);
  EXPECT_EQ(fcntl(leases.fd(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(leases.IsOver(leases.life()));
  EXPECT_TRUE(leases.IsOver(leases.life() + 2));
  // Of a file before this one, which may have had more slots.
  EXPECT_TRUE(leases.IsOver(uint64_t{kMaxProcesses - 1} << 32 | 1));
  struct stat now;
  ASSERT_EQ(stat(file.c_str(), &now), 0);
  EXPECT_EQ(now.st_blocks, st.st_blocks) << "what has no memory is not looked at";
  leases.Close();
}

// --------------------------------------------------------------------------------------- Refusals

TEST_F(LeaseTest, AMaskOfTheUserDoesNotMatter) {
  EXPECT_EQ(WhyNot([] { umask(0777); }), "");
  struct stat st;
  ASSERT_EQ(stat(file.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_EQ(WhyNot(), "");
}

TEST_F(LeaseTest, RefusesWhatOthersMayOpen) {
  const std::string other = folder / "other";
  EXPECT_EQ(WhyNot(), "");
  chmod(file.c_str(), 0644);
  EXPECT_NE(WhyNot().find("others"), std::string::npos);
  chmod(file.c_str(), 0600);
  EXPECT_EQ(WhyNot(), "");
}

// ------------------------------------------------------------------------------- Names that are
// taken

// All names in the folder that begin as the file's does.
int CountNames(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::count_if(begin(all), end(all), [&](const auto& entry) {
    return entry.path().string().rfind(FileIn(folder), 0) == 0;
  }));
}

// Then there is none: nothing may be cached, and nothing is done to what has the name.
TEST_F(LeaseTest, WhatIsNotOursIsLeftAlone) {
  const std::string precious = folder / "precious";
  test::WriteFile(precious, "something");
  chmod(precious.c_str(), 0600);
  const std::function<int()> takers[] = {
      [&] { return symlink(precious.c_str(), file.c_str()); },
      [&] { return symlink("nowhere", file.c_str()); },
      [&] { return mkfifo(file.c_str(), 0600); },
      [&] { return mkdir(file.c_str(), 0700); },
      [&] { return link(precious.c_str(), file.c_str()); },
      [&] {
        test::WriteFile(file, "");
        return truncate(file.c_str(), kFirstSize);
      },
      [&] {
        test::WriteFile(file,
                        std::string(reinterpret_cast<const char*>(&kFormat), sizeof(kFormat)));
        chmod(file.c_str(), 0600);
        return geteuid() != 0 ? truncate(file.c_str(), 0) : chown(file.c_str(), 12345, 12345);
      },
  };
  for (const auto& take : takers) {
    ASSERT_EQ(take(), 0);
    EXPECT_NE(WhyNot().find("somebody else has the name"), std::string::npos) << WhyNot();
    EXPECT_EQ(CountNames(folder.path()), 1);
    EXPECT_EQ(test::ReadFile(precious), "something");
    std::filesystem::remove(file);
    EXPECT_EQ(WhyNot(), "");
    std::filesystem::remove(file);
  }
}

TEST_F(LeaseTest, MoreNamesDoNotMatter) {
  auto a = NewPeer();
  (*a)(kShare, 1);
  for (const std::string& more : {folder / "other", file + "-other"}) {
    ASSERT_EQ(link(file.c_str(), more.c_str()), 0);
  }
  EXPECT_TRUE((*a)(kExclude, 1));
  auto b = NewPeer();
  EXPECT_TRUE((*b)(kHeld, 1));
}

// A process that does something, one system call after the other.
class Stepped {
 public:
  explicit Stepped(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) {
      waitpid(pid_, nullptr, 0);
      return;
    }
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  ~Stepped() {
    kill(pid_, SIGKILL);
    if (!over_) waitpid(pid_, nullptr, 0);
  }
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  bool over() const { return over_; }
  // To the beginning of a call, or to its end.
  void Step() {
    int status = 0;
    ptrace(PTRACE_SYSCALL, pid_, nullptr, nullptr);
    over_ = waitpid(pid_, &status, 0) == pid_ && !WIFSTOPPED(status);
  }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    over_ = true;
  }

 private:
  pid_t pid_;
  bool over_ = false;
};

// Every order of system calls that the seed gives, with deaths: all that have a file have the same.
TEST_F(LeaseTest, NoOrderOfCallsMakesTwo) {
  constexpr int kRounds = 200, kProcesses = 3;
  constexpr unsigned kRare = 100;
  std::minstd_rand random(static_cast<unsigned>(test::Seed()));
  const auto one_of = [&](unsigned n) { return random() / 7 % n == 0; };
  for (int round = 0; round < kRounds; ++round) {
    const Common<std::array<std::atomic<uint64_t>, kProcesses>> inodes;
    std::vector<std::unique_ptr<Stepped>> processes;
    for (size_t i = 0; i < kProcesses; ++i) {
      processes.push_back(std::make_unique<Stepped>([&, i] {
        Leases leases;
        const char* why = "";
        struct stat st;
        const bool open = leases.Open(folder.path().c_str(), &why);
        if (open && fstat(leases.fd(), &st) == 0) (*inodes.operator->())[i].store(st.st_ino);
      }));
    }
    size_t at = 0, killed = 0;
    for (;;) {
      if (std::all_of(processes.begin(), processes.end(), [](auto& p) { return p->over(); })) break;
      // Mostly the same one goes on: what takes many calls may be overtaken as a whole.
      if (one_of(round % 2 == 0 ? 8 : 40) || processes[at]->over()) at = random() / 7 % kProcesses;
      if (processes[at]->over()) continue;
      if (one_of(kRare)) {
        processes[at]->Kill();
        ++killed;
      } else {
        processes[at]->Step();
      }
    }
    std::set<uint64_t> found;
    size_t opened = 0;
    for (const auto& inode : *inodes.operator->()) {
      if (inode.load() == 0) continue;
      found.insert(inode.load());
      ++opened;
    }
    ASSERT_LE(found.size(), 1u) << "round " << round << ", seed " << test::Seed();
    ASSERT_GE(opened + killed, size_t{kProcesses})
        << "round " << round << ", seed " << test::Seed();
    ASSERT_LE(CountNames(folder.path()), 1) << "round " << round << ", seed " << test::Seed();
    std::filesystem::remove(file);
  }
}

// On the way to a slot, and to pages for many files. What the dead leave is taken over, pages as
// well, and those who live read on.
TEST_F(LeaseTest, DeathAtEachCall) {
  auto witness = NewPeer();
  bool over = false;
  for (int calls = 0; !over; ++calls) {
    Stepped one([&] {
      Leases leases;
      const char* why = "";
      if (!leases.Open(folder.path().c_str(), &why)) return;
      for (uint64_t inode = 0; inode < kManyFiles; ++inode) leases.AddUser(kDevice, inode);
      leases.Close();
    });
    for (int i = 0; i < calls && !one.over(); ++i) one.Step();
    over = one.over();
    if (!over) one.Kill();
    EXPECT_EQ((*witness)(kWantedMany, 0, kManyFiles), 0) << "after " << calls << " calls";
  }
  EXPECT_EQ(Look(folder.path())->pages_given.load(), 2 + kLevelPages[1]);
}

// Many that start at once, while the name is free or a file of another version has it; and some are
// killed on the way. All that get a file get the same one.
TEST_F(LeaseTest, AllHaveTheSame) {
  constexpr int kRounds = 20, kProcesses = 12, kKilled = kProcesses / 3;
  struct Board {
    std::atomic<int> begin;
    std::array<std::atomic<uint64_t>, kProcesses> inodes;
  };
  std::minstd_rand random(static_cast<unsigned>(test::Seed()));
  for (int round = 0; round < kRounds; ++round) {
    if (round % 2 == 1) {
      const uint64_t other = kFormat + 1;
      test::WriteFile(file, std::string(reinterpret_cast<const char*>(&other), sizeof(other)));
      chmod(file.c_str(), 0600);
    }
    const Common<Board> board;
    std::vector<pid_t> pids;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        while (board->begin.load() == 0) sched_yield();
        Leases leases;
        const char* why = "";
        struct stat st;
        if (!leases.Open(folder.path().c_str(), &why) || fstat(leases.fd(), &st) != 0) {
          fprintf(stderr, "round %d: %s\n", round, why);
          _exit(1);
        }
        board->inodes[static_cast<size_t>(i)].store(st.st_ino);
        pause();
      }
      pids.push_back(pid);
    }
    board->begin.store(1);
    for (size_t i = 0; i < kKilled; ++i) {
      usleep(static_cast<useconds_t>(random() % 200));
      kill(pids[i], SIGKILL);
    }
    for (size_t i = kKilled; i < kProcesses; ++i) {
      while (board->inodes[i].load() == 0 && waitpid(pids[i], nullptr, WNOHANG) == 0) usleep(100);
    }
    std::set<uint64_t> inodes;
    for (const auto& inode : board->inodes) {
      if (inode.load() != 0) inodes.insert(inode.load());
    }
    for (size_t i = kKilled; i < kProcesses; ++i) {
      EXPECT_NE(board->inodes[i].load(), 0u) << "it has none, round " << round;
    }
    EXPECT_EQ(inodes.size(), 1u) << "round " << round << ", seed " << test::Seed();
    EXPECT_EQ(CountNames(folder.path()), 1) << "round " << round;
    for (const pid_t pid : pids) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove(file);
  }
}

// A process of another version, which finds the file of nobody who has a lock in it, takes it away
// and makes its own; and of nobody again. Before each call of ours on the way to a slot: the file
// that we have in the end is found by those who come later, or we have none.
TEST_F(LeaseTest, AnotherVersionTakesItAwayAtEachCall) {
  bool over = false;
  int taken = 0;
  for (int calls = 0; !over; ++calls) {
    const Common<std::atomic<uint64_t>> inode;
    Stepped one([&] {
      Leases leases;
      const char* why = "";
      struct stat st;
      if (!leases.Open(folder.path().c_str(), &why)) fprintf(stderr, "%d calls: %s\n", calls, why);
      if (leases.is_open() && fstat(leases.fd(), &st) == 0) inode->store(st.st_ino);
    });
    for (int i = 0; i < calls && !one.over(); ++i) one.Step();
    over = one.over();
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    struct flock all = {};
    all.l_type = F_WRLCK;
    if (!over && fd >= 0 && fcntl(fd, F_SETLK, &all) == 0) {
      ++taken;
      std::filesystem::remove(file);
    }
    if (fd >= 0) close(fd);
    while (!one.over()) one.Step();
    struct stat named;
    ASSERT_EQ(stat(file.c_str(), &named), 0);
    EXPECT_EQ(inode->load(), named.st_ino) << "taken away after " << calls << " calls";
    std::filesystem::remove(file);
    if (calls % 2 == 0) NewPeer();  // there is a file when the next one begins
  }
  EXPECT_GT(taken, 0);
}

// After an update: as long as processes of the other version live, there is no common word.
TEST_F(LeaseTest, AnotherVersionIsReplacedWhenNobodyUsesIt) {
  for (const off_t size : {off_t{kFirstSize}, off_t{100}}) {
    const uint64_t other = kFormat + 1;
    test::WriteFile(file, std::string(reinterpret_cast<const char*>(&other), sizeof(other)));
    chmod(file.c_str(), 0600);
    ASSERT_EQ(truncate(file.c_str(), size), 0);
    int ready[2], done[2];
    ASSERT_EQ(pipe(ready) + pipe(done), 0);
    const pid_t user = fork();
    if (user == 0) {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      lock.l_start = 7;
      lock.l_len = 1;
      char byte = 'x';
      const int fd = open(file.c_str(), O_RDWR);
      if (fcntl(fd, F_SETLK, &lock) != 0 || write(ready[1], &byte, 1) != 1) _exit(1);
      close(done[1]);
      _exit(read(done[0], &byte, 1) == 0 ? 0 : 1);
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_NE(WhyNot().find("another version"), std::string::npos);
    close(done[1]);
    for (const int fd : {ready[0], ready[1], done[0]}) close(fd);
    int status = 0;
    EXPECT_EQ(waitpid(user, &status, 0), user);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(WhyNot(), "");
    EXPECT_EQ(Look(folder.path())->format.load(), kFormat);
  }
}

TEST_F(LeaseTest, ALimitOfFileSizeIsNoSignal) {
  const auto limit = [] {
    const rlimit small = {kPage, kPage};
    setrlimit(RLIMIT_FSIZE, &small);
  };
  EXPECT_NE(WhyNot(limit).find("no room"), std::string::npos);
  EXPECT_EQ(WhyNot(), "");
  EXPECT_EQ(WhyNot(limit), "") << "it need not grow any more";
  EXPECT_EQ(InChild([&] {
              limit();
              Leases leases;
              const char* why = "";
              if (!leases.Open(folder.path().c_str(), &why)) return 1;
              for (uint64_t inode = 0; inode < kManyFiles; ++inode) leases.AddUser(kDevice, inode);
              leases.Close();
              return 0;
            }),
            0);
  auto peer = NewPeer();
  EXPECT_EQ(WhyNot(limit), "") << "without a page";
  EXPECT_EQ(Look(folder.path())->pages_given.load(), 1u);
  EXPECT_EQ(WhyNot(), "");
  EXPECT_EQ(Look(folder.path())->pages_given.load(), 2u);
}

TEST_F(LeaseTest, ALimitOfAddressSpaceIsNoDisaster) {
  if (test::kAddressSanitizer || test::kThreadSanitizer) GTEST_SKIP() << "it wants memory, too";
  EXPECT_NE(WhyNot([] {
              const rlimit small = {1 << 20, 1 << 20};
              setrlimit(RLIMIT_AS, &small);
            }).find("no room"),
            std::string::npos);
}

// The header, the entries, a page of lines, and so many pages.
std::string SizeFor(size_t pages) {
  return "size=" + std::to_string(kTablesSize + (2 + pages) * kPage);
}

TEST_F(LeaseTest, WhereThereIsNoRoomForManyFiles) {
  test::TestInOwnMounts(folder.path(), SizeFor(2), [&] {
    Peer peer(folder.path()), other(folder.path());
    peer(kShare, 1);
    EXPECT_TRUE(peer(kExclude, 1));
    peer(kShareMany, 2, kManyFiles);
    EXPECT_TRUE(peer(kHeld, 1) == 0 && other(kHeld, 1));
    // There is no room for most of them. Whatever has no cell is nobody's alone.
    EXPECT_EQ(other(kWantedMany, 2, kManyFiles), kManyFiles);
    other(kShare, 1 + kManyFiles);
    EXPECT_FALSE(peer(kExclude, 1 + kManyFiles) || other(kExclude, 1 + kManyFiles));
    peer(kDropMany, 2, kManyFiles);
    EXPECT_TRUE(other(kHeld, 1));
    peer.Kill();
    EXPECT_EQ(other(kWantedMany, 1, kManyFiles), 0);
  });
}

TEST_F(LeaseTest, WhereThereIsNoRoomForAProcess) {
  uint64_t far = 2;
  while (NeighbourOf(1, far) == far) ++far;
  const uint64_t neighbour = NeighbourOf(1, far);
  test::TestInOwnMounts(folder.path(), SizeFor(1), [&] {
    const std::string filler = folder / "filler";
    Peer peer(folder.path());
    test::WriteFile(filler, std::string(kPage, 'x'));
    Peer other(folder.path());
    const Look look(folder.path());
    EXPECT_EQ(look->slots[1].levels.load(), 0u);
    // It has no cells: what might be its file is nobody's alone.
    for (const uint64_t inode : {uint64_t{1}, neighbour, far}) peer(kShare, inode);
    other(kShare, 1);
    EXPECT_FALSE(other(kExclude, 1) || other(kHeld, 1));
    EXPECT_FALSE(peer(kHeld, 1) || peer(kExclude, 1) || peer(kExclude, neighbour));
    EXPECT_TRUE(peer(kExclude, far) && other(kHeld, far));
    other(kDrop, 1);
    EXPECT_FALSE(peer(kExclude, 1));
    unlink(filler.c_str());
    other(kClose);
    other(kReopen);
    EXPECT_TRUE(peer(kExclude, 1) && peer(kExclude, neighbour));
  });
}

// The line of the next slot would be on another page.
TEST_F(LeaseTest, WhereThereIsNoRoomForALine) {
  constexpr size_t kLines = kPage / sizeof(Slot);
  test::TestInOwnMounts(folder.path(), SizeFor(kLines), [&] {
    std::vector<std::unique_ptr<Peer>> peers;
    for (size_t i = 0; i < kLines; ++i) peers.push_back(NewPeer());
    const bool refused = WhyNot().find("no memory") != std::string::npos;
    peers.back()->Kill();
    const bool taken = WhyNot().empty();
    while (!peers.empty()) peers.pop_back();  // each has the sockets of those before it
    EXPECT_TRUE(refused && taken);
  });
}

TEST_F(LeaseTest, NoSlotIsFree) {
  EXPECT_EQ(WhyNot(), "");
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
  struct flock all = {};
  all.l_type = F_WRLCK;
  all.l_len = kMaxProcesses;
  ASSERT_EQ(fcntl(fd, F_SETLK, &all), 0);
  EXPECT_NE(WhyNot().find("too many"), std::string::npos);
  all.l_type = F_UNLCK;
  all.l_start = kMaxProcesses - 1;
  all.l_len = 1;
  ASSERT_EQ(fcntl(fd, F_SETLK, &all), 0);
  EXPECT_EQ(WhyNot(), "") << "the last one";
  // What the dead have left is taken when there is nothing else.
  {
    const Look look(folder.path());  // closes a descriptor, and so unlocks all
    for (Slot& slot : look->slots) slot.life.store(slot.life.load() | 1);
    look->mark.store(kMaxProcesses);
  }
  all.l_type = F_WRLCK;
  all.l_start = 0;
  all.l_len = kMaxProcesses - 1;
  ASSERT_EQ(fcntl(fd, F_SETLK, &all), 0);
  EXPECT_EQ(WhyNot(), "");
  close(fd);
}

// ------------------------------------------------------------------------------------- At once

// Processes that go on together, round after round.
struct Barrier {
  std::atomic<uint32_t> arrived;
  void Wait(uint32_t parties) {
    const uint32_t mine = arrived.fetch_add(1);
    const uint32_t all = (mine / parties + 1) * parties;
    while (static_cast<int32_t>(arrived.load() - all) < 0) sched_yield();
  }
};

struct Round {
  Barrier start, middle, end;
  std::atomic<uint32_t> holders, seen, wins, losses, wrong;
};

// Runs `body(leases, who)` in `n` processes with a slot each. How many went wrong.
int Together(const std::string& folder, uint32_t n,
             const std::function<bool(Leases&, uint32_t)>& body) {
  std::vector<pid_t> children;
  for (uint32_t who = 0; who < n; ++who) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    Leases leases;
    const char* why = nullptr;
    _exit(leases.Open(folder.c_str(), &why) && body(leases, who) ? 0 : 1);
  }
  int wrong = 0;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    wrong += status != 0 ? 1 : 0;
  }
  return wrong;
}

TEST_F(LeaseTest, NeverTwoAtOnce) {
  constexpr uint32_t kRounds = 20000;
  constexpr uint32_t kAlone = 100;  // each so many rounds, the first is alone
  Common<Round> round;
  const auto body = [&](Leases& leases, uint32_t who) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      const bool alone = i % kAlone == 0;
      const bool idle = alone && who != 0;
      round->start.Wait(2);
      if (!idle) leases.AddUser(kDevice, i);
      const bool mine = !idle && leases.TryExclusive(kDevice, i);
      if (mine && round->holders.fetch_add(1) != 0) round->wrong.fetch_add(1);
      if (mine) round->wins.fetch_add(1);
      if (alone && !idle && !mine) round->losses.fetch_add(1);
      round->middle.Wait(2);
      round->holders.store(0);
      if (!idle) leases.RemoveUser(kDevice, i, mine);
      round->end.Wait(2);
    }
    return true;
  };
  EXPECT_EQ(Together(folder.path(), 2, body), 0);
  EXPECT_EQ(round->wrong.load(), 0u);
  EXPECT_EQ(round->losses.load(), 0u);
  EXPECT_GE(round->wins.load(), kRounds / kAlone);
}

// Who comes at once with others has pages of its own.
TEST_F(LeaseTest, NoTwoHaveAPage) {
  constexpr uint32_t kRounds = 20, kProcesses = 8;
  for (uint32_t i = 0; i < kRounds; ++i) {
    Common<Round> round;
    // Of several that make the file at once, it may get the name of any.
    EXPECT_EQ(Together(folder.path(), 1, [](Leases&, uint32_t) { return true; }), 0);
    const auto body = [&](Leases& leases, uint32_t who) {
      for (uint64_t inode = 0; inode < kManyFiles; ++inode) leases.AddUser(kDevice + who, inode);
      round->middle.Wait(kProcesses);
      for (uint64_t inode = 0; inode < kManyFiles; ++inode)
        leases.RemoveUser(kDevice + who, inode, false);
      return true;
    };
    EXPECT_EQ(Together(folder.path(), kProcesses, body), 0);
    const Look look(folder.path());
    std::set<uint32_t> pages;
    for (const Slot& slot : look->slots) {
      for (uint32_t level = 0; level < kLevels && slot.pages[level].load() != 0; ++level) {
        for (uint32_t k = 0; k < kLevelPages[level]; ++k) {
          EXPECT_TRUE(pages.insert(slot.pages[level].load() + k).second);
        }
      }
    }
    EXPECT_EQ(pages.size(), kProcesses * (1 + kLevelPages[1]));
    EXPECT_EQ(look->pages_given.load(), pages.size());
    unlink(file.c_str());
  }
}

// One opens a file that the other is about to take: one of them sees the other.
TEST_F(LeaseTest, NeverUnseen) {
  constexpr uint32_t kRounds = 20000;
  Common<Round> round;
  EXPECT_EQ(Together(folder.path(), 2,
                     [&](Leases& leases, uint32_t who) {
                       for (uint32_t i = 0; i < kRounds; ++i) {
                         bool mine = false;
                         if (who == 0) leases.AddUser(kDevice, i);
                         round->start.Wait(2);
                         if (who == 0) {
                           mine = leases.TryExclusive(kDevice, i);
                           round->holders.store(mine);
                         } else {
                           leases.AddUser(kDevice, i);
                           round->seen.store(leases.IsExclusiveElsewhere(kDevice, i));
                         }
                         round->middle.Wait(2);
                         if (who == 0) {
                           if (round->holders.load() != 0 && round->seen.load() == 0) {
                             round->wrong.fetch_add(1);
                           }
                           (mine ? round->wins : round->losses).fetch_add(1);
                         }
                         leases.RemoveUser(kDevice, i, mine);
                         round->end.Wait(2);
                       }
                       return true;
                     }),
            0);
  EXPECT_EQ(round->wrong.load(), 0u);
  EXPECT_EQ(round->wins.load() + round->losses.load(), kRounds);
}

// Processes that come, take files for themselves, and die or go, at any instruction. Who takes a
// file finds it free, or another's that was already sentenced.
struct Slaughter {
  static constexpr uint32_t kFiles = 4;
  static constexpr uint32_t kLives = 4096;
  std::atomic<uint32_t> owner[kFiles];  // number of a life
  std::atomic<bool> sentenced[kLives];
  std::atomic<uint32_t> wrong, taken, refused;
};

[[noreturn]] void Live(const std::string& folder, const Common<Slaughter>& all, uint32_t life) {
  std::mt19937_64 random(test::Seed() * 1000003 + life);
  Leases leases;
  const char* why = nullptr;
  for (;;) {
    if (!leases.Open(folder.c_str(), &why)) {
      all->refused.fetch_add(1);
      _exit(1);
    }
    // Mostly more than go into a page.
    const uint64_t many = Slaughter::kFiles + random() % 2048;
    for (uint64_t file = Slaughter::kFiles; file < many; ++file) leases.AddUser(kDevice, file);
    for (uint64_t steps = random() % 64; steps > 0; --steps) {
      const uint64_t file = random() % Slaughter::kFiles;
      leases.AddUser(kDevice, file);
      const bool mine = leases.TryExclusive(kDevice, file);
      if (mine) {
        const uint32_t before = all->owner[file].exchange(life);
        if (before != 0 && !all->sentenced[before].load()) all->wrong.fetch_add(1);
        all->taken.fetch_add(1);
        all->owner[file].store(0);
      }
      leases.RemoveUser(kDevice, file, mine);
    }
    if (random() % 2 == 0) {
      for (uint64_t file = Slaughter::kFiles; file < many; ++file) {
        leases.RemoveUser(kDevice, file, false);
      }
    }
    leases.Close();
  }
}

constexpr uint32_t kAtOnce = 4;

// How many have died by themselves.
int Kill(const std::string& folder, const Common<Slaughter>& all) {
  struct One {
    pid_t pid = 0;
    uint32_t life = 0;
  } living[kAtOnce];
  int wrong = 0;
  const auto end = [&](const One& one) {
    if (one.pid == 0) return;
    all->sentenced[one.life].store(true);
    kill(one.pid, SIGKILL);
    int status = 0;
    waitpid(one.pid, &status, 0);
    wrong += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1;
  };
  std::mt19937_64 random(test::Seed());
  for (uint32_t life = 1; life <= 300; ++life) {
    One& one = living[life % kAtOnce];
    end(one);
    one = {fork(), life};
    if (one.pid == 0) Live(folder, all, life);
    usleep(static_cast<useconds_t>(random() % 4000));
  }
  for (const One& one : living) end(one);
  return wrong;
}

TEST_F(LeaseTest, DeathAtAnyInstruction) {
  SCOPED_TRACE("seed " + std::to_string(test::Seed()));
  Common<Slaughter> all;
  EXPECT_EQ(Kill(folder.path(), all), 0);
  EXPECT_EQ(all->wrong.load(), 0u);
  EXPECT_EQ(all->refused.load(), 0u);
  EXPECT_GT(all->taken.load(), 100u);
  // Nothing is left of them.
  auto last = NewPeer();
  for (uint64_t inode = 0; inode < Slaughter::kFiles; ++inode) {
    Play({Takes(last, inode)});
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(WhyNot(), "");
  EXPECT_LE(Look(folder.path()).mark(), 4u * kAtOnce);
  // Who dies between two instructions wastes some.
  EXPECT_LE(Look(folder.path())->pages_given.load(), 4 * kAtOnce * (1 + kLevelPages[1]));
}

// Where there is room for two of them and the many files of one.
TEST_F(LeaseTest, DeathWhereThereIsNoRoom) {
  Common<Slaughter> all;
  test::TestInOwnMounts(folder.path(), SizeFor(2 + kLevelPages[1]),
                        [&] { EXPECT_EQ(Kill(folder.path(), all), 0); });
  if (IsSkipped()) return;
  EXPECT_EQ(all->wrong.load(), 0u);
  EXPECT_EQ(all->refused.load(), 0u);
  EXPECT_GT(all->taken.load(), 100u);
}

}  // namespace
}  // namespace nvcache::lease
