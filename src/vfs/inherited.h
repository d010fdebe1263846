// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_INHERITED_H_
#define NVCACHE_VFS_INHERITED_H_

namespace nvcache::vfs {

// Tracks the descriptors from before us. The process that gave them to us may have them, too: their
// files are never cached. Once, after the engine's start.
void AdoptInherited();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_INHERITED_H_
