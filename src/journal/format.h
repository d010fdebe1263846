// SPDX-License-Identifier: BSD-3-Clause
//
// What lies in a journal's file (docs/disk.md). Numbers are little endian.
//
//   0               two headers, a block each; the newest whole one counts
//   kRingOffset     the ring: two halves of half_size bytes
//
// A half holds batches, one behind the other, each from the beginning of a block. They are numbered
// without a gap, from 1 on, through all laps and all lives of the memory. Behind the last one that
// fits, the next one begins the other half.
#ifndef NVCACHE_JOURNAL_FORMAT_H_
#define NVCACHE_JOURNAL_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::journal {

inline constexpr uint64_t kBlock = 4096;  // is written at once, and never twice in a lap
inline constexpr uint64_t kLine = 64;
inline constexpr uint64_t kHeaders = 2;
inline constexpr uint64_t kRingOffset = kHeaders * kBlock;
inline constexpr uint32_t kVersion = 1;

inline constexpr char kHeaderMagic[8] = {'N', 'V', 'C', 'J', 'O', 'U', 'R', '\n'};
inline constexpr char kBatchMagic[8] = {'N', 'V', 'C', 'B', 'A', 'T', 'C', 'H'};

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_size;  // sizeof(Header)
  uint8_t uuid[16];      // the pool's, for good
  uint8_t run[16];       // of the memory that the pool has; another one for each memory
  uint64_t pool_size;
  uint64_t half_size;
  uint64_t first;     // the first batch of that memory's: all before it were whole when it was made
  uint32_t life;      // counts the memories, from 1 on: block life % 2 has its header
  uint32_t how;       // kWriteThrough or kWriteAndFlush, whichever was faster when it was made
  uint32_t write_ns;  // what one such write took when it was made, the median; for people
  // 1: it has failed, and the files have all that was acknowledged. The ring says nothing any more.
  uint32_t is_void;
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes before it
};
static_assert(offsetof(Header, magic) == 0);
static_assert(offsetof(Header, version) == 8);
static_assert(offsetof(Header, header_size) == 12);
static_assert(offsetof(Header, uuid) == 16);
static_assert(offsetof(Header, run) == 32);
static_assert(offsetof(Header, pool_size) == 48);
static_assert(offsetof(Header, half_size) == 56);
static_assert(offsetof(Header, first) == 64);
static_assert(offsetof(Header, life) == 72);
static_assert(offsetof(Header, how) == 76);
static_assert(offsetof(Header, write_ns) == 80);
static_assert(offsetof(Header, is_void) == 84);
static_assert(offsetof(Header, zero) == 88);
static_assert(offsetof(Header, crc) == 92);
static_assert(sizeof(Header) == 96 && sizeof(Header) <= 512);  // a sector is written whole

// Header::how: a write that is durable when it returns, which the disk may do at once, or slowly;
// or a write and a flush of the disk.
inline constexpr uint32_t kWriteThrough = 0;
inline constexpr uint32_t kWriteAndFlush = 1;

// BatchHeader::flags.
inline constexpr uint32_t kEndsRound = 1;  // with the batches since the last one that ended one
// All that the other half holds, and that is needed still, is in this half.
inline constexpr uint32_t kIsWhole = 2;

// A batch: this; the lines, in the order of the pieces; the pieces; zeros up to a whole block.
struct BatchHeader {
  char magic[8];
  uint64_t sequence;
  uint64_t bound;  // L: groups with an LSN from there on may lack what is older
  uint32_t lines;  // of 64 bytes, all pieces together
  uint32_t pieces;
  uint32_t flags;
  uint32_t previous;  // the body_crc of the batch before
  uint32_t life;      // Header::life
  uint32_t zero[3];
  uint32_t body_crc;  // CRC-32C of lines and pieces, seeded with the header's first 56 bytes' one
  uint32_t crc;       // CRC-32C of the bytes before it, seeded with the uuid's one
};
static_assert(offsetof(BatchHeader, magic) == 0);
static_assert(offsetof(BatchHeader, sequence) == 8);
static_assert(offsetof(BatchHeader, bound) == 16);
static_assert(offsetof(BatchHeader, lines) == 24);
static_assert(offsetof(BatchHeader, pieces) == 28);
static_assert(offsetof(BatchHeader, flags) == 32);
static_assert(offsetof(BatchHeader, previous) == 36);
static_assert(offsetof(BatchHeader, life) == 40);
static_assert(offsetof(BatchHeader, zero) == 44);
static_assert(offsetof(BatchHeader, body_crc) == 56);
static_assert(offsetof(BatchHeader, crc) == 60);
static_assert(sizeof(BatchHeader) == kLine);

// Lines [line, line + count) of the pool.
struct Piece {
  uint32_t line;
  uint32_t count;
};
static_assert(offsetof(Piece, line) == 0);
static_assert(offsetof(Piece, count) == 4);
static_assert(sizeof(Piece) == 8);

inline constexpr uint64_t kMaxBatch = 1u << 20;  // bytes, whole blocks
inline constexpr uint64_t kMaxPoolSize = kLine << 32;

constexpr uint64_t BatchBytes(uint64_t lines, uint64_t pieces) {
  return sizeof(BatchHeader) + lines * kLine + pieces * sizeof(Piece);
}
constexpr uint64_t ToBlocks(uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

// What one round takes at most of `size` bytes of the pool: there is a piece for each line, and
// batches are not quite full.
constexpr uint64_t RoundBytes(uint64_t size) { return size + size / 8 + size / 64 + 4 * kBlock; }
// A half takes one such round, and what is written beside it while that is taken in small parts.
constexpr uint64_t HalfBytes(uint64_t size) {
  return ToBlocks(RoundBytes(size) + size / 8 + 8 * kMaxBatch);
}
constexpr uint64_t FileBytes(uint64_t size) { return kRingOffset + 2 * HalfBytes(size); }

}  // namespace nvcache::journal

#endif  // NVCACHE_JOURNAL_FORMAT_H_
