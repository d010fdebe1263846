// SPDX-License-Identifier: BSD-3-Clause
//
// The pool of whoever names none.
#ifndef NVCACHE_RECOVERY_TOOL_DEFAULT_POOL_H_
#define NVCACHE_RECOVERY_TOOL_DEFAULT_POOL_H_

#include <cstdint>
#include <string>

namespace nvcache::tool {

// Of a pool that `nvcache run` makes there; on a disk it takes memory of that size, and some 2.5
// times as much of the disk.
inline constexpr uint64_t kDefaultPoolSize = uint64_t{256} << 20;

// /var/lib/nvcache/pool of root, $XDG_STATE_HOME/nvcache/pool of others. Empty: they have no home.
std::string DefaultPool();
// The pool that NVCACHE_POOL names, or else that one. A Failure of `command` if there is neither.
std::string NamedPool(const char* command);
// Makes the folders above it that are missing, for the user alone. An error shows later, when the
// pool is made.
void MakeDefaultFolder();

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_DEFAULT_POOL_H_
