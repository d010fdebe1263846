// SPDX-License-Identifier: BSD-3-Clause
//
// Replay: brings what a dead process left in a pool's logs to the file system. Freestanding, so
// that the library can recover before the program's first file call; the `nvcache recover` command
// adds the words. Stands on nvlog, pool and pmem alone.
#ifndef NVCACHE_REPLAY_REPLAY_H_
#define NVCACHE_REPLAY_REPLAY_H_

#include <cstdint>

#include "src/nvlog/walk.h"
#include "src/pool/pool.h"
#include "src/replay/names.h"

namespace nvcache::replay {

// Records are those with work in them: data, truncations, erasures. File records are not counted.
struct Summary {
  bool was_dirty = false;
  uint64_t files = 0;               // that records were applied to
  uint64_t records = 0;             // applied
  uint64_t bytes = 0;               // data that was applied
  uint64_t through_files = 0;       // those with groups of write-through
  uint64_t unresolved_files = 0;    // not found, or not the file that the records were written to
  uint64_t unresolved_records = 0;  // they stay
  uint64_t unresolved_bytes = 0;
  uint64_t damaged_groups = 0;     // calls of which a record's checksum is wrong; not applied
  uint64_t unfinished_groups = 0;  // calls that a power failure cut off; not applied
  uint64_t failed_files = 0;       // the file system refused
  uint64_t failed_records = 0;     // they stay, even if some of them were applied
  uint64_t failed_bytes = 0;
  uint64_t names = 0;             // that were made, moved or removed, because a file system had not
  uint64_t unresolved_names = 0;  // that could not be; the records of all names stay
  uint64_t refused_names = 0;     // those of these that the disk refused
  int error = 0;                  // errno of one of these, or 0

  void Add(const Summary& other);
};

// Told about what happens; any of them may be null. Files have the numbers of nvlog::GroupWalk.
// nvlog::kNoFile stands for all the files whose records are damaged; its `record` is all zero.
struct Observer {
  void* context = nullptr;
  void (*progress)(void* context, uint64_t done, uint64_t total) = nullptr;
  void (*damaged)(void* context, const nvlog::Group& group) = nullptr;
  void (*unfinished)(void* context, const nvlog::Group& group) = nullptr;
  // A name in a folder is made, moved or removed, or would be; or cannot be, with errno.
  void (*name)(void* context, NameAct act, const char* folder, const char* name) = nullptr;
  void (*unresolved_name)(void* context, const char* folder, const char* name, int error) = nullptr;
  // Once per file whose records cannot be applied, with errno: ENOENT (not found), ESTALE (another
  // file has its name), EBADMSG (the record that names it is damaged), or what the file system
  // said.
  void (*unresolved)(void* context, uint32_t file, const pool::FileRecord& record,
                     int error) = nullptr;
  // For each record that is not applied because its file is unresolved, or cannot be opened for
  // writing on a disk that refuses; after the file itself was told, if it is unresolved. To save it
  // elsewhere. `header` is a copy, the record lies at `place`.
  void (*orphan)(void* context, uint32_t file, const nvlog::Reader& reader,
                 const nvlog::RecordHeader& header, nvlog::Place place) = nullptr;
};

struct Options {
  bool dry_run = false;  // look and count; write nothing
  bool discard = false;  // drop the records of unresolved files after `orphan` was told
};

// Applies the committed groups of `pool` (opened kExclusive, or alone in it) in the order of their
// LSNs, syncs the files, and marks the pool clean, unless groups are left that could not be
// applied: these stay committed, the others become void. May be killed at any instruction and run
// again (I6); harmless on a clean pool. True when the pool is clean now.
bool Replay(pool::Pool& pool, const Options& options, const Observer& observer, Summary* summary);

// Replays the logs of each process that has died, and that nobody else replays, while others use
// `pool` (opened kShared). A seat whose groups were all applied is free; adds to the summary.
// False: some seat keeps what could not be applied, for `nvcache recover`. One thread at a time.
bool ReplayOrphans(pool::Pool& pool, Summary* summary);

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_REPLAY_H_
