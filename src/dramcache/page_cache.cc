// SPDX-License-Identifier: BSD-3-Clause
#include "src/dramcache/page_cache.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "src/nvlog/group_writer.h"
#include "src/pmem/persist.h"
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
  // A short write is rare: the rest goes piece by piece, and says why.
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

// What of the page `erasure` reaches: [*begin, *end). False: nothing.
bool Reaches(const Erasure& erasure, uint64_t page_number, size_t* begin, size_t* end) {
  const uint64_t first = page_number * kPageSize, last = first + kPageSize;
  if (erasure.begin >= last || erasure.end <= first) return false;
  *begin = erasure.begin > first ? erasure.begin - first : 0;
  *end = erasure.end < last ? erasure.end - first : kPageSize;
  return true;
}

// The pages of one group, locked in ascending order (I3). Those of a small one are known on the
// stack.
class LockedPages {
 public:
  LockedPages(CachedFile& file, radix::Supply& supply, uint64_t offset, uint64_t length)
      : first_(offset / kPageSize), count_(static_cast<uint32_t>(nvlog::PagesOf(offset, length))) {
    NVCACHE_CHECK(count_ <= nvlog::kMaxGroupPages);
    pages_ = count_ <= kFew ? few_ : many_.get();
    for (uint32_t i = 0; i < count_; ++i) {
      pages_[i] = file.pages.FindOrMake(supply, first_ + i);
      if (pages_[i] == nullptr) return;
    }
    while (locked_ < count_) pages_[locked_++]->lock.Lock();
  }
  ~LockedPages() {
    while (locked_ > 0) pages_[--locked_]->lock.Unlock();
  }
  LockedPages(const LockedPages&) = delete;
  LockedPages& operator=(const LockedPages&) = delete;

  bool ok() const { return locked_ == count_; }
  uint64_t first() const { return first_; }
  uint32_t count() const { return count_; }
  radix::PageDescriptor& operator[](uint32_t i) { return *pages_[i]; }

 private:
  static constexpr uint32_t kFew = 17;  // 64 KiB that begin anywhere

  uint64_t first_;
  uint32_t count_;
  uint32_t locked_ = 0;
  radix::PageDescriptor** pages_;
  radix::PageDescriptor* few_[kFew];
  sys::Scratch<radix::PageDescriptor * [nvlog::kMaxGroupPages]> many_;
};

// One writer at a time lets a file grow.
void GrowTo(CachedFile& file, uint64_t end) {
  if (file.size.load(std::memory_order_relaxed) < end) {
    file.size.store(end, std::memory_order_release);
  }
}

// Brings the lines of a frame into the cache, to be written: while the log takes the same bytes,
// the memory would have nothing to do.
void Fetch(const uint8_t* bytes, size_t n) {
  for (size_t i = 0; i < n; i += pmem::kLine) __builtin_prefetch(bytes + i, 1);
}

uint32_t KeptFlags(const CachedFile& file) { return file.removed.load() ? pool::kFileRemoved : 0; }

}  // namespace

nvlog::Outcome PageCache::Append(CachedFile& file, uint64_t offset, uint64_t length, Cursor* cursor,
                                 pool::FileRecord* record) {
  using nvlog::Outcome;
  LockedPages pages(file, supply_, offset, length);
  if (!pages.ok()) return Outcome::kNoDescriptors;
  nvlog::GroupWriter group(log_, file.tag);
  if (const Outcome outcome = group.BeginData(offset, length, record); outcome != Outcome::kDone) {
    return outcome;
  }
  Cursor source = *cursor;
  sys::Scratch<uint8_t[kPageSize]> own;
  uint64_t at = offset;
  for (uint32_t i = 0; i < pages.count(); ++i) {
    radix::PageDescriptor& page = pages[i];
    const uint64_t skip = at % kPageSize;
    const auto n = static_cast<uint32_t>(std::min(kPageSize - skip, offset + length - at));
    uint8_t* frame = page.has_frame() ? frames_.Bytes(page.frame()) + skip : nullptr;
    if (frame != nullptr) Fetch(frame, n);
    // The program may change its buffer while we read it. Log, checksum and frame must agree, so
    // what is read is read once.
    const uint8_t* bytes = source.Take(&own, n);
    if (bytes == nullptr ||
        !group.AddPage(bytes, n, frame, page.dirty > 0 ? page.last : nvlog::kNoPlace)) {
      // The frames' bytes were never written: they go, and the next read loads the pages anew.
      for (uint32_t touched = 0; touched <= i; ++touched) {
        if (pages[touched].has_frame()) frames_.Detach(pages[touched]);
      }
      return Outcome::kBadBuffer;
    }
    if (frame != nullptr) frames_.Access(page.frame());
    at += n;
  }
  group.Commit();
  *cursor = source;
  group.ForEachPart([&](nvlog::Place place, uint64_t first, uint64_t count) {
    for (uint64_t page = first; page < first + count; ++page) {
      pages[static_cast<uint32_t>(page - pages.first())].Appended(place);
      file.pages.Mark(supply_, page);
    }
  });
  // Before the pages are unlocked: the cleanup thread counts down after it had them.
  file.pending.fetch_add(group.units(), std::memory_order_relaxed);
  GrowTo(file, offset + length);
  return Outcome::kDone;
}

void PageCache::Overlay(const CachedFile& file, uint64_t page_number,
                        const radix::PageDescriptor& page, uint32_t count, uint8_t* bytes,
                        ByteSet* laid) const {
  // Erasures that are newer than the record at hand come before it.
  const auto erase = [&](nvlog::Lsn than) {
    file.erasures.ForEach([&](const Erasure& erasure) {
      size_t begin, end;
      if (erasure.lsn < than || !Reaches(erasure, page_number, &begin, &end)) return;
      laid->Add(begin, end,
                [&](size_t from, size_t to) { std::memset(bytes + from, 0, to - from); });
    });
  };
  nvlog::Place place = page.last;
  for (uint32_t i = 0; i < count && !laid->full(); ++i) {
    erase(log_.At(place).lsn);
    const nvlog::Log::Piece piece = log_.PieceAt(place, page_number);
    laid->Add(piece.begin, piece.begin + piece.length, [&](size_t from, size_t to) {
      std::memcpy(bytes + from, piece.bytes + (from - piece.begin), to - from);
    });
    place = *piece.link;
  }
}

long PageCache::Read(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                     size_t skip, size_t n, uint8_t* out) {
  NVCACHE_CHECK(page.lock.IsLocked() && skip + n <= kPageSize);
  if (!page.has_frame()) {
    pool::Count(log_.statistics()->misses);
    if (page.dirty > 0) pool::Count(log_.statistics()->dirty_misses);
    if (!frames_.Attach(page)) {
      sys::Scratch<uint8_t[kPageSize]> bytes;
      const long error = Load(file, page_number, page, bytes.get());
      return error < 0 ? ReadFromLog(file, page_number, page, skip, n, out, error)
                       : static_cast<long>(sys::CopyToUser(out, bytes.get() + skip, n));
    }
    const long error = Load(file, page_number, page, frames_.Bytes(page.frame()));
    if (error < 0) {
      frames_.Detach(page);
      return ReadFromLog(file, page_number, page, skip, n, out, error);
    }
    frames_.Access(page.frame());
  }
  frames_.Access(page.frame());
  return static_cast<long>(sys::CopyToUser(out, frames_.Bytes(page.frame()) + skip, n));
}

long PageCache::Load(CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page,
                     uint8_t* bytes) {
  const long error = ReadPage(file.backing_fd, page_number * kPageSize, bytes);
  if (error < 0) return error;
  sys::Scratch<ByteSet> laid;
  if (file.erase_error.load() == 0) {
    Overlay(file, page_number, page, page.unwritten, bytes, laid.get());
    return 0;
  }
  // The kernel has what it was to erase.
  Overlay(file, page_number, page, page.dirty, bytes, laid.get());
  file.erasures.ForEach([&](const Erasure& erasure) {
    size_t begin, end;
    if (!Reaches(erasure, page_number, &begin, &end)) return;
    laid->Add(begin, end, [&](size_t from, size_t to) { std::memset(bytes + from, 0, to - from); });
  });
  return 0;
}

// The disk cannot be read: pending bytes can, and no more.
long PageCache::ReadFromLog(const CachedFile& file, uint64_t page_number,
                            const radix::PageDescriptor& page, size_t skip, size_t n, uint8_t* out,
                            long error) {
  sys::Scratch<Laid> laid;
  Overlay(file, page_number, page, page.dirty, laid->bytes, &laid->set);
  if (!laid->set.Contains(skip, skip + n)) return error;
  return static_cast<long>(sys::CopyToUser(out, laid->bytes + skip, n));
}

void PageCache::ForgetBytes(radix::PageDescriptor& page) {
  if (page.has_frame()) frames_.Detach(page);
  page.WrittenBack();
}

void PageCache::Publish(CachedFile& file) {
  file.pages.ForEach(supply_, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    if (page.has_frame()) frames_.Detach(page);
    page.Published();
  });
  file.erasures.Clear();
  file.pending.store(0);
}

long PageCache::WriteBack(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page) {
  radix::PageDescriptor* const one = &page;
  return WriteBack(file, page_number, &one, 1);
}

long PageCache::WriteBack(CachedFile& file, uint64_t first, radix::PageDescriptor* const* pages,
                          uint32_t count) {
  NVCACHE_CHECK(count <= kMaxRun);
  // Bytes that were cut off need no writing.
  const uint64_t size = file.size.load(std::memory_order_relaxed);
  for (; count > 0 && (first + count - 1) * kPageSize >= size; --count) {
    pages[count - 1]->WrittenBack();
  }
  sys::Scratch<iovec[kMaxRun]> scratch;
  iovec* run = scratch.get();
  for (uint32_t begin = 0; begin < count;) {
    uint32_t end = begin;
    size_t length = kPageSize;
    while (end < count && length == kPageSize) {
      radix::PageDescriptor& page = *pages[end];
      NVCACHE_CHECK(page.lock.IsLocked());
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
  page.WrittenBack();
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
  if (!file.erasures.empty()) return nullptr;
  const nvlog::Log::Piece piece = log_.PieceAt(page.last, page_number);
  return piece.length == kPageSize ? piece.bytes : nullptr;
}

long PageCache::WritePieces(CachedFile& file, uint64_t page_number,
                            const radix::PageDescriptor& page) {
  sys::Scratch<Laid> laid;
  Overlay(file, page_number, page, page.unwritten, laid->bytes, &laid->set);
  const uint64_t size = file.size.load(std::memory_order_relaxed) - page_number * kPageSize;
  long error = 0;
  laid->set.ForEachRun([&](size_t from, size_t to) {
    to = std::min<uint64_t>(to, size);
    if (error < 0 || from >= to) return;
    const uint64_t offset = page_number * kPageSize + from;
    error = WriteAll(file.backing_fd, offset, laid->bytes + from, to - from);
  });
  return error;
}

// ---------------------------------------------------------------------------------------------
// What a disk refuses.

// What a link says when the record's part of the page is somewhere else.
constexpr uint64_t kMovedLink = ~uint64_t{0};

bool PageCache::Moved(nvlog::Place place, uint64_t page_number) const {
  return *log_.PieceAt(place, page_number).link == kMovedLink;
}

PageCache::Link PageCache::Find(radix::PageDescriptor& page, uint64_t page_number,
                                nvlog::Place place) const {
  NVCACHE_CHECK(page.lock.IsLocked());
  Link link = {0, &page.last};
  while (*link.to != place) {
    link.to = log_.PieceAt(*link.to, page_number).link;
    ++link.newer;
    NVCACHE_CHECK(link.newer < page.dirty);
  }
  return link;
}

void PageCache::Redirect(const radix::PageDescriptor& page, const Link& link, nvlog::Place place) {
  if (link.to == &page.last) {
    *link.to = place;
  } else {
    pmem::Note(*link.to, place);
  }
}

// Adds to `newer` what makes older bytes of the page useless: the record's own, and what was erased
// after it.
void PageCache::AddErased(const CachedFile& file, uint64_t page_number, nvlog::Place place,
                          ByteSet* newer) const {
  const nvlog::Lsn lsn = log_.At(place).lsn;
  file.erasures.ForEach([&](const Erasure& erasure) {
    size_t begin, end;
    // A hole says nothing of the size, which the record may have made what it is.
    if (erasure.end != Erasure::kToTheEnd) return;
    if (erasure.lsn < lsn || !Reaches(erasure, page_number, &begin, &end)) return;
    newer->Add(begin, end, [](size_t, size_t) {});
  });
}

bool PageCache::Hidden(const CachedFile& file, uint64_t page_number,
                       const radix::PageDescriptor& page, nvlog::Place place) const {
  sys::Scratch<ByteSet> newer;
  *newer = {};
  for (nvlog::Place p = page.last; p != place;) {
    const nvlog::Log::Piece piece = log_.PieceAt(p, page_number);
    newer->Add(piece.begin, piece.begin + piece.length, [](size_t, size_t) {});
    p = *piece.link;
  }
  AddErased(file, page_number, place, newer.get());
  const nvlog::Log::Piece piece = log_.PieceAt(place, page_number);
  return newer->Contains(piece.begin, piece.begin + piece.length);
}

bool PageCache::Keep(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                     nvlog::Place place, nvlog::Place file_record) {
  const Link link = Find(page, page_number, place);
  const nvlog::Log::Piece piece = log_.PieceAt(place, page_number);
  if (Hidden(file, page_number, page, place)) {
    Redirect(page, link, *piece.link);
    page.Unchained(link.newer);
  } else {
    const uint64_t before = kept_.units();
    const nvlog::Kept::Copy copy = {.kind = nvlog::Kind::kData,
                                    .lsn = log_.At(place).lsn,
                                    .number = file.tag.number,
                                    .offset = page_number * kPageSize + piece.begin,
                                    .length = piece.length,
                                    .bytes = piece.bytes,
                                    .link = *piece.link};
    const nvlog::Place kept = kept_.Append(copy, &file.kept_declared, file_record, KeptFlags(file));
    if (kept == nvlog::kNoPlace) return false;
    file.pending.fetch_add(kept_.units() - before);
    Redirect(page, link, kept);
  }
  pmem::Note(*piece.link, kMovedLink);
  VoidHidden(file, page_number, page);
  return true;
}

// Kept records that newer ones have made useless: pages that are written again and again would fill
// the pool.
void PageCache::VoidHidden(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page) {
  Link link = {0, &page.last};
  while (link.newer < page.dirty) {
    const nvlog::Place place = *link.to;
    const nvlog::Log::Piece piece = log_.PieceAt(place, page_number);
    if (kept_.Holds(place) && Hidden(file, page_number, page, place)) {
      Redirect(page, link, *piece.link);
      page.Unchained(link.newer);
      VoidRecord(file, place);
      continue;
    }
    link.to = piece.link;
    ++link.newer;
  }
}

void PageCache::Void(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                     nvlog::Place place) {
  const Link link = Find(page, page_number, place);
  Redirect(page, link, *log_.PieceAt(place, page_number).link);
  page.Unchained(link.newer);
  VoidRecord(file, place);
}

void PageCache::VoidRecord(CachedFile& file, nvlog::Place place) {
  const uint64_t before = kept_.units();
  kept_.Void(place);
  file.pending.fetch_sub(before - kept_.units());
}

bool PageCache::KeepMark(CachedFile& file, nvlog::Place place, nvlog::Place file_record) {
  const nvlog::RecordHeader& header = log_.At(place);
  const uint64_t before = kept_.units();
  const nvlog::Kept::Copy copy = {.kind = header.kind,
                                  .lsn = header.lsn,
                                  .number = file.tag.number,
                                  .offset = header.offset,
                                  .length = header.length,
                                  .bytes = nullptr,
                                  .link = 0};
  if (kept_.Append(copy, &file.kept_declared, file_record, KeptFlags(file)) == nvlog::kNoPlace) {
    return false;
  }
  file.pending.fetch_add(kept_.units() - before);
  return true;
}

}  // namespace nvcache::dramcache
