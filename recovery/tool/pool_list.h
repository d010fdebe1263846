// SPDX-License-Identifier: BSD-3-Clause
//
// The pools that one `nvcache recover` is for.
#ifndef NVCACHE_RECOVERY_TOOL_POOL_LIST_H_
#define NVCACHE_RECOVERY_TOOL_POOL_LIST_H_

#include <string>
#include <vector>

namespace nvcache::tool {

struct ListedPool {
  std::string path;
  std::string user;  // whose rights count; empty: the owner's
  bool may_be_missing = false;
  bool may_be_used = false;  // whoever uses it has recovered it
  std::string mistake;       // the mistake in its line; the rest does not count then
};

// Reads a list: one pool a line, `[USER] [-]/PATH`; "-": the pool may be missing. Empty lines and
// lines that begin with "#" are left out. A Failure if the file cannot be read; "-" before its
// name: it may be missing, and lists none then.
std::vector<ListedPool> ReadPoolList(const std::string& name);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_POOL_LIST_H_
