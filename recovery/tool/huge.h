// SPDX-License-Identifier: BSD-3-Clause
//
// How much of a pool lies in huge pages (src/vfs/huge_pages.h), and a new one that does as a whole.
#ifndef NVCACHE_RECOVERY_TOOL_HUGE_H_
#define NVCACHE_RECOVERY_TOOL_HUGE_H_

#include <cstdint>
#include <optional>

#include "src/pool/pool.h"

namespace nvcache::tool {

// Bytes, of an emulated or mirrored pool. Nothing where that cannot be known: persistent memory has
// them from its file system or device.
std::optional<uint64_t> HugeBytes(const pool::Pool& pool);

// Puts all of such a pool into them, with a bar on a terminal: some seconds for each GiB. The bytes
// that stay in small pages, but for the last ones of a pool whose size is no multiple.
uint64_t MakeAllHuge(const pool::Pool& pool);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_HUGE_H_
