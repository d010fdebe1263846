// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_RECOVERY_TOOL_LIBPMEM_H_
#define NVCACHE_RECOVERY_TOOL_LIBPMEM_H_

#include "src/pmem/libpmem.h"

namespace nvcache::tool {

// The functions of libpmem, or nullptr where it is not installed: then a pool is mapped by the same
// steps without it. One thread: libpmem's constructor changes the working directory for a moment.
const pmem::Libpmem* LoadLibpmem();

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_LIBPMEM_H_
