// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache dump: the records in the logs, one line each, as they are read: there may be millions.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
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
  // `exporter`, if there is one, gets the records that count.
  Dump(const nvlog::Reader& reader, bool json, Exporter* exporter)
      : reader_(reader), walk_(reader), json_(json), exporter_(exporter) {}

  void Print();

 private:
  void PrintGroup(const nvlog::Group& group);
  void PrintRecord(const nvlog::Group& group, const nvlog::RecordHeader& header,
                   nvlog::Place place);
  void PrintIncomplete(const nvlog::Group& group);
  void Export(const nvlog::RecordHeader& header, nvlog::Place place, uint32_t file);
  const std::string& PathOfFile(uint32_t file);
  std::string PlaceText(nvlog::Place place) const {
    return fmt::format("{}.{}", place / reader_.segment_units(), place % reader_.segment_units());
  }
  Json GroupJson(const nvlog::Group& group, nvlog::Place place) const;
  std::string NameText(const nvlog::RecordHeader& header, nvlog::Place place) const;

  const nvlog::Reader& reader_;
  nvlog::GroupWalk walk_;
  bool json_;
  Exporter* exporter_;
  uint32_t last_file_ = nvlog::kNoFile;  // most records follow one of their file
  std::string last_path_;
  uint32_t identified_ = nvlog::kNoFile;  // the file that the exporter knows
};

// LSN, log, place, kind, file, offset, length, group, state, path.
constexpr const char* kRow = "{:>12} {:>3} {:>10} {:>9} {:>6} {:>16} {:>8} {:>6} {:>10}  {}\n";

const char* KindName(nvlog::Kind kind) {
  switch (kind) {
    case nvlog::Kind::kData:
      return "data";
    case nvlog::Kind::kFile:
      return "file";
    case nvlog::Kind::kTruncate:
      return "truncate";
    case nvlog::Kind::kSettled:
      return "settled";
    case nvlog::Kind::kHandedOver:
      return "handed over";
    case nvlog::Kind::kName:
      return "name";
    default:
      return "erase";
  }
}

const char* StateName(nvlog::Verdict verdict) {
  switch (verdict) {
    case nvlog::Verdict::kCommitted:
      return "pending";
    case nvlog::Verdict::kOnDisk:
      return "on disk";
    case nvlog::Verdict::kVoid:
      return "void";
    case nvlog::Verdict::kUnfinished:
      return "unfinished";
    default:
      return "damaged";
  }
}

// For people, a kept record is one.
const char* StateText(const nvlog::Group& group) {
  const bool counts = group.verdict == nvlog::Verdict::kCommitted;
  return group.kept && counts ? "kept" : StateName(group.verdict);
}

void Dump::Print() {
  if (!json_) {
    fmt::print(kRow, "LSN", "LOG", "PLACE", "KIND", "FILE", "OFFSET", "LENGTH", "GROUP", "STATE",
               "PATH");
  }
  OpenWalk(&walk_);
  nvlog::Group group;
  while (walk_.Next(&group)) PrintGroup(group);
}

void Dump::PrintGroup(const nvlog::Group& group) {
  const nvlog::Verdict verdict = group.verdict;
  if (verdict == nvlog::Verdict::kUnfinished || verdict == nvlog::Verdict::kDamaged) {
    PrintIncomplete(group);
    return;
  }
  const bool counts = verdict != nvlog::Verdict::kVoid;
  walk_.ForEachRecord(group, [&](const nvlog::RecordHeader& record, nvlog::Place place) {
    const nvlog::RecordHeader header = record;
    PrintRecord(group, header, place);
    if (exporter_ != nullptr && counts) Export(header, place, walk_.FileOf(header, place));
  });
}

const std::string& Dump::PathOfFile(uint32_t file) {
  if (file != last_file_) {
    last_file_ = file;
    last_path_ = PathOf(walk_, file);
  }
  return last_path_;
}

Json Dump::GroupJson(const nvlog::Group& group, nvlog::Place place) const {
  return {{"lsn", group.lsn},
          {"log", group.log},
          {"place", PlaceText(place)},
          {"state", StateName(group.verdict)},
          {"kept", group.kept}};
}

// "rename a/b to c/d", with the paths of the folders as they were.
std::string Dump::NameText(const nvlog::RecordHeader& header, nvlog::Place place) const {
  const auto record = std::make_unique<pool::NameRecord>();
  if (!reader_.CopyName(header, place, record.get())) return "";
  const pool::NameTexts texts = pool::TextsOf(*record);
  const std::string to = fmt::format("{}/{}", texts.folder_path, texts.name);
  const std::string from = fmt::format("{}/{}", texts.from_folder_path, texts.from);
  const uint64_t inode = record->file.inode;
  switch (record->deed) {
    case pool::Deed::kCreated:
      return fmt::format("created {} (inode {})", to, inode);
    case pool::Deed::kLinks:
      return fmt::format("links {} to {} (inode {})", from, to, inode);
    case pool::Deed::kLinked:
      return fmt::format("linked {} to {} (inode {})", from, to, inode);
    case pool::Deed::kRemoves:
      return fmt::format("removes {} (inode {})", to, inode);
    case pool::Deed::kRemoved:
      return fmt::format("removed {} (inode {})", to, inode);
    case pool::Deed::kRenames:
      return fmt::format("renames {} to {} (inode {})", from, to, inode);
    case pool::Deed::kRenamed:
      return fmt::format("renamed {} to {} (inode {})", from, to, inode);
    case pool::Deed::kAttributes:
      return fmt::format("attributes of inode {}", inode);
  }
  return "";
}

void Dump::PrintRecord(const nvlog::Group& group, const nvlog::RecordHeader& header,
                       nvlog::Place place) {
  // A newer name may come with it.
  if (header.kind == nvlog::Kind::kFile) last_file_ = identified_ = nvlog::kNoFile;
  const uint32_t file = walk_.FileOf(header, place);
  const bool known = file != nvlog::kNoFile;
  const bool names = header.kind == nvlog::Kind::kName;
  const std::string path = names ? NameText(header, place) : known ? PathOfFile(file) : "";
  if (!json_) {
    fmt::print(kRow, group.lsn, group.log, PlaceText(place), KindName(header.kind),
               known ? fmt::format("{}", file) : (names ? "-" : "?"), header.offset, header.length,
               fmt::format("{}/{}", header.index + 1, header.count), StateText(group),
               path.empty() ? "?" : Printable(path));
    return;
  }
  Json line = GroupJson(group, place);
  line.update({{"kind", KindName(header.kind)},
               {"file", known ? Json(file) : Json()},
               {"offset", header.offset},
               {"length", header.length},
               {"group_index", header.index},
               {"group_count", header.count}});
  if (!path.empty()) PutPath(line, names ? "change" : "path", path);
  fmt::print("{}\n", OneLine(line));
}

// One line for all of it: nobody knows which of its records are what was written.
void Dump::PrintIncomplete(const nvlog::Group& group) {
  const std::string place = PlaceText(group.place);
  if (!json_) {
    fmt::print(kRow, group.lsn != 0 ? fmt::format("{}", group.lsn) : "?", group.log, place, "?",
               "?", "?", "?", group.records != 0 ? fmt::format("1/{}", group.records) : "?",
               StateName(group.verdict), "?");
    return;
  }
  Json line = GroupJson(group, group.place);
  line.update({{"group_count", group.records}, {"damaged_record", PlaceText(group.damaged)}});
  fmt::print("{}\n", OneLine(line));
}

void Dump::Export(const nvlog::RecordHeader& header, nvlog::Place place, uint32_t file) {
  if (header.kind == nvlog::Kind::kFile || header.kind == nvlog::Kind::kName) return;
  if (file != identified_ && file != nvlog::kNoFile) {
    const auto record = std::make_unique<pool::FileRecord>();
    if (walk_.CopyRecord(file, record.get())) exporter_->Identify(file, *record);
    identified_ = file;
  }
  exporter_->Add(file, reader_, header, place);
}

int RunDump(const DumpArguments& arguments) {
  ScopedPool pool;
  OpenPool(&pool, arguments.pool, arguments.all ? pool::Mode::kSalvage : pool::Mode::kInspect,
           kAnyMemory);
  std::optional<Exporter> exporter;
  if (!arguments.export_folder.empty()) exporter.emplace(arguments.export_folder);
  nvlog::Reader reader;
  OpenReader(pool, arguments.all, &reader);
  Dump(reader, arguments.json, exporter ? &*exporter : nullptr).Print();
  FinishOutput();
  if (exporter) exporter->Finish();
  return kOk;
}

}  // namespace

void AddDump(CLI::App& app, int* status) {
  auto arguments = std::make_shared<DumpArguments>();
  CLI::App* command = app.add_subcommand("dump", "Print the records in a pool's logs.");
  command->add_option("POOL", arguments->pool, "The pool; it may be in use")->required();
  command->add_flag("--json", arguments->json, "One JSON object per line");
  command->add_flag(
      "--all", arguments->all,
      "Records that were on disk long ago as well, and of a pool that cannot be used\n"
      "because its checkpoint is damaged");
  command
      ->add_option("--export", arguments->export_folder,
                   "Save what the records say, file by file, to this new folder")
      ->type_name("DIR");
  command->footer(
      "One line per record, oldest first: the LSN of its group, its log, its place in the pool\n"
      "(segment.unit), what it is, its file, offset and length in bytes, its place in the group,\n"
      "and whether it is pending, kept because its disk refuses, on disk, or void. A group that\n"
      "is unfinished or damaged has one line.\n"
      "\n"
      "Examples:\n"
      "  nvcache dump /dev/shm/pool | grep my.db\n"
      "  nvcache dump /mnt/pmem/pool --all --export saved\n");
  command->callback([arguments, status] { *status = RunDump(*arguments); });
}

}  // namespace nvcache::tool
