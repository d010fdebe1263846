// SPDX-License-Identifier: BSD-3-Clause
//
// Hindrances, as processes tell them (src/lease/hindrances.h).
#ifndef NVCACHE_RECOVERY_TOOL_HINDERED_H_
#define NVCACHE_RECOVERY_TOOL_HINDERED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "recovery/tool/text.h"
#include "src/pool/pool.h"

namespace nvcache::tool {

struct Hindered {
  uint32_t pid = 0;
  std::string program;            // empty: it cannot be read
  std::vector<uint32_t> reasons;  // lease::Hindrance
  std::string detail;             // the first one's that had one
};

// The living processes that name this pool and have said something, whether they have a seat in it
// or not; of all users whose file of leases in /dev/shm may be read.
std::vector<Hindered> FindHindered(const pool::Pool& pool);

// A line for each process and reason.
void PrintHindered(const std::vector<Hindered>& processes);
Json HinderedJson(const std::vector<Hindered>& processes);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_HINDERED_H_
