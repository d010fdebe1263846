// SPDX-License-Identifier: BSD-3-Clause
//
// Files and folders as the log was told of them lately: a writer that fills segments describes its
// file in each, and need not ask the kernel for that each time (eight calls, 15 µs).
//
// A program's call on a file's name or attributes counts as a change of it; the calls of others are
// not seen for kLatelyNs. Such a record says where the file was a moment ago, as do those before it
// in the log. A folder's is good as long as it has not left the log (Coverage::bypasses), which a
// folder does that is removed.
#ifndef NVCACHE_VFS_ENGINE_RECENT_RECORDS_H_
#define NVCACHE_VFS_ENGINE_RECENT_RECORDS_H_

#include "src/lease/file_table.h"
#include "src/pool/format.h"
#include "src/pool/name_record.h"
#include "src/vfs/engine/file.h"

namespace nvcache::vfs {

// Ticks of the processor's time stamp counter, which costs no system call. Where it counts faster
// than a gigahertz, as it does everywhere by now, the time is shorter.
inline constexpr uint64_t kLatelyTicks = 100 * 1000 * 1000;
inline constexpr uint64_t kLatelyNs = kLatelyTicks;

// Copies what was said of `file`, without flags, if that is still good. File lock.
bool CopyRecentRecord(const File& file, pool::FileRecord* record);
// `record` describes the file as it was after so many changes. File lock.
void KeepRecentRecord(File& file, uint32_t changes, const pool::FileRecord& record);

// A file or folder as a name record describes it.
struct NamedRecord {
  pool::Identity identity;
  uint64_t file_system;  // statfs f_fsid
  char path[pool::kMaxPath];
};
// Copies what was said of the folder, if that is still good. No lock, as for the rest.
bool CopyRecentFolder(const lease::Coverage& folder, NamedRecord* record);
// `folder` is what its entry said before it was described.
void KeepRecentFolder(const lease::Coverage& folder, const NamedRecord& record);
// The same of a known file, which need not be open: since it got its name.
bool CopyRecentFile(const lease::Coverage& file, NamedRecord* record);
void KeepRecentFile(const lease::Coverage& file, const NamedRecord& record);
// Its handle, which is the same as long as it lives, if `identity` is its own in all else.
bool CopyHandle(const lease::Coverage& file, pool::Identity* identity);
// The LSN of the record that says that the file or folder was made, of the last ones that this
// process has made; or 0.
pool::Lsn BirthOf(uint64_t tag);
void KeepBirth(uint64_t tag, pool::Lsn born);
// A folder is moved: the paths of those below it change. No lock.
void ForgetFolders();

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_RECENT_RECORDS_H_
