// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/calls/signal.h"

#include <errno.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "libc-shim/calls/calls.h"
#include "src/sys/deferral.h"
#include "src/sys/early.h"
#include "src/sys/kernel.h"
#include "src/sys/user_copy.h"

namespace nvcache::calls {
namespace {

using Handler = void (*)(int, siginfo_t*, void*);

// The kernel's flag; libc sets it in every action, and shows it in every query.
constexpr int kRestorer = 0x04000000;
// The kernel has these flags our way; the program sees its own.
constexpr int kResetHandler = static_cast<int>(SA_RESETHAND);
constexpr int kOurFlags = SA_SIGINFO | kResetHandler;

// The action that the program has asked for. No lock, for a handler may look, and change it, at any
// time: a program that changes one signal's action in two threads at once gets one of the two, and
// perhaps the other's flags.
struct Wish {
  std::atomic<Handler> handler;  // or SIG_DFL, SIG_IGN
  std::atomic<int> flags;
};
NVCACHE_EARLY constinit Wish g_wishes[_NSIG] = {};
NVCACHE_EARLY constinit std::atomic<bool> g_managed = false;
NVCACHE_EARLY constinit std::atomic<bool> g_noted = false;

Handler AsHandler(sighandler_t disposition) {
  return reinterpret_cast<Handler>(reinterpret_cast<void*>(disposition));
}

bool IsFunction(Handler handler) {
  return handler != AsHandler(SIG_DFL) && handler != AsHandler(SIG_IGN);
}

// Bad memory raises it. Our handler stays in the kernel for these, whatever the program asks for;
// for the others, while the program has a handler of its own.
bool IsFault(int signal) { return signal == SIGSEGV || signal == SIGBUS; }

// ---------------------------------------------------------------------------------------------
// In the handler: system calls only, and errno stays as it is.

// struct sigaction, as the kernel has it.
struct KernelAction {
  uint64_t handler, flags, restorer, mask;
};

void SetDefault(int signal) {
  const KernelAction action = {};
  sys::Call(SYS_rt_sigaction, signal, sys::Address(&action), 0, sizeof(action.mask));
}

// Does what the kernel does to a handler with SA_RESETHAND when it calls it: the rest stays.
void ResetHandler(int signal, Wish* wish) {
  wish->handler.store(AsHandler(SIG_DFL));
  if (IsFault(signal)) return;
  KernelAction action = {};
  sys::Call(SYS_rt_sigaction, signal, 0, sys::Address(&action), sizeof(action.mask));
  constexpr uint64_t kMask = SA_SIGINFO | uint32_t{SA_RESETHAND};
  action.handler = 0;
  action.flags = (action.flags & ~kMask) | (static_cast<uint64_t>(wish->flags.load()) & kMask);
  sys::Call(SYS_rt_sigaction, signal, sys::Address(&action), 0, sizeof(action.mask));
}

// An instruction of this thread has raised it here and now; it was not sent.
bool IsRaised(int signal, const siginfo_t* info) {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
      return info->si_code > 0;
    default:
      return false;
  }
}

// Does what happens without a handler. A fault repeats itself, with the right registers for the
// core dump; a signal that was sent is sent once more. It comes when our handler returns.
void TakeDefault(int signal, siginfo_t* info) {
  SetDefault(signal);
  if (IsRaised(signal, info)) return;
  sys::Call(SYS_rt_tgsigqueueinfo, sys::Getpid(), sys::Gettid(), signal, sys::Address(info));
}

// A fault in a copy from or to the program's memory: the copy ends there.
bool EndCopy(const siginfo_t& info, void* context) {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  const uintptr_t landing = sys::UserFaultLanding(info, interrupted);
  if (landing == 0) return false;
  interrupted.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(landing);
  return true;
}

// Mask, stack and the rest are what the program asked for: the kernel was told.
void CallProgram(int signal, siginfo_t* info, void* context) {
  Wish& wish = g_wishes[signal];
  Handler handler = wish.handler.load();
  if (!IsFunction(handler)) {
    // The kernel does not let a fault be ignored.
    if (handler == AsHandler(SIG_DFL) || IsRaised(signal, info)) TakeDefault(signal, info);
    return;
  }
  if ((wish.flags.load() & kResetHandler) != 0) {
    // A child of vfork has handlers of its own, and the wishes of its parent.
    vfs::IsSharing() ? SetDefault(signal) : ResetHandler(signal, &wish);
  }
  handler(signal, info, context);  // one without SA_SIGINFO looks at the first only
}

// The interrupted call of the engine goes on; when it is over, the signal comes again.
bool Defer(const siginfo_t& info, void* context) {
  sigset_t& blocked = static_cast<ucontext_t*>(context)->uc_sigmask;
  uint64_t mask;  // all that the kernel looks at
  std::memcpy(&mask, &blocked, sizeof(mask));
  if (!sys::DeferSignal(info, &mask)) return false;
  std::memcpy(&blocked, &mask, sizeof(mask));
  return true;
}

void OnSignal(int signal, siginfo_t* info, void* context) {
  const bool returns = IsRaised(signal, info) ? EndCopy(*info, context) : Defer(*info, context);
  if (!returns) CallProgram(signal, info, context);
}

// ---------------------------------------------------------------------------------------------
// The program's calls.

// The program's wish as the kernel shall have it.
struct sigaction Ours(int signal, const struct sigaction& wish) {
  struct sigaction ours = wish;
  const bool function = IsFunction(AsHandler(wish.sa_handler));
  if (!function && !IsFault(signal)) return ours;
  ours.sa_sigaction = OnSignal;
  ours.sa_flags = (wish.sa_flags & ~kOurFlags) | SA_SIGINFO;
  // A stack that overflows has no room for our handler, either.
  if (!function) ours.sa_flags |= SA_ONSTACK;
  return ours;
}

void Remember(int signal, Handler handler, int flags) {
  g_wishes[signal].flags.store(flags);
  g_wishes[signal].handler.store(handler);
}

// The action that the kernel had, as the program shall see it.
struct sigaction Shown(const struct sigaction& kernel, Handler handler, int flags) {
  struct sigaction shown = kernel;
  if (kernel.sa_sigaction != OnSignal) return shown;
  shown.sa_sigaction = handler;
  const int ours = IsFunction(handler) ? kOurFlags : kOurFlags | SA_ONSTACK | kRestorer;
  shown.sa_flags = (kernel.sa_flags & ~ours) | (flags & ours);
  return shown;
}

// `real` makes the real call.
template <typename RealCall>
int Sigaction(int signal, const struct sigaction* action, struct sigaction* old, RealCall real) {
  if (!SignalsManaged() && action != nullptr) NoteHandler();
  if (signal <= 0 || signal >= _NSIG || !SignalsManaged()) return real(signal, action, old);
  const Handler handler = g_wishes[signal].handler.load();
  const int flags = g_wishes[signal].flags.load();
  struct sigaction before;
  int result;
  if (action == nullptr || vfs::IsSharing()) {
    // A child of vfork is never in the engine, and the wishes are its parent's.
    result = real(signal, action, &before);
  } else {
    const struct sigaction wish = *action;  // may be `old`
    const struct sigaction ours = Ours(signal, wish);
    // First ours, for the signal may come at once. One that comes before that finds the new one:
    // it might as well have come later.
    Remember(signal, AsHandler(wish.sa_handler), wish.sa_flags | kRestorer);
    result = real(signal, &ours, &before);
    if (result != 0) Remember(signal, handler, flags);
  }
  if (result == 0 && old != nullptr) *old = Shown(before, handler, flags);
  return result;
}

// The two forms of an action. libc's has room for more signals.

struct sigaction FromKernel(const KernelAction& kernel) {
  struct sigaction action = {};
  action.sa_sigaction = reinterpret_cast<Handler>(kernel.handler);
  action.sa_flags = static_cast<int>(kernel.flags);
  action.sa_restorer = reinterpret_cast<void (*)()>(kernel.restorer);
  std::memcpy(&action.sa_mask, &kernel.mask, sizeof(kernel.mask));
  return action;
}

KernelAction ToKernel(const struct sigaction& action) {
  KernelAction kernel = {reinterpret_cast<uint64_t>(action.sa_sigaction),
                         static_cast<uint32_t>(action.sa_flags),
                         reinterpret_cast<uint64_t>(action.sa_restorer), 0};
  std::memcpy(&kernel.mask, &action.sa_mask, sizeof(kernel.mask));
  return kernel;
}

// A handler comes with its own way back. Any other action takes libc's, for the kernel may get our
// handler in its place.
int SetByNumber(int signal, const struct sigaction* action, struct sigaction* old) {
  const bool function = action != nullptr && (action->sa_flags & kRestorer) != 0;
  return function ? KernelSigaction(signal, action, old) : RealSigaction(signal, action, old);
}

}  // namespace

bool SignalsManaged() { return g_managed.load(std::memory_order_relaxed); }

int KernelSigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  const KernelAction wish = action != nullptr ? ToKernel(*action) : KernelAction{};
  KernelAction before = {};
  const long result =
      sys::Call(SYS_rt_sigaction, signal, action != nullptr ? sys::Address(&wish) : 0,
                sys::Address(&before), sizeof(wish.mask));
  if (result == 0 && old != nullptr) *old = FromKernel(before);
  return static_cast<int>(FromAnswer(result));
}

int Sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  return Sigaction(signal, action, old, RealSigaction);
}

bool SigactionByNumber(long signal, const void* action, void* old, long mask_size, long* result) {
  if (!SignalsManaged() && action != nullptr) NoteHandler();
  // For libc's own, its functions are of no use.
  if (signal <= 0 || signal >= _NSIG || IsSignalOfLibc(signal) || !SignalsManaged()) return false;
  KernelAction kernel = {};
  if (mask_size != sizeof(kernel.mask)) return false;
  if (action != nullptr && sys::CopyFromUser(&kernel, action, sizeof(kernel)) != sizeof(kernel)) {
    return false;  // the kernel says so
  }
  const struct sigaction wish = FromKernel(kernel);
  struct sigaction before;
  *result = Sigaction(static_cast<int>(signal), action != nullptr ? &wish : nullptr, &before,
                      SetByNumber);
  if (*result != 0 || old == nullptr) return true;
  kernel = ToKernel(before);
  if (sys::CopyToUser(old, &kernel, sizeof(kernel)) != sizeof(kernel))
    *result = FromAnswer(-EFAULT);
  return true;
}

void NoteHandler() { g_noted.store(true); }

namespace {

void Manage(int signal, const struct sigaction& action) {
  const struct sigaction ours = Ours(signal, action);
  if (ours.sa_sigaction != OnSignal) return;
  Remember(signal, action.sa_sigaction, action.sa_flags);
  RealSigaction(signal, &ours, nullptr);
}

// As Manage() would for the default action, which is what a program begins with; so what was there
// is learnt by the same call.
void ManageFault(int signal) {
  const struct sigaction ours = Ours(signal, {});
  struct sigaction before;
  if (RealSigaction(signal, &ours, &before) != 0) return;
  if (before.sa_handler != SIG_DFL || before.sa_flags != 0) Manage(signal, before);
}

}  // namespace

// Handlers that are there already belong to libraries that were loaded before us. A program begins
// without handlers.
void ManageSignals(bool all) {
  g_managed.store(true);
  if (!all && !g_noted.load()) {
    ManageFault(SIGBUS);
    ManageFault(SIGSEGV);
    return;
  }
  for (int signal = 1; signal < _NSIG; ++signal) {
    struct sigaction action;
    if (RealSigaction(signal, nullptr, &action) == 0) Manage(signal, action);
  }
}

void ReleaseSignals() {
  if (!g_managed.exchange(false)) return;
  for (int signal = 1; signal < _NSIG; ++signal) {
    struct sigaction action;
    if (KernelSigaction(signal, nullptr, &action) != 0 || action.sa_sigaction != OnSignal) continue;
    const Wish& wish = g_wishes[signal];
    const struct sigaction own = Shown(action, wish.handler.load(), wish.flags.load());
    KernelSigaction(signal, &own, nullptr);
  }
}

}  // namespace nvcache::calls
