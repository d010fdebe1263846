// SPDX-License-Identifier: BSD-3-Clause
//
// Conditions for the log to take a record of a file: one whose name, or whose state on the
// disk, is not known for good costs one real sync (I9).
#ifndef NVCACHE_VFS_ENGINE_SETTLE_H_
#define NVCACHE_VFS_ENGINE_SETTLE_H_

#include "src/nvlog/group_writer.h"
#include "src/vfs/engine/attempt.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Before a record of the file: kDone, kSync or kPassThrough. File lock.
Next MayLog(const File& file);

// Syncs the descriptor's file if a record of it waits for that. True, and then the file may be
// another, and may wait again. False: the disk refuses. No lock: while the disk takes its time, the
// file can be opened, read and written, but for its first record.
bool SyncBarrier(int fd);

// Describes the file for the log. False: recovery could not find it. File lock.
bool Describe(File& file, pool::FileRecord* record);

// Has the log say that the file loses its last name, or has lost it: then recovery looks for it,
// and does not miss it. After that the log takes nothing of the file (MayLog). False: it has no
// room for that, or cannot describe the file. File lock, exclusive.
bool LogRemoval(File& file);
// The file has kept its name. File lock, exclusive.
bool LogReturn(File& file);

// Appends a record without payload, as `*lsn`: kDone, kSync, kPassThrough or kAwaitRoom. File lock,
// exclusive.
Next AppendMark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn);

// The next record waits for a sync, because the file system may still undo what was done to the
// file. File lock, exclusive, and nothing pending.
void RaiseBarrier(File& file);
// A sync has made sure of the file as it is, name included. Table lock, or the file's.
bool IsSynced(const File& file);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_SETTLE_H_
