// SPDX-License-Identifier: BSD-3-Clause
//
// A pool whose memory is gone, after a start of the machine, say: what its journal has.
#ifndef NVCACHE_RECOVERY_TOOL_LOST_H_
#define NVCACHE_RECOVERY_TOOL_LOST_H_

#include <string>

#include "src/pool/pool.h"

namespace nvcache::tool {

// Opens what a recovery would begin with, in memory of this process's own. Changes nothing. A
// Failure if the journal cannot be read, or is damaged.
void OpenLost(pool::Pool* pool, const std::string& path, pool::Mode mode);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_LOST_H_
