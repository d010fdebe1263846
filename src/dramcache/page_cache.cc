// SPDX-License-Identifier: BSD-3-Clause
#include "src/dramcache/page_cache.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "src/dramcache/byte_set.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"

namespace nvcache::dramcache {

namespace {

constexpr uint64_t kPageSize = pool::kPageSize;

// All of it, or a negated errno. A short read is the end of the kernel's file.
long ReadPage(int fd, uint64_t offset, uint8_t* bytes) {
  size_t done = 0;
  while (done < kPageSize) {
    const long n = sys::Pread(fd, bytes + done, kPageSize - done, offset + done);
    if (n == -EINTR) continue;
    if (n < 0) return n;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  std::memset(bytes + done, 0, kPageSize - done);
  return 0;
}

long WriteAll(int fd, uint64_t offset, const uint8_t* bytes, size_t n) {
  while (n > 0) {
    const long written = sys::Pwrite(fd, bytes, n, offset);
    if (written == -EINTR) continue;
    if (written < 0) return written;
    if (written == 0) return -EIO;
    bytes += written;
    offset += static_cast<uint64_t>(written);
    n -= static_cast<size_t>(written);
  }
  return 0;
}

// Neighbours in the file, from `offset` on.
long WriteRun(int fd, uint64_t offset, const iovec* run, uint32_t count) {
  // What is short is rare: the rest goes piece by piece, and says why.
  long written = count > 1 ? sys::Pwritev(fd, run, static_cast<int>(count), offset) : 0;
  if (written == -EINTR) written = 0;
  if (written < 0) return written;
  auto skip = static_cast<size_t>(written);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t done = std::min(skip, run[i].iov_len);
    skip -= done;
    const long error = WriteAll(fd, offset + done, static_cast<uint8_t*>(run[i].iov_base) + done,
                                run[i].iov_len - done);
    if (error < 0) return error;
    offset += run[i].iov_len;
  }
  return 0;
}

// Bytes of a page, and which of them are there.
struct Laid {
  uint8_t bytes[kPageSize];
  ByteSet set;
};

// Lays the page's `count` newest entries, but none before `cut`, over `bytes`, newest first, so
// that every byte is copied at most once, and stops when the page is covered.
void Overlay(const nvlog::Log& log, const radix::PageDescriptor& page, uint32_t count,
             nvlog::Position cut, uint8_t* bytes, ByteSet* laid) {
  nvlog::Position position = page.last;
  for (uint32_t i = 0; i < count && position >= cut && !laid->full(); ++i) {
    const nvlog::EntryHeader& header = log.At(position);
    NVCACHE_CHECK(header.position == position && position >= log.tail());
    const size_t begin = header.offset % kPageSize;
    laid->Add(begin, begin + header.length, [&](size_t from, size_t to) {
      log.Payload(position, from - begin, to - from, bytes + from);
    });
    position = header.previous;
  }
}

}  // namespace

long PageCache::Read(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                     size_t skip, size_t n, uint8_t* out) {
  NVCACHE_CHECK(page.lock.IsLocked() && skip + n <= kPageSize);
  if (!page.has_frame()) {
    pool::Count(log_.statistics()->misses);
    if (page.dirty > 0) pool::Count(log_.statistics()->dirty_misses);
    if (!frames_.Attach(page)) {
      sys::Scratch<uint8_t[kPageSize]> bytes;
      const long error = Load(file, page_number, page, bytes.get());
      return error < 0 ? ReadFromLog(file, page, skip, n, out, error)
                       : static_cast<long>(sys::CopyToUser(out, bytes.get() + skip, n));
    }
    const long error = Load(file, page_number, page, frames_.Bytes(page.frame()));
    if (error < 0) {
      frames_.Detach(page);
      return ReadFromLog(file, page, skip, n, out, error);
    }
  }
  frames_.Touch(page.frame());
  return static_cast<long>(sys::CopyToUser(out, frames_.Bytes(page.frame()) + skip, n));
}

long PageCache::Load(CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page,
                     uint8_t* bytes) {
  const long error = ReadPage(file.backing_fd, page_number * kPageSize, bytes);
  if (error < 0) return error;
  sys::Scratch<ByteSet> laid;
  Overlay(log_, page, page.unwritten, file.cut.load(), bytes, laid.get());
  return 0;
}

// The disk cannot be read: what is pending can, and no more.
long PageCache::ReadFromLog(const CachedFile& file, const radix::PageDescriptor& page, size_t skip,
                            size_t n, uint8_t* out, long error) {
  sys::Scratch<Laid> laid;
  Overlay(log_, page, page.dirty, file.cut.load(), laid->bytes, &laid->set);
  if (!laid->set.Contains(skip, skip + n)) return error;
  return static_cast<long>(sys::CopyToUser(out, laid->bytes + skip, n));
}

void PageCache::ForgetBytes(radix::PageDescriptor& page) {
  NVCACHE_CHECK(page.lock.IsLocked());
  if (page.has_frame()) frames_.Detach(page);
  page.unwritten = 0;
}

void PageCache::ForgetKernel(const CachedFile& file, radix::PageDescriptor& page) {
  NVCACHE_CHECK(page.lock.IsLocked());
  const nvlog::Position cut = file.cut.load();
  uint32_t live = 0;
  for (nvlog::Position position = page.last; live < page.dirty && position >= cut; ++live) {
    position = log_.At(position).previous;
  }
  page.unwritten = live;
}

long PageCache::WriteBack(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page) {
  radix::PageDescriptor* const one = &page;
  return WriteBack(file, page_number, &one, 1);
}

long PageCache::WriteBack(CachedFile& file, uint64_t first, radix::PageDescriptor* const* pages,
                          uint32_t count) {
  NVCACHE_CHECK(count <= kMaxRun);
  sys::Scratch<iovec[kMaxRun]> scratch;
  iovec* run = scratch.get();
  for (uint32_t begin = 0; begin < count;) {
    uint32_t end = begin;
    size_t length = kPageSize;
    while (end < count && length == kPageSize) {
      radix::PageDescriptor& page = *pages[end];
      NVCACHE_CHECK(page.lock.IsLocked() && page.unwritten <= page.dirty);
      if (page.unwritten == 0) break;
      const uint8_t* bytes = Whole(file, first + end, page, &length);
      if (bytes == nullptr) break;
      run[end++ - begin] = {const_cast<uint8_t*>(bytes), length};
    }
    if (end > begin) {
      const long error = WriteRun(file.backing_fd, (first + begin) * kPageSize, run, end - begin);
      if (error < 0) return error;
      while (begin < end) Written(*pages[begin++]);
      continue;
    }
    radix::PageDescriptor& page = *pages[begin];
    if (page.unwritten > 0) {
      if (const long error = WritePieces(file, first + begin, page); error < 0) return error;
      Written(page);
    }
    ++begin;
  }
  return 0;
}

void PageCache::Written(radix::PageDescriptor& page) {
  page.unwritten = 0;
  pool::Count(log_.statistics()->pages_written);
}

// A whole page spares the kernel a read; but no byte beyond the size.
const uint8_t* PageCache::Whole(const CachedFile& file, uint64_t page_number,
                                const radix::PageDescriptor& page, size_t* length) {
  *length = kPageSize;
  if (page.has_frame()) {
    const uint64_t begin = page_number * kPageSize;
    const uint64_t size = file.size.load(std::memory_order_relaxed);
    NVCACHE_CHECK(begin < size);
    *length = std::min(kPageSize, size - begin);
    return frames_.Bytes(page.frame());
  }
  return log_.At(page.last).length == kPageSize ? log_.PayloadInPlace(page.last) : nullptr;
}

long PageCache::WritePieces(CachedFile& file, uint64_t page_number,
                            const radix::PageDescriptor& page) {
  sys::Scratch<Laid> laid;
  Overlay(log_, page, page.unwritten, file.cut.load(), laid->bytes, &laid->set);
  long error = 0;
  laid->set.ForEachRun([&](size_t from, size_t to) {
    if (error < 0) return;
    const uint64_t offset = page_number * kPageSize + from;
    error = WriteAll(file.backing_fd, offset, laid->bytes + from, to - from);
  });
  return error;
}

bool PageCache::Superseded(const radix::PageDescriptor& page, nvlog::Position position) const {
  const nvlog::EntryHeader& old = log_.At(position);
  const size_t begin = old.offset % kPageSize;
  ByteSet newer;
  for (nvlog::Position p = page.last; p != position; p = log_.At(p).previous) {
    const nvlog::EntryHeader& header = log_.At(p);
    NVCACHE_CHECK(header.position == p && p > position);
    const size_t from = header.offset % kPageSize;
    newer.Add(from, from + header.length, [](size_t, size_t) {});
    if (newer.Contains(begin, begin + old.length)) return true;
  }
  return false;
}

bool PageCache::Move(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                     nvlog::Position position) {
  NVCACHE_CHECK(page.lock.IsLocked() && page.dirty > 0);
  if (position < file.cut.load() || Superseded(page, position)) return true;
  sys::Scratch<Laid> laid;
  Overlay(log_, page, page.dirty, file.cut.load(), laid->bytes, &laid->set);
  const nvlog::EntryHeader& old = log_.At(position);
  size_t begin = old.offset % kPageSize, end = begin + old.length;
  NVCACHE_CHECK(laid->set.Contains(begin, end));
  nvlog::Position place = nvlog::kNoPosition;
  laid->set.ForEachRun([&](size_t from, size_t to) {
    if (from > begin || to < end) return;
    place = log_.TryTake(nvlog::EntryUnits(to - from));
    if (place == nvlog::kNoPosition) return;
    begin = from;
    end = to;
  });
  const uint64_t units = nvlog::EntryUnits(end - begin);
  if (place == nvlog::kNoPosition) place = log_.TakeReserve(units);
  if (place == nvlog::kNoPosition) return false;
  nvlog::GroupWriter group(log_, place, 1);
  group.Add({page_number * kPageSize + begin, laid->bytes + begin,
             static_cast<uint32_t>(end - begin), file.slot.load(), file.incarnation, page.last});
  group.Commit();
  ++page.dirty;
  ++page.unwritten;
  page.last = place;
  file.pages.Mark(supply_, page_number);
  file.pending.fetch_add(units);
  return true;
}

}  // namespace nvcache::dramcache
