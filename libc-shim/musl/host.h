// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's host in a musl program, dynamic or static: no libpmem.
#ifndef NVCACHE_LIBC_SHIM_MUSL_HOST_H_
#define NVCACHE_LIBC_SHIM_MUSL_HOST_H_

#include "src/sys/host.h"

namespace nvcache {

const Host& MuslHost();

}  // namespace nvcache

#endif  // NVCACHE_LIBC_SHIM_MUSL_HOST_H_
