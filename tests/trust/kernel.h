// SPDX-License-Identifier: BSD-3-Clause
//
// What Linux tells of a disk that refuses (lib/errseq.c): each open file of the file system hears
// once of an error that came after it was opened, and of one from before that nobody had heard of.
// The bytes are clean then, and on no disk.
#ifndef NVCACHE_TESTS_TRUST_KERNEL_H_
#define NVCACHE_TESTS_TRUST_KERNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nvcache::trust {

// A write has a number of its own, which it leaves in its byte; 0 is what was there at first.
using Number = uint32_t;
inline constexpr size_t kBytes = 3;

struct Descriptor {
  uint64_t heard = 0;  // errors
};

class Kernel {
 public:
  void Write(size_t byte, Number number) {
    cache_[byte] = number;
    dirty_[byte].push_back(number);
  }
  // The kernel writes the byte's page, if it is dirty.
  void Flush(size_t byte, bool fails) {
    if (dirty_[byte].empty()) return;
    if (!fails) disk_[byte] = cache_[byte];
    dirty_[byte].clear();
    if (!fails) return;
    if (seen_) ++errors_;
    seen_ = false;
  }
  Descriptor Open() const { return {seen_ ? errors_ : errors_ - 1}; }
  // At the end of a sync: EIO.
  bool Tells(Descriptor* descriptor) {
    const bool tells = HasNews(*descriptor);
    descriptor->heard = errors_;
    if (tells) seen_ = true;
    return tells;
  }
  bool HasNews(const Descriptor& descriptor) const { return descriptor.heard != errors_; }
  bool seen() const { return seen_; }

  // What a power failure may leave of a byte.
  std::vector<Number> Left(size_t byte) const {
    std::vector<Number> left = dirty_[byte];
    left.push_back(disk_[byte]);
    return left;
  }

 private:
  std::array<Number, kBytes> cache_ = {}, disk_ = {};
  std::array<std::vector<Number>, kBytes> dirty_;
  uint64_t errors_ = 0;
  bool seen_ = true;  // somebody has heard of the last one
};

}  // namespace nvcache::trust

#endif  // NVCACHE_TESTS_TRUST_KERNEL_H_
