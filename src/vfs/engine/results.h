// SPDX-License-Identifier: BSD-3-Clause
//
// The answer to a call, beside its result and a negated errno.
#ifndef NVCACHE_VFS_ENGINE_RESULTS_H_
#define NVCACHE_VFS_ENGINE_RESULTS_H_

#include <climits>

namespace nvcache::vfs {

// The call is not for us: make the real one. The kernel's own errors must not be taken for it.
inline constexpr long kNotOurs = LONG_MIN;

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_RESULTS_H_
