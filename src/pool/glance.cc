// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/glance.h"

#include <errno.h>

#include "src/pool/format.h"
#include "src/pool/journal.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"

namespace nvcache::pool {

namespace {

// Of the journal behind `fd`, which is closed. A negated errno.
int OpenMemoryOf(int fd, bool for_writing, journal::Header* header) {
  const long memory = Journal::OpenMemory(fd, for_writing, header);
  sys::Close(fd);
  return static_cast<int>(memory);
}

template <typename Record>
bool ReadAt(int fd, uint64_t offset, Record* record) {
  return sys::Pread(fd, record, sizeof(*record), offset) == static_cast<long>(sizeof(*record));
}

}  // namespace

// The checksum is computed without asking for the processor's features (sys/cpu.h): it is 80 bytes.
Glance GlanceAt(const char* path) {
  using Kind = Glance::Kind;
  const long opened = sys::Openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) return {opened == -ENOENT ? Kind::kMissing : Kind::kLookCloser};
  auto fd = static_cast<int>(opened);
  Superblock superblock = {};
  bool whole = ReadAt(fd, 0, &superblock) && HasMagic(superblock);
  if (!whole && Journal::IsOne(fd)) {
    journal::Header header = {};
    fd = OpenMemoryOf(fd, false, &header);
    if (fd < 0 && fd != -ENOENT) return {Kind::kLookCloser};
    if (fd < 0) return {header.is_void != 0 ? Kind::kVoid : Kind::kLost};
    whole = ReadAt(fd, 0, &superblock);
  }
  StateRecord state = {};
  whole = whole && ReadAt(fd, kStateOffset, &state);
  sys::Close(fd);
  constexpr size_t kChecked = offsetof(Superblock, crc);
  const bool sound = whole && HasMagic(superblock) && superblock.version == kVersion &&
                     superblock.crc == sys::Crc32cPortable(&superblock, kChecked);
  if (!sound) return {Kind::kLookCloser};
  const bool clean = state.state == kStateClean;
  return {clean ? Kind::kClean : Kind::kLookCloser, IdOf(superblock), superblock.commit};
}

long OpenLocked(const char* path, bool for_writing) {
  const int flags = (for_writing ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_CLOEXEC;
  const long fd = sys::Openat(AT_FDCWD, path, flags);
  if (fd < 0 || !Journal::IsOne(static_cast<int>(fd))) return fd;
  journal::Header header;
  return OpenMemoryOf(static_cast<int>(fd), for_writing, &header);
}

}  // namespace nvcache::pool
