// SPDX-License-Identifier: BSD-3-Clause
//
// Creates again a file whose creation the file system has lost (I9).
#ifndef NVCACHE_RECOVERY_REPLAY_RECREATE_H_
#define NVCACHE_RECOVERY_REPLAY_RECREATE_H_

#include "src/nvlog/record.h"
#include "src/pool/format.h"

namespace nvcache::recovery {

// Creates the file that `record` names under its path, empty, with its mode and owner, if nothing
// has that name, or what the program had removed and the file system brought back, which is removed
// again. Opened for reading and writing. Its fingerprint lies in `header`'s link, in the pool,
// before it has its name: with it OpenRecorded finds the file from now on. A `dry_run` changes
// nothing, and leaves no file behind when it is closed. A descriptor, or a negated errno: ENOTDIR
// without the folder, ELOOP if the path leads through a symbolic link now, EXDEV if it leads to
// another file system, EPERM if the owner's rights are missing, ESTALE if something has the name,
// or what the file system said.
long Recreate(const pool::FileRecord& record, nvlog::RecordHeader* header, bool dry_run);

// The program has removed this new file as well: if the file that had its name before has it again,
// that is removed, and the folder synced. 0, also if that file is not there; or what the file
// system said: then it may be there still, and the next recovery does this once more.
long RemovePredecessor(const pool::FileRecord& record, bool dry_run);

// Makes the record's name durable in its folder. 0 if that folder cannot be had: then the file was
// there before, or is elsewhere.
long SyncFolder(const pool::FileRecord& record);

}  // namespace nvcache::recovery

#endif  // NVCACHE_RECOVERY_REPLAY_RECREATE_H_
