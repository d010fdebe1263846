// SPDX-License-Identifier: BSD-3-Clause
//
// Signals that come while their thread is in the engine.
//
// A handler of the program may make any file call, or never return. It must not run while its
// thread holds a lock of ours, so it waits until the thread has left the engine. That costs a
// thread-local count, and nothing else as long as no signal comes.
//
// A front end whose own handler stands before the program's asks DeferSignal() first. Where there
// is none, nothing is ever put off.
//
// Asynchronous cancellation is no signal that we see. A front end gives each thread that asks for
// it a function that turns it off and on again.
#ifndef NVCACHE_SYS_DEFERRAL_H_
#define NVCACHE_SYS_DEFERRAL_H_

#include <signal.h>

#include <atomic>
#include <cstdint>

namespace nvcache::sys {

// Each thread has one, for itself and for the handlers that interrupt it.
struct Deferral {
  uint32_t depth;  // calls of the engine that the thread is in, one within the other
  uint32_t waits;  // a signal does: 0 or 1
  uint64_t mask;   // the thread's, outside of our handlers
  // Whether the thread may be cancelled at any instruction. Null: it cannot be.
  void (*let_cancel)(bool);
  // One that cannot be kept out, and was sent to `process`; si_signo 0: none.
  siginfo_t sent;
  long process;
};

// A front end is loaded with the program, or finds room: no call is made to find this.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Deferral deferral;

// Has the signals that wait be handled.
void DeliverDeferred();

// Between the two, nothing of the program runs on this thread.
inline void EnterEngine() {
  if (deferral.let_cancel != nullptr && deferral.depth == 0) [[unlikely]] {
    deferral.let_cancel(false);
  }
  ++deferral.depth;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
inline void LeaveEngine() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  --deferral.depth;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (deferral.waits != 0 && deferral.depth == 0) [[unlikely]] {
    DeliverDeferred();
  }
  if (deferral.let_cancel != nullptr && deferral.depth == 0) [[unlikely]] {
    deferral.let_cancel(true);
  }
}

class InEngine {
 public:
  InEngine() { EnterEngine(); }
  ~InEngine() { LeaveEngine(); }
  InEngine(const InEngine&) = delete;
  InEngine& operator=(const InEngine&) = delete;
};

// No signal comes to this thread, but for those of bad memory that it raises itself, and which then
// end it.
class SignalsBlocked {
 public:
  SignalsBlocked() { before_ = SetMask(~uint64_t{0}); }
  ~SignalsBlocked() { SetMask(before_); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  // The mask until then.
  static uint64_t SetMask(uint64_t mask);
  // A signal that waits for this thread does not come.
  static void Drop(int signal);

 private:
  uint64_t before_;
};

// Clears the state of a child that shared this thread's memory, and was killed in the engine.
inline void ForgetDeferred() {
  deferral.depth = deferral.waits = 0;
  deferral.sent.si_signo = 0;
}

// Whether a signal waits until this thread leaves the engine. A thread should leave before it
// sleeps for long.
inline bool SignalWaits() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return deferral.waits != 0;
}

// For a handler, in the thread that was interrupted. True: it is in the engine, the signal waits,
// and the handler must return. `mask` is the mask with which the thread goes on then, and becomes
// one that keeps all signals out: they wait in the kernel, in its order and with all that it knows.
bool DeferSignal(const siginfo_t& signal, uint64_t* mask);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_DEFERRAL_H_
