// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous cancellation: a thread that may be cancelled at any instruction must not be, while
// it holds a lock of the engine's. So there its type is the deferred one, and the cancellation
// comes when the call is over. Other threads pay nothing.
//
// Before the first thread is cancelled there is nothing to ask for at a cancellation point.
#include <pthread.h>

#include <atomic>

#include "libc-shim/preload/wrapper.h"
#include "src/sys/deferral.h"

using nvcache::sys::deferral;

namespace nvcache::preload {
constinit std::atomic<uint32_t> any_cancelled{0};
}

namespace {

// Ends the thread at once if it was cancelled meanwhile.
void LetCancel(bool allowed) {
  const int type = allowed ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
  NVCACHE_REAL(pthread_setcanceltype)(type, nullptr);
}

}  // namespace

// First the mark, then the type; and the reverse, for in between the thread may be cancelled, and
// its cleanup handlers make calls.
NVCACHE_EXPORT int pthread_setcanceltype(int type, int* old) {
  if (type == PTHREAD_CANCEL_ASYNCHRONOUS) deferral.let_cancel = LetCancel;
  const int result = NVCACHE_REAL(pthread_setcanceltype)(type, old);
  if (type == PTHREAD_CANCEL_DEFERRED) deferral.let_cancel = nullptr;
  return result;
}

NVCACHE_EXPORT int pthread_cancel(pthread_t thread) {
  nvcache::preload::any_cancelled.store(1);
  return NVCACHE_REAL(pthread_cancel)(thread);
}
