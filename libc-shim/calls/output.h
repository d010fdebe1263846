// SPDX-License-Identifier: BSD-3-Clause
//
// The bracket around a call by which something leaves the program and that needs nothing else: a
// message, a signal, an end (docs/output.md). Other brackets begin with one of
// the functions in calls.h.
#ifndef NVCACHE_LIBC_SHIM_CALLS_OUTPUT_H_
#define NVCACHE_LIBC_SHIM_CALLS_OUTPUT_H_

#include <unistd.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// Whatever it is called on.
template <typename RealCall>
inline auto Leave(vfs::Output output, RealCall real) {
  return MayLeave(output) ? real() : static_cast<decltype(real())>(-1);
}

// To what is open there.
template <typename RealCall>
inline auto LeaveBy(int fd, RealCall real) {
  return MayLeaveBy(fd) ? real() : static_cast<decltype(real())>(-1);
}

// A function that has no error of its own. Nobody hears of it where its call must fail.
template <typename RealCall>
inline void LeaveSilently(vfs::Output output, RealCall real) {
  if (MayLeave(output)) real();
}

// An exit where that fails: something that was told cannot be kept, so the status must not say that
// all is well.
inline constexpr int kNotKept = 125;

inline int ExitStatus(int status) { return vfs::Stop() ? status : kNotKept; }

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_OUTPUT_H_
