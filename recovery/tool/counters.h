// SPDX-License-Identifier: BSD-3-Clause
//
// The counters of a pool by their names.
#ifndef NVCACHE_RECOVERY_TOOL_COUNTERS_H_
#define NVCACHE_RECOVERY_TOOL_COUNTERS_H_

#include <cstddef>

#include "src/pool/pool.h"

namespace nvcache::tool {

struct Counter {
  const char* name;     // in JSON
  const char* meaning;  // for people
  uint64_t pool::Statistics::*field;
};

inline constexpr Counter kCounters[] = {
    {"entries_cleaned", "records that reached the disk", &pool::Statistics::entries_cleaned},
    {"bytes_cleaned", "their bytes", &pool::Statistics::bytes_cleaned},
    {"batches", "write-back batches", &pool::Statistics::batches},
    {"syncs", "device flushes", &pool::Statistics::syncs},
    {"pages_written", "pages written", &pool::Statistics::pages_written},
    {"segments_taken", "segments taken", &pool::Statistics::segments_taken},
    {"full_waits", "waits for a full log", &pool::Statistics::full_waits},
    {"misses", "read misses", &pool::Statistics::misses},
    {"dirty_misses", "dirty misses", &pool::Statistics::dirty_misses},
    {"evictions", "evictions", &pool::Statistics::evictions},
    {"dirty_evictions", "dirty evictions", &pool::Statistics::dirty_evictions},
    {"write_back_errors", "write-back errors", &pool::Statistics::write_back_errors},
    {"pass_through_files", "files made pass-through", &pool::Statistics::pass_through_files},
    {"table_full", "files passed through: table full", &pool::Statistics::table_full},
    {"records_kept", "records kept: their disk refuses", &pool::Statistics::records_kept},
};

// A copy, each field as it is at the moment.
inline pool::Statistics Snapshot(const pool::Statistics& live) {
  pool::Statistics copy;
  const auto* from = reinterpret_cast<const uint64_t*>(&live);
  auto* to = reinterpret_cast<uint64_t*>(&copy);
  for (size_t i = 0; i < sizeof(copy) / sizeof(uint64_t); ++i) to[i] = pool::Peek(from[i]);
  return copy;
}

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_COUNTERS_H_
