// SPDX-License-Identifier: BSD-3-Clause
//
// A file entry (file_table.h), as it lies in the file that processes share.
#ifndef NVCACHE_LEASE_FILE_ENTRY_H_
#define NVCACHE_LEASE_FILE_ENTRY_H_

#include <atomic>
#include <cstdint>

#include "src/sys/lock.h"

namespace nvcache::lease {

// It is a file's whose hash leads here; all zero: nobody's. Any process may look at any time. The
// last three only grow, also from one file to the next: a late store, by a process that has lost
// the lock, must say too little, or fail.
struct alignas(64) FileEntry {
  std::atomic<uint64_t> tag;  // the coverage, in 16 bytes
  std::atomic<uint64_t> word;
  std::atomic<uint64_t> lock;        // its owner, a process, and how often it was taken
  std::atomic<uint64_t> lsn;         // no group of the file has a higher one
  std::atomic<uint64_t> settled;     // groups of the file below it count no more
  sys::Word waiters;                 // that sleep until the lock is free
  std::atomic<uint32_t> stamped_at;  // Progress(), when the last field was set
  std::atomic<uint64_t> warmed;      // a folder's: when it, or a file in it, was synced last
  std::atomic<uint64_t>
      close_stamp;  // a file's stamp: when it was closed last, or when a
                    // process that had written to it let go of a lock; 0: not known
};
static_assert(sizeof(FileEntry) == 64);

// A process says that it is at a call that changes a file and is in no log: from before it looks
// for the file's tag, until the call is over. A count for each of some classes of files.
inline constexpr uint32_t kInFlightClasses = 128;
struct alignas(64) InFlightCounts {
  std::atomic<uint16_t> count[kInFlightClasses];
};
static_assert(sizeof(InFlightCounts) == 256);

// The bit in Shared::tagged. The low bits of a tag say which entry.
constexpr uint8_t EighthOf(uint64_t tag) { return static_cast<uint8_t>(1u << (tag >> 61)); }
constexpr bool IsTagged(uint8_t eighths, uint64_t tag) { return (eighths >> (tag >> 61) & 1) != 0; }
// The count of a file's class in InFlightCounts.
constexpr uint32_t ClassOf(uint64_t tag) {
  return static_cast<uint32_t>(tag >> 32) % kInFlightClasses;
}

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_FILE_ENTRY_H_
