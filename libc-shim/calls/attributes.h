// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that read a file's attributes, or set them.
#ifndef NVCACHE_LIBC_SHIM_CALLS_ATTRIBUTES_H_
#define NVCACHE_LIBC_SHIM_CALLS_ATTRIBUTES_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/names.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/vfs/attribute_call.h"

namespace nvcache::calls {

// `Stat` is struct stat or struct stat64, which are one on x86-64, but not to the compiler.
template <typename Stat, typename RealCall>
inline auto GetAttributes(Stat* st, RealCall real) {
  auto result = real();
  if (result != 0 || !S_ISREG(st->st_mode) || !vfs::PublishInode(st->st_dev, st->st_ino))
    return result;
  result = real();
  if (result == 0) vfs::NewestSize(st->st_dev, st->st_ino, &st->st_size);
  return result;
}

// Reads the attributes of the file of a stream.
template <typename Stat, typename RealCall>
inline auto GetStreamAttributes(int fd, Stat* st, RealCall real) {
  const bool refused = !vfs::PublishBytes(fd);
  auto result = real();
  if (refused && result == 0) vfs::NewestSizeOf(fd, &st->st_size);
  return result;
}

// Reads the attributes by a path from `dirfd`.
template <typename Stat, typename RealCall>
inline auto GetAttributesAt(int dirfd, const char* path, int flags, Stat* st, RealCall real) {
  return IsHiddenBeside(dirfd, path, flags) ? decltype(real()){-1} : GetAttributes(st, real);
}

// Reads the attributes by a descriptor, which may be one that is not tracked (O_PATH).
template <typename Stat, typename RealCall>
inline auto GetAttributesOf(int fd, Stat* st, RealCall real) {
  if (vfs::IsUntracked(fd)) return GetAttributes(st, real);
  if (IsHidden(fd)) return decltype(real()){-1};
  if (!vfs::CachesFiles()) return real();  // and nobody else caches a file that is open here
  return vfs::Tracks(fd) ? GetStreamAttributes(fd, st, real) : GetAttributes(st, real);
}

inline dev_t DeviceOf(const struct statx& st) {
  return makedev(st.stx_dev_major, st.stx_dev_minor);
}

// Not every mask asks for the type and the inode, but every file system gives them.
template <typename RealCall>
inline auto GetExtended(int dirfd, const char* path, int flags, struct statx* st, RealCall real) {
  if (IsHiddenBeside(dirfd, path, flags)) return decltype(real()){-1};
  auto result = real();
  if (result != 0 || !S_ISREG(st->stx_mode) || !vfs::PublishInode(DeviceOf(*st), st->stx_ino)) {
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

// Around a call that sets attributes: `kSet`, pool::kSetMode and so on, or 0.
template <uint32_t kSet, typename RealCall>
inline auto SetAround(vfs::AttributeCall& call, RealCall real) {
  if (const long error = call.Begin(kSet); error < 0) {
    return static_cast<decltype(real())>(FromAnswer(error));
  }
  auto result = real();
  call.End(result >= 0);
  return result;
}

template <uint32_t kSet, typename RealCall>
inline auto SetByPath(int dirfd, const char* path, bool follow, RealCall real, bool own = false) {
  vfs::AttributeCall call(dirfd, path, follow, own);
  return SetAround<kSet>(call, real);
}

template <uint32_t kSet, typename RealCall>
inline auto SetByDescriptor(int fd, RealCall real) {
  if (IsHidden(fd)) return decltype(real()){-1};
  // Perhaps one with O_PATH; or the descriptors are those of a child of vfork.
  if (!vfs::Tracks(fd) && (vfs::IsActive() || vfs::IsSharing())) {
    return SetByPath<kSet>(AT_FDCWD, sys::LinkTo(fd).c_str(), true, real, true);
  }
  vfs::AttributeCall call(fd);
  return SetAround<kSet>(call, real);
}

// Whether `dirfd` is the file itself. The headers promise a path, and the kernel allows none.
inline bool IsByDescriptor(const char* path, int flags) {
  __asm__("" : "+r"(path));
  return path == nullptr || ((flags & AT_EMPTY_PATH) != 0 && IsEmpty(path));
}

template <uint32_t kSet, typename RealCall>
inline auto AroundAttributes(int dirfd, const char* path, int flags, RealCall real) {
  if (!MayLeave(vfs::Output::kName)) return decltype(real()){-1};
  if (IsByDescriptor(path, flags)) {
    return Attributed(dirfd, nullptr, SetByDescriptor<kSet>(dirfd, real));
  }
  const bool follow = (flags & AT_SYMLINK_NOFOLLOW) == 0;
  return Attributed(dirfd, path, SetByPath<kSet>(dirfd, path, follow, real));
}

// Mode and owner.
template <typename RealCall>
inline auto SetAttributes(int dirfd, const char* path, int flags, RealCall real) {
  return AroundAttributes<pool::kSetMode | pool::kSetOwner>(dirfd, path, flags, real);
}

template <typename RealCall>
inline auto SetExtended(int dirfd, const char* path, int flags, RealCall real) {
  return AroundAttributes<0>(dirfd, path, flags, real);
}

template <typename RealCall>
inline auto SetTimes(int dirfd, const char* path, int flags, RealCall real) {
  return AroundAttributes<pool::kSetTimes>(dirfd, path, flags, real);
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
    vfs::PublishPath(dirfd, path, (flags & AT_SYMLINK_NOFOLLOW) == 0);
  } else if (IsHidden(dirfd)) {
    return decltype(real()){-1};
  } else if (vfs::Tracks(dirfd)) {
    vfs::PublishBytes(dirfd);
  } else if (vfs::IsActive()) {
    vfs::PublishPath(AT_FDCWD, sys::LinkTo(dirfd).c_str(), true);
  }
  return real();
}

// One of them, by its name.
template <typename RealCall>
inline auto ReadAttribute(int dirfd, const char* path, int flags, const char* name, RealCall real) {
  if (IsOfSecurity(name)) return ReadAttributes(dirfd, path, flags, real);
  return IsByDescriptor(path, flags) ? UnlessHidden(dirfd, real) : real();
}

// An fchown to these changes nothing but the time of the last change.
inline bool IsOwnedBy(const struct stat& st, uid_t owner, gid_t group) {
  return st.st_uid == owner && st.st_gid == group && (st.st_mode & (S_ISUID | S_ISGID)) == 0;
}

// A call that changes no owner owes no sync. SQLite makes one each time that it opens its journal
// as root.
template <typename RealCall>
inline auto ChangeOwner(int fd, uid_t owner, gid_t group, RealCall real) {
  sys::BornStat before;
  const bool known =
      !vfs::IsInternal(fd) && sys::Look(fd, &before) == 0 && IsOwnedBy(before, owner, group);
  if (!known) return SetAttributes(fd, nullptr, 0, real);
  if (!MayLeave(vfs::Output::kName)) return decltype(real()){-1};
  const auto result = real();
  if (result == 0) vfs::KeepCoverage(fd, before);
  return Attributed(fd, nullptr, result);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_ATTRIBUTES_H_
