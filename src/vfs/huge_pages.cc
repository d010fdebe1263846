// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/huge_pages.h"

#include <errno.h>

#include <algorithm>

#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/memory_group.h"

namespace nvcache::vfs {

namespace {

using sys::kHugePage;

// What is used, and so many times as much, up to this bound: a huge page takes as long to make as a
// busy program takes to fill one or two.
constexpr uint64_t kAheadTimes = 8;
constexpr uint64_t kMaxAhead = 512u << 20;
// Between two looks while logs go where none has been.
constexpr uint64_t kBusyLookNs = 10 * 1000 * 1000;
// Memory may be short for a while, and the kernel does not move a page that somebody holds just
// now. So many attempts at one huge page, each at a look of its own.
constexpr uint32_t kMaxAttempts = 3;
constexpr uint64_t kRetryNs = 1000 * 1000 * 1000;

constexpr uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

void HugePages::Begin(const Host& host, const pool::Pool& pool, uint64_t most) {
  const auto base = reinterpret_cast<uintptr_t>(pool.view().base);
  most_ = std::min(most, pool.view().superblock->pool_size) / kHugePage * kHugePage;
  if (most_ == 0 || base % kHugePage != 0 || pool.durability() == pmem::Durability::kPower) return;
  host_ = &host;
  pool_ = &pool;
  made_ = 0;
  ends_.store(false);
  thread_ = host.start_thread([](void* self) { static_cast<HugePages*>(self)->Run(); }, this);
}

void HugePages::Look() {
  if (thread_ == nullptr || pool_->seats().segments_end() == seen_.load()) return;
  turn_.fetch_add(1);
  sys::FutexWake(&turn_, 1);
}

void HugePages::End() {
  if (thread_ == nullptr) return;
  ends_.store(true);
  turn_.fetch_add(1);
  sys::FutexWake(&turn_, 1);
  host_->join_thread(thread_);
  thread_ = nullptr;
}

void HugePages::Run() {
  for (;;) {
    const uint32_t turn = turn_.load();
    const uint32_t end = pool_->seats().segments_end();
    Step step = Step::kMade;
    while (step == Step::kMade && !ends_.load()) step = MakeNext();
    if (ends_.load() || step == Step::kRefused) return;
    const bool busy = seen_.exchange(end) != end;
    const uint64_t rest = attempts_ != 0 ? kRetryNs : sys::kForever;
    sys::FutexWait(&turn_, turn, busy ? kBusyLookNs : rest);
  }
}

// A kernel before 6.1 refuses all; one that has no huge page at hand, this one.
HugePages::Step HugePages::MakeNext() {
  if (made_ >= Goal() || !HasRoom()) return Step::kNothingToDo;
  const long error = sys::MakeHuge(pool_->view().base + made_);
  if (error == -EINVAL && made_ == 0) return Step::kRefused;
  if (error < 0 && ++attempts_ < kMaxAttempts) return Step::kNothingToDo;
  attempts_ = 0;
  made_ += kHugePage;
  return Step::kMade;
}

bool HugePages::HasRoom() const { return sys::FreeInGroups() >= made_ + 2 * kHugePage; }

uint64_t HugePages::Goal() const {
  const pool::View& view = pool_->view();
  const uint64_t used = pool_->seats().segments_end() * view.superblock->segment_size;
  const uint64_t ahead = std::min(kAheadTimes * used, kMaxAhead);
  return std::min(RoundUp(pool::kSegmentsOffset + used + ahead), most_);
}

}  // namespace nvcache::vfs
