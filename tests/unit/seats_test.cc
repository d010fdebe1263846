// SPDX-License-Identifier: BSD-3-Clause
//
// Who has which seat and which segment. A lock belongs to an open file, so two that have opened one
// file are like two processes; where a process has to end or to fork, the test makes real ones.
#include "src/pool/seats.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/pmem/persist.h"
#include "src/pool/mirror_words.h"
#include "src/pool/pool.h"
#include "src/sys/kernel.h"
#include "tests/unit/support.h"

namespace nvcache::pool {
namespace {

using test::Folder;
using test::MakePool;
using test::OpenedPool;
using test::OpenPool;
using test::ScopedPool;

// ---------------------------------------------------------------------------------------------
// The table by itself, in a file that is no pool.

constexpr uint32_t kSeats = 5;
constexpr uint32_t kSegments = 23;

// What one process has of it.
class Table {
 public:
  explicit Table(const std::string& path, uint32_t seats = kSeats, uint32_t segments = kSegments) {
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(ftruncate(fd_, kSegmentsOffset), 0);
    void* memory = mmap(nullptr, kSegmentsOffset, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(memory, MAP_FAILED);
    base_ = static_cast<uint8_t*>(memory);
    seats_.Open(base_, seats, segments, fd_);
  }
  ~Table() {
    munmap(base_, kSegmentsOffset);
    close(fd_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  Seats* operator->() { return &seats_; }
  uint8_t* base() const { return base_; }
  int fd() const { return fd_; }
  SharedState& shared() const { return *reinterpret_cast<SharedState*>(base_ + kSharedOffset); }
  Owner& owner(uint32_t segment) const {
    return reinterpret_cast<Owner*>(base_ + kOwnersOffset)[segment];
  }

 private:
  int fd_ = -1;
  uint8_t* base_ = nullptr;
  Seats seats_;
};

// With a seat: the lowest that is free is to be this one.
class Seated : public Table {
 public:
  Seated(const std::string& path, uint32_t seat) : Table(path) { EXPECT_EQ((*this)->Take(), seat); }
};

class SeatsTest : public testing::Test {
 protected:
  SeatsTest() { pmem::Initialize(); }

  std::mt19937_64 random_{test::Seed()};
  Folder folder_{Folder::kMemory};
  const std::string path_ = folder_ / "table";
};

TEST_F(SeatsTest, TheLowestFreeOne) {
  Seated a(path_, 0), b(path_, 1), c(path_, 2);
  Table d(path_);
  EXPECT_EQ(d->end(), 3u);
  b->Give(1);
  EXPECT_EQ(d->Take(), 1u);
  a->Give(0);
  EXPECT_EQ(b->Take(), 0u);
  EXPECT_EQ(a->Take(), 3u);
  EXPECT_EQ(b->end(), 4u);
  EXPECT_EQ(b->count(), kSeats);
}

TEST_F(SeatsTest, AsManyAsThereAre) {
  std::vector<std::unique_ptr<Table>> tables;
  for (uint32_t i = 0; i <= kSeats; ++i) tables.push_back(std::make_unique<Table>(path_));
  for (uint32_t i = 0; i < kSeats; ++i) EXPECT_EQ((*tables[i])->Take(), i);
  Table& late = *tables[kSeats];
  EXPECT_EQ(late->Take(), kNoSeat);
  EXPECT_EQ(late->end(), kSeats);
  EXPECT_EQ(late->State(kSeats), kSeatFree) << "nothing behind the last one";
  for (const uint32_t seat : {3u, 0u, 4u}) {
    (*tables[seat])->Give(seat);
    EXPECT_EQ(late->Take(), seat);
    late->Give(seat);
    EXPECT_EQ((*tables[seat])->Take(), seat);
  }
}

// Nothing of the process that had it before is left in it.
TEST_F(SeatsTest, ATakenOneSaysWhoseItIs) {
  Table a(path_), b(path_);
  std::memset(static_cast<void*>(&a->At(0)), 0xa5, sizeof(Seat));
  a->At(0).state = kSeatFree;
  char name[16] = {};
  ASSERT_EQ(prctl(PR_GET_NAME, name), 0);
  ASSERT_EQ(a->Take(), 0u);
  const Seat& seat = b->At(0);
  EXPECT_EQ(seat.state, kSeatTaken);
  EXPECT_EQ(seat.pid, static_cast<uint32_t>(getpid()));
  EXPECT_GT(seat.since, uint64_t{1600000000} * 1000000000);
  EXPECT_EQ(seat.oldest_pending, 0u);
  EXPECT_EQ(seat.lease, 0u);
  EXPECT_EQ(seat.reserve, 0u);
  EXPECT_EQ(seat.kept_units, 0u);
  EXPECT_EQ(seat.files, 0u);
  EXPECT_EQ(seat.written, 0u);
  EXPECT_STREQ(seat.program, name);
  a->NoteLease(0, 77);
  EXPECT_EQ(b->LeaseOf(0), 77u);
}

// The state says that it is free, and somebody still has the byte.
TEST_F(SeatsTest, OneWhoseByteIsLockedIsNotTaken) {
  Table a(path_), b(path_);
  struct flock lock = {F_WRLCK, SEEK_SET, kLifeOffset, 1, 0};
  ASSERT_EQ(fcntl(a.fd(), F_OFD_SETLK, &lock), 0);
  EXPECT_TRUE(b->Lives(0));
  EXPECT_TRUE(b->AnybodyLives());
  EXPECT_FALSE(b->IsOrphan(0)) << "it is free";
  EXPECT_EQ(b->Take(), 1u);
  EXPECT_FALSE(a->Lives(0)) << "the kernel does not report its own lock to it";
  EXPECT_TRUE(a->Lives(1));
}

TEST_F(SeatsTest, WhoeverGivesItUpLivesNoMore) {
  Seated a(path_, 0), b(path_, 1);
  EXPECT_TRUE(b->Lives(0) && a->Lives(1));
  EXPECT_TRUE(a->OthersHaveSeats(0) && b->OthersHaveSeats(1));
  a->Give(0);
  EXPECT_FALSE(b->Lives(0));
  EXPECT_FALSE(b->AnybodyLives()) << "but b itself";
  EXPECT_FALSE(b->OthersHaveSeats(1));
  EXPECT_TRUE(a->AnybodyLives()) << "b";
  EXPECT_EQ(b->State(0), kSeatFree);
  EXPECT_FALSE(a->HasOrphans(kNoSeat) || b->HasOrphans(1));
}

TEST_F(SeatsTest, TheDeadAreFoundAndAdoptedOnce) {
  Table a(path_), c(path_), looker(path_);
  auto b = std::make_unique<Table>(path_);
  a->Take();
  (*b)->Take();
  c->Take();
  EXPECT_FALSE(a->HasOrphans(0) || c->HasOrphans(2)) << "nor is one's own, of which no lock shows";
  EXPECT_EQ(a->Adopt(0), kNoSeat);
  b.reset();
  for (const uint32_t own : {0u, 2u}) EXPECT_TRUE((own == 0 ? a : c)->HasOrphans(own));
  EXPECT_TRUE(looker->HasOrphans(kNoSeat));
  EXPECT_TRUE(a->IsOrphan(1) && looker->IsOrphan(1));
  EXPECT_FALSE(looker->IsOrphan(0) || looker->IsOrphan(2));
  EXPECT_FALSE(a->IsReplaying(0));
  EXPECT_EQ(looker->State(1), kSeatTaken) << "until somebody adopts it";

  EXPECT_EQ(a->Adopt(0), 1u);
  EXPECT_EQ(c->State(1), kSeatReplayed);
  EXPECT_TRUE(c->Lives(1) && c->IsReplaying(2));
  EXPECT_FALSE(a->IsReplaying(0)) << "by another process";
  EXPECT_FALSE(c->IsOrphan(1) || c->HasOrphans(2) || looker->HasOrphans(kNoSeat));
  EXPECT_EQ(c->Adopt(2), kNoSeat) << "somebody has it";
  EXPECT_EQ(looker->Take(), 3u) << "nor may it be taken";

  a->Settle(1, true);
  EXPECT_EQ(c->State(1), kSeatFree);
  EXPECT_FALSE(c->Lives(1) || c->IsReplaying(2) || c->HasOrphans(2) || c->HasUnresolved());
  EXPECT_EQ(Table(path_)->Take(), 1u);
}

TEST_F(SeatsTest, AnAdopterThatDiesLeavesItToTheNext) {
  Table a(path_);
  auto b = std::make_unique<Table>(path_), c = std::make_unique<Table>(path_);
  a->Take();
  (*b)->Take();
  (*c)->Take();
  b.reset();
  EXPECT_EQ((*c)->Adopt(2), 1u);
  c.reset();
  EXPECT_TRUE(a->IsOrphan(1) && a->IsOrphan(2));
  EXPECT_FALSE(a->IsReplaying(0));
  EXPECT_EQ(a->Adopt(0), 1u);
  a->Settle(1, true);
  EXPECT_EQ(a->Adopt(0), 2u);
  a->Settle(2, true);
  EXPECT_EQ(a->Adopt(0), kNoSeat);
  EXPECT_FALSE(a->OthersHaveSeats(0));
}

TEST_F(SeatsTest, WhatIsUnresolvedStays) {
  Table a(path_);
  auto b = std::make_unique<Table>(path_);
  a->Take();
  (*b)->Take();
  ASSERT_TRUE((*b)->TakeSegment(7, 1));
  (*b)->At(1).reserve = 2;
  b.reset();
  ASSERT_EQ(a->Adopt(0), 1u);
  a->Settle(1, false);
  Table looker(path_);
  EXPECT_EQ(looker->State(1), kSeatUnresolved);
  EXPECT_TRUE(looker->HasUnresolved());
  EXPECT_FALSE(looker->IsOrphan(1) || looker->HasOrphans(kNoSeat)) << "it was looked at";
  EXPECT_FALSE(looker->Lives(1));
  EXPECT_TRUE(a->OthersHaveSeats(0)) << "so nobody calls the pool clean";
  EXPECT_TRUE(a->Owns(7, 1)) << "what lies there is not on disk";
  EXPECT_EQ(a->Adopt(0), kNoSeat) << "the next time would be as bad";
  EXPECT_EQ(looker->Take(), 2u);
}

// Everything that a former use may have left, and nothing else.
// ---------------------------------------------------------------------------------------------
// Left seats, and the checkpointer.

// A process that was stopped meanwhile frees nothing that was left again.
TEST_F(SeatsTest, WhatWasLeftAgainIsNotFreed) {
  Table a(path_), b(path_);
  const auto leave = [&](Lsn next) {
    a->next_lsn().store(next);
    ASSERT_EQ(a->Take(), 0u);
    ASSERT_TRUE(a->TakeSegment(3, 0));
    a->Give(0, true);
    EXPECT_EQ(b->State(0), kSeatLeft);
  };
  leave(100);
  Seats::LeftSeats early, late;
  b->FindLeft(&early);
  EXPECT_TRUE(b->IsStillLeft(0, early));
  EXPECT_FALSE(b->IsStillLeft(1, early));
  b->FreeLeft(0);
  EXPECT_TRUE(b->IsFree(3));
  EXPECT_FALSE(b->IsStillLeft(0, early)) << "it is free";
  leave(200);
  EXPECT_FALSE(b->IsStillLeft(0, early)) << "it has other groups";
  b->FindLeft(&late);
  EXPECT_TRUE(b->IsStillLeft(0, late));
  ASSERT_EQ(a->Take(), 1u);
}

TEST_F(SeatsTest, OneIsLeftForSomeTime) {
  Table a(path_), b(path_);
  a->next_lsn().store(1);
  ASSERT_EQ(a->Take(), 0u);
  EXPECT_FALSE(b->IsLeftFor(0));
  a->Give(0, true);
  EXPECT_TRUE(b->IsLeftFor(0));
  EXPECT_FALSE(b->IsLeftFor(uint64_t{3600} * 1000000000));
  a->At(0).oldest_pending -= uint64_t{3600} * 1000000000;
  EXPECT_TRUE(b->IsLeftFor(uint64_t{3600} * 1000000000));
}

TEST_F(SeatsTest, OthersHaveADescriptor) {
  Seated a(path_, 0), b(path_, 1);
  EXPECT_FALSE(a->OthersHaveThrough(0));
  a->NoteThroughSince(0, 5);
  EXPECT_FALSE(a->OthersHaveThrough(0)) << "its own";
  EXPECT_TRUE(b->OthersHaveThrough(1));
  a->Give(0, true);
  EXPECT_FALSE(b->OthersHaveThrough(1)) << "it is left";
}

TEST_F(SeatsTest, AFileSystemThatNobodyUsesMakesRoomForAnother) {
  Seated a(path_, 0), b(path_, 1);
  EXPECT_TRUE(a->TakeThroughDevice(7) && b->TakeThroughDevice(7));
  EXPECT_FALSE(b->TakeThroughDevice(8));
  a->NoteThroughSince(0, Seats::kComing);
  b->ReleaseThroughDevice(1);
  EXPECT_FALSE(b->TakeThroughDevice(8)) << "somebody has it";
  EXPECT_TRUE(b->TakeThroughDevice(7));
  a->NoteThroughSince(0, 0);
  b->ReleaseThroughDevice(1);
  EXPECT_TRUE(a->TakeThroughDevice(8));
  EXPECT_FALSE(b->TakeThroughDevice(7));
}

// Of those that say that they come and then ask, and those that give it up, no two ever have two.
TEST_F(SeatsTest, NobodyHasTwoFileSystems) {
  constexpr int kRounds = 20000;
  Table table(path_, 3);
  for (uint32_t seat = 0; seat < 3; ++seat) ASSERT_EQ(table->Take(), seat);
  std::atomic<uint64_t> had[2] = {0, 0};
  const auto use = [&](uint32_t seat) {
    std::mt19937_64 random(seat + 1);
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t mine = 1 + random() % 2;
      table->NoteThroughSince(seat, Seats::kComing);
      if (table->TakeThroughDevice(mine)) {
        had[seat].store(mine);
        const uint64_t others = had[1 - seat].load();
        EXPECT_TRUE(others == 0 || others == mine);
        had[seat].store(0);
      }
      table->NoteThroughSince(seat, 0);
    }
  };
  std::atomic<bool> done{false};
  std::thread gives([&] {
    while (!done.load()) table->ReleaseThroughDevice(2);
  });
  std::thread first([&] { use(0); }), second([&] { use(1); });
  first.join();
  second.join();
  done.store(true);
  gives.join();
}

// Whoever is stopped with it holds up nobody for ever.
TEST_F(SeatsTest, TheStoreIsWaitedForForATime) {
  Table a(path_), b(path_);
  constexpr uint64_t kSecond = 1000000000;
  EXPECT_TRUE(a->LockThroughStore(0));
  EXPECT_FALSE(b->LockThroughStore(kSecond / 100));
  std::thread later([&] { a->UnlockThroughStore(); });
  EXPECT_TRUE(b->LockThroughStore(60 * kSecond));
  later.join();
  EXPECT_TRUE(a->TryLockThrough()) << "that is another lock";
  EXPECT_FALSE(b->TryLockThrough());
}

TEST_F(SeatsTest, TheCheckpointerSharesNoRoom) {
  Seated a(path_, 0), b(path_, 1);
  Table c(path_);
  EXPECT_EQ(a->checkpointer(), kNoSeat);
  EXPECT_TRUE(a->IsShared(0) && b->IsShared(1));
  b->SetCheckpointer(1);
  EXPECT_EQ(a->checkpointer(), 1u);
  EXPECT_FALSE(a->IsShared(0));
  EXPECT_TRUE(b->IsShared(1));
  EXPECT_TRUE(a->OthersHaveSeats(0)) << "so the pool is not clean";
  ASSERT_EQ(c->Take(), 2u);
  EXPECT_TRUE(a->IsShared(0));
  c->Give(2);
  // It has died, and another process has its seat.
  b->Give(1);
  b->Answer(kHasDescriptor);
  ASSERT_EQ(c->Take(), 1u);
  EXPECT_EQ(a->checkpointer(), kNoSeat);
  EXPECT_EQ(a->answer(), kNoAnswer);
  EXPECT_TRUE(a->IsShared(0));
}

TEST_F(SeatsTest, TheCheckpointerIsAsked) {
  constexpr uint64_t kForever = uint64_t{600} * 1000000000;
  Table a(path_), b(path_);
  a->AwaitCheckpointer(kForever);
  EXPECT_EQ(b->bell(), 0u) << "there is none";
  {
    Table post(path_);
    ASSERT_TRUE(HoldByte(post.fd(), kCheckpointerByte, false));
    EXPECT_FALSE(HoldByte(b.fd(), kCheckpointerByte, false)) << "there is one";
    EXPECT_TRUE(a->HasCheckpointer());
    std::thread answers([&] {
      while (b->bell() == 0) b->AwaitBell(0, kForever);
      b->Answer(kHasDescriptor);
    });
    a->AwaitCheckpointer(kForever);
    EXPECT_EQ(a->answer(), kHasDescriptor);
    answers.join();
    a->AwaitCheckpointer(kForever);
    EXPECT_EQ(b->bell(), 1u) << "it has answered";
    // One that is stopped is waited for once.
    b->Answer(kNoAnswer);
    a->AwaitCheckpointer(1);
    EXPECT_EQ(a->answer(), kHasNone);
    a->AwaitCheckpointer(kForever);
    EXPECT_EQ(b->bell(), 2u);
    a->Clear(1, 1);
    EXPECT_EQ(a->answer(), kNoAnswer);
  }
  EXPECT_FALSE(a->HasCheckpointer());
}

TEST_F(SeatsTest, WishesAreSeveral) {
  Table table(path_);
  EXPECT_FALSE(table->MustKeepOff() || table->MustHurry());
  {
    const int first = open(path_.c_str(), O_RDONLY), second = open(path_.c_str(), O_RDONLY);
    EXPECT_TRUE(HoldByte(first, kKeepOffByte, true));
    EXPECT_TRUE(HoldByte(second, kKeepOffByte, true));
    EXPECT_TRUE(table->MustKeepOff() && !table->MustHurry());
    close(first);
    EXPECT_TRUE(table->MustKeepOff());
    EXPECT_TRUE(HoldByte(second, kHurryByte, true));
    EXPECT_TRUE(table->MustHurry());
    close(second);
  }
  EXPECT_FALSE(table->MustKeepOff() || table->MustHurry());
}

TEST_F(SeatsTest, ClearedIsWhatIsShared) {
  Table table(path_);
  for (const uint32_t end : {0u, 1u, 3u, kSeats, kSeats + 1, kMaxSeats, ~0u}) {
    std::memset(table.base(), 0xa5, kSegmentsOffset);
    table.shared().seats_end = end;
    std::string before(reinterpret_cast<char*>(table.base()), kSegmentsOffset);
    table->Clear(12345, 678);
    EXPECT_EQ(table->next_lsn().load(), 12345u);
    EXPECT_EQ(table->through(), 678u);
    EXPECT_EQ(table->ThroughFailed(), 0);
    EXPECT_EQ(table->end(), 0u);
    EXPECT_EQ(table->checkpointer(), kNoSeat);
    EXPECT_EQ(table->answer(), kNoAnswer);
    EXPECT_FALSE(table->HasUnresolved());
    EXPECT_EQ(table->CountFree(), kSegments);
    for (uint32_t seat = 0; seat < std::min(end, kSeats); ++seat) {
      EXPECT_EQ(table->State(seat), kSeatFree) << end;
      EXPECT_EQ(table->LeaseOf(seat), 0u);
      EXPECT_EQ(table->At(seat).reserve, 0u);
    }
    const std::string after(reinterpret_cast<char*>(table.base()), kSegmentsOffset);
    const auto same = [&](uint64_t begin, uint64_t bound) {
      return before.compare(begin, bound - begin, after, begin, bound - begin) == 0;
    };
    EXPECT_TRUE(same(0, kSharedOffset)) << "checkpoints and state";
    EXPECT_TRUE(same(kSeatsOffset + kSeats * sizeof(Seat), kOwnersOffset)) << end;
    EXPECT_TRUE(same(kOwnersOffset + kSegments * sizeof(Owner), kThroughSinceOffset)) << end;
    EXPECT_TRUE(same(kThroughSinceOffset + kSeats * sizeof(Lsn), kConductOffset)) << end;
    EXPECT_TRUE(same(kConductOffset + kSeats * sizeof(Conduct), kSegmentsOffset)) << end;
    EXPECT_EQ(table->through_moved(), 0u);
    EXPECT_EQ(table->through_failed_at(), 0u);
    EXPECT_EQ(table->ConductOf(kSeats - 1).rule, kRuleUnknown);
  }
}

TEST_F(SeatsTest, WhoTakesASeatHasNoConductOfTheOneBefore) {
  Table table(path_);
  const uint32_t seat = table->Take();
  table->NoteRule(seat, kRuleNever);
  table->ConductOf(seat).through_since = 1;
  table->ConductOf(seat).through_written = 2;
  EXPECT_EQ(table->ConductOf(seat).rule, kRuleNever);
  EXPECT_EQ(table->ConductOf(seat + 1).rule, kRuleUnknown);
  table->Give(seat);
  EXPECT_EQ(table->Take(), seat);
  EXPECT_EQ(table->ConductOf(seat).rule, kRuleUnknown);
  EXPECT_EQ(table->ConductOf(seat).through_since, 0u);
  EXPECT_EQ(table->ConductOf(seat).through_written, 0u);
}

TEST_F(SeatsTest, TheFirstFailureOfWriteThroughIsTold) {
  Table table(path_);
  table->SetThrough(5);
  const uint64_t moved = table->through_moved();
  EXPECT_LT(sys::Now(CLOCK_REALTIME) - moved, 60000000000u);
  table->SetThroughFailed(EIO);
  const uint64_t first = table->through_failed_at();
  EXPECT_GE(first, moved);
  usleep(1000);
  table->SetThroughFailed(ENOSPC);
  EXPECT_EQ(table->ThroughFailed(), EIO);
  EXPECT_EQ(table->through_failed_at(), first);
}

// ---------------------------------------------------------------------------------------------
// Segments.

TEST_F(SeatsTest, ASegmentHasOneOwner) {
  Table a(path_), b(path_);
  EXPECT_TRUE(a->IsFree(3));
  EXPECT_TRUE(a->TakeSegment(3, 0));
  EXPECT_FALSE(b->TakeSegment(3, 1));
  EXPECT_FALSE(a->TakeSegment(3, 0)) << "nor twice";
  EXPECT_TRUE(b->Owns(3, 0));
  EXPECT_FALSE(b->Owns(3, 1) || b->IsFree(3) || b->Owns(4, 0));
  a->FreeSegment(3, 0);
  EXPECT_TRUE(b->TakeSegment(3, 1));
  for (const uint32_t segment : {0u, 5u, kSegments - 1}) EXPECT_TRUE(a->TakeSegment(segment, 0));
  EXPECT_EQ(b->CountFree(), kSegments - 4);
  a->FreeAllOf(0);
  EXPECT_EQ(b->CountFree(), kSegments - 1);
  EXPECT_TRUE(a->Owns(3, 1)) << "not those of others";
}

uint32_t CountPlainly(const Table& table, uint32_t segments) {
  uint32_t free = 0;
  for (uint32_t segment = 0; segment < segments; ++segment) {
    if (table.owner(segment) == 0) ++free;
  }
  return free;
}

// Each number that an owner may have, at each place of a word, beside free ones and others.
TEST_F(SeatsTest, EachOwnerCounts) {
  Table table(path_, kSeats, 4);
  for (const uint32_t others : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0xffffu}) {
    for (uint32_t place = 0; place < 4; ++place) {
      for (uint32_t i = 0; i < 4; ++i) table.owner(i) = static_cast<Owner>(others);
      for (uint32_t owner = 0; owner <= 0xffff; ++owner) {
        table.owner(place) = static_cast<Owner>(owner);
        const uint32_t expected = (owner == 0 ? 1u : 0u) + (others == 0 ? 3u : 0u);
        ASSERT_EQ(table->CountFree(), expected) << owner << " among " << others;
      }
    }
  }
}

TEST_F(SeatsTest, FreeOnesAreCountedAsOneByOne) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  constexpr Owner kOwners[] = {1, 2, 0x7fff, 0x8000, kMaxSeats, 0xffff};
  std::vector<uint32_t> sizes;
  for (uint32_t segments = 0; segments < 40; ++segments) sizes.push_back(segments);
  for (const uint32_t segments : {1021u, 1023u, uint32_t{kMaxSegments} - 1}) {
    sizes.push_back(segments);
  }
  for (const uint32_t segments : sizes) {
    Table table(path_, kSeats, segments);
    for (const unsigned in_eight : {0u, 1u, 4u, 7u, 8u}) {
      for (int round = 0; round < 10; ++round) {
        for (uint32_t i = 0; i < kMaxSegments; ++i) {  // what lies behind does not count
          table.owner(i) = random_() % 8 < in_eight ? kOwners[random_() % std::size(kOwners)] : 0;
          if (i > segments + 8) break;
        }
        const uint32_t free = CountPlainly(table, segments);
        ASSERT_EQ(table->CountFree(), free) << segments;
        for (const uint32_t enough : {0u, 1u, free / 2, free}) {
          ASSERT_GE(table->CountFree(enough), std::min(enough, free)) << segments;
          ASSERT_LE(table->CountFree(enough), free) << segments;
        }
        ASSERT_EQ(table->CountFree(free + 1), free) << segments;
        uint32_t found = 0;
        for (uint32_t i = 0; (i = table->NextFree(i)) < segments; ++i, ++found) {
          ASSERT_EQ(table.owner(i), 0) << i << " of " << segments;
        }
        ASSERT_EQ(found, free) << segments;
      }
    }
  }
}

// One for each lane of any seat, one for each other seat that has a lane, and one.
TEST_F(SeatsTest, TheReserveIsForAll) {
  Table a(path_), b(path_), c(path_);
  EXPECT_EQ(a->Reserve(kNoSeat), 1u);
  a->Take();
  b->Take();
  c->Take();
  for (const uint32_t own : {0u, 1u, 2u}) EXPECT_EQ(a->Reserve(own), 1u) << "nobody writes yet";
  a->At(0).reserve = 3;
  EXPECT_EQ(a->Reserve(0), 4u);
  EXPECT_EQ(b->Reserve(1), 5u);
  EXPECT_EQ(a->Reserve(kNoSeat), 5u);
  c->At(2).reserve = 2;
  EXPECT_EQ(a->Reserve(0), 7u);
  EXPECT_EQ(b->Reserve(1), 8u);
  EXPECT_EQ(c->Reserve(2), 7u);
  a->Give(0);
  EXPECT_EQ(b->Reserve(1), 4u) << "a free seat has no reserve, whatever it says";
  b->At(1).reserve = 1;
  EXPECT_EQ(b->Reserve(1), 5u);
  // Of one that died, and of one that is replayed, the reserve counts until they are free.
  auto dead = std::make_unique<Table>(path_);
  ASSERT_EQ((*dead)->Take(), 0u);
  (*dead)->At(0).reserve = 4;
  dead.reset();
  EXPECT_EQ(b->Reserve(1), 10u);
  ASSERT_EQ(b->Adopt(1), 0u);
  EXPECT_EQ(b->Reserve(1), 10u);
  b->Settle(0, true);
  EXPECT_EQ(b->Reserve(1), 5u);
  EXPECT_EQ(c->At(0).reserve, 0u);
}

// ---------------------------------------------------------------------------------------------
// Pools that several use.

// A process beside the test. Both go on from one meeting to the next.
class Process {
 public:
  explicit Process(const std::function<void(Process&)>& body) {
    int to[2] = {}, from[2] = {};
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    pid_ = fork();
    const bool is_test = pid_ != 0;
    in_ = is_test ? from[0] : to[0];
    out_ = is_test ? to[1] : from[1];
    close(is_test ? from[1] : to[1]);
    close(is_test ? to[0] : from[0]);
    if (is_test) return;
    body(*this);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  ~Process() {
    close(out_);  // it waits no longer
    if (!over_) {
      EXPECT_EQ(End(), 0);
    }
    close(in_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // In the process: it has come so far, and waits.
  void Meet() {
    Say();
    if (!Hear()) _exit(0);
  }
  // In the test. False: the process has ended.
  bool Await() { return Hear(); }
  void GoOn() { Say(); }
  int End() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    over_ = true;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  void Kill() {
    kill(pid_, SIGKILL);
    EXPECT_EQ(End(), -SIGKILL);
  }
  pid_t pid() const { return pid_; }

 private:
  void Say() const { EXPECT_EQ(write(out_, "x", 1), 1); }
  bool Hear() const {
    char byte = 0;
    return read(in_, &byte, 1) == 1;
  }

  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
  bool over_ = false;
};

class SharedPoolTest : public testing::Test {
 protected:
  SharedPoolTest() { MakePool(path_); }

  // One more user, with a seat.
  void Use(Pool& pool) { test::Use(pool, path_); }
  Problem FailToOpen(Mode mode) { return test::FailToOpen(path_, mode); }
  static Problem FailToJoin(Pool& pool) {
    Problem problem;
    EXPECT_FALSE(pool.Join(&problem));
    return problem;
  }
  // One line that names the pool, and says this.
  void ExpectSays(const Problem& problem, int error, const std::string& part) {
    const std::string text = problem.text.c_str();
    EXPECT_EQ(problem.error, error) << text;
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nand not: " << part;
    EXPECT_NE(text.find(": "), std::string::npos) << "it says what to do: " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }

  Folder folder_{Folder::kMemory};
  const std::string path_ = folder_ / "pool";
};

TEST_F(SharedPoolTest, AsManyAsThereAreSeats) {
  std::vector<std::unique_ptr<ScopedPool>> users;
  const uint32_t seats = GeometryOf(kMinPoolSize).seat_count;
  ASSERT_EQ(seats, 6u);
  for (uint32_t i = 0; i < seats; ++i) {
    users.push_back(std::make_unique<ScopedPool>());
    Use(*users.back());
    EXPECT_EQ(users.back()->seat(), i);
    EXPECT_EQ(users.back()->view().seat_count(), seats);
  }
  ScopedPool late;
  Problem problem;
  ASSERT_TRUE(OpenPool(late, path_, Mode::kShared));
  EXPECT_FALSE(late.alone());
  EXPECT_FALSE(late.Join(&problem));
  ExpectSays(problem, EUSERS, "as many processes as it has room for");
  EXPECT_EQ(late.seat(), kNoSeat);
  late.Close();
  users[2]->Leave();
  Use(late);
  EXPECT_EQ(late.seat(), 2u) << "a seat that was given up is free at once";
  late.Leave();
  users[2]->Close();
  Use(*users[2]);
  EXPECT_EQ(users[2]->seat(), 2u) << "and again";
}

// Waits draw LSNs that no log has, so the next ones may be below a position that a mirror has
// published before it died: a call would have taken that for the images of what it has just stored.
TEST_F(SharedPoolTest, APositionOfADeadMirrorCountsForNobody) {
  ScopedPool user;
  Use(user);
  const MirrorWords words(user.view());
  words.SetState(kMirrorMirrored);
  for (int i = 0; i < 1000; ++i) words.Draw();
  words.SetMirrored(words.next());
  ScopedPool another;
  Use(another);
  EXPECT_EQ(words.mirrored(), words.next()) << "the pool is in use";
  another.Leave();
  another.Close();
  user.Leave();
  user.Close();
  ScopedPool late;
  Use(late);
  const MirrorWords seen(late.view());
  EXPECT_LT(seen.mirrored(), seen.next());
  EXPECT_EQ(seen.state(), kMirrorMirrored) << "a call waits for the next mirror";
  late.Leave();
}

// Between Leave() and Close() of the last one. It found the pool in use by nobody, and would have
// left it so: what it acknowledged was lost.
TEST_F(SharedPoolTest, WhoeverComesAfterTheLastHasLeftIsAlone) {
  ScopedPool last, newcomer, looker;
  Use(last);
  last.seats().next_lsn().fetch_add(1000);
  const Lsn next = last.seats().next_lsn().load();
  ASSERT_TRUE(OpenPool(looker, path_, Mode::kInspect));
  EXPECT_TRUE(looker.dirty());
  EXPECT_TRUE(looker.seats().AnybodyLives());
  last.Leave();
  EXPECT_EQ(last.seat(), kNoSeat);
  EXPECT_FALSE(looker.dirty());
  EXPECT_FALSE(looker.seats().AnybodyLives());
  EXPECT_FALSE(looker.seats().Lives(0));

  ASSERT_TRUE(OpenPool(newcomer, path_, Mode::kShared));
  EXPECT_TRUE(newcomer.alone());
  EXPECT_FALSE(newcomer.dirty());
  test::Join(newcomer);
  EXPECT_EQ(newcomer.seat(), 0u);
  EXPECT_FALSE(newcomer.alone());
  EXPECT_TRUE(looker.dirty()) << "in use again";
  EXPECT_GE(newcomer.seats().next_lsn().load(), next) << "no LSN comes twice";
  last.Close();
  EXPECT_TRUE(looker.dirty());
  EXPECT_TRUE(looker.seats().Lives(0));
  newcomer.Leave();
  EXPECT_FALSE(looker.dirty());
}

// The same beside others: the seat is free at once.
TEST_F(SharedPoolTest, WhoeverComesAfterOneHasLeftIsNotAlone) {
  ScopedPool stays, leaves, newcomer;
  Use(leaves);
  Use(stays);
  leaves.Leave();
  EXPECT_FALSE(stays.seats().Lives(0));
  EXPECT_TRUE(stays.dirty());
  ASSERT_TRUE(OpenPool(newcomer, path_, Mode::kShared));
  EXPECT_FALSE(newcomer.alone());
  test::Join(newcomer);
  EXPECT_EQ(newcomer.seat(), 0u);
  leaves.Close();
  EXPECT_TRUE(stays.seats().Lives(0)) << "the byte is the newcomer's by now";
}

TEST_F(SharedPoolTest, OneThatClosesWithoutLeavingIsAnOrphan) {
  ScopedPool a, b, looker;
  Use(a);
  Use(b);
  ASSERT_TRUE(OpenPool(looker, path_, Mode::kInspect));
  EXPECT_FALSE(a.seats().HasOrphans(a.seat()) || b.seats().HasOrphans(b.seat()));
  EXPECT_FALSE(looker.seats().HasOrphans(kNoSeat));
  a.Close();
  EXPECT_TRUE(b.seats().HasOrphans(b.seat()));
  EXPECT_TRUE(b.seats().IsOrphan(0));
  EXPECT_TRUE(looker.seats().IsOrphan(0));
  EXPECT_FALSE(looker.seats().IsOrphan(1));
  // Another one takes the next seat, not this one.
  Use(a);
  EXPECT_EQ(a.seat(), 2u);
  a.Leave();
  EXPECT_EQ(b.Adopt(), 0u);
  b.Settle(0, true);
  EXPECT_FALSE(b.seats().HasOrphans(b.seat()));
  a.Close();
  Use(a);
  EXPECT_EQ(a.seat(), 0u);
}

TEST_F(SharedPoolTest, ExclusiveNamesAProcessThatHasASeat) {
  ScopedPool own;
  Use(own);
  Process other([&](Process& process) {
    ScopedPool pool;
    Use(pool);
    EXPECT_EQ(pool.seat(), 1u);
    process.Meet();
    pool.Leave();
  });
  ASSERT_TRUE(other.Await());
  ExpectSays(FailToOpen(Mode::kExclusive), EBUSY,
             "in use by process " + std::to_string(getpid()) + ":");
  own.Leave();  // it has marked the pool, and lives on
  for (const Mode mode : {Mode::kExclusive, Mode::kRecovery}) {
    ExpectSays(FailToOpen(mode), EBUSY, "in use by process " + std::to_string(other.pid()) + ":");
  }
  own.Close();
  ExpectSays(FailToOpen(Mode::kExclusive), EBUSY, std::to_string(other.pid()));
  other.GoOn();
  EXPECT_EQ(other.End(), 0);
  EXPECT_TRUE(OpenPool(own, path_));
}

uint64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}
constexpr uint64_t kGatePatienceNs = 100 * 1000 * 1000;

TEST_F(SharedPoolTest, SharedFailsWhileSomebodyHasItExclusive) {
  ScopedPool exclusive;
  for (const Mode mode : {Mode::kExclusive, Mode::kRecovery}) {
    ASSERT_TRUE(OpenPool(exclusive, path_, mode));
    const uint64_t begin = Now();
    ExpectSays(FailToOpen(Mode::kShared), EBUSY, "in use by");
    EXPECT_GE(Now() - begin, kGatePatienceNs) << "somebody may just have taken a seat";
    exclusive.MarkInUse();  // now it lives, as well
    ExpectSays(FailToOpen(Mode::kShared), EBUSY, std::to_string(getpid()));
    exclusive.MarkClean();
    exclusive.Close();
  }
  ScopedPool shared;
  Use(shared);
  EXPECT_TRUE(shared.seats().State(0) == kSeatTaken);
}

// The gate opens while somebody waits in front of it. On a busy machine one that waits may come too
// late now and then.
TEST_F(SharedPoolTest, SharedWaitsForTheGate) {
  ScopedPool first;
  Use(first);
  constexpr int kAttempts = 11;
  int came = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ScopedPool gate, waits;
    ASSERT_TRUE(OpenPool(gate, path_, Mode::kShared));  // until Join()
    std::atomic<bool> begun{false};
    std::thread waiter([&] {
      Problem problem;
      begun.store(true);
      if (waits.Open(path_.c_str(), Mode::kShared, true, nullptr, &problem)) ++came;
    });
    while (!begun.load()) std::this_thread::yield();
    usleep(10000);
    test::Join(gate);
    waiter.join();
    waits.Close();
    gate.Leave();
  }
  EXPECT_GT(came, kAttempts / 2);
}

// The gate is held by a process that is not done with it.
TEST_F(SharedPoolTest, WhoeverCannotGetTheGateLeavesAnOrphan) {
  ScopedPool leaves, comes;
  Use(leaves);
  ASSERT_TRUE(OpenPool(comes, path_, Mode::kShared));
  leaves.Leave();
  EXPECT_EQ(leaves.seat(), 0u);
  EXPECT_TRUE(comes.dirty());
  leaves.Close();
  EXPECT_TRUE(comes.seats().IsOrphan(0));
  EXPECT_EQ(comes.Adopt(), 0u) << "without a seat of its own";
  comes.Settle(0, true);
  // Nobody lives, and the pool is not clean: it is to be opened again, and recovered.
  ExpectSays(FailToJoin(comes), EBUSY, "in use");
  comes.Close();
  ASSERT_TRUE(OpenPool(comes, path_, Mode::kShared));
  EXPECT_TRUE(comes.alone() && comes.dirty());
}

// All others have died between Open() and Join().
TEST_F(SharedPoolTest, WhoeverIsLeftAloneMayNotJoin) {
  ScopedPool dies, comes;
  Use(dies);
  ASSERT_TRUE(OpenPool(comes, path_, Mode::kShared));
  EXPECT_FALSE(comes.alone());
  dies.Close();
  ExpectSays(FailToJoin(comes), EBUSY, "in use");
  EXPECT_TRUE(comes.dirty());
  EXPECT_EQ(comes.seat(), kNoSeat);
}

TEST_F(SharedPoolTest, AdoptOpensTheGateAndJoinLocksItAgain) {
  ScopedPool stays, comes, other;
  Use(stays);
  ASSERT_TRUE(OpenPool(comes, path_, Mode::kShared));
  EXPECT_EQ(comes.Adopt(), kNoSeat);
  Use(other);
  EXPECT_EQ(other.seat(), 1u);
  test::Join(comes);
  EXPECT_EQ(comes.seat(), 2u);
  // And the gate is open.
  other.Leave();
  EXPECT_EQ(other.seat(), kNoSeat);
}

// A child has its parent's open file, so also its locks. What it closes is its own.
TEST_F(SharedPoolTest, AChildThatClosesThePoolFreesNothing) {
  Process parent([&](Process& process) {
    ScopedPool pool;
    Use(pool);
    if (fork() == 0) {
      pool.Close();
      process.Meet();
      process.Meet();
      _exit(0);
    }
    for (;;) pause();
  });
  ASSERT_TRUE(parent.Await());
  OpenedPool looker(path_, Mode::kInspect);
  EXPECT_TRUE(looker.seats().Lives(0));
  EXPECT_FALSE(looker.seats().IsOrphan(0));
  EXPECT_EQ(looker.seats().State(0), kSeatTaken);
  ExpectSays(FailToOpen(Mode::kExclusive), EBUSY, std::to_string(parent.pid()));

  parent.Kill();
  EXPECT_FALSE(looker.seats().Lives(0)) << "the child has nothing left of the pool";
  EXPECT_TRUE(looker.seats().IsOrphan(0));
  OpenedPool next(path_, Mode::kShared);
  EXPECT_TRUE(next.alone() && next.dirty());
  parent.GoOn();
  EXPECT_TRUE(parent.Await()) << "the child lives";
}

// The program may close the descriptor behind the engine's back, and give its number away.
TEST_F(SharedPoolTest, AClosedDescriptorFreesNothing) {
  Process user([&](Process& process) {
    ScopedPool pool;
    Use(pool);
    close(pool.fd());
    process.Meet();
    for (;;) pause();
  });
  ASSERT_TRUE(user.Await());
  OpenedPool looker(path_, Mode::kInspect);
  EXPECT_TRUE(looker.seats().Lives(0));
  user.Kill();
  EXPECT_FALSE(looker.seats().Lives(0));
}

// Stopped is not dead.
TEST_F(SharedPoolTest, AStoppedProcessKeepsItsSeat) {
  Process user([&](Process& process) {
    ScopedPool pool;
    Use(pool);
    process.Meet();
    pool.Leave();
  });
  ASSERT_TRUE(user.Await());
  ASSERT_EQ(kill(user.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(user.pid(), &status, WUNTRACED), user.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  ScopedPool other;
  Use(other);
  EXPECT_EQ(other.seat(), 1u);
  EXPECT_FALSE(other.seats().HasOrphans(1));
  EXPECT_EQ(other.Adopt(), kNoSeat);
  ASSERT_EQ(kill(user.pid(), SIGCONT), 0);
  user.GoOn();
  EXPECT_EQ(user.End(), 0);
  EXPECT_EQ(other.seats().State(0), kSeatFree);
}

// Many processes that come, use it for a moment, and leave or die: no two of them have one seat,
// and none finds the pool clean while another one uses it.
TEST_F(SharedPoolTest, ManyComeAndGo) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  constexpr int kProcesses = 6, kRounds = 40;
  auto* users = static_cast<std::atomic<int>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(users), MAP_FAILED);
  const auto use = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int round = 0; round < kRounds;) {
      ScopedPool pool;
      Problem problem;
      bool joined = pool.Open(path_.c_str(), Mode::kShared, true, nullptr, &problem);
      if (joined && pool.alone() && pool.dirty()) {
        pool.StoreCheckpoint(std::max(pool.checkpoint(), pool.seats().next_lsn().load()));
        pool.MarkClean();
      }
      joined = joined && pool.Join(&problem);
      if (!joined) {
        // There are as many seats as processes, and one that has died holds its seat until another
        // process leaves.
        EXPECT_TRUE(problem.error == EBUSY || problem.error == EUSERS) << problem.text.c_str();
        continue;
      }
      EXPECT_EQ(users[pool.seat()].fetch_add(1), 0) << "a seat has one user";
      for (uint64_t i = random() % 20; i > 0; --i) {
        EXPECT_TRUE(pool.dirty());
        EXPECT_EQ(pool.seats().State(pool.seat()), kSeatTaken);
        pool.seats().next_lsn().fetch_add(1);
      }
      users[pool.seat()].fetch_sub(1);
      ++round;
      if (random() % 4 == 0) continue;  // dies
      while (pool.seat() != kNoSeat) {
        const uint32_t orphan = pool.Adopt();
        if (orphan != kNoSeat) pool.Settle(orphan, true);
        if (orphan == kNoSeat) pool.Leave();
      }
    }
  };
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < kProcesses; ++i) {
    const uint64_t seed = test::Seed() * 100 + static_cast<uint64_t>(i);
    processes.push_back(std::make_unique<Process>([&](Process&) { use(seed); }));
  }
  for (const auto& process : processes) EXPECT_EQ(process->End(), 0);
  munmap(users, 4096);
  OpenedPool pool(path_, Mode::kShared);
  EXPECT_TRUE(pool.alone());
}

}  // namespace
}  // namespace nvcache::pool
