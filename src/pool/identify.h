// SPDX-License-Identifier: BSD-3-Clause
//
// Asks the kernel by what a file can be known again, and tells whether two answers are of one file.
#ifndef NVCACHE_POOL_IDENTIFY_H_
#define NVCACHE_POOL_IDENTIFY_H_

#include <sys/stat.h>

#include <cstdint>

#include "src/pool/file_record.h"
#include "src/pool/name_record.h"

namespace nvcache::pool {

// ---- For a file record

// Fills all of it for the open file `fd`, but flags, which become 0. 0;
// -ENAMETOOLONG if the path does not fit; -ENOENT if no path leads to it; or the kernel's error.
long Describe(int fd, FileRecord* record);
// Only the properties by which the file is known again, without its path. 0, or a negated errno.
long Identify(int fd, FileRecord* record);
// Both records name one file: the same inode, and not one that was freed and used again.
bool SameFile(const FileRecord& a, const FileRecord& b);
// A fingerprint of the fields that SameFile compares; never 0.
uint64_t Fingerprint(const FileRecord& record);

// ---- For a name record

// A file has the same number here as by Fingerprint() of its FileRecord. Never 0.
uint64_t Fingerprint(const Identity& identity);
// Identifies what is open there; O_PATH is enough. 0, or a negated errno: ENAMETOOLONG if its
// handle is too long for a record.
long Identify(int fd, Identity* identity);
// Identifies what a name leads to, not through a last symbolic link, and gives its attributes.
long IdentifyAt(int dirfd, const char* path, Identity* identity, struct statx* st);
// Its two halves: all but the handle; and the handle.
long BeginIdentity(int dirfd, const char* path, Identity* identity, struct statx* st);
long AddHandle(int dirfd, const char* path, Identity* identity);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_IDENTIFY_H_
