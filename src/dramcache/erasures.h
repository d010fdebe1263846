// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_DRAMCACHE_ERASURES_H_
#define NVCACHE_DRAMCACHE_ERASURES_H_

#include <atomic>
#include <cstdint>

#include "src/nvlog/record.h"
#include "src/sys/check.h"
#include "src/sys/lock.h"

namespace nvcache::dramcache {

// Bytes of a file that became zero, or were cut off, at some LSN: of a record before it they are
// nothing.
struct Erasure {
  nvlog::Lsn lsn;
  uint64_t begin;
  uint64_t end;  // kToTheEnd: cut off

  static constexpr uint64_t kToTheEnd = ~uint64_t{0};
};

// The erasures of a file that are pending: few, for one that lies within a newer one is forgotten.
// Changes under the file's lock, exclusive, or by the cleanup thread.
class Erasures {
 public:
  static constexpr uint32_t kMost = 8;

  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  // Add() needs room. It stays when this was true, for the thread that holds the file's lock,
  // exclusive.
  bool HasRoom() const { return count_.load(std::memory_order_acquire) < kMost; }

  // Newer than all.
  void Add(const Erasure& erasure) {
    sys::Lock lock(lock_);
    uint32_t count = 0;
    for (uint32_t i = 0; i < count_.load(); ++i) {
      const Erasure old = all_[i];
      if (old.begin < erasure.begin || old.end > erasure.end) all_[count++] = old;
    }
    NVCACHE_CHECK(count < kMost);
    all_[count++] = erasure;
    count_.store(count, std::memory_order_release);
  }
  // It is on disk, if it is not forgotten yet.
  void Forget(nvlog::Lsn lsn) {
    sys::Lock lock(lock_);
    uint32_t count = 0;
    for (uint32_t i = 0; i < count_.load(); ++i) {
      if (all_[i].lsn != lsn) all_[count++] = all_[i];
    }
    count_.store(count, std::memory_order_release);
  }
  void Clear() { count_.store(0, std::memory_order_release); }

  // Calls function(erasure) for each, the newest first.
  template <typename Function>
  void ForEach(Function function) const {
    if (empty()) return;
    sys::Lock lock(lock_);
    for (uint32_t i = count_.load(); i > 0; --i) function(all_[i - 1]);
  }

 private:
  mutable sys::Mutex<sys::Rank::kErasures> lock_;
  std::atomic<uint32_t> count_{0};
  Erasure all_[kMost];  // in the order of their LSNs
};

}  // namespace nvcache::dramcache

#endif  // NVCACHE_DRAMCACHE_ERASURES_H_
