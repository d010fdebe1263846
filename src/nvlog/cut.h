// SPDX-License-Identifier: BSD-3-Clause
//
// A pool that was made from its journal has, beside the groups of one moment, some that came later,
// and may lack what those rely on (docs/disk.md). They are taken out before anything is read.
#ifndef NVCACHE_NVLOG_CUT_H_
#define NVCACHE_NVLOG_CUT_H_

#include "src/pool/pool.h"

namespace nvcache::nvlog {

// Afterwards the pool has no record and no segment with an LSN from `cut` on, and no remains of
// one: it is as if they had never been stored. Nobody else uses the pool. A PSYNC makes it durable.
void CutFrom(const pool::View& view, pool::Lsn cut);

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_CUT_H_
