// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_NVLOG_BYTE_SET_H_
#define NVCACHE_NVLOG_BYTE_SET_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "src/pool/format.h"

namespace nvcache::nvlog {

// A set of the bytes of one page. Overlaying records newest first, it says which bytes of an older
// one still count.
class ByteSet {
 public:
  static constexpr size_t kSize = pool::kPageSize;

  bool full() const { return count_ == kSize; }
  bool Contains(size_t begin, size_t end) const { return Next(begin, end, false) == end; }

  // Adds [begin, end) and calls function(from, to) for each run that was not in the set.
  template <typename Function>
  void Add(size_t begin, size_t end, Function function) {
    for (size_t from = Next(begin, end, false); from < end;) {
      const size_t to = Next(from, end, true);
      Insert(from, to);
      function(from, to);
      from = Next(to, end, false);
    }
  }

  // Calls function(from, to) for each maximal run in the set.
  template <typename Function>
  void ForEachRun(Function function) const {
    for (size_t from = Next(0, kSize, true); from < kSize;) {
      const size_t to = Next(from, kSize, false);
      function(from, to);
      from = Next(to, kSize, true);
    }
  }

 private:
  // The first byte in [at, end) that is in the set (member) or is not; `end` if there is none.
  size_t Next(size_t at, size_t end, bool member) const {
    while (at < end) {
      uint64_t word = words_[at / 64];
      if (!member) word = ~word;
      word &= ~uint64_t{0} << (at % 64);
      if (word != 0) {
        const size_t found = at / 64 * 64 + static_cast<size_t>(std::countr_zero(word));
        return found < end ? found : end;
      }
      at = (at / 64 + 1) * 64;
    }
    return end;
  }
  void Insert(size_t from, size_t to) {
    count_ += to - from;
    for (size_t word = from / 64; word * 64 < to; ++word) {
      uint64_t mask = ~uint64_t{0};
      if (from > word * 64) mask <<= from - word * 64;
      if (to < (word + 1) * 64) mask &= ~(~uint64_t{0} << (to - word * 64));
      words_[word] |= mask;
    }
  }

  uint64_t words_[kSize / 64] = {};
  size_t count_ = 0;
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_BYTE_SET_H_
