// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/take.h"

#include <errno.h>
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "recovery/tool/libpmem.h"
#include "recovery/tool/progress.h"
#include "recovery/tool/summary.h"
#include "recovery/tool/text.h"
#include "src/replay/replay.h"

namespace nvcache::tool {
namespace {

// For somebody else who gets the same pool ready.
constexpr std::chrono::seconds kPatience(2);
constexpr std::chrono::milliseconds kPause(5);

}  // namespace

void TakePool(pool::Pool* pool, const std::string& path, bool emulate) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    pool::Problem problem;
    if (pool->Open(path.c_str(), pool::Mode::kShared, emulate, LoadLibpmem(), &problem)) return;
    if (problem.error != EBUSY) throw Failure{kRunFailed, problem.text.c_str()};
    if (std::chrono::steady_clock::now() >= end) throw Busy(problem);
    std::this_thread::sleep_for(kPause);
  }
}

void RecoverTaken(pool::Pool& pool) {
  if (!pool.alone() || !pool.dirty()) return;
  Progress progress("recovering");
  replay::Observer observer;
  observer.context = &progress;
  observer.progress = [](void* context, uint64_t done, uint64_t total) {
    static_cast<Progress*>(context)->Update(done, total);
  };
  replay::Summary summary;
  if (!replay::Replay(pool, {}, observer, &summary)) {
    throw Failure{kRunFailed, fmt::format("pool {0} still holds {1}; see 'nvcache recover {0}'",
                                          pool.path(), Kept(summary))};
  }
  if (summary.records == 0 && summary.damaged_groups == 0) return;
  fmt::print(stderr, "nvcache: recovered {} from pool {}{}\n", Applied(summary),
             Printable(pool.path()),
             summary.damaged_groups != 0 ? "; " + LeftOut(summary) : std::string());
}

}  // namespace nvcache::tool
