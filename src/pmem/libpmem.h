// SPDX-License-Identifier: BSD-3-Clause
//
// The part of libpmem that we use, as a table of functions: the front end finds them with
// dlopen(RTLD_LOCAL), so that libpmem's eight dependencies stay out of the program's symbol scope
// and cost nothing where there is no persistent memory. They ask libc for memory, so they are the
// command's: a program's engine maps a pool by the same steps (region.h).
#ifndef NVCACHE_PMEM_LIBPMEM_H_
#define NVCACHE_PMEM_LIBPMEM_H_

#include <sys/types.h>

#include <cstddef>

namespace nvcache::pmem {

// Signatures as in <libpmem.h>, PMDK 1.12; names without the prefix.
struct Libpmem {
  void* (*map_file)(const char* path, size_t length, int flags, mode_t mode, size_t* mapped_length,
                    int* is_pmem);
  int (*unmap)(void* address, size_t length);
  const char* (*errormsg)();
};

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_LIBPMEM_H_
