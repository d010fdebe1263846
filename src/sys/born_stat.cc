// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/born_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

#include <cstddef>

#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::sys {

namespace {

// A libc's header may lack the field, which came later (Linux 5.8), and its bit. Kernels that have
// it fill it without being asked.
constexpr uint32_t kMountId = 0x1000;
constexpr size_t kMountIdAt = 144;
static_assert(offsetof(struct statx, stx_dev_minor) + sizeof(uint32_t) == kMountIdAt);

uint64_t MountOf(const struct statx& st) {
  uint64_t mount = 0;
  if ((st.stx_mask & kMountId) == 0) return 0;
  __builtin_memcpy(&mount, reinterpret_cast<const char*>(&st) + kMountIdAt, sizeof(mount));
  return mount;
}

timespec TimeOf(const statx_timestamp& time) { return {time.tv_sec, time.tv_nsec}; }

void FillStat(const struct statx& from, Stat* st) {
  *st = {};
  st->st_dev = DeviceOf(from);
  st->st_ino = from.stx_ino;
  st->st_mode = from.stx_mode;
  st->st_nlink = from.stx_nlink;
  st->st_uid = from.stx_uid;
  st->st_gid = from.stx_gid;
  st->st_rdev = makedev(from.stx_rdev_major, from.stx_rdev_minor);
  st->st_size = static_cast<off_t>(from.stx_size);
  st->st_blksize = from.stx_blksize;
  st->st_blocks = static_cast<blkcnt_t>(from.stx_blocks);
  st->st_atim = TimeOf(from.stx_atime);
  st->st_mtim = TimeOf(from.stx_mtime);
  st->st_ctim = TimeOf(from.stx_ctime);
}

// An old container's filter refuses statx with EPERM, which no file system says.
bool IsRefused(long error) { return error == -ENOSYS || error == -EPERM; }

}  // namespace

void Fill(const struct statx& from, BornStat* st) {
  FillStat(from, st);
  st->birth = BirthOf(from);
  st->mount = MountOf(from);
}

uint64_t BirthOf(const struct statx& st) {
  constexpr uint64_t kNsOfSecond = 1000 * 1000 * 1000;
  if ((st.stx_mask & STATX_BTIME) == 0) return 0;
  return static_cast<uint64_t>(st.stx_btime.tv_sec) * kNsOfSecond + st.stx_btime.tv_nsec;
}

uint64_t DeviceOf(const struct statx& st) { return makedev(st.stx_dev_major, st.stx_dev_minor); }

long LookAt(int dirfd, const char* path, BornStat* st, int flags) {
  struct statx found;
  const long error = Statx(dirfd, path, flags, STATX_BASIC_STATS | STATX_BTIME, &found);
  if (error == 0) {
    Fill(found, st);
    return 0;
  }
  st->birth = st->mount = 0;
  return IsRefused(error)
             ? Call(SYS_newfstatat, dirfd, Address(path), Address(static_cast<Stat*>(st)), flags)
             : error;
}

long LookUntimed(int fd, struct stat* st) {
  constexpr unsigned kTimes = STATX_ATIME | STATX_MTIME | STATX_CTIME;
  Scratch<struct statx> found;
  const long error = Statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS & ~kTimes, found.get());
  if (error < 0) return IsRefused(error) ? Fstat(fd, st) : error;
  found->stx_atime = found->stx_mtime = found->stx_ctime = {};
  FillStat(*found, st);
  return 0;
}

long Look(int fd, BornStat* st) { return LookAt(fd, "", st, AT_EMPTY_PATH); }

}  // namespace nvcache::sys
