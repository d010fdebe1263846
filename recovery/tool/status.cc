// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache status: what a pool is, who uses it, and what is pending in it. Changes nothing.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "recovery/tool/commands.h"
#include "recovery/tool/counters.h"
#include "recovery/tool/default_pool.h"
#include "recovery/tool/huge.h"
#include "recovery/tool/report.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

struct StatusArguments {
  std::string pool;
  bool json = false;
  bool metrics = false;
  std::string mirror;
};

// Those that processes at work have for their page frames.
uint64_t FrameSegments(const pool::Pool& pool) {
  const pool::View& view = pool.view();
  if (!pool.seats().AnybodyLives()) return 0;
  uint64_t count = 0;
  for (uint32_t i = 0; i < view.segment_count(); ++i) {
    pool::SegmentHeader header = {};
    if (pool.seats().IsFree(i)) continue;
    const bool whole = pool::CopySegmentHeader(view, *view.segment(i), i, &header);
    count += whole && header.kind == pool::SegmentKind::kFrames ? 1 : 0;
  }
  return count;
}

// Whatever is there; a process may be writing it.
pool::LastWords Copy(const pool::LastWords& live) {
  pool::LastWords copy = live;
  copy.text[sizeof(copy.text) - 1] = '\0';
  return copy;
}

// A file that the disk refuses, as the program at work has it.
struct Failing {
  int error = 0;
  uint64_t since = 0;
};

// A process names it by its newest number in its logs.
Failing FindFailing(const Report& report, uint32_t file) {
  const pool::Statistics& statistics = report.statistics;
  for (uint32_t i = 0; i < pool::kMaxFailingShown; ++i) {
    const auto found = report.pending.walk_numbers.find(statistics.failing_file[i]);
    if (statistics.failing_file[i] == 0 || found == report.pending.walk_numbers.end() ||
        found->second != file) {
      continue;
    }
    return {static_cast<int>(statistics.failing_error[i]), statistics.failing_since[i]};
  }
  return {};
}

std::string FileText(uint32_t file) {
  return file != nvlog::kNoFile ? fmt::format("{}", file) : "?";
}

std::string StateText(const Owner& owner) {
  std::string text = UseName(owner.use);
  if (owner.use == Use::kClean) return text;
  text += owner.use == Use::kInUse ? " by" : ", left by";
  text += owner.pid != 0 ? fmt::format(" process {}", owner.pid) : " a process";
  if (owner.use == Use::kInUse && !owner.program.empty()) {
    text += fmt::format(" ({})", Printable(owner.program));
  }
  if (owner.since != 0) text += fmt::format(", since {}", Time(owner.since));
  if (owner.use == Use::kDirty) text += "; see 'nvcache recover'";
  return text;
}

std::string PendingText(const Report& report) {
  const Pending& pending = report.pending;
  if (pending.records == 0) return "nothing";
  std::string text = fmt::format("{}, {}, of {}", Many(pending.records, "record", "records"),
                                 Size(pending.bytes), Many(pending.files.size(), "file", "files"));
  if (const uint64_t age = AgeOfOldest(report); age != 0) {
    text += fmt::format("; the oldest for {}", Duration(age));
  }
  if (pending.kept_records != 0) {
    text += fmt::format("; kept, because a disk refuses: {}",
                        Many(pending.kept_records, "record", "records"));
  }
  return text;
}

std::string ErrorText(const Report& report) {
  const pool::Statistics& statistics = report.statistics;
  std::string text;
  if (statistics.write_back_errors != 0) {
    text = fmt::format("{}, the last one {} {} ago",
                       Many(statistics.write_back_errors, "write-back error", "write-back errors"),
                       ErrorName(static_cast<int>(statistics.last_error)),
                       Duration(Since(statistics.last_error_time)));
  }
  if (report.pending.damaged_groups != 0) {
    if (!text.empty()) text += "; ";
    text += Many(report.pending.damaged_groups, "damaged group", "damaged groups");
  }
  if (report.through.error != 0) {
    if (!text.empty()) text += "; ";
    text += "a failed sync of write-through, above";
  }
  if (report.superblock_damaged) {
    if (!text.empty()) text += "; ";
    text += "a damaged superblock, which the next use or recovery repairs";
  }
  return text.empty() ? "none" : text;
}

void PrintFiles(const Report& report) {
  const Pending& pending = report.pending;
  if (pending.files.empty()) return;
  fmt::print("\n{:>10} {:>10} {:>10}  {}\n", "FILE", "RECORDS", "BYTES", "PATH");
  for (const auto& [number, file] : pending.files) {
    const Failing failing = FindFailing(report, number);
    fmt::print("{:>10} {:>10} {:>10}  {}{}\n", FileText(number), file.records, Size(file.bytes),
               file.path.empty() ? "?" : Printable(file.path),
               failing.error == 0 ? ""
                                  : fmt::format(" ({} for {})", ErrorName(failing.error),
                                                Duration(Since(failing.since))));
  }
}

std::string PartText(const PendingPart& part) {
  if (part.records == 0) return "-";
  return fmt::format("{} of {}", Size(part.bytes), Many(part.files.size(), "file", "files"));
}

void PrintProcesses(const Report& report) {
  if (report.processes.empty()) return;
  constexpr const char* kPoolRow =
      "{:>10} {:<10} {:<6} {:>8} {:>7} {:>10} {:>10} {:>10} {:>20} {:>8}  {}\n";
  fmt::print("\n");
  fmt::print(kPoolRow, "PID", "STATE", "MODE", "AGE", "FILES", "ROOM", "RECORDS", "BYTES",
             "THROUGH", "OLDEST", "PROGRAM");
  for (const Process& process : report.processes) {
    const PendingOfSeat pending = report.pending.OfSeat(process.seat);
    const uint64_t age = AgeOfOldest(process, pending);
    fmt::print(kPoolRow, process.pid, StateName(process), ModeName(process),
               Duration(Since(process.since)), process.files,
               Size(process.segments * report.superblock.segment_size), pending.records,
               Size(pending.bytes), PartText(pending.through), age != 0 ? Duration(age) : "-",
               Name(process));
  }
}

void PrintText(const Report& report) {
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<12}{}\n", name, value);
  };
  line("pool", Printable(report.path));
  line("state", StateText(report.owner));
  line("durability", fmt::format("{}: {}", report.level.name, report.level.meaning));
  const pool::Superblock& superblock = report.superblock;
  line("size", fmt::format("{}, in {} segments of {}", Size(superblock.pool_size),
                           superblock.segment_count, Size(superblock.segment_size)));
  line("used",
       fmt::format("{}, in {} of the segments ({:.1f} %)", Size(Used(report)), SegmentsUsed(report),
                   100 * static_cast<double>(SegmentsUsed(report)) /
                       static_cast<double>(superblock.segment_count - report.frame_segments)));
  if (const uint64_t segments = report.frame_segments; segments != 0) {
    line("page frames", fmt::format("in {} of the segments, {}", segments,
                                    Size(segments * superblock.segment_size)));
  }
  if (report.huge) line("huge pages", fmt::format("{} of it", Size(*report.huge)));
  line("pending", PendingText(report));
  if (const Through& through = report.through;
      through.used || through.error != 0 || report.pending.through.records != 0) {
    line("through", ThroughText(through, report.pending));
  }
  if (const Mirroring& mirroring = report.mirroring; mirroring.commit != pool::kCommitOwn) {
    line("mirror", MirrorText(mirroring));
    line("images", fmt::format("lack {}", Many(mirroring.lacking, "LSN", "LSNs")));
    line("waits", WaitsText(mirroring.waits));
    if (mirroring.commit == pool::kCommitOutput) line("outputs", OutputsText(mirroring.outputs));
  }
  if (report.journaling.there) {
    line("journal", DiskText(report.journaling.file));
    line("", JournalText(report.journaling));
    if (report.journaling.has_memory) line("waits", WaitsText(report.journaling.waits));
    if (report.journaling.has_memory && report.journaling.commit == pool::kCommitOutput) {
      line("outputs", OutputsText(report.journaling.outputs));
    }
  }
  line("errors", ErrorText(report));
  line("created", Time(report.superblock.created));
  if (const pool::LastWords& last = report.last_words; last.time != 0) {
    line("last words",
         fmt::format("of process {}, {}: {}", last.pid, Time(last.time), Printable(last.text)));
  }
  PrintProcesses(report);
  PrintHindered(report.hindered);
  PrintFiles(report);
  fmt::print("\nsince the pool was last opened for use:\n");
  for (const Counter& counter : kCounters) {
    fmt::print("{:>20}  {}\n", report.statistics.*counter.field, counter.meaning);
  }
}

std::string Uuid(const uint8_t (&bytes)[16]) {
  std::string text;
  for (size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

Json FilesJson(const Report& report) {
  Json files = Json::array();
  for (const auto& [number, file] : report.pending.files) {
    Json item = {{"file", number != nvlog::kNoFile ? Json(number) : Json()}};
    if (!file.path.empty()) {
      PutPath(item, "path", file.path);
      item["inode"] = file.inode;
    }
    item["records"] = file.records;
    item["bytes"] = file.bytes;
    const Failing failing = FindFailing(report, number);
    item["error"] = failing.error != 0 ? Json(ErrorName(failing.error)) : Json();
    item["error_since_ns"] = failing.since;
    files.push_back(std::move(item));
  }
  return files;
}

Json ProcessesJson(const Report& report) {
  Json processes = Json::array();
  for (const Process& process : report.processes) {
    processes.push_back(ProcessJson(process, report.pending.OfSeat(process.seat)));
  }
  return processes;
}

Json OwnerJson(const Owner& owner) {
  if (owner.use == Use::kClean) return nullptr;
  return {{"pid", owner.pid},
          {"alive", owner.alive},
          {"program", Printable(owner.program)},
          {"since_ns", owner.since}};
}

Json LastWordsJson(const pool::LastWords& last) {
  if (last.time == 0) return nullptr;
  return {{"pid", last.pid}, {"time_ns", last.time}, {"text", Printable(last.text)}};
}

Json ToJson(const Report& report) {
  const pool::Statistics& statistics = report.statistics;
  Json json;
  PutPath(json, "pool", report.path);
  json["state"] = UseName(report.owner.use);
  json["owner"] = OwnerJson(report.owner);
  json["processes"] = ProcessesJson(report);
  json["hindered"] = HinderedJson(report.hindered);
  json["durability"] = report.level.name;
  json["uuid"] = Uuid(report.superblock.uuid);
  json["created_ns"] = report.superblock.created;
  json["size"] = report.superblock.pool_size;
  json["segments"] = report.superblock.segment_count;
  json["segment_size"] = report.superblock.segment_size;
  json["segments_used"] = SegmentsUsed(report);
  json["segments_of_frames"] = report.frame_segments;
  json["huge"] = report.huge ? Json(*report.huge) : Json();
  json["used"] = Used(report);
  json["pending_records"] = report.pending.records;
  json["pending_bytes"] = report.pending.bytes;
  json["pending_kept_records"] = report.pending.kept_records;
  json["pending_kept_bytes"] = report.pending.kept_units * pool::kUnitSize;
  const uint64_t age = AgeOfOldest(report);
  json["oldest_pending_age_ns"] = age != 0 ? Json(age) : Json();
  json["write_through"] = ThroughJson(report.through, report.pending);
  json["mirror"] = MirrorJson(report.mirroring);
  json["journal"] = JournalJson(report.journaling);
  json["unfinished_groups"] = report.pending.unfinished_groups;
  json["damaged_groups"] = report.pending.damaged_groups;
  json["superblock_damaged"] = report.superblock_damaged;
  json["last_error"] = statistics.write_back_errors != 0
                           ? Json(ErrorName(static_cast<int>(statistics.last_error)))
                           : Json();
  json["last_error_time_ns"] = statistics.last_error_time;
  json["last_words"] = LastWordsJson(report.last_words);
  json["files"] = FilesJson(report);
  for (const Counter& counter : kCounters) {
    json["statistics"][counter.name] = statistics.*counter.field;
  }
  return json;
}

Report FindReport(const std::string& path) {
  ScopedPool pool;
  OpenPool(&pool, path, pool::Mode::kInspect, kAnyMemory);
  return {.path = path,
          .superblock = *pool.view().superblock,
          .level = LevelOf(pool),
          .owner = FindOwner(pool),
          .processes = FindProcesses(pool),
          .hindered = FindHindered(pool),
          .through = FindThrough(pool),
          .mirroring = FindMirroring(pool),
          .journaling = FindJournaling(pool, path),
          .frame_segments = FrameSegments(pool),
          .huge = pool.lost ? std::nullopt : HugeBytes(pool),
          .statistics = Snapshot(*pool.view().statistics()),
          .pending = FindPending(pool),
          .superblock_damaged = pool.superblock_damaged(),
          .last_words = Copy(*pool.view().last_words())};
}

int RunStatus(const StatusArguments& arguments) {
  const Report report = FindReport(arguments.pool.empty() ? NamedPool("status") : arguments.pool);
  if (arguments.json) {
    fmt::print("{}\n", Indented(ToJson(report)));
  } else if (arguments.metrics) {
    fmt::print("{}", MetricsText(report));
  } else {
    PrintText(report);
  }
  FinishOutput();
  return kOk;
}

}  // namespace

void AddStatus(CLI::App& app, int* status) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command =
      app.add_subcommand("status", "Tell what a pool is and what is pending in it.");
  command->add_option("POOL", arguments->pool,
                      "The pool; it may be in use. Else: that of 'nvcache run'");
  CLI::Option* const json = command->add_flag("--json", arguments->json, "As JSON");
  command->add_flag("--metrics", arguments->metrics, "For Prometheus, in its text format")
      ->excludes(json);
  // Only for the help: with it, another program has the command (mirror_commands.cc).
  command->add_option("--mirror", arguments->mirror,
                      "In place of POOL: ADDRESS:PORT or path that 'nvcache mirror --metrics' has; "
                      "tells of its servers");
  command->footer(
      "Examples:\n"
      "  nvcache status /dev/shm/pool\n"
      "  nvcache status /dev/shm/pool --json | jq .pending_bytes\n"
      "  nvcache status --metrics > /var/lib/prometheus/node-exporter/nvcache.prom\n"
      "  nvcache status --mirror 127.0.0.1:9100\n");
  command->callback([arguments, status] { *status = RunStatus(*arguments); });
}

}  // namespace nvcache::tool
