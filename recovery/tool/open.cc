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

Level DiskLevel(uint32_t commit) {
  return {"disk", commit == pool::kCommitWrite ? "each write survives a power failure"
                                               : "what a program syncs survives a power failure"};
}

Level LevelOf(const pool::Pool& pool) {
  if (pool.has_journal()) return DiskLevel(pool.view().superblock->commit);
  switch (pool.view().superblock->commit) {
    case pool::kCommitFsync:
      return {"mirrored", "what a program syncs survives the loss of this machine's memory"};
    case pool::kCommitWrite:
      return {"mirrored", "each write survives the loss of this machine's memory"};
    default:
      break;
  }
  return pool.durability() == pmem::Durability::kPower
             ? Level{"power", "writes survive a power failure"}
             : Level{"process", "writes survive the death of the program, not a power failure"};
}

}  // namespace nvcache::tool
