// SPDX-License-Identifier: BSD-3-Clause
//
// The pool, while the process has it. It is attached when something is to be logged, and detached
// when no file is cached and the process may become another program (exec) or end (stage.h).
//
// Most processes need a seat and a log alone. An attached process becomes busy, with frames and the
// two threads, with its first cached file, or when it has been attached for kBusyAfterNs and logs
// something still.
#ifndef NVCACHE_VFS_ENGINE_ATTACHMENT_H_
#define NVCACHE_VFS_ENGINE_ATTACHMENT_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

#include "src/pool/pool.h"

namespace nvcache::vfs {

// Before attaching is tried again that has waited for somebody in vain, or has been undone.
inline constexpr uint64_t kAttachAgainNs = 1000 * 1000 * 1000;
// A process that is attached for so long, and goes on logging, is not one that ends at once.
inline constexpr uint64_t kBusyAfterNs = 50 * 1000 * 1000;

// Table lock, where nothing else is said.
class Attachment {
 public:
  constexpr Attachment() = default;

  // Attaches the pool, unless it is, for one more file or folder whose changes go into the log. The
  // caller has asked Callers::Know() before. False: the pool cannot be had; or just now, nothing
  // may begin to be cached, for the table of files is full, or another thread is in exec or has a
  // child that shares our memory.
  bool Attach();
  // A pool that is not attached could be, as far as this process is concerned.
  bool MayAttach() const;
  // Makes an attached process busy, unless it is. False: it has no memory or threads for that, and
  // caches nothing.
  bool StartThreads();
  // It has been idle for long enough, and is about to log something. Any thread.
  bool NeedsThreads() const;
  // The cleanup thread looks at all that it has to do. Any time.
  static void WakeThread();
  // Every file that is cached is given back, and then the pool; `for_good`: every file becomes
  // pass-through, for the engine sees the program's use of them no more. 0, or the error of a
  // file that stays cached, and the pool with it.
  long ReleaseAll(bool for_good = false);
  // Gives the pool back; nothing is cached.
  void Detach();
  // The same, whatever the disk refuses: that stays in the pool, for recovery.
  void Abandon();
  // In a child of fork: all of it is the parent's.
  void LeaveToParent();
  // Attaching waits, as after a failure: somebody needs what the pool takes.
  void AttachLater();

  // With a pin (PoolPin), or the table lock while attached; while not attached, Recovery's.
  pool::Pool& pool() { return pool_; }
  const pool::Pool& pool() const { return pool_; }
  uint64_t pool_id() const { return pool_id_; }
  bool IsPool(const struct stat& st) const { return pool_.is_open() && pool_.IsFile(st); }
  // Its descriptor is no number of ours any more.
  void ForgetNumber();

  // Calls that use the pool without the table lock and without a cached file's. No lock.
  bool Pin();
  void Unpin() { pins_.fetch_sub(1); }
  // In a child of fork: other threads had them.
  void ResetPins() { pins_.store(0); }

  // The process goes, and another process has to bring the kernel's bytes of its files to the disk.
  bool LeavesToOthers() const;
  // A write whose buffer is not there. By the time that the kernel sees that, it has given the
  // first pages of the file their blocks, and the file a new mtime.
  void WriteUnreadable(int fd, uint64_t at, uint64_t length) const;

 private:
  void AttachPool();
  static void SayWhatHinders();
  bool TakePool(pool::Problem* problem);
  bool OpenPool(pool::Problem* problem);
  bool CreatePool(pool::Problem* problem);
  bool TakeSeat(pool::Problem* problem);
  void RefuseAttach(const pool::Problem& problem);
  bool OpenRest();
  bool OpenLog();
  uint64_t FramePages() const;
  bool OpenFrames();
  void AwaitPins();
  void StopThreads();
  void CloseUnused();
  void CloseParts();
  void BecomeDetached();

  std::atomic<bool> threadless_{false};  // until Detach: there were no memory or threads
  std::atomic<bool> pinnable_{false};
  std::atomic<uint32_t> pins_{0};
  uint32_t frame_segments_ = 0;  // the pool's; 0: frames lie in DRAM
  uint64_t attach_after_ = 0;    // monotonic ns: it has failed for now
  uint64_t attached_at_ = 0;     // monotonic ns
  uint64_t pool_id_ = 0;
  void* unreadable_ = nullptr;  // bytes that nobody can read
  pool::Pool pool_;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_ATTACHMENT_H_
