// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/deferral.h"

#include <time.h>

#include "src/sys/filter.h"
#include "src/sys/kernel.h"

namespace nvcache::sys {

[[gnu::tls_model("initial-exec")]] constinit thread_local Deferral deferral = {};

namespace {

constexpr uint64_t Bit(int signal) { return uint64_t{1} << (signal - 1); }

// The kernel kills the process if an instruction raises one of these while it is blocked.
constexpr uint64_t kRaised =
    Bit(SIGSEGV) | Bit(SIGBUS) | Bit(SIGFPE) | Bit(SIGILL) | Bit(SIGTRAP) | Bit(SIGSYS);
// Two below SIGRTMIN are the C library's own (cancellation, set*id); their handlers do not call us.
// The kernel takes two more out of every mask.
constexpr uint64_t kKeptOut = ~(kRaised | Bit(32) | Bit(33) | Bit(SIGKILL) | Bit(SIGSTOP));
constexpr uint64_t kAll = ~uint64_t{0};

void SetMask(uint64_t mask) { SignalsBlocked::SetMask(mask); }

// Sends it to this thread once more.
void Requeue(const siginfo_t& signal) {
  const long process = Getpid();
  if (Call(SYS_rt_tgsigqueueinfo, process, Gettid(), signal.si_signo, Address(&signal)) < 0) {
    // Too many real-time signals are queued (RLIMIT_SIGPENDING). Without its value it still fits.
    Call(SYS_kill, process, signal.si_signo);
  }
}

}  // namespace

uint64_t SignalsBlocked::SetMask(uint64_t mask) {
  uint64_t before = 0;
  Call(SYS_rt_sigprocmask, SIG_SETMASK, Address(&mask), Address(&before), sizeof(mask));
  return before;
}

void SignalsBlocked::Drop(int signal) {
  const uint64_t mask = Bit(signal);
  const timespec at_once = {};
  CallIfAllowed(SYS_rt_sigtimedwait, Address(&mask), 0, Address(&at_once), sizeof(mask));
}

bool DeferSignal(const siginfo_t& signal, uint64_t* mask) {
  if (deferral.depth == 0) return false;
  if ((kRaised & Bit(signal.si_signo)) != 0) {
    // Sent by somebody; back in the kernel it would come again at once. One is kept here, and a
    // second of the same kind is the same, as in the kernel.
    if (deferral.sent.si_signo != 0 && deferral.sent.si_signo != signal.si_signo) return false;
    deferral.sent = signal;
    deferral.process = Getpid();
    SetMask(kAll);
  } else {
    SetMask(kAll);
    Requeue(signal);
  }
  // From here on this handler is alone. Others may have interrupted it until now, and left what was
  // the thread's mask then; the outermost handler is the last to come here, and knows the right
  // one. One that came later finds everything kept out already.
  if ((*mask & kKeptOut) != kKeptOut || deferral.waits == 0) deferral.mask = *mask;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  deferral.waits = 1;
  *mask |= kKeptOut;
  return true;
}

// The program's handlers run before the last call returns. One may leave for good, so nothing is
// done after it.
void DeliverDeferred() {
  const uint64_t mask = deferral.mask;
  if (deferral.sent.si_signo != 0) {
    SetMask(kAll);
    // A child of fork does not inherit the signals that its parent has to handle yet.
    if (deferral.process == Getpid()) Requeue(deferral.sent);
    deferral.sent.si_signo = 0;
  }
  deferral.waits = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SetMask(mask);
}

}  // namespace nvcache::sys
