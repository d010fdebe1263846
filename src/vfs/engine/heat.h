// SPDX-License-Identifier: BSD-3-Clause
//
// When a file is worth logging. The log saves a program the wait for its syncs; a file that is
// never synced, or once, as most are, gains nothing by it, and would pay for records (I15). So a
// file begins as the kernel's, its fsync is real, and its writes are as durable as without us. With
// its kHotSyncs-th sync it is hot; this sync is real as well, so that the log begins with a file
// that is on the disk whole, name included (I9).
//
//   kKernel --- kHotSyncs-th sync --------------------------------> write-through (through.h)
//           --- the same of a file that is exclusive
//               (FileSystems::IsExclusive), and nobody of us
//               uses it ------------------------------------------> kCached
//
// Whoever looks at a cached file from outside sees old bytes, or some of each: no lock, and no
// order in which files are written, holds for a cache that he does not know (I16). So only the user
// can say that nobody does.
//
// The syncs count while each comes within kHotNs of the one before: a database's tables, which it
// syncs at a checkpoint every few minutes, would be written to the log for nothing.
//
// A sync is a call of fsync or fdatasync, or a write that promises one (O_SYNC, RWF_DSYNC). Where
// the file cannot be cached just then, every further kHotSyncs-th sync tries again. The counts end
// with the last close. NVCACHE_WRITE_BACK sets another rule.
#ifndef NVCACHE_VFS_ENGINE_HEAT_H_
#define NVCACHE_VFS_ENGINE_HEAT_H_

#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// The first may be the only one: a file that is written, synced and closed.
inline constexpr uint32_t kHotSyncs = 2;
inline constexpr uint64_t kHotNs = 10ull * 1000 * 1000 * 1000;
// A process whose names are in no log (Standing::MayLogNames) waits longer: a file that is removed
// or renamed costs it a sync of the file system if it has records. SQLite syncs a rollback journal
// up to four times, and removes it.
inline constexpr uint32_t kSyncsWithoutNames = 8;
// After so many syncs of a write-through file that is exclusive, it is tried whether others use it
// still.
inline constexpr uint32_t kSyncsToTryAgain = 64;

// The rule is to cache each file from its first open for writing.
bool IsHotFromTheStart();

// The program asks for a sync of a file that is the kernel's. True: the file is hot, and may have
// to become more than it is, so WarmUp.
// File lock, shared.
bool CountSync(File& file);

// Makes the descriptor's file write-through, or begins to cache it, if it is the kernel's and can
// be. No lock.
void WarmUp(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_HEAT_H_
