// SPDX-License-Identifier: BSD-3-Clause
//
// What calls do to a file's bytes, and what is left of writes after a kill: each that has returned
// is there and, of one that had not, all bytes or none.
#ifndef NVCACHE_TESTS_KIT_ACKNOWLEDGED_H_
#define NVCACHE_TESTS_KIT_ACKNOWLEDGED_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tests/kit/random.h"

namespace nvcache::kit {

// `file`: a string or a vector. It grows as far as that is written.
template <typename File>
void Put(File* file, uint64_t at, const void* bytes, uint64_t n) {
  if (file->size() < at + n) file->resize(at + n);
  std::memcpy(file->data() + at, bytes, n);
}

// Zeros, but none beyond its end.
template <typename File>
void Erase(File* file, uint64_t at, uint64_t n) {
  const uint64_t end = std::min<uint64_t>(at + n, file->size());
  if (at < end) std::memset(file->data() + at, 0, end - at);
}

// The bytes number `at` to `at + length` of the write that has this id.
inline void Fill(uint64_t id, uint64_t at, uint8_t* bytes, uint64_t length) {
  const uint64_t seed = Mix(id);
  for (uint64_t done = 0, n; done < length; done += n) {
    const uint64_t begin = (at + done) % 8;
    const uint64_t word = Mix(seed + (at + done) / 8) >> 8 * begin;
    n = std::min(8 - begin, length - done);
    std::memcpy(bytes + done, &word, n);
  }
}
inline std::vector<uint8_t> Content(uint64_t id, uint64_t length) {
  std::vector<uint8_t> bytes(length);
  Fill(id, 0, bytes.data(), length);
  return bytes;
}

// A file's bytes lie where their owner has them: in memory that outlives a process, perhaps.
class Acknowledged {
 public:
  // `bytes`: as many as the file may ever have. `size`: how many it has.
  Acknowledged(uint8_t* bytes, uint64_t* size) : bytes_(bytes), size_(size) {}

  // A write that has returned.
  void Take(uint64_t id, uint64_t at, uint64_t length) {
    Fill(id, 0, bytes_ + at, length);
    *size_ = std::max(*size_, at + length);
  }
  // One that had not, if all of it is in what is left of the file. Whether it is.
  bool TakeIfWhole(uint64_t id, uint64_t at, uint64_t length, std::span<const uint8_t> left) {
    if (at + length > left.size()) return false;
    const std::vector<uint8_t> wanted = Content(id, length);
    const bool whole = std::ranges::equal(wanted, left.subspan(at, length));
    if (whole) Take(id, at, length);
    return whole;
  }

 private:
  uint8_t* bytes_;
  uint64_t* size_;
};

}  // namespace nvcache::kit

#endif  // NVCACHE_TESTS_KIT_ACKNOWLEDGED_H_
