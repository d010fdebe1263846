// SPDX-License-Identifier: BSD-3-Clause
//
// The file in memory that a server has for one mirror name: a header; a staging area, for Write();
// two areas for images, one of which is selected. It never leaves the kernel that it was made in,
// so it has that machine's byte order.
#ifndef NVCACHE_MIRROR_STORE_LAYOUT_H_
#define NVCACHE_MIRROR_STORE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "mirror/core/ids.h"
#include "mirror/core/message.h"
#include "mirror/core/store.h"

namespace nvcache::mirror {

inline constexpr uint64_t kMemoryMagic = 0x79726f6d654d764e;  // "NvMemory"
inline constexpr uint32_t kMemoryFormat = 1;

struct Staged {
  uint64_t full;  // 1: it has to be written into the image
  uint64_t ranges;
  uint64_t bytes;
  Epoch epoch;
  Position position;
};

struct MemoryHeader {
  uint64_t magic;  // stored last: what has none was never finished
  uint32_t format;
  uint32_t zero;
  Id boot;  // the kernel's boot id
  Id incarnation;
  char name[kMaxName + 8];  // ends with a zero
  Epoch promised;
  Version version;
  uint64_t selected;  // the image lies in area selected - 1; 0: there is none
  ImageInfo areas[2];
  Staged staged;
};
static_assert(sizeof(Id) == 16 && sizeof(ImageInfo) == 40);

inline constexpr uint64_t kHeaderArea = 4096;
inline constexpr uint64_t kStagedRanges = kHeaderArea;
inline constexpr uint64_t kStagedBytes = kStagedRanges + kMaxRanges * sizeof(Range);
inline constexpr uint64_t kFrontBytes = kStagedBytes + kMaxBytes;
static_assert(sizeof(MemoryHeader) <= kHeaderArea && kFrontBytes % 4096 == 0);

inline constexpr uint64_t kMaxImage = uint64_t{1} << 44;
constexpr uint64_t AreaOffset(size_t area) { return (area + 1) * kMaxImage; }

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_LAYOUT_H_
