// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/findings.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "recovery/tool/summary.h"

namespace nvcache::tool {
namespace {

constexpr size_t kGroupsShown = 20;

Findings* FindingsOf(void* context) { return static_cast<Findings*>(context); }

// With its inode number, if that is known.
std::string Name(const Unresolved& file) {
  if (file.file == nvlog::kNoFile) return "unknown files";
  return fmt::format("{} (inode {})",
                     file.path.empty() ? fmt::format("file {}", file.file) : Printable(file.path),
                     file.inode);
}

// Without a folder, `name` is all of it, or nothing is known.
std::string PathOf(const char* folder, const char* name) {
  const std::string path = folder;
  return path.empty() || path == "/" ? path + name : path + "/" + name;
}

const char* ActName(replay::NameAct act) {
  switch (act) {
    case replay::NameAct::kCreate:
      return "create";
    case replay::NameAct::kLink:
      return "link";
    case replay::NameAct::kRename:
      return "rename";
    default:
      return "remove";
  }
}

const char* WordFor(replay::NameAct act, bool dry_run) {
  switch (act) {
    case replay::NameAct::kCreate:
      return dry_run ? "would create" : "created";
    case replay::NameAct::kLink:
      return dry_run ? "would link" : "linked";
    case replay::NameAct::kRename:
      return dry_run ? "would rename" : "renamed";
    default:
      return dry_run ? "would remove" : "removed";
  }
}

std::string WhatIsWrong(int error) {
  switch (error) {
    case ENOENT:
      return "what had it is not there";
    case EEXIST:
      return "something else has it";
    case ENOTDIR:
      return "its folder is not there";
    case ENODEV:
      return "its file system is not mounted there";
    case EBADMSG:
      return "its record says what no call can do";
    default:
      return strerror(error);
  }
}

void PrintNames(const Findings& findings) {
  for (const NameFound& name : findings.names) {
    fmt::print("{}: {}\n", WordFor(name.act, findings.dry_run), Printable(name.path));
  }
  for (const NameUnresolved& name : findings.unresolved_names) {
    fmt::print("unresolved: the name {}: {}\n", name.path.empty() ? "?" : Printable(name.path),
               WhatIsWrong(name.error));
  }
}

// Segment and unit.
std::string PlaceText(const Findings& findings, nvlog::Place place) {
  return fmt::format("{}.{}", place / findings.segment_units, place % findings.segment_units);
}

const char* Reason(const Unresolved& file) {
  switch (file.error) {
    case ESTALE:
      return "another file has its name";
    case EBADMSG:
      return "the record that names it is damaged";
    case ENODEV:
      return "its file system is not mounted there";
    default:
      return strerror(file.error);
  }
}

void PrintFile(const Unresolved& file) {
  if (file.records == 0) {  // found, but the file system did not take what it was given
    fmt::print("refused: {}: {}\n", Name(file), Reason(file));
  } else {
    fmt::print("unresolved: {}: {}; {}, {}\n", Name(file), Reason(file),
               Many(file.records, "record", "records"), Size(file.bytes));
  }
}

// `why` has a place for that of the record.
void PrintGroups(const Findings& findings, const char* what, const char* why,
                 const std::vector<nvlog::Group>& groups) {
  for (size_t i = 0; i < std::min(groups.size(), kGroupsShown); ++i) {
    const nvlog::Group& group = groups[i];
    const std::string place = PlaceText(findings, group.place);
    if (group.place % findings.segment_units == 0) {
      fmt::print("{}: segment {}: its headers cannot be read; nothing of it was applied\n", what,
                 group.place / findings.segment_units);
      continue;
    }
    fmt::print("{}: group at {}: {}; none of it was applied\n", what, place,
               fmt::format(fmt::runtime(why), PlaceText(findings, group.damaged)));
  }
  if (groups.size() > kGroupsShown) {
    fmt::print("{}: {} more\n", what, groups.size() - kGroupsShown);
  }
}

Json GroupsJson(const Findings& findings, const char* record,
                const std::vector<nvlog::Group>& groups) {
  Json json = Json::array();
  for (const nvlog::Group& group : groups) {
    json.push_back({{"place", PlaceText(findings, group.place)},
                    {"lsn", group.lsn},
                    {"log", group.log},
                    {record, PlaceText(findings, group.damaged)}});
  }
  return json;
}

}  // namespace

// The callbacks run inside the replay, which is compiled without exceptions: nothing here throws
// but for want of memory.
replay::Observer ObserverOf(Findings* findings) {
  replay::Observer observer;
  observer.context = findings;
  observer.progress = [](void* context, uint64_t done, uint64_t total) {
    FindingsOf(context)->progress->Update(done, total);
  };
  observer.damaged = [](void* context, const nvlog::Group& group) {
    FindingsOf(context)->damaged.push_back(group);
  };
  observer.unfinished = [](void* context, const nvlog::Group& group) {
    FindingsOf(context)->unfinished.push_back(group);
  };
  observer.name = [](void* context, replay::NameAct act, const char* folder, const char* name) {
    FindingsOf(context)->names.push_back({act, PathOf(folder, name)});
  };
  observer.unresolved_name = [](void* context, const char* folder, const char* name, int error) {
    FindingsOf(context)->unresolved_names.push_back({PathOf(folder, name), error});
  };
  observer.unresolved = [](void* context, uint32_t file, const pool::FileRecord& record,
                           int error) {
    Findings* all = FindingsOf(context);
    const bool known = error != EBADMSG;
    all->unresolved.try_emplace(file,
                                Unresolved{file, known ? PathOf(record) : "", record.inode, error});
    if (known && all->exporter != nullptr) all->exporter->Identify(file, record);
  };
  observer.orphan = [](void* context, uint32_t file, const nvlog::Reader& reader,
                       const nvlog::RecordHeader& header, nvlog::Place place) {
    Findings* all = FindingsOf(context);
    if (const auto found = all->unresolved.find(file); found != all->unresolved.end()) {
      ++found->second.records;
      found->second.bytes += header.kind == nvlog::Kind::kData ? header.length : 0;
    }
    if (all->exporter != nullptr) all->exporter->Add(file, reader, header, place);
  };
  return observer;
}

void PrintText(const Findings& findings) {
  const replay::Summary& summary = findings.summary;
  if (!summary.was_dirty) {
    fmt::print("nothing to recover\n");
  } else {
    fmt::print("{} {}\n", findings.dry_run ? "would recover" : "recovered", Applied(summary));
  }
  if (summary.through_files != 0) {
    fmt::print(
        "{} write-through: of what a program without NVCache wrote there in the last seconds, "
        "bytes may "
        "lie under older ones\n",
        Many(summary.through_files, "of these files was", "of these files were"));
  }
  PrintNames(findings);
  for (const auto& [number, file] : findings.unresolved) PrintFile(file);
  PrintGroups(findings, "damaged", "the record at {} is not as it was written", findings.damaged);
  PrintGroups(findings, "unfinished", "the record at {} is not all there", findings.unfinished);
  if (findings.exporter != nullptr) {
    fmt::print("exported {} of {} to {}\n", Many(findings.exporter->records(), "record", "records"),
               Many(findings.exporter->files(), "file", "files"),
               Printable(findings.exporter->folder()));
  }
  if (findings.discarded != 0) {
    fmt::print("discarded {}\n", Many(findings.discarded, "record", "records"));
  }
}

Json ToJson(const Findings& findings) {
  const replay::Summary& summary = findings.summary;
  Json json = {{"dry_run", findings.dry_run},
               {"was_dirty", summary.was_dirty},
               {"clean", findings.clean},
               {"files", summary.files},
               {"records", summary.records},
               {"bytes", summary.bytes},
               {"through_files", summary.through_files},
               {"unresolved_files", summary.unresolved_files},
               {"unresolved_records", summary.unresolved_records},
               {"unresolved_bytes", summary.unresolved_bytes},
               {"failed_files", summary.failed_files},
               {"failed_records", summary.failed_records},
               {"failed_bytes", summary.failed_bytes},
               {"error", summary.error != 0 ? Json(ErrorName(summary.error)) : Json()},
               {"damaged_groups", summary.damaged_groups},
               {"unfinished_groups", summary.unfinished_groups},
               {"discarded_records", findings.discarded}};
  json["unresolved"] = Json::array();
  for (const auto& [number, file] : findings.unresolved) {
    Json item = {{"file", number != nvlog::kNoFile ? Json(number) : Json()}};
    if (!file.path.empty()) PutPath(item, "path", file.path);
    item.update({{"inode", file.inode},
                 {"error", ErrorName(file.error)},
                 {"records", file.records},
                 {"bytes", file.bytes}});
    json["unresolved"].push_back(std::move(item));
  }
  json["names"] = Json::array();
  for (const NameFound& name : findings.names) {
    Json item = {{"act", ActName(name.act)}};
    PutPath(item, "path", name.path);
    json["names"].push_back(std::move(item));
  }
  json["unresolved_names"] = Json::array();
  for (const NameUnresolved& name : findings.unresolved_names) {
    Json item = {{"error", ErrorName(name.error)}};
    PutPath(item, "path", name.path);
    json["unresolved_names"].push_back(std::move(item));
  }
  json["damaged"] = GroupsJson(findings, "damaged_record", findings.damaged);
  json["unfinished"] = GroupsJson(findings, "missing_record", findings.unfinished);
  if (findings.exporter != nullptr) {
    json["exported"] = {{"folder", Printable(findings.exporter->folder())},
                        {"files", findings.exporter->files()},
                        {"records", findings.exporter->records()}};
  }
  return json;
}

}  // namespace nvcache::tool
