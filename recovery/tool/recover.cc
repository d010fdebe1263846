// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache recover: brings what a dead program left in the log to its files.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "recovery/replay/replay.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/export.h"
#include "recovery/tool/findings.h"
#include "recovery/tool/open.h"
#include "recovery/tool/summary.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

struct RecoverArguments {
  std::string pool;
  bool emulate = false;  // accepted, never needed
  bool dry_run = false;
  bool json = false;
  std::string export_folder;
  bool discard = false;
};

void Replay(pool::Pool& pool, Findings* findings) {
  findings->progress.emplace("recovering");
  findings->clean = recovery::Replay(pool, {.dry_run = findings->dry_run, .discard = false},
                                     ObserverOf(findings), &findings->summary);
  findings->progress.reset();
}

// Entries are discarded by a second replay, after everything that is exported is durable.
void Discard(pool::Pool& pool, Findings* findings) {
  recovery::Summary summary;
  findings->clean = recovery::Replay(pool, {.dry_run = false, .discard = true}, {}, &summary);
  findings->discarded = summary.unresolved_entries;
}

void Print(const RecoverArguments& arguments, const Findings& findings) {
  if (arguments.json) {
    Json json;
    PutPath(json, "pool", arguments.pool);
    json.update(ToJson(findings));
    fmt::print("{}\n", json.dump(2));
  } else {
    PrintText(findings);
  }
  FinishOutput();
}

// The exit status, with one line on stderr when it is not 0.
int Conclude(const RecoverArguments& arguments, const Findings& findings) {
  const recovery::Summary& summary = findings.summary;
  const std::string pool = Printable(arguments.pool);
  const bool left =
      arguments.dry_run ? summary.unresolved_files + summary.failed_files != 0 : !findings.clean;
  if (left) {
    const char* advice = summary.unresolved_files != 0
                             ? "bring the files back and recover again, or save the entries with "
                               "--export DIR --discard"
                             : "see to the disk and recover again";
    throw Failure{kUnresolved,
                  fmt::format("pool {} {} {}; {}", pool, arguments.dry_run ? "would keep" : "keeps",
                              Kept(summary), advice)};
  }
  if (summary.damaged_groups != 0) {
    throw Failure{kDamaged, fmt::format("pool {}: {}; check the program's data and the memory",
                                        pool, LeftOut(summary))};
  }
  return kOk;
}

int Recover(const RecoverArguments& arguments) {
  pool::Pool pool;
  OpenPool(&pool, arguments.pool, pool::Access::kExclusive, kAnyMemory);
  std::optional<Exporter> exporter;
  if (!arguments.export_folder.empty()) exporter.emplace(arguments.export_folder, pool.view());

  Findings findings;
  findings.dry_run = arguments.dry_run;
  findings.exporter = exporter ? &*exporter : nullptr;
  Replay(pool, &findings);
  if (exporter) exporter->Finish();
  if (arguments.discard && !arguments.dry_run && !findings.clean) Discard(pool, &findings);

  Print(arguments, findings);
  return Conclude(arguments, findings);
}

}  // namespace

void AddRecover(CLI::App& app, int* status) {
  auto arguments = std::make_shared<RecoverArguments>();
  CLI::App* command = app.add_subcommand(
      "recover", "Bring what a dead program left in a pool to its files. May be repeated.");
  command->add_option("POOL", arguments->pool, "The pool; not in use")->required();
  command->add_flag("--dry-run", arguments->dry_run, "Look and report, change nothing");
  command->add_flag("--json", arguments->json, "Report as JSON");
  command
      ->add_option("--export", arguments->export_folder,
                   "Save entries whose file cannot be found to this new folder")
      ->type_name("DIR");
  command->add_flag("--discard", arguments->discard,
                    "Then drop them from the pool; without --export they are lost");
  command->add_flag("--emulate", arguments->emulate, "Accepted as elsewhere, but never needed");
  command->footer(
      "Exit status: 0 when the pool is clean, 3 when entries are left in it, 4 when damaged\n"
      "entries were found and everything else was applied.\n"
      "\n"
      "Examples:\n"
      "  nvcache recover /dev/shm/pool\n"
      "  nvcache recover /dev/shm/pool --export lost --discard\n");
  command->callback([arguments, status] { *status = Recover(*arguments); });
}

}  // namespace nvcache::tool
