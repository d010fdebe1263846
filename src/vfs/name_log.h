// SPDX-License-Identifier: BSD-3-Clause
//
// The records of calls that change names or attributes.
#ifndef NVCACHE_VFS_NAME_LOG_H_
#define NVCACHE_VFS_NAME_LOG_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/lease/file_table.h"
#include "src/pool/name_record.h"
#include "src/vfs/names_lock.h"

namespace nvcache::vfs {

// All zero, but for its texts, which lengths end.
void Clear(pool::NameRecord* record);
// Mode, owner and times.
void KeepAttributes(const struct statx& st, pool::NameRecord* record);

// Something of the files of `a` and `b`, which may be null, is pending then. The record's LSN; 0:
// there is no room, or somebody has taken the lock away.
pool::Lsn CommitName(const pool::NameRecord& record, const NamesLock& lock, lease::FileEntry* a,
                     lease::FileEntry* b);
// The attributes of the file that has the entry, as they were after `then`. False also: since then
// something has gone past the log, which does not wait for the lock of names.
bool CommitAttributes(const pool::NameRecord& record, const NamesLock& lock,
                      lease::FileEntry* entry, const lease::Coverage& then);

// How a file is left (through.h).
uint64_t StampOf(const struct statx& st);
uint64_t StampOf(const struct stat& st);
// The call has changed the file's time of change, and nobody else: it is still as it was left.
void CarryCloseStamp(uint64_t tag, uint64_t before, uint64_t after);
// The file that has got the record's name is known, as `now` says: what the record says of it is
// kept (recent_records.h).
void KeepNamed(const lease::Coverage& now, const pool::NameRecord& record);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_NAME_LOG_H_
