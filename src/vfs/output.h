// SPDX-License-Identifier: BSD-3-Clause
//
// What leaves the program, with commit at output (docs/output.md): a sync has
// returned before the journal, or the quorum, had what it covers, and nobody outside may hear of it
// before. A front end calls these before the kernel gets a call by which something leaves.
//
// Each returns 0, or a negated errno with which the call must fail. No lock: they wait, and
// handlers of the program's may run. Which descriptors something leaves by is decided here, and
// nowhere else.
#ifndef NVCACHE_VFS_OUTPUT_H_
#define NVCACHE_VFS_OUTPUT_H_

#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

using pool::Output;

// Something was told that the images lack: else nobody need ask what a call is.
inline bool HoldsOutputs() { return engine.mirror.IsTold(); }

// Before a call by which something leaves, whatever it is called on.
long HoldOutput(Output output);
// Before bytes go to what is open there: unless the log has them first, as those of a file in the
// cache of this process.
long HoldOutputOf(int fd);
// Before a descriptor is closed: the other end of a socket or a pipe hears of it.
long HoldClose(int fd);
// Before an open: one that makes or cuts a file, and one of a FIFO, are seen.
long HoldOpen(int dirfd, const char* path, int flags);
// Before a mapping that others see, and that the program writes to by itself: where it lies on a
// disk, and counts after a crash (FileSystems::IsRebuilt), the process's syncs wait from then on,
// as with commit at fsync.
long HoldMapping(int fd);

// What leaves this process is not seen from now on: so its syncs wait.
long LeaveUnseen();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_OUTPUT_H_
