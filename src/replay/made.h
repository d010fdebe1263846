// SPDX-License-Identifier: BSD-3-Clause
//
// A file that recovery has made again says so itself. A pool that is recovered from its mirror's
// servers (docs/mirror.md) may be lost once more before all of it is on the disk, and with it what
// it says of such files (RecordHeader::link). The next recovery begins with the same image.
//
// The attribute is set before the file has a name of its own, and file systems do not keep a later
// change of an inode without an earlier one. It stays: nobody needs it when the recovery is over.
#ifndef NVCACHE_REPLAY_MADE_H_
#define NVCACHE_REPLAY_MADE_H_

#include <cstdint>

namespace nvcache::replay {

inline constexpr char kMadeAttribute[] = "user.nvcache.made";

// The file or folder that `look` is open to, with O_PATH, was made in place of the one with that
// fingerprint, in the logs of the pool with that salt. Where a file system has no such attributes,
// this does nothing.
void SayMade(int look, uint64_t salt, uint64_t fingerprint);
// The fingerprint; 0: it does not say so.
uint64_t MadeFor(int look, uint64_t salt);

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_MADE_H_
