// SPDX-License-Identifier: BSD-3-Clause
//
// One batch of a journal (format.h), made and checked.
#ifndef NVCACHE_JOURNAL_BATCH_H_
#define NVCACHE_JOURNAL_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "src/journal/format.h"

namespace nvcache::journal {

// What the checksums of all batches of a journal begin with.
uint32_t SeedOf(const uint8_t (&uuid)[16]);

// Makes a batch in memory of kMaxBatch bytes, while others may be storing to the lines.
class BatchMaker {
 public:
  // `pieces` has room for kMaxPieces.
  static constexpr uint64_t kMaxPieces = kMaxBatch / (kLine + sizeof(Piece));
  BatchMaker(uint8_t* bytes, Piece* pieces) : bytes_(bytes), pieces_(pieces) {}

  void Begin() { lines_ = piece_count_ = 0; }
  bool is_empty() const { return lines_ == 0; }
  // So many lines more fit, wherever they lie.
  bool HasRoom(uint64_t lines) const {
    return BatchBytes(lines_ + lines, piece_count_ + lines) <= kMaxBatch;
  }
  // Adds lines [line, line + count) of the pool at `base`.
  void Add(const uint8_t* base, uint64_t line, uint64_t count);
  // Adds those lines of the 64 from `first` on whose bits are set.
  void AddMarked(const uint8_t* base, uint64_t first, uint64_t bits);
  // Takes out again what was added after end() was called. The first of that was no neighbour of
  // the last one before.
  struct Extent {
    uint32_t lines;
    uint32_t pieces;
  };
  Extent end() const { return {lines_, piece_count_}; }
  void CutTo(const Extent& end);
  // The batch is as long as this, in whole blocks.
  uint64_t size() const { return ToBlocks(BatchBytes(lines_, piece_count_)); }
  // Makes it whole. `header` has its sequence, bound, flags and previous; the rest is filled in.
  void End(uint32_t seed, BatchHeader* header);

 private:
  uint8_t* bytes_;
  Piece* pieces_;
  uint32_t lines_ = 0;
  uint32_t piece_count_ = 0;
};

// A header that its checksum covers; what it says fits into a batch.
bool IsHeader(const BatchHeader& header, uint32_t seed);
constexpr uint64_t SizeOf(const BatchHeader& header) {
  return ToBlocks(BatchBytes(header.lines, header.pieces));
}
// The whole batch at `bytes`, which begins with such a header, is as it was written, and its pieces
// lie in a pool of `pool_size` bytes.
bool IsWhole(const uint8_t* bytes, uint64_t pool_size);
// Puts its lines into the pool at `base`.
void Apply(const uint8_t* bytes, uint8_t* base);

}  // namespace nvcache::journal

#endif  // NVCACHE_JOURNAL_BATCH_H_
