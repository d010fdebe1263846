// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the file that a file record names.
#ifndef NVCACHE_REPLAY_RESOLVE_H_
#define NVCACHE_REPLAY_RESOLVE_H_

#include <errno.h>

#include <cstdint>

#include "src/pool/format.h"
#include "src/pool/name_record.h"

namespace nvcache::replay {

// Opens for reading and writing the very file that `record` names, a copy that is whole: under its
// path, or, where the privilege is there, wherever it is now. Never another file (I6), never
// through a symbolic link that took its place, and only if the acting user (rights.h) may write to
// it, or owns it. A descriptor, or a negated errno: ENOENT if it is not to be found, ESTALE if
// something else has its name.
long OpenRecorded(const pool::FileRecord& record);
// Opens what `look` is open to, with O_PATH: that file, or the one that recovery made for a name of
// its, whose fingerprint is `successor` (0: none). Closes it.
long OpenLookedAt(long look, const pool::FileRecord& record, uint64_t successor);

// A descriptor with O_PATH to what is at the path, but by no magic link.
long LookByPath(const char* path);
// To what `identity` names, a file or a folder, wherever it is on its file system, if it has a
// name: by the mount that the folder `near` is on, or by any, if that is -1. For a user that
// somebody else acts for, only to what is that user's. -ENOENT: it is nowhere, or the privilege is
// missing.
long LookByIdentity(const pool::Identity& identity, uint64_t file_system, int near);
// Whether a file's handle, if it has one, leads to it wherever it is.
bool MayLookByHandle(const pool::FileRecord& record);
bool IsOnFileSystem(const char* path, uint64_t file_system);
// The last folder that is there on the way to the path is on that file system: so a file that is
// not there is gone, and not only out of reach. Also if that cannot be told.
bool IsMountedAt(const char* path, uint64_t file_system);

// The disk's words, not the name's: the file may well be there, so its records are not
// for discarding.
constexpr bool IsRefusal(long error) {
  return error == -EIO || error == -EROFS || error == -ENOSPC || error == -EDQUOT;
}

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_RESOLVE_H_
