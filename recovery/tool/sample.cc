// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/sample.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "recovery/tool/commands.h"
#include "recovery/tool/counters.h"
#include "recovery/tool/text.h"
#include "src/pool/glance.h"

namespace nvcache::tool {
namespace {

// A log that is full of gigabytes takes seconds to read: that is not worth it each time.
constexpr std::chrono::milliseconds kPatience{200};
constexpr int kShare = 20;  // one part of so many of the time is spent on reading the logs

double Seconds(const Sample& before, const Sample& now) {
  return std::chrono::duration<double>(Between(before, now)).count();
}

}  // namespace

Sampler::Sampler(const std::string& path) : path_(path) {
  OpenPool(&pool_, path, pool::Mode::kInspect, kAnyMemory);
}

// Removed, replaced, or cut: bytes behind the end of a mapped file cannot be read.
void Sampler::CheckThere() const {
  struct stat st = {};
  const bool there = stat(path_.c_str(), &st) == 0 && (pool_.lost || pool_.HasName(st));
  struct stat mapped = {};
  const bool whole = pool_.is_device() || (fstat(pool_.fd(), &mapped) == 0 &&
                                           static_cast<uint64_t>(mapped.st_size) >= pool_.size());
  if (there && whole) return;
  throw Failure{kFailed, fmt::format("{}: the pool is gone: it was removed or replaced; start "
                                     "'nvcache top' again if there is a new one",
                                     Printable(path_))};
}

// The memory of a pool with a journal may have been made meanwhile, or be gone.
void Sampler::FollowMemory() {
  struct stat st = {};
  const bool gone = pool_.has_journal() && fstat(pool_.fd(), &st) == 0 && st.st_nlink == 0;
  const bool came = pool_.lost && pool::GlanceAt(path_.c_str()).kind != pool::Glance::Kind::kLost;
  if (!gone && !came) return;
  pool_.Close();
  OpenPool(&pool_, path_, pool::Mode::kInspect, kAnyMemory);
  next_look_ = {};
}

Sample Sampler::Take() {
  FollowMemory();
  CheckThere();
  const Clock::time_point time = Clock::now();
  if (time >= next_look_) {
    pending_ = std::make_shared<const Pending>(FindPending(pool_, kPatience));
    next_look_ = time + kShare * (Clock::now() - time);
  }
  const uint64_t segments = pool_.view().segment_count();
  return {.time = time,
          .statistics = Snapshot(*pool_.view().statistics()),
          .segments_taken = pool_.dirty() ? segments - pool_.seats().CountFree() : 0,
          .processes = FindProcesses(pool_),
          .through = FindThrough(pool_),
          .mirroring = FindMirroring(pool_),
          .journaling = FindJournaling(pool_, path_),
          .pending = pending_};
}

std::chrono::nanoseconds Between(const Sample& before, const Sample& now) {
  return now.time - before.time;
}

double Rate(const Sample& before, const Sample& now, uint64_t pool::Statistics::*counter) {
  const uint64_t from = before.statistics.*counter, to = now.statistics.*counter;
  return static_cast<double>(to >= from ? to - from : to) / Seconds(before, now);
}

double UnitsRate(const Sample& before, const Sample& now, const Process& process,
                 uint32_t Process::*count) {
  const auto same = [&](const Process& other) {
    return other.seat == process.seat && other.pid == process.pid && other.since == process.since;
  };
  const auto found = std::find_if(before.processes.begin(), before.processes.end(), same);
  const uint32_t from = found != before.processes.end() ? (*found).*count : 0;
  const uint32_t units = process.*count - from;  // modulo 2^32, as it is counted
  return static_cast<double>(units * pool::kUnitSize) / Seconds(before, now);
}

}  // namespace nvcache::tool
