// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls with which the kernel itself moves a file's data.
#ifndef NVCACHE_LIBC_SHIM_CALLS_TRANSFER_H_
#define NVCACHE_LIBC_SHIM_CALLS_TRANSFER_H_

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// The kernel reads from one descriptor, at its own offset if `moves_offset`, and writes to the
// other.
template <typename RealCall>
inline auto Transfer(int from, bool moves_offset, int to, RealCall real) {
  if (IsHidden(from) || !ToKernel(to) || !MayLeaveBy(to)) return decltype(real()){-1};
  vfs::Publish(from);
  const auto result = real();
  if (moves_offset) vfs::TakeOffset(from);
  return Changed(to, result);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_TRANSFER_H_
