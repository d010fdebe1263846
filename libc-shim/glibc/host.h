// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's host in a glibc program: pthreads, and libpmem loaded on demand.
#ifndef NVCACHE_LIBC_SHIM_GLIBC_HOST_H_
#define NVCACHE_LIBC_SHIM_GLIBC_HOST_H_

#include "src/sys/host.h"

namespace nvcache {

const Host& GlibcHost();

// True while this thread is loading libpmem, is inside one of its functions that map and unmap, or
// makes a thread for the engine (libc asks for memory then, perhaps of the program's own malloc).
// libpmem opens, maps and closes files through the same libc symbols as the program: a front end
// that catches those symbols must not offer libpmem's own calls to the engine that is waiting
// for their result.
bool InsideLibpmem();

}  // namespace nvcache

#endif  // NVCACHE_LIBC_SHIM_GLIBC_HOST_H_
