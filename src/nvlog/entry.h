// SPDX-License-Identifier: BSD-3-Clause
//
// An entry of the log on the medium.
//
// The log is one circular array of 64-byte units. An entry is a header of one unit, followed by
// its payload in whole units; the unit after the last is the first (a payload may wrap, a header
// cannot). A position counts units since the pool was made and never comes back: position p lies
// at unit p % log_units, and p / log_units is its lap.
//
// An entry stays within one page of its file. The entries of one write call, its group, lie one
// behind the other; the commit word of the first counts for all of them (I2).
//
// Order on the medium (I4):
//
//   payloads of all, headers of all but the first                     PWB
//   header of the first: kNotCommitted, the rest, commit word last    PWB
//   PSYNC
//
// Stores to one cache line become durable in program order, so a header is there whole or not at
// all. Different lines become durable in any order until the PSYNC. So a group counts only if all
// of its headers and the checksums of all payloads are right (reader.h).
//
// A group that is not whole is either unfinished, which is what a power failure leaves of a write
// call that had not returned, or damaged. It is damaged if something else says that its PSYNC was
// over: a header that was written later and names it, as the group that the same thread had
// committed before (thread_back), or as the page's entry before (previous), for page locks are held
// until the PSYNC.
//
// A place that was taken but never committed is a hole. Nobody wrote a header of its lap there, so
// recovery steps over it unit by unit: every header names its own position. A place that its writer
// gave up is a hole, too; an AbandonedGroup in its first unit tells the cleanup thread.
#ifndef NVCACHE_NVLOG_ENTRY_H_
#define NVCACHE_NVLOG_ENTRY_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/format.h"

namespace nvcache::nvlog {

using Position = uint64_t;
inline constexpr Position kNoPosition = ~Position{0};

struct alignas(pool::kUnitSize) EntryHeader {
  uint64_t commit;       // CommitWord or AppliedWord of its position; anything else: not committed
  uint64_t position;     // its own
  uint64_t offset;       // bytes, where in the file the payload goes
  uint64_t previous;     // the page's pending entry before this one, or kNoPosition
  uint32_t file;         // slot of the file table
  uint32_t incarnation;  // of that slot
  uint32_t length;       // bytes of payload, 1 to kPageSize
  uint32_t group_index;  // 0 for the first entry of a write call
  uint32_t group_count;  // entries of this write call, the same in each of them
  uint32_t payload_crc;  // CRC-32C of the payload
  // In a group's first entry: units back to the group that the same thread committed before, in
  // this use of the pool. 0: there is none, it is too far, or this is not the first entry.
  uint32_t thread_back;
  uint32_t header_crc;  // CRC-32C of the bytes from `position` to here, seeded with the salt
};
static_assert(offsetof(EntryHeader, commit) == 0);
static_assert(offsetof(EntryHeader, position) == 8);
static_assert(offsetof(EntryHeader, offset) == 16);
static_assert(offsetof(EntryHeader, previous) == 24);
static_assert(offsetof(EntryHeader, file) == 32);
static_assert(offsetof(EntryHeader, incarnation) == 36);
static_assert(offsetof(EntryHeader, length) == 40);
static_assert(offsetof(EntryHeader, group_index) == 44);
static_assert(offsetof(EntryHeader, group_count) == 48);
static_assert(offsetof(EntryHeader, payload_crc) == 52);
static_assert(offsetof(EntryHeader, thread_back) == 56);
static_assert(offsetof(EntryHeader, header_crc) == 60);
static_assert(sizeof(EntryHeader) == pool::kUnitSize);

// The salt's high bit is set and positions stay below 2^63, so neither word is ever 0, which is
// what fresh memory holds, and the word names its lap (I5).
constexpr uint64_t CommitWord(Position position, uint64_t salt) { return position ^ salt; }
// Recovery has brought the entry to the disk; it must not be applied again.
constexpr uint64_t AppliedWord(Position position, uint64_t salt) { return ~(position ^ salt); }
// What a writer puts into the word of a group's first header before the rest of it. So a whole
// header with any other word is a damaged one, not one that was never committed.
inline constexpr uint64_t kNotCommitted = 0;

// The first unit of a place that was given up, for as long as the log is in use. To recovery it is
// nothing: it names no position.
struct alignas(pool::kUnitSize) AbandonedGroup {
  uint64_t word;      // AbandonedWord of where it lies
  uint64_t position;  // kNoPosition
  uint64_t units;     // of the whole place
};
// Neither of the words above for any position below 2^62.
constexpr uint64_t AbandonedWord(Position position, uint64_t salt) {
  return position ^ salt ^ uint64_t { 3 } << 62;
}

constexpr uint64_t PayloadUnits(uint64_t length) {
  return (length + pool::kUnitSize - 1) / pool::kUnitSize;
}
// Units that an entry takes, header included.
constexpr uint64_t EntryUnits(uint64_t length) { return 1 + PayloadUnits(length); }

inline constexpr uint64_t kMaxEntryUnits = EntryUnits(pool::kPageSize);

// A write call longer than this is split, like a short write that continues (I2).
inline constexpr uint64_t kMaxGroupBytes = 2u << 20;
inline constexpr uint32_t kMaxGroupEntries = kMaxGroupBytes / pool::kPageSize + 1;
// A group takes at most this share of the log, so that it can always be placed.
inline constexpr uint64_t kMinGroupsInLog = 4;
static_assert(pool::GeometryOf(pool::kMinPoolSize).log_units >=
              kMinGroupsInLog * 2 * kMaxEntryUnits);

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_ENTRY_H_
