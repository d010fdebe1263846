// SPDX-License-Identifier: BSD-3-Clause
//
// A write of which no log need know, as most are: the short way around the kernel's call, inline in
// the front end's wrapper. It calls nothing, so it takes no stack and few registers.
#ifndef NVCACHE_VFS_PLAIN_WRITE_H_
#define NVCACHE_VFS_PLAIN_WRITE_H_

#include "src/lease/pass.h"
#include "src/sys/deferral.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

// Between Begin() and End() the process says in the leases that the write is under way, the
// descriptor's file has no entry there, and cannot become cached; and nothing of the program runs
// on this thread.
class PlainWrite {
 public:
  explicit PlainWrite(int fd) : fd_(fd), description_(engine.descriptors.Of(fd)) {}
  PlainWrite(const PlainWrite&) = delete;
  PlainWrite& operator=(const PlainWrite&) = delete;

  bool is_untracked() const { return description_ == kUntracked; }
  bool is_on_file() const { return IsDescription(description_); }

  // It is on a file. False: there is more to the write. A signal may wait then, until the engine is
  // left next.
  [[gnu::always_inline]] bool Begin() {
    if (engine.caches_files()) return false;
    if ((description_->flags.load(std::memory_order_relaxed) & O_DSYNC) != 0) return false;
    const File* file = description_->file.load(std::memory_order_acquire);
    if (file == nullptr || file->state.load(std::memory_order_acquire) != State::kKernel) {
      return false;
    }
    // A log has it: so it has an entry.
    if (file->recent_record.load(std::memory_order_relaxed) != 0) return false;
    const uint64_t tag = file->entry_tag.load(std::memory_order_relaxed);
    if (!Enter()) return false;
    if (pass_.Begin(engine.leases, tag)) [[likely]] {
      // It is that file which the process says so of. Both may have been given to another one
      // meanwhile.
      if (engine.descriptors.IsStill(fd_, description_) && description_->file.load() == file &&
          file->entry_tag.load() == tag && !lease::Pass::MayHaveEntry(engine.leases, tag))
          [[likely]] {
        return true;
      }
      pass_.End(engine.leases);
    }
    Leave();
    return false;
  }
  // True: Deliver() is to be called.
  [[gnu::always_inline]] bool End() const {
    pass_.End(engine.leases);
    return Leave();
  }
  // Has the signals be handled that wait.
  static void Deliver() { const sys::InEngine inside; }

 private:
  // As sys::EnterEngine() and LeaveEngine(), for a thread that cannot be cancelled at any
  // instruction.
  [[gnu::always_inline]] static bool Enter() {
    if (sys::deferral.let_cancel != nullptr) return false;
    ++sys::deferral.depth;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  }
  [[gnu::always_inline]] static bool Leave() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    --sys::deferral.depth;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return sys::deferral.waits != 0;
  }

  const int fd_;
  Description* const description_;
  lease::Pass pass_;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_PLAIN_WRITE_H_
