// SPDX-License-Identifier: BSD-3-Clause
//
// The pages of a pool that nobody ever wrote. A new pool's memory is made when it is used. It is
// not made, page by page, to find nothing in it: so the question comes before the first look at a
// page.
#ifndef NVCACHE_NVLOG_HOLES_H_
#define NVCACHE_NVLOG_HOLES_H_

#include <cstdint>

#include "src/nvlog/record.h"

namespace nvcache::nvlog {

class Holes {
 public:
  // `fd`: the pool's file; -1: there is none to ask.
  void Open(int fd);

  // The first place from `place` on, up to `end`, that was ever written.
  Place AfterNothing(Place place, Place end) const;
  bool IsNothing(Place place) const { return AfterNothing(place, place + 1) != place; }

 private:
  int fd_ = -1;
  // Bytes of the file that are known to be there.
  mutable uint64_t data_begin_ = 0;
  mutable uint64_t data_end_ = 0;
  // And that nobody ever wrote.
  mutable uint64_t hole_begin_ = 0;
  mutable uint64_t hole_end_ = 0;
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_HOLES_H_
