// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/file.h"

#include <new>

#include "src/lease/tag.h"
#include "src/sys/check.h"

namespace nvcache::vfs {

void File::Begin(const sys::BornStat& st, uint32_t number) {
  NVCACHE_CHECK(descriptions == nullptr && pending.load() == 0 && pages.empty());
  NVCACHE_CHECK(state.load() == State::kPassThrough || device == 0);
  device = st.st_dev;
  inode = st.st_ino;
  birth = st.birth;
  entry_tag.store(lease::TagOf(device, inode, birth, S_IFREG));
  state.store(State::kKernel);
  backing_fd = -1;
  size.store(static_cast<uint64_t>(st.st_size));
  tag.Undeclare();  // by another file, of which this one has the number
  tag.number = number;
  failing.store(0);
  errors.Clear();
  erasures.Clear();
  erase_error.store(0);
  erased.store(false);
  kept_declared = 0;
  forever = handed_on = closed = said_open = false;
  syncs.store(0);
  synced_at.store(0);
  bypasses_seen.store(0);
  EndCaching();
  barriers.store(0);
  barriers_synced.store(0);
  sync_refused = false;
  changes.store(0);
  changes_synced.store(0);
  recent_record.store(0);
  locked.store(false);
  locks.store(0);
  turn.store(0);
  turn_fd.store(-1);
  bytes_stamp = 0;
}

void File::BeginToWatch(const struct stat& st) {
  NVCACHE_CHECK(lock.IsLockedExclusive());
  written_changes = changes.load();
  written_kernel_changes = kernel_changes.load();
  written_stamp = BytesStamp(st);
}

void File::EndCaching() {
  may_hand_over = false;
  close_stamp = written_stamp = 0;
  written_outside.store(false);
  removed.store(false);
}

void File::ForgetCache() {
  new (&pages) radix::Tree;
  erasures.Clear();
  in_batch = false;
}

void File::ResetLocks() {
  lock.Reset();
  in_kernel.store(0);
  grow_lock.Reset();
  sync_lock.Reset();
  erase_lock.Reset();
  for (Description* d = descriptions; d != nullptr; d = d->next) d->offset_lock.Reset();
}

uint64_t TimeOf(const timespec& time) {
  constexpr uint64_t kSecond = 1000 * 1000 * 1000;
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

uint64_t StampOf(const timespec& changed, uint64_t size) {
  return (TimeOf(changed) ^ size << 40) | 1;
}

uint64_t BytesStamp(const struct stat& st) {
  return StampOf(st.st_mtim, static_cast<uint64_t>(st.st_size));
}

}  // namespace nvcache::vfs
