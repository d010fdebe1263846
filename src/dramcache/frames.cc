// SPDX-License-Identifier: BSD-3-Clause
#include "src/dramcache/frames.h"

#include "src/sys/check.h"
#include "src/sys/kernel.h"

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
  segment_pages_ = 0;
  if (!OpenTables(count, pages, statistics)) return false;
  if (count == 0 || ReserveArray(reinterpret_cast<FrameBytes**>(&bytes_), count)) return true;
  Close();
  return false;
}

bool Frames::OpenInPool(const pool::View& view, uint32_t segments, radix::PageArena* pages) {
  segment_pages_ = static_cast<uint32_t>(view.superblock->segment_size / pool::kPageSize);
  bytes_ = reinterpret_cast<uint8_t*>(view.segment(view.segment_count() - segments));
  return OpenTables(segments * segment_pages_, pages, view.statistics());
}

bool Frames::OpenTables(uint32_t count, radix::PageArena* pages, pool::Statistics* statistics) {
  pages_ = pages;
  statistics_ = statistics;
  count_ = count;
  used_ = free_count_ = 0;
  if (count == 0) return true;
  if (ReserveArray(&owner_, count) && ReserveArray(&referenced_, count) &&
      ReserveArray(&free_, count)) {
    return true;
  }
  Close();
  return false;
}

void Frames::Close() {
  if (segment_pages_ != 0) bytes_ = nullptr;  // the pool's
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
    } else {
      while (used_ < count_ && !IsFrame(used_)) ++used_;
      if (used_ < count_) frame = used_++;
    }
  }
  if (frame == sys::kNone) frame = Evict();
  if (frame == sys::kNone) return false;
  page.frame_plus_one = frame + 1;
  referenced_[frame].store(1, std::memory_order_relaxed);
  owner_[frame].store(pages_->IndexOf(&page) + 1, std::memory_order_release);
  return true;
}

// The first page of a segment and its last one have its headers.
bool Frames::IsFrame(uint32_t number) const {
  if (segment_pages_ == 0) return true;
  const uint32_t page = number % segment_pages_;
  return page != 0 && page != segment_pages_ - 1;
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

// The clock that costs a system call says how fast the counter is.
void Frames::SetDelay(uint64_t ns) {
  constexpr uint64_t kLookNs = 1000 * 1000;
  delay_ticks_ = 0;
  if (ns == 0) return;
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC), ticks = __builtin_ia32_rdtsc();
  uint64_t passed = 0;
  while (passed < kLookNs) passed = sys::Now(CLOCK_MONOTONIC) - begin;
  delay_ticks_ = ns * (__builtin_ia32_rdtsc() - ticks) / passed;
}

void Frames::Delay() const {
  const uint64_t begin = __builtin_ia32_rdtsc();
  while (__builtin_ia32_rdtsc() - begin < delay_ticks_) __builtin_ia32_pause();
}

}  // namespace nvcache::dramcache
