// SPDX-License-Identifier: BSD-3-Clause
//
// Counters for `nvcache status`, and the last words of a process that stopped itself. Nothing
// depends on them.
#ifndef NVCACHE_POOL_STATISTICS_H_
#define NVCACHE_POOL_STATISTICS_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/layout.h"

namespace nvcache::pool {

// So many of the files whose write-back fails are named.
inline constexpr uint32_t kMaxFailingShown = 16;

// Counters since the pool was last opened for use. Shared memory, never flushed; every field is
// accessed as a relaxed atomic.
struct Statistics {
  uint64_t newest;           // LSN; as of the last time the cleanup thread looked
  uint64_t entries_cleaned;  // data records that reached the disk
  uint64_t bytes_cleaned;    // their payload
  uint64_t batches;
  uint64_t syncs;            // fdatasync and syncfs calls of the cleanup thread
  uint64_t pages_written;    // write-backs to the kernel
  uint64_t segments_taken;   // times a log took a segment
  uint64_t full_waits;       // times a writer slept because the log was full
  uint64_t misses;           // reads that had to load a page
  uint64_t dirty_misses;     // misses on a page whose dirty counter was not zero
  uint64_t evictions;        // frames taken from a page
  uint64_t dirty_evictions;  // ... whose dirty counter was not zero
  uint64_t write_back_errors;
  uint64_t last_error;          // errno of the last one
  uint64_t last_error_time;     // ns since 1970
  uint64_t pass_through_files;  // files that were made pass-through
  uint64_t table_full;          // files not cached because a table was full
  uint64_t records_kept;        // copied to kept segments, because the disk refuses their file
  // Files whose write-back fails: their numbers plus one (0: none), and in the upper half the seat;
  // errno; ns since 1970.
  uint64_t failing_file[kMaxFailingShown];
  uint64_t failing_error[kMaxFailingShown];
  uint64_t failing_since[kMaxFailingShown];
};
static_assert(offsetof(Statistics, newest) == 0);
static_assert(offsetof(Statistics, entries_cleaned) == 8);
static_assert(offsetof(Statistics, bytes_cleaned) == 16);
static_assert(offsetof(Statistics, batches) == 24);
static_assert(offsetof(Statistics, syncs) == 32);
static_assert(offsetof(Statistics, pages_written) == 40);
static_assert(offsetof(Statistics, segments_taken) == 48);
static_assert(offsetof(Statistics, full_waits) == 56);
static_assert(offsetof(Statistics, misses) == 64);
static_assert(offsetof(Statistics, dirty_misses) == 72);
static_assert(offsetof(Statistics, evictions) == 80);
static_assert(offsetof(Statistics, dirty_evictions) == 88);
static_assert(offsetof(Statistics, write_back_errors) == 96);
static_assert(offsetof(Statistics, last_error) == 104);
static_assert(offsetof(Statistics, last_error_time) == 112);
static_assert(offsetof(Statistics, pass_through_files) == 120);
static_assert(offsetof(Statistics, table_full) == 128);
static_assert(offsetof(Statistics, records_kept) == 136);
static_assert(offsetof(Statistics, failing_file) == 144);
static_assert(offsetof(Statistics, failing_error) == 272);
static_assert(offsetof(Statistics, failing_since) == 400);
static_assert(kStatisticsOffset + sizeof(Statistics) <= kLastWordsOffset);

// The message of the last process that stopped because an invariant was broken. Stays until another
// one does; never flushed.
struct LastWords {
  uint64_t time;  // ns since 1970; 0: nobody has said anything
  uint64_t pid;
  char text[496];  // with a final zero
};
static_assert(offsetof(LastWords, time) == 0);
static_assert(offsetof(LastWords, pid) == 8);
static_assert(offsetof(LastWords, text) == 16);
static_assert(sizeof(LastWords) == 512);
static_assert(kLastWordsOffset % 64 == 0 &&
              kLastWordsOffset + sizeof(LastWords) <= kCheckpointOffset + kCheckpointDistance);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_STATISTICS_H_
