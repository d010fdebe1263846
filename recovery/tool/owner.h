// SPDX-License-Identifier: BSD-3-Clause
//
// Who uses a pool.
#ifndef NVCACHE_RECOVERY_TOOL_OWNER_H_
#define NVCACHE_RECOVERY_TOOL_OWNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "recovery/tool/pending.h"
#include "recovery/tool/text.h"
#include "src/pool/pool.h"

namespace nvcache::tool {

enum class Use {
  kClean,  // nobody, and nothing is pending
  kInUse,  // processes use it, or one recovers it
  kDirty,  // the last process died using it
};

// A process that has a seat in the pool, or has left it to be replayed.
struct Process {
  uint32_t seat = 0;
  uint32_t pid = 0;
  bool alive = false;    // its life byte says so; of an orphan, a process replays it
  bool stopped = false;  // by a signal; it is alive
  uint32_t state = 0;    // pool::Seat::state
  bool checkpointer = false;
  std::string program;
  uint64_t since = 0;           // ns since 1970
  uint64_t oldest_pending = 0;  // ns since 1970; 0: nothing is pending
  uint32_t files = 0;           // in its cache; none when it is dead
  uint64_t segments = 0;        // that it has, for its logs and page frames
  uint32_t written = 0;         // pool::Seat::written
};

// Of a pool that is not clean. If nobody lives, they are those who have left it so.
std::vector<Process> FindProcesses(const pool::Pool& pool);

// "alive", "stopped", "dead", "replayed", "unresolved", "left".
const char* StateName(const Process& process);
// Its program's name, and whether it is the checkpointer.
std::string Name(const Process& process);
// ns; 0: nothing is pending.
uint64_t AgeOfOldest(const Process& process, const PendingOfSeat& pending);
Json ProcessJson(const Process& process, const PendingOfSeat& pending);

struct Owner {
  Use use = Use::kClean;
  uint32_t pid = 0;     // of a process that has the pool, or died using it; 0: unknown
  bool alive = false;   // a process of this number exists: not always the same one
  std::string program;  // its name, when it is alive
  uint64_t since = 0;   // ns since 1970
};

Owner FindOwner(const pool::Pool& pool);

const char* UseName(Use use);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_OWNER_H_
