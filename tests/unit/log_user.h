// SPDX-License-Identifier: BSD-3-Clause
//
// Users of one pool, each with a log of its own. Locks belong to the open file, so two that have
// opened one pool are like two processes; one that closes it without leaving is like one that died.
#ifndef NVCACHE_TESTS_UNIT_LOG_USER_H_
#define NVCACHE_TESTS_UNIT_LOG_USER_H_

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/log.h"
#include "src/nvlog/log_reading.h"
#include "tests/unit/support.h"

namespace nvcache::test {

struct LogUser {
  // At most to the end of the page. 0: there is no room.
  nvlog::Lsn Append(nvlog::FileTag& tag, pool::FileRecord record, uint64_t offset,
                    const std::string& bytes) {
    nvlog::GroupWriter group(log, tag);
    if (group.BeginData(offset, bytes.size(), &record) != nvlog::Outcome::kDone) return 0;
    EXPECT_TRUE(group.AddPage(reinterpret_cast<const uint8_t*>(bytes.data()),
                              static_cast<uint32_t>(bytes.size()), nullptr, nvlog::kNoPlace));
    const nvlog::Lsn lsn = group.Commit();
    group.ForEachPart([&](nvlog::Place place, uint64_t, uint64_t) { last = place; });
    return lsn;
  }
  // As the cleanup thread does it: all that is in the log is on disk now, or kept.
  void Clean() {
    nvlog::Log::Ends ends;
    log.Look(&ends);
    nvlog::Place place;
    while ((place = log.NextRecord(ends)) != nvlog::kNoPlace) log.Pass(place);
    pool.StoreSeatCheckpoint(ends.bound);
    log.Forget(ends.bound, ends, [](nvlog::Place) {});
  }
  std::set<uint32_t> OwnedBy(uint32_t seat) const {
    std::set<uint32_t> owned;
    for (uint32_t i = 0; i < pool.view().segment_count(); ++i) {
      if (pool.seats().Owns(i, seat)) owned.insert(i);
    }
    return owned;
  }

  ScopedPool pool;
  nvlog::Log log;
  nvlog::Place last = nvlog::kNoPlace;  // of what was appended
};

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_LOG_USER_H_
