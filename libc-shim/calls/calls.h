// SPDX-License-Identifier: BSD-3-Clause
//
// The few words that the brackets around a call are written in.
//
// A call is caught under several names: `pwrite`, `pwrite64`, `syscall(SYS_pwrite64)`, and by
// number in musl. What is done around the real call is said once, as a template whose last argument
// makes the real call (data.h, open.h, ...); the front end that catches the call says only which
// the real one is.
#ifndef NVCACHE_LIBC_SHIM_CALLS_CALLS_H_
#define NVCACHE_LIBC_SHIM_CALLS_CALLS_H_

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <concepts>
#include <type_traits>

#include "libc-shim/calls/front_end.h"
#include "libc-shim/calls/leave.h"
#include "src/sys/user_copy.h"
#include "src/vfs/mirrored.h"
#include "src/vfs/vfs.h"

namespace nvcache::calls {

// The engine's answer, or the real call where there is none.
template <typename RealCall, typename... Arguments>
inline auto Answer(long answer, RealCall real, Arguments... arguments) {
  using Result = decltype(real(arguments...));
  if (answer == vfs::kNotOurs) return real(arguments...);
  return static_cast<Result>(FromAnswer(answer));
}

// A real call that may have something to do before the engine answers in its place.
template <typename RealCall>
concept ActsBefore = requires(RealCall real) {
  real.BeforeAnswer();
  { real.MayActBefore() } -> std::same_as<bool>;
};

template <typename RealCall>
inline bool MayActBefore(RealCall real) {
  if constexpr (ActsBefore<RealCall>) return real.MayActBefore();
  return false;
}

// A call on a descriptor. Most descriptors of most programs are none of ours: then a look at a
// table is all.
template <typename EngineCall, typename RealCall, typename... Arguments>
inline auto Offer(EngineCall engine_call, RealCall real, int fd, Arguments... arguments) {
  if (vfs::IsUntracked(fd)) [[likely]]
    return real(fd, arguments...);
  if constexpr (ActsBefore<RealCall>) real.BeforeAnswer();
  return Answer(engine_call(fd, arguments...), real, fd, arguments...);
}

// A call that only reads.
template <typename EngineCall, typename RealCall, typename... Arguments>
inline auto OfferRead(EngineCall engine_call, RealCall real, int fd, Arguments... arguments) {
  if (vfs::IsReadByKernel(fd)) [[likely]]
    return real(fd, arguments...);
  return Offer(engine_call, real, fd, arguments...);
}

template <typename Result>
inline bool IsFailure(Result result) {
  if constexpr (std::is_pointer_v<Result>) {
    return result == nullptr;
  } else {
    return result < 0;
  }
}

// The last step of each call that waits for the pool's mirror: the result of a call that is done,
// or that of one that fails. `await` is one of vfs/mirrored.h.
template <typename Result, typename Await>
inline Result AwaitMirror(Result result, Await await) {
  if (!vfs::IsMirrored() || IsFailure(result)) [[likely]]
    return result;
  const long failed = FromAnswer(await());
  if (failed == 0) return result;
  if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else {
    return static_cast<Result>(failed);
  }
}

// They wait for the mirror after a sync of what is open there, a change of it, or one of
// attributes, by a path if there is one. names.h has the one for a change of names.

template <typename Result>
inline Result Synced(int fd, Result result) {
  return AwaitMirror(result, [=] { return vfs::AwaitMirrorOf(fd); });
}

template <typename Result>
inline Result Changed(int fd, Result result, int rwf_flags = 0) {
  return AwaitMirror(result, [=] { return vfs::AwaitMirrorOfChange(fd, rwf_flags); });
}

template <typename Result>
inline Result Attributed(int dirfd, const char* path, Result result) {
  return AwaitMirror(result, [=] { return vfs::AwaitMirrorOfAttributes(dirfd, path); });
}

// Copies what the program points at. False: it is not there, which the kernel shall say; or nobody
// needs to know.
template <typename Type>
inline bool Fetch(Type* to, const void* from) {
  return vfs::IsActive() && sys::CopyFromUser(to, from, sizeof(Type)) == sizeof(Type);
}

// A path that stands for the descriptor beside it.
inline bool IsEmpty(const char* path) {
  char first;
  return Fetch(&first, path) && first == '\0';
}

// The engine's own descriptors are none to the program: then errno is EBADF, and the call must
// fail.
inline bool IsHidden(int fd) {
  if (!vfs::IsInternal(fd)) return false;
  errno = EBADF;
  return true;
}

// A call on a descriptor of which nothing else needs to be known.
template <typename RealCall>
inline auto UnlessHidden(int fd, RealCall real) {
  return IsHidden(fd) ? decltype(real()){-1} : real();
}

// The call's file is such a descriptor where an empty path makes `dirfd` the file.
inline bool IsHiddenBeside(int dirfd, const char* path, int flags) {
  return vfs::IsInternal(dirfd) && (flags & AT_EMPTY_PATH) != 0 && IsEmpty(path) && IsHidden(dirfd);
}

// Before others do something to a file (vfs.h). False, with errno set: the file system refuses the
// bytes that are still pending, so the file stays cached, and the call must fail.

inline bool ToReaders(int fd) { return FromAnswer(vfs::Lend(fd)) == 0; }

inline bool ToOthers(int fd) { return FromAnswer(vfs::HandOn(fd)) == 0; }

inline bool ToOthersForGood(int fd) { return FromAnswer(vfs::HandOn(fd, true)) == 0; }

inline bool ToKernel(int fd) { return FromAnswer(vfs::PassThrough(fd, false)) == 0; }

inline bool ToKernelForGood(int fd) {
  return FromAnswer(vfs::PassThrough(fd, true)) == 0 && FromAnswer(vfs::AwaitMirrorOfKernel()) == 0;
}

inline bool ToKernelByPath(int dirfd, const char* path) {
  return FromAnswer(vfs::PassThroughPath(dirfd, path)) == 0;
}

// Around a call that makes a descriptor, with all that is done around it: where the program's limit
// leaves no room for one, the engine gives up some of its own.
template <typename Call>
inline auto WithRoom(Call make) {
  auto result = make();
  while (IsFailure(result) && errno == EMFILE && vfs::MakeRoom()) result = make();
  return result;
}

// To be called with each new descriptor, or with the error in place of one. A disk that refuses to
// take the file's pending bytes is left to fsync and close to report: the number is given out. To
// standard error, libc writes by its number when it ends a program that has gone wrong.
template <typename Descriptor>
inline Descriptor AfterNumbering(Descriptor fd) {
  if (fd >= 0 && HasStream(static_cast<int>(fd))) {
    vfs::PassThrough(static_cast<int>(fd));
  } else if (fd == STDERR_FILENO) {
    vfs::Lend(STDERR_FILENO);
  }
  return fd;
}

// For the calls after which our picture of the process cannot be kept right. Everything goes to
// disk, every file to the kernel, and so does every later call.
inline void TurnOff(vfs::Hindrance why) { vfs::Retire(why); }

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_CALLS_H_
