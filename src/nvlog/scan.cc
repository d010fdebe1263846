// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/scan.h"

#include "src/sys/words.h"

namespace nvcache::nvlog {

bool CopyHeader(const pool::View& view, Place place, Lsn generation, RecordHeader* header) {
  const uint64_t unit = place % view.segment_units();
  const uint64_t end = view.segment_units() - kLastUnits;
  if (unit < kFirstUnit || unit >= end) return false;
  sys::CopyWords(header, view.unit(place), sizeof(*header));
  return IsSane(*header, end - unit) &&
         header->header_crc == HeaderCrc(*header, place, generation, view.salt());
}

}  // namespace nvcache::nvlog
