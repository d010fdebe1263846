// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around a call that closes, copies or controls a descriptor.
#ifndef NVCACHE_LIBC_SHIM_CALLS_DESCRIPTOR_H_
#define NVCACHE_LIBC_SHIM_CALLS_DESCRIPTOR_H_

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

template <typename RealCall>
inline auto Close(int fd, RealCall real) {
  if (IsHidden(fd)) return decltype(real(fd)){-1};
  return Answer(Offer<vfs::Close>(fd), real, fd);
}

template <typename RealCall>
inline auto CloseRange(unsigned first, unsigned last, int flags, RealCall real) {
  // The calling thread gets a descriptor table of its own; we have one for the process.
  if ((static_cast<unsigned>(flags) & CLOSE_RANGE_UNSHARE) != 0) TurnOff();
  return Answer(Offer<vfs::CloseRange>(first, last, flags), real, first, last, flags);
}

template <typename RealCall>
inline auto Dup(int fd, RealCall real) {
  return AfterNumbering(Answer(Offer<vfs::Dup>(fd), real, fd));
}

template <typename RealCall>
inline auto Dup2(int from, int to, RealCall real) {
  return AfterNumbering(Answer(Offer<vfs::Dup2>(from, to), real, from, to));
}

template <typename RealCall>
inline auto Dup3(int from, int to, int flags, RealCall real) {
  return AfterNumbering(Answer(Offer<vfs::Dup3>(from, to, flags), real, from, to, flags));
}

// A lock whose place is counted from the offset or from the end: the kernel must know both.
inline bool IsRelativeLock(int command, long argument) {
  switch (command) {
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW: {
      struct flock lock;
      return Fetch(&lock, reinterpret_cast<void*>(argument)) && lock.l_whence != SEEK_SET;
    }
    default:
      return false;
  }
}

template <typename RealCall>
inline auto Fcntl(int fd, int command, long argument, RealCall real) {
  if (IsRelativeLock(command, argument)) Tell<vfs::Publish>(fd);
  // The commands that the engine answers take an int; the upper half may be anything.
  const long answer = Offer<vfs::Fcntl>(fd, command, static_cast<int>(argument));
  const auto result = Answer(answer, real, fd, command, argument);
  const bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  return duplicates ? AfterNumbering(result) : result;
}

// XFS's way to allocate and to free space, which all file systems understand (linux/falloc.h, but
// for the kernel's own eyes).
struct SpaceRange {
  int16_t type, whence;
  int64_t start, length;
  int32_t system, process, padding[4];
};
inline constexpr unsigned kReserveSpace = _IOW('X', 40, SpaceRange);
inline constexpr unsigned kUnreserveSpace = _IOW('X', 41, SpaceRange);
inline constexpr unsigned kReserveSpace64 = _IOW('X', 42, SpaceRange);
inline constexpr unsigned kUnreserveSpace64 = _IOW('X', 43, SpaceRange);
inline constexpr unsigned kZeroSpace = _IOW('X', 57, SpaceRange);

// What a control does to files, and to which besides its own.
inline bool BeforeClone(const file_clone_range* range) {
  file_clone_range wanted;
  return !Fetch(&wanted, range) || ToKernel(static_cast<int>(wanted.src_fd));
}

inline bool BeforeDedupe(const file_dedupe_range* range) {
  file_dedupe_range wanted;  // without its targets
  if (!Fetch(&wanted, range)) return true;
  file_dedupe_range_info target;
  for (unsigned i = 0; i < wanted.dest_count && Fetch(&target, &range->info[i]); ++i) {
    if (!ToKernel(static_cast<int>(target.dest_fd))) return false;
  }
  return true;
}

// False: the control must fail.
inline bool BeforeIoctl(int fd, unsigned request, long argument) {
  switch (request) {
    case FICLONE:
      return ToKernel(static_cast<int>(argument)) && ToKernel(fd);
    case FICLONERANGE:
      return BeforeClone(reinterpret_cast<const file_clone_range*>(argument)) && ToKernel(fd);
    case FIDEDUPERANGE:
      return BeforeDedupe(reinterpret_cast<const file_dedupe_range*>(argument)) && ToKernel(fd);
    case kReserveSpace:
    case kReserveSpace64:
    case kUnreserveSpace:
    case kUnreserveSpace64:
    case kZeroSpace:
      return ToKernel(fd);
    case FS_IOC_FIEMAP:
    case FIBMAP:
    case FIONREAD:  // size minus offset
    case FIOQSIZE:
    case FS_IOC_SETFLAGS:  // immutable, append-only
      Tell<vfs::Publish>(fd);
      return true;
    default:
      return true;
  }
}

template <typename RealCall>
inline auto Ioctl(int fd, unsigned long request, long argument, RealCall real) {
  const bool ready = !IsHidden(fd) && BeforeIoctl(fd, static_cast<unsigned>(request), argument);
  return ready ? real(fd, request, argument) : -1;
}

template <typename RealCall>
inline auto Unshare(int flags, RealCall real) {
  if ((flags & CLONE_FILES) != 0) {
    TurnOff();  // as in CloseRange
  } else if (flags != 0) {
    Tell<vfs::Release>();  // some of these want a process of one thread
  }
  return real();
}

template <typename RealCall>
inline auto Setns(RealCall real) {
  Tell<vfs::Release>();  // for the same reason
  return real();
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_DESCRIPTOR_H_
