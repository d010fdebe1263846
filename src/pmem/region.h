// SPDX-License-Identifier: BSD-3-Clause
//
// A pool's memory, mapped: a devdax device, a file on a DAX file system, or any other file.
#ifndef NVCACHE_PMEM_REGION_H_
#define NVCACHE_PMEM_REGION_H_

#include <cstddef>
#include <cstdint>

#include "src/pmem/libpmem.h"

namespace nvcache::pmem {

// The failure that a write survives which has returned (docs/architecture.md, "Durability levels").
enum class Durability {
  kProcess,  // the death of the process, not a power failure: the mapping is ordinary memory
  kPower,    // a power failure: the mapping is persistent memory
};

struct Region {
  uint8_t* base = nullptr;
  size_t size = 0;  // bytes
  Durability durability = Durability::kProcess;
  bool is_libpmems = false;  // it has mapped it
};

// Maps the whole file behind `fd` (open for reading and writing), shared. With libpmem by
// pmem_map_file, which also says whether it is persistent memory; without, by the same steps:
// mmap with MAP_SYNC, which only persistent memory grants, else without. A device never with
// libpmem: that goes by the size alone, and offers a place at a multiple of 2 MiB to one of 1 GiB
// that takes multiples of that.
// Returns 0 or a negated errno.
long Map(int fd, const Libpmem* libpmem, Region* region);

// The same, without libpmem and for reading only.
long MapReadOnly(int fd, Region* region);

void Unmap(const Region& region, const Libpmem* libpmem);

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_REGION_H_
