// SPDX-License-Identifier: BSD-3-Clause
//
// The cleanup thread's work on the records of all lanes.
#ifndef NVCACHE_NVLOG_LOG_READING_H_
#define NVCACHE_NVLOG_LOG_READING_H_

#include <cstdint>

#include "src/nvlog/log.h"
#include "src/sys/scratch.h"

namespace nvcache::nvlog {

template <typename Function>
void Log::ForEachRead(Function function) {
  Position at[kBackLanes];
  for (uint32_t i = 0; i < lanes_used_; ++i) at[i] = lanes_[i].forgotten;
  for (uint32_t lane; (lane = Lowest(at)) != sys::kNone;) {
    const Place place = at[lane].segment * units_ + at[lane].unit;
    at[lane].unit += static_cast<uint32_t>(RecordUnits(At(place)));
    if (!function(place)) return;
  }
}

template <typename Function>
void Log::ForEachUnread(Function function) {
  struct Lanes {
    Ends ends;
    Position at[kBackLanes];
  };
  sys::Scratch<Lanes> scratch;  // a program's thread writes back as well
  auto& [ends, at] = *scratch;
  LookUnread(&ends, at);
  uint32_t lane = 0;
  for (Place place; (place = Lowest(ends, at, &lane)) != kNoPlace;) {
    if (At(place).lsn >= ends.bound) return;
    at[lane].unit += static_cast<uint32_t>(RecordUnits(At(place)));
    if (!function(place)) return;
  }
}

template <typename Function>
void Log::Forget(Lsn checkpoint, const Ends& ends, Function function) {
  uint32_t done = kNoSegment;  // segments to free, chained by Info::next
  for (uint32_t i = 0; i < lanes_used_; ++i) {
    if (ends.lane[i].segment == kNoSegment) continue;
    Position& at = lanes_[i].forgotten;
    const Position& read = lanes_[i].read;
    while (at.segment != kNoSegment && (at.segment != read.segment || at.unit != read.unit)) {
      // The lane's own segment is its writers' to change.
      if (at.segment != ends.lane[i].segment && at.unit == segments_[at.segment].end) {
        const uint32_t next = segments_[at.segment].next;
        segments_[at.segment].next = done;
        done = at.segment;
        at = {next, static_cast<uint32_t>(kFirstUnit)};
        continue;
      }
      const Place place = at.segment * units_ + at.unit;
      const RecordHeader& header = At(place);
      if (header.lsn >= checkpoint) break;
      at.unit += static_cast<uint32_t>(RecordUnits(header));
      function(place);
    }
  }
  while (done != kNoSegment) {
    const uint32_t next = segments_[done].next;
    segments_.Free(done);
    done = next;
  }
}

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_LOG_READING_H_
