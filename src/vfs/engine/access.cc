// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/access.h"

#include <errno.h>

#include "src/sys/kernel.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

bool Access::Appends(const Description& description, const Write& write) {
  const bool always = (description.flags.load(std::memory_order_relaxed) & O_APPEND) != 0;
  return (always && (write.flags & RWF_NOAPPEND) == 0) || (write.flags & RWF_APPEND) != 0;
}

// It guesses: the file's lock is not held. The description's is, if the write is at its offset.
bool Access::Grows(const Description& description, const File& file, const Write& write) {
  if (Appends(description, write)) return true;
  const uint64_t at =
      write.offset != nullptr ? static_cast<uint64_t>(*write.offset) : description.offset;
  return at + write.length > file.size.load(std::memory_order_relaxed);
}

// The description is found without a lock, so it may be another's by the time its file is locked:
// then once more. Closing a description takes its file's lock, exclusive, after the number means
// nothing.
long Access::Enter(int fd, unsigned wanted, const Write* write) {
  unsigned need = wanted;
  for (;;) {
    Description* description = engine.descriptors.Of(fd);
    if (!IsDescription(description)) {
      return description == Closing() || description == Internal() ? -EBADF : kNotOurs;
    }
    if (engine.standing.asleep()) [[unlikely]] {
      const TableLock wakes;
      continue;
    }
    File* file = description->file.load(std::memory_order_acquire);
    if (file == nullptr) continue;
    const State state = file->state.load(std::memory_order_acquire);
    if (!IsFollowed(state)) return state == State::kLost ? -EIO : kNotOurs;
    if (state == State::kForeign) {
      if (long error = TakeOver(fd); error < 0) return error;
      continue;
    }
    if (IsKernels(state)) {
      if ((need & kUnlessKernel) != 0) return kNotOurs;
      need &= ~static_cast<unsigned>(kOffset);  // the kernel has its own
    }
    if ((need & kOffset) != 0) description->offset_lock.Lock();
    if (write != nullptr && state == State::kCached && Grows(*description, *file, *write)) {
      need |= kGrow;
    }
    if ((need & kGrow) != 0) file->grow_lock.Lock();
    file->lock.LockShared();
    description_ = description;
    file_ = file;
    need_ = need;
    if (engine.descriptors.Of(fd) == description && description->file.load() == file &&
        file->state.load() == state) {
#ifdef NVCACHE_CHECK_LOCKS
      CheckFields(*file);
#endif
      return 0;
    }
    Leave();
    need = wanted;
  }
}

void Access::MoveOffset(int fd, uint64_t offset) {
  description_->offset = offset;
  if (engine.standing.IsForked(*description_)) {
    sys::Lseek(fd, static_cast<off_t>(offset), SEEK_SET);
  }
}

void Access::Leave() {
  if (file_ == nullptr) return;
  file_->lock.UnlockShared();
  if ((need_ & kGrow) != 0) file_->grow_lock.Unlock();
  if ((need_ & kOffset) != 0) description_->offset_lock.Unlock();
  file_ = nullptr;
}

ExclusiveAccess::ExclusiveAccess(int fd) {
  if (!IsDescription(engine.descriptors.Of(fd))) return;
  engine.LockTable();
  Description* description = engine.descriptors.Of(fd);
  if (IsDescription(description)) {
    File* file = description->file.load();
    if (IsFollowed(file->state.load())) {
      file->lock.Lock();
      file_ = file;
      return;
    }
  }
  engine.table_lock.Unlock();
}

ExclusiveAccess::~ExclusiveAccess() {
  if (file_ == nullptr) return;
  file_->lock.Unlock();
  engine.table_lock.Unlock();
}

}  // namespace nvcache::vfs
