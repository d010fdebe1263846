// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpoint records of a pool: that of the pool, that of write-through, and the seats'.
#ifndef NVCACHE_MIRROR_POOL_CHECKPOINTS_H_
#define NVCACHE_MIRROR_POOL_CHECKPOINTS_H_

#include <cstdint>
#include <vector>

#include "mirror/pool/pieces.h"
#include "src/pool/pool.h"

namespace nvcache::mirror {

class Checkpoints {
 public:
  explicit Checkpoints(const pool::Pool& pool);

  // Reads them. True: one of them is not the one that was sent.
  bool Look();
  // Those that Look() has found, and that were not sent. They were, when Sent() is called.
  void Add(Pieces* pieces) const;
  size_t bytes() const { return entries_.size() * 2 * sizeof(pool::CheckpointRecord); }  // at most
  void Sent();
  // The checkpoint that Look() has found: groups of the log below it are on the disk, or void.
  pool::Lsn Of(uint32_t log) const;
  // The checkpoint as it is now.
  pool::Lsn Now(uint32_t log) const;

 private:
  struct Entry {
    uint32_t whose = 0;           // src/pool/checkpoint.h says what it is
    pool::Lsn words[2] = {0, 0};  // both records', when they were read last
    pool::Lsn checkpoint = 0;     // the highest that was read
    pool::Lsn sent = 0;
  };

  bool LookAt(Entry* entry);

  const pool::View view_;
  const pool::Seats& seats_;
  bool looked_ = false;
  std::vector<Entry> entries_;  // the pool's, write-through's, each seat's
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_CHECKPOINTS_H_
