// SPDX-License-Identifier: BSD-3-Clause
//
// Which lines of a memory have to be written to its journal (docs/disk.md): three levels of bits,
// in memory that all processes share which use it. A bit of the lowest level is a line of 64 bytes,
// one above it is a word below: 64 lines, 4,096, 262,144.
//
// Marks are set from below and taken from above. An upper bit is set unless it is seen set *after*
// the bit below it was: whoever takes it then finds that bit. It would not be enough to set it
// where the word below was empty: whoever found that word empty may be stopped before he sets it,
// and everybody else would rely on him.
#ifndef NVCACHE_PMEM_MARKS_H_
#define NVCACHE_PMEM_MARKS_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace nvcache::pmem {

class Marks {
 public:
  static constexpr uint64_t kWordBits = 64;

  constexpr Marks() = default;
  // Each level lies at its place, aligned to words, and is zero when the memory is new.
  Marks(uint64_t* lines, uint64_t* words, uint64_t* groups, uint64_t count)
      : lines_(lines), words_(words), groups_(groups), count_(count) {}

  // Of a memory with so many lines, each level has so many words.
  static constexpr uint64_t LineWords(uint64_t lines) { return Words(lines); }
  static constexpr uint64_t WordWords(uint64_t lines) { return Words(Words(lines)); }
  static constexpr uint64_t GroupWords(uint64_t lines) { return Words(Words(Words(lines))); }

  uint64_t count() const { return count_; }

  // Marks the lines [first, first + n). What was stored to them before is stored for whoever takes
  // the marks.
  void Set(uint64_t first, uint64_t n) const;

  // Calls function(index, bits) for each word of the middle level, by its index, of which a bit is
  // set; it is taken. Set() goes on meanwhile.
  template <typename Function>
  void TakeWords(Function function) const {
    for (uint64_t group = 0; group < GroupWords(count_); ++group) {
      const auto above = At(groups_, group);
      uint64_t bits = above.load(std::memory_order_relaxed) == 0 ? 0 : above.exchange(0);
      for (; bits != 0; bits &= bits - 1) {
        const uint64_t index = group * kWordBits + static_cast<uint64_t>(std::countr_zero(bits));
        if (const uint64_t taken = At(words_, index).exchange(0); taken != 0)
          function(index, taken);
      }
    }
  }
  // Takes those of these bits that are set in a word of the middle level.
  uint64_t TakeWord(uint64_t index, uint64_t bits) const {
    const auto word = At(words_, index);
    return (word.load() & bits) == 0 ? 0 : word.fetch_and(~bits) & bits;
  }
  // The marks of 64 lines, from line `word` * 64 on, and what makes them none.
  uint64_t LinesOf(uint64_t word) const { return At(lines_, word).load(); }
  void ClearLines(uint64_t word, uint64_t bits) const { At(lines_, word).fetch_and(~bits); }
  void SetLines(uint64_t word, uint64_t bits) const;
  // Somebody has died who was taking marks: those of lines are all that is right.
  void SetAllAbove() const;
  // Nothing is marked, as far as anybody can tell who has stored something before.
  bool IsEmpty() const;

 private:
  static constexpr uint64_t Words(uint64_t bits) { return (bits + kWordBits - 1) / kWordBits; }
  static std::atomic_ref<uint64_t> At(uint64_t* level, uint64_t index) {
    return std::atomic_ref(level[index]);
  }
  static void SetIfClear(uint64_t* level, uint64_t bit);

  uint64_t* lines_ = nullptr;
  uint64_t* words_ = nullptr;
  uint64_t* groups_ = nullptr;
  uint64_t count_ = 0;
};

}  // namespace nvcache::pmem

#endif  // NVCACHE_PMEM_MARKS_H_
