// SPDX-License-Identifier: BSD-3-Clause
//
// sigaction, signal and their names.
#include "libc-shim/calls/signal.h"

#include <errno.h>
#include <signal.h>

#include "libc-shim/preload/wrapper.h"

namespace nvcache::calls {

int RealSigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  return NVCACHE_REAL(sigaction)(signal, action, old);
}

// Cancellation and setuid.
bool IsSignalOfLibc(long signal) { return signal == 32 || signal == 33; }

}  // namespace nvcache::calls

using namespace nvcache::calls;

namespace {

constexpr int kResetHandler = static_cast<int>(SA_RESETHAND);

// sigaction's family, as glibc has it.

sigset_t g_interrupting;  // siginterrupt's, for signal()

// Before and after the constructor, and where there is no engine.
bool Manages() {
  if (SignalsManaged()) return true;
  NoteHandler();
  return false;
}

sighandler_t Install(int signal, sighandler_t handler, int flags, bool blocks_itself) {
  if (handler == SIG_ERR || signal <= 0 || signal >= _NSIG) {
    errno = EINVAL;
    return SIG_ERR;
  }
  struct sigaction action = {};
  struct sigaction old;
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (blocks_itself) sigaddset(&action.sa_mask, signal);
  return Sigaction(signal, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

// The handler, or SIG_HOLD: the signal is blocked.
sighandler_t Held(int signal, int how, sighandler_t handler) {
  sigset_t one;
  sigset_t before;
  sigemptyset(&one);
  sigaddset(&one, signal);
  if (pthread_sigmask(how, &one, &before) != 0) return SIG_ERR;
  return sigismember(&before, signal) == 1 ? SIG_HOLD : handler;
}

}  // namespace

NVCACHE_EXPORT int sigaction(int signal, const struct sigaction* action,
                             struct sigaction* old) noexcept {
  return Sigaction(signal, action, old);
}
NVCACHE_EXPORT_ALIAS(__sigaction, sigaction);

NVCACHE_EXPORT sighandler_t signal(int signal, sighandler_t handler) noexcept {
  if (!Manages()) return NVCACHE_REAL(signal)(signal, handler);
  const bool interrupts = sigismember(&g_interrupting, signal) == 1;
  return Install(signal, handler, interrupts ? 0 : SA_RESTART, true);
}
NVCACHE_EXPORT_ALIAS(bsd_signal, signal);
NVCACHE_EXPORT_ALIAS(ssignal, signal);

NVCACHE_EXPORT sighandler_t __sysv_signal(int signal, sighandler_t handler) noexcept {
  if (!Manages()) return NVCACHE_REAL(__sysv_signal)(signal, handler);
  return Install(signal, handler, kResetHandler | SA_NODEFER, false);
}
NVCACHE_EXPORT_ALIAS(sysv_signal, __sysv_signal);

NVCACHE_EXPORT sighandler_t sigset(int signal, sighandler_t handler) noexcept {
  if (!Manages()) return NVCACHE_REAL(sigset)(signal, handler);
  if (handler == SIG_HOLD) {
    struct sigaction action;
    if (Sigaction(signal, nullptr, &action) != 0) return SIG_ERR;
    return Held(signal, SIG_BLOCK, action.sa_handler);
  }
  const sighandler_t old = Install(signal, handler, 0, false);
  return old == SIG_ERR ? SIG_ERR : Held(signal, SIG_UNBLOCK, old);
}

NVCACHE_EXPORT int sigignore(int signal) noexcept {
  if (!Manages()) return NVCACHE_REAL(sigignore)(signal);
  return Install(signal, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

NVCACHE_EXPORT int siginterrupt(int signal, int interrupts) noexcept {
  if (!Manages()) return NVCACHE_REAL(siginterrupt)(signal, interrupts);
  struct sigaction action;
  if (Sigaction(signal, nullptr, &action) != 0) return -1;
  if (interrupts != 0) {
    sigaddset(&g_interrupting, signal);
    action.sa_flags &= ~SA_RESTART;
  } else {
    sigdelset(&g_interrupting, signal);
    action.sa_flags |= SA_RESTART;
  }
  return Sigaction(signal, &action, nullptr);
}
