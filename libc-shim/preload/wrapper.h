// SPDX-License-Identifier: BSD-3-Clause
//
// The wrappers of libc's names are written with this, beside libc-shim/calls.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_WRAPPER_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_WRAPPER_H_

#include <pthread.h>
#include <sys/syscall.h>

#include <atomic>

#include "libc-shim/calls/calls.h"
#include "libc-shim/preload/real.h"
#include "src/sys/kernel.h"

// A wrapper, and another name for a wrapper. The linker exports only what wrapped.def lists.
#define NVCACHE_EXPORT extern "C" __attribute__((visibility("default")))
#ifdef __clang__
#define NVCACHE_EXPORT_ALIAS(name, target) \
  extern "C" __attribute__((visibility("default"), alias(#target))) decltype(::target) name
#else  // wants to hear that the two have the same attributes
#define NVCACHE_EXPORT_ALIAS(name, target)                         \
  extern "C" __attribute__((copy(::target), visibility("default"), \
                            alias(#target))) decltype(::target) name
#endif

namespace nvcache::preload {

// Some thread has been (cancel.cc).
extern std::atomic<uint32_t> any_cancelled;  // 0 or 1
inline bool MayBeCancelled() { return any_cancelled.load(std::memory_order_relaxed) != 0; }

// A data call that the engine answers never enters the kernel, and would never notice that its
// thread is cancelled. Asked before the engine is, since afterwards the data has been moved.
inline void CancellationPoint() {
  if (MayBeCancelled()) [[unlikely]]
    pthread_testcancel();
}

// The real call `name`, for calls::Offer: where the engine does not know the descriptor, nothing is
// asked, for the real call notices. It is looked for when it is made.
template <typename RealCall, typename Find>
struct Cancellable {
  RealCall real;
  // The function that is called; nullptr: it has to be looked for first.
  Find Found;
  static bool MayActBefore() { return MayBeCancelled(); }
  void BeforeAnswer() const { CancellationPoint(); }
  template <typename... Arguments>
  auto operator()(Arguments... arguments) const {
    return real(arguments...);
  }
};
template <typename RealCall, typename Find>
Cancellable(RealCall, Find) -> Cancellable<RealCall, Find>;
#define NVCACHE_FOUND(name) [](auto... arguments) { return NVCACHE_REAL(name)(arguments...); }
#define NVCACHE_CANCELLABLE(name)                                                          \
  ::nvcache::preload::Cancellable {                                                        \
    NVCACHE_FOUND(name),                                                                   \
        [] { return __atomic_load_n(&::nvcache::preload::g_real.name, __ATOMIC_RELAXED); } \
  }

// libc's own open, but no cancellation point.
inline int OpenUncancelled(int dirfd, const char* path, int flags, mode_t mode) {
  return static_cast<int>(calls::FromAnswer(sys::Openat(dirfd, path, flags, mode)));
}

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_WRAPPER_H_
