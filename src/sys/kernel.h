// SPDX-License-Identifier: BSD-3-Clause
//
// System calls, as the kernel gives them: a result >= 0, or a negated errno. errno is not touched,
// nothing is a cancellation point, and nobody's interposed symbol is in the way.
#ifndef NVCACHE_SYS_KERNEL_H_
#define NVCACHE_SYS_KERNEL_H_

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

#include "src/sys/call.h"
#include "src/sys/lock_rank.h"

namespace nvcache::sys {

inline long Address(const void* p) { return reinterpret_cast<long>(p); }

// Names of the process's descriptors, by their numbers. Not /proc/self: that is the first thread,
// and empty once that has ended (pthread_exit in main).
#define NVCACHE_DESCRIPTORS "/proc/thread-self/fd"

inline long Openat(int dirfd, const char* path, int flags, mode_t mode = 0) {
  return Call(SYS_openat, dirfd, Address(path), flags, static_cast<long>(mode));
}
inline long Openat2(int dirfd, const char* path, const open_how& how) {
  return Call(SYS_openat2, dirfd, Address(path), Address(&how), sizeof(how));
}
inline long Close(int fd) { return Call(SYS_close, fd); }
inline long Read(int fd, void* buffer, size_t n) {
  return Call(SYS_read, fd, Address(buffer), static_cast<long>(n));
}
inline long Write(int fd, const void* buffer, size_t n) {
  return CallShort(SYS_write, fd, Address(buffer), static_cast<long>(n));
}
inline long Pread(int fd, void* buffer, size_t n, uint64_t offset) {
  return Call(SYS_pread64, fd, Address(buffer), static_cast<long>(n), static_cast<long>(offset));
}
inline long Pwrite(int fd, const void* buffer, size_t n, uint64_t offset) {
  return CallShort(SYS_pwrite64, fd, Address(buffer), static_cast<long>(n),
                   static_cast<long>(offset));
}
inline long Pwritev(int fd, const iovec* iov, int n, uint64_t offset) {
  return Call(SYS_pwritev, fd, Address(iov), n, static_cast<long>(offset), 0);
}
inline long Lseek(int fd, off_t offset, int whence) { return Call(SYS_lseek, fd, offset, whence); }
// These wait for the disk. 0: all that they are about is on it. The kernel alone is not believed
// (sync.cc).
long Fsync(int fd);
long Fdatasync(int fd);
long Syncfs(int fd);
inline long SyncFileRange(int fd, uint64_t offset, uint64_t n, unsigned flags) {
  CheckSync();
  return Call(SYS_sync_file_range, fd, static_cast<long>(offset), static_cast<long>(n),
              static_cast<long>(flags));
}
inline long Fchmod(int fd, mode_t mode) { return Call(SYS_fchmod, fd, static_cast<long>(mode)); }
inline long Fchmodat(int dirfd, const char* path, mode_t mode) {
  return Call(SYS_fchmodat, dirfd, Address(path), static_cast<long>(mode));
}
inline long Truncate(const char* path, off_t length) {
  return Call(SYS_truncate, Address(path), length);
}
inline long Ftruncate(int fd, off_t length) { return Call(SYS_ftruncate, fd, length); }
inline long Fallocate(int fd, int mode, off_t offset, off_t length) {
  return Call(SYS_fallocate, fd, mode, offset, length);
}
inline long Fcntl(int fd, int command, long argument = 0) {
  return Call(SYS_fcntl, fd, command, argument);
}
inline long Dup3(int from, int to, int flags) { return Call(SYS_dup3, from, to, flags); }
inline long Flock(int fd, int operation) { return Call(SYS_flock, fd, operation); }
inline long Fstat(int fd, struct stat* st) { return Call(SYS_fstat, fd, Address(st)); }
inline long Fstatat(int dirfd, const char* path, struct stat* st, int flags) {
  return Call(SYS_newfstatat, dirfd, Address(path), Address(st), flags);
}
inline long Fstatfs(int fd, struct statfs* st) { return Call(SYS_fstatfs, fd, Address(st)); }
inline long Statfs(const char* path, struct statfs* st) {
  return Call(SYS_statfs, Address(path), Address(st));
}
inline long Statx(int dirfd, const char* path, int flags, unsigned mask, struct statx* st) {
  return Call(SYS_statx, dirfd, Address(path), flags, static_cast<long>(mask), Address(st));
}
// struct file_handle of <fcntl.h>, with room for the longest. name_to_handle_at takes the room in
// `size` and leaves there the room that it used.
struct FileHandle {
  uint32_t size;  // bytes
  int32_t type;
  uint8_t bytes[128];
};
inline long NameToHandleAt(int dirfd, const char* path, FileHandle* handle, int* mount_id,
                           int flags) {
  return Call(SYS_name_to_handle_at, dirfd, Address(path), Address(handle), Address(mount_id),
              flags);
}
inline long OpenByHandleAt(int mount, const FileHandle& handle, int flags) {
  return Call(SYS_open_by_handle_at, mount, Address(&handle), flags);
}
inline long Linkat(int from_dirfd, const char* from, int to_dirfd, const char* to, int flags) {
  return Call(SYS_linkat, from_dirfd, Address(from), to_dirfd, Address(to), flags);
}
inline long Unlinkat(int dirfd, const char* path, int flags) {
  return Call(SYS_unlinkat, dirfd, Address(path), flags);
}
inline long Readlinkat(int dirfd, const char* path, char* buffer, size_t n) {
  return Call(SYS_readlinkat, dirfd, Address(path), Address(buffer), static_cast<long>(n));
}
// The soft limit of `resource` (RLIMIT_...), ~0 if there is none.
inline uint64_t SoftLimit(int resource) {
  uint64_t limit[2] = {~uint64_t{0}, 0};  // struct rlimit64: soft, hard
  Call(SYS_prlimit64, 0, resource, 0, Address(limit));
  return limit[0];
}
inline long Getrandom(void* buffer, size_t n) {
  return Call(SYS_getrandom, Address(buffer), static_cast<long>(n), 0);
}
inline long Getpid() { return Call(SYS_getpid); }
inline long Geteuid() { return Call(SYS_geteuid); }
inline long Gettid() { return Call(SYS_gettid); }
[[noreturn]] inline void ExitGroup(int status) {
  for (;;) Call(SYS_exit_group, status);
}

// A mapping's address, or a negated errno; test with IsError.
inline long Mmap(void* address, size_t n, int protection, int flags, int fd, off_t offset) {
  return Call(SYS_mmap, Address(address), static_cast<long>(n), protection, flags, fd, offset);
}
inline long Munmap(void* address, size_t n) {
  return Call(SYS_munmap, Address(address), static_cast<long>(n));
}
inline long Madvise(void* address, size_t n, int advice) {
  return Call(SYS_madvise, Address(address), static_cast<long>(n), advice);
}
inline bool IsError(long result) { return result < 0 && result >= -4095; }

// Nanoseconds of the given clock. A real system call: not for the write path.
inline uint64_t Now(clockid_t clock) {
  timespec t = {};
  Call(SYS_clock_gettime, clock, Address(&t));
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_KERNEL_H_
