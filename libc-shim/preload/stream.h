// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors that libc opens, reads, writes and closes inside itself, where we cannot see.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_STREAM_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_STREAM_H_

#include "libc-shim/calls/descriptor.h"
#include "libc-shim/calls/open.h"

namespace nvcache::preload {

// Standard error always has a stream: perror writes to a copy of it, and libc's last words go there
// by the number. So have, unless libc's streams come to us (stdio_slots.h), standard input and
// output, and the descriptors that are noted here.
void SetHasStream(int fd, bool has);

// A descriptor that libc has opened inside itself, without our order between truncation and log:
// a new file, or one of which nothing is pending.
inline int TrackOpened(int fd, int flags) {
  if (fd < 0) return fd;
  {
    vfs::OpenGuard guard(AT_FDCWD, "", flags & ~(O_TRUNC | O_CREAT), 0);
    guard.Opened(fd);
  }
  return calls::AfterNumbering(fd);
}

// libc is about to close `fd` where we cannot see, or has done so.
inline void Release(int fd) {
  if (fd < 0) return;
  vfs::NoteClosing(fd);
  if (vfs::PassThrough(fd) >= 0) vfs::Forget(fd);
}

// The three standard ones, in place of which libc puts a terminal, or nothing.
inline void ReleaseStandard() {
  for (int fd = 0; fd <= 2; ++fd) Release(fd);
}

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_STREAM_H_
