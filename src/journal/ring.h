// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the ring of a journal that nobody writes to.
//
// The half whose last batch is of the newer life, or the newer one of a life, is the last that was
// begun. The other one counts if the last batch there is the one before it. A power failure cuts
// off one write at most, the last one: so a batch that is not whole before one that is, is damage.
#ifndef NVCACHE_JOURNAL_RING_H_
#define NVCACHE_JOURNAL_RING_H_

#include <cstdint>

#include "src/journal/format.h"

namespace nvcache::journal {

// Where the next batch goes, and what it needs to know.
struct Position {
  uint64_t sequence;  // its own
  uint64_t place;     // in the file
  uint64_t half_end;
  uint32_t previous;  // BatchHeader::previous
  uint32_t half;
  // All that the other half has, and that is needed still, is in this one.
  uint32_t is_whole;
  uint32_t zero;
  uint64_t next_line;  // until then: from there on, lines were not marked again
};

// The beginning of a half, for the batch after one with this sequence and checksum.
inline Position BeginHalf(uint32_t half, uint64_t half_size, uint64_t sequence, uint32_t previous) {
  const uint64_t place = kRingOffset + half * half_size;
  return {sequence, place, place + half_size, previous, half, 0, 0, 0};
}

class Ring {
 public:
  // Reads `fd`, into a buffer of kMaxBatch bytes that begins a page.
  Ring(int fd, const Header& header, uint8_t* buffer);

  enum class Result { kRead, kNothing, kDamaged, kFailed };
  // Applies all batches, up to the last one that ends a round, to the pool at `base`, which is zero
  // before. Sets where the next batch goes, and the last one's bound. kNothing: it holds none;
  // kFailed: error() says why.
  Result Read(uint8_t* base, Position* next, uint64_t* bound);
  long error() const { return error_; }
  // Where the damage is.
  uint64_t damaged_at() const { return damaged_at_; }

 private:
  struct Half {
    bool begins;  // with a whole batch, which is `first`
    BatchHeader first;
    uint64_t batches;  // in a row
    BatchHeader last;
    uint64_t end;     // of the last one
    uint64_t rounds;  // batches up to the last one that ends a round
    BatchHeader round;
    uint64_t round_end;
  };

  uint64_t Begin(uint32_t half) const { return kRingOffset + half * half_size_; }
  uint64_t End(uint32_t half) const { return Begin(half) + half_size_; }
  bool ReadBlocks(uint64_t place, uint64_t bytes, uint64_t at);
  bool ReadHeader(uint64_t place, uint64_t end, BatchHeader* header);
  bool ReadBatch(uint64_t place, uint64_t end, BatchHeader* header);
  template <typename Function>
  void Walk(uint32_t half, uint64_t most, Function function);
  Half Look(uint32_t half, uint64_t limit);
  static uint32_t Newer(const Half (&halves)[2]);
  bool HasLater(uint64_t place, uint64_t end, uint64_t sequence);
  Result Damaged(uint64_t place);

  const int fd_;
  const uint64_t pool_size_;
  const uint64_t half_size_;
  const uint64_t first_;
  const uint32_t life_;
  const uint32_t seed_;
  uint8_t* const buffer_;
  long error_ = 0;
  uint64_t damaged_at_ = 0;
};

}  // namespace nvcache::journal

#endif  // NVCACHE_JOURNAL_RING_H_
