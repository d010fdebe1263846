// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around a call that reads a file's attributes, or sets them.
#ifndef NVCACHE_LIBC_SHIM_CALLS_ATTRIBUTES_H_
#define NVCACHE_LIBC_SHIM_CALLS_ATTRIBUTES_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/names.h"
#include "src/sys/kernel.h"

namespace nvcache::calls {

inline bool PublishInode(dev_t device, ino_t inode) {
  return !InsideLibpmem() && vfs::PublishInode(device, inode);
}

// `Stat` is struct stat or struct stat64, which are one on x86-64, but not to the compiler.
template <typename Stat, typename RealCall>
inline auto GetAttributes(Stat* st, RealCall real) {
  auto result = real();
  if (result != 0 || !S_ISREG(st->st_mode) || !PublishInode(st->st_dev, st->st_ino)) return result;
  result = real();
  if (result == 0) vfs::NewestSize(st->st_dev, st->st_ino, &st->st_size);
  return result;
}

// The same for the file of a stream.
template <typename Stat, typename RealCall>
inline auto GetStreamAttributes(int fd, Stat* st, RealCall real) {
  auto result = real();
  if (result != 0 || InsideLibpmem() || !vfs::PublishBytes(fd)) return result;
  result = real();
  if (result == 0) vfs::NewestSizeOf(fd, &st->st_size);
  return result;
}

// The same by a descriptor, which may be one that is not tracked (O_PATH).
template <typename Stat, typename RealCall>
inline auto GetAttributesOf(int fd, Stat* st, RealCall real) {
  return vfs::Tracks(fd) ? GetStreamAttributes(fd, st, real) : GetAttributes(st, real);
}

inline dev_t DeviceOf(const struct statx& st) {
  return makedev(st.stx_dev_major, st.stx_dev_minor);
}

// Not every mask asks for the type and the inode, but every file system gives them.
template <typename RealCall>
inline auto GetExtended(struct statx* st, RealCall real) {
  auto result = real();
  if (result != 0 || !S_ISREG(st->stx_mode) || !PublishInode(DeviceOf(*st), st->stx_ino)) {
    return result;
  }
  result = real();
  if (result == 0 && (st->stx_mask & STATX_SIZE) != 0) {
    auto size = static_cast<off_t>(st->stx_size);
    vfs::NewestSize(DeviceOf(*st), st->stx_ino, &size);
    st->stx_size = static_cast<__u64>(size);
  }
  return result;
}

// Attributes are set on what the kernel has: a later write-back would set times anew, and take
// set-user-ID bits and capabilities away. Those that are set are in no log, so an fsync is due.
template <typename RealCall>
inline auto SetAttributesByPath(int dirfd, const char* path, bool follow, RealCall real) {
  Tell<vfs::PublishPath>(dirfd, path, follow);
  auto result = real();
  Tell<vfs::OweSyncPath>(dirfd, path, follow);
  return result;
}

template <typename RealCall>
inline auto SetAttributesOf(int fd, RealCall real) {
  if (!vfs::Tracks(fd) && vfs::IsActive()) {  // perhaps one with O_PATH
    return SetAttributesByPath(AT_FDCWD, DescriptorPath(fd).text(), true, real);
  }
  Tell<vfs::Publish>(fd);
  auto result = real();
  Tell<vfs::OweSync>(fd);
  return result;
}

// Whether `dirfd` is the file itself. The headers promise a path, and the kernel allows none.
inline bool IsByDescriptor(const char* path, int flags) {
  __asm__("" : "+r"(path));
  return path == nullptr || ((flags & AT_EMPTY_PATH) != 0 && IsEmpty(path));
}

template <typename RealCall>
inline auto SetAttributes(int dirfd, const char* path, int flags, RealCall real) {
  if (IsByDescriptor(path, flags)) return SetAttributesOf(dirfd, real);
  return SetAttributesByPath(dirfd, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, real);
}

// Whether writes to a file may change the attribute, or take it away: security.capability, and what
// integrity is measured by.
inline bool IsOfSecurity(const char* name) {
  constexpr char kPrefix[] = {'s', 'e', 'c', 'u', 'r', 'i', 't', 'y', '.'};
  char beginning[sizeof(kPrefix)];
  return Fetch(&beginning, name) && __builtin_memcmp(beginning, kPrefix, sizeof(kPrefix)) == 0;
}

// Extended attributes are read as they are once the kernel has the bytes.
template <typename RealCall>
inline auto ReadAttributes(int dirfd, const char* path, int flags, RealCall real) {
  if (!IsByDescriptor(path, flags)) {
    Tell<vfs::PublishPath>(dirfd, path, (flags & AT_SYMLINK_NOFOLLOW) == 0);
  } else if (vfs::Tracks(dirfd)) {
    Tell<vfs::PublishBytes>(dirfd);
  } else if (vfs::IsActive()) {
    Tell<vfs::PublishPath>(AT_FDCWD, DescriptorPath(dirfd).text(), true);
  }
  return real();
}

// One of them, by its name.
template <typename RealCall>
inline auto ReadAttribute(int dirfd, const char* path, int flags, const char* name, RealCall real) {
  return IsOfSecurity(name) ? ReadAttributes(dirfd, path, flags, real) : real();
}

// An fchown to these changes nothing but the time of the last change.
inline bool IsOwnedBy(int fd, uid_t owner, gid_t group) {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && st.st_uid == owner && st.st_gid == group &&
         (st.st_mode & (S_ISUID | S_ISGID)) == 0;
}

// As SQLite does each time that it opens its journal as root: no sync is owed for nothing.
template <typename RealCall>
inline auto ChangeOwner(int fd, uid_t owner, gid_t group, RealCall real) {
  return IsOwnedBy(fd, owner, group) ? real() : SetAttributes(fd, nullptr, 0, real);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_ATTRIBUTES_H_
