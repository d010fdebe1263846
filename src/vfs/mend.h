// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_MEND_H_
#define NVCACHE_VFS_MEND_H_

#include "src/vfs/engine/attempt.h"

namespace nvcache::vfs {

// Takes the step that an attempt at a call by the descriptor has ended with or, if that is in vain,
// the one in its place. Returns which it was. `room`: Log::RoomSeen() before the attempt. No lock.
Next Mend(Next next, int fd, uint32_t room, Attempt* attempt);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_MEND_H_
