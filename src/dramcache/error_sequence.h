// SPDX-License-Identifier: BSD-3-Clause
//
// Counts errors, and who has heard of them, as the kernel's errseq_t does: each open file
// description hears once of every error that came while it was open, or that nobody had heard of
// when it was opened.
#ifndef NVCACHE_DRAMCACHE_ERROR_SEQUENCE_H_
#define NVCACHE_DRAMCACHE_ERROR_SEQUENCE_H_

#include <atomic>
#include <cstdint>

namespace nvcache::dramcache {

class ErrorSequence {
 public:
  void Clear() { word_.store(0); }

  void Set(int error) {
    uint32_t old = word_.load(), next;
    do {
      next = (old & ~(kError | kSeen)) | static_cast<uint32_t>(error);
      if ((old & kSeen) != 0 || old == 0) next += kOne;
    } while (!word_.compare_exchange_weak(old, next));
  }

  // Where a new description begins.
  uint32_t Sample() const {
    const uint32_t word = word_.load();
    return (word & kSeen) != 0 ? word : 0;
  }

  // The error that came since `*since`, which moves on; or 0.
  int Take(std::atomic<uint32_t>* since) {
    uint32_t word = word_.load();
    if (word == since->load()) return 0;
    word_.compare_exchange_strong(word, word | kSeen);
    const uint32_t before = since->exchange(word | kSeen);
    return (before | kSeen) == (word | kSeen) ? 0 : static_cast<int>(word & kError);
  }

 private:
  static constexpr uint32_t kError = (1u << 12) - 1;  // errno
  static constexpr uint32_t kSeen = 1u << 12;
  static constexpr uint32_t kOne = 1u << 13;

  std::atomic<uint32_t> word_{0};
};

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_ERROR_SEQUENCE_H_
