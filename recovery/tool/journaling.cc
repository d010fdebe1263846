// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/journaling.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "recovery/tool/mirroring.h"
#include "src/pool/view.h"

namespace nvcache::tool {

Journaling FindJournaling(const pool::Pool& pool) {
  Journaling journaling;
  journaling.there = pool.has_journal();
  if (!journaling.there) return journaling;
  const pool::JournalControl& control = pool.journal();
  journaling.commit = pool.view().superblock->commit;
  journaling.failed = pool::Peek(control.failed);
  journaling.state = pool::MirrorWords(pool.view()).state();
  journaling.batches = pool::Peek(control.batches);
  journaling.rounds = pool::Peek(control.rounds);
  journaling.bytes = pool::Peek(control.bytes);
  journaling.waits = pool::MirrorWords(pool.view()).waits();
  return journaling;
}

std::string JournalText(const Journaling& journaling) {
  const std::string done =
      fmt::format("{}, {}, since its memory was made", Many(journaling.batches, "write", "writes"),
                  Size(journaling.bytes));
  if (journaling.failed == 0) return done;
  const char* const meaning = journaling.state == pool::kMirrorReal ? "syncs are real"
                              : journaling.state == pool::kMirrorLeaving
                                  ? "syncs wait until all is on the disk"
                                  : "calls that wait for it fail with EIO";
  return fmt::format("has failed ({}), and {}; {}", ErrorName(static_cast<int>(journaling.failed)),
                     meaning, done);
}

Json JournalJson(const Journaling& journaling) {
  if (!journaling.there) return nullptr;
  const pool::MirrorWaits& waits = journaling.waits;
  const uint64_t count = CountOf(waits);
  return {{"commit", journaling.commit == pool::kCommitWrite ? "write" : "fsync"},
          {"failed",
           journaling.failed != 0 ? Json(ErrorName(static_cast<int>(journaling.failed))) : Json()},
          {"batches", journaling.batches},
          {"rounds", journaling.rounds},
          {"bytes", journaling.bytes},
          {"waits", count},
          {"waits_failed", waits.failed},
          {"waited_us", waits.waited},
          {"wait_median_us", count != 0 ? Json(Quantile(waits, 0.5)) : Json()},
          {"wait_p99_us", count != 0 ? Json(Quantile(waits, 0.99)) : Json()}};
}

}  // namespace nvcache::tool
