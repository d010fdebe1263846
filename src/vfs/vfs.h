// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's front door: POSIX file calls on cached files.
//
// A front end (the preload library, the C API) catches a call and offers it here first.
// The answer is the call's result, a negated errno, or kNotOurs: then the front end makes
// the real call itself, and nothing has happened yet.
//
// A descriptor that we track refers to a Description (POSIX: open file description), which refers
// to a File (one per inode), whose state says what we may answer (engine/states.h).
//
// A pointer of the program's that is bad is answered with -EFAULT or a short count, as by the
// kernel, if the front end's handler of SIGSEGV and SIGBUS asks src/sys/user_copy.h; else it ends
// the program.
//
// A signal that comes while its thread holds locks here has to wait (src/sys/deferral.h), if the
// front end sees to it; then handlers may call anything here as well. Else they must not.
//
// Any thread may call anything here, except where a comment says otherwise; and so may a child of
// vfork, between BeginSharing and EndSharing. To it, nothing is tracked and the engine not active;
// but it claims the files that it opens or names from other processes.
#ifndef NVCACHE_VFS_VFS_H_
#define NVCACHE_VFS_VFS_H_

#include "src/vfs/data.h"
#include "src/vfs/descriptors.h"
#include "src/vfs/lend.h"
#include "src/vfs/life.h"
#include "src/vfs/locks.h"
#include "src/vfs/names.h"
#include "src/vfs/open.h"
#include "src/vfs/output.h"
#include "src/vfs/sizes.h"
#include "src/vfs/sync.h"
#include "src/vfs/unseen.h"

#endif  // NVCACHE_VFS_VFS_H_
