// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_ENGINE_QUOTA_H_
#define NVCACHE_VFS_ENGINE_QUOTA_H_

#include <cstdint>

namespace nvcache::vfs {

// Whether quotas bound what files on the descriptor's file system take: of a user, a group, a
// project, a subvolume. statvfs does not tell of the room that they leave, and on Btrfs bytes that
// replace others take some as well: so only the kernel can say, at each write, what the disk will
// take. True, too, where that cannot be found out for Btrfs.
bool HasQuota(int fd, uint64_t device);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_QUOTA_H_
