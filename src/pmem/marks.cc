// SPDX-License-Identifier: BSD-3-Clause
#include "src/pmem/marks.h"

#include <algorithm>

namespace nvcache::pmem {

void Marks::SetIfClear(uint64_t* level, uint64_t bit) {
  const uint64_t mask = uint64_t{1} << bit % kWordBits;
  const std::atomic_ref<uint64_t> word = At(level, bit / kWordBits);
  if ((word.load() & mask) == 0) word.fetch_or(mask);
}

// The first operation is a full barrier: what was stored before it is seen by whoever sees the
// bits, stores around the cache included; and the upper bits are looked at after it.
void Marks::SetLines(uint64_t word, uint64_t bits) const {
  At(lines_, word).fetch_or(bits);
  SetIfClear(words_, word);
  SetIfClear(groups_, word / kWordBits);
}

void Marks::Set(uint64_t first, uint64_t n) const {
  for (const uint64_t end = std::min(first + n, count_); first < end;) {
    const uint64_t bit = first % kWordBits, lines = std::min(kWordBits - bit, end - first);
    SetLines(first / kWordBits, (~uint64_t{0} >> (kWordBits - lines)) << bit);
    first += lines;
  }
}

// From below: who takes a word afterwards finds all that is set in it.
void Marks::SetAllAbove() const {
  const auto set = [](uint64_t* level, uint64_t bits) {
    for (uint64_t i = 0; i < Words(bits); ++i) {
      const uint64_t left = bits - i * kWordBits;
      At(level, i).fetch_or(left >= kWordBits ? ~uint64_t{0} : (uint64_t{1} << left) - 1);
    }
  };
  set(words_, Words(count_));
  set(groups_, Words(Words(count_)));
}

bool Marks::IsEmpty() const {
  const uint64_t groups = GroupWords(count_);
  return std::all_of(groups_, groups_ + groups,
                     [](uint64_t& group) { return std::atomic_ref(group).load() == 0; });
}

}  // namespace nvcache::pmem
