// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpointer puts the memory of an emulated or mirrored pool into huge pages, a little ahead
// of its use, so that no program takes a page fault for each 4 KiB of the pool that it meets. Pools
// on persistent memory have theirs from the file system or the device.
//
// Logs take the lowest free segment, so the pool is used from its beginning on, and what is huge is
// its beginning, too: it grows, and stays for as long as the pool is there. The pool's memory has
// been there since the pool was made, and the machine has no less of it afterwards; but a huge page
// counts for the control group of whoever makes it, and no longer for that of whoever made the
// pool. Nothing is in a program's thread, and nothing depends on it: what stays in small pages is
// slower.
#ifndef NVCACHE_VFS_HUGE_PAGES_H_
#define NVCACHE_VFS_HUGE_PAGES_H_

#include <atomic>
#include <cstdint>

#include "src/pool/pool.h"
#include "src/sys/host.h"
#include "src/sys/lock.h"

namespace nvcache::vfs {

class HugePages {
 public:
  constexpr HugePages() = default;
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  // Starts the thread that does it, if it is of use for this pool, which is mapped until End().
  // `most`: bytes that may be huge. Begin(), Look() and End() are for one thread.
  void Begin(const Host& host, const pool::Pool& pool, uint64_t most);
  // More of the pool may be in use.
  void Look();
  void End();

 private:
  enum class Step { kMade, kNothingToDo, kRefused };

  void Run();
  // Puts the next bytes into a huge page, if they are to be in one.
  Step MakeNext();
  // The control groups have one more, and as much left then as was made: the program is in there as
  // well, and a group that has none left kills it. 100 µs.
  bool HasRoom() const;
  // Bytes from the pool's beginning that are to be huge.
  uint64_t Goal() const;

  const Host* host_ = nullptr;
  const pool::Pool* pool_ = nullptr;
  void* thread_ = nullptr;
  uint64_t most_ = 0;              // a multiple of kHugePage
  uint64_t made_ = 0;              // the thread's: bytes that are huge, or were refused
  uint32_t attempts_ = 0;          // the thread's: at the next ones
  std::atomic<uint32_t> seen_{0};  // Seats::segments_end() when the thread last had nothing to do
  sys::Word turn_{0};              // changes when the thread is to look, or to end
  std::atomic<bool> ends_{false};
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_HUGE_PAGES_H_
