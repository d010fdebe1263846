// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that close or copy a descriptor, or set its flags.
#ifndef NVCACHE_LIBC_SHIM_CALLS_DESCRIPTOR_H_
#define NVCACHE_LIBC_SHIM_CALLS_DESCRIPTOR_H_

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/process.h"

namespace nvcache::calls {

template <typename RealCall>
inline auto Close(int fd, RealCall real) {
  vfs::NoteClosing(fd);
  return MayClose(fd) ? Offer(vfs::Close, real, fd) : decltype(real(fd)){-1};
}

template <typename RealCall>
inline auto CloseRange(unsigned first, unsigned last, int flags, RealCall real) {
  // The calling thread gets a descriptor table of its own; we have one for the process.
  if (!MayLeave(vfs::Output::kOther)) return decltype(real(first, last, flags)){-1};
  if ((static_cast<unsigned>(flags) & CLOSE_RANGE_UNSHARE) != 0) TurnOff(vfs::Hindrance::kTables);
  return Answer(vfs::CloseRange(first, last, flags), real, first, last, flags);
}

template <typename RealCall>
inline auto Dup(int fd, RealCall real) {
  return AfterNumbering(WithRoom([&] { return Answer(vfs::Dup(fd), real, fd); }));
}

template <typename RealCall>
inline auto Dup2(int from, int to, RealCall real) {
  if (from != to && !MayClose(to)) return decltype(real(from, to)){-1};
  return AfterNumbering(WithRoom([&] { return Answer(vfs::Dup2(from, to), real, from, to); }));
}

template <typename RealCall>
inline auto Dup3(int from, int to, int flags, RealCall real) {
  if (!MayClose(to)) return decltype(real(from, to, flags)){-1};
  return AfterNumbering(
      WithRoom([&] { return Answer(vfs::Dup3(from, to, flags), real, from, to, flags); }));
}

// A descriptor lets go of locks as it is told what they become.
inline void NoteLock(int fd, int command, long argument) {
  const bool sets = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
                    command == F_OFD_SETLKW;
  struct flock lock;
  if (!sets || !Fetch(&lock, reinterpret_cast<void*>(argument))) return;
  vfs::BeforeLock(fd, lock.l_type == F_UNLCK   ? vfs::LockStep::kRelease
                      : lock.l_type == F_RDLCK ? vfs::LockStep::kTakeShared
                                               : vfs::LockStep::kTake);
}

template <typename RealCall>
inline auto Flock(int fd, int operation, RealCall real) {
  if (IsHidden(fd)) return decltype(real(fd, operation)){-1};
  const bool releases = (operation & LOCK_UN) != 0, shares = (operation & LOCK_SH) != 0;
  vfs::BeforeLock(fd, releases ? vfs::LockStep::kRelease
                      : shares ? vfs::LockStep::kTakeShared
                               : vfs::LockStep::kTake);
  return real(fd, operation);
}

template <typename RealCall>
inline auto Lockf(int fd, int command, off_t length, RealCall real) {
  if (IsHidden(fd)) return -1;
  vfs::Publish(fd);
  if (command != F_TEST) vfs::Fcntl(fd, F_SETLK, 0L);
  if (command != F_TEST) {
    const bool releases = command == F_ULOCK;
    vfs::BeforeLock(fd, releases ? vfs::LockStep::kRelease : vfs::LockStep::kTake);
  }
  return real(fd, command, length);
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
  if (IsRelativeLock(command, argument)) vfs::Publish(fd);
  NoteLock(fd, command, argument);
  // The commands that the engine answers take an int; the upper half may be anything.
  const auto answer = [&] {
    return Answer(vfs::Fcntl(fd, command, static_cast<int>(argument)), real, fd, command, argument);
  };
  const bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  return duplicates ? AfterNumbering(WithRoom(answer)) : answer();
}

template <typename RealCall>
inline auto Unshare(int flags, RealCall real) {
  if ((flags & CLONE_FILES) != 0) {
    TurnOff(vfs::Hindrance::kTables);  // as in CloseRange
  } else if (flags != 0) {
    vfs::Release();  // some of these want a process of one thread
  }
  return (flags & CLONE_NEWUSER) != 0 ? ChangeRights(real) : real();
}

template <typename RealCall>
inline auto Setns(RealCall real) {
  vfs::Release();  // for the same reason
  return ChangeRights(real);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_DESCRIPTOR_H_
