// SPDX-License-Identifier: BSD-3-Clause
//
// A pool that others write to, as a source of batches (docs/mirror.md: How a pool is read).
#ifndef NVCACHE_MIRROR_POOL_SOURCE_H_
#define NVCACHE_MIRROR_POOL_SOURCE_H_

#include <cstdint>
#include <memory>

#include "mirror/core/ids.h"
#include "mirror/core/source.h"
#include "src/pool/pool.h"

namespace nvcache::mirror {

// Reads a pool that is open, in any mode; it stores nothing there, and needs no seat. `pool`
// outlives the source, and the source its cursors. Each cursor is for one thread at a time.
class PoolSource {
 public:
  explicit PoolSource(const pool::Pool& pool) : pool_(pool) {}

  Id lineage() const;
  uint64_t pool_size() const { return pool_.view().superblock->pool_size; }
  // At the beginning. It takes about 64 bytes for each segment of the pool, and 16 for each record
  // that is kept because a disk refuses it.
  std::unique_ptr<Cursor> NewCursor() const;

 private:
  const pool::Pool& pool_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_SOURCE_H_
