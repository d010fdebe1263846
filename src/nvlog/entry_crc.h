// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_NVLOG_ENTRY_CRC_H_
#define NVCACHE_NVLOG_ENTRY_CRC_H_

#include <cstddef>
#include <cstdint>

#include "src/nvlog/entry.h"
#include "src/sys/crc32c.h"

namespace nvcache::nvlog {

// What header_crc is, for the writer and for the reader.
inline uint32_t HeaderCrc(const EntryHeader& header, uint64_t salt) {
  constexpr size_t kBegin = offsetof(EntryHeader, position);
  constexpr size_t kEnd = offsetof(EntryHeader, header_crc);
  return sys::Crc32c(reinterpret_cast<const uint8_t*>(&header) + kBegin, kEnd - kBegin,
                     static_cast<uint32_t>(salt));
}

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_ENTRY_CRC_H_
