// SPDX-License-Identifier: BSD-3-Clause
//
// Verdicts on objects, in memory that processes share: so an object is looked at once, and not by
// each process that has it. A word has a key, which is a hash, and the verdict in its two lowest
// bits. What was written by another version of the rules is not found.
#ifndef NVCACHE_RAWCALL_VERDICTS_H_
#define NVCACHE_RAWCALL_VERDICTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/rawcall/search.h"

namespace nvcache::rawcall {

using KeptVerdict = std::atomic<uint64_t>;

class Verdicts {
 public:
  Verdicts(KeptVerdict* words, size_t count) : words_(words), count_(count) {}

  Verdict Find(uint64_t key) const {
    for (size_t i = 0; i < kPlaces && i < count_; ++i) {
      const uint64_t word = words_[Place(key, i)].load(std::memory_order_relaxed);
      if ((word & ~kVerdictBits) == Mark(key)) return static_cast<Verdict>(word & kVerdictBits);
    }
    return Verdict::kUnknown;
  }

  // In a free place, or in that of another object.
  void Keep(uint64_t key, Verdict verdict) {
    if (count_ == 0) return;
    const uint64_t word = Mark(key) | static_cast<uint64_t>(verdict);
    for (size_t i = 0; i < kPlaces && i < count_; ++i) {
      uint64_t none = 0;
      if (words_[Place(key, i)].compare_exchange_strong(none, word)) return;
    }
    words_[Place(key, (key >> 8) % kPlaces)].store(word, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kVerdictBits = 3;
  static constexpr uint64_t kRules = 3;  // grows with each change of what is found
  static constexpr size_t kPlaces = 8;

  static uint64_t Mark(uint64_t key) { return (key ^ kRules << 8) & ~kVerdictBits; }
  size_t Place(uint64_t key, size_t i) const { return (key >> 32 ^ i) % count_; }

  KeptVerdict* words_;
  size_t count_;
};

}  // namespace nvcache::rawcall

#endif  // NVCACHE_RAWCALL_VERDICTS_H_
