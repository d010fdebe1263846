// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that give the kernel a file to use by itself: to load a module from, to
// swap to, to mount, or to write its accounts to.
#ifndef NVCACHE_LIBC_SHIM_CALLS_LEND_H_
#define NVCACHE_LIBC_SHIM_CALLS_LEND_H_

#include <fcntl.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// The kernel reads both files before the call returns. -1 stands for none.
template <typename RealCall>
inline auto LendOnce(int fd, int another, RealCall real) {
  if (!MayLeave(vfs::Output::kOther)) return decltype(real()){-1};
  vfs::Publish(fd);
  vfs::Publish(another);
  return real();
}

// The kernel uses the file that the path names, and goes on to when the call is over. A path that
// names no regular file, or none at all, lends nothing.
template <typename RealCall>
inline auto LendPath(int dirfd, const char* path, RealCall real) {
  long error = vfs::GiveAwayPath(dirfd, path);
  if (error == 0) error = vfs::AwaitMirrorOfKernel();
  return error == 0 ? real() : static_cast<decltype(real())>(FromAnswer(error));
}

// quotactl and quotactl_fd: one of its commands names a file that quotas are kept in.
template <typename RealCall>
inline auto Quota(int command, const void* argument, RealCall real) {
  constexpr unsigned kSwitchOn = 0x800002;  // Q_QUOTAON, above what kind of quota it is about
  constexpr unsigned kKindBits = 8;
  const bool names_file = static_cast<unsigned>(command) >> kKindBits == kSwitchOn;
  return names_file ? LendPath(AT_FDCWD, static_cast<const char*>(argument), real) : real();
}

// fsconfig: a parameter of a mount to be, which may be its image.
template <typename RealCall>
inline auto ConfigureMount(unsigned command, const void* value, int auxiliary, RealCall real) {
  enum : unsigned { kSetString = 1, kSetPath = 3, kSetEmptyPath = 4, kSetDescriptor = 5 };
  switch (command) {
    case kSetString:
      return LendPath(AT_FDCWD, static_cast<const char*>(value), real);
    case kSetPath:
      return LendPath(auxiliary, static_cast<const char*>(value), real);
    case kSetEmptyPath:
    case kSetDescriptor:
      return ToKernelForGood(auxiliary) ? real() : static_cast<decltype(real())>(-1);
    default:
      return real();
  }
}

// The events of a fanotify group bring descriptors that the kernel has opened, and our opens may
// wait for a program that answers for others' opens.
template <typename RealCall>
inline auto WatchFiles(RealCall real) {
  const auto group = real();
  if (group >= 0) TurnOff(vfs::Hindrance::kFanotify);
  return group;
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_LEND_H_
