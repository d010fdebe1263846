// SPDX-License-Identifier: BSD-3-Clause
//
// mlockall, munlockall.
#include "libc-shim/calls/memory.h"

#include <sys/mman.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;

NVCACHE_EXPORT int mlockall(int flags) noexcept {
  return LockAll(flags, [=] { return NVCACHE_REAL(mlockall)(flags); });
}

NVCACHE_EXPORT int munlockall() noexcept {
  return UnlockAll([] { return NVCACHE_REAL(munlockall)(); });
}
