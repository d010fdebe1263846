// SPDX-License-Identifier: BSD-3-Clause
#include "src/journal/file.h"

#include <errno.h>
#include <linux/magic.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/sys/crc32c.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/size_limit.h"

namespace nvcache::journal {

namespace {

constexpr long kXfsMagic = 0x58465342;  // XFS_SB_MAGIC, which no header of the kernel's has

bool IsWhole(const Header& header) {
  return header.crc == sys::Crc32c(&header, offsetof(Header, crc)) && header.life != 0 &&
         header.half_size % kBlock == 0 && header.pool_size <= kMaxPoolSize &&
         header.half_size >= HalfBytes(header.pool_size);
}

bool HasMagic(const Header& header) {
  return std::memcmp(header.magic, kHeaderMagic, sizeof(kHeaderMagic)) == 0;
}

// One that was cut short has not failed.
long WriteAll(int fd, const uint8_t* bytes, uint64_t n, uint64_t place, int flags) {
  for (uint64_t done = 0; done < n;) {
    const iovec piece = {const_cast<uint8_t*>(bytes) + done, n - done};
    const long written = sys::Call(SYS_pwritev2, fd, sys::Address(&piece), 1,
                                   static_cast<long>(place + done), 0, flags);
    if (written == -EINTR) continue;
    if (written <= 0) return written == 0 ? -EIO : written;
    done += static_cast<uint64_t>(written);
  }
  return 0;
}

}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  const long mapped =
      sys::Mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!sys::IsError(mapped)) bytes_ = reinterpret_cast<uint8_t*>(mapped);
}

Buffer::~Buffer() {
  if (bytes_ != nullptr) sys::Munmap(bytes_, size_);
}

long Open(const char* path, bool for_writing) {
  const int flags = (for_writing ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC;
  return sys::Openat(AT_FDCWD, path, flags | O_NONBLOCK);
}

long ReadHeader(int fd, Header* header) {
  bool magic = false, version = false, found = false;
  for (uint64_t i = 0; i < kHeaders; ++i) {
    Header each;
    const long n = sys::Pread(fd, &each, sizeof(each), i * kBlock);
    if (n < 0) return n;
    if (n < static_cast<long>(sizeof(each))) break;
    magic |= HasMagic(each);
    version |= HasMagic(each) && each.version == kVersion;
    if (!HasMagic(each) || each.version != kVersion || !IsWhole(each)) continue;
    if (!found || each.life > header->life) *header = each;
    found = true;
  }
  if (!magic) return -EINVAL;
  if (!version) return -EPROTO;
  struct stat st = {};
  if (const long error = sys::Fstat(fd, &st); error < 0) return error;
  const bool fits =
      found && static_cast<uint64_t>(st.st_size) >= kRingOffset + 2 * header->half_size;
  return fits ? 0 : -EBADMSG;
}

long ReadHeaderAgain(int fd, Header* header) {
  const sys::Descriptor cached(
      sys::Openat(AT_FDCWD, sys::LinkTo(fd).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return cached.IsOpen() ? ReadHeader(cached.get(), header) : cached.error();
}

// The kernel would not only refuse but kill the program (SIGXFSZ).
long WriteHeader(int fd, Header header) {
  if (sys::FileSizeLimit() < kRingOffset) return -EFBIG;
  const Buffer buffer(kBlock);
  if (buffer.get() == nullptr) return -ENOMEM;
  std::memcpy(header.magic, kHeaderMagic, sizeof(kHeaderMagic));
  header.version = kVersion;
  header.header_size = sizeof(header);
  header.crc = sys::Crc32c(&header, offsetof(Header, crc));
  std::memcpy(buffer.get(), &header, sizeof(header));
  return Write(fd, buffer.get(), kBlock, header.life % kHeaders * kBlock);
}

// The flush is not asked for by sys::Fdatasync: nothing of the file system's changes with a write
// in place, and errors of that come from the write.
long Write(int fd, const uint8_t* bytes, uint64_t n, uint64_t place, uint32_t how) {
  const bool through = how == kWriteThrough;
  const long error = WriteAll(fd, bytes, n, place, through ? RWF_DSYNC : 0);
  return error < 0 || through ? error : sys::Call(SYS_fdatasync, fd);
}

// By turns, so that what else the disk does meets both.
Speed Measure(int fd) {
  constexpr uint32_t kTurns = 100;
  constexpr uint64_t kPatienceNs = 1000 * 1000 * 1000;
  const Buffer zeros(kBlock), times(2 * kTurns * sizeof(uint64_t));
  if (zeros.get() == nullptr || times.get() == nullptr) return {kWriteThrough, 0};
  auto* const ns = reinterpret_cast<uint64_t*>(times.get());
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  uint32_t turns = 0;
  for (uint64_t now = begin; turns < kTurns && now - begin < kPatienceNs; ++turns) {
    for (const uint32_t how : {kWriteThrough, kWriteAndFlush}) {
      const uint64_t place = kRingOffset + (2 * turns + how) * kBlock;
      if (Write(fd, zeros.get(), kBlock, place, how) < 0) return {kWriteThrough, 0};
      const uint64_t then = std::exchange(now, sys::Now(CLOCK_MONOTONIC));
      ns[how * kTurns + turns] = now - then;
    }
  }
  uint64_t medians[2];
  for (const uint32_t how : {kWriteThrough, kWriteAndFlush}) {
    std::sort(ns + how * kTurns, ns + how * kTurns + turns);
    medians[how] = ns[how * kTurns + turns / 2];
  }
  const uint32_t best =
      medians[kWriteAndFlush] < medians[kWriteThrough] ? kWriteAndFlush : kWriteThrough;
  return {best, medians[best]};
}

// Those that write a block again where it lies, and are known to: on others a write would cost new
// blocks, or be nowhere when it has returned.
const char* WhyNot(int fd) {
  struct statfs fs = {};
  if (sys::Fstatfs(fd, &fs) < 0) return "lies on a file system that does not say what it is";
  switch (fs.f_type) {
    case EXT4_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case kXfsMagic:
      break;
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
      return "lies in memory";
    default:
      return "lies on a file system that is not known to write blocks in place and to sync them";
  }
  const sys::Descriptor direct(Open(sys::LinkTo(fd).c_str(), true));
  return direct.IsOpen() ? nullptr : "lies on a file system without O_DIRECT";
}

long FillWithZeros(int fd, uint64_t bytes) {
  const Buffer zeros(kMaxBatch);
  if (zeros.get() == nullptr) return -ENOMEM;
  const sys::Descriptor direct(
      sys::Openat(AT_FDCWD, sys::LinkTo(fd).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!direct.IsOpen()) return direct.error();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t part = std::min(kMaxBatch, bytes - done);
    const long error = WriteAll(direct.get(), zeros.get(), part, done, 0);
    if (error < 0) return error;
    done += part;
  }
  return sys::Fsync(fd);
}

}  // namespace nvcache::journal
