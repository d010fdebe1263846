// SPDX-License-Identifier: BSD-3-Clause
//
// What `nvcache status` says of a pool's journal on a disk (docs/disk.md).
#ifndef NVCACHE_RECOVERY_TOOL_JOURNALING_H_
#define NVCACHE_RECOVERY_TOOL_JOURNALING_H_

#include <string>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"
#include "src/pool/mirror_words.h"
#include "src/pool/pool.h"

namespace nvcache::tool {

struct Journaling {
  bool there = false;  // the pool has a journal
  uint32_t commit = pool::kCommitOwn;
  uint32_t failed = 0;  // errno
  uint32_t state = pool::kMirrorNone;
  // Since its memory was made.
  uint64_t batches = 0;
  uint64_t rounds = 0;
  uint64_t bytes = 0;
  pool::MirrorWaits waits = {};
};

Journaling FindJournaling(const pool::Pool& pool);
std::string JournalText(const Journaling& journaling);
// null if there is none.
Json JournalJson(const Journaling& journaling);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_JOURNALING_H_
