// SPDX-License-Identifier: BSD-3-Clause
//
// The state of one page of one file (thesis, section 3.2.6).
#ifndef NVCACHE_RADIX_PAGE_H_
#define NVCACHE_RADIX_PAGE_H_

#include <cstdint>

#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/lock.h"

namespace nvcache::radix {

// Every field is read and written under `lock`. All zero: a page of which nothing is known.
//
// A page that has neither a frame nor a pending record is idle: its descriptor can be taken back.
// The counters change here and nowhere else; unwritten <= dirty.
struct PageDescriptor {
  // The page lock (I3, I8). Locks of several pages are taken in ascending page order.
  sys::Mutex<sys::Rank::kPage> lock;
  uint32_t frame_plus_one;  // its number in the DRAM cache; 0: none
  // The dirty counter: records of this page in the log that are not known to be on disk.
  uint32_t dirty;
  // How many of these, the newest, the kernel does not have, either.
  uint32_t unwritten;
  uint64_t last;  // place of the newest of them; their links chain the others

  bool has_frame() const { return frame_plus_one != 0; }
  uint32_t frame() const { return frame_plus_one - 1; }
  bool idle() const { return frame_plus_one == 0 && dirty == 0; }

  // A record at `place` was committed.
  void Appended(uint64_t place) {
    Check();
    ++dirty;
    ++unwritten;
    last = place;
  }
  // The kernel has all bytes but of the `newer` newest records, or needs no others any more.
  void WrittenBack(uint32_t newer = 0) {
    Check();
    NVCACHE_CHECK(newer <= unwritten);
    unwritten = newer;
  }
  // The kernel may have dropped all that is not on disk.
  void LostByKernel() {
    Check();
    unwritten = dirty;
  }
  // The kernel has all bytes, and its records are nothing of this process's any more.
  void Relinquished() {
    Check();
    NVCACHE_CHECK(unwritten == 0);
    dirty = 0;
    last = 0;
  }
  // The oldest record is on disk.
  void Cleaned() {
    Check();
    NVCACHE_CHECK(dirty > unwritten);
    --dirty;
  }
  // The record that `newer` are newer than is taken from the chain: nothing of it is needed.
  void Unchained(uint32_t newer) {
    Check();
    NVCACHE_CHECK(newer < dirty);
    --dirty;
    if (newer < unwritten) --unwritten;
  }

 private:
  void Check() const { NVCACHE_CHECK(lock.IsLocked() && unwritten <= dirty); }
};
static_assert(sizeof(PageDescriptor) == 24);

using PageArena = sys::Arena<PageDescriptor>;

}  // namespace nvcache::radix

#endif  // NVCACHE_RADIX_PAGE_H_
