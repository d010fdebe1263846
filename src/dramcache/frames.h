// SPDX-License-Identifier: BSD-3-Clause
//
// The page frames and their replacement: second chance (Corbato, "A Paging Experiment with the
// Multics System", 1968). A frame can be taken from a page at any time, dirty counter or not: the
// log has the bytes. So frames mean nothing after a crash, wherever they are: in DRAM, or in
// segments of the pool.
#ifndef NVCACHE_DRAMCACHE_FRAMES_H_
#define NVCACHE_DRAMCACHE_FRAMES_H_

#include <atomic>
#include <cstdint>

#include "src/pool/pool.h"
#include "src/radix/page.h"

namespace nvcache::dramcache {

class Frames {
 public:
  // Room for `count` frames of kPageSize; memory is used when a frame is. 0 is allowed.
  bool Open(uint32_t count, radix::PageArena* pages, pool::Statistics* statistics);
  // The frames lie in the pool's last `segments` segments, which are in no log (nvlog::Segments).
  bool OpenInPool(const pool::View& view, uint32_t segments, radix::PageArena* pages);
  void Close();

  // For measurements: each access takes so much longer, as it does in memory that is slower.
  void SetDelay(uint64_t ns);

  // Gives `page` (locked) a frame, perhaps another page's; its content is undefined. False if every
  // frame's page is locked right now.
  bool Attach(radix::PageDescriptor& page);
  // Takes it away again (page locked).
  void Detach(radix::PageDescriptor& page);

  uint8_t* Bytes(uint32_t frame) { return bytes_ + uint64_t{frame} * pool::kPageSize; }

  // The frame was used: spare it once.
  void Touch(uint32_t frame) {
    if (referenced_[frame].load(std::memory_order_relaxed) == 0) {
      referenced_[frame].store(1, std::memory_order_relaxed);
    }
  }

  // The frame is about to be read or written, or just was.
  void Access(uint32_t frame) {
    Touch(frame);
    if (delay_ticks_ != 0) [[unlikely]]
      Delay();
  }

  // In a pool, with the pages that are no frames.
  uint32_t count() const { return count_; }

 private:
  bool OpenTables(uint32_t count, radix::PageArena* pages, pool::Statistics* statistics);
  bool IsFrame(uint32_t number) const;
  uint32_t Evict();
  void Delay() const;

  radix::PageArena* pages_ = nullptr;
  pool::Statistics* statistics_ = nullptr;
  uint8_t* bytes_ = nullptr;
  std::atomic<uint32_t>* owner_ = nullptr;  // descriptor's number plus one; a hint without its lock
  std::atomic<uint8_t>* referenced_ = nullptr;
  uint32_t count_ = 0;
  uint32_t segment_pages_ = 0;  // in each segment that holds frames; 0: they are in DRAM
  uint64_t delay_ticks_ = 0;    // the time-stamp counter's

  sys::Mutex<sys::Rank::kFrames> free_lock_;
  uint32_t* free_ = nullptr;
  uint32_t free_count_ = 0;
  uint32_t used_ = 0;

  std::atomic<uint32_t> hand_{0};
};

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_FRAMES_H_
