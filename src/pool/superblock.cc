// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/superblock.h"

#include <cstring>

#include "src/pmem/persist.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"

namespace nvcache::pool {

using pmem::Step;

bool HasMagic(const Superblock& s) { return std::memcmp(s.magic, kMagic, sizeof(kMagic)) == 0; }
bool HasCrc(const Superblock& s) { return s.crc == sys::Crc32c(&s, offsetof(Superblock, crc)); }
bool IsWhole(const Superblock& s) {
  return HasMagic(s) && s.version == kVersion && s.superblock_size == sizeof(s) && HasCrc(s);
}

// In all versions the last four bytes of its superblock_size are the checksum of those before.
bool IsOfAnotherVersion(const SuperblockBytes& bytes) {
  Superblock s = {};
  std::memcpy(&s, bytes, sizeof(s));
  uint32_t crc = 0;
  if (!HasMagic(s) || s.version == kVersion || s.superblock_size > sizeof(bytes) ||
      s.superblock_size < offsetof(Superblock, pool_size) + sizeof(crc)) {
    return false;
  }
  std::memcpy(&crc, bytes + s.superblock_size - sizeof(crc), sizeof(crc));
  return crc == sys::Crc32c(bytes, s.superblock_size - sizeof(crc));
}

uint64_t IdOf(const Superblock& superblock) {
  uint64_t id = 0;
  std::memcpy(&id, superblock.uuid, sizeof(id));
  return id;
}

Superblock NewSuperblock(uint64_t size, uint32_t commit) {
  const Geometry geometry = GeometryOf(size);
  Superblock superblock = {};
  std::memcpy(superblock.magic, kMagic, sizeof(kMagic));
  superblock.version = kVersion;
  superblock.superblock_size = sizeof(Superblock);
  superblock.pool_size = size;
  sys::Getrandom(&superblock.salt, sizeof(superblock.salt));
  superblock.salt |= uint64_t{1} << 63;
  sys::Getrandom(superblock.uuid, sizeof(superblock.uuid));
  superblock.created = sys::Now(CLOCK_REALTIME);
  superblock.segment_size = geometry.segment_size;
  superblock.segment_count = geometry.segment_count;
  superblock.page_size = kPageSize;
  superblock.unit_size = kUnitSize;
  superblock.commit = commit;
  superblock.crc = sys::Crc32c(&superblock, offsetof(Superblock, crc));
  return superblock;
}

void WriteSuperblock(uint8_t* place, const Superblock& superblock) {
  constexpr size_t kMagicSize = sizeof(superblock.magic);
  pmem::StoreBytes(place + kMagicSize, reinterpret_cast<const uint8_t*>(&superblock) + kMagicSize,
                   sizeof(superblock) - kMagicSize);
  pmem::Pwb(place, sizeof(superblock), Step::kSuperblock);
  pmem::Pfence(Step::kSuperblockFence);
  pmem::StoreBytes(place, superblock.magic, kMagicSize);
  pmem::Pwb(place, kMagicSize, Step::kMagic);
  pmem::Psync(Step::kMagicDurable);
}

}  // namespace nvcache::pool
