// SPDX-License-Identifier: BSD-3-Clause
//
// What has to be so before the log takes a record of a file: one whose name, or whose state on the
// disk, is not known for good costs one real sync (I9).
#ifndef NVCACHE_VFS_SETTLE_H_
#define NVCACHE_VFS_SETTLE_H_

#include "src/nvlog/log.h"
#include "src/vfs/file.h"

namespace nvcache::vfs {

// What is private to the engine, and no errno: the kernel's own must not be taken for it. Beside
// kNotOurs, and as far from the errors.
inline constexpr long kLogFull = LONG_MIN + 1;
inline constexpr long kNoDescriptors = LONG_MIN + 2;
// As kLogFull, and full of what a disk refuses.
inline constexpr long kNoHope = LONG_MIN + 3;
// A signal waits, and the log is full: its handler runs, and then the call begins anew.
inline constexpr long kSignal = LONG_MIN + 4;
// The file grows: enter again with its grow lock.
inline constexpr long kGrows = LONG_MIN + 5;
// Recovery could not find the file, or the file system has refused a sync: the log must not take
// what is written now.
inline constexpr long kUnsettled = LONG_MIN + 6;
// The file has to be described first.
inline constexpr long kUndescribed = LONG_MIN + 7;
// The file has to be synced first (SyncAwaited), which nobody does who holds a lock.
inline constexpr long kAwaitsSync = LONG_MIN + 8;
// The file is the kernel's and hot (heat.h).
inline constexpr long kIsHot = LONG_MIN + 9;

// The outcome of a group in these words; -EFAULT for a bad buffer, 0 when it is done.
long ResultOf(nvlog::Outcome outcome);

// Before a record of the file: 0, kAwaitsSync, or kUnsettled. File lock.
long Settle(const File& file);

// Syncs the descriptor's file if a record of it waits for that. 0, and then the file may be
// another, and may wait again; or kUnsettled. No lock: while the disk takes its time, the file can
// be opened, read and written, but for its first record.
long SyncAwaited(int fd);

// Describes the file for the log: 0, or kUnsettled. File lock.
long Describe(File& file, pool::FileRecord* record);

// Has the log say that the file loses its last name, or has lost it: then recovery looks for it,
// and does not miss it. After that the log takes nothing of the file (Settle). False: it has no
// room for that, or cannot describe the file. File lock, exclusive.
bool LogRemoval(File& file);
// The file has kept its name. File lock, exclusive.
bool LogReturn(File& file);

// Appends a record without payload, as `*lsn`. 0, kAwaitsSync, kUnsettled, or kLogFull. File lock,
// exclusive.
long AppendMark(File& file, nvlog::Kind kind, uint64_t offset, uint64_t length, nvlog::Lsn* lsn);

// Cuts a cached file off after `length` bytes, fewer than it has, by way of the log (sizes.cc):
// what is pending need not reach the disk first, and fsync need not wait for it. 0; kNotOurs:
// nothing has happened, and it does not go like that now; or what the kernel says. File lock,
// exclusive.
long CutLogged(File& file, uint64_t length);

// The next record waits for a sync, because the file system may still undo what was done to the
// file. File lock, exclusive, and nothing pending.
void AwaitSync(File& file);
// A sync has made sure of the file as it is, name included. Table lock, or the file's.
bool IsSynced(const File& file);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_SETTLE_H_
