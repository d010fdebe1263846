// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that make data durable, or change a file's size.
#ifndef NVCACHE_LIBC_SHIM_CALLS_SIZE_H_
#define NVCACHE_LIBC_SHIM_CALLS_SIZE_H_

#include <fcntl.h>

#include "libc-shim/calls/calls.h"
#include "libc-shim/calls/names.h"

namespace nvcache::calls {

template <typename RealCall>
inline auto Fsync(int fd, RealCall real) {
  return Synced(fd, Answer(vfs::Fsync(fd), real, fd));
}

// The engine's answer when it is an error. Else the real call as well: it judges the arguments,
// and there is nothing left for it to do.
template <typename RealCall>
inline auto AnswerError(long answer, RealCall real) {
  const bool failed = answer != vfs::kNotOurs && answer < 0;
  return Answer(failed ? answer : vfs::kNotOurs, real);
}

// The kernel would take these arguments.
inline bool IsRangeToSync(off64_t offset, off64_t count, unsigned flags) {
  constexpr unsigned kFlags =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  off64_t end;
  return (flags & ~kFlags) == 0 && offset >= 0 && count >= 0 &&
         !__builtin_add_overflow(offset, count, &end);
}

// Where the log has the bytes, the disk need not even begin.
template <typename RealCall>
inline auto SyncFileRange(int fd, off64_t offset, off64_t count, unsigned flags, RealCall real) {
  const long answer = vfs::SyncRange(fd);
  const bool elided = answer == 0 && IsRangeToSync(offset, count, flags);
  const auto result = elided ? decltype(real()){0} : AnswerError(answer, real);
  return (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0 ? Synced(fd, result) : result;
}

template <typename RealCall>
inline auto Sync(RealCall real) {
  vfs::DrainAll();
  if constexpr (std::is_void_v<decltype(real())>) {
    real();
    vfs::AwaitMirrorOfAll();
  } else {
    return AwaitMirror(real(), vfs::AwaitMirrorOfAll);
  }
}

template <typename RealCall>
inline auto Syncfs(int fd, RealCall real) {
  vfs::DrainAll();
  return AwaitMirror(AnswerError(vfs::Drain(fd), real), vfs::AwaitMirrorOfAll);
}

template <typename RealCall>
inline auto Ftruncate(int fd, off_t length, RealCall real) {
  if (!MayLeave(vfs::Output::kFile)) return decltype(real(fd, length)){-1};
  return Changed(fd, Answer(vfs::Ftruncate(fd, length), real, fd, length));
}

template <typename RealCall>
inline auto Truncate(const char* path, RealCall real) {
  return Attributed(AT_FDCWD, path, AroundNames(real, Name{AT_FDCWD, path, true}));
}

template <typename RealCall>
inline auto Fallocate(int fd, int mode, off_t offset, off_t length, RealCall real) {
  if (!MayLeave(vfs::Output::kFile)) return decltype(real(fd, mode, offset, length)){-1};
  return Changed(fd,
                 Answer(vfs::Fallocate(fd, mode, offset, length), real, fd, mode, offset, length));
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_SIZE_H_
