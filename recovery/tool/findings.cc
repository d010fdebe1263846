// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/findings.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cerrno>

#include "recovery/tool/summary.h"

namespace nvcache::tool {
namespace {

constexpr size_t kGroupsShown = 20;

Findings* FindingsOf(void* context) { return static_cast<Findings*>(context); }

std::string Name(const Unresolved& file) {
  return file.path.empty() ? fmt::format("file {}.{}", file.slot, file.incarnation)
                           : Printable(file.path);
}

const char* Reason(const Unresolved& file) {
  switch (file.error) {
    case ESTALE:
      return "another file has its name";
    case EBADMSG:
      return "its record in the pool is damaged";
    case ENOTDIR:
      return "it is lost, and its folder too";
    case ELOOP:
      return "it is lost, and its path leads through a symbolic link now";
    case EXDEV:
      return "it is lost, and its file system is not mounted there";
    case EPERM:
      if (file.is_new) return "it is lost, and only root or its owner can create it again";
      [[fallthrough]];
    default:
      return strerror(file.error);
  }
}

void PrintFile(const Unresolved& file) {
  if (file.entries == 0) {  // found, but the file system did not take what it was given
    fmt::print("refused: {} (inode {}): {}\n", Name(file), file.inode, Reason(file));
  } else {
    fmt::print("unresolved: {} (inode {}): {}; {}, {}\n", Name(file), file.inode, Reason(file),
               Many(file.entries, "entry", "entries"), Size(file.bytes));
  }
}

// `why` has a place for the index of the entry.
void PrintGroups(const char* what, const char* why, const std::vector<nvlog::Group>& groups) {
  for (size_t i = 0; i < std::min(groups.size(), kGroupsShown); ++i) {
    fmt::print("{}: write call at index {}: {}; none of it was applied\n", what, groups[i].position,
               fmt::format(fmt::runtime(why), groups[i].damaged));
  }
  if (groups.size() > kGroupsShown) {
    fmt::print("{}: {} more\n", what, groups.size() - kGroupsShown);
  }
}

}  // namespace

// The callbacks run inside the replay, which is compiled without exceptions: nothing here throws
// but for want of memory.
recovery::Observer ObserverOf(Findings* findings) {
  recovery::Observer observer;
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
  observer.recreated = [](void* context, uint32_t slot, const pool::FileRecord& record) {
    FindingsOf(context)->recreated.push_back({slot, record.incarnation, PathOf(record)});
  };
  observer.unresolved = [](void* context, uint32_t slot, const pool::FileRecord& record,
                           int error) {
    const std::string path = error == EBADMSG ? "" : PathOf(record);
    FindingsOf(context)->unresolved.try_emplace(
        slot, Unresolved{slot, record.incarnation, path, record.inode, error,
                         record.name == pool::kNameNew});
  };
  observer.orphan = [](void* context, const nvlog::Reader& reader,
                       const nvlog::EntryHeader& header) {
    const auto file = FindingsOf(context)->unresolved.find(header.file);
    if (file != FindingsOf(context)->unresolved.end()) {
      ++file->second.entries;
      file->second.bytes += header.length;
    }
    if (FindingsOf(context)->exporter != nullptr) {
      FindingsOf(context)->exporter->Add(reader, header);
    }
  };
  return observer;
}

void PrintText(const Findings& findings) {
  const recovery::Summary& summary = findings.summary;
  if (!summary.was_dirty) {
    fmt::print("nothing to recover\n");
  } else {
    fmt::print("{} {}\n", findings.dry_run ? "would recover" : "recovered", Applied(summary));
  }
  for (const Recreated& file : findings.recreated) {
    fmt::print("{}: {}\n", findings.dry_run ? "would create again" : "created again",
               Printable(file.path));
  }
  for (const auto& [slot, file] : findings.unresolved) PrintFile(file);
  PrintGroups("damaged", "the checksum of entry {} is wrong", findings.damaged);
  PrintGroups("unfinished", "entry {} is not all there", findings.unfinished);
  if (findings.exporter != nullptr) {
    fmt::print("exported {} of {} to {}\n", Many(findings.exporter->entries(), "entry", "entries"),
               Many(findings.exporter->files(), "file", "files"),
               Printable(findings.exporter->folder()));
  }
  if (findings.discarded != 0) {
    fmt::print("discarded {}\n", Many(findings.discarded, "entry", "entries"));
  }
}

Json ToJson(const Findings& findings) {
  const recovery::Summary& summary = findings.summary;
  Json json = {{"dry_run", findings.dry_run},
               {"was_dirty", summary.was_dirty},
               {"clean", findings.clean},
               {"files", summary.files},
               {"entries", summary.entries},
               {"bytes", summary.bytes},
               {"recreated_files", summary.recreated_files},
               {"unresolved_files", summary.unresolved_files},
               {"unresolved_entries", summary.unresolved_entries},
               {"unresolved_bytes", summary.unresolved_bytes},
               {"failed_files", summary.failed_files},
               {"failed_entries", summary.failed_entries},
               {"failed_bytes", summary.failed_bytes},
               {"error", summary.error != 0 ? Json(ErrorName(summary.error)) : Json()},
               {"damaged_groups", summary.damaged_groups},
               {"unfinished_groups", summary.unfinished_groups},
               {"discarded_entries", findings.discarded}};
  json["recreated"] = Json::array();
  for (const Recreated& file : findings.recreated) {
    Json item = {{"slot", file.slot}, {"incarnation", file.incarnation}};
    PutPath(item, "path", file.path);
    json["recreated"].push_back(std::move(item));
  }
  json["unresolved"] = Json::array();
  for (const auto& [slot, file] : findings.unresolved) {
    Json item = {{"slot", slot}, {"incarnation", file.incarnation}};
    if (!file.path.empty()) PutPath(item, "path", file.path);
    item.update({{"inode", file.inode},
                 {"error", ErrorName(file.error)},
                 {"entries", file.entries},
                 {"bytes", file.bytes}});
    json["unresolved"].push_back(std::move(item));
  }
  json["damaged"] = Json::array();
  for (const nvlog::Group& group : findings.damaged) {
    json["damaged"].push_back({{"index", group.position}, {"damaged_entry", group.damaged}});
  }
  json["unfinished"] = Json::array();
  for (const nvlog::Group& group : findings.unfinished) {
    json["unfinished"].push_back({{"index", group.position}, {"missing_entry", group.damaged}});
  }
  if (findings.exporter != nullptr) {
    json["exported"] = {{"folder", Printable(findings.exporter->folder())},
                        {"files", findings.exporter->files()},
                        {"entries", findings.exporter->entries()}};
  }
  return json;
}

}  // namespace nvcache::tool
