// SPDX-License-Identifier: BSD-3-Clause
//
// How far an image is behind its pool, in time and in bytes of the logs. It is told again and again
// how far the pool is, and remembers that for all times, but the older ones are farther apart.
#ifndef NVCACHE_MIRROR_CORE_LAG_H_
#define NVCACHE_MIRROR_CORE_LAG_H_

#include <cstdint>
#include <vector>

#include "mirror/core/ids.h"

namespace nvcache::mirror {

class Lag {
 public:
  struct Behind {
    // ns since when the image may lack something: not less, but for what was before the first
    // Note(); and more by the time between two calls of it, or by 7 % of itself.
    Time time;
    uint64_t segments;  // that logs have taken since
  };

  // The pool's next LSN now, and how many segments its logs have taken.
  void Note(Time now, Position next, uint64_t taken);
  // The lag of an image at `position`, at the time of the last Note().
  Behind Of(Position position) const;

 private:
  struct Sample {
    Time time;
    Position next;
    uint64_t taken;
  };

  void Thin(Time now);

  std::vector<Sample> samples_;  // in the order of all three fields
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_LAG_H_
