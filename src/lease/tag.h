// SPDX-License-Identifier: BSD-3-Clause
//
// The processes of a user find what they share of a file by hashes.
#ifndef NVCACHE_LEASE_TAG_H_
#define NVCACHE_LEASE_TAG_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/sys/born_stat.h"

namespace nvcache::lease {

// A file's tag. Files with the same tag are taken for one. `birth` (sys::BornStat) and the type in
// `mode` tell a file from one that had its number before: what was known of that one is not known
// of this. 0: the birth is not known, so the two cannot be told apart; it has no entry.
uint64_t TagOf(uint64_t device, uint64_t inode, uint64_t birth, uint32_t mode);
uint64_t TagOf(const sys::BornStat& st);
uint64_t TagOf(const struct statx& st);

// The tag of a file's cells (format.h); never 0. They know the file by its number alone, as does a
// process that asks for another one's file after the program's stat. A file that had the number
// before is taken for it, as files are that have one cell: both err on the safe side.
uint64_t NumberTagOf(uint64_t device, uint64_t inode);

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_TAG_H_
