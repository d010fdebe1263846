// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_TABLE_H_
#define NVCACHE_SYS_TABLE_H_

#include <cstdint>
#include <utility>

#include "src/sys/memory.h"

namespace nvcache::sys {

// Elements that are zero at first, in address space for so many. None is constructed or destroyed.
template <typename T>
class Table {
 public:
  Table() = default;
  ~Table() {
    if (elements_ != nullptr) UnmapUnlocked(elements_, max_ * sizeof(T));
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // False without memory.
  bool Open(uint64_t max) {
    max_ = max;
    elements_ = static_cast<T*>(Reserve(max * sizeof(T)));
    return elements_ != nullptr;
  }
  void Swap(Table& other) {
    std::swap(elements_, other.elements_);
    std::swap(max_, other.max_);
    std::swap(count_, other.count_);
  }

  // The number of the first of `n` more that are in use.
  uint32_t Add(uint32_t n = 1) { return count_ += n, count_ - n; }
  uint32_t count() const { return count_; }
  uint64_t max() const { return max_; }
  T& operator[](uint64_t i) { return elements_[i]; }
  const T& operator[](uint64_t i) const { return elements_[i]; }

 private:
  T* elements_ = nullptr;
  uint64_t max_ = 0;
  uint32_t count_ = 0;
};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_TABLE_H_
