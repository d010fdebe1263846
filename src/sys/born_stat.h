// SPDX-License-Identifier: BSD-3-Clause
//
// A file's stat, and the time of its birth. A file system gives out the number of a file that is
// gone again: by its birth, a file is told from those that had its number before. One call has
// both.
#ifndef NVCACHE_SYS_BORN_STAT_H_
#define NVCACHE_SYS_BORN_STAT_H_

#include <sys/stat.h>

#include <cstdint>

namespace nvcache::sys {

using Stat = struct stat;

struct BornStat : Stat {
  uint64_t birth = 0;  // ns since 1970; 0: the file system does not say, or the call is not there
  uint64_t mount = 0;  // the mount by which it was found; 0: the kernel does not say
};

// `from` has STATX_BASIC_STATS, and STATX_BTIME if the file system has it.
void Fill(const struct statx& from, BornStat* st);
uint64_t BirthOf(const struct statx& st);
// st_dev as programs see it.
uint64_t DeviceOf(const struct statx& st);

// They answer as Fstatat and Fstat do.
long LookAt(int dirfd, const char* path, BornStat* st, int flags);
long Look(int fd, BornStat* st);
// As Fstat, but for the times, which are 0. From Linux 6.13 on, whoever looks at a file's times has
// its next change take a time of its own, and other files' changes after that; of a file that is
// synced, each such time costs the disk a write, on ext4 without a journal (docs/limits.md).
long LookUntimed(int fd, struct stat* st);

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_BORN_STAT_H_
