// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around a call that changes names.
#ifndef NVCACHE_LIBC_SHIM_CALLS_NAMES_H_
#define NVCACHE_LIBC_SHIM_CALLS_NAMES_H_

#include <fcntl.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

using Fate = vfs::NameGuard::Fate;

struct Name {
  int dirfd;
  const char* path;
  bool follow = false;
  Fate fate = Fate::kStays;
};

// None of these calls is a cancellation point: the guard is never left behind.
template <typename RealCall, typename... Names>
inline auto AroundNames(RealCall real, Names... names) {
  vfs::NameGuard guard;
  long error = 0;
  // The first one that cannot be drained decides.
  static_cast<void>(
      (((error = guard.Claim(names.dirfd, names.path, names.follow)) == 0) && ...) &&
      (((error = guard.Add(names.dirfd, names.path, names.follow, names.fate)) == 0) && ...));
  if (error < 0) return static_cast<decltype(real())>(FromAnswer(error));
  return real();
}

template <typename RealCall>
inline auto Rename(int from_dirfd, const char* from, int to_dirfd, const char* to, RealCall real) {
  return AroundNames(real, Name{from_dirfd, from, false, Fate::kMoves}, Name{to_dirfd, to});
}

template <typename RealCall>
inline auto Unlink(int dirfd, const char* path, RealCall real) {
  return AroundNames(real, Name{dirfd, path, false, Fate::kIsRemoved});
}

// A name for an open file, as the kernel has it in /proc.
class DescriptorPath {
 public:
  explicit DescriptorPath(int fd);
  const char* text() const { return text_; }

 private:
  char text_[32];
};

// Only the existing name counts: the new one must not exist. With AT_EMPTY_PATH the existing
// file is the descriptor itself.
template <typename RealCall>
inline auto Link(int dirfd, const char* path, int flags, RealCall real) {
  if (IsHiddenBeside(dirfd, path, flags)) return decltype(real()){-1};
  if ((flags & AT_EMPTY_PATH) != 0 && IsEmpty(path)) {
    return AroundNames(real, Name{AT_FDCWD, DescriptorPath(dirfd).text(), true});
  }
  return AroundNames(real, Name{dirfd, path, (flags & AT_SYMLINK_FOLLOW) != 0});
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_NAMES_H_
