// SPDX-License-Identifier: BSD-3-Clause
//
// What a bracket begins with whose call lets something leave the program
// (docs/output.md).
#ifndef NVCACHE_LIBC_SHIM_CALLS_LEAVE_H_
#define NVCACHE_LIBC_SHIM_CALLS_LEAVE_H_

#include <errno.h>

#include <type_traits>

#include "src/vfs/output.h"

namespace nvcache::calls {

// Answers that the engine may give, to POSIX's form. The engine never touches errno itself, so a
// success leaves it alone.
inline long FromAnswer(long answer) {
  if (answer >= 0) return answer;
  errno = static_cast<int>(-answer);
  return -1;
}

// False, of all of these, with errno set: the call must fail.

inline bool MayLeave(vfs::Output output) {
  if (!vfs::HoldsOutputs()) [[likely]]
    return true;
  return FromAnswer(vfs::HoldOutput(output)) == 0;
}

inline bool MayLeaveBy(int fd) {
  if (!vfs::HoldsOutputs()) [[likely]]
    return true;
  return FromAnswer(vfs::HoldOutputOf(fd)) == 0;
}

inline bool MayClose(int fd) {
  if (!vfs::HoldsOutputs()) [[likely]]
    return true;
  return FromAnswer(vfs::HoldClose(fd)) == 0;
}

// Its result then.
template <typename Result>
inline Result Failed() {
  if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else {
    return Result{-1};
  }
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_LEAVE_H_
