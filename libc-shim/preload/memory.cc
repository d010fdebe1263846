// SPDX-License-Identifier: BSD-3-Clause
//
// mmap and what changes a mapping; mlockall.
#include "libc-shim/calls/memory.h"

#include <cstdarg>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT void* mmap64(void* address, size_t length, int protection, int flags, int fd,
                            off64_t offset) noexcept {
  return Map(length, protection, flags, fd,
             [=] { return NVCACHE_REAL(mmap64)(address, length, protection, flags, fd, offset); });
}
NVCACHE_EXPORT_ALIAS(mmap, mmap64);

NVCACHE_EXPORT int mprotect(void* address, size_t length, int protection) noexcept {
  return Protect(address, length, protection,
                 [=] { return NVCACHE_REAL(mprotect)(address, length, protection); });
}

NVCACHE_EXPORT int pkey_mprotect(void* address, size_t length, int protection, int key) noexcept {
  return Protect(address, length, protection,
                 [=] { return NVCACHE_REAL(pkey_mprotect)(address, length, protection, key); });
}

NVCACHE_EXPORT int munmap(void* address, size_t length) noexcept {
  return Unmap(address, length, [=] { return NVCACHE_REAL(munmap)(address, length); });
}

// The last argument is there with MREMAP_FIXED or MREMAP_DONTUNMAP, and else of no account.
NVCACHE_EXPORT void* mremap(void* address, size_t length, size_t new_length, int flags,
                            ...) noexcept {
  va_list arguments;
  va_start(arguments, flags);
  void* const new_address = va_arg(arguments, void*);
  va_end(arguments);
  return Remap(address, length, new_length, flags, new_address, [=] {
    return NVCACHE_REAL(mremap)(address, length, new_length, flags, new_address);
  });
}

NVCACHE_EXPORT int msync(void* address, size_t length, int flags) {
  CancellationPoint();
  return SyncMapping(flags, [=] { return NVCACHE_REAL(msync)(address, length, flags); });
}

NVCACHE_EXPORT int mlockall(int flags) noexcept {
  return LockAll(flags, [=] { return NVCACHE_REAL(mlockall)(flags); });
}

NVCACHE_EXPORT int munlockall() noexcept {
  return UnlockAll([] { return NVCACHE_REAL(munlockall)(); });
}
