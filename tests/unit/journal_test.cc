// SPDX-License-Identifier: BSD-3-Clause
//
// Batches and the ring of a journal, in an ordinary file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "src/journal/batch.h"
#include "src/journal/file.h"
#include "src/journal/ring.h"
#include "tests/unit/traced.h"

namespace nvcache::journal {
namespace {

constexpr uint64_t kPool = 1u << 20;

class RingTest : public testing::Test {
 protected:
  RingTest() : fd_(memfd_create("journal", MFD_CLOEXEC)), buffer_(kMaxBatch) {
    for (uint8_t& byte : header_.uuid) byte = static_cast<uint8_t>(random_());
    header_.pool_size = kPool;
    header_.half_size = HalfBytes(kPool);
    header_.first = 1;
    header_.life = 1;
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(FileBytes(kPool))), 0);
    next_ = BeginHalf(0, header_.half_size, 1, 0);
  }
  ~RingTest() override { close(fd_); }

  // A batch with `lines` lines from `line` on, each full of `byte`. Where it lies.
  uint64_t Write(uint64_t line, uint64_t lines, uint8_t byte, uint32_t flags = kEndsRound) {
    std::memset(pool_.data() + line * kLine, byte, lines * kLine);
    BatchMaker batch(buffer_.get(), pieces_.data());
    batch.Begin();
    batch.Add(pool_.data(), line, lines);
    BatchHeader header = {};
    header.sequence = next_.sequence++;
    header.bound = header.sequence * 100;
    header.flags = flags;
    header.previous = next_.previous;
    header.life = header_.life;
    const uint64_t size = batch.size(), place = next_.place;
    batch.End(SeedOf(header_.uuid), &header);
    EXPECT_EQ(journal::Write(fd_, buffer_.get(), size, place), 0);
    next_.place += size;
    next_.previous = header.body_crc;
    return place;
  }
  void SwitchHalf() {
    next_ = BeginHalf(1 - next_.half, header_.half_size, next_.sequence, next_.previous);
  }
  // A life ends a round, and begins the other half with another one, which it does not end. The
  // next life begins.
  void BeginOtherHalfInVain() {
    Write(0, 10, 1, kEndsRound | kIsWhole);
    const std::vector<uint8_t> before = pool_;
    const Position then = next_;
    SwitchHalf();
    Write(0, 100, 2, 0);
    Write(0, 100, 3, 0);
    next_ = then;
    pool_ = before;
    header_.life = 2;
    header_.first = then.sequence;
  }
  void Damage(uint64_t place, uint8_t with = 0x5a) {
    uint8_t byte = 0;
    ASSERT_EQ(pread(fd_, &byte, 1, static_cast<off_t>(place)), 1);
    byte ^= with;
    ASSERT_EQ(pwrite(fd_, &byte, 1, static_cast<off_t>(place)), 1);
  }
  Ring::Result Read() {
    read_.assign(kPool, 0);
    Ring ring(fd_, header_, buffer_.get());
    const Ring::Result result = ring.Read(read_.data(), &found_, &bound_);
    damaged_at_ = ring.damaged_at();
    return result;
  }

  std::mt19937 random_{1};
  Header header_ = {};
  int fd_;
  Buffer buffer_;
  std::vector<Piece> pieces_ = std::vector<Piece>(BatchMaker::kMaxPieces);
  std::vector<uint8_t> pool_ = std::vector<uint8_t>(kPool);
  std::vector<uint8_t> read_;
  Position next_ = {};
  Position found_ = {};
  uint64_t bound_ = 0;
  uint64_t damaged_at_ = 0;
};

TEST_F(RingTest, ANewOneHoldsNothing) { EXPECT_EQ(Read(), Ring::Result::kNothing); }

TEST_F(RingTest, ReadsAllInOrder) {
  Write(0, 10, 1);
  Write(5, 100, 2);
  Write(16000, 3, 3);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
  EXPECT_EQ(bound_, 300u);
  EXPECT_EQ(found_.sequence, next_.sequence);
  EXPECT_EQ(found_.place, next_.place);
  EXPECT_EQ(found_.previous, next_.previous);
}

TEST_F(RingTest, ARoundCountsWhenItIsWhole) {
  Write(0, 10, 1);
  const std::vector<uint8_t> before = pool_;
  const uint64_t place = next_.place;
  Write(0, 10, 2, 0);
  Write(20, 10, 3, 0);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, before);
  EXPECT_EQ(found_.place, place);
  Write(40, 1, 4);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
}

// Any sectors of the last write, in any order.
TEST_F(RingTest, ATornTailIsNothing) {
  Write(0, 10, 1);
  const std::vector<uint8_t> before = pool_;
  const uint64_t place = Write(0, 200, 2);
  std::vector<uint8_t> bytes(next_.place - place);
  ASSERT_EQ(pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(place)),
            static_cast<ssize_t>(bytes.size()));
  constexpr uint64_t kSector = 512;
  const uint64_t used = BatchBytes(200, 1);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> torn = bytes;
    bool changed = false;
    for (uint64_t at = 0; at < used; at += kSector) {
      if (random_() % 4 != 0) continue;
      std::memset(torn.data() + at, round % 2 == 0 ? 0 : 0xee, kSector);
      changed = true;
    }
    ASSERT_EQ(pwrite(fd_, torn.data(), torn.size(), static_cast<off_t>(place)),
              static_cast<ssize_t>(torn.size()));
    ASSERT_EQ(Read(), Ring::Result::kRead);
    EXPECT_EQ(read_, changed ? before : pool_) << "round " << round;
  }
}

TEST_F(RingTest, ABrokenOneBeforeAWholeOneIsDamage) {
  Write(0, 10, 1);
  const uint64_t second = Write(0, 100, 2);
  Write(0, 10, 3);
  for (const uint64_t at : {uint64_t{0}, uint64_t{16}, uint64_t{64}, uint64_t{5000}}) {
    Damage(second + at);
    EXPECT_EQ(Read(), Ring::Result::kDamaged) << at;
    Damage(second + at);
    EXPECT_EQ(Read(), Ring::Result::kRead) << at;
  }
  Damage(kRingOffset);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
}

// What an earlier life had begun and not ended lies behind what the next one has written.
TEST_F(RingTest, AnEarlierLifeIsNoWitness) {
  Write(0, 10, 1);
  const Position then = next_;
  Write(0, 100, 2, 0);
  Write(0, 100, 3, 0);
  Write(0, 100, 4, 0);
  next_ = then;
  header_.life = 2;
  header_.first = then.sequence;
  std::vector<uint8_t> before(kPool);
  std::memset(before.data(), 1, 10 * kLine);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, before);
  pool_ = before;
  Write(30, 1, 5);  // shorter than the one that it lies on
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
  // And a torn one of this life.
  const std::vector<uint8_t> whole = pool_;
  Damage(Write(30, 1, 6) + 100);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, whole);
}

// It had begun the other half with it, by as many batches as the next one writes behind the last
// round.
TEST_F(RingTest, AnEarlierLifeHadBegunTheOtherHalf) {
  BeginOtherHalfInVain();
  const std::vector<uint8_t> before = pool_;
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, before);
  EXPECT_EQ(found_.half, 0u);
  for (uint8_t byte = 5; byte < 9; ++byte) {
    Write(30 + byte, 1, byte, kEndsRound | kIsWhole);
    ASSERT_EQ(Read(), Ring::Result::kRead) << "damage at " << byte;
    EXPECT_EQ(read_, pool_);
    EXPECT_EQ(found_.half, 0u);
  }
  // Nor does the life after that take it for the newer half.
  header_.life = 3;
  header_.first = next_.sequence;
  for (uint8_t byte = 9; byte < 12; ++byte) {
    ASSERT_EQ(Read(), Ring::Result::kRead) << "damage at " << byte;
    EXPECT_EQ(read_, pool_);
    EXPECT_EQ(found_.half, 0u);
    Write(30 + byte, 1, byte, kEndsRound | kIsWhole);
  }
}

// More batches there, so with higher numbers, than the next life has written when the third begins.
TEST_F(RingTest, AnEarlierLifeHadWrittenMore) {
  BeginOtherHalfInVain();
  Write(30, 1, 5, kEndsRound | kIsWhole);
  header_.life = 3;
  header_.first = next_.sequence;
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
  EXPECT_EQ(found_.half, 0u);
}

// A leader dies when its write is done, before it says so; the next one begins the other half with
// that number.
TEST_F(RingTest, ABatchThatWasWrittenAgainInTheOtherHalf) {
  Write(0, 10, 1, kEndsRound | kIsWhole);
  const std::vector<uint8_t> before = pool_;
  const Position then = next_;
  Write(0, 100, 2, kIsWhole);
  next_ = then;
  SwitchHalf();
  Write(0, 100, 3, 0);
  ASSERT_EQ(Read(), Ring::Result::kRead) << "damage at " << damaged_at_;
  EXPECT_EQ(read_, before);
  EXPECT_EQ(found_.sequence, then.sequence);
  EXPECT_EQ(found_.place, then.place);
  Write(200, 10, 4);
  ASSERT_EQ(Read(), Ring::Result::kRead) << "damage at " << damaged_at_;
  EXPECT_EQ(read_, pool_);
  EXPECT_EQ(found_.half, 1u);
}

// Both end a round: the later one was acknowledged.
TEST_F(RingTest, ARoundThatWasWrittenAgainInTheOtherHalf) {
  Write(0, 10, 1, kEndsRound | kIsWhole);
  const Position then = next_;
  Write(0, 100, 2, kEndsRound | kIsWhole);
  next_ = then;
  SwitchHalf();
  Write(0, 101, 3);
  ASSERT_EQ(Read(), Ring::Result::kRead) << "damage at " << damaged_at_;
  EXPECT_EQ(read_, pool_);
  EXPECT_EQ(found_.half, 1u);
}

// All that was there when a memory was made has to be there still.
TEST_F(RingTest, WhatALifeBeganWithIsNotTorn) {
  Write(0, 10, 1);
  const uint64_t last = Write(0, 10, 2);
  header_.life = 2;
  header_.first = next_.sequence;
  EXPECT_EQ(Read(), Ring::Result::kRead);
  Damage(last + 80);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
}

TEST_F(RingTest, GoesOnInTheOtherHalf) {
  Write(0, 10, 1, kEndsRound | kIsWhole);
  Write(20, 10, 2, kEndsRound | kIsWhole);
  SwitchHalf();
  const uint64_t first = Write(40, 10, 3);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
  EXPECT_EQ(found_.half, 1u);
  // A half that has all needs no other one; one that has not does.
  Damage(kRingOffset + 100);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
  Write(0, 40, 4, kEndsRound | kIsWhole);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
  // The next lap.
  SwitchHalf();
  Write(100, 10, 5);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
  EXPECT_EQ(found_.half, 0u);
  Damage(first + 70);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
}

// The other half counts if its last batch is the one before, by number and by checksum.
TEST_F(RingTest, TheOtherHalfEndsWithTheOneBefore) {
  Write(0, 10, 1, kEndsRound | kIsWhole);
  const Position second = next_;
  Write(20, 10, 2, kEndsRound | kIsWhole);
  SwitchHalf();
  const Position third = next_;
  Write(40, 10, 3);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  const std::vector<uint8_t> whole = pool_;
  Damage(second.place + 64);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
  // Another one of that number, which the third was not written behind.
  next_ = second;
  Write(20, 10, 7, kEndsRound | kIsWhole);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
  next_ = second;
  pool_ = whole;
  Write(20, 10, 2, kEndsRound | kIsWhole);
  EXPECT_EQ(Read(), Ring::Result::kRead);
  // A half that has all goes without; and then that has to go unread.
  Damage(second.place + 64);
  next_ = third;
  Write(40, 10, 3);
  Write(0, 10, 4, kEndsRound | kIsWhole);
  std::memset(pool_.data() + 20 * kLine, 0, 10 * kLine);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
}

// The first batch of a half that is torn: the other half goes on.
TEST_F(RingTest, ATornBeginningOfAHalf) {
  Write(0, 10, 1, kEndsRound | kIsWhole);
  const std::vector<uint8_t> before = pool_;
  SwitchHalf();
  Damage(Write(40, 10, 3) + 64);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, before);
  EXPECT_EQ(found_.half, 0u);
  Write(40, 10, 4);
  EXPECT_EQ(Read(), Ring::Result::kDamaged);
}

// A leader dies within a round, and the next one begins the other half.
TEST_F(RingTest, ARoundMayEndInTheOtherHalf) {
  Write(0, 10, 1, kEndsRound | kIsWhole);
  Write(20, 10, 2, kIsWhole);
  SwitchHalf();
  Write(40, 10, 3);
  ASSERT_EQ(Read(), Ring::Result::kRead);
  EXPECT_EQ(read_, pool_);
}

TEST_F(RingTest, AnotherJournalsBatchesAreNothing) {
  Write(0, 10, 1);
  ++header_.uuid[3];
  EXPECT_EQ(Read(), Ring::Result::kNothing);
}

TEST(BatchTest, PiecesAreRunsOfLines) {
  std::vector<uint8_t> pool(kPool), bytes(kMaxBatch), other(kPool);
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<uint8_t>(i * 31 >> 3);
  std::vector<Piece> pieces(BatchMaker::kMaxPieces);
  BatchMaker batch(bytes.data(), pieces.data());
  batch.Begin();
  batch.Add(pool.data(), 3, 2);
  batch.Add(pool.data(), 5, 1);
  batch.Add(pool.data(), 9, 1);
  BatchHeader header = {};
  header.sequence = 1;
  EXPECT_EQ(batch.size(), kBlock);
  batch.End(7, &header);
  EXPECT_EQ(header.lines, 4u);
  EXPECT_EQ(header.pieces, 2u);
  EXPECT_TRUE(IsHeader(header, 7));
  EXPECT_FALSE(IsHeader(header, 8));
  EXPECT_TRUE(IsWhole(bytes.data(), kPool));
  EXPECT_FALSE(IsWhole(bytes.data(), 9 * kLine));  // the last line lies behind such a pool
  Apply(bytes.data(), other.data());
  for (uint64_t line = 0; line < 12; ++line) {
    const bool has = (line >= 3 && line <= 5) || line == 9;
    EXPECT_EQ(std::memcmp(other.data() + line * kLine, pool.data() + line * kLine, kLine) == 0, has)
        << line;
  }
}

// Somebody begins a line anew, its first word last, after any instruction of who copies it: a copy
// with that word has the rest.
TEST(BatchTest, ALineIsOfOneMoment) {
  constexpr uint64_t kWords = kLine / sizeof(uint64_t);
  constexpr size_t kBytes = kBlock + kMaxBatch;
  void* const shared =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const line = static_cast<uint64_t*>(shared);
  auto* const bytes = static_cast<uint8_t*>(shared) + kBlock;
  Piece pieces[1];
  BatchMaker batch(bytes, pieces);
  // A sanitizer's are many, and each child takes all steps from the first one on.
  constexpr int kStride = test::kAddressSanitizer || test::kThreadSanitizer ? 101 : 5;
  bool acted = true, parted = false;
  for (int instructions = 0; acted && !testing::Test::HasFailure(); instructions += kStride) {
    SCOPED_TRACE(instructions);
    std::fill(line, line + kWords, 1);
    acted = false;
    const int status = test::WithActAfter(
        instructions,
        [&](pid_t) {
          line[0] = 0;
          std::fill(line + 1, line + kWords, 2);
          line[0] = 2;
          acted = true;
        },
        [&] { batch.Begin(); },
        [&] {
          batch.Add(static_cast<uint8_t*>(shared), 0, 1);
          return 0;
        });
    if (status == test::kSkip) GTEST_SKIP() << "no child can be traced here";
    ASSERT_EQ(status, 0);
    uint64_t copy[kWords];
    std::memcpy(copy, bytes + sizeof(BatchHeader), sizeof(copy));
    EXPECT_EQ(std::count(copy, copy + kWords, copy[0]), static_cast<int>(kWords));
    parted |= acted && copy[0] == 2;
  }
  EXPECT_TRUE(parted);
  munmap(shared, kBytes);
}

TEST(BatchTest, NeverLongerThanItMayBe) {
  std::vector<uint8_t> pool(4u << 20), bytes(kMaxBatch);
  std::vector<Piece> pieces(BatchMaker::kMaxPieces);
  BatchMaker batch(bytes.data(), pieces.data());
  batch.Begin();
  uint64_t line = 0;
  for (; batch.HasRoom(1); line += 2) batch.Add(pool.data(), line, 1);
  EXPECT_LE(batch.size(), kMaxBatch);
  EXPECT_GT(batch.size() + kBlock, kMaxBatch);
  EXPECT_LE(line / 2, BatchMaker::kMaxPieces);
}

}  // namespace
}  // namespace nvcache::journal
