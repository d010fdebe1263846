// SPDX-License-Identifier: BSD-3-Clause
//
// The files whose write-back a file system refuses, and when they are tried again.
#ifndef NVCACHE_CLEANUP_FAILING_FILES_H_
#define NVCACHE_CLEANUP_FAILING_FILES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "src/dramcache/cached_file.h"
#include "src/sys/kernel.h"

namespace nvcache::cleanup {

class FailingFiles {
 public:
  explicit constexpr FailingFiles(nvlog::Log& log) : log_(log) {}

  // After a refusal, before the next try; and at least so many times what the last one took.
  static constexpr uint64_t kRetryNs = 100 * 1000 * 1000;
  static constexpr uint64_t kRetryShare = 4;

  // ---- Any thread
  // errno of some file that fails; 0: there is none.
  int error() const { return error_.load(std::memory_order_relaxed); }
  // Somebody waits for one: none has to be tried later.
  void WantRetry() { retry_wanted_.store(true); }
  // All were tried so often; and a try that has begun later than the first is over when the second
  // is above it.
  uint64_t retries_begun() const { return retries_begun_.load(); }
  uint64_t retries_done() const { return retries_done_.load(); }
  // There is no such thread any more: every thread that waits is refused.
  void Abandon();

  // ---- The cleanup thread
  void Clear() { list_ = nullptr; }
  bool any() const { return list_ != nullptr; }
  uint64_t retry_at() const { return retry_at_; }  // monotonic ns
  // `error`: negated errno. It has something pending.
  void Add(dramcache::CachedFile& file, long error);
  // Nothing is left that the disk could refuse.
  void Remove(dramcache::CachedFile& file);
  // If it is time: calls write(file) for each, and for those that were written again,
  // recovered(file), which says in the file that it fails no more.
  template <typename Write, typename Recovered>
  void Retry(Write write, Recovered recovered);

 private:
  // For `nvcache status`. 0: it fails no more.
  void Show(const dramcache::CachedFile& file, int error);
  void NoteError() { error_.store(list_ != nullptr ? list_->failing.load() : 0); }

  nvlog::Log& log_;
  dramcache::CachedFile* list_ = nullptr;
  uint64_t retry_at_ = 0;
  std::atomic<int> error_{0};
  std::atomic<bool> retry_wanted_{false};
  std::atomic<uint64_t> retries_begun_{0};
  std::atomic<uint64_t> retries_done_{0};  // the number of the last one
};

// Not so often that it takes more than a share of the time: the disk may be slow to refuse.
template <typename Write, typename Recovered>
void FailingFiles::Retry(Write write, Recovered recovered) {
  if (list_ == nullptr) return;
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  if (!retry_wanted_.exchange(false) && begin < retry_at_) return;
  const uint64_t retry = retries_begun_.fetch_add(1) + 1;
  for (dramcache::CachedFile** link = &list_; *link != nullptr;) {
    dramcache::CachedFile& file = **link;
    if (const long error = write(file); error < 0) {
      Add(file, error);
      link = &file.failing_next;
    } else {
      *link = file.failing_next;
      Show(file, 0);
      recovered(file);
    }
  }
  NoteError();
  retries_done_.store(retry);
  const uint64_t end = sys::Now(CLOCK_MONOTONIC);
  retry_at_ = end + std::max(kRetryNs, kRetryShare * (end - begin));
}

}  // namespace nvcache::cleanup

#endif  // NVCACHE_CLEANUP_FAILING_FILES_H_
