// SPDX-License-Identifier: BSD-3-Clause
//
// How a mirrored pool and its mirror are (docs/mirror.md), as the pool's shared state says it.
#ifndef NVCACHE_RECOVERY_TOOL_MIRRORING_H_
#define NVCACHE_RECOVERY_TOOL_MIRRORING_H_

#include <cstdint>
#include <string>

#include "recovery/tool/open.h"
#include "recovery/tool/text.h"
#include "src/pool/mirror_words.h"
#include "src/pool/pool.h"

namespace nvcache::tool {

struct Mirroring {
  uint32_t commit = pool::kCommitOwn;  // pool::kCommit*; kCommitOwn: the pool is not mirrored
  uint32_t state = pool::kMirrorNone;  // pool::kMirror*
  bool alive = false;                  // a process has the mirror's lock
  uint64_t lacking = 0;                // LSNs that a majority of the images need not have yet
  pool::MirrorWaits waits = {};
  pool::OutputWaits outputs = {};
};

Mirroring FindMirroring(const ScopedPool& pool);

// The word of `create --commit`.
const char* CommitWord(uint32_t commit);
// With commit at output. "fsync" has none.
std::string OutputsText(const pool::OutputWaits& outputs);
// "mirrored"; "unknown", if there is no such state.
const char* MirrorStateName(uint32_t state);
// One sentence: what a sync does now.
std::string MirrorText(const Mirroring& mirroring);
std::string WaitsText(const pool::MirrorWaits& waits);
Json MirrorJson(const Mirroring& mirroring);
// How many there were, and how long, into the fields of a pool with a mirror or a journal.
void PutWaits(Json* json, const pool::MirrorWaits& waits);
// The same of commit at output.
void PutOutputs(Json* json, const pool::OutputWaits& outputs);

uint64_t CountOf(const pool::MirrorWaits& waits);
// Microseconds that this share of the waits, 0 to 1, was not longer than: the end of a bucket, so
// at most twice as much as it was; of the last bucket, its beginning. 0: nobody waited.
uint64_t Quantile(const pool::MirrorWaits& waits, double share);
// The waits since `before`; all of them, if that is of another pool.
pool::MirrorWaits Between(const pool::MirrorWaits& before, const pool::MirrorWaits& now);
pool::OutputWaits Between(const pool::OutputWaits& before, const pool::OutputWaits& now);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_MIRRORING_H_
