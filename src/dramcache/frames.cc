// SPDX-License-Identifier: BSD-3-Clause
#include "src/dramcache/frames.h"

#include "src/pool/pool.h"
#include "src/sys/check.h"

namespace nvcache::dramcache {

namespace {

template <typename T>
bool ReserveArray(T** array, uint32_t count) {
  *array = static_cast<T*>(sys::ReserveLarge(uint64_t{count} * sizeof(T)));
  return *array != nullptr;
}

template <typename T>
void ReleaseArray(T** array, uint32_t count) {
  if (*array != nullptr) sys::UnmapUnlocked(*array, uint64_t{count} * sizeof(T));
  *array = nullptr;
}

using FrameBytes = uint8_t[pool::kPageSize];

}  // namespace

bool Frames::Open(uint32_t count, radix::PageArena* pages, pool::Statistics* statistics) {
  pages_ = pages;
  statistics_ = statistics;
  count_ = count;
  used_ = free_count_ = 0;
  if (count == 0) return true;
  auto** frames = reinterpret_cast<FrameBytes**>(&bytes_);
  if (ReserveArray(frames, count) && ReserveArray(&owner_, count) &&
      ReserveArray(&referenced_, count) && ReserveArray(&free_, count)) {
    return true;
  }
  Close();
  return false;
}

void Frames::Close() {
  ReleaseArray(reinterpret_cast<FrameBytes**>(&bytes_), count_);
  ReleaseArray(&owner_, count_);
  ReleaseArray(&referenced_, count_);
  ReleaseArray(&free_, count_);
  count_ = 0;
}

bool Frames::Attach(radix::PageDescriptor& page) {
  NVCACHE_CHECK(page.lock.IsLocked() && !page.has_frame());
  uint32_t frame = sys::kNone;
  {
    sys::Lock lock(free_lock_);
    if (free_count_ > 0) {
      frame = free_[--free_count_];
    } else if (used_ < count_) {
      frame = used_++;
    }
  }
  if (frame == sys::kNone) frame = Evict();
  if (frame == sys::kNone) return false;
  page.frame_plus_one = frame + 1;
  referenced_[frame].store(1, std::memory_order_relaxed);
  owner_[frame].store(pages_->IndexOf(&page) + 1, std::memory_order_release);
  return true;
}

void Frames::Detach(radix::PageDescriptor& page) {
  NVCACHE_CHECK(page.lock.IsLocked() && page.has_frame());
  const uint32_t frame = page.frame();
  owner_[frame].store(0, std::memory_order_relaxed);
  page.frame_plus_one = 0;
  sys::Lock lock(free_lock_);
  free_[free_count_++] = frame;
}

// The hand goes round at most twice: once to take the second chances, once to take a frame. Pages
// that somebody has locked are left alone, so the caller may hold page locks of its own.
uint32_t Frames::Evict() {
  for (uint64_t step = 0; step < 2 * uint64_t{count_}; ++step) {
    const uint32_t frame = hand_.fetch_add(1, std::memory_order_relaxed) % count_;
    if (referenced_[frame].exchange(0, std::memory_order_relaxed) != 0) continue;
    const uint32_t owner = owner_[frame].load(std::memory_order_acquire);
    if (owner == 0) continue;
    radix::PageDescriptor& page = (*pages_)[owner - 1];
    if (!page.lock.TryLock()) continue;
    // The descriptor may have gone to another page meanwhile; only this says whose the frame is.
    const bool owned = page.frame_plus_one == frame + 1;
    if (owned) {
      page.frame_plus_one = 0;
      owner_[frame].store(0, std::memory_order_relaxed);
      pool::Count(statistics_->evictions);
      if (page.dirty > 0) pool::Count(statistics_->dirty_evictions);
    }
    page.lock.Unlock();
    if (owned) return frame;
  }
  return sys::kNone;
}

}  // namespace nvcache::dramcache
