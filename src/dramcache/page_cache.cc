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
  nvlog::ByteSet set;
};

// `erasure` reaches [*begin, *end) of the page. False: it reaches nothing.
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

// Other threads may write other pages.
void NoteNewest(CachedFile& file, nvlog::Lsn lsn) {
  nvlog::Lsn newest = file.newest.load(std::memory_order_relaxed);
  while (newest < lsn && !file.newest.compare_exchange_weak(newest, lsn)) continue;
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
  const nvlog::Lsn lsn = group.Commit();
  *cursor = source;
  group.ForEachPart([&](nvlog::Place place, uint64_t first, uint64_t count) {
    for (uint64_t page = first; page < first + count; ++page) {
      pages[static_cast<uint32_t>(page - pages.first())].Appended(place);
    }
  });
  NoteNewest(file, lsn);
  // Before the pages are unlocked: the cleanup thread counts down after it had them.
  file.pending.fetch_add(group.units(), std::memory_order_relaxed);
  GrowTo(file, offset + length);
  return Outcome::kDone;
}

void PageCache::Overlay(const CachedFile& file, uint64_t page_number, nvlog::Place place,
                        uint32_t count, uint8_t* bytes, nvlog::ByteSet* laid) const {
  // Erasures that are newer than the record at hand come before it.
  const auto erase = [&](nvlog::Lsn than) {
    file.erasures.ForEach([&](const Erasure& erasure) {
      size_t begin, end;
      if (erasure.lsn < than || !Reaches(erasure, page_number, &begin, &end)) return;
      laid->Add(begin, end,
                [&](size_t from, size_t to) { std::memset(bytes + from, 0, to - from); });
    });
  };
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
  sys::Scratch<nvlog::ByteSet> laid;
  if (file.erase_error.load() == 0) {
    Overlay(file, page_number, page.last, page.unwritten, bytes, laid.get());
    return 0;
  }
  // The kernel has what it was to erase.
  Overlay(file, page_number, page.last, page.dirty, bytes, laid.get());
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
  Overlay(file, page_number, page.last, page.dirty, laid->bytes, &laid->set);
  if (!laid->set.Contains(skip, skip + n)) return error;
  return static_cast<long>(sys::CopyToUser(out, laid->bytes + skip, n));
}

void PageCache::ForgetBytes(radix::PageDescriptor& page) {
  if (page.has_frame()) frames_.Detach(page);
  page.WrittenBack();
}

void PageCache::Relinquish(CachedFile& file) {
  file.pages.ForEach(supply_, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    if (page.has_frame()) frames_.Detach(page);
    page.Relinquished();
  });
  file.erasures.Clear();
  file.pending.store(0);
}

// ---------------------------------------------------------------------------------------------
// Writing back.

namespace {

// One call of the kernel takes a run: records whose bytes follow each other. The call copies them
// from the front to the end, so that none is to be seen before one that was written earlier.
class Run {
 public:
  bool Add(const nvlog::Log& log, nvlog::Place place) {
    const nvlog::RecordHeader& header = log.At(place);
    if (count_ > 0 && header.offset != end_) return false;
    if (count_ + 2 > kMost || bytes_ + header.length > nvlog::kMaxGroupBytes) return false;
    if (count_ == 0) begin_ = header.offset;
    const uint64_t first = nvlog::FirstLength(header.offset, header.length);
    const uint64_t page = header.offset / kPageSize;
    iov()[count_++] = {Bytes(log.PieceAt(place, page)), first};
    // From the second page on, they are in one piece.
    if (header.length > first) {
      iov()[count_++] = {Bytes(log.PieceAt(place, page + 1)), header.length - first};
    }
    end_ = header.offset + header.length;
    bytes_ += header.length;
    return true;
  }
  long Write(int fd) { return WriteRun(fd, begin_, iov(), count_); }

 private:
  static constexpr uint32_t kMost = 128;
  static void* Bytes(const nvlog::Log::Piece& piece) { return const_cast<uint8_t*>(piece.bytes); }
  iovec* iov() { return iov_.get(); }

  sys::Scratch<iovec[kMost]> iov_;
  uint32_t count_ = 0;
  uint64_t begin_ = 0, end_ = 0, bytes_ = 0;
};

}  // namespace

long PageCache::WriteBack(CachedFile& file, const nvlog::Place* records, uint32_t count,
                          void (*begins)(void* context, nvlog::Lsn lsn), void* context) {
  Run run;
  uint32_t taken = 0;
  while (taken < count && run.Add(log_, records[taken])) ++taken;
  NVCACHE_CHECK(taken > 0);
  begins(context, log_.At(records[taken - 1]).lsn);
  {
    const KernelChange change(file);
    if (const long error = run.Write(file.backing_fd); error < 0) return error;
  }
  for (uint32_t i = 0; i < taken; ++i) Written(file, records[i]);
  return taken;
}

// A thread that reads meanwhile lays the record over bytes that have it, and finds the same.
void PageCache::Written(CachedFile& file, nvlog::Place record) {
  const nvlog::RecordHeader& header = log_.At(record);
  const uint64_t first = header.offset / kPageSize;
  const uint64_t pages = nvlog::PagesOf(header.offset, header.length);
  for (uint64_t number = first; number < first + pages; ++number) {
    radix::PageDescriptor* page = file.pages.Find(supply_, number);
    NVCACHE_CHECK(page != nullptr);
    sys::Lock lock(page->lock);
    NVCACHE_CHECK(page->unwritten > 0);
    page->WrittenBack(page->unwritten - 1);
  }
  pool::Count(log_.statistics()->pages_written, pages);
}

long PageCache::WriteBackPage(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                              nvlog::Lsn end) {
  NVCACHE_CHECK(page.lock.IsLocked());
  nvlog::Place place = page.last;
  uint32_t newer = 0;
  while (newer < page.unwritten && log_.At(place).lsn > end) {
    place = *log_.PieceAt(place, page_number).link;
    ++newer;
  }
  if (newer == page.unwritten) return 0;
  sys::Scratch<Laid> laid;
  Overlay(file, page_number, place, page.unwritten - newer, laid->bytes, &laid->set);
  // Bytes that were cut off need no writing.
  const uint64_t begin = page_number * kPageSize, size = file.size.load(std::memory_order_relaxed);
  const KernelChange change(file);
  long error = 0;
  laid->set.ForEachRun([&](size_t from, size_t to) {
    to = std::min<uint64_t>(to, size > begin ? size - begin : 0);
    if (error < 0 || from >= to) return;
    error = WriteAll(file.backing_fd, begin + from, laid->bytes + from, to - from);
  });
  if (error < 0) return error;
  page.WrittenBack(newer);
  pool::Count(log_.statistics()->pages_written);
  return 0;
}

// ---------------------------------------------------------------------------------------------
// Records that a disk refuses.

// A link says this when the record's part of the page is somewhere else.
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
                          nvlog::ByteSet* newer) const {
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
  sys::Scratch<nvlog::ByteSet> newer;
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
