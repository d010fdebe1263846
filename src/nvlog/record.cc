// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/record.h"

#include "src/sys/crc32c.h"

namespace nvcache::nvlog {

bool IsSane(const RecordHeader& header, uint64_t units) {
  if (header.count < 1 || header.count > kMaxGroupRecords || header.index >= header.count ||
      header.lsn == 0 || header.lsn >> pool::kLsnBits != 0 || header.offset >> 63 != 0 ||
      header.length >> 63 != 0 || (header.offset + header.length) >> 63 != 0) {
    return false;
  }
  switch (header.kind) {
    case Kind::kData:
      if (header.length < 1 || header.length > kMaxGroupBytes) return false;
      break;
    case Kind::kFile:
      if (header.length < 1 || header.length > sizeof(pool::FileRecord)) return false;
      break;
    case Kind::kName:
      if (header.length < 1 || header.length > sizeof(pool::NameRecord)) return false;
      break;
    case Kind::kTruncate:
    case Kind::kSettled:
    case Kind::kHandedOver:
      if (header.length != 0) return false;
      break;
    case Kind::kErase:
      if (header.length == 0) return false;
      break;
    default:
      return false;
  }
  return RecordUnits(header) <= units;
}

uint32_t HeaderCrc(const RecordHeader& header, Place place, Lsn generation, uint64_t salt) {
  RecordHeader summed = header;
  // In the place of the commit word, which the checksum leaves out.
  summed.commit = place;
  summed.link = generation;
  static_assert(offsetof(RecordHeader, lsn) == sizeof(place) + sizeof(generation));
  return sys::Crc32c(&summed, offsetof(RecordHeader, header_crc), static_cast<uint32_t>(salt));
}

void Seal(RecordHeader* header, Place place, Lsn generation, uint64_t salt) {
  header->commit = CommitWord(header->lsn, salt);
  header->life = LifeOf(generation);
  header->header_crc = HeaderCrc(*header, place, generation, salt);
}

}  // namespace nvcache::nvlog
