// SPDX-License-Identifier: BSD-3-Clause
//
// Where a writer's bytes come from: a pool that others write to meanwhile (mirror/pool), one that
// nobody writes to (a recovery), or the model of a pool (tests/mirror).
#ifndef NVCACHE_MIRROR_CORE_SOURCE_H_
#define NVCACHE_MIRROR_CORE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mirror/core/ids.h"
#include "mirror/core/message.h"

namespace nvcache::mirror {

// A part of the pool, to be added to an image as one.
struct Batch {
  Position position = 0;
  bool whole = false;  // nothing was committed below the position that lies in no batch so far
  std::vector<Range> ranges;
  std::vector<uint8_t> bytes;
};

// One reading of a pool, from its checkpoint to its end and then on for ever.
//
// Invariant: all batches so far, written in turn over an image of zeros, make an image at the last
// one's position: it has every group below it that was committed when that LSN was drawn, and all
// checkpoints and void words that were stored then; no group without those that it depends on. The
// position never goes down. A batch that is not whole is followed by another one at once.
class Cursor {
 public:
  virtual ~Cursor() = default;
  // False, and `batch` is empty: there is nothing new. A batch has at most kMaxBytes and
  // kMaxRanges. With `position` alone it says that nothing below was committed since the last one.
  virtual bool Read(Batch* batch) = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_SOURCE_H_
