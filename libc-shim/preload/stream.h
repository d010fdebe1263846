// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors that libc reads and writes inside itself, where we cannot see. Whatever file gets
// such a number is the kernel's: by dup2, as a shell does with standard output, or by open after
// close.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_STREAM_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_STREAM_H_

#include "libc-shim/preload/calls.h"

namespace nvcache::preload {

// Standard error always is one: perror writes to a copy of it, and libc's last words go there by
// the number. So are, unless libc's streams come to us (stdio_slots.h), standard input and output,
// and those of other streams.
bool HasStream(int fd);
void SetHasStream(int fd, bool has);

// To be called with each new descriptor, or with the error in place of one. A disk that refuses to
// take the file's pending bytes is left to fsync and close to report: the number is given out.
template <typename Descriptor>
inline Descriptor AfterNumbering(Descriptor fd) {
  if (fd < 0 || InsideLibpmem() || !HasStream(static_cast<int>(fd))) return fd;
  vfs::PassThrough(static_cast<int>(fd));
  return fd;
}

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_STREAM_H_
