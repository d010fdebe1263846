// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/failing_files.h"

#include <errno.h>

#include "src/sys/check.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;

void FailingFiles::Add(CachedFile& file, long error) {
  NVCACHE_CHECK(file.pending.load() > 0);
  const int number = static_cast<int>(-error);
  const bool begins = file.failing.exchange(number) == 0;
  if (begins) {
    file.failing_next = list_;
    list_ = &file;
    retry_at_ = std::max(retry_at_, sys::Now(CLOCK_MONOTONIC) + kRetryNs);
  }
  // The program may have closed our descriptor a moment ago, unseen: the next try opens it anew.
  if (!begins || number != EBADF) file.errors.Set(number);
  error_.store(number);
  pool::Statistics* statistics = log_.statistics();
  pool::Count(statistics->write_back_errors);
  pool::Note(statistics->last_error, static_cast<uint64_t>(number));
  pool::Note(statistics->last_error_time, sys::Now(CLOCK_REALTIME));
  Show(file, number);
}

void FailingFiles::Show(const CachedFile& file, int error) {
  pool::Statistics* statistics = log_.statistics();
  const uint64_t key = uint64_t{log_.pool().seat()} << 32 | (uint64_t{file.tag.number} + 1);
  uint32_t place = pool::kMaxFailingShown;
  for (uint32_t i = 0; i < pool::kMaxFailingShown; ++i) {
    const uint64_t shown = pool::Peek(statistics->failing_file[i]);
    if (shown == key) {
      place = i;
      break;
    }
    if (shown == 0 && place == pool::kMaxFailingShown) place = i;
  }
  if (place == pool::kMaxFailingShown) return;
  std::atomic_ref shown(statistics->failing_file[place]);
  uint64_t none = 0;
  // Another process may have taken the place: then it is shown next time.
  const bool is_new = shown.load() != key;
  if (is_new && (error == 0 || !shown.compare_exchange_strong(none, key))) return;
  if (is_new) pool::Note(statistics->failing_since[place], sys::Now(CLOCK_REALTIME));
  pool::Note(statistics->failing_error[place], static_cast<uint64_t>(error));
  if (error == 0) pool::Note(statistics->failing_file[place], 0);
}

void FailingFiles::Remove(CachedFile& file) {
  CachedFile** link = &list_;
  while (*link != &file) link = &(*link)->failing_next;
  *link = file.failing_next;
  Show(file, 0);
  file.failing.store(0);
  NoteError();
}

void FailingFiles::Abandon() {
  error_.store(EIO);
  retries_done_.store(~uint64_t{0});
}

}  // namespace nvcache::cleanup
