// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/open.h"

#include <errno.h>

#include <optional>

#include "recovery/tool/commands.h"
#include "recovery/tool/libpmem.h"
#include "recovery/tool/lost.h"
#include "src/pool/glance.h"

namespace nvcache::tool {

// Somebody may be making its memory meanwhile: then what the journal had is out of date, and may
// have seemed to be damaged.
void OpenPool(ScopedPool* pool, const std::string& path, pool::Mode mode, bool emulate) {
  pool::Problem problem;
  pool->lost = false;
  const auto open = [&] { return pool->Open(path.c_str(), mode, emulate, nullptr, &problem); };
  if (open()) return;
  if (problem.error != ENODATA) throw Failure{kFailed, problem.text.c_str()};
  std::optional<Failure> failure;
  try {
    OpenLost(pool, path, mode);
  } catch (const Failure& found) {
    failure = found;
  }
  using Kind = pool::Glance::Kind;
  const Kind kind = pool::GlanceAt(path.c_str()).kind;
  if (kind != Kind::kLost && kind != Kind::kVoid) {
    pool->Close();
    if (open()) return;
    throw Failure{kFailed, problem.text.c_str()};
  }
  if (failure) throw Failure(*failure);
  pool->lost = true;
}

void CreatePool(const std::string& path, const pool::CreateOptions& options) {
  pool::Problem problem;
  if (pool::Pool::Create(path.c_str(), options, LoadLibpmem(), &problem)) return;
  throw Failure{kFailed, problem.text.c_str()};
}

Level DiskLevel(uint32_t commit) {
  switch (commit) {
    case pool::kCommitWrite:
      return {"disk", "each write survives a power failure"};
    case pool::kCommitOutput:
      return {"disk", "what anybody can have heard was synced survives a power failure"};
    default:
      return {"disk", "what a program syncs survives a power failure"};
  }
}

Level LevelOf(const ScopedPool& pool) {
  if (pool.lost) return DiskLevel(pool.view().superblock->commit);
  return LevelOf(static_cast<const pool::Pool&>(pool));
}

Level LevelOf(const pool::Pool& pool) {
  if (pool.has_journal()) return DiskLevel(pool.view().superblock->commit);
  switch (pool.view().superblock->commit) {
    case pool::kCommitFsync:
      return {"mirrored", "what a program syncs survives the loss of this machine's memory"};
    case pool::kCommitWrite:
      return {"mirrored", "each write survives the loss of this machine's memory"};
    case pool::kCommitOutput:
      return {"mirrored",
              "what anybody can have heard was synced survives the loss of this machine's memory"};
    default:
      break;
  }
  return pool.durability() == pmem::Durability::kPower
             ? Level{"power", "writes survive a power failure"}
             : Level{"process", "writes survive the death of the program, not a power failure"};
}

}  // namespace nvcache::tool
