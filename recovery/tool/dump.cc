// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache dump: the log's entries, one line each, as they are read: there may be millions.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "recovery/tool/commands.h"
#include "recovery/tool/export.h"
#include "recovery/tool/open.h"
#include "recovery/tool/pending.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

struct DumpArguments {
  std::string pool;
  bool json = false;
  bool all = false;
  std::string export_folder;
};

class Dump {
 public:
  // `exporter`, if there is one, gets the committed entries.
  Dump(const pool::View& view, const nvlog::Reader& reader, bool json, Exporter* exporter)
      : view_(view), reader_(reader), json_(json), exporter_(exporter) {}

  void Print();

 private:
  void PrintGroup(const nvlog::Group& group);
  void PrintEntry(const nvlog::Group& group, const nvlog::EntryHeader& header,
                  nvlog::Verdict verdict);
  void PrintUnreadable(nvlog::Position position);
  const std::string& PathOfEntry(const nvlog::EntryHeader& header);

  pool::View view_;
  nvlog::Reader reader_;
  bool json_;
  Exporter* exporter_;
  std::pair<uint32_t, uint32_t> last_file_ = {~0u, ~0u};  // most entries follow one of their file
  std::string last_path_;
};

// Index, file, offset, length, group, committed, on disk, path.
constexpr const char* kRow = "{:>12} {:>10} {:>16} {:>6} {:>9} {:>10} {:>7}  {}\n";

// What stands in the column "committed".
const char* CommittedText(const nvlog::Group& group, nvlog::Verdict entry) {
  if (group.verdict == nvlog::Verdict::kInFlight) return "no";
  if (group.verdict == nvlog::Verdict::kUnfinished) return "unfinished";
  return entry == nvlog::Verdict::kDamagedPayload ? "damaged" : "yes";
}

void Dump::Print() {
  if (!json_) {
    fmt::print(kRow, "INDEX", "FILE", "OFFSET", "LENGTH", "GROUP", "COMMITTED", "ON DISK", "PATH");
  }
  nvlog::GroupWalk walk(reader_);
  nvlog::Group group;
  while (walk.Next(&group)) PrintGroup(group);
}

void Dump::PrintGroup(const nvlog::Group& group) {
  const nvlog::Position end = group.position + group.units;
  // A group's units are stepped through as a walk does, because any header in it may be damaged.
  for (nvlog::Position position = group.position; position < end;) {
    nvlog::EntryHeader header;
    const nvlog::Verdict verdict = reader_.Examine(position, &header);
    if (verdict == nvlog::Verdict::kDamagedHeader) PrintUnreadable(position);
    if (verdict == nvlog::Verdict::kDamagedHeader || verdict == nvlog::Verdict::kNothing) {
      ++position;
      continue;
    }
    PrintEntry(group, header, verdict);
    if (exporter_ != nullptr && group.verdict == nvlog::Verdict::kCommitted) {
      exporter_->Add(reader_, header);
    }
    position += nvlog::EntryUnits(header.length);
  }
}

const std::string& Dump::PathOfEntry(const nvlog::EntryHeader& header) {
  const std::pair file(header.file, header.incarnation);
  if (file != last_file_) {
    last_file_ = file;
    PendingFile found;
    FindInTable(view_, header.file, header.incarnation, &found);
    last_path_ = found.path;
  }
  return last_path_;
}

void Dump::PrintEntry(const nvlog::Group& group, const nvlog::EntryHeader& header,
                      nvlog::Verdict verdict) {
  const bool on_disk = group.verdict == nvlog::Verdict::kApplied;
  const char* committed = CommittedText(group, verdict);
  const std::string& path = PathOfEntry(header);
  if (!json_) {
    fmt::print(kRow, header.position, fmt::format("{}.{}", header.file, header.incarnation),
               header.offset, header.length,
               fmt::format("{}/{}", header.group_index + 1, header.group_count), committed,
               on_disk ? "yes" : "no", path.empty() ? "?" : Printable(path));
    return;
  }
  const bool unfinished = group.verdict == nvlog::Verdict::kUnfinished;
  Json line = {{"index", header.position},
               {"slot", header.file},
               {"incarnation", header.incarnation},
               {"offset", header.offset},
               {"length", header.length},
               {"group_index", header.group_index},
               {"group_count", header.group_count},
               {"committed", group.verdict != nvlog::Verdict::kInFlight && !unfinished},
               {"on_disk", on_disk},
               {"unfinished", unfinished},
               {"damaged", verdict == nvlog::Verdict::kDamagedPayload && !unfinished}};
  if (!path.empty()) PutPath(line, "path", path);
  fmt::print("{}\n", line.dump());
}

void Dump::PrintUnreadable(nvlog::Position position) {
  if (!json_) {
    fmt::print(kRow, position, "?", "?", "?", "?", "damaged", "no", "?");
    return;
  }
  fmt::print("{}\n",
             Json({{"index", position}, {"committed", true}, {"on_disk", false}, {"damaged", true}})
                 .dump());
}

int RunDump(const DumpArguments& arguments) {
  ScopedPool pool;
  OpenPool(&pool, arguments.pool, arguments.all ? pool::Access::kSalvage : pool::Access::kInspect,
           kAnyMemory);
  std::optional<Exporter> exporter;
  if (!arguments.export_folder.empty()) exporter.emplace(arguments.export_folder, pool.view());
  const nvlog::Reader reader =
      arguments.all ? nvlog::Reader::OfAll(pool.view()) : nvlog::Reader(pool.view());
  Dump(pool.view(), reader, arguments.json, exporter ? &*exporter : nullptr).Print();
  FinishOutput();
  if (exporter) exporter->Finish();
  return kOk;
}

}  // namespace

void AddDump(CLI::App& app, int* status) {
  auto arguments = std::make_shared<DumpArguments>();
  CLI::App* command = app.add_subcommand("dump", "Print the entries in a pool's log.");
  command->add_option("POOL", arguments->pool, "The pool; it may be in use")->required();
  command->add_flag("--json", arguments->json, "One JSON object per line");
  command->add_flag(
      "--all", arguments->all,
      "Entries that were on disk long ago as well, and of a pool that cannot be used\n"
      "because its tail is damaged");
  command
      ->add_option("--export", arguments->export_folder,
                   "Save the committed entries, file by file, to this new folder")
      ->type_name("DIR");
  command->footer(
      "One line per entry, oldest first, from the tail of the log: its index, the slot and\n"
      "incarnation of its file, offset and length in bytes, its place in its write call, whether\n"
      "that was committed, and whether recovery has brought it to the disk already.\n"
      "\n"
      "Examples:\n"
      "  nvcache dump /dev/shm/pool | grep my.db\n"
      "  nvcache dump /mnt/pmem/pool --all --export saved\n");
  command->callback([arguments, status] { *status = RunDump(*arguments); });
}

}  // namespace nvcache::tool
