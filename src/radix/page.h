// SPDX-License-Identifier: BSD-3-Clause
//
// What we know of one page of one file (thesis, section 3.2.6).
#ifndef NVCACHE_RADIX_PAGE_H_
#define NVCACHE_RADIX_PAGE_H_

#include <cstdint>

#include "src/sys/arena.h"
#include "src/sys/lock.h"

namespace nvcache::radix {

// Every field is read and written under `lock`. All zero: a page of which nothing is known.
//
// A page that has neither a frame nor a pending entry is idle: its descriptor can be taken back.
struct PageDescriptor {
  // The page lock (I3, I8). Locks of several pages are taken in ascending page order.
  sys::Mutex lock;
  uint32_t frame_plus_one;  // of the DRAM cache; 0: none
  // The dirty counter: entries of this page in the log that are not known to be on disk.
  uint32_t dirty;
  // How many of these, the newest, the kernel does not have, either. <= dirty.
  uint32_t unwritten;
  uint64_t last;  // position of the newest of them; their `previous` fields chain the others

  bool has_frame() const { return frame_plus_one != 0; }
  uint32_t frame() const { return frame_plus_one - 1; }
  bool idle() const { return frame_plus_one == 0 && dirty == 0; }
};
static_assert(sizeof(PageDescriptor) == 24);

using PageArena = sys::Arena<PageDescriptor>;

}  // namespace nvcache::radix

#endif  // NVCACHE_RADIX_PAGE_H_
