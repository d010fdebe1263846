// SPDX-License-Identifier: BSD-3-Clause
//
// Pages between log, DRAM and kernel: load, overlay with pending entries, write back. Every
// function wants the page's lock held by the caller.
//
// Where the newest bytes of a page are:
//
//   frame     all of them, if there is a frame
//   kernel    all but the `unwritten` newest entries
//   disk      all but the `dirty` newest entries
//
// so a miss reads the kernel's page and overlays the unwritten entries: a dirty miss (thesis,
// section 3.2.5). Write-back makes `unwritten` 0 and leaves `dirty` alone: the entries stay in the
// log until fdatasync has succeeded, and count as unwritten again if it fails.
#ifndef NVCACHE_DRAMCACHE_PAGE_CACHE_H_
#define NVCACHE_DRAMCACHE_PAGE_CACHE_H_

#include <cstddef>
#include <cstdint>

#include "src/dramcache/cached_file.h"
#include "src/dramcache/frames.h"
#include "src/nvlog/log.h"

namespace nvcache::dramcache {

class PageCache {
 public:
  constexpr PageCache(nvlog::Log& log, radix::Supply& supply, Frames& frames)
      : log_(log), supply_(supply), frames_(frames) {}

  // Copies [skip, skip + n) of the page to the program's `out`, by way of a frame if one can be
  // had. The bytes copied, fewer than `n` if more of `out` is not there; or a negated errno of the
  // file system's.
  long Read(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page, size_t skip,
            size_t n, uint8_t* out);

  // The page has lost its bytes, and the kernel is about to hear of it: what is pending is nothing.
  void ForgetBytes(radix::PageDescriptor& page);
  // The kernel may have dropped what it had of the page, but for what is on disk.
  void ForgetKernel(const CachedFile& file, radix::PageDescriptor& page);

  // Bytes go to the kernel's page cache, the newest of each; nothing happens if the kernel has
  // them. 0, or a negated errno; then the page is as unwritten as before.
  long WriteBack(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page);
  // The same for `count` pages from `first` on, all locked: whole ones go by one call. After an
  // error some of them may be written.
  static constexpr uint32_t kMaxRun = 16;
  long WriteBack(CachedFile& file, uint64_t first, radix::PageDescriptor* const* pages,
                 uint32_t count);

  // Appends what the entry at `position` holds once more, with the newest bytes, unless newer
  // entries hold all of it: so the tail can pass it before the disk has it. What is pending next to
  // it goes along if writers have room for it. False: not even the reserve has room.
  bool Move(CachedFile& file, uint64_t page_number, radix::PageDescriptor& page,
            nvlog::Position position);

  radix::Supply& supply() { return supply_; }
  Frames& frames() { return frames_; }
  nvlog::Log& log() { return log_; }

 private:
  long Load(CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page,
            uint8_t* bytes);
  // The page as it will be in the kernel, `*length` bytes of it; nullptr: it is not in one piece.
  const uint8_t* Whole(const CachedFile& file, uint64_t page_number,
                       const radix::PageDescriptor& page, size_t* length);
  long WritePieces(CachedFile& file, uint64_t page_number, const radix::PageDescriptor& page);
  void Written(radix::PageDescriptor& page);
  long ReadFromLog(const CachedFile& file, const radix::PageDescriptor& page, size_t skip, size_t n,
                   uint8_t* out, long error);
  // Newer entries hold all that the entry at `position` does.
  bool Superseded(const radix::PageDescriptor& page, nvlog::Position position) const;

  nvlog::Log& log_;
  radix::Supply& supply_;
  Frames& frames_;
};

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_PAGE_CACHE_H_
