// SPDX-License-Identifier: BSD-3-Clause
//
// The end of a process by exit, return from main, or the end of its last thread. libc runs handlers
// and destructors, some of them after ours; then it writes what its streams hold, goes through them
// once more to take their buffers away, and makes the system call, all inside itself.
//
// I1 holds until then: what a handler, a destructor or that flush writes is in the log. So the
// engine stops when nothing can come any more: libc's list of streams ends with one of ours, which
// is a reader that is one byte ahead of its file. libc, when it takes the buffer away, seeks back
// by that byte; and there we are called. Where libc leaves the stream out, the engine does not
// stop, and somebody else brings the log to the files.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_LAST_STREAM_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_LAST_STREAM_H_

#include <stdio.h>

namespace nvcache::preload {

// Where streams are caught, and before any other thread exists.
void AddLastStream();

// The destructor: whether the engine is to be stopped by the last stream.
bool AwaitLastStream();

// While one exists, the streams lose their buffers, and it is not the end.
class NotTheEnd {
 public:
  NotTheEnd();
  ~NotTheEnd();
  NotTheEnd(const NotTheEnd&) = delete;
  NotTheEnd& operator=(const NotTheEnd&) = delete;
};

bool IsLastStream(const FILE* stream);

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_LAST_STREAM_H_
