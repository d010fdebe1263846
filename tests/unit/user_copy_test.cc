// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/user_copy.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#include "tests/unit/support.h"

namespace nvcache::sys {
namespace {

constexpr size_t kPage = 4096;

// Where to go on from a fault that is not the program's; nullptr: there must not be one.
sigjmp_buf* own_fault = nullptr;

// What a front end does.
void EndCopy(int, siginfo_t* fault, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  const uintptr_t landing = UserFaultLanding(*fault, interrupted);
  if (landing == 0 && own_fault != nullptr) siglongjmp(*own_fault, 1);
  if (landing == 0) _exit(99);
  interrupted.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(landing);
}

// Whether the copy ended by a fault that is not the program's.
template <typename Function>
bool FaultsOnOurSide(Function copy) {
  sigjmp_buf back;
  own_fault = &back;
  volatile bool faulted = true;
  if (sigsetjmp(back, 1) == 0) {
    copy();
    faulted = false;
  }
  own_fault = nullptr;
  return faulted;
}

class UserCopyTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) InitializeUserCopy();  // never undone, so the plain instructions come first
    struct sigaction action = {};
    action.sa_sigaction = EndCopy;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &segv_);
    sigaction(SIGBUS, &action, &bus_);
    pages_ = static_cast<uint8_t*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < kPages * kPage; ++i) pages_[i] = Pattern(i);
  }
  void TearDown() override {
    ::munmap(pages_, kPages * kPage);
    sigaction(SIGSEGV, &segv_, nullptr);
    sigaction(SIGBUS, &bus_, nullptr);
  }
  static uint8_t Pattern(size_t i) { return static_cast<uint8_t>(i * 7 + i / 251); }
  void Forbid(size_t page, int protection = PROT_NONE) {
    ASSERT_EQ(::mprotect(pages_ + page * kPage, kPage, protection), 0);
  }

  static constexpr size_t kPages = 4;
  uint8_t* pages_ = nullptr;
  struct sigaction segv_ = {};
  struct sigaction bus_ = {};
};

std::vector<size_t> Lengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 300; ++n) lengths.push_back(n);
  for (size_t n : {511u, 512u, 513u, 1000u, 2048u, 4095u, 4096u}) lengths.push_back(n);
  return lengths;
}

TEST_P(UserCopyTest, CopiesEveryLengthAndNotAByteMore) {
  for (size_t n : Lengths()) {
    for (size_t skew : {0u, 1u, 13u}) {
      std::vector<uint8_t> to(n + 64, 0xEE);
      ASSERT_EQ(CopyFromUser(to.data() + 32, pages_ + skew, n), n);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= 32 && i < 32 + n;
        ASSERT_EQ(to[i], inside ? Pattern(skew + i - 32) : 0xEE) << n << " at " << i;
      }
      std::vector<uint8_t> other(n + 64, 0xEE);
      ASSERT_EQ(CopyToUser(other.data() + 32, pages_ + skew, n), n);
      ASSERT_EQ(other, to) << n;
    }
  }
}

TEST_P(UserCopyTest, SourceEndsAtEveryByte) {
  Forbid(2);
  for (size_t n : Lengths()) {
    for (size_t there = n < 40 ? 0 : n - 40; there < n; ++there) {
      const uint8_t* from = pages_ + 2 * kPage - there;
      std::vector<uint8_t> to(n + 64, 0xEE);
      ASSERT_EQ(CopyFromUser(to.data() + 32, from, n), there) << n;
      for (size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= 32 && i < 32 + there;
        ASSERT_EQ(to[i], inside ? Pattern(2 * kPage - there + i - 32) : 0xEE) << n << " " << there;
      }
    }
    ASSERT_EQ(CopyFromUser(pages_, pages_ + 2 * kPage, n), 0u);
  }
}

TEST_P(UserCopyTest, DestinationEndsAtEveryByte) {
  Forbid(2, PROT_READ);
  std::vector<uint8_t> from(kPage, 0x55);
  for (size_t n : Lengths()) {
    for (size_t there : {size_t{0}, n / 3, n / 2, n > 0 ? n - 1 : 0}) {
      if (there >= n) continue;
      uint8_t* to = pages_ + 2 * kPage - there;
      std::fill(pages_ + kPage, pages_ + 2 * kPage, uint8_t{0});
      ASSERT_EQ(CopyToUser(to, from.data(), n), there) << n;
      ASSERT_EQ(std::count(pages_ + kPage, pages_ + 2 * kPage, 0x55),
                static_cast<long>(std::min(there, kPage)));
      ASSERT_EQ(pages_[2 * kPage], Pattern(2 * kPage));
    }
  }
}

TEST_P(UserCopyTest, AddressesThatCannotBe) {
  uint8_t bytes[256] = {};
  for (uintptr_t address : {uintptr_t{0}, uintptr_t{8}, uintptr_t{0x1234567800000000},
                            uintptr_t{0xffff888000000000}, ~uintptr_t{0} - 100}) {
    auto* bad = reinterpret_cast<uint8_t*>(address);
    for (size_t n : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 100u, 128u, 129u, 256u}) {
      EXPECT_EQ(CopyFromUser(bytes, bad, n), 0u);
      EXPECT_EQ(CopyToUser(bad, bytes, n), 0u);
      EXPECT_EQ(ReadableUser(bad, n), 0u);
    }
    EXPECT_EQ(CopyFromUser(bytes, bad, 0), 0u);
  }
}

TEST_P(UserCopyTest, ReadableEndsAtAPage) {
  EXPECT_EQ(ReadableUser(pages_ + 5, 3 * kPage), 3 * kPage);
  Forbid(2);
  EXPECT_EQ(ReadableUser(pages_ + 5, 3 * kPage), 2 * kPage - 5);
  EXPECT_EQ(ReadableUser(pages_ + 2 * kPage - 1, 1), 1u);
  EXPECT_EQ(ReadableUser(pages_ + 2 * kPage - 1, 2), 1u);
  EXPECT_EQ(ReadableUser(pages_ + 2 * kPage, 1), 0u);
  EXPECT_EQ(ReadableUser(nullptr, 0), 0u);
}

TEST_P(UserCopyTest, AMappingBeyondTheEndOfItsFile) {
  test::Folder folder;
  const int fd = ::open((folder / "a").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::ftruncate(fd, 100), 0);
  auto* map =
      static_cast<uint8_t*>(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(map, MAP_FAILED);
  std::vector<uint8_t> bytes(2 * kPage);
  EXPECT_EQ(CopyFromUser(bytes.data(), map, 2 * kPage), kPage);
  EXPECT_EQ(CopyToUser(map + 10, bytes.data(), kPage), kPage - 10);
  EXPECT_EQ(ReadableUser(map + 10, kPage), kPage - 10);
  ::munmap(map, 2 * kPage);
  ::close(fd);
}

// A buffer of ours that is not there (the stack has overflowed) is no bad pointer of the program's:
// told that it was one, the engine would try the program's good one again, for ever.
TEST_P(UserCopyTest, AFaultOnOurSideIsNotThePrograms) {
  Forbid(2);
  uint8_t* const bad = pages_ + 2 * kPage;
  std::vector<uint8_t> good(kPage, 0x55);
  for (size_t n : Lengths()) {
    if (n == 0) continue;
    for (size_t there : {size_t{0}, n / 2, n - 1}) {
      ASSERT_TRUE(FaultsOnOurSide([&] { CopyFromUser(bad - there, good.data(), n); })) << n;
      ASSERT_TRUE(FaultsOnOurSide([&] { CopyToUser(good.data(), bad - there, n); })) << n;
      ASSERT_FALSE(FaultsOnOurSide([&] { CopyFromUser(good.data(), bad - there, n); })) << n;
      ASSERT_FALSE(FaultsOnOurSide([&] { CopyToUser(bad - there, good.data(), n); })) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plain, UserCopyTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(ThisProcessor, UserCopyTest, testing::Values(true));

TEST(UserFault, NothingElseIsRecovered) {
  const siginfo_t fault = {};
  for (const uintptr_t pc : {uintptr_t{0}, reinterpret_cast<uintptr_t>(&CopyToUser) - 1,
                             reinterpret_cast<uintptr_t>(&UserFaultLanding)}) {
    ucontext_t context = {};
    context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(pc);
    EXPECT_EQ(UserFaultLanding(fault, context), 0u);
  }
}

}  // namespace
}  // namespace nvcache::sys
