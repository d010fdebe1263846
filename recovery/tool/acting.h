// SPDX-License-Identifier: BSD-3-Clause
//
// With whose rights a recovery writes.
#ifndef NVCACHE_RECOVERY_TOOL_ACTING_H_
#define NVCACHE_RECOVERY_TOOL_ACTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/pool/pool.h"

namespace nvcache::tool {

struct User {
  uint32_t id = 0;
  std::string name;  // the number, if it has none
  uint32_t group = 0;
  std::vector<uint32_t> groups;
};

// Whose rights count for `pool`: those of `wanted`, a name or number that only root may give, else
// of the pool's owner. A Failure if the user is not known, or cannot be told.
User UserOf(const pool::Pool& pool, const std::string& wanted);

// While it lives, that user's rights count for the file system. Nothing changes for the user that
// we are.
class Acting {
 public:
  explicit Acting(const User& user);
  ~Acting();
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;

 private:
  bool acts_ = false;
};

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_ACTING_H_
