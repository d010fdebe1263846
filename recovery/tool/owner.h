// SPDX-License-Identifier: BSD-3-Clause
//
// The processes that use a pool.
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
  bool stopped = false;  // a signal or a debugger has stopped it; it is alive
  uint32_t state = 0;    // pool::Seat::state
  bool checkpointer = false;
  std::string program;
  uint64_t since = 0;           // ns since 1970
  uint64_t oldest_pending = 0;  // ns since 1970; 0: nothing is pending
  uint32_t files = 0;           // in its cache; none when it is dead
  uint64_t segments = 0;        // that it has, for its logs and page frames
  uint32_t written = 0;         // pool::Seat::written
  uint32_t rule = 0;            // pool::Conduct::rule
  // ns since 1970: what is pending of write-through is no older; 0: it has had nothing.
  uint64_t through_since = 0;
  uint32_t through_written = 0;  // pool::Conduct::through_written
};

// The name of a process's program; empty: it cannot be read.
std::string ProgramOf(uint32_t pid);

// The processes of a pool that is not clean. If nobody lives, they are those who have left it so.
std::vector<Process> FindProcesses(const pool::Pool& pool);

// "alive", "stopped", "dead", "replayed", "unresolved", "left".
const char* StateName(const Process& process);
// The rule by which it writes back: "auto", "always", "never"; "-": it has none, or is not known.
const char* ModeName(const Process& process);
// Its program's name, and whether it is the checkpointer.
std::string Name(const Process& process);
// ns; 0: nothing is pending, or nobody knows.
uint64_t AgeOfOldest(const Process& process, const PendingOfSeat& pending);
Json ProcessJson(const Process& process, const PendingOfSeat& pending);

// How the processes that use the pool, or have used it last, see the checkpoint of write-through.
struct Through {
  bool used = false;       // some of them has had write-through files
  uint64_t moved = 0;      // ns since 1970 when the checkpoint did; 0: not since the pool is in use
  int error = 0;           // errno of a sync after which it moves no more; 0: none
  uint64_t failed_at = 0;  // ns since 1970
};

Through FindThrough(const pool::Pool& pool);
// Says what is above the checkpoint, since when, and what is to be done where it stays.
std::string ThroughText(const Through& through, const Pending& pending);
Json ThroughJson(const Through& through, const Pending& pending);

struct Owner {
  Use use = Use::kClean;
  uint32_t pid = 0;     // a process that has the pool, or died using it; 0: unknown
  bool alive = false;   // a process of this number exists: not always the same one
  std::string program;  // its name, when it is alive
  uint64_t since = 0;   // ns since 1970
};

Owner FindOwner(const pool::Pool& pool);

const char* UseName(Use use);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_OWNER_H_
