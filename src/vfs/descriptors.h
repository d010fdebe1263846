// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors: tracked, duplicated and closed.
#ifndef NVCACHE_VFS_DESCRIPTORS_H_
#define NVCACHE_VFS_DESCRIPTORS_H_

#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/results.h"

namespace nvcache::vfs {

// Tracks a descriptor that was opened where we could not see, and that others may have, too
// (inherited, received). It keeps the file from being cached. 0, or as Lend: then the descriptor is
// not tracked, and must be closed again.
long Adopt(int fd);
// Adopts all that are there from before us. Once, after the engine's start.
void AdoptInherited();

// Stops tracking `fd`, which libc is about to close where we cannot see (fclose, closedir).
// The descriptor stays open in the kernel. For pass-through files only.
void Forget(int fd);

// The engine knows nothing of this descriptor, so a call that moves its bytes or its offset, or
// closes it, is the kernel's.
inline bool IsUntracked(int fd) { return engine.descriptors.Of(fd) == kUntracked; }

// Files of the process may be cached.
inline bool CachesFiles() { return engine.caches_files(); }

// A call that only reads, bytes, size or offset, is the kernel's as well where no file is cached.
inline bool IsReadByKernel(int fd) {
  const Description* description = engine.descriptors.Of(fd);
  return description == kUntracked || (IsDescription(description) && !CachesFiles());
}

// What is open there is about to be closed, by whatever call.
inline void NoteClosing(int fd) { engine.descriptors.ForgetPlain(fd); }

// True for a descriptor of a file that the engine follows, cached or not.
bool Tracks(int fd);

// The program's limit leaves no room for one more descriptor: gives up some of the engine's own.
// From then on the engine does without them: their files are the kernel's. False: there
// are no more to give up.
bool MakeRoom();

// True for a descriptor that the engine opened for itself. The program does not know it: the answer
// to every call on it is EBADF, and close_range() leaves it out.
inline bool IsInternal(int fd) { return engine.descriptors.Of(fd) == Internal(); }

long Close(int fd);
// Closes one for a call that has opened it, and fails all the same.
void Return(int fd);
long Dup(int fd);
long Dup2(int from, int to);  // also with an untracked `from` and a tracked `to`
long Dup3(int from, int to, int flags);
// The descriptor stays open over exec from now on (FIONCLEX; Fcntl sees F_SETFD).
void NoteKeptOnExec(int fd);
// F_DUPFD, F_DUPFD_CLOEXEC and F_SETFL; kNotOurs for every other command on a descriptor that is
// not internal. Locks (lockf, too) and leases are shown here before the real call.
long Fcntl(int fd, int command, long argument);
// Tracked descriptors in [first, last] are closed (or, with CLOSE_RANGE_CLOEXEC, marked), the
// rest as well, our own are spared. Never kNotOurs once started.
long CloseRange(unsigned first, unsigned last, int flags);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_DESCRIPTORS_H_
