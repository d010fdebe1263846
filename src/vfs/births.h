// SPDX-License-Identifier: BSD-3-Clause
//
// A file or folder that a call has made is known from its birth: each byte and each name that it
// gets will be in the log.
#ifndef NVCACHE_VFS_BIRTHS_H_
#define NVCACHE_VFS_BIRTHS_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/pool/name_record.h"

namespace nvcache::vfs {

// The descriptor's file was just made, and the process follows it. `record`: the log's record of
// that, and `born` its LSN; null: there is none, but the folder was synced. No lock.
void BeginKnown(int fd, const pool::NameRecord* record, pool::Lsn born);
// The folder was just made. `own`: Folder::MakeKnown. Lock of names.
void BeginKnownFolder(int dirfd, const char* name, uint64_t tag, uint32_t own);
// The symbolic link was just made: its owner and times will be in the log. `stamp`: StampOf() it.
// Lock of names.
void BeginKnownLink(const pool::NameRecord& record, uint64_t tag, uint64_t stamp);
// The descriptor's file was made where no NameCall has found its folder: by a symbolic link that
// led nowhere, say. The folder that it is in now is synced. No lock.
void SyncElsewhere(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_BIRTHS_H_
