// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/user_stream.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstring>
#include <vector>

#include "src/pmem/persist.h"
#include "src/sys/cpu.h"
#include "src/sys/crc32c.h"
#include "src/sys/user_copy.h"
#include "tests/unit/support.h"

namespace nvcache::sys {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kUntouched = 0xa5;

void EndCopy(int, siginfo_t* fault, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  const uintptr_t landing = UserFaultLanding(*fault, interrupted);
  if (landing == 0) _exit(99);
  interrupted.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(landing);
}

constexpr CpuFeature kFeatures[] = {kCrc32, kAvx, kAvx512Crc, kClflushopt, kClwb, kAvxCrc};

// The fused copies, of which the processor says which there are; what stands for them elsewhere,
// where this is none. One of them is pmem::Copy.
constexpr CpuFeature kByParts = {};

class UserStreamTest : public testing::TestWithParam<CpuFeature> {
 protected:
  void SetUp() override {
    for (const CpuFeature feature : kFeatures) {
      if (CpuHas(feature)) has_ |= feature;
    }
    if (GetParam() != kByParts) {
      InitializeUserCopy();
      if (!CpuHas(GetParam())) GTEST_SKIP() << "this processor has not the instructions";
      KnowCpu((has_ & ~uint32_t{kAvxCrc | kAvx512Crc}) | GetParam());
      ASSERT_TRUE(CanStreamUser());
    }
    pmem::Initialize();
    struct sigaction action = {};
    action.sa_sigaction = EndCopy;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &old_);
    source_ = static_cast<uint8_t*>(
        ::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < 3 * kPage; ++i) source_[i] = static_cast<uint8_t>(i * 7 + i / 251 + 1);
  }
  void TearDown() override {
    KnowCpu(has_);
    if (source_ == nullptr) return;
    ::munmap(source_, 3 * kPage);
    sigaction(SIGSEGV, &old_, nullptr);
  }

  bool Copy(const uint8_t* from, size_t n, uint8_t* copy, uint32_t* crc) {
    std::memset(lines_, kUntouched, sizeof(lines_));
    return GetParam() != kByParts ? StreamUser(lines_, from, n, copy, crc)
                                  : pmem::CopyByParts(lines_, from, n, copy, crc);
  }
  // What Copy has left of `n` bytes `from` there.
  void ExpectLines(const uint8_t* from, size_t n) {
    const size_t end = (n + kStreamLine - 1) / kStreamLine * kStreamLine;
    ASSERT_EQ(std::memcmp(lines_, from, n), 0) << n;
    for (size_t i = n; i < end; ++i) ASSERT_EQ(lines_[i], 0) << n;
    for (size_t i = end; i < sizeof(lines_); ++i) ASSERT_EQ(lines_[i], kUntouched) << n;
  }

  uint32_t has_ = 0;
  uint8_t* source_ = nullptr;
  alignas(64) uint8_t lines_[kPage + 128];
  struct sigaction old_ = {};
};

TEST_P(UserStreamTest, EveryLengthIsCopiedTwiceAndSummed) {
  std::vector<uint8_t> copy(kPage + 64);
  for (size_t n = 1; n <= kPage; ++n) {
    const uint8_t* from = source_ + n % 67;
    std::fill(copy.begin(), copy.end(), kUntouched);
    const auto seed = static_cast<uint32_t>(n * 2654435761u);
    uint32_t crc = seed;
    ASSERT_TRUE(Copy(from, n, copy.data() + 3, &crc));
    ASSERT_EQ(crc, Crc32cPortable(from, n, seed)) << n;
    ExpectLines(from, n);
    ASSERT_EQ(std::memcmp(copy.data() + 3, from, n), 0) << n;
    ASSERT_EQ(copy[2], kUntouched);
    ASSERT_EQ(copy[3 + n], kUntouched) << n;
    crc = seed;
    ASSERT_TRUE(Copy(from, n, nullptr, &crc));
    ASSERT_EQ(crc, Crc32cPortable(from, n, seed)) << n;
    ExpectLines(from, n);
  }
}

// As a payload that goes on at the log's beginning.
TEST_P(UserStreamTest, TwoPiecesHaveOneSum) {
  for (size_t cut = 64; cut < kPage; cut += 64) {
    uint32_t crc = 0;
    ASSERT_TRUE(Copy(source_, cut, nullptr, &crc));
    ASSERT_TRUE(Copy(source_ + cut, kPage - 1 - cut, nullptr, &crc));
    ASSERT_EQ(crc, Crc32cPortable(source_, kPage - 1, 0)) << cut;
  }
}

// Wherever the buffer ends, and at whatever instruction that is met, the copy says so, and no
// sooner.
TEST_P(UserStreamTest, AFaultAtAnyByteEndsIt) {
  ASSERT_EQ(::mprotect(source_ + 2 * kPage, kPage, PROT_NONE), 0);
  std::vector<uint8_t> copy(kPage);
  for (size_t readable = 0; readable < kPage; ++readable) {
    const uint8_t* from = source_ + 2 * kPage - readable;
    for (const size_t n : {readable + 1, readable + 64, readable + 300}) {
      uint32_t crc = 0;
      if (n > kPage) continue;
      ASSERT_FALSE(Copy(from, n, copy.data(), &crc)) << readable << " of " << n;
    }
    uint32_t crc = 0;
    if (readable == 0) continue;
    ASSERT_TRUE(Copy(from, readable, nullptr, &crc)) << readable;
    ASSERT_EQ(crc, Crc32cPortable(from, readable, 0));
  }
  ASSERT_EQ(::mprotect(source_, kPage, PROT_NONE), 0);  // and where it begins
  uint32_t crc = 0;
  for (const size_t n : {1u, 63u, 64u, 65u, 255u, 256u, 1000u, 4000u}) {
    EXPECT_FALSE(Copy(source_ + kPage - 1, n, copy.data(), &crc)) << n;
    EXPECT_TRUE(Copy(source_ + kPage, n, copy.data(), &crc)) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(, UserStreamTest, testing::Values(kByParts, kAvxCrc, kAvx512Crc),
                         [](const auto& test) {
                           if (test.param == kByParts) return "ByParts";
                           return test.param == kAvxCrc ? "Avx" : "Avx512";
                         });

}  // namespace
}  // namespace nvcache::sys
