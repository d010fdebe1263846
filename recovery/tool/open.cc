// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/open.h"

#include "recovery/tool/commands.h"
#include "recovery/tool/libpmem.h"

namespace nvcache::tool {

void OpenPool(pool::Pool* pool, const std::string& path, pool::Mode mode, bool emulate) {
  pool::Problem problem;
  if (pool->Open(path.c_str(), mode, emulate, nullptr, &problem)) return;
  throw Failure{kFailed, problem.text.c_str()};
}

void CreatePool(const std::string& path, const pool::CreateOptions& options) {
  pool::Problem problem;
  if (pool::Pool::Create(path.c_str(), options, LoadLibpmem(), &problem)) return;
  throw Failure{kFailed, problem.text.c_str()};
}

const char* DurabilityName(pmem::Durability durability) {
  return durability == pmem::Durability::kPower ? "power" : "process";
}

const char* DurabilityMeaning(pmem::Durability durability) {
  return durability == pmem::Durability::kPower
             ? "writes survive a power failure"
             : "writes survive the death of the program, not a power failure";
}

}  // namespace nvcache::tool
