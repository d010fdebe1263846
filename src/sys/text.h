// SPDX-License-Identifier: BSD-3-Clause
//
// Text in a fixed buffer, for one-line messages and paths. A text that does not fit is cut.
#ifndef NVCACHE_SYS_TEXT_H_
#define NVCACHE_SYS_TEXT_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::sys {

inline size_t Length(const char* s) {
  size_t n = 0;
  for (; s[n] != '\0'; ++n) asm volatile("");  // or GCC makes a call of strlen out of this
  return n;
}

inline bool Equal(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

template <size_t kCapacity>
class Text {
 public:
  void Clear() {
    size_ = 0;
    buffer_[0] = '\0';
  }
  Text& Append(const char* s, size_t limit = kCapacity) {
    while (*s != '\0' && limit-- > 0 && size_ + 1 < kCapacity) buffer_[size_++] = *s++;
    buffer_[size_] = '\0';
    return *this;
  }
  Text& AppendNumber(uint64_t value) {
    char digits[21];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
    } while ((value /= 10) != 0);
    return Append(digits + at);
  }
  const char* c_str() const { return buffer_; }
  size_t size() const { return size_; }

 private:
  char buffer_[kCapacity] = {};
  size_t size_ = 0;
};

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_TEXT_H_
