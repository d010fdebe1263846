// SPDX-License-Identifier: BSD-3-Clause
//
// The one line on stderr; and what hinders the process, among the leases and in a line of its own.
#ifndef NVCACHE_VFS_ENGINE_NOTICE_H_
#define NVCACHE_VFS_ENGINE_NOTICE_H_

#include "src/lease/hindrances.h"
#include "src/pool/pool.h"

namespace nvcache::vfs {

class Notice {
 public:
  constexpr Notice() = default;

  // Once; the program goes on.
  void Say(const char* text);
  // Once; the program runs without the cache, or with NVCACHE_REQUIRED not at all: exit status 125.
  void Refuse(const char* text);
  void RefusePool(const pool::Problem& problem);
  // `text` says what is wrong; the program's fate is added.
  void RefuseCache(const char* text);
  // The same; but without NVCACHE_REQUIRED the program goes on with its pool.
  void RefuseFrames(const char* text);
  // Says how large the pool was made, where a control group bounds the memory.
  static void SaySize(uint64_t size);
  // Says what the pool does not outlive; or that it has a mirror.
  void SayLevel();
  bool said() const { return said_; }
  // Where the process has lost something of what its pool could do for it: once for each hindrance.
  // `detail`: for example a file's name; it may be empty. A line on stderr says so where somebody
  // wants them all (NVCACHE_NOTICE=all); or where it is the user's to act, for bytes may be at
  // stake. Any thread, with any lock.
  void Hinder(lease::Hindrance hindrance, const char* detail = "");

 private:
  bool said_ = false;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_NOTICE_H_
