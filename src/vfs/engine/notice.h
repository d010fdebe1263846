// SPDX-License-Identifier: BSD-3-Clause
//
// The one line on stderr.
#ifndef NVCACHE_VFS_ENGINE_NOTICE_H_
#define NVCACHE_VFS_ENGINE_NOTICE_H_

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
  // What the pool does not outlive; or that it has a mirror.
  void SayLevel();
  bool said() const { return said_; }

 private:
  bool said_ = false;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_NOTICE_H_
