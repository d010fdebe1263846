// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's host in a glibc program: libpmem by dlopen.
#ifndef NVCACHE_LIBC_SHIM_GLIBC_HOST_H_
#define NVCACHE_LIBC_SHIM_GLIBC_HOST_H_

#include "src/sys/host.h"

namespace nvcache {

const Host& GlibcHost();

// True while this thread is loading libpmem, whose constructor opens and closes files through the
// same libc symbols as the program: a front end that catches those symbols must not offer these
// calls to the engine that is waiting for the result.
bool InsideLibpmem();

}  // namespace nvcache

#endif  // NVCACHE_LIBC_SHIM_GLIBC_HOST_H_
