// SPDX-License-Identifier: BSD-3-Clause
//
// `nvcache top` sees this of a pool at one moment, and computes what has happened between two.
#ifndef NVCACHE_RECOVERY_TOOL_SAMPLE_H_
#define NVCACHE_RECOVERY_TOOL_SAMPLE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "recovery/tool/journaling.h"
#include "recovery/tool/mirroring.h"
#include "recovery/tool/open.h"
#include "recovery/tool/owner.h"
#include "recovery/tool/pending.h"

namespace nvcache::tool {

using Clock = std::chrono::steady_clock;

struct Sample {
  Clock::time_point time;
  pool::Statistics statistics;
  uint64_t segments_taken;
  std::vector<Process> processes;
  Through through;
  Mirroring mirroring;
  Journaling journaling;
  std::shared_ptr<const Pending> pending;
};

// Looks at a pool again and again: read-only, without a lock, and without much work.
class Sampler {
 public:
  explicit Sampler(const std::string& path);

  // A Failure if the pool is not there any more.
  Sample Take();
  const ScopedPool& pool() const { return pool_; }

 private:
  void CheckThere() const;
  void FollowMemory();

  ScopedPool pool_;
  std::string path_;
  std::shared_ptr<const Pending> pending_;
  Clock::time_point next_look_;  // when the logs are read again
};

std::chrono::nanoseconds Between(const Sample& before, const Sample& now);
// A second's share of what a counter has gone up by. A pool that was opened anew counts from 0.
double Rate(const Sample& before, const Sample& now, uint64_t pool::Statistics::*counter);
// Bytes of a process each second, by a count of it in units.
double UnitsRate(const Sample& before, const Sample& now, const Process& process,
                 uint32_t Process::*count);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_SAMPLE_H_
