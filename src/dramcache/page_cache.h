// SPDX-License-Identifier: BSD-3-Clause
//
// Pages between log, DRAM and kernel: append, load, overlay with pending records, write back.
//
// Where the newest bytes of a page are:
//
//   frame     all of them, if there is a frame
//   kernel    all but the `unwritten` newest records
//   disk      all but the `dirty` newest records
//
// so a miss reads the kernel's page and overlays the unwritten records: a dirty miss (thesis,
// section 3.2.5). Write-back lowers `unwritten` and leaves `dirty` alone: the records stay in the
// log until fdatasync has succeeded, and count as unwritten again if it fails.
//
// Whoever looks at the file without us sees the kernel's pages. So the kernel gets the records one
// by one, in the order of the log, and not the pages as they are: a page that is written twice,
// with another one in between, would show its second bytes before the other's (I16).
//
// Every function wants the page's lock held by the caller, if it has a page.
#ifndef NVCACHE_DRAMCACHE_PAGE_CACHE_H_
#define NVCACHE_DRAMCACHE_PAGE_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "src/dramcache/cached_file.h"
#include "src/dramcache/cursor.h"
#include "src/dramcache/frames.h"
#include "src/nvlog/byte_set.h"
#include "src/nvlog/kept.h"
#include "src/nvlog/log.h"

namespace nvcache::dramcache {

class PageCache {
 public:
  constexpr PageCache(nvlog::Log& log, nvlog::Kept& kept, radix::Supply& supply, Frames& frames)
      : log_(log), kept_(kept), supply_(supply), frames_(frames) {}

  // Appends one group of `length` bytes, and counts it: page locks, frames, log, commit, dirty
  // counters, size (I1 to I4). No byte of the file has changed unless it says kDone; then `cursor`
  // moves on by `length`. `record`: as for GroupWriter. File lock, shared.
  nvlog::Outcome Append(CachedFile& file, uint64_t offset, uint64_t length, Cursor* cursor,
                        pool::FileRecord* record);

  // Copies [skip, skip + n) of the page to the program's `out`, by way of a frame if one can be
  // had. The bytes copied, fewer than `n` if more of `out` is not there; or a negated errno of the
  // file system's.
  long Read(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page, size_t skip,
            size_t n, uint8_t* out);

  // The page has lost its bytes, and the kernel is about to hear of it: its pending records count
  // as written.
  void ForgetBytes(radix::PageDescriptor& page);

  // The kernel has all of the file's bytes, and the file's records in the log are nothing of the
  // cache's any more: no page is dirty. File lock, exclusive, and no batch is under way.
  void Relinquish(CachedFile& file);

  // Brings data records of one file, in the order of the log, to the kernel's page cache, which has
  // all older ones: the first, and as many of the others as go by the same call, because their
  // bytes follow each other. The number of these, or a negated errno; then nothing counts as
  // written. Before the call, `begins(context, lsn)` is told the last one's LSN. No page locks.
  long WriteBack(CachedFile& file, const nvlog::Place* records, uint32_t count,
                 void (*begins)(void* context, nvlog::Lsn lsn), void* context);
  // Brings the page's newest bytes, as far as they were written up to `end`, to the kernel,
  // whatever that has. 0, or a negated errno; then the page is as unwritten as before.
  long WriteBackPage(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
                     nvlog::Lsn end);

  // Copies the bytes of the page that the record at `place` has to a kept segment, unless newer
  // records hold all of them; then the record itself counts no more (Moved). False: no segment is
  // free.
  bool Keep(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page, nvlog::Place place,
            nvlog::Place file_record);
  // The disk has what the kept record at `place` has of the page: it is void.
  void Void(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
            nvlog::Place place);
  // Keep() and Void() for a truncation or an erasure, which is of no page: it is copied in any
  // case.
  bool KeepMark(CachedFile& file, nvlog::Place place, nvlog::Place file_record);
  void VoidRecord(CachedFile& file, nvlog::Place place);
  // Keep() has taken the page's part of the record elsewhere.
  bool Moved(nvlog::Place place, uint64_t page_number) const;

  radix::Supply& supply() { return supply_; }
  Frames& frames() { return frames_; }
  nvlog::Log& log() { return log_; }
  nvlog::Kept& kept() { return kept_; }

 private:
  // One step of a page's chain.
  struct Link {
    uint32_t newer;  // records of the page that are newer
    uint64_t* to;    // leads there: the page descriptor's `last`, or a record's link
  };
  long Load(CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page,
            uint8_t* bytes);
  // Lays `count` of the page's records, from the one at `place` on, over `bytes`, and what was
  // erased, newest first, so that every byte is copied at most once, and stops when the page is
  // covered.
  void Overlay(const CachedFile& file, uint64_t page_number, nvlog::Place place, uint32_t count,
               uint8_t* bytes, nvlog::ByteSet* laid) const;
  void Written(CachedFile& file, nvlog::Place record);
  long ReadFromLog(const CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page,
                   size_t skip, size_t n, uint8_t* out, long error);
  // Where the record at `place` is in the page's chain.
  Link Find(radix::PageDescriptor& page, uint64_t page_number, nvlog::Place place) const;
  static void Redirect(const radix::PageDescriptor& page, const Link& link, nvlog::Place place);
  void AddErased(const CachedFile& file, uint64_t page_number, nvlog::Place place,
                 nvlog::ByteSet* newer) const;
  // Newer records hold all of the page that the one at `place` does, or it was erased.
  bool Hidden(const CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page,
              nvlog::Place place) const;
  void VoidHidden(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page);

  nvlog::Log& log_;
  nvlog::Kept& kept_;
  radix::Supply& supply_;
  Frames& frames_;
};

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_PAGE_CACHE_H_
