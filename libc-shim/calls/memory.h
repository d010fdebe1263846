// SPDX-License-Identifier: BSD-3-Clause
//
// Locking all of a program's memory.
#ifndef NVCACHE_LIBC_SHIM_CALLS_MEMORY_H_
#define NVCACHE_LIBC_SHIM_CALLS_MEMORY_H_

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

template <typename RealCall>
inline auto LockAll(int flags, RealCall real) {
  return Answer(vfs::LockMemory(flags), real);
}

template <typename RealCall>
inline auto UnlockAll(RealCall real) {
  return Answer(vfs::UnlockMemory(), real);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_MEMORY_H_
