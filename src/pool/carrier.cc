// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/carrier.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>

#include <cstring>

#include "src/journal/file.h"
#include "src/sys/kernel.h"

namespace nvcache::pool {

namespace {

constexpr char kMoves[] = "lies on a file system that writes each block to a new place";
constexpr char kElsewhere[] = "lies on a network file system, whose syncs are another machine's";

// Those of which people will try one. The rest is not known, either.
constexpr struct {
  uint32_t magic;
  const char* why;
} kRefused[] = {
    {BTRFS_SUPER_MAGIC, "lies on Btrfs, which writes each block to a new place"},
    {0x2FC12FC1, "lies on ZFS, which writes each block to a new place"},
    {0xCA451A4E, kMoves},  // bcachefs
    {F2FS_SUPER_MAGIC, "lies on F2FS, which writes each block to a new place"},
    {NFS_SUPER_MAGIC, kElsewhere},
    {SMB2_SUPER_MAGIC, kElsewhere},
    {CIFS_SUPER_MAGIC, kElsewhere},
    {CEPH_SUPER_MAGIC, kElsewhere},
    {V9FS_MAGIC, kElsewhere},
    {FUSE_SUPER_MAGIC, "lies on a FUSE file system, whose syncs are a program's"},
    {TMPFS_MAGIC, "lies in memory"},
    {RAMFS_MAGIC, "lies in memory"},
};

// The extent that has the block at `place`. No flags and no length: there is none. False: nobody
// says.
bool FindExtent(int fd, uint64_t place, fiemap_extent* extent) {
  alignas(fiemap) uint8_t bytes[sizeof(fiemap) + sizeof(fiemap_extent)] = {};
  auto* const map = reinterpret_cast<fiemap*>(bytes);
  map->fm_start = place;
  map->fm_length = journal::kBlock;
  map->fm_extent_count = 1;
  if (sys::Call(SYS_ioctl, fd, FS_IOC_FIEMAP, sys::Address(map)) < 0) return false;
  std::memcpy(extent, bytes + sizeof(fiemap), sizeof(*extent));
  return true;
}

uint64_t BlockOf(const fiemap_extent& extent, uint64_t place) {
  return extent.fe_physical + (place - extent.fe_logical);
}

}  // namespace

const char* WhyNoLongerOn(int fd) {
  struct statfs fs = {};
  if (sys::Fstatfs(fd, &fs) < 0) return nullptr;
  for (const auto& other : kRefused) {
    if (static_cast<uint32_t>(fs.f_type) == other.magic) return other.why;
  }
  return nullptr;
}

const char* WhyNoJournalOn(int fd) {
  const char* const why = WhyNoLongerOn(fd);
  return why != nullptr ? why : journal::WhyNot(fd);
}

// An overlay is what lies below it.
const char* WhyNoJournalIn(int fd) {
  constexpr uint64_t kPlace = journal::kRingOffset;
  constexpr uint32_t kBad = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |
                            FIEMAP_EXTENT_NOT_ALIGNED | FIEMAP_EXTENT_UNWRITTEN |
                            FIEMAP_EXTENT_SHARED;
  fiemap_extent before, after;
  if (!FindExtent(fd, kPlace, &before)) {
    return "lies on a file system that does not say where its blocks are";
  }
  if (before.fe_length == 0 || (before.fe_flags & kBad) != 0) {
    return "lies on a file system that does not keep blocks of zeros as they were written";
  }
  const journal::Buffer zeros(journal::kBlock);
  const bool written =
      zeros.get() != nullptr && journal::Write(fd, zeros.get(), journal::kBlock, kPlace) == 0;
  if (!written || !FindExtent(fd, kPlace, &after)) return "cannot be written past the page cache";
  return BlockOf(before, kPlace) == BlockOf(after, kPlace) ? nullptr : kMoves;
}

}  // namespace nvcache::pool
