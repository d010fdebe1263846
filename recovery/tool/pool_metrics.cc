// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache status --metrics: a pool for Prometheus.
#include "recovery/tool/counters.h"
#include "recovery/tool/exposition.h"
#include "recovery/tool/report.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr double kNanoseconds = 1e-9;
constexpr const char* kGauge = "gauge";
constexpr const char* kCounter = "counter";

void AddPool(const Report& report, Exposition* metrics) {
  const JournalFile& file = report.journaling.file;
  metrics->Begin("info", kGauge, "What the pool is, and its journal's disk; always 1.");
  std::string labels = MetricLabel("level", report.level.name);
  if (report.journaling.there) {
    labels += "," + MetricLabel("device", file.device) + "," +
              MetricLabel("file_system", file.file_system) + "," +
              MetricLabel("write", HowName(file));
  }
  metrics->Add(labels, 1);
  metrics->Begin("state", kGauge, "1 for the state that is.");
  for (const Use use : {Use::kClean, Use::kInUse, Use::kDirty}) {
    metrics->Add(MetricLabel("state", UseName(use)), report.owner.use == use ? 1 : 0);
  }
  metrics->One("size_bytes", kGauge, "Of the pool.", report.superblock.pool_size);
  metrics->One("used_bytes", kGauge, "Of its logs.", Used(report));
  metrics->One("segments", kGauge, "That the pool has.", report.superblock.segment_count);
  metrics->One("segments_used", kGauge, "That have something that is pending.",
               SegmentsUsed(report));
  metrics->One("processes", kGauge, "That use the pool, or have left something in it.",
               report.processes.size());
  metrics->One("hindered_processes", kGauge, "Of which something takes files out of the log.",
               report.hindered.size());
}

void AddPending(const Report& report, Exposition* metrics) {
  const Pending& pending = report.pending;
  metrics->One("pending_records", kGauge, "Acknowledged, and not known to be on the disk.",
               pending.records);
  metrics->One("pending_bytes", kGauge, "Of these.", pending.bytes);
  metrics->One("pending_files", kGauge, "That they are of.", pending.files.size());
  metrics->One("oldest_pending_seconds", kGauge, "Age of the oldest; 0: nothing is pending.",
               static_cast<double>(AgeOfOldest(report)) * kNanoseconds);
  metrics->One("kept_records", kGauge, "Of these, kept because a disk refuses their file.",
               pending.kept_records);
  metrics->One("damaged_groups", kGauge, "That a recovery would leave out.",
               pending.damaged_groups);
  metrics->One("through_failed", kGauge,
               "1: a sync of write-through files has failed, and their checkpoint moves no more.",
               report.through.error != 0 ? 1 : 0);
}

void AddJournal(const Journaling& journaling, Exposition* metrics) {
  metrics->One("journal_size_bytes", kGauge, "Of the journal's file.", journaling.file.size);
  metrics->One("journal_has_memory", kGauge,
               "0: nobody has used the pool since the machine was started.",
               journaling.has_memory ? 1 : 0);
  metrics->One("journal_failed", kGauge,
               "1: a write has failed, and calls that wait for the journal fail.",
               journaling.failed != 0 ? 1 : 0);
  metrics->One("journal_ahead_bytes", kGauge, "That the memory has, and the journal has not.",
               journaling.ahead);
  metrics->One("journal_batches_total", kCounter, "Writes to the journal.", journaling.batches);
  metrics->One("journal_rounds_total", kCounter, "Rounds, of a write or more, that calls wait for.",
               journaling.rounds);
  metrics->One("journal_bytes_total", kCounter, "That were written.", journaling.bytes);
}

void AddMirror(const Mirroring& mirroring, Exposition* metrics) {
  metrics->Begin("mirror_state", kGauge, "What a sync has to do now; always 1.");
  metrics->Add(MetricLabel("state", MirrorStateName(mirroring.state)), 1);
  metrics->One("mirror_running", kGauge, "1: there is a mirror.", mirroring.alive ? 1 : 0);
  metrics->One("mirror_lacking_lsns", kGauge, "That a majority of the images may lack.",
               mirroring.lacking);
}

}  // namespace

// The pool is a label, so that what several pools say can be put together.
std::string MetricsText(const Report& report) {
  Exposition metrics("nvcache_pool_", MetricLabel("pool", Printable(report.path)));
  AddPool(report, &metrics);
  AddPending(report, &metrics);
  for (const Counter& counter : kCounters) {
    metrics.One(std::string(counter.name) + "_total", kCounter,
                fmt::format("Since the pool was last opened for use: {}.", counter.meaning),
                report.statistics.*counter.field);
  }
  if (report.journaling.there) {
    AddJournal(report.journaling, &metrics);
    metrics.Waits(report.journaling.waits);
    if (report.journaling.commit == pool::kCommitOutput) metrics.Outputs(report.journaling.outputs);
  }
  if (report.mirroring.commit != pool::kCommitOwn) {
    AddMirror(report.mirroring, &metrics);
    metrics.Waits(report.mirroring.waits);
    if (report.mirroring.commit == pool::kCommitOutput) metrics.Outputs(report.mirroring.outputs);
  }
  return metrics.Take();
}

}  // namespace nvcache::tool
