// SPDX-License-Identifier: BSD-3-Clause
//
// The last thing that a call does before it says that it has succeeded, where the pool is mirrored
// (docs/mirror.md: M1). A front end calls these when the engine or the kernel has done the call.
//
// Each returns 0, or a negated errno with which the call must fail. No lock. Where nothing is
// mirrored, or the call promises nothing, each does nothing.
#ifndef NVCACHE_VFS_MIRRORED_H_
#define NVCACHE_VFS_MIRRORED_H_

#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

inline bool IsMirrored() { return engine.mirror.commit() != pool::kCommitOwn; }
// All calls that change something wait, not only those that promise durability.
inline bool ChangesAwaitMirror() { return engine.mirror.commit() == pool::kCommitWrite; }

// A write without RWF_* may have to wait, before or afterwards: by this descriptor, if it is not
// tracked; whatever its file is.
inline bool WriteMayWait(int fd, bool is_untracked) {
  return ChangesAwaitMirror() || engine.mirror.IsTold() ||
         (is_untracked && !engine.descriptors.IsPlain(fd));
}

// A write by this descriptor promises durability: by how it was opened, or by the call's RWF_*.
bool PromisesDurability(int fd, int rwf_flags);

// After a sync of what is open there: a file or a folder.
long AwaitMirrorOf(int fd);
// After a sync of everything.
long AwaitMirrorOfAll();
// After a change of the open file's bytes or size.
long AwaitMirrorOfChange(int fd, int rwf_flags);
// After an open that may have made the file, or has emptied it.
long AwaitMirrorOfOpen(int fd);
// After a change of names. The caller has called SyncFolderOf() for each.
long AwaitMirrorOfNames();
// Where all changes wait: what no log has of the folder's names, is on the disk afterwards. 0, or a
// negated errno with which the call must fail.
long SyncFolderOf(int dirfd, const char* path);
// After a change of the attributes of what the path leads to; null: of what is open there.
long AwaitMirrorOfAttributes(int dirfd, const char* path);
// Where the kernel syncs by itself, now or later, what is not in the log any more: no image has
// older bytes of that afterwards.
long AwaitMirrorOfKernel();

// Before calls of the process that are not seen, or do not wait, any more. `for_good`: and the
// words are not mapped afterwards. If the mirror fails, every call that waits fails from then on.
void SettleMirror(bool for_good);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_MIRRORED_H_
