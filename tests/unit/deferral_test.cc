// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/deferral.h"

#include <pthread.h>
#include <ucontext.h>

#include <vector>

#include "tests/unit/support.h"

namespace nvcache::sys {
namespace {

std::vector<int> order;  // of the signals that were handled
std::vector<int> code;   // and what the kernel said about them
int deferred = 0;

// A front end's, on top of a program's that takes notes.
void DeferOrNote(int signal, siginfo_t* info, void* context) {
  sigset_t& blocked = static_cast<ucontext_t*>(context)->uc_sigmask;
  uint64_t mask;
  std::memcpy(&mask, &blocked, sizeof(mask));
  if (DeferSignal(*info, &mask)) {
    std::memcpy(&blocked, &mask, sizeof(mask));
    ++deferred;
    return;
  }
  order.push_back(signal);
  code.push_back(info->si_code);
}

class DeferralTest : public testing::Test {
 protected:
  void SetUp() override {
    if (test::kThreadSanitizer) GTEST_SKIP() << "the sanitizer has its own time for signals";
    order.clear();
    code.clear();
    deferred = 0;
    order.reserve(100);
    code.reserve(100);
    for (int signal : kSignals) {
      struct sigaction action = {};
      action.sa_sigaction = DeferOrNote;
      action.sa_flags = SA_SIGINFO;
      sigaction(signal, &action, nullptr);
    }
    pthread_sigmask(SIG_SETMASK, nullptr, &before_);
  }
  void TearDown() override {
    if (IsSkipped()) return;
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (int signal = 1; signal < _NSIG; ++signal) {
      EXPECT_EQ(sigismember(&after, signal), sigismember(&before_, signal)) << signal;
    }
    for (int signal : kSignals) ::signal(signal, SIG_DFL);
    EXPECT_EQ(deferral.depth, 0u);
    EXPECT_EQ(deferral.waits, 0u);
  }
  const std::vector<int> kSignals = {SIGUSR1, SIGUSR2, SIGALRM, SIGSEGV, SIGFPE, SIGRTMIN + 1};
  sigset_t before_;
};

TEST_F(DeferralTest, OutsideNothingWaits) {
  ::raise(SIGUSR1);
  EXPECT_EQ(order, std::vector{SIGUSR1});
  EXPECT_EQ(deferred, 0);
}

TEST_F(DeferralTest, InsideAllWait) {
  {
    InEngine outer;
    {
      InEngine inner;
      EXPECT_FALSE(SignalWaits());
      ::raise(SIGUSR1);
      EXPECT_TRUE(SignalWaits());
      ::raise(SIGUSR2);
      ::raise(SIGUSR1);
    }
    EXPECT_TRUE(order.empty());
    EXPECT_EQ(deferred, 1) << "the others wait in the kernel";
  }
  // As when a program lets in two at once: the later one interrupts the other's first instruction.
  EXPECT_EQ(order, (std::vector{SIGUSR2, SIGUSR1}));
  EXPECT_FALSE(SignalWaits());
}

TEST_F(DeferralTest, QueuedOnesKeepNumberOrderAndValue) {
  {
    InEngine inside;
    for (int i = 0; i < 5; ++i) {
      pthread_sigqueue(pthread_self(), SIGRTMIN + 1, {.sival_int = i});
    }
  }
  EXPECT_EQ(order, std::vector<int>(5, SIGRTMIN + 1));
  EXPECT_EQ(code, std::vector<int>(5, SI_QUEUE));
}

// Those that an instruction may raise cannot be blocked, so they come in twice.
TEST_F(DeferralTest, AFaultThatWasSentWaitsAsWell) {
  {
    InEngine inside;
    ::raise(SIGSEGV);
    ::raise(SIGSEGV);
    EXPECT_TRUE(order.empty());
    ::raise(SIGUSR1);
    EXPECT_TRUE(order.empty());
  }
  EXPECT_EQ(order.size(), 2u);
  EXPECT_EQ(std::count(order.begin(), order.end(), SIGSEGV), 1);
  EXPECT_EQ(std::count(order.begin(), order.end(), SIGUSR1), 1);
}

TEST_F(DeferralTest, AMaskOfTheProgramStays) {
  sigset_t two;
  sigemptyset(&two);
  sigaddset(&two, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &two, nullptr);
  {
    InEngine inside;
    ::raise(SIGUSR2);
    EXPECT_FALSE(SignalWaits());
    ::raise(SIGUSR1);
  }
  EXPECT_EQ(order, std::vector{SIGUSR1});
  pthread_sigmask(SIG_UNBLOCK, &two, nullptr);
  EXPECT_EQ(order, (std::vector{SIGUSR1, SIGUSR2}));
}

TEST_F(DeferralTest, AChildDoesNotInheritThem) {
  EXPECT_EQ(test::InChild([] { return 0; }), 0);
  EnterEngine();
  ::raise(SIGUSR1);
  ::raise(SIGSEGV);
  const int status = test::InChild([] {
    LeaveEngine();
    return order.empty() && deferral.waits == 0 ? 0 : 1;
  });
  LeaveEngine();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(order.size(), 2u);
}

}  // namespace
}  // namespace nvcache::sys
