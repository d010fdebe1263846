// SPDX-License-Identifier: BSD-3-Clause
//
// A model of a pool, of the file system below it, and of what recovery makes of both.
//
// Files are registers that have versions: each write has a higher one. A register that recovery
// sets back below what was acknowledged has lost data. Registers 0 and 1 are written together, by
// groups that are cached: after a recovery both have the same version. The others are written
// through: the kernel has them before the log.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_POOL_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_POOL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "mirror/core/source.h"
#include "mirror/core/state.h"
#include "tests/kit/random.h"
#include "tests/mirror/simulation/rules.h"
#include "tests/mirror/simulation/schedule.h"

namespace nvcache::simulation {

using mirror::Position;
using Bytes = std::vector<uint8_t>;

inline constexpr size_t kRegisters = 6;
inline constexpr size_t kPair = 2;  // the first ones
using Versions = std::array<uint64_t, kRegisters>;

// What the log says in one slot. `lsn` 0: nothing.
struct Group {
  uint64_t lsn = 0;
  uint64_t settled = 0;  // 0: a write. Else groups of the register below it are on the disk
  uint64_t target = 0;   // register
  uint64_t version = 0;
  uint64_t program = 0;  // that has made it
  uint64_t number = 0;   // the program's groups are counted: 1, 2, 3, ...
};

inline constexpr size_t kSlots = 20;
inline constexpr size_t kReserved = 4;  // for groups that settle
inline constexpr size_t kCheckpointAt = 8;
inline constexpr size_t kSlotsAt = 16;
inline constexpr size_t kPoolSize = kSlotsAt + kSlots * sizeof(Group);

struct Pool {
  Pool();
  uint64_t checkpoint() const;
  void SetCheckpoint(uint64_t lsn);
  Group At(size_t slot) const;
  void Put(size_t slot, const Group& group);
  // A slot that no group below has; kSlots: none.
  size_t TakeSlot(bool settles);
  // Every group that is not committed has an LSN from there on.
  uint64_t Bound() const { return drawn.empty() ? next : *drawn.begin(); }
  uint64_t Draw() { return next++; }

  Bytes bytes;
  uint64_t next = 1;
  std::set<uint64_t> drawn;             // by groups that are not committed
  std::array<bool, kSlots> taken = {};  // a group is being written there
  // What the mirror tells programs.
  mirror::State state = mirror::State::kNone;
  Position position = 0;
};

// What recovery makes of a disk with the pool's bytes. `steps`: how far it comes; a write of the
// pair takes two. Returns the steps that it would take in all.
size_t Replay(const Bytes& pool, Versions* disk, size_t steps = SIZE_MAX);

// Whether a group is there without an older one of its program. `history`: all groups of the pool
// that were ever committed.
bool LacksOlder(const Bytes& pool, const std::vector<Group>& history);

// Reads a pool that is in use.
std::unique_ptr<mirror::Cursor> OpenCursor(const Pool* pool, Schedule* schedule,
                                           kit::Random* random, Broken broken);
// Reads one that nobody writes to.
std::unique_ptr<mirror::Cursor> OpenCursor(Bytes pool, Position position);

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_POOL_H_
