// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of a pool at level `disk` (docs/disk.md): a file with the pool, and behind that what
// the processes share to write its journal.
#ifndef NVCACHE_POOL_JOURNAL_MEMORY_H_
#define NVCACHE_POOL_JOURNAL_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "src/journal/batch.h"
#include "src/journal/ring.h"
#include "src/pmem/marks.h"
#include "src/pool/layout.h"

namespace nvcache::pool {

inline constexpr char kMemoryMagic[8] = {'N', 'V', 'C', 'M', 'E', 'M', '2', '\n'};

// Every field behind `boot` is accessed as an atomic, but for what the leader alone looks at.
struct alignas(64) JournalControl {
  char magic[8];
  uint8_t uuid[16];
  uint8_t run[16];   // journal::Header::run
  uint8_t boot[16];  // the kernel's run in which this memory was made

  // The leader's. One of the positions counts: so it changes by one store.
  alignas(64) journal::Position positions[2];
  uint32_t position;
  uint32_t life;        // journal::Header::life
  uint32_t leads;       // somebody leads, or has died leading
  uint32_t taken;       // so many marks are in the list: taken, and not in the journal yet
  uint64_t quiet;       // no group has an LSN from there on and lines in the journal; 0: not known
  uint64_t last_round;  // bytes of the round before
  uint64_t every_line;  // 1: nobody has said yet which segments are in use
  uint64_t round;       // place of the first batch since the last one that has ended a round
  // Who waits together goes on together (JournalLeader::Gather): the bell when the round before was
  // begun, how many it served, how long its writes took, and for how long it pays to wait for them.
  uint32_t bell;
  uint32_t served;
  uint64_t took_ns;
  uint64_t patience_ns;

  // Rounds that were begun, and that are in the journal. What was marked before `begun` went up is
  // in the journal when `done` has reached it.
  alignas(64) uint64_t begun;
  uint64_t done;
  Lsn cut;          // groups from there on are not to be believed; 0: all are
  uint32_t failed;  // errno of a write
  uint32_t unused;

  // For people.
  alignas(64) uint64_t batches;
  uint64_t rounds;
  uint64_t bytes;
};
static_assert(sizeof(JournalControl) <= kPageSize);

// A mark that was taken: of the lines of one word of the marks.
struct TakenMarks {
  uint64_t word;
  uint64_t bits;
};

// Where the parts lie, in the memory of a pool of `pool_size` bytes at `base`.
class JournalMemory {
 public:
  JournalMemory() = default;
  JournalMemory(uint8_t* base, uint64_t pool_size) : base_(base), pool_size_(pool_size) {}

  static constexpr uint64_t Bytes(uint64_t pool_size) {
    return BufferOffset(pool_size) + journal::kMaxBatch;
  }
  uint8_t* base() const { return base_; }
  uint64_t pool_size() const { return pool_size_; }
  JournalControl& control() const { return *At<JournalControl>(pool_size_); }
  pmem::Marks marks() const {
    const uint64_t lines = pool_size_ / pmem_line;
    return {At<uint64_t>(LinesOffset(pool_size_)), At<uint64_t>(WordsOffset(pool_size_)),
            At<uint64_t>(GroupsOffset(pool_size_)), lines};
  }
  // Words of the middle level that a round has taken: pairs, as TakenMarks.
  TakenMarks* words() const { return At<TakenMarks>(TakenWordsOffset(pool_size_)); }
  TakenMarks* taken() const { return At<TakenMarks>(ListOffset(pool_size_)); }
  journal::Piece* pieces() const { return At<journal::Piece>(PiecesOffset(pool_size_)); }
  uint8_t* buffer() const { return At<uint8_t>(BufferOffset(pool_size_)); }

 private:
  using Marks = pmem::Marks;
  static constexpr uint64_t pmem_line = 64;
  static constexpr uint64_t kWord = sizeof(uint64_t);

  static constexpr uint64_t Up(uint64_t bytes) {
    return (bytes + kPageSize - 1) / kPageSize * kPageSize;
  }
  static constexpr uint64_t GroupsOffset(uint64_t size) { return size + kPageSize; }
  static constexpr uint64_t WordsOffset(uint64_t size) {
    return GroupsOffset(size) + Up(Marks::GroupWords(size / pmem_line) * kWord);
  }
  static constexpr uint64_t LinesOffset(uint64_t size) {
    return WordsOffset(size) + Up(Marks::WordWords(size / pmem_line) * kWord);
  }
  static constexpr uint64_t TakenWordsOffset(uint64_t size) {
    return LinesOffset(size) + Up(Marks::LineWords(size / pmem_line) * kWord);
  }
  static constexpr uint64_t ListOffset(uint64_t size) {
    return TakenWordsOffset(size) + Up(Marks::WordWords(size / pmem_line) * sizeof(TakenMarks));
  }
  // A batch takes a line of each word, at least.
  static constexpr uint64_t PiecesOffset(uint64_t size) {
    return ListOffset(size) + Up(journal::BatchMaker::kMaxPieces * sizeof(TakenMarks));
  }
  static constexpr uint64_t BufferOffset(uint64_t size) {
    return PiecesOffset(size) + Up(journal::BatchMaker::kMaxPieces * sizeof(journal::Piece));
  }
  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  uint8_t* base_ = nullptr;
  uint64_t pool_size_ = 0;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_JOURNAL_MEMORY_H_
