// SPDX-License-Identifier: BSD-3-Clause
//
// The responder: a thread of a busy process, which answers other processes that want a file;
// nothing is held by an idle one. It also lets go of closed files: the program may make no call for
// a long time. And it lets go of a pool that has no name any more: nobody could recover that.
#ifndef NVCACHE_VFS_ENGINE_RESPONDER_H_
#define NVCACHE_VFS_ENGINE_RESPONDER_H_

#include <atomic>

#include "src/lease/leases.h"
#include "src/sys/lock.h"

namespace nvcache::vfs {

class Responder {
 public:
  constexpr Responder() = default;

  // Table lock, in both. False: no thread can be made.
  bool Start();
  void Stop();
  // It is the parent's, in a child of fork.
  void LeaveToParent() { thread_ = nullptr; }
  // Processes that have died may have the room that writers wait for. Any thread.
  void LookForRoomSoon();
  // Whether the pool has its name. The cleanup thread: in how many ns to ask again.
  uint64_t WatchName();

 private:
  void Run();
  void LookForRoom();
  void HearOfWish();
  void Serve(const lease::Request& request);
  bool LockTable();
  void LeaveRemoved();

  std::atomic<bool> starving_{false};
  uint64_t looked_ = 0;       // monotonic ns: at the name
  uint64_t leave_after_ = 0;  // monotonic ns: a disk refuses what the pool holds
  bool leaving_ = false;      // the responder itself detaches the pool
  void* thread_ = nullptr;
  sys::Word stops_{0};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_RESPONDER_H_
