// SPDX-License-Identifier: BSD-3-Clause
//
// A batch while it is put together.
#ifndef NVCACHE_MIRROR_POOL_PIECES_H_
#define NVCACHE_MIRROR_POOL_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "mirror/core/source.h"
#include "mirror/pool/faults.h"
#include "src/sys/words.h"

namespace nvcache::mirror {

// A batch has so many ranges, as it has SoftBytes().
inline constexpr size_t kSoftRanges = kMaxRanges / 4;

class Pieces {
 public:
  explicit Pieces(Batch* batch) : batch_(*batch) {}

  // `bytes` and `offset`: multiples of kRangeUnit. What goes on where the last piece has ended is
  // one range with it. The copy stays where it
  // is until the next one.
  uint8_t* Add(uint64_t offset, const void* from, size_t bytes) {
    const size_t at = batch_.bytes.size();
    batch_.bytes.resize(at + bytes);
    sys::CopyWords(&batch_.bytes[at], from, bytes);
    if (!batch_.ranges.empty() &&
        batch_.ranges.back().offset + batch_.ranges.back().length == offset) {
      batch_.ranges.back().length += static_cast<uint32_t>(bytes);
    } else {
      batch_.ranges.push_back({offset, static_cast<uint32_t>(bytes)});
    }
    return &batch_.bytes[at];
  }
  uint8_t* At(size_t at) { return &batch_.bytes[at]; }
  size_t bytes() const { return batch_.bytes.size(); }
  bool IsFull() const { return bytes() >= SoftBytes() || batch_.ranges.size() >= kSoftRanges; }

 private:
  Batch& batch_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_PIECES_H_
