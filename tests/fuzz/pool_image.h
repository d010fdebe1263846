// SPDX-License-Identifier: BSD-3-Clause
//
// A pool as bytes, and damage to it: what the fuzzer's input says, step by step. Plain damage dies
// at a checksum; so most steps change a field and make the checksum right again, as a person would
// who wants to mislead recovery.
#ifndef NVCACHE_TESTS_FUZZ_POOL_IMAGE_H_
#define NVCACHE_TESTS_FUZZ_POOL_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/nvlog/entry.h"
#include "src/pool/format.h"

namespace nvcache::fuzz {

// The fuzzer's input, read from its beginning; zeros behind its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  uint64_t Take(size_t bytes);
  uint64_t Below(uint64_t bound);  // bound > 0
  // Small, large, near a power of two, or any.
  uint64_t Number();

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

class PoolImage {
 public:
  // A new pool's bytes, with the same salt each time.
  explicit PoolImage(const std::string& new_pool);

  // Slot of an existing file, which is recorded as it is.
  void AddFile(uint32_t slot, const std::string& path, bool is_new);
  // One write call, after the last one.
  void AddWrite(uint32_t slot, uint64_t offset, const std::string& bytes,
                uint64_t commit_word_flip);

  // Other paths that a damaged record may name.
  void Offer(const std::string& path) { paths_.push_back(path); }

  const std::string& bytes() const { return bytes_; }
  // A copy with everything that `input` says done to it.
  std::string Damaged(Input* input) const;

 private:
  friend class Damage;

  template <typename T>
  T* At(uint64_t offset) {
    return reinterpret_cast<T*>(bytes_.data() + offset);
  }
  uint64_t UnitOffset(nvlog::Position position) const;
  void Seal(pool::Superblock* superblock) const;
  void Seal(pool::TailRecord* tail) const;
  void Seal(pool::FileRecord* record) const;
  void Seal(nvlog::EntryHeader* header) const;

  std::string bytes_;
  uint64_t salt_ = 0;
  uint64_t log_offset_ = 0;
  uint64_t log_units_ = 0;
  nvlog::Position head_ = 0;
  std::vector<nvlog::Position> entries_;
  std::vector<std::string> paths_;
};

}  // namespace nvcache::fuzz

#endif  // NVCACHE_TESTS_FUZZ_POOL_IMAGE_H_
