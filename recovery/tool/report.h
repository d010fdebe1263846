// SPDX-License-Identifier: BSD-3-Clause
//
// All that `nvcache status` has found out of a pool.
#ifndef NVCACHE_RECOVERY_TOOL_REPORT_H_
#define NVCACHE_RECOVERY_TOOL_REPORT_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "recovery/tool/hindered.h"
#include "recovery/tool/journaling.h"
#include "recovery/tool/mirroring.h"
#include "recovery/tool/open.h"
#include "recovery/tool/owner.h"
#include "recovery/tool/pending.h"

namespace nvcache::tool {

struct Report {
  std::string path;
  pool::Superblock superblock;
  Level level;
  Owner owner;
  std::vector<Process> processes;
  std::vector<Hindered> hindered;
  Through through;
  Mirroring mirroring;
  Journaling journaling;
  uint64_t frame_segments;
  std::optional<uint64_t> huge;
  pool::Statistics statistics;
  Pending pending;
  bool superblock_damaged;
  pool::LastWords last_words;
};

inline uint64_t Used(const Report& report) { return report.pending.units * pool::kUnitSize; }
inline uint64_t SegmentsUsed(const Report& report) { return report.pending.segments.size(); }

// The age for the process that has waited longest. ns; 0: none has.
inline uint64_t AgeOfOldest(const Report& report) {
  uint64_t age = 0;
  for (const Process& process : report.processes) {
    age = std::max(age, AgeOfOldest(process, report.pending.OfSeat(process.seat)));
  }
  return age;
}

// In the text format of Prometheus.
std::string MetricsText(const Report& report);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_REPORT_H_
