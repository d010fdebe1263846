// SPDX-License-Identifier: BSD-3-Clause
//
// Records, which lie in segments.
//
// A log is the sequence of the segments that it has taken, by generation. In each, records lie one
// behind the other, from the unit after the segment's header on: a header of one unit, then the
// kind's payload, in whole units. A place names a unit of the pool.
//
// The records of one call form a group. They have one LSN, count together or not at all (I2), and
// lie one behind the other in their log: a group that does not fit into what is left of a segment
// goes on at the beginning of the log's next one. Only a single data record is cut in two by that,
// at a page of its file.
//
// A segment explains itself: the first record in it about a file is preceded by a file record,
// which gives the file a number. A number may name another file later in the same segment.
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
// One thread at a time appends to a log, and the next group comes after the PSYNC of the one
// before. So a group that is not whole is damaged if its log goes on behind it, in this segment or
// in the next; else it is unfinished, as a power failure leaves the group of a call that had not
// returned.
//
// The log's next group is written over records that were never committed. LSNs only go up in a log,
// so a reader knows the remains of a group by its LSN, and those of the segment's former lives by
// the life that each header names. LSNs do not tell: kept records have older ones than what was
// there before, from whichever process.
#ifndef NVCACHE_NVLOG_RECORD_H_
#define NVCACHE_NVLOG_RECORD_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/format.h"
#include "src/pool/name_record.h"

namespace nvcache::nvlog {

using pool::Lsn;

// Segment number * units of a segment + unit in the segment. 0 is a segment's header: no record.
using Place = uint64_t;
inline constexpr Place kNoPlace = 0;

enum class Kind : uint16_t {
  kData = 1,      // `length` bytes are written at `offset`
  kFile = 2,      // `file` is the number of the file that the payload names (pool::FileRecord)
  kTruncate = 3,  // the file's size becomes `offset`; no payload
  kErase = 4,     // `length` bytes from `offset` on become zero, its size stays; no payload
  kSettled = 5,   // in a write-through log: groups of the file in such logs, of whichever seat,
                  // whose LSN is below `offset`, are on the disk, or hidden there; no payload
  kHandedOver =
      6,      // in a log of write-back: the kernel has what the file's groups below it say that
              // lie in such logs, of whichever seat, and others may have changed the file
              // since. So these count as if they were of write-through, and had the LSN of this
              // one: as long as neither the checkpoint of write-through nor the bound of a
              // kSettled is above that. They are applied in the place of their own; no payload
  kName = 7,  // in a write-through log: names have changed, as the payload says (pool::NameRecord);
              // `file` is nothing
};

// Whether a record of the kind changes its file.
constexpr bool IsChange(Kind kind) {
  return kind == Kind::kData || kind == Kind::kTruncate || kind == Kind::kErase;
}

struct alignas(pool::kUnitSize) RecordHeader {
  uint64_t commit;  // one of the words below, of its LSN; anything else: not committed
  // kData of one page: the page's pending record before this one, of use to the running process
  // alone; records of more pages have such links in units of their own. kName that says kCreated:
  // the fingerprint of what recovery made in place of what was lost; else 0. Not in a checksum.
  uint64_t link;
  Lsn lsn;
  uint64_t offset;       // bytes
  uint64_t length;       // bytes; of kFile, of the payload
  uint32_t file;         // number
  uint32_t payload_crc;  // CRC-32C of the payload; 0 without one
  Kind kind;
  uint16_t index;  // in the group
  uint16_t count;  // records of the group, the same in each of them
  uint16_t zero;
  uint32_t life;        // LifeOf() the segment's generation
  uint32_t header_crc;  // CRC-32C of the place, the segment's generation and the bytes from `lsn`
                        // to here, seeded with the salt's low half
};
static_assert(offsetof(RecordHeader, commit) == 0);
static_assert(offsetof(RecordHeader, link) == 8);
static_assert(offsetof(RecordHeader, lsn) == 16);
static_assert(offsetof(RecordHeader, offset) == 24);
static_assert(offsetof(RecordHeader, length) == 32);
static_assert(offsetof(RecordHeader, file) == 40);
static_assert(offsetof(RecordHeader, payload_crc) == 44);
static_assert(offsetof(RecordHeader, kind) == 48);
static_assert(offsetof(RecordHeader, index) == 50);
static_assert(offsetof(RecordHeader, count) == 52);
static_assert(offsetof(RecordHeader, life) == 56);
static_assert(offsetof(RecordHeader, header_crc) == 60);
static_assert(sizeof(RecordHeader) == pool::kUnitSize);

// The salt's high bit is set and LSNs stay below 2^62, so neither word is ever 0, which is what
// fresh memory holds, and a word names its group (I5).
constexpr uint64_t CommitWord(Lsn lsn, uint64_t salt) { return lsn ^ salt; }
// In a group's first record: the group counts no more. It is on the disk, or newer records hide
// it, or it was copied once more.
constexpr uint64_t VoidWord(Lsn lsn, uint64_t salt) { return ~(lsn ^ salt); }
inline constexpr uint64_t kNotCommitted = 0;

// ---- Sizes, in units

constexpr uint64_t UnitsOf(uint64_t bytes) {
  return (bytes + pool::kUnitSize - 1) / pool::kUnitSize;
}

// A data record's payload: the bytes of each page of the file, in whole units, one page behind the
// other. So each page's bytes begin a unit; only those of the first can be fewer than a page and
// followed by others.
inline constexpr uint64_t kUnitsPerPage = UnitsOf(pool::kPageSize);

constexpr uint64_t PagesOf(uint64_t offset, uint64_t length) {  // length > 0
  return (offset + length - 1) / pool::kPageSize - offset / pool::kPageSize + 1;
}
// Calls function(page) for each page that a data record writes.
template <typename Function>
void ForEachPage(const RecordHeader& header, Function function) {
  const uint64_t first = header.offset / pool::kPageSize;
  const uint64_t count = PagesOf(header.offset, header.length);
  for (uint64_t page = first; page < first + count; ++page) function(page);
}
// A data record of more than one page has links, 8 bytes for each, between header and payload.
constexpr uint64_t LinkUnits(uint64_t pages) { return pages > 1 ? UnitsOf(pages * 8) : 0; }
// Bytes of the first page.
constexpr uint64_t FirstLength(uint64_t offset, uint64_t length) {
  const uint64_t rest = pool::kPageSize - offset % pool::kPageSize;
  return length < rest ? length : rest;
}
constexpr uint64_t DataUnits(uint64_t offset, uint64_t length) {
  const uint64_t first = FirstLength(offset, length);
  return 1 + LinkUnits(PagesOf(offset, length)) + UnitsOf(first) + UnitsOf(length - first);
}
// The units of any record with a sane header, its own included.
constexpr uint64_t RecordUnits(const RecordHeader& header) {
  switch (header.kind) {
    case Kind::kData:
      return DataUnits(header.offset, header.length);
    case Kind::kFile:
    case Kind::kName:
      return 1 + UnitsOf(header.length);
    default:
      return 1;
  }
}

// A write call longer than this is split, like a short write that continues (I2).
inline constexpr uint64_t kMaxGroupBytes = 2u << 20;
inline constexpr uint64_t kMaxGroupPages = kMaxGroupBytes / pool::kPageSize + 1;
// Units of a segment before its first record, and behind its last one.
inline constexpr uint64_t kFirstUnit = 1;
inline constexpr uint64_t kLastUnits = 1;
inline constexpr uint64_t kMaxFileUnits = 1 + UnitsOf(sizeof(pool::FileRecord));
inline constexpr uint64_t kMaxNameUnits = 1 + UnitsOf(sizeof(pool::NameRecord));
static_assert(pool::kMinSegmentSize / pool::kUnitSize >= kFirstUnit + kLastUnits + kMaxNameUnits);
// In every segment that a group reaches: a file record, and data of one page at least.
static_assert(pool::kMinSegmentSize / pool::kUnitSize >=
              2 * (kFirstUnit + kLastUnits + kMaxFileUnits + DataUnits(0, pool::kPageSize)));
// The most records of a group: a file record and a data record in each segment that it reaches.
inline constexpr uint64_t kMaxGroupRecords = 2 * (kMaxGroupBytes / (pool::kMinSegmentSize / 2) + 2);

// False for a record that no writer makes any more, even with a right checksum. `units`: those of
// the segment that the record begins in, from its header to the segment's end.
bool IsSane(const RecordHeader& header, uint64_t units);

// The life of its segment that a header is of, whatever became of the rest of it. A segment's
// generations only go up, and two that are alike here have 2^32 LSNs between them.
constexpr uint32_t LifeOf(Lsn generation) { return static_cast<uint32_t>(generation); }

// `generation`: of the segment. No header of a former life is whole with it.
uint32_t HeaderCrc(const RecordHeader& header, Place place, Lsn generation, uint64_t salt);
// Commit word, life and checksum of a header that has all the rest.
void Seal(RecordHeader* header, Place place, Lsn generation, uint64_t salt);

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_RECORD_H_
