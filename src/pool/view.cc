// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/view.h"

#include "src/sys/crc32c.h"
#include "src/sys/words.h"

namespace nvcache::pool {

uint32_t SegmentHeaderCrc(const SegmentHeader& header, uint64_t salt) {
  constexpr size_t kBegin = offsetof(SegmentHeader, generation);
  constexpr size_t kEnd = offsetof(SegmentHeader, crc);
  return sys::Crc32c(reinterpret_cast<const uint8_t*>(&header) + kBegin, kEnd - kBegin,
                     static_cast<uint32_t>(salt));
}

bool CopySegmentHeader(const View& view, const SegmentHeader& place, uint32_t number,
                       SegmentHeader* header) {
  sys::CopyWords(header, &place, sizeof(*header));
  return header->word == SegmentWord(header->generation, view.salt()) &&
         header->crc == SegmentHeaderCrc(*header, view.salt()) && header->number == number &&
         header->generation != 0 && header->generation >> kLsnBits == 0 &&
         header->checkpoint <= header->generation &&
         header->previous_generation < header->generation &&
         header->previous_last < header->generation &&
         header->previous_number < view.segment_count() &&
         header->log < view.seat_count() * kLogsOfSeat &&
         (header->kind == SegmentKind::kLog || header->kind == SegmentKind::kKept ||
          header->kind == SegmentKind::kFrames);
}

}  // namespace nvcache::pool
