// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that all images and copies of a server may have together. Bytes of address space are
// counted, not those that were written: so a copy that was begun can be finished.
#ifndef NVCACHE_MIRROR_STORE_BUDGET_H_
#define NVCACHE_MIRROR_STORE_BUDGET_H_

#include <cstdint>

namespace nvcache::mirror {

class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}

  bool Take(uint64_t bytes) {
    if (used_ > limit_ || bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  // Counts bytes that are there already.
  void TakeAnyway(uint64_t bytes) { used_ += bytes; }
  void Give(uint64_t bytes) { used_ -= bytes; }

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_; }

 private:
  uint64_t limit_;
  uint64_t used_ = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_BUDGET_H_
