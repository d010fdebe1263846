// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_ENGINE_WRITE_CALL_H_
#define NVCACHE_VFS_ENGINE_WRITE_CALL_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>

namespace nvcache::vfs {

// A write as the program has made it.
struct WriteCall {
  int fd;
  const iovec* iov;  // a copy
  int count;
  const off_t* offset;  // null: at the description's
  int flags;            // RWF_*
};

// Findings of earlier attempts of a write.
struct Attempt {
  bool grow = false;       // the file grows
  bool warm = false;       // the file was hot: all that could be done about it is done
  bool synced = false;     // it promises a sync
  bool by_kernel = false;  // the kernel has made the call: its answer is the program's
  bool past = false;       // the log cannot have it
  bool unlogged = false;   // a part of it is in no log
  bool ends = false;       // the kernel has taken less than it was given: so does the call
  bool left = false;       // and there is more, for the kernel alone
  bool settled = false;    // the file was settled for it
  uint64_t done = 0;       // bytes that are written, in the log and by the kernel
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_WRITE_CALL_H_
